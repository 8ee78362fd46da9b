//! Recorded traffic: each format by hand, the published files whole, presets against their data, and every kind of bad
//! line.

use crate::support::{accepted, catalog, shared};
use roofcast::preset::{PROBABILITIES, Quantiles};
use roofcast::units::Picoseconds;
use roofcast::workload::request::Run;
use roofcast::workload::trace::TraceFormat;
use roofcast::workload::{Prompt, Request, Trace, Traffic, Workload};
use roofcast::{Error, Spec};

fn read(text: &str) -> roofcast::Result<Trace> {
    Trace::parse("t", text, None)
}

/// Arrival in milliseconds, prompt tokens and answer tokens of each request.
fn rows(text: &str) -> Vec<(f64, u32, u32)> {
    read(text).unwrap().requests.iter().map(|r| (r.at.ms(), r.input_len, r.output_len)).collect()
}

/// Tests and fuzzers walk the list of formats, so that it must have every name that a spec can have; the book has a row
/// for each.
#[test]
fn the_list_of_formats_is_whole() {
    let names = accepted(&serde_json::from_str::<TraceFormat>("\"?\"").unwrap_err());
    let mut formats: Vec<TraceFormat> =
        names.iter().map(|name| serde_json::from_str(&format!("\"{name}\"")).unwrap()).collect();
    formats.sort();
    let mut listed = TraceFormat::ALL;
    listed.sort();
    assert_eq!(formats, listed);
    let book = include_str!("../../../../docs/workloads.md");
    for name in names {
        assert!(book.contains(&format!("\n| `{name}` | ")), "docs/workloads.md has no row for {name}");
    }
}

#[test]
fn each_format_is_seen_and_read() {
    let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 23:59:59.9799600,4808,10\r\n\
                 2023-11-17 00:00:00.0319600,3180,8\r\n";
    // From 59.97996 s to 60.03196 s: 52 ms.
    assert_eq!(rows(azure), [(0.0, 4808, 10), (52.0, 3180, 8)]);
    let burstgpt = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
                    5,ChatGPT,472,18,490,Conversation log\n45.5,GPT-4,1087,230,1317,API log\n";
    assert_eq!(rows(burstgpt), [(5000.0, 472, 18), (45_500.0, 1087, 230)]);
    let own = "arrival_s,input_len,output_len,priority,session\n0.5,10,2,-1,7\n0.5,11,3,4,8\n";
    assert_eq!(rows(own), [(500.0, 10, 2), (500.0, 11, 3)]);
    let tags: Vec<_> = read(own).unwrap().requests.iter().map(|r| (r.priority, r.user)).collect();
    assert_eq!(tags, [(-1, 7), (4, 8)]);
    assert_eq!(rows("arrival_s,input_len,output_len\n1,2,3\n"), [(1000.0, 2, 3)]);
    assert_eq!(rows("input_length,output_length\n146,195\n\n122,366\n"), [(0.0, 146, 195), (0.0, 122, 366)]);
    // 5/4.7 bytes are 2 tokens, 12/4.7 are 3; é takes two bytes.
    let sharegpt = "{\"conversations\":[{\"from\":\"human\",\"value\":\"abcé\"},{\"from\":\"gpt\",\"value\":\"abcdefghijkl\"}]}\n\
                    {\"prompt_tokens\":9,\"completion_tokens\":8}\n";
    assert_eq!(rows(sharegpt), [(0.0, 2, 3), (0.0, 9, 8)]);
    assert!(!read(sharegpt).unwrap().timed && read(own).unwrap().timed);
}

/// Images of Azure's multimodal trace are counted, and their number is noted.
#[test]
fn images_of_a_trace_are_noted() {
    let text = "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 12:00:00.0,0,632,180\n\
                2024-10-15 12:00:00.7,2,562,61\n2024-10-15 12:00:01.3,3,294,88\n";
    assert_eq!(rows(text), [(0.0, 632, 180), (700.0, 562, 61), (1300.0, 294, 88)]);
    assert_eq!(read(text).unwrap().images, 5);
    assert!(read(&text.replace(",3,", ",many,")).is_err());
}

