//! Curves of throughput per accelerator against interactivity.

use crate::support::{catalog, model};
use roofcast::plan::{Curve, CurvePoint, Curves, PlanQuestion, curves};
use roofcast::{Error, Spec};

const LLAMA: &str = "meta-llama/Llama-3.1-8B-Instruct";

/// A load of fixed lengths at the limit, which can be computed by hand.
const LIMIT: &str = "[engine]\ncost = \"limit\"\n[workload]\ninput_len = 1\noutput_len = 1001\n\
                     arrivals = { kind = \"poisson\", rate = 1 }\n[slo]\ntpot_p99_ms = 5\n";
const FORECAST: &str = "[workload]\ninput_len = 1000\noutput_len = 200\narrivals = { kind = \"poisson\", rate = 1 }\n\
                        [slo]\nttft_p99_ms = 2000\ntpot_p99_ms = 30\n";

fn drawn(text: &str, exhaustive: bool) -> Result<Curves, Error> {
    let question = PlanQuestion { exhaustive, ..PlanQuestion::default() };
    curves(&Spec::parse("plan.toml", text)?, &model(LLAMA), catalog(), &question)
}

fn at(curve: &Curve, users: u64) -> &CurvePoint {
    curve.points.iter().find(|point| point.users == users).unwrap()
}

fn near(found: f64, expected: f64, share: f64) {
    assert!((found / expected - 1.0).abs() < share, "{found} is not {expected}");
}

/// Llama-3.1-8B has 8,030,261,248 parameters, of which the input embedding's 128,256 × 4096 are only looked up. A step
/// reads 7,504,924,672 · 2 B of weights and, for each user, 32 · 8 · 128 · 2 · 2 B = 131,072 B for each of 501.5 tokens
/// in the mean (1 of the prompt, and half of 1001), at 3.35 TB/s: 4.4806 ms and 0.01962 ms per user. With 4 users TPOT
/// is 4.5590 ms, 219.3 tokens/s of one user, 4 · 219.3 = 877.4 in all. The throughput is slightly lower: 1001 tokens
/// take 1000 steps, a prefill step, and a wait for it.
#[test]
fn throughput_is_users_times_speed() {
    let text = format!("{LIMIT}[search]\naccelerators = [\"h100-sxm\"]\nmax_accelerators = 1\n");
    let found = drawn(&text, false).unwrap();
    let [curve] = found.curves.as_slice() else { panic!("{found:?}") };
    for (users, tpot_ms) in [(1, 4.5002), (4, 4.5590), (16, 4.7945)] {
        let point = at(curve, users);
        near(point.tpot_ms, tpot_ms, 5e-4);
        near(point.interactivity_tok_s, 1e3 / tpot_ms, 5e-4);
        near(point.output_tok_s_per_accelerator, users as f64 * 1e3 / tpot_ms, 2e-3);
    }
    // 5 ms are 16.75 GB of traffic: (16.75 − 15.0098) / 0.06573 = 26.5 users.
    let best = curve.best.as_ref().unwrap();
    assert_eq!(best.users, 26);
    // $3.99 an hour for 26 · 1000 / 4.99 = 5209 tokens/s: 3.99 / 3600 / 5209 · 1e6 = $0.2128; a
    // memory-bound H100 draws (0.18 + 0.61) · 700 W, and the 26 · 15.27e9 FLOPs of a step, 0.401 of its 4.99 ms at the peak, add
    // 0.82 / 0.69 · 0.401 / 4.99 of 700 W: 620 / 5209 = 0.1190 J.
    near(best.cost_per_million_tokens.unwrap(), 0.2128, 4e-3);
    near(best.joules_per_token.unwrap(), 0.1190, 1e-2);
    assert!(at(curve, 32).missed.as_ref().unwrap().starts_with("TPOT p99"), "{:?}", at(curve, 32).missed);
}

/// In steady state n users get n answers of 200 tokens in the time of one answer plus 1 ms, after which a user's next
/// request arrives.
#[test]
fn points_hold_for_each_accelerator_of_a_replica() {
    let text =
        format!("{FORECAST}[search]\naccelerators = [\"h100-sxm\", \"mi300x\"]\nmax_accelerators = 2\n");
    let found = drawn(&text, false).unwrap();
    assert_eq!(found.curves.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["h100-sxm", "mi300x"]);
    assert!(found.curves.iter().any(|curve| curve.points.iter().any(|p| p.count == 2)));
    for p in found.curves.iter().flat_map(|curve| &curve.points) {
        let all = p.users as f64 * 200.0 / ((p.e2el_ms + 1.0) / 1e3);
        near(p.output_tok_s, all, 1e-9);
        near(p.output_tok_s_per_accelerator, all / p.count as f64, 1e-9);
        assert!(p.tpot_ms >= p.limit_tpot_ms && p.bands.is_some() && p.evidence.is_some(), "{p:?}");
        assert!(p.missed.is_some() || p.ttft_p99_ms <= 2000.0 && p.tpot_p99_ms <= 30.0, "{p:?}");
    }
}

