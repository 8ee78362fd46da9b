//! A model's own tokens: `--tokenizer` with a small `tokenizer.json` whose tokens are counted by hand.

use super::kv_events::{next, now, subscribed};
use super::{Server, TINY};
use crate::support::{file, roofcast};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Names of bytes in GPT-2's byte-level vocabulary: printable bytes are themselves, the others are the code points from
/// 256 on, in order.
fn names() -> Vec<String> {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut next = 256;
    let mut name = |byte: u32| {
        let code = if printable(byte) { byte } else { next };
        next += u32::from(!printable(byte));
        char::from_u32(code).unwrap().to_string()
    };
    (0..256).map(&mut name).collect()
}

const BEGIN: u32 = 259;
const TURN: u32 = 260;
const TURN_END: u32 = 261;

/// A byte-level BPE vocabulary: tokens 0 to 255 are the bytes, " t" is 256, "he" 257 and " the" 258. A prompt begins
/// with `<s>`, 259; with `marks` there are ChatML's two special tokens, 260 and 261.
fn vocabulary(merges: &[[&str; 2]], marks: bool) -> Value {
    let merged = merges.iter().map(|parts| parts.concat());
    let vocab: Value =
        (0..).zip(names().into_iter().chain(merged)).map(|(id, name): (u32, _)| (name, id)).collect();
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "special": true, "normalized": false, "single_word": false,
            "lstrip": false, "rstrip": false})
    };
    let mut added = vec![special(BEGIN, "<s>")];
    if marks {
        added.extend([special(TURN, "<|im_start|>"), special(TURN_END, "<|im_end|>")]);
    }
    let level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let around = json!({"type": "TemplateProcessing", "pair": [],
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [BEGIN], "tokens": ["<s>"]}}});
    json!({"version": "1.0", "truncation": {"max_length": 2, "strategy": "LongestFirst", "stride": 0,
        "direction": "Right"}, "padding": null, "added_tokens": added, "normalizer": null, "pre_tokenizer": level,
        "post_processor": around, "decoder": level, "model": {"type": "BPE", "dropout": null, "unk_token": null,
        "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
        "ignore_merges": false, "vocab": vocab, "merges": merges}})
}

const MERGES: [[&str; 2]; 3] = [["Ġ", "t"], ["h", "e"], ["Ġt", "he"]];

/// Starts a server with the tokenizer `vocabulary`.
fn server(vocabulary: &Value, flags: &str) -> (Server, TempDir) {
    let (folder, path) = file("tokenizer.json", vocabulary.to_string().as_bytes());
    (Server::start(TINY, &format!("--tokenizer {path} {flags}")), folder)
}

fn post(server: &Server, path: &str, body: Value) -> Value {
    let answer = server.post(path, &body.to_string());
    assert_eq!(answer.status, 200, "{path} {body}: {}", answer.body);
    answer.json()
}

fn tokens(server: &Server, body: Value) -> Value {
    post(server, "/tokenize", body)["tokens"].clone()
}

/// The tokens of a text in which no bytes are merged.
fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

