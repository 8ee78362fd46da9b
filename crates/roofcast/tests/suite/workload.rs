//! Workloads from TOML to requests: drawn lengths, shared prefixes, conversations and pauses, and refused keys.

use proptest::prelude::*;
use roofcast::Spec;
use roofcast::units::Picoseconds;
use roofcast::workload::request::{OWN_SEGMENTS, Run};
use roofcast::workload::{Prompt, Request, Traffic, Workload};

/// Parses a `[workload]` with these keys.
fn parse(keys: &str) -> roofcast::Result<Workload> {
    Spec::parse("w.toml", &format!("[workload]\n{keys}\n")).map(|spec| spec.workload.unwrap())
}

fn traffic(keys: &str) -> Traffic {
    Traffic::new(&parse(keys).unwrap(), "w.toml").unwrap()
}

/// Every request of the traffic, if each is answered as soon as it arrives.
fn all(mut traffic: Traffic) -> Vec<Request> {
    let mut requests = Vec::new();
    while let Some(request) = traffic.next() {
        traffic.completed(request.user, request.at, OWN_SEGMENTS + requests.len() as u32);
        requests.push(request);
    }
    requests
}

const LENGTHS: &str = "input_len = 100\noutput_len = 10\n";

/// Asserts that a mean of n values with this deviation is within 5 standard errors of the true mean.
fn near(found: f64, mean: f64, deviation: f64, n: f64) {
    let error = deviation / n.sqrt();
    assert!((found - mean).abs() < 5.0 * error, "{found} for {mean} ± {error}");
}

#[test]
fn every_kind_offers_what_was_asked_for() {
    let kinds = [
        "kind = \"poisson\"\nrate = 10",
        "kind = \"constant\"\nrate = 10",
        "kind = \"gamma\"\nrate = 10\nburstiness = 0.2",
        "kind = \"ramp\"\nfrom = 0\nto = 10\nover_s = 5",
        "kind = \"burst\"",
        "kind = \"burst\"\nsize = 7\nevery_s = 2",
        "kind = \"offline\"",
        "kind = \"closed_loop\"\nconcurrency = 7",
        "kind = \"closed_loop\"\nconcurrency = 700\nthink_s = 3",
        "kind = \"sessions\"\nrate = 1\nturns = 4",
        "kind = \"sessions\"\nconcurrency = 5\nturns = { kind = \"uniform\", min = 1, max = 9 }\nthink_s = 1",
    ];
    for kind in kinds {
        let keys = format!("requests = 500\n{LENGTHS}[workload.arrivals]\n{kind}");
        let requests = all(traffic(&keys));
        assert_eq!(requests.len(), 500, "{kind}");
        assert!(requests.is_sorted_by_key(|r| r.at), "{kind}");
        assert_eq!(requests, all(traffic(&keys)), "{kind}");
    }
}

#[test]
fn shared_prefixes_have_their_share_and_skew() {
    let requests = all(traffic(&format!(
        "requests = 20000\n{LENGTHS}prefix = {{ length = 50, count = 3, share = 0.6, skew = 1 }}\n\
         arrivals = {{ kind = \"offline\" }}"
    )));
    let with = requests.iter().filter_map(|r| match r.prompt {
        Prompt::Shared { segment, length } => {
            assert_eq!((r.input_len, length), (150, 50));
            Some(segment)
        }
        _ => {
            assert_eq!(r.input_len, 100);
            None
        }
    });
    let with: Vec<_> = with.collect();
    // 60 %; deviation √(0.6 · 0.4) = 0.49.
    near(with.len() as f64 / 20_000.0, 0.6, 0.49, 20_000.0);
    // Weights 1, 1/2, 1/3 of 11/6: 6/11, 3/11, 2/11.
    for (segment, share) in [(0, 6.0 / 11.0), (1, 3.0 / 11.0), (2, 2.0 / 11.0)] {
        let found = with.iter().filter(|s| **s == segment).count() as f64 / with.len() as f64;
        near(found, share, f64::sqrt(share * (1.0 - share)), with.len() as f64);
    }
    let workload = parse(&format!(
        "{LENGTHS}prefix = {{ length = 50, share = 0.6 }}\narrivals = {{ kind = \"poisson\", rate = 1 }}"
    ));
    // 100 + 0.6 · 50 = 130; variance 0.6 · 0.4 · 2500 = 600.
    assert_eq!(workload.as_ref().unwrap().input_mean(), 130.0);
    assert!((workload.unwrap().input_cv2() - 600.0 / 16_900.0).abs() < 1e-12);
}

