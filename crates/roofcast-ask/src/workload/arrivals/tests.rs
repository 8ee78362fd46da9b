use super::*;

fn times(arrivals: &Arrivals, count: usize) -> Vec<f64> {
    let mut clock = Clock::new(arrivals, 5).unwrap();
    (0..count).map(|_| clock.next().seconds()).collect()
}

#[test]
fn a_ramp_has_as_many_arrivals_as_expected() {
    // A ramp from 100/s to 300/s over 100 s: 20,000 arrivals by the end, of which 100·50 + 2·2500/2 = 7500 in the
    // first half.
    let ramp = Arrivals::Ramp { from: 100.0, to: 300.0, over_s: 100.0 };
    let times = times(&ramp, 30_000);
    let by = |s: f64| times.iter().filter(|t| **t <= s).count() as f64;
    // Counts are Poisson-distributed: the standard deviation is the root of the mean.
    assert!((by(50.0) - 7500.0).abs() < 5.0 * 7500_f64.sqrt());
    assert!((by(100.0) - 20_000.0).abs() < 5.0 * 20_000_f64.sqrt());
}

#[test]
fn gamma_gaps_have_their_mean_and_spread() {
    let rate = 4.0;
    let burstiness = 0.5;
    let n = 100_000;
    let times = times(&Arrivals::Gamma { rate, burstiness }, n);
    let gaps: Vec<f64> = times.windows(2).map(|w| w[1] - w[0]).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|g| (g - 0.25).powi(2)).sum::<f64>() / gaps.len() as f64;
    // Mean 1/4, variance (1/4)²/0.5 = 0.125. The variance itself has excess kurtosis 6/0.5 = 12, so 0.125²·(12 +
    // 2)/n.
    assert!((mean - 0.25).abs() < 5.0 * (0.125 / n as f64).sqrt());
    assert!((variance - 0.125).abs() < 5.0 * (0.125 * 0.125 * 14.0 / n as f64).sqrt());
}

/// 2 requests a second for 10^7 − 1 seconds are 19,999,998. A series of 60 s from 1/s to 3/s brings 120, and 3 a second
/// for the other 9,999,939 s.
#[test]
fn as_many_requests_as_a_run_may_last_are_accepted() {
    for (arrivals, most) in [
        (Arrivals::Constant { rate: 2.0 }, 19_999_998),
        (Arrivals::Ramp { from: 1.0, to: 2.0, over_s: 10.0 }, 19_999_998),
        (Arrivals::Series { points: [[0.0, 1.0], [60.0, 3.0]].into() }, 120 + 3 * 9_999_939),
    ] {
        assert_eq!(arrivals.most_requests(), most);
        assert!(arrivals.check("test", most).is_ok() && arrivals.check("test", most + 4).is_err());
    }
    assert_eq!(Arrivals::Offline.most_requests(), u64::MAX);
}

#[test]
fn intervals_are_refused_as_they_are_written() {
    // A request every 10^9 s, and a burst of two, last longer than 10^7 s.
    for arrivals in [
        Arrivals::PacedUsers { concurrency: 1, every_s: 1e9 },
        Arrivals::Burst { size: Some(2), every_s: Some(1e9) },
    ] {
        let message = arrivals.check("test", 5).unwrap_err().to_string();
        assert!(message.contains("every_s") && message.contains("1000000000"), "{message}");
    }
}

#[test]
fn bursts_come_together() {
    let bursts = Arrivals::Burst { size: Some(2), every_s: Some(1.5) };
    assert_eq!(times(&bursts, 5), [0.0, 0.0, 1.5, 1.5, 3.0]);
    assert_eq!((bursts.rate(), bursts.cv2()), (Some(2.0 / 1.5), 1.0));
    assert_eq!(times(&Arrivals::Offline, 3), [0.0; 3]);
    assert_eq!(times(&Arrivals::Burst { size: None, every_s: None }, 3), [0.0; 3]);
}