/// A point that is skipped, because it is estimated to be far below a curve, would not have been on the curve.
#[test]
fn what_is_not_simulated_is_on_no_curve() {
    let text = format!("{FORECAST}[search]\naccelerators = [\"h100-sxm\", \"l40s\"]\nmax_accelerators = 4\n");
    let [some, all] = [false, true].map(|exhaustive| drawn(&text, exhaustive).unwrap());
    assert!(some.simulated < all.simulated, "{} of {}", some.simulated, all.simulated);
    assert_eq!(some.curves, all.curves);
}

/// Along a curve throughput rises as speed falls, and no point of any curve is both cheaper and faster than a point of
/// the front.
#[test]
fn curves_fall() {
    let text = format!(
        "{FORECAST}[search]\naccelerators = [\"h100-sxm\", \"l40s\", \"l4\"]\nmax_accelerators = 4\n"
    );
    let found = drawn(&text, false).unwrap();
    for curve in &found.curves {
        // The best point of a curve need not be on the curve.
        let on = |p: &&CurvePoint| curve.best.as_ref() != Some(*p);
        let points: Vec<&CurvePoint> = curve.points.iter().filter(on).collect();
        assert!(points.windows(2).all(|two| {
            two[0].interactivity_tok_s > two[1].interactivity_tok_s
                && two[0].output_tok_s_per_accelerator < two[1].output_tok_s_per_accelerator
        }));
        let met = curve.points.iter().filter(|p| p.missed.is_none());
        let most = met.map(|p| p.output_tok_s_per_accelerator).fold(0.0, f64::max);
        assert!(curve.best.as_ref().unwrap().output_tok_s_per_accelerator >= most * 0.99);
    }
    // The cheapest replica at a speed costs no more than any drawn point with that speed, and more speed costs more.
    let all = || found.curves.iter().flat_map(|curve| &curve.points);
    let cost = |p: &CurvePoint| p.cost_per_million_tokens.unwrap();
    assert!(found.at_speed.len() > 2);
    for at in &found.at_speed {
        assert!(at.point.interactivity_tok_s >= at.tok_s);
        let fast = all().filter(|p| p.interactivity_tok_s >= at.tok_s);
        let least = fast.map(cost).fold(f64::INFINITY, f64::min);
        assert!(cost(&at.point) <= least, "{} tokens/s: {} and {least}", at.tok_s, cost(&at.point));
    }
    assert!(found.at_speed.windows(2).all(|two| cost(&two[0].point) <= cost(&two[1].point)));
}

#[test]
fn curves_are_named_by_what_they_differ_in() {
    let names = |search: &str| -> Vec<String> {
        let found = drawn(&format!("{FORECAST}[search]\nmax_accelerators = 2\n{search}"), false).unwrap();
        found.curves.into_iter().map(|curve| curve.name).collect()
    };
    assert_eq!(names("accelerators = [\"h100-sxm\"]\n"), ["h100-sxm, tp 1", "h100-sxm, tp 2"]);
    assert_eq!(
        names("accelerators = [\"h100-sxm\"]\nweights = [\"bf16\", \"fp8\"]\n"),
        ["h100-sxm, bf16", "h100-sxm, fp8"]
    );
}

#[test]
fn what_has_no_curve_says_why() {
    let spec = |text: &str| Spec::parse("plan.toml", text).unwrap();
    let text =
        format!("{FORECAST}[search]\naccelerators = [\"rtx-4090\", \"h100-sxm\"]\nmax_accelerators = 2\n");
    let found = curves(&spec(&text), &model("meta-llama/Llama-3.1-70B"), catalog(), &PlanQuestion::default())
        .unwrap();
    assert_eq!(found.curves.len(), 1);
    let [why] = found.left_out.as_slice() else { panic!("{found:?}") };
    assert!(why.starts_with("rtx-4090: weights and one request of 1200 tokens lack"), "{why}");
    for (search, found) in
        [("disaggregated = true", "search.disaggregated"), ("mixed = true", "search.mixed")]
    {
        let refused = drawn(&format!("{FORECAST}[search]\naccelerators = [\"l4\"]\n{search}\n"), false);
        assert!(refused.unwrap_err().to_string().contains(found));
    }
    let sessions =
        FORECAST.replace("{ kind = \"poisson\", rate = 1 }", "{ kind = \"sessions\", rate = 1, turns = 3 }");
    assert!(drawn(&sessions, false).unwrap_err().to_string().contains("workload.arrivals"));
}