#[test]
fn priorities_have_their_weights() {
    let requests = all(traffic(&format!(
        "requests = 20000\n{LENGTHS}priorities = [1, 0, 3]\narrivals = {{ kind = \"offline\" }}"
    )));
    let share = |p| requests.iter().filter(|r| r.priority == p).count() as f64 / 20_000.0;
    near(share(0), 0.25, 0.433, 20_000.0);
    near(share(2), 0.75, 0.433, 20_000.0);
    assert_eq!(share(0) + share(2), 1.0);
}

/// Three quarters of the requests are chats of 10 + 20 tokens, a quarter batches of 100 + 20: a mean prompt of 0.75 · 10 +
/// 0.25 · 100 = 32.5, a mean square of 0.75 · 100 + 0.25 · 10,000 = 2575, so a variance of 2575 − 1056.25 = 1518.75.
#[test]
fn classes_have_their_shares_lengths_and_priorities() {
    let classes = "classes = [{ name = \"chat\", share = 3, input_len = 10 }, \
                   { name = \"batch\", share = 1, input_len = 100, priority = 2 }]";
    let keys = |arrivals| format!("requests = 20000\noutput_len = 20\n{classes}\narrivals = {arrivals}");
    let open = keys("{ kind = \"offline\" }");
    let workload = parse(&open).unwrap();
    assert_eq!((workload.input_mean(), workload.output_mean()), (32.5, 20.0));
    assert!((workload.input_cv2() - 1518.75 / 1056.25).abs() < 1e-12);
    let requests = all(traffic(&open));
    let chats = requests.iter().filter(|r| (r.class, r.input_len, r.priority) == (0, 10, 0)).count();
    let batches = requests.iter().filter(|r| (r.class, r.input_len, r.priority) == (1, 100, 2)).count();
    assert_eq!(chats + batches, 20_000);
    near(chats as f64 / 20_000.0, 0.75, 0.433, 20_000.0);
    // All turns of a conversation are of one class: each has as many new tokens as the first.
    let mut sessions =
        traffic(&keys("{ kind = \"sessions\", concurrency = 1, turns = 2 }").replace("20000", "40"));
    for _ in 0..20 {
        let first = sessions.next().unwrap();
        sessions.completed(first.user, first.at, 0);
        let second = sessions.next().unwrap();
        assert_eq!((second.class, second.input_len), (first.class, 2 * first.input_len + 20));
        sessions.completed(second.user, second.at, 0);
    }
}

/// A single class of all requests draws the requests of the workload without classes.
#[test]
fn one_class_changes_nothing() {
    let lengths = "requests = 500\narrivals = { kind = \"poisson\", rate = 3 }\n\
                   input_len = { kind = \"lognormal\", mu = 5, sigma = 1 }\n\
                   output_len = { kind = \"uniform\", min = 3, max = 99 }\n";
    let one = format!("{lengths}classes = [{{ name = \"all\", share = 0.2 }}]");
    assert_eq!(all(traffic(&one)), all(traffic(lengths)));
}

#[test]
fn thinking_takes_its_mean() {
    let keys = format!(
        "requests = 20001\n{LENGTHS}arrivals = {{ kind = \"closed_loop\", concurrency = 1, think_s = 2 }}"
    );
    let requests = all(traffic(&keys));
    // 20,000 exponential gaps: mean 2 s, deviation 2 s.
    near(requests[20_000].at.seconds() / 20_000.0, 2.0, 2.0, 20_000.0);
}

