//! Requests as they are sent: prompts, keys, headers, bodies, certificates; and invalid arguments.

use super::{CALM, exact};
use crate::schedule::EXTRA;
use crate::scripted::{self, good, tells, uncounted};
use crate::support::{file, json, roofcast, run};
use serde_json::Value;
use std::io::{Read, Write};

#[test]
fn whole_answers_and_closed_connections() {
    let body = r#"{"choices":[{"index":0,"text":"a b","finish_reason":"length"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#;
    let (url, seen) = scripted::start(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
        drop(stream.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes()));
        false
    });
    let (answer, code) = json(&format!(
        "bench --url {url} --model m --requests 3 --output-len 2 --no-stream --assume-tokens {CALM}"
    ));
    // Answers that take no time leave no request in flight, so the run may be invalid.
    assert!([0, 3].contains(&code), "{answer}");
    // An answer that is not streamed has no TTFT.
    assert_eq!((answer["total_output_tokens"].as_u64(), answer["mean_ttft_ms"].is_null()), (Some(6), true));
    assert_eq!(seen.lock().unwrap()[0].body["stream"], false);
}

#[test]
fn prompts_differ_and_the_body_is_as_asked() {
    let (url, seen) = scripted::start(|_, stream| good(stream));
    let args = format!(
        "bench --url {url} --model m --requests 6 --concurrency 2 --input-len 30 --output-len 2 --assume-tokens --header X-Team:blue {CALM} --extra-body"
    );
    let run = run(args.split_whitespace().chain([r#"{"top_p":0.5,"temperature":null}"#]));
    // Answers that take no time leave no request in flight, so the run may be invalid.
    assert!([0, 3].contains(&run.code), "{}{}", run.err, run.out);
    let seen = seen.lock().unwrap();
    let mut prompts: Vec<_> = seen.iter().map(|a| a.body["prompt"].as_str().unwrap()).collect();
    assert!(prompts.iter().all(|p| p.split(' ').count() == 30), "{prompts:?}");
    prompts.sort_unstable();
    prompts.dedup();
    assert_eq!(prompts.len(), 6);
    let first = &seen[0];
    assert_eq!((&first.body["top_p"], first.body.get("temperature")), (&Value::from(0.5), None));
    assert_eq!((&first.body["max_tokens"], &first.body["model"]), (&Value::from(2), &Value::from("m")));
    assert!(first.head.contains("x-team: blue"), "{}", first.head);
}

/// Anthropic's API gets the key and its version in headers of its own.
#[test]
fn anthropics_headers_are_sent() {
    let (url, seen) = scripted::start(|_, stream| good(stream));
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_roofcast"))
        .args([
            "bench",
            "--url",
            &url,
            "--model",
            "m",
            "--requests",
            "1",
            "--assume-tokens",
            "--endpoint",
            "messages",
        ])
        .env("OPENAI_API_KEY", "sk-very-secret")
        .output()
        .unwrap();
    let head = seen.lock().unwrap()[0].head.clone();
    assert!(
        head.contains("x-api-key: sk-very-secret") && head.contains("anthropic-version: 2023-06-01"),
        "{head}"
    );
    assert!(!String::from_utf8([output.stdout, output.stderr].concat()).unwrap().contains("secret"));
}

/// Tools and sampling keys of a prompt's row are sent in the form of the endpoint; a key that it lacks is named before
/// the run and in the report.
#[test]
fn keys_of_prompts_are_sent_or_named() {
    let row = r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "temperature": 0.5, "mood": "good",
        "tools": [{"type": "function", "function": {"name": "w", "parameters": {"type": "object"}}}], "tool_choice": "auto", "priority": 3}"#;
    let (_folder, path) = file("p.jsonl", row.replace('\n', " ").as_bytes());
    for (endpoint, tool, named) in [
        ("chat", "/tools/0/function/name", "`mood`"),
        ("responses", "/tools/0/name", "`mood`"),
        ("messages", "/tools/0/name", "`mood`, `priority`"),
    ] {
        let (url, seen) = scripted::start(|_, stream| good(stream));
        let run = roofcast(&format!(
            "bench --url {url} --model m --endpoint {endpoint} --prompts {path} --requests 1 --output-len 2 {CALM}"
        ));
        let body = seen.lock().unwrap()[0].body.clone();
        assert_eq!(
            (body.pointer(tool), &body["temperature"]),
            (Some(&"w".into()), &Value::from(0.5)),
            "{body}"
        );
        assert!(run.err.contains(&format!("place for it: {named}\n")), "{}", run.err);
        assert!(run.out.contains("place for it"), "{}", run.out);
    }
}

/// Each of two users is refused with `Retry-After: 0.4` all the time: in a second it tries at 0, 0.4 and 0.8 s.
#[test]
fn a_refused_request_waits_as_the_server_says() {
    let refusal = |stream: &mut dyn scripted::Stream| {
        let head = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 0.4\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(head.as_bytes()).is_ok()
    };
    let (url, seen) = scripted::start(move |_, stream| refusal(stream));
    let ask = format!("bench --url {url} --model m --concurrency 2 --duration 1 --assume-tokens {CALM}");
    let (answer, code) = json(&format!("{ask} --retry-after"));
    let tries = seen.lock().unwrap().len();
    assert!((2..=6).contains(&tries), "{tries}");
    assert_eq!((code, answer["retried"].as_u64()), (3, Some(tries as u64 - 2)), "{answer}");
    assert!(
        answer["failures"]["http_status"]["first"].as_str().unwrap().contains("--retry-after"),
        "{answer}"
    );
    // A server that refuses once serves the request at its second try.
    let (url, _) = scripted::start(move |n, stream| if n == 0 { refusal(stream) } else { good(stream) });
    let (answer, _) = json(&format!(
        "bench --url {url} --model m --requests 2 --output-len 2 --assume-tokens {CALM} --retry-after"
    ));
    assert_eq!((answer["completed"].as_u64(), answer["retried"].as_u64()), (Some(2), Some(1)), "{answer}");
}

/// Without a server the probe ends the program, as bad input does.
#[test]
fn a_closed_port_ends_at_the_probe() {
    let run = roofcast(&format!("bench --url {} --model m --requests 100", scripted::nobody()));
    assert_eq!((run.code, run.out.as_str()), (2, ""), "{}", run.err);
    assert!(run.err.contains("cannot connect") && run.err.contains("--wait-ready"), "{}", run.err);
}

#[test]
fn the_key_is_sent_and_never_shown() {
    let (url, seen) = scripted::start(|n, stream| n == 0 && good(stream));
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_roofcast"))
        .args(["bench", "--url", &url, "--model", "m", "--requests", "2", "--assume-tokens", "--json"])
        .env("OPENAI_API_KEY", "sk-very-secret")
        .output()
        .unwrap();
    assert!(seen.lock().unwrap()[0].head.contains("authorization: bearer sk-very-secret"));
    let shown = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(shown.contains("\"valid\"") && !shown.contains("secret"), "{shown}");
}

#[test]
fn tls_with_the_systems_certificates() {
    let ask = |url: &str, ca: &str| {
        let ca = crate::support::root().join("crates/roofcast-cli/tests/fixtures/tls").join(ca);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_roofcast"))
            .args(["bench", "--url", url, "--model", "m", "--requests", "3", "--assume-tokens", "--json"])
            .env("SSL_CERT_FILE", ca)
            .env_remove("SSL_CERT_DIR")
            .output()
            .unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let answer = ask(&scripted::start_tls(|_, stream| good(stream)), "ca.pem");
    assert_eq!(
        (answer["completed"].as_u64(), answer["total_output_tokens"].as_u64()),
        (Some(3), Some(6)),
        "{answer}"
    );
    // The server's certificate is not signed by a trusted authority.
    let answer = ask(&scripted::start_tls(|_, stream| good(stream)), "none.pem");
    assert_eq!((answer["completed"].as_u64(), answer["failed"].as_u64()), (Some(0), Some(3)));
    assert!(answer["failures"]["connect"]["first"].as_str().unwrap().starts_with("TLS"), "{answer}");
}

#[test]
fn prompts_from_a_file() {
    let lines = "{\"prompt\": \"one two\", \"output_len\": 2}\n{\"conversations\": [{\"from\": \"human\", \"value\": \"three\"}]}\n";
    let (_folder, path) = file("prompts.jsonl", lines.as_bytes());
    let (answer, _) = json(&format!(
        "bench --url {} --model m --endpoint chat --output-len 3 --prompts {path} {CALM}",
        exact()
    ));
    // Prompts of two words and of one, with three extra tokens each; two output tokens as the row says, and three by
    // default.
    let count = |key: &str| answer[key].as_u64();
    assert_eq!(
        (count("total_input_tokens"), count("total_output_tokens")),
        (Some(3 + 2 * EXTRA as u64), Some(5))
    );
    let (_folder, path) = file("prompts.jsonl", b"{\"prompt\": \"a\"}\n{\"prompt\": 1}");
    let run = roofcast(&format!("bench --url http://127.0.0.1:1 --model m --prompts {path}"));
    assert!(run.code == 2 && run.err.contains("prompts.jsonl:2"), "{}", run.err);
}

/// Two rows of Parquet: a prompt of two words that asks for two tokens, and a prompt of three words that asks for four.
#[cfg(feature = "parquet")]
#[test]
fn prompts_from_parquet() {
    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prompts.parquet");
    let schema = "message rows { required binary prompt (UTF8); required int64 output_tokens_count; }";
    let schema = std::sync::Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let out = std::fs::File::create(&path).unwrap();
    let mut writer =
        parquet::file::writer::SerializedFileWriter::new(out, schema, std::sync::Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let prompts: [ByteArray; 2] = ["one two".into(), "one two three".into()];
    column.typed::<ByteArrayType>().write_batch(&prompts, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[2, 4], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let (answer, _) = json(&format!(
        "bench --url {} --model m --endpoint chat --output-len 3 --prompts {} {CALM}",
        exact(),
        path.display()
    ));
    let count = |key: &str| answer[key].as_u64();
    assert_eq!(
        (count("total_input_tokens"), count("total_output_tokens")),
        (Some(5 + 2 * EXTRA as u64), Some(6)),
        "{answer}"
    );
}

/// The file exceeds the 64 MiB that specs and configs may have, as ShareGPT's 0.7 GB do: seventy rows with a mebibyte
/// of notes each.
#[test]
fn prompt_files_may_be_large() {
    let row = format!("{{\"prompt\": \"one\", \"output_len\": 1, \"note\": \"{}\"}}\n", "x".repeat(1 << 20));
    let (_folder, path) = file("prompts.jsonl", row.repeat(70).as_bytes());
    let (answer, _) = json(&format!(
        "bench --url {} --model m --prompts {path} --requests 70 --concurrency 8 {CALM}",
        exact()
    ));
    assert_eq!(answer["completed"], 70, "{answer}");
}

/// An https server behind a proxy: the proxy receives one CONNECT request, and TLS is spoken through the tunnel.
#[test]
fn https_through_a_proxy() {
    let server = crate::scripted::start_tls(|_, stream| crate::scripted::good(stream));
    let behind = server.strip_prefix("https://").unwrap().to_owned();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = std::sync::Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            let line = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
            heard.lock().unwrap().push(line);
            let mut server = std::net::TcpStream::connect(&behind).unwrap();
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
            let (mut up, mut back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut up, &mut back));
            std::thread::spawn(move || std::io::copy(&mut server, &mut client));
        }
    });
    let arguments = "bench --url https://far.test:8443 --model m --requests 3 --output-len 3 --insecure --assume-tokens --json";
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_roofcast"))
        .args(arguments.split(' ').chain(CALM.split(' ')))
        .env("https_proxy", &proxy)
        .env_remove("no_proxy")
        .env_remove("NO_PROXY")
        .output()
        .unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["completed"], 3, "{answer}");
    let asked = asked.lock().unwrap();
    assert!(
        !asked.is_empty() && asked.iter().all(|line| line == "CONNECT far.test:8443 HTTP/1.1"),
        "{asked:?}"
    );
}