#[test]
fn texts_are_cut_and_put_together_again() {
    let (server, _folder) = server(&vocabulary(&MERGES, true), "");
    // "the" is t, "he". In " the", " t" and "he" are merged to one token.
    let found = post(&server, "/tokenize", json!({"prompt": "the the", "return_token_strs": true}));
    assert_eq!(found["tokens"], json!([BEGIN, 116, 257, 258]));
    assert_eq!((&found["token_strs"], &found["count"]), (&json!(["<s>", "t", "he", "Ġthe"]), &json!(4)));
    let bare = json!({"prompt": "the the", "add_special_tokens": false});
    assert_eq!(tokens(&server, bare), json!([116, 257, 258]));
    // é is the bytes 195 and 169; a special token is one token in a text, too.
    assert_eq!(tokens(&server, json!({"prompt": "é<|im_end|>"})), json!([BEGIN, 195, 169, TURN_END]));
    let text = |tokens: Value| post(&server, "/detokenize", json!({"tokens": tokens}))["prompt"].clone();
    assert_eq!(text(json!([BEGIN, 116, 257, 258, 195, 169])), "<s>the theé");
    assert_eq!(text(json!([116, 195])), "t\u{fffd}");
    let wrong = server.post("/v1/completions", r#"{"prompt": [5, 262]}"#);
    assert!(
        wrong.status == 400 && wrong.body.contains("Token id 262 is out of vocabulary"),
        "{}",
        wrong.body
    );
}

#[test]
fn turns_are_marked_with_what_the_file_has() {
    let messages = json!([{"role": "user", "content": "the"}]);
    let (marked, _folder) = server(&vocabulary(&MERGES, true), "");
    let turn = [bytes("user\nt"), vec![257]].concat();
    let expected = [&[BEGIN, TURN][..], &turn, &[TURN_END, 10, TURN], &bytes("assistant\n")].concat();
    assert_eq!(tokens(&marked, json!({"messages": messages})), json!(expected));
    let (lines, _folder) = server(&vocabulary(&MERGES, false), "");
    let expected = [vec![BEGIN], bytes("user:\nt"), vec![257], bytes("\n\nassistant:\n")].concat();
    assert_eq!(tokens(&lines, json!({"messages": messages})), json!(expected));
    let open = json!({"messages": messages, "add_generation_prompt": false});
    let expected = [vec![BEGIN], bytes("user:\nt"), vec![257], bytes("\n\n")].concat();
    assert_eq!(tokens(&lines, open), json!(expected));
}

/// " the" is the only word that is one token with its space, so answers consist of " the".
#[test]
fn answers_are_tokens_of_the_file() {
    let (server, _folder) = server(&vocabulary(&MERGES, true), "");
    let mut body = json!({"prompt": "the the", "max_tokens": 3, "ignore_eos": true, "return_token_ids": true, "echo": true});
    let whole = post(&server, "/v1/completions", body.clone());
    let choice = &whole["choices"][0];
    // As in vLLM, a prompt given as token ids is not echoed as text.
    assert_eq!((&choice["text"], &choice["token_ids"]), (&json!(" the the the"), &json!([258, 258, 258])));
    let echo = json!({"prompt": "the the", "max_tokens": 3, "ignore_eos": true, "echo": true});
    assert_eq!(post(&server, "/v1/completions", echo)["choices"][0]["text"], "the the the the the");
    assert_eq!(choice["prompt_token_ids"], json!([BEGIN, 116, 257, 258]));
    assert_eq!(
        whole["usage"],
        json!({"prompt_tokens": 4, "total_tokens": 7, "completion_tokens": 3,
        "prompt_tokens_details": null, "completion_tokens_details": null})
    );
    // The stop string "e t" begins in the first token and ends in the second.
    body["echo"] = false.into();
    body["stop"] = "e t".into();
    let stopped = post(&server, "/v1/completions", body.clone());
    let choice = &stopped["choices"][0];
    assert_eq!((&choice["text"], &choice["stop_reason"]), (&json!(" th"), &json!("e t")));
    assert_eq!(choice["token_ids"], json!([258, 258]));
    body["stream"] = true.into();
    body["stop"] = Value::Null;
    let events = server.post("/v1/completions", &body.to_string()).events();
    let pieces: Vec<&Value> = events.iter().map(|event| &event["choices"][0]["text"]).collect();
    assert_eq!(pieces, [" the", " the", " the"]);
}

/// Without merges no word is a single token, so answers spell words, a token for each letter.
#[test]
fn words_are_spelled_where_none_is_a_token() {
    let (server, _folder) = server(&vocabulary(&[], false), "");
    let body = json!({"prompt": "a", "max_tokens": 30, "ignore_eos": true, "return_token_ids": true});
    let answer = post(&server, "/v1/completions", body);
    let text = answer["choices"][0]["text"].as_str().unwrap();
    assert!(text.len() == 30 && text.starts_with(' '), "{text}");
    assert_eq!(answer["choices"][0]["token_ids"], json!(bytes(text)));
}

/// The arguments of the call are `{"c":"é"}`: ten bytes, of which the seventh and eighth are one character.
#[test]
fn a_character_is_out_with_the_token_that_ends_it() {
    let (server, _folder) = server(&vocabulary(&MERGES, true), "");
    let form = json!({"type": "object", "required": ["c"], "properties": {"c": {"enum": ["é"]}}});
    let mut body = json!({"messages": [{"role": "user", "content": "the"}], "max_tokens": 20, "stream": true,
        "tool_choice": "required",
        "tools": [{"type": "function", "function": {"name": "f", "parameters": form}}]});
    let said = |body: &Value| -> Vec<String> {
        let events = server.post("/v1/chat/completions", &body.to_string()).events();
        let pieces = events.iter().filter_map(|e| e["choices"][0]["delta"]["tool_calls"].get(0));
        pieces.map(|piece| piece["function"]["arguments"].as_str().unwrap().to_owned()).collect()
    };
    let pieces = said(&body);
    assert_eq!(pieces, ["{", "\"", "c", "\"", ":", "\"", "", "é", "\"", "}"]);
    // If the token limit cuts the answer within the character, its first half is not sent.
    body["max_tokens"] = 7.into();
    assert_eq!(said(&body).concat(), "{\"c\":\"");
}

/// KV events have the tokens of the file: a prompt's block is `<s>` and fifteen " the".
#[test]
fn kv_events_have_the_tokens_of_the_file() {
    let config = r#"{"endpoint":"tcp://127.0.0.1:0"}"#;
    let flags = format!("--enable-sleep-mode --kv-events-config {config}");
    let (server, _folder) = server(&vocabulary(&MERGES, true), &flags);
    let event = now(async {
        let (mut subscriber, _) = subscribed(&server, "").await;
        let body = json!({"prompt": " the".repeat(17), "max_tokens": 1, "ignore_eos": true});
        post(&server, "/v1/completions", body);
        next(&mut subscriber).await[1][0].clone()
    });
    let expected: Vec<u32> = [BEGIN].into_iter().chain([258; 15]).collect();
    assert_eq!((&event["type"], &event["token_ids"]), (&json!("BlockStored"), &json!(expected)));
    assert_eq!(event["block_hashes"], json!([BLOCK_HASH]));
}

/// SHA-256 over canonical CBOR of [root, [259, 258, …, 258], null], its low 64 bits, computed with Python's hashlib.
const BLOCK_HASH: u64 = 4_921_947_397_205_464_647;

/// llama.cpp's server adds special tokens only if the client asks for them.
#[test]
fn llama_cpp_tokenizes_without_special_tokens() {
    let (server, _folder) = server(&vocabulary(&MERGES, true), "--engine llama.cpp");
    assert_eq!(tokens(&server, json!({"content": "the the"})), json!([116, 257, 258]));
    let special = json!({"content": "the the", "add_special": true});
    assert_eq!(tokens(&server, special), json!([BEGIN, 116, 257, 258]));
}

#[test]
fn a_wrong_file_is_refused_before_it_listens() {
    let (_spec, spec) = file("spec.toml", TINY.as_bytes());
    for wrong in [
        "",
        "{",
        "{}",
        r#"{"model": 7}"#,
        r#"{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}"#,
    ] {
        let (_folder, path) = file("tokenizer.json", wrong.as_bytes());
        let run = roofcast(&format!("emulate {spec} --port 0 --tokenizer {path}"));
        assert!(
            run.code == 2 && run.err.contains("tokenizer.json") && run.out.is_empty(),
            "{wrong}: {}",
            run.err
        );
        assert!(run.err.contains("accepted: a tokenizer.json"), "{wrong}: {}", run.err);
    }
    let run = roofcast(&format!("emulate {spec} --port 0 --tokenizer /nowhere/tokenizer.json"));
    assert!(run.code == 2 && run.err.contains("/nowhere/tokenizer.json"), "{}", run.err);
}
