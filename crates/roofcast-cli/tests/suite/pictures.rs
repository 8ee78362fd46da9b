//! Pictures: every verb that has a curve draws it, and flags without effect are refused.

use crate::support::{Run, roofcast, shared};
use std::path::Path;

/// Runs `arguments` with `--svg`; returns the run and the picture, which must be well-formed.
fn drawn(arguments: &str) -> (Run, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.svg");
    let run = roofcast(&format!("{arguments} --svg {}", path.display()));
    let svg = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{arguments}: {e}: {}", run.err));
    whole(&svg);
    (run, svg)
}

/// Asserts that every element is closed and that every coordinate is a number.
fn whole(svg: &str) {
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{svg}");
    for element in ["svg", "g", "text", "title", "style"] {
        let [opened, closed] = [format!("<{element}"), format!("</{element}>")];
        let opened = svg.split(&opened).skip(1).filter(|rest| rest.starts_with([' ', '>'])).count();
        assert_eq!(opened, svg.matches(&closed).count(), "{element} in {svg}");
    }
    for broken in ["NaN", "'inf", ",inf", " inf,", "-inf"] {
        assert!(!svg.contains(broken), "{broken} in {svg}");
    }
    assert!(svg.contains("prefers-color-scheme:dark"));
}

fn has(svg: &str, texts: &[&str]) {
    for text in texts {
        assert!(svg.contains(text), "{text} is not in {svg}");
    }
}

const LLAMA: &str = "limits --model llama-3.1-8b --hardware h100-sxm";

/// The roofs 989.4 TFLOP/s and 3.35 TB/s are the datasheet's.
#[test]
fn the_roofline_has_both_roofs_and_every_operator() {
    let (run, svg) = drawn(&format!("{LLAMA} --batch 32 --context 2048"));
    assert_eq!(run.code, 0);
    has(
        &svg,
        &[
            "bf16 989 TFLOP/s",
            "3.35 TB/s",
            "decode at its limit",
            "prefill as forecast",
            "of 32 sequences of 2048",
        ],
    );
    let computing = |line: &&str| line.contains("as forecast</title>");
    for operator in ["qkv_proj", "o_proj", "gate_up_proj", "down_proj", "attention", "lm_head"] {
        let points =
            svg.lines().filter(computing).filter(|line| line.contains(&format!(">{operator}:"))).count();
        // One point for decode and one for prefill.
        assert_eq!(points, 2, "{operator}");
    }
}

#[test]
fn sweeps_and_intensity_are_drawn() {
    let (_, svg) = drawn(&format!("{LLAMA} --sweep batch=1..512:x2"));
    has(&svg, &["time of a decode step", "tokens a second", ">limit<", "80 % interval"]);
    // The ridge point is 989.4e12/3.35e12 FLOPs a byte.
    let (_, svg) = drawn(&format!("{LLAMA} --intensity 4096x4096"));
    has(&svg, &["ridge in bf16: 295 FLOP/B"]);
    let (run, svg) = drawn("simulate --requests 50 --sweep rate=1,10 --set slo.tpot_p99_ms=50");
    assert_eq!(run.code, 0, "{}", run.err);
    has(&svg, &["time to first token", "time per output token", "SLO: TPOT p99 50 ms", "within the SLO"]);
    has(&svg, &["tokens on average; SLO: ", ">rate: requests per second<"]);
    let (_, svg) = drawn("simulate --requests 20 --sweep scheduler=vllm,orca");
    has(&svg, &[">vllm<", ">orca<"]);
}

/// A sweep of one value has no line, so that limit and interval need marks of their own, and the value is the tick.
#[test]
fn a_sweep_of_one_value_is_drawn_with_its_value() {
    let (_, svg) = drawn(&format!("{LLAMA} --sweep context=4096"));
    has(&svg, &[">4096<", ">context: tokens of each sequence<", "<title>limit: ", "<title>forecast: "]);
    assert_eq!(svg.matches(">4096<").count(), 2, "a tick in each of two charts");
    assert!(!svg.contains("stroke-width='2.2'"), "a line through one point");
}

/// With several series the legend names each once in each of two charts, and the titles of the axes say what a limit
/// looks like.
#[test]
fn many_series_have_short_legends() {
    let (_, svg) = drawn(&format!("{LLAMA} --sweep batch=1..512:x2 --sweep tp=1,2,4"));
    has(&svg, &[">time of a decode step; dotted: the limit<", ">tp: accelerators that share each matrix<"]);
    for name in [">batch 1<", ">batch 512<"] {
        assert_eq!(svg.matches(name).count(), 2, "{name}");
    }
    assert!(!svg.contains(", limit<"));
    // Batches 1 and 256 have the first colour; the ninth series is drawn with squares.
    assert!(svg.contains("class='f0' d='M") && svg.contains("h9.2v9.2h-9.2z"));
    let (_, svg) = drawn("simulate --requests 20 --sweep scheduler=vllm,orca --sweep rate=1,4");
    has(&svg, &[">time to first token; p50, dashed: p99<", ">scheduler orca<"]);
}

/// A picture of several deployments names the model that they serve.
#[test]
fn sweeps_over_deployments_name_the_model() {
    let (_, svg) = drawn(
        &format!("{LLAMA} --sweep hardware.accelerator=l4,h100-sxm").replace(" --hardware h100-sxm", ""),
    );
    has(&svg, &[">meta-llama/Llama-3.1-8B over accelerator<", ">accelerator<", ">l4<"]);
}

