//! Questions in one or two flags: bounds in other units, removed bounds, and a measured server.

use crate::support::{json, roofcast};

const LLAMA: &str = "--model llama-3.1-8b --hardware h100-sxm";

fn bounds(flags: &str) -> toml::Table {
    let run = roofcast(&format!("plan --dump-spec {flags}"));
    assert_eq!(run.code, 0, "{flags}: {}", run.err);
    run.out.parse::<toml::Table>().unwrap()["slo"].as_table().unwrap().clone()
}

/// The default plan bounds TTFT p99 and TPOT p99.
#[test]
fn bounds_are_replaced_added_and_removed() {
    let names = |flags: &str| bounds(flags).keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(""), ["tpot_p99_ms", "ttft_p99_ms"]);
    assert_eq!(names("--ttft-p99 none"), ["tpot_p99_ms"]);
    assert_eq!(names("--set slo.ttft_p99_ms=none --itl-p999 90ms"), ["itl_p999_ms", "tpot_p99_ms"]);
    let rate = bounds("--tokens-per-s-user 50");
    assert_eq!(rate.keys().collect::<Vec<_>>(), ["tokens_per_s_user", "ttft_p99_ms"]);
    assert_eq!(rate["tokens_per_s_user"].as_float(), Some(50.0));
    let both = roofcast("plan --tokens-per-s-user 50 --tpot-p99 20");
    assert!(both.code == 2 && both.err.contains("cannot be used with"), "{}", both.err);
    let wrong = roofcast("plan --ttft-p99 soon");
    assert!(wrong.code == 2 && wrong.err.contains("or none"), "{}", wrong.err);
}

/// A plan that bounds only decoding: 15 ms a token, without a bound on TTFT.
#[test]
fn a_plan_of_decodes_alone_needs_no_bound_on_the_first_token() {
    let (plan, code) = json(&format!(
        "plan {LLAMA} --users 16 --ttft-p99 none --tpot-p99 15ms --max-accelerators 2 --confidence 0 --set \
         search.requests=400"
    ));
    assert_eq!(code, 0, "{plan}");
    let bounds = plan["best"]["bounds"].as_array().unwrap();
    assert_eq!(bounds.len(), 1, "{bounds:?}");
    assert!(bounds[0]["metric"] == "TPOT" && bounds[0]["ms"].as_f64().unwrap() <= 15.0, "{bounds:?}");
}

/// 32 users with requests of one length stay in step where all begin at once, and wait longer than users who begin one
/// after another: the run says so, and begins them as a plan does by the flag that it names. The plan names the other
/// start.
#[test]
fn a_run_and_a_plan_say_how_users_begin() {
    let load =
        "--model llama-3.1-8b --users 32 --input-len 2000 --output-len 100 --ttft-p99 2s --tpot-p99 60ms";
    let base = format!("simulate {load} --hardware h100-sxm --tp 1 --requests 640");
    let (burst, _) = json(&base);
    assert_eq!(burst["first_wave"]["completed"], 32);
    let said = roofcast(&base).out;
    // 2 s for the first token and 100 tokens of 60 ms each are 8 s.
    let flag = "all begin at once, as in a benchmark (of a plan one after another: --ramp-s 8.00)";
    assert!(said.contains(flag) && said.contains("first wave   32 requests: TTFT"), "{said}");
    let (ramped, _) = json(&format!("{base} --ramp-s 8"));
    assert!(ramped["first_wave"].is_null() && ramped["completed"] == 640, "{ramped}");
    let ttft = |answer: &serde_json::Value| answer["mean_ttft_ms"].as_f64().unwrap();
    assert!(ttft(&ramped) < 0.5 * ttft(&burst), "{} {}", ttft(&ramped), ttft(&burst));
    let plan = format!(
        "plan {load} --hardware h100-sxm --max-accelerators 1 --confidence 0 --set \
         search.max_num_batched_tokens=[8192] --set search.requests=640"
    );
    let (answer, _) = json(&plan);
    assert_eq!(answer["best"]["spec"]["workload"]["arrivals"]["ramp_s"], 8.0);
    let last = answer["what_if"].as_array().unwrap().last().unwrap();
    assert_eq!(last["change"], "all users begin at once");
    let said = roofcast(&plan).out;
    let start = "begin one after another over 8.00 s; requests sent until then are not judged";
    assert!(said.contains(start), "{said}");
}