#[test]
fn arguments_that_cannot_be() {
    let base = "bench --model m --url http://127.0.0.1:1";
    for (arguments, says) in [
        ("bench --model m --url 127.0.0.1:1".to_owned(), "--url"),
        ("bench --url http://127.0.0.1:1".into(), "--model"),
        (format!("{base} --rate 0"), "workload.arrivals.rate"),
        (format!("{base} --rate nan"), "--rate"),
        (format!("{base} --rate 1 --burstiness 0"), "burstiness"),
        (format!("{base} --burstiness 2"), "without a rate"),
        (format!("{base} --sweep concurrency=1,2 --constant"), "without a rate"),
        (format!("{base} --rate 1 --burstiness 2 --constant"), "--burstiness"),
        (format!("{base} --concurrency 0"), "workload.arrivals.concurrency"),
        (format!("{base} --concurrency 2 --rate 1"), "--rate"),
        (format!("{base} --timeout 0"), "--timeout"),
        (format!("{base} --header nonsense"), "--header"),
        (format!("{base} --extra-body [1]"), "--extra-body"),
        (format!("{base} --sweep depth=1"), "concurrency"),
        (format!("{base} --sweep rate=0"), "--sweep"),
        (format!("{base} --find-rate 9..1 --slo-ttft 500"), "--find-rate"),
        (format!("{base} --find-rate 1..9"), "without an SLO"),
        (format!("{base} --records run.txt"), "--records"),
        (format!("{base} --baseline gone.json"), "gone.json"),
        (format!("{base} --hardware h100-sxm"), "no model named"),
        (format!("{base} gone.toml"), "gone.toml"),
    ] {
        let run = roofcast(&arguments);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments}: {}", run.err);
        assert!(run.err.contains(says), "{arguments}: {says:?} is not in {:?}", run.err);
    }
}