/// Other programs' columns in any order, with more of them, and an agent's request whose time is unknown.
#[test]
fn columns_of_other_programs_are_read() {
    for text in [
        "arrived_at,num_prefill_tokens,num_decode_tokens,num_total_tokens\n0.5,100,20,120\n2,7,1,8\n",
        "request_id,timestamp,input_tokens,output_tokens\n0,0.5,100,20\n1,2,7,1\n",
        "timestamp,input_length,output_length\n0.5,100,20\n2,7,1\n",
        "input_length;output_length;timestamp\n100;20;0.5\n7;1;2\n",
    ] {
        assert_eq!(rows(text), [(500.0, 100, 20), (2000.0, 7, 1)], "{text}");
    }
    let agent = r#"{"block_size": 64, "requests": [{"t": 0, "think_time": null, "api_time": null, "in": 8, "out": 2}]}"#;
    assert_eq!(rows(agent), [(0.0, 8, 2)]);
}

#[test]
fn equal_block_hashes_are_equal_tokens() {
    let run = |start, length| Run { segment: 0, start, length };
    // Blocks of 512 tokens, times in ms: blocks 0, 1 and 5 hold 512 + 512 + 76 = 1100 tokens; 0 and 1 are consecutive.
    let text =
        "{\"timestamp\": 1500, \"input_length\": 1100, \"output_length\": 9, \"hash_ids\": [0, 1, 5]}\n";
    let request = &read(text).unwrap().requests[0];
    assert_eq!(request.at, Picoseconds::from_seconds(1.5));
    assert_eq!(request.prompt, Prompt::Runs([run(0, 1024), run(2560, 76)].into()));
    // Blocks of 16 tokens as vLLM's, times in seconds: 40 tokens have three blocks.
    let text = text.replace("1100", "40");
    let request = &read(&text).unwrap().requests[0];
    assert_eq!(request.at, Picoseconds::from_seconds(1500.0));
    assert_eq!(request.prompt, Prompt::Runs([run(0, 32), run(80, 8)].into()));
}

#[test]
fn bad_lines_are_named() {
    let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,4808,10\n";
    let own = "arrival_s,input_len,output_len\n1,2,3\n";
    let mooncake = "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 9, \"hash_ids\": [0, 1]}\n";
    let cases = [
        (String::new(), "t:1:1", "no known trace"),
        ("when,how\n1,2\n".into(), "t:1:1", "when,how"),
        ("[{\"a\": 1}]".into(), "t:1:1", "expected input_length"),
        ("[{\"a\": 1}".into(), "t:1:1", "no known trace"),
        ("arrival_s,input_len\n1,2\n".into(), "t:1:1", "output_len"),
        ("arrival_s,input_len,output_len\n".into(), "t", "no requests"),
        (format!("{azure}2023-11-16 18:17:02,1,1\n"), "t:3:1", "before"),
        (format!("{azure}2023-11-16 18:17,1,1\n"), "t:3:1", "TIMESTAMP"),
        (format!("{azure}2023-11-16 18:17:09,0,1\n"), "t:3:21", "ContextTokens"),
        (format!("{azure}2024-11-16 18:17:09,1,1\n"), "t:3:1", "accepted"),
        (format!("{own}2,2\n"), "t:3:1", "2 fields; expected 3"),
        (format!("{own}\n0.5,2,3\n"), "t:4:1", "before 1 s"),
        (format!("{own}2,x,3\n"), "t:3:3", "`input_len` is \"x\""),
        (format!("{own}2,2,0\n"), "t:3:5", "`output_len` is 0"),
        (format!("{own}nan,2,1\n"), "t:3:1", "arrival_s"),
        (format!("{own}2,999999999,1\n"), "t:3:3", "100000000"),
        (format!("{mooncake}{{\"timestamp\": 1}}\n"), "t:2:16", "input_length"),
        (format!("{mooncake}nonsense\n"), "t:2:", "expected one JSON object a line"),
        (
            format!("{mooncake}{}", mooncake.replace("[0, 1]", "[0]")),
            "t:2:1",
            "1 `hash_ids` for 600 tokens; expected 2",
        ),
        (format!("{mooncake}{}", mooncake.replace("600", "0")), "t:2:1", "`input_length` is 0"),
        (
            format!("{}{mooncake}", mooncake.replace("\"timestamp\": 0", "\"timestamp\": 5")),
            "t:2:1",
            "before 0.005 s",
        ),
        ("{\"conversations\": [{\"value\": \"a\"}]}".into(), "t:1:1", "two texts"),
        ("input_length,output_length\n0,5\n".into(), "t:2:1", "input_length"),
    ];
    for (text, place, says) in cases {
        let message = read(&text).map(|_| text.clone()).unwrap_err().to_string();
        assert!(message.starts_with(place) && message.contains(says), "{text}: {message}");
    }
}