#[test]
fn a_session_by_hand() {
    // One conversation at a time: 3 turns of 10 input and 4 output tokens, after a prefix of 20 tokens.
    let mut traffic = traffic(
        "requests = 5\ninput_len = 10\noutput_len = 4\nprefix = { length = 20, count = 2, skew = 10 }\n\
         arrivals = { kind = \"sessions\", concurrency = 1, turns = 3 }",
    );
    let run = |segment, start, length| Run { segment, start, length };
    let first = traffic.next().unwrap();
    assert_eq!((first.at, first.input_len, first.user), (Picoseconds(0), 30, 0));
    let prefix = match &first.prompt {
        Prompt::Runs(runs) => runs[0],
        other => panic!("{other:?}"),
    };
    assert!(prefix.segment < 2 && prefix.length == 20);
    // The numbers of sessions' segments follow the two prefixes'.
    assert_eq!(first.prompt, Prompt::Runs([prefix, run(2, 0, 10)].into()));
    assert_eq!((traffic.peek(), traffic.next()), (None, None));
    traffic.completed(0, Picoseconds(7), 1000);
    let second = traffic.next().unwrap();
    // 20 + 10 + 4 + 10 = 44 prompt tokens.
    assert_eq!((second.at, second.input_len), (Picoseconds(7), 44));
    assert_eq!(second.prompt, Prompt::Runs([prefix, run(2, 0, 10), run(1000, 0, 4), run(2, 10, 10)].into()));
    traffic.completed(0, Picoseconds(9), 1001);
    assert_eq!(traffic.next().unwrap().input_len, 58);
    // After three turns the next conversation begins when the last answer is complete.
    traffic.completed(0, Picoseconds(11), 1002);
    let fourth = traffic.next().unwrap();
    assert_eq!((fourth.at, fourth.input_len, fourth.user), (Picoseconds(11), 30, 1));
    // A refusal ends a conversation.
    traffic.refused(1, Picoseconds(12));
    let fifth = traffic.next().unwrap();
    assert_eq!((fifth.at, fifth.input_len, fifth.user), (Picoseconds(12), 30, 2));
    traffic.completed(2, Picoseconds(13), 1003);
    assert_eq!((traffic.peek(), traffic.remaining()), (None, 0));
}

#[test]
fn what_a_session_says_does_not_depend_on_the_server() {
    let keys = "requests = 300\ninput_len = { kind = \"uniform\", min = 1, max = 99 }\noutput_len = 5\n\
                arrivals = { kind = \"sessions\", rate = 1, turns = { kind = \"uniform\", min = 1, max = 6 } }";
    // One server answers in 1 ms, the other in 30 s.
    let said = |delay: f64| {
        let mut traffic = traffic(keys);
        let mut waiting = Vec::new();
        let mut turns = std::collections::BTreeMap::<u32, Vec<u32>>::new();
        loop {
            let due = traffic.peek().map_or(f64::INFINITY, |at| at.seconds());
            waiting.sort_by(|a: &(f64, u32), b| b.partial_cmp(a).unwrap());
            match waiting.last().copied().filter(|(at, _)| *at <= due) {
                Some((at, user)) => {
                    waiting.pop();
                    traffic.completed(user, Picoseconds::from_seconds(at), 0);
                }
                None => {
                    let Some(request) = traffic.next() else { break turns };
                    waiting.push((request.at.seconds() + delay, request.user));
                    turns.entry(request.user).or_default().push(request.input_len);
                }
            }
        }
    };
    let (quick, slow) = (said(0.001), said(30.0));
    for (session, turns) in &quick {
        let other = slow.get(session).map_or(&[][..], Vec::as_slice);
        assert!(turns.starts_with(other) || other.starts_with(turns), "{session}: {turns:?} {other:?}");
    }
}