/// A number without a unit that would be a first token within 10 ms is more likely meant in seconds.
#[test]
fn a_bound_of_a_few_milliseconds_names_its_unit() {
    for (flags, short) in [
        ("simulate --ttft-p99 1", true),
        ("plan --e2el-p90 9.9", true),
        ("plan --tpot-p99 0.05", true),
        ("bench --url http://127.0.0.1:1 --slo-ttft 2", true),
        ("simulate --requests 5 --ttft-p99 1ms --tpot-p99 1 --dump-spec", false),
        ("simulate --requests 5 --ttft-p99 10 --dump-spec", false),
    ] {
        let run = roofcast(flags);
        assert_eq!(
            run.code == 2 && run.err.contains("as 1s or 1ms"),
            short,
            "{flags}: {}{}",
            run.out,
            run.err
        );
    }
}

/// Parts of load and SLO that nothing sets are named; those of a spec file are nobody's default.
#[test]
fn an_answer_names_the_defaults_that_decide_it() {
    let said = |ask: &str| {
        let out = roofcast(ask).out;
        out.lines().find_map(|line| line.strip_prefix("defaults")).map(|rest| rest.trim().to_owned())
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(said("simulate --requests 5"), some("load, prompt lengths, output lengths: not given"));
    assert_eq!(said("simulate --requests 5 --rate 2 --input-len 10"), some("output lengths: not given"));
    assert_eq!(said("simulate --requests 5 --rate 2 --input-len 10 --output-len 9"), None);
    assert_eq!(said("simulate --requests 5 --workload azure-conv-2023"), None);
    assert_eq!(said("simulate examples/serving-users.toml --requests 5"), None);
    let plan = "plan --hardware h100-sxm --max-accelerators 1 --confidence 0 --input-len 100 --output-len 20 --rate 2 \
                --set search.requests=100";
    assert_eq!(said(&format!("{plan} --ttft-p99 1s")), some("TPOT bound: not given"));
    let open = roofcast(&format!("{plan} --ttft-p99 none --tpot-p99 50ms")).out;
    assert!(open.contains("TPOT p99 ≤ 50 ms; TTFT has no bound, prompts may wait"), "{open}");
}

/// The power limit stands in the first line, and joules of a token in the tables of sweeps.
#[test]
fn power_and_energy_are_shown() {
    let base = "simulate --requests 20 --input-len 100 --output-len 20 --power-limit 400";
    let said = roofcast(&format!("{base} --rate 2")).out;
    assert!(said.starts_with("meta-llama/Llama-3.1-8B-Instruct on 1 × h100-sxm, 400 W each, bf16"), "{said}");
    let wide = roofcast(&format!("{base} --sweep rate=1,2 --wide")).out;
    assert!(wide.lines().any(|line| line.trim_end().ends_with("J/token")), "{wide}");
    let csv = roofcast(&format!("{base} --sweep rate=1,2 --csv")).out;
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let column = rows[0].iter().position(|name| *name == "joules_per_output_token").unwrap();
    assert!(rows[1][column].parse::<f64>().unwrap() > 0.0, "{csv}");
    let hint = roofcast("plan --count 4");
    assert!(hint.code == 2 && hint.err.contains("--max-accelerators N"), "{}", hint.err);
}

/// A change that meets the SLO as forecast, but with less than the required chance, is not called met; the Pareto list is
/// in order of price.
#[test]
fn what_is_less_likely_than_required_is_said() {
    let ask = "plan --hardware h100-sxm,l40s --max-accelerators 6 --rate 20 --input-len 1000 --output-len 200 --ttft-p99 1s \
               --tpot-p99 40ms --set search.requests=500";
    let ((answer, _), said) = (json(ask), roofcast(&format!("{ask} --all")).out);
    let changes = answer["what_if"].as_array().unwrap();
    let met = |w: &&serde_json::Value| w["meets"] == true && w["chance"].is_number();
    let unlikely = |w: &&serde_json::Value| w["chance"].as_f64().unwrap() < 0.8;
    let (less, enough): (Vec<_>, Vec<_>) = changes.iter().filter(met).partition(unlikely);
    assert!(!less.is_empty() && !enough.is_empty(), "{changes:?}");
    assert_eq!(said.matches("met as forecast, less than 80 % likely: ").count(), less.len(), "{said}");
    assert_eq!(said.matches("still met: ").count(), enough.len(), "{said}");
    let prices = answer["pareto"].as_array().unwrap().iter().map(|c| c["cost_per_hour"].as_f64().unwrap());
    assert!(prices.is_sorted(), "{said}");
}

/// The verdict follows the band of the answer itself, and the rest of the answer is unchanged by the measurement.
#[test]
fn a_measured_server_stands_beside_forecast_and_limit() {
    let ask = format!("simulate {LLAMA} --users 64 --input-len 1000 --output-len 200 --requests 400");
    let (run, _) = json(&ask);
    let forecast = run["mean_tpot_ms"].as_f64().unwrap();
    let [low, high] = [0, 1].map(|end| run["bands"]["tpot_ms"]["range"][end].as_f64().unwrap());
    let limit = run["limit_tpot_ms"].as_f64().unwrap();
    assert!(limit < low && low < forecast && forecast < high, "{limit} {low} {forecast} {high}");
    for (ms, verdict) in [
        (limit * 0.9, "below_limit"),
        (limit.midpoint(low), "fast"),
        (forecast, "as_forecast"),
        (high * 1.5, "slow"),
    ] {
        let (answer, code) = json(&format!("{ask} --measured-tpot {ms}"));
        let found = &answer["measured"];
        assert_eq!((code, &found["verdict"]), (0, &verdict.into()), "{found}");
        assert_eq!(found["forecast_ms"].as_f64(), Some(forecast));
        assert_eq!(found["band_ms"], serde_json::json!([low, high]));
        assert_eq!(found["over_limit"].as_f64(), Some(ms / limit));
    }
    let said = roofcast(&format!("{ask} --measured-tpot 45"));
    for part in ["64 requests always in flight", "measured", "TPOT 45.00 ms", "limit", "slower than 9 of 10"]
    {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
    assert!(said.out.lines().count() < 12, "{}", said.out);
    let sweep = roofcast(&format!("{ask} --measured-tpot 45 --sweep users=1,2"));
    assert_eq!(sweep.code, 2, "{}", sweep.out);
}

/// The best value meets the SLO in a run by itself, and the value reported as missed does not.
#[test]
fn the_largest_value_that_keeps_the_slo_is_found() {
    let ask = format!("simulate {LLAMA} --input-len 1000 --output-len 100 --requests 400 --tpot-p99 20");
    let (found, code) = json(&format!("{ask} --find users=1..256"));
    assert_eq!((code, &found["key"]), (0, &"workload.arrivals.concurrency".into()), "{found}");
    let (best, missed) = (found["best"].as_f64().unwrap(), found["missed"]["value"].as_f64().unwrap());
    assert!(best < missed && (missed - best == 1.0 || missed / best <= 1.01), "{best} {missed}");
    let points = found["points"].as_array().unwrap();
    assert_eq!(found["simulations"].as_u64(), Some(points.len() as u64));
    assert_eq!(points[0]["value"], 256.0, "the upper end first: {}", points[0]);
    for point in points {
        let kept = point["bounds"][0]["ms"].as_f64().unwrap() <= 20.0;
        assert_eq!(point["meets_slo"].as_bool(), Some(kept), "{point}");
    }
    let because = found["missed"]["because"].as_str().unwrap();
    let numbers: Vec<f64> = because.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(because.starts_with("TPOT p99") && because.ends_with("ms are allowed"), "{because}");
    // The printed figure is above the bound even after rounding.
    assert!(numbers[0] > numbers[1] && numbers[1] == 20.0, "{because}");
    // Slower steps than forecast serve fewer users within the SLO, faster ones more.
    let [low, high] = ["low", "high"].map(|end| found["interval"][end].as_f64().unwrap());
    let [fast, slow] = [0, 1].map(|end| found["interval"]["step_factors"][end].as_f64().unwrap());
    assert!(fast < 1.0 && slow > 1.0 && low < best && high > best, "{found}");
    let said = roofcast(&format!("{ask} --find users=1..256"));
    assert!(
        said.out.contains(&format!("80 % interval: {low} to {high}, with step times of x")),
        "{}",
        said.out
    );
    let sentence = format!("The most users that keep the SLO: {best}; {missed} misses it: TPOT p99");
    assert!(said.out.contains(&sentence), "{}", said.out);
}

#[test]
fn searches_that_cannot_be() {
    for (flags, told) in [
        ("--tpot-p99 20 --find users=4..1", "LOW below HIGH"),
        ("--tpot-p99 20 --find weights=1..2", "KEY=LOW..HIGH"),
        ("--find users=1..4", "without an SLO"),
        ("--tpot-p99 20 --find users=1..4 --sweep tp=1,2", "cannot be used with"),
    ] {
        let run = roofcast(&format!("simulate {LLAMA} {flags}"));
        assert!(run.code == 2 && run.out.is_empty() && run.err.contains(told), "{flags}: {}", run.err);
    }
    // Reading 8 B weights of 16 bits at 3.35 TB/s takes 4.8 ms, so no rate meets 2 ms.
    let none = roofcast(&format!("simulate {LLAMA} --requests 100 --tpot-p99 2 --find rate=1..4"));
    assert_eq!(none.code, 4, "{}{}", none.out, none.err);
    assert!(
        none.out.contains("No rate that was tried keeps the SLO; 1.00 requests/s misses it"),
        "{}",
        none.out
    );
}

/// Arrivals of 2 requests/s for 10 s, then 30 for 10 s: the table has a row for each number of replicas.
#[test]
fn a_plan_says_what_an_ideal_autoscaler_runs() {
    let rows = |from: f64, rate: u32| {
        (0..rate * 10).map(move |n| format!("{},1000,50\n", from + f64::from(n) / f64::from(rate)))
    };
    let trace: String = ["arrival_s,input_len,output_len\n".to_owned()]
        .into_iter()
        .chain(rows(0.0, 2))
        .chain(rows(10.0, 30))
        .collect();
    let (_kept, path) = crate::support::file("trace.csv", trace.as_bytes());
    let ask = format!(
        "plan --model llama-3.1-8b --hardware l40s --tp 1 --workload {path} --ttft-p99 1s --tpot-p99 40ms --confidence 0 \
         --over-time 10s --startup 5s --set search.max_num_batched_tokens=[8192]"
    );
    let (answer, code) = json(&ask);
    assert_eq!(code, 0, "{answer}");
    let over_time = &answer["over_time"];
    let intervals = over_time["intervals"].as_array().unwrap();
    assert_eq!(intervals.iter().map(|i| i["requests"].as_u64().unwrap()).collect::<Vec<_>>(), [20, 300]);
    assert!(
        over_time["meets"].as_bool().unwrap()
            && intervals[0]["replicas"].as_u64() < intervals[1]["replicas"].as_u64()
    );
    let said = roofcast(&ask).out;
    for part in [
        "ideal autoscaling: replicas of 1 l40s",
        "0 s",
        // The last arrival, at 10 + 299 / 30 s.
        "19.97 s",
        "accelerators at the peak",
        "A real autoscaler",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let users = roofcast("plan --users 4 --over-time 10s");
    assert!(users.code == 2 && users.err.contains("wait for answers"), "{}", users.err);
}

/// Turn k of ten has k prompts of 1000 tokens and k − 1 answers of 100: 5,950 tokens in the mean. Think time leaves
/// fewer requests in flight than users.
#[test]
fn the_load_is_that_of_the_requests() {
    let base =
        "simulate --model llama-3.1-8b --hardware h100-sxm --requests 400 --input-len 1000 --output-len 100";
    let turns = roofcast(&format!("{base} --users 4 --turns 10")).out;
    assert!(turns.contains("5950 prompt (p50 ") && turns.contains("10 turns a conversation"), "{turns}");
    let thinking = roofcast(&format!("{base} --users 4 --think-s 30")).out;
    assert!(
        thinking.contains("4 users who think 30.00 s") && !thinking.contains("always in flight"),
        "{thinking}"
    );
    let shared = roofcast(&format!("{base} --rate 4 --prefix-len 500")).out;
    assert!(
        shared.contains("1500 prompt and 100 output tokens each") && shared.contains("500 tokens shared"),
        "{shared}"
    );
}

/// A chip without a price is ranked by number, beside chips with one it is named with the flag; with a price it is
/// ranked like any other.
#[test]
fn a_chip_without_a_price_is_not_a_missed_slo() {
    let plan = |more: &str| {
        let base = "plan --model llama-3.1-8b --max-accelerators 2 --users 1 --requests 100 --input-len 200 --output-len 50";
        roofcast(&format!("{base} {more}")).out
    };
    let alone = plan("--hardware m4-max");
    assert!(alone.contains("--price m4-max=") && !alone.contains("no deployment meets the SLO"), "{alone}");
    let beside = plan("--hardware m4-max,h100-sxm");
    assert!(beside.contains("LEFT OUT: m4-max") && beside.contains("best "), "{beside}");
    let priced = plan("--hardware m4-max --price m4-max=0.5");
    assert!(priced.contains("$0.50/h") && !priced.contains("NO PRICE"), "{priced}");
}

/// Degrees that do not divide are skipped and said, a bound of one's own replaces the default, and a workload may have a
/// rate alone.
#[test]
fn what_nobody_asked_refuses_nothing() {
    let sweep = roofcast(
        "limits --model llama-3.1-8b --hardware h100-sxm --count 8 --sweep parallelism.tp=1..4 --batch 8",
    );
    assert!(
        sweep.code == 0 && sweep.out.contains("skipped: with parallelism.tp = 3"),
        "{}{}",
        sweep.out,
        sweep.err
    );
    let bound = roofcast("plan --ttft-p95 3s --requests 100 --hardware h100-sxm --tp 1..2");
    assert!(bound.code == 0 && bound.out.contains("TTFT p95 ≤ 3000 ms"), "{}{}", bound.out, bound.err);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spec.toml");
    std::fs::write(&path, "[workload]\nrate = 4\ninput_len = 1000\nrequests = 50\n").unwrap();
    let run = roofcast(&format!("simulate {} --model llama-3.1-8b --hardware h100-sxm", path.display()));
    assert!(run.code == 0 && run.out.contains("4.00 requests/s, 1000 prompt"), "{}{}", run.out, run.err);
    assert!(run.out.contains("output lengths: not given"), "{}", run.out);
}

/// Widths at which there is no deployment, or whose weights leave no room, are skipped and said in every verb.
#[test]
fn illegal_widths_are_skipped_in_every_verb() {
    let eight = "--model llama-3.1-70b --hardware h100-sxm --count 8 --sweep tp=1..4";
    for verb in ["capacity", "limits", "simulate --requests 20 --rate 1"] {
        let run = roofcast(&format!("{verb} {eight}"));
        assert_eq!(run.code, 0, "{verb}: {}", run.err);
        assert!(run.out.contains("skipped: ") && run.out.contains("= 3"), "{verb}: {}", run.out);
    }
}

/// vLLM does not start beside 40 GiB of other processes, and the answer says nothing of what its cache would hold.
#[test]
fn an_engine_that_does_not_start_holds_nothing() {
    let run = roofcast("capacity --model llama-3.1-8b --hardware h100-sxm --memory-used 40");
    assert!(run.code == 4 && run.out.contains("vllm does not start"), "{}", run.out);
    for other in ["does not fit", "hold the weights", "largest batch"] {
        assert!(!run.out.contains(other), "{other}: {}", run.out);
    }
    assert!(run.out.contains("KV if it started") && run.out.contains("times are those of this engine alone"));
}

/// 400 requests: 200 at 10 a second, then 200 at 1 a second. 399 gaps in 219.9 s are 1.81 a second, and the first 199 in 19.9 s are 10.
/// `--rate 2` scales all times by 1.8145/2 = 0.907: the first 200 then come at 10/0.9072 = 11.0 a second.
#[test]
fn a_part_of_a_recording_has_its_own_rate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tr.jsonl");
    let at_ms = |n: u64| if n < 200 { 100 * n } else { 20_900 + 1000 * (n - 200) };
    let line = |n| {
        let at = at_ms(n);
        format!("{{\"timestamp\": {at}, \"input_length\": 100, \"output_length\": 8, \"hash_ids\": [{n}]}}\n")
    };
    std::fs::write(&path, (0..400).map(line).collect::<String>()).unwrap();
    let load = |flags: &str| {
        let command = format!(
            "simulate --model llama-3.1-8b --hardware h100-sxm --workload {} {flags}",
            path.display()
        );
        roofcast(&command).out
    };
    for (flags, words) in [
        (
            "--rate 2 --requests 200",
            "11.02 requests/s as they were recorded (2.00 over the whole recording), times scaled by 0.907",
        ),
        ("--requests 200", "10.00 requests/s as they were recorded (1.81 over the whole recording)"),
        ("--rate 2", "2.00 requests/s as they were recorded, times scaled by 0.907"),
    ] {
        let text = load(flags);
        assert!(text.contains(words), "{words} is not in {text}");
    }
}