fn load(keys: &str, file: &str) -> roofcast::Result<Workload> {
    let mut workload = Spec::parse("w.toml", &format!("[workload]\n{keys}\n"))?.workload.unwrap();
    workload.load("w.toml", |_| Ok::<_, Error>(file.to_owned()))?;
    Ok(workload)
}

fn all(workload: &Workload) -> Vec<Request> {
    let mut traffic = Traffic::new(workload, "w.toml").unwrap();
    std::iter::from_fn(|| traffic.next()).collect()
}

#[test]
fn a_trace_is_replayed_scaled_and_mixed() {
    let file = "arrival_s,input_len,output_len,priority\n1,2,3,4\n2,20,30,5\n6,4,6,0\n";
    let workload = load("arrivals = { kind = \"trace\", path = \"t.csv\", scale = 0.5 }", file).unwrap();
    let found: Vec<_> =
        all(&workload).iter().map(|r| (r.at.ms(), r.input_len, r.output_len, r.priority)).collect();
    assert_eq!(found, [(500.0, 2, 3, 4), (1000.0, 20, 30, 5), (3000.0, 4, 6, 0)]);
    // Gaps of 1 and 4 s, replayed in half the time: 2 requests in 2.5 s. Mean gap 2.5, variance 2.25: cv² = 0.36. Mean
    // prompt 26/3.
    assert_eq!(workload.arrivals.rate(), Some(0.8));
    assert!((workload.arrivals.cv2() - 0.36).abs() < 1e-9);
    assert!((workload.input_mean() - 26.0 / 3.0).abs() < 1e-9 && workload.output_mean() == 13.0);
    // Only the first two requests; other lengths than the file's; the file's lengths at another pace.
    let first = load("requests = 2\narrivals = { kind = \"trace\", path = \"t.csv\" }", file).unwrap();
    assert_eq!(all(&first).len(), 2);
    let own = load("input_len = 9\narrivals = { kind = \"trace\", path = \"t.csv\" }", file).unwrap();
    assert!(all(&own).iter().all(|r| r.input_len == 9 && [3, 30, 6].contains(&r.output_len)));
    let lengths = "{ kind = \"empirical\", path = \"t.csv\" }";
    let keys = format!("input_len = {lengths}\noutput_len = {lengths}\narrivals = {{ kind = \"offline\" }}");
    let pairs = all(&load(&keys, file).unwrap());
    assert_eq!(pairs.len(), 1000);
    assert!(pairs.iter().all(|r| [(2, 3), (20, 30), (4, 6)].contains(&(r.input_len, r.output_len))));
}

#[test]
fn what_a_trace_cannot_do_is_said() {
    let untimed = load("arrivals = { kind = \"trace\", path = \"t\" }", "input_length,output_length\n1,2\n");
    assert!(untimed.unwrap_err().to_string().contains("without times"));
    let keys = "prefix = { length = 5 }\narrivals = { kind = \"trace\", path = \"t\" }";
    let more = load(keys, "arrival_s,input_len,output_len\n1,2,3\n").unwrap_err().to_string();
    assert!(more.contains("no prefix"), "{more}");
    let long = load(
        "arrivals = { kind = \"trace\", path = \"t\", scale = 1e8 }",
        "arrival_s,input_len,output_len\n1,2,3\n",
    );
    assert!(long.unwrap_err().to_string().contains("scale"));
}