/// If a server's answers have no counts, its tokenizer is asked, in vLLM's form and in llama.cpp's. This one counts
/// three tokens around a text and two for each of the longer words.
#[test]
fn a_servers_tokenizer_is_asked_where_it_counts_nothing() {
    let tokens = |text: &str| 3 + text.split(' ').map(|w| if w.len() > 4 { 2 } else { 1 }).sum::<usize>();
    for lists in [false, true] {
        let (url, seen) = scripted::start_reading(move |_, asked, stream| {
            if !asked.head.starts_with("post /tokenize") {
                return uncounted(stream);
            }
            let key = if lists { "content" } else { "prompt" };
            let n = tokens(asked.body[key].as_str().unwrap());
            let listed = serde_json::json!({"tokens": vec![7; n]});
            tells(&if lists { listed } else { serde_json::json!({"count": n}) }.to_string(), stream)
        });
        let (answer, _) =
            json(&format!("bench --url {url} --model m --requests 3 --input-len 50 --output-len 2 {CALM}"));
        assert_eq!((&answer["completed"], &answer["exact_prompts"]), (&3.into(), &Value::Null), "{answer}");
        let seen = seen.lock().unwrap();
        let said: Vec<_> = seen.iter().filter_map(|a| a.body["prompt"].as_str()).collect();
        assert!(said[said.len() - 3..].iter().all(|p| tokens(p) == 50), "{said:?}");
    }
}