#[test]
fn bad_keys_are_named() {
    let arrivals = "arrivals = { kind = \"poisson\", rate = 1 }\n";
    let with = |arrivals: &str| format!("{LENGTHS}arrivals = {{ {arrivals} }}");
    let lengths = |input: &str| format!("input_len = {input}\noutput_len = 1\n{arrivals}");
    let cases = [
        (with("kind = \"poisson\", rate = -1"), "rate"),
        (with("kind = \"poisson\", rate = 1, size = 3"), "size"),
        (with("kind = \"poisson\", rate = 1e-9"), "within"),
        (with("kind = \"gamma\", rate = 1, burstiness = 0"), "burstiness"),
        (with("kind = \"ramp\", from = -1, to = 1, over_s = 1"), "from"),
        (with("kind = \"ramp\", from = 1, to = 0, over_s = 1"), "to"),
        (with("kind = \"burst\", size = 3"), "every_s"),
        (with("kind = \"closed_loop\", concurrency = 0"), "concurrency"),
        (with("kind = \"closed_loop\", concurrency = 1, think_s = -1"), "think_s"),
        (with("kind = \"sessions\", turns = 3"), "one of `rate` and `concurrency`"),
        (with("kind = \"sessions\", rate = 1, turns = 0"), "turns"),
        (with("kind = \"trace\", path = \"x\", scale = 0"), "scale"),
        (with("kind = \"trace\", path = \"x\", format = \"pcap\""), "pcap"),
        (with("kind = \"fractal\""), "fractal"),
        (lengths("0"), "input_len"),
        (lengths("{ kind = \"uniform\", min = 5, max = 4 }"), "min at most max"),
        (lengths("{ kind = \"lognormal\", mu = 1, sigma = 1, min = 9, max = 4 }"), "min at most max"),
        (lengths("{ kind = \"empirical\" }"), "one of `pairs`"),
        (lengths("{ kind = \"empirical\", pairs = [[1, 2]], name = \"sharegpt\" }"), "one of `pairs`"),
        (lengths("{ kind = \"empirical\", pairs = [] }"), "one pair or more"),
        (lengths("{ kind = \"empirical\", pairs = [[1, 0]] }"), "[1, 0]"),
        (lengths("{ kind = \"empirical\", name = \"sharegtp\" }"), "sharegtp"),
        (
            format!("input_len = 1\noutput_len = {{ kind = \"empirical\", name = \"gpt-oss\" }}\n{arrivals}"),
            "prompts",
        ),
        (format!("{LENGTHS}{arrivals}prefix = {{ length = 0 }}"), "prefix.length"),
        (format!("{LENGTHS}{arrivals}prefix = {{ length = 1, share = 1.5 }}"), "prefix.share"),
        (format!("{LENGTHS}{arrivals}prefix = {{ length = 1, count = 9000000 }}"), "prefix.count"),
        (format!("{LENGTHS}{arrivals}prefix = {{ length = 1, skew = nan }}"), "prefix.skew"),
        (format!("{LENGTHS}{arrivals}priorities = [0, 0]"), "priorities"),
        (
            format!("{LENGTHS}{arrivals}priorities = [1]\nclasses = [{{ name = \"a\", share = 1 }}]"),
            "workload.priorities",
        ),
        (format!("{LENGTHS}{arrivals}classes = [{{ name = \"a\", share = 0 }}]"), "classes.0.share"),
        (
            format!(
                "{LENGTHS}{arrivals}classes = [{{ name = \"a\", share = 1 }}, {{ name = \"a\", share = 1 }}]"
            ),
            "classes.1.name",
        ),
        (
            format!(
                "{LENGTHS}{arrivals}classes = [{{ name = \"a\", share = 1, slo = {{ itl_p99_ms = 9 }} }}]"
            ),
            "a bound on ITL p99",
        ),
        (
            format!(
                "{LENGTHS}{arrivals}classes = [{{ name = \"a\", share = 1, slo = {{ ttft_p99_ms = 0 }} }}]"
            ),
            "classes.0.slo.ttft_p99_ms",
        ),
        (format!("output_len = 1\n{arrivals}classes = [{{ name = \"a\", share = 1 }}]"), "input_len"),
        (format!("{LENGTHS}{arrivals}requests = 0"), "requests"),
        (format!("{LENGTHS}{arrivals}rate = 2"), "rate"),
        (LENGTHS.into(), "arrivals"),
        ("preset = \"azure-conv-2024\"".into(), "azure-conv-2023"),
        ("preset = \"sharegpt\"".into(), "arrivals"),
    ];
    for (keys, says) in cases {
        let message = parse(&keys).map(|_| keys.clone()).unwrap_err().to_string();
        assert!(message.contains("w.toml") && message.contains(says), "{keys}: {message}");
    }
}