/// Prompt and answer tokens of a file's rows, read here without the library's parsers.
fn columns(text: &str, separator: char, names: [&str; 2]) -> Vec<(u64, u64)> {
    let header: Vec<_> = text.lines().next().unwrap().split(separator).map(str::trim).collect();
    let at = names.map(|name| header.iter().position(|h| *h == name));
    let number = |fields: &[&str], at: Option<usize>| at.map_or(1, |i| fields[i].trim().parse().unwrap());
    text.lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<_> = line.split(separator).collect();
            (number(&fields, at[0]), number(&fields, at[1]))
        })
        .collect()
}

#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn the_published_traces_are_read_whole() {
    for name in ["code", "conv"] {
        let path = shared(&format!("traces/AzureLLMInferenceTrace_{name}.csv"));
        let text = std::fs::read_to_string(path).unwrap();
        let trace = read(&text).unwrap();
        let rows = columns(&text, ',', ["ContextTokens", "GeneratedTokens"]);
        let found: Vec<_> =
            trace.requests.iter().map(|r| (u64::from(r.input_len), u64::from(r.output_len))).collect();
        assert_eq!(found, rows);
        // Within a day the span is the difference between two times of day.
        let seconds = |line: &str| {
            let time: Vec<f64> = line[11..27].split(':').map(|part| part.parse().unwrap()).collect();
            time[0] * 3600.0 + time[1] * 60.0 + time[2]
        };
        let span = seconds(text.lines().last().unwrap()) - seconds(text.lines().nth(1).unwrap());
        assert!((trace.span_s() - span).abs() < 1e-6);
    }
    let path = shared("traces/mooncake_conversation.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let trace = read(&text).unwrap();
    assert_eq!(trace.requests.len(), text.lines().count());
    for (line, request) in text.lines().zip(&trace.requests) {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(row["input_length"], request.input_len);
        assert_eq!(row["output_length"], request.output_len);
        assert_eq!(row["timestamp"].as_f64(), Some(request.at.ms()));
        let Prompt::Runs(runs) = &request.prompt else { panic!("{line}") };
        assert_eq!(runs.iter().map(|run| run.length).sum::<u64>(), u64::from(request.input_len));
        // Every block starts at the position that its id defines.
        let starts: Vec<u64> = runs.iter().flat_map(|r| (r.start..r.start + r.length).step_by(512)).collect();
        let ids: Vec<u64> =
            row["hash_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() * 512).collect();
        assert_eq!(starts, ids);
    }
}

/// Quantiles by their definition: order statistic p·(n − 1), linear in between.
fn quantiles(values: impl Iterator<Item = u64>) -> Quantiles {
    let mut sorted: Vec<_> = values.collect();
    sorted.sort_unstable();
    PROBABILITIES.map(|p| {
        let at = p * (sorted.len() - 1) as f64;
        let (low, high) = (sorted[at.floor() as usize] as f64, sorted[at.ceil() as usize] as f64);
        low + at.fract() * (high - low)
    })
}

/// Mean ranks of the values; ties have the mean of their ranks.
fn ranks(values: &[u64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = |v: &u64| {
        let (below, through) = (sorted.partition_point(|s| s < v), sorted.partition_point(|s| s <= v));
        (below + through - 1) as f64 / 2.0
    };
    values.iter().map(rank).collect()
}

fn spearman(rows: &[(u64, u64)]) -> f64 {
    let (x, y): (Vec<u64>, Vec<u64>) = rows.iter().copied().unzip();
    let (x, y, mean) = (ranks(&x), ranks(&y), (rows.len() - 1) as f64 / 2.0);
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    product(&x, &y) / (product(&x, &x) * product(&y, &y)).sqrt()
}

/// Numbers of requests in consecutive intervals.
fn counts<'a>(requests: impl Iterator<Item = &'a Request>, interval_s: f64) -> Vec<u32> {
    let mut counts = Vec::new();
    for request in requests {
        let index = (request.at.seconds() / interval_s) as usize;
        counts.resize(counts.len().max(index + 1), 0);
        counts[index] += 1;
    }
    counts
}

/// Variance over mean of the counts in intervals of `interval_s`, without the last interval, which may be partial.
fn dispersion(requests: &[Request], interval_s: f64) -> f64 {
    let mut counts = counts(requests.iter(), interval_s);
    counts.pop();
    let mean = counts.iter().map(|n| f64::from(*n)).sum::<f64>() / counts.len() as f64;
    let squares: f64 = counts.iter().map(|n| (f64::from(*n) - mean).powi(2)).sum();
    squares / counts.len() as f64 / mean
}

/// A preset arrives as its recording did: the counts at 1, 10 and 60 s have the recorded dispersion within a factor of 1.5.
/// Mooncake's clock ticks every 3 s, which no stream of requests does, so that its counts begin to mean something at 10 s.
/// Azure's code completion stops and starts within seconds, which intervals of 10 s do not have: 13 at 1 s, drawn 8.
#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn presets_arrive_as_recorded() {
    for (id, file, scales) in [
        ("azure-conv-2023", "AzureLLMInferenceTrace_conv.csv", [1.0, 10.0, 60.0].as_slice()),
        ("azure-code-2023", "AzureLLMInferenceTrace_code.csv", &[10.0, 60.0]),
        ("mooncake-conversation", "mooncake_conversation.jsonl", &[10.0, 60.0]),
    ] {
        let path = shared(&format!("traces/{file}"));
        let trace = read(&std::fs::read_to_string(path).unwrap()).unwrap();
        let keys = format!("[workload]\npreset = \"{id}\"\n");
        let drawn = all(&Spec::parse("w.toml", &keys).unwrap().workload.unwrap());
        assert_eq!(drawn.len(), trace.requests.len(), "{id}");
        for scale in scales {
            let factor = dispersion(&drawn, *scale) / dispersion(&trace.requests, *scale);
            assert!((1.0 / 1.5..1.5).contains(&factor), "{id} at {scale} s: {factor}");
        }
    }
}