/// The vocabulary has twenty of the words, and puts a start token before the text: 30 tokens are 29 words.
#[test]
fn prompts_are_words_of_the_tokenizer() {
    let words = "of and to in is that for it was on are as with his they at be this from have";
    let vocab: serde_json::Map<_, _> = words.split(' ').map(|w| (format!("Ġ{w}"), 1.into())).collect();
    let start = serde_json::json!({"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]});
    let tokenizer = serde_json::json!({"model": {"vocab": vocab}, "post_processor": start});
    let (_folder, path) = file("tokenizer.json", tokenizer.to_string().as_bytes());
    let (url, seen) = scripted::start(|_, stream| uncounted(stream));
    json(&format!(
        "bench --url {url} --model m --requests 2 --input-len 30 --output-len 2 --tokenizer {path} {CALM}"
    ));
    let seen = seen.lock().unwrap();
    let said = seen.last().unwrap().body["prompt"].as_str().unwrap();
    assert_eq!(said.split(' ').count(), 29, "{said}");
    assert!(said.split(' ').skip(1).all(|word| words.split(' ').any(|known| known == word)), "{said}");
    let (_folder, path) = file("tokenizer.json", b"{\"model\": {\"vocab\": {\"a\": 1}}}");
    let run = roofcast(&format!("bench --url {url} --model m --tokenizer {path}"));
    assert!(run.code == 2 && run.err.contains("model.vocab"), "{}", run.err);
}