#[test]
fn a_trace_that_is_not_loaded_is_no_traffic() {
    let unloaded = parse("arrivals = { kind = \"trace\", path = \"x\" }").unwrap();
    assert!(Traffic::new(&unloaded, "x").unwrap_err().to_string().contains("not loaded"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Any line of a trace is read or refused; nothing panics.
    #[test]
    fn any_line_is_read_or_refused(head in 0..7_usize, line in "[-+:. ,0-9Tenaé\"{}\\[\\]]{0,40}") {
        let heads = [
            "TIMESTAMP,ContextTokens,GeneratedTokens\n",
            "Timestamp,Request tokens,Response tokens\n",
            "arrival_s,input_len,output_len,priority,session\n",
            "input_length,output_length\n",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600",
            "{\"timestamp\":0,\"input_length\":",
            "{\"conversations\":",
        ];
        roofcast::testing::workload(&format!("{}{line}", heads[head]));
    }

    /// For any rate, seed and lengths, requests are in order, within bounds, and as many as requested.
    #[test]
    fn any_open_traffic_is_in_order(
        rate in 0.01..1e6_f64,
        burstiness in 0.01..100.0_f64,
        (mu, sigma) in (0.0..12.0_f64, 0.0..3.0_f64),
        seed in 0..i64::MAX,
    ) {
        let keys = format!(
            "requests = 50\nseed = {seed}\noutput_len = 1\n\
             input_len = {{ kind = \"lognormal\", mu = {mu}, sigma = {sigma}, max = 9999 }}\n\
             arrivals = {{ kind = \"gamma\", rate = {rate:?}, burstiness = {burstiness:?} }}"
        );
        let requests = all(traffic(&keys.replace("mu = 0,", "mu = 0.0,").replace("sigma = 0,", "sigma = 0.0,")));
        prop_assert_eq!(requests.len(), 50);
        prop_assert!(requests.is_sorted_by_key(|r| r.at));
        prop_assert!(requests.iter().all(|r| (1..=9999).contains(&r.input_len)));
    }
}

fn chapter() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/workloads.md")
}

#[test]
fn snippets_of_the_chapter_run() {
    let text = std::fs::read_to_string(chapter()).unwrap();
    let mut count = 0;
    for snippet in text.split("```toml\n").skip(1) {
        let snippet = snippet.split("```").next().unwrap();
        let mut workload = Spec::parse("docs/workloads.md", snippet).unwrap().workload.unwrap();
        let sessions = r#"{"session_id":"a","timestamp":0,"input_length":8,"output_length":2}
{"session_id":"a","delay":500,"input_length":12,"output_length":2}
"#;
        let file = |name: &str| {
            let rows = "arrival_s,input_len,output_len\n1,2,3\n";
            Ok::<_, roofcast::Error>(if name.ends_with(".jsonl") { sessions } else { rows }.to_owned())
        };
        workload.load("docs/workloads.md", file).unwrap();
        let traffic = Traffic::new(&workload, "docs/workloads.md").unwrap();
        let total = traffic.total();
        // Requests of a ramp are additional.
        let ramp = workload.arrivals.ramped();
        let judged = all(traffic).iter().filter(|request| request.at >= ramp).count();
        assert_eq!(judged as u64, total, "{snippet}");
        count += 1;
    }
    assert!(count >= 10, "only {count} snippets");
}

/// The table of presets as the chapter shows it.
fn presets() -> String {
    let mut table = String::from(
        "| preset | requests | rate | prompt: data | drawn | answer: data | drawn | ρ | what | a request |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for w in crate::support::catalog().workloads().unwrap() {
        let shown = |v: Option<f64>| v.map_or("".into(), |v| v.to_string());
        let whole = |v: Option<f64>| v.map_or("".into(), |v| format!("{v:.0}"));
        let rho = w.lengths.output.map(|_| w.lengths.rank_correlation);
        table += &format!(
            "| `{}` | {} | {} | {:.0} | {:.0} | {} | {} | {} | [{}]({}) | {} |\n",
            w.id,
            w.requests,
            shown(w.rate),
            w.input_mean,
            w.lengths.input_mean(),
            whole(w.output_mean),
            whole(w.lengths.output_mean()),
            shown(rho),
            w.about,
            w.source.split_whitespace().next().unwrap(),
            w.request
        );
    }
    table
}

#[test]
fn the_chapters_presets_are_the_catalogs() {
    let text = std::fs::read_to_string(chapter()).unwrap();
    let (before, rest) = text.split_once("<!-- presets -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end -->").unwrap();
    let now = format!("{before}<!-- presets -->\n{}<!-- end -->{after}", presets());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(chapter(), &now).unwrap();
    } else {
        assert!(now == text, "UPDATE_DOCS=1 rewrites the table: {}", presets());
    }
}