#[test]
fn a_plan_shows_the_slo_and_the_front() {
    let (run, svg) = drawn("plan");
    assert_eq!(run.code, 0);
    has(&svg, &["SLO: TPOT p99 50 ms", "best: ", "the fastest for its price", "dollars per hour"]);
    has(&svg, &["20.00 requests/s, ", " prompt (p50 ", " output (p50 "]);
    // A Pareto front falls: along the line x grows and y, which SVG counts from the top, grows too.
    let line = svg.lines().find(|l| l.starts_with("<polyline") && l.contains("class='l9'")).unwrap();
    let points = line.split('\'').nth(1).unwrap();
    let points: Vec<Vec<f64>> =
        points.split(' ').map(|p| p.split(',').map(|v| v.parse().unwrap()).collect()).collect();
    assert!(points.len() > 3);
    assert!(points.windows(2).all(|w| w[0][0] <= w[1][0] && w[0][1] <= w[1][1]), "{points:?}");
}

/// Both charts have a curve with a band for each accelerator, and the name of the cheapest point within the SLO.
#[test]
fn curves_show_bands_and_the_best_within_the_slo() {
    let (run, svg) = drawn("plan --curve --hardware h100-sxm,l40s --max-accelerators 2");
    assert_eq!(run.code, 0, "{}", run.err);
    has(
        &svg,
        &["throughput against interactivity", "output tokens/s of one user", ": cost against latency<"],
    );
    has(&svg, &[" prompt (p50 ", " output (p50 ", "SLO: TTFT p99 ≤ 2000 ms,", "dollars per million"]);
    assert_eq!([svg.matches("<polyline").count(), svg.matches("<polygon").count()], [4, 4]);
    let (answer, _) = crate::support::json("plan --curve --hardware h100-sxm,l40s --max-accelerators 2");
    let users = |at: usize| answer["curves"][at]["best"]["users"].as_u64().unwrap();
    has(&svg, &[&format!("best: h100-sxm, {} users: $", users(0)), &format!(">l40s, {} users: $", users(1))]);
    // No model fits in an H100's memory: there is no curve, and the reason is given.
    let run =
        roofcast("plan --curve --model meta-llama/Llama-3.1-70B --hardware rtx-4090 --max-accelerators 1");
    assert!(run.code == 4 && run.out.contains("no curve: rtx-4090: weights and one request"), "{}", run.out);
}

#[test]
fn a_plan_without_an_answer_is_drawn_too() {
    let spec = "[model]\nname = \"llama-3.1-70b\"\n[slo]\ntpot_p99_ms = 0.1\n[workload]\ninput_len = 100\noutput_len = 100\n[workload.arrivals]\nkind = \"poisson\"\nrate = 1.0\n[search]\naccelerators = [\"h100-sxm\"]\n";
    let (_folder, path) = crate::support::file("spec.toml", spec.as_bytes());
    let (run, svg) = drawn(&format!("plan {path}"));
    assert_eq!(run.code, 4);
    has(&svg, &["0 fit and keep the SLO", "no deployment meets the SLO", "multiple of the bound", ">SLO<"]);
    // One point for each deployment that nearly met the SLO, with its description and the bound that it missed.
    assert!(svg.matches(" × h100-sxm as ").count() > 1 && svg.contains("are allowed</title>"), "{svg}");
}

#[test]
fn measurements_stand_against_their_forecasts() {
    let (run, svg) = drawn("validate examples/measured.csv");
    assert_eq!(run.code, 0, "{}", run.err);
    has(&svg, &["measured against forecast", "within a factor of 1.25", "rows; median error"]);
}

#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn a_recorded_run_has_no_picture() {
    let folder = shared("validation/runs/RTX4090_Llama-3.1-8B");
    refused(&format!("validate {} --svg a.svg", folder.display()), &["--svg", "measured and forecast"]);
}

/// The run need not be valid, because a server that answers at once is faster than its client.
#[test]
fn what_a_server_did_is_drawn() {
    let (url, _) = crate::scripted::start(|_, stream| crate::scripted::good(stream));
    let calm = "--assume-tokens --max-lag 100000";
    let (run, svg) = drawn(&format!("bench --url {url} --model m --requests 4 --slo-ttft 500 {calm}"));
    assert!([0, 3].contains(&run.code), "{}", run.err);
    has(
        &svg,
        &["4 measured requests, 4 of them completed", "SLO: TTFT p99 500 ms", "p99 ", "requests in flight"],
    );
    let (run, svg) =
        drawn(&format!("bench --url {url} --model m --requests 4 --sweep concurrency=1,2 {calm}"));
    assert!([0, 3].contains(&run.code), "{}", run.err);
    has(&svg, &["time to first token", "output tokens a second", ">concurrency<"]);
}

fn refused(arguments: &str, says: &[&str]) {
    let run = roofcast(arguments);
    assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments}: {}", run.err);
    for part in says {
        assert!(run.err.contains(part), "{arguments}: {part} is not in {}", run.err);
    }
    assert!(!Path::new("a.svg").exists());
}

#[test]
fn flags_without_effect_are_refused() {
    for (flags, says) in [
        ("--intensity 64x64 --batch 4", "--batch"),
        ("--intensity 64x64 --context 4", "--context"),
        ("--intensity 64x64 --prefill 4", "--prefill"),
        ("--intensity 64x64 --mfu 0.5", "--mfu"),
        ("--intensity 64x64 --sweep batch=1,2", "--sweep"),
        ("--sweep batch=1,2 --batch 4", "--batch"),
        ("--sweep batch=1,2 --prefill 4", "--prefill"),
        ("--sweep context=1,2 --context 4", "--context"),
        ("--sweep prefill=1,2 --batch 4", "--batch"),
        ("--sweep tp=1,2 --tp 4", "--tp"),
    ] {
        refused(&format!("{LLAMA} {flags}"), &[says]);
    }
    refused("capacity --model llama-3.1-8b --hardware h100-sxm --svg a.svg", &["--svg"]);
}