/// Asserts that a preset's figures agree with its data.
fn agrees(id: &str, rows: &[(u64, u64)], trace: Option<&Trace>) {
    let preset = catalog().workload(id).unwrap();
    let close = |a: f64, b: f64, slack: f64| assert!((a - b).abs() <= slack, "{id}: {a} for {b}");
    let mean = |f: fn(&(u64, u64)) -> u64| rows.iter().map(f).sum::<u64>() as f64 / rows.len() as f64;
    assert_eq!(preset.requests, rows.len() as u64, "{id}");
    close(preset.input_mean, mean(|r| r.0), 1e-4);
    // Quantiles are written with one decimal.
    let same = |a: &Quantiles, b: Quantiles| a.iter().zip(b).for_each(|(a, b)| close(*a, b, 0.0501));
    same(&preset.lengths.input, quantiles(rows.iter().map(|r| r.0)));
    if let (Some(output), Some(output_mean)) = (&preset.lengths.output, preset.output_mean) {
        close(output_mean, mean(|r| r.1), 1e-4);
        same(output, quantiles(rows.iter().map(|r| r.1)));
        close(preset.lengths.rank_correlation, spearman(rows), 1e-4);
    }
    if let (Some(trace), Some(rate), Some(profile)) = (trace, preset.rate, &preset.profile) {
        close(rate, trace.rate().unwrap(), 1e-4);
        assert_eq!(profile.counts, counts(trace.requests.iter(), profile.interval_s), "{id}");
        let quarter = |r: &Request| (r.at.seconds() / 900.0) as usize;
        for (number, figures) in preset.lengths.quarters.iter().enumerate() {
            let own = trace.requests.iter().zip(rows).filter(|(r, _)| quarter(r) == number);
            let rows: Vec<(u64, u64)> = own.map(|(_, row)| *row).collect();
            assert_eq!(figures.requests, rows.len() as u64, "{id}");
            same(&figures.input, quantiles(rows.iter().map(|r| r.0)));
            same(&figures.output, quantiles(rows.iter().map(|r| r.1)));
            close(figures.rank_correlation, spearman(&rows), 1e-4);
        }
        assert_eq!(preset.lengths.quarters.iter().map(|q| q.requests).sum::<u64>(), preset.requests);
    }
    assert_eq!(preset.rate.is_some(), trace.is_some(), "{id}");
}

