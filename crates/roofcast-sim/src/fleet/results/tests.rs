//! Tests of results: cumulative distributions, and classes of requests.

use super::*;
use roofcast_facts::units::Picoseconds;

fn sample(ms: impl Iterator<Item = u64>) -> Sample {
    ms.map(|ms| Picoseconds(ms * 1_000_000_000)).collect()
}

/// The requests 0 and 1 of two users have TTFT 10 and 30 ms, of which one meets 20 ms: 20 ms on average. Request 2 is no
/// first request of a user.
#[test]
fn the_first_wave_is_counted_apart() {
    let mut counts = first_wave::Counts::of(2);
    assert_eq!(counts.results(true), None);
    let ticks = |ms: u64| Ticks::from(Picoseconds(ms * 1_000_000_000));
    for (number, ms, good) in [(1, 30, false), (2, 500, false), (0, 10, true)] {
        counts.add(number, ticks(ms), good);
    }
    let first_wave = |good| Some(FirstWave { completed: 2, good, mean_ttft_ms: 20.0 });
    assert_eq!((counts.results(true), counts.results(false)), (first_wave(Some(1)), first_wave(None)));
}

/// Request n of class n mod 2 is sent at n ms, with its first token after 10 (n + 1) ms and its second and last 5 ms
/// later. Class 0 has requests 0 and 2 with TTFT 10 and 30 ms, of which one meets 20 ms; class 1 has requests 1 and 3
/// with TTFT 20 and 40 ms, and E2EL 25 and 45 ms, of which both meet 50 ms. All four meet the SLO of 100 ms.
#[test]
fn classes_are_judged_by_their_own_bounds() {
    use roofcast_ask::spec::Percentile;
    let ms = |n: u64| Picoseconds(n * 1_000_000_000);
    let slo = |metric, bound| Slo::default().with(metric, Percentile::P99, Some(bound));
    let slos = [slo(Metric::Ttft, 20.0), slo(Metric::E2el, 50.0)];
    let mut results = Results::new(slo(Metric::Ttft, 100.0), false, Some(4)).by_class(slos.into_iter());
    let drawn = |n: u64| Request {
        adapter: 0,
        at: ms(n),
        input_len: 7,
        output_len: 2,
        max_tokens: None,
        priority: 0,
        class: n as u32 % 2,
        user: 0,
        prompt: roofcast_ask::workload::Prompt::Own,
    };
    for n in 0..4 {
        let arrival = results.arrive(&drawn(n), 0);
        let first = Ticks::from(ms(n + 10 * (n + 1)));
        let gone = Departure { arrival, first, preemptions: 0, cached: 0, id: 0, failed: false };
        results.finish(&gone, first + Ticks::from(ms(5)), 0);
    }
    let refused = results.arrive(&drawn(5), 0);
    results.refuse(&refused, false);
    let counts_of = |results: &Results| {
        let summary = results.summary(&Distribution::default());
        (results.taken, summary.completed, summary.failed, summary.good, summary.ttft.mean.round())
    };
    assert_eq!(counts_of(&results), (5, 4, 1, Some(4), 25.0));
    assert_eq!(counts_of(&results.classes[0]), (2, 2, 0, Some(1), 20.0));
    assert_eq!(counts_of(&results.classes[1]), (3, 2, 1, Some(2), 30.0));
}

#[test]
fn shares_are_of_the_values_that_do_not_exceed_one() {
    assert_eq!(sample([].into_iter()).shares(2), []);
    // A quarter of the values 1, 2, 4 and 8 is at most 1, half is at most 2.
    let four = [(1.0, 0.25), (2.0, 0.5), (4.0, 0.75), (8.0, 1.0)];
    assert_eq!(sample([8, 1, 4, 2].into_iter()).shares(4), four);
    // Values from 1 to 20,000 ms, which are stored in bins.
    for (ms, share) in sample(1..=20_000).shares(10) {
        assert!((ms / (20_000.0 * share) - 1.0).abs() < 1e-3, "{ms} {share}");
    }
}
