//! Loads of several kinds of requests: classes with an SLO each, images that are made up, users with a rate each.

use super::{CALM, exact};
use crate::scripted::{self, good};
use crate::support::{file, json, roofcast};
use serde_json::Value;

const CLASSES: &str = "[workload]\nrequests = 40\narrivals = { kind = \"closed_loop\", concurrency = 4 }\n\
    input_len = 20\noutput_len = 3\n\
    [[workload.classes]]\nname = \"chat\"\nshare = 0.5\npriority = -1\nslo = { ttft_p99_ms = 1 }\n\
    [[workload.classes]]\nname = \"batch\"\nshare = 0.5\noutput_len = 5\nslo = { e2el_p99_ms = 100000 }\n";

/// No answer begins within 1 ms, and each ends within 100 s: no chat meets its bounds, every batch does. Classes differ in the tokens
/// that they ask for.
#[test]
fn classes_are_judged_by_their_own_slo() {
    let (_folder, path) = file("classes.toml", CLASSES.as_bytes());
    let (answer, _) = json(&format!("bench {path} --url {} --model m --assume-tokens {CALM}", exact()));
    let classes = answer["classes"].as_array().unwrap();
    let of = |key: &str| classes.iter().map(|class| class[key].clone()).collect::<Vec<Value>>();
    assert_eq!(of("name"), ["chat", "batch"]);
    let requests: u64 = of("requests").iter().filter_map(Value::as_u64).sum();
    assert_eq!((requests, &of("good")[0]), (40, &0.into()), "{answer}");
    assert_eq!(of("good")[1], of("requests")[1]);
    let mean =
        |class: &Value| class["total_output_tokens"].as_u64().unwrap() / class["completed"].as_u64().unwrap();
    assert_eq!(classes.iter().map(mean).collect::<Vec<_>>(), [3, 5]);
    let text = roofcast(&format!("bench {path} --url {} --model m --assume-tokens {CALM}", exact())).out;
    assert!(text.contains("met its SLO") && text.contains("batch"), "{text}");
}

/// The priority of a class is sent where the endpoint has a place for it.
#[test]
fn a_class_sends_its_priority() {
    let (_folder, path) = file("classes.toml", CLASSES.as_bytes());
    let (url, seen) = scripted::start(|_, stream| good(stream));
    json(&format!("bench {path} --url {url} --model m --assume-tokens {CALM}"));
    let seen = seen.lock().unwrap();
    let sent = |priority: Value| seen.iter().filter(|asked| asked.body["priority"] == priority).count();
    assert!(sent((-1).into()) > 0 && sent(Value::Null) > 0 && seen.len() >= 40);
}

/// Two images of 64 × 32 pixels before the words of each request, different ones in each; without a chat they are refused.
#[test]
fn images_are_made_up() {
    let spec = "[workload]\nrequests = 3\narrivals = { kind = \"closed_loop\", concurrency = 1 }\ninput_len = 20\noutput_len = 2\n\
        images = { count = 2, width = 64, height = 32 }\n";
    let (_folder, path) = file("images.toml", spec.as_bytes());
    let (url, seen) = scripted::start(|_, stream| good(stream));
    json(&format!("bench {path} --url {url} --model m --endpoint chat --assume-tokens {CALM}"));
    let seen = seen.lock().unwrap();
    let mut images: Vec<&str> = Vec::new();
    for asked in seen.iter().filter(|asked| asked.body["messages"].is_array()) {
        let parts = asked.body["messages"][0]["content"].as_array().unwrap();
        assert_eq!(
            parts.iter().map(|part| part["type"].as_str().unwrap()).collect::<Vec<_>>(),
            ["image_url", "image_url", "text"]
        );
        images.extend(parts[..2].iter().map(|part| part["image_url"]["url"].as_str().unwrap()));
    }
    assert!(images.iter().all(|url| url.starts_with("data:image/png;base64,iVBORw0KGgo")), "{images:?}");
    images.sort_unstable();
    images.dedup();
    assert_eq!(images.len(), 6);
    let refused = roofcast(&format!("bench {path} --url {url} --model m"));
    assert!(refused.code == 2 && refused.err.contains("--endpoint chat"), "{}", refused.err);
    let (_folder, sizeless) =
        file("tokens.toml", spec.replace("width = 64, height = 32", "tokens = 90").as_bytes());
    let refused = roofcast(&format!("bench {sizeless} --url {url} --model m --endpoint chat"));
    assert!(refused.code == 2 && refused.err.contains("width and height"), "{}", refused.err);
}

/// Two users who send every 0.2 s, from 0 and 0.1 s on: eight requests are sent within 0.7 s, ten a second in the mean.
#[test]
fn users_send_at_a_rate_of_their_own() {
    let spec = "[workload]\nrequests = 8\narrivals = { kind = \"paced_users\", concurrency = 2, every_s = 0.2 }\ninput_len = 20\noutput_len = 2\n";
    let (_folder, path) = file("paced.toml", spec.as_bytes());
    let (answer, _) =
        json(&format!("bench {path} --url {} --model m --assume-tokens {CALM} --max-failures 1", exact()));
    assert_eq!((&answer["requested_rate"], &answer["completed"]), (&10.0.into(), &8.into()), "{answer}");
    let rate = answer["scheduled_rate"].as_f64().unwrap();
    assert!((9.0..11.0).contains(&rate), "{rate}");
}

/// From 20 to 40 requests a second over a second and a half: 45 are expected in that time, all of which are sent.
#[test]
fn a_series_of_rates_comes_from_a_file() {
    let (_folder, path) = file("rates.json", br#"[{"time_s": 0, "qps": 20}, {"time_s": 1.5, "qps": 40}]"#);
    let load = format!("--model m --output-len 2 --assume-tokens {CALM}");
    let (answer, _) = json(&format!("bench --url {} {load} --rate-series {path}", exact()));
    assert_eq!((&answer["completed"], &answer["requested_rate"]), (&45.into(), &30.0.into()), "{answer}");
    assert_eq!(answer["workload"]["arrivals"]["kind"], "series");
    for (wrong, says) in [("--rate 5", "--rate-series"), ("--sweep rate=1..2", "--rate-series")] {
        let run = roofcast(&format!("bench --url {} {load} --rate-series {path} {wrong}", exact()));
        assert!(run.code == 2 && run.err.contains(says), "{wrong}: {}", run.err);
    }
    let (_folder, wrong) = file("wrong.csv", b"time_s,rate\n5,1\n");
    let run = roofcast(&format!("bench --url {} {load} --rate-series {wrong}", exact()));
    assert!(run.code == 2 && run.err.contains("first at 0 s"), "{}", run.err);
}