/// The statistics of the load's line are those of the run's records, for every kind of arrivals: means, medians and 99th
/// percentiles of prompts and answers, shared prefixes and earlier turns included.
#[test]
fn the_line_of_a_load_has_the_statistics_of_its_records() {
    let lengths = "input_len = { kind = \"lognormal\", mu = 5, sigma = 0.7, max = 2000 }\n\
                   output_len = { kind = \"uniform\", min = 2, max = 40 }\n";
    let kinds = [
        "{ kind = \"poisson\", rate = 20 }",
        "{ kind = \"constant\", rate = 20 }",
        "{ kind = \"gamma\", rate = 20, burstiness = 0.5 }",
        "{ kind = \"ramp\", from = 1, to = 30, over_s = 10 }",
        "{ kind = \"burst\", size = 32, every_s = 1 }",
        "{ kind = \"offline\" }",
        "{ kind = \"closed_loop\", concurrency = 8 }",
        "{ kind = \"closed_loop\", concurrency = 8, think_s = 0.5 }",
        "{ kind = \"sessions\", rate = 4, turns = 3, think_s = 0.5 }",
        "{ kind = \"sessions\", concurrency = 4, turns = 3 }",
    ];
    let features = ["", "prefix = { length = 300, share = 0.5, count = 3 }\n"];
    for (kind, feature) in kinds.iter().flat_map(|kind| features.map(|feature| (kind, feature))) {
        let text = format!("[workload]\nseed = 3\nrequests = 300\n{lengths}arrivals = {kind}\n{feature}");
        let workload = roofcast::Spec::parse("t", &text).unwrap().workload.unwrap();
        let drawn = roofcast::workload::DrawnLoad::of(&workload, "t").unwrap();
        let run = super::fleets::spec(&text).unwrap();
        assert_eq!(run.records.len() as u64, workload.total(), "{kind}");
        for (line, of) in [
            (drawn.input, (|r| r.input_len) as fn(&roofcast::record::Record) -> u64),
            (drawn.output, |r| r.output_len),
        ] {
            let mut all: Vec<u64> = run.records.iter().map(of).collect();
            all.sort_unstable();
            let mean = all.iter().sum::<u64>() as f64 / all.len() as f64;
            let rank = |share: f64| all[(share * all.len() as f64).ceil() as usize - 1];
            // Which conversations follow at the end depends on the times of answers.
            let off = if kind.contains("sessions") { 0.01 * mean } else { 1e-9 };
            assert!((line.mean - mean).abs() < off, "{kind} {feature}: {} {mean}", line.mean);
            if kind.contains("sessions") {
                continue;
            }
            assert_eq!((line.p50, line.p99), (rank(0.5), rank(0.99)), "{kind} {feature}");
        }
    }
}