#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn presets_are_figures_of_their_data() {
    for (id, file) in [
        ("azure-code-2023", "AzureLLMInferenceTrace_code.csv"),
        ("azure-conv-2023", "AzureLLMInferenceTrace_conv.csv"),
        ("mooncake-conversation", "mooncake_conversation.jsonl"),
    ] {
        let path = shared(&format!("traces/{file}"));
        let trace = read(&std::fs::read_to_string(path).unwrap()).unwrap();
        let rows: Vec<_> =
            trace.requests.iter().map(|r| (u64::from(r.input_len), u64::from(r.output_len))).collect();
        agrees(id, &rows, Some(&trace));
    }
    for (id, file) in [
        ("gpt-oss", "datasets_gpt-oss"),
        ("swebench-lite", "datasets_swebench-lite"),
        ("mlperf-deepseek-r1", "mlperf-data_deepseek-r1"),
        ("mlperf-llama2-70b-99", "mlperf-data_llama2-70b-99"),
        ("mlperf-llama3-1-405b", "mlperf-data_llama3-1-405b"),
        ("mlperf-llama3-1-8b-datacenter", "mlperf-data_llama3-1-8b-datacenter"),
        ("mlperf-mixtral-8x7b", "mlperf-data_mixtral-8x7b"),
    ] {
        let path = shared(&format!("traces/lengths/{file}.csv"));
        let text = std::fs::read_to_string(path).unwrap();
        let mut rows = columns(&text, ',', ["input_length", "output_length"]);
        rows.retain(|r| r.0 > 0 && r.1 > 0);
        agrees(id, &rows, None);
    }
}

#[test]
fn every_preset_draws_its_own_means() {
    for preset in catalog().workloads().unwrap() {
        let output = if preset.output_mean.is_some() { "" } else { "output_len = 1\n" };
        let rate = if preset.rate.is_some() { "" } else { "rate = 5\n" };
        let keys = format!("[workload]\npreset = \"{}\"\nrequests = 20000\n{rate}{output}", preset.id);
        let workload = Spec::parse("w.toml", &keys).unwrap().workload.unwrap();
        let requests = all(&workload);
        let mean = |f: fn(&Request) -> u32| requests.iter().map(|r| f64::from(f(r))).sum::<f64>() / 20_000.0;
        // Within 5 standard errors of the mean that the quantiles define, and half a token of rounding.
        let deviation = workload.input_mean() * workload.input_cv2().sqrt();
        let error = 5.0 * deviation / 20_000_f64.sqrt() + 0.5;
        let found = mean(|r| r.input_len);
        assert!((found - workload.input_mean()).abs() < error, "{}: {found}", preset.id);
        if let Some(expected) = preset.lengths.output_mean() {
            let spread = preset.lengths.output.unwrap()[11] / 20_000_f64.sqrt();
            assert!((mean(|r| r.output_len) - expected).abs() < 5.0 * spread + 0.5, "{}", preset.id);
        }
    }
}

/// vLLM's paper states answers of 338 tokens in the mean (figure 11), by another tokenizer: these are answers of one
/// turn, not of a whole conversation.
#[test]
fn an_answer_of_sharegpt_is_one_turn() {
    let sharegpt = catalog().workload("sharegpt").unwrap();
    let mean = sharegpt.output_mean.unwrap();
    assert!((mean / 338.0 - 1.0).abs() < 0.1, "{mean}");
    assert!(catalog().workloads().unwrap().iter().all(|w| !w.request.is_empty()));
}

/// Requests at 0, 1, 2 and 10 s: three in ten seconds, but the first three are two in two seconds.
#[test]
fn the_first_requests_of_a_trace_have_their_own_rate() {
    let trace = read("arrival_s,input_len,output_len\n0,9,9\n1,9,9\n2,9,9\n10,9,9\n").unwrap();
    assert_eq!((trace.rate(), trace.rate_of(3), trace.rate_of(9)), (Some(0.3), Some(1.0), Some(0.3)));
    assert_eq!(trace.rate_of(1), None);
}
