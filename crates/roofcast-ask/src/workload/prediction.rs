//! Predictions of output lengths, for schedulers that order requests by length.

use super::random::{Purpose, Stream};
use serde::{Deserialize, Serialize};

/// Accuracy with which an output's length is known before it is generated.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Prediction {
    /// The exact length.
    #[default]
    Perfect,
    /// The length times exp(σ·z) for a normal z.
    Noisy {
        /// Standard deviation σ of the logarithm of the error.
        sigma: f64,
    },
    /// Only the nearest power of two, as a small model guesses it; with probability 1 − `accuracy` the guess is off by
    /// a factor of two.
    Proxy {
        /// Probability that the guess is the nearest power of two.
        accuracy: f64,
    },
}

/// Predictions of output lengths, one for each request in order.
#[derive(Debug, Clone)]
pub struct Guesses {
    prediction: Prediction,
    stream: Stream,
}

impl Guesses {
    /// Predictions whose errors are drawn from `seed`.
    pub fn new(prediction: Prediction, seed: u64) -> Guesses {
        Guesses { prediction, stream: Stream::new(seed, Purpose::Guess) }
    }

    /// The prediction for the next request, whose output will have `output` tokens.
    ///
    /// Noisy: `output · exp(σ z)`. Proxy, as a small model that sorts prompts into classes (arXiv 2404.08509): the
    /// nearest power of two, or with probability 1 − accuracy the power above or below.
    pub fn next(&mut self, output: u32) -> i64 {
        match self.prediction {
            Prediction::Perfect => i64::from(output),
            Prediction::Noisy { sigma } => {
                (f64::from(output) * libm::exp(sigma * self.stream.normal())).round() as i64
            }
            Prediction::Proxy { accuracy } => {
                let class = libm::log2(f64::from(output.max(1))).round() as i64;
                let right = self.stream.unit() < accuracy;
                let up = self.stream.unit() < 0.5;
                let off = if right { 0 } else { [-1, 1][usize::from(up)] };
                1_i64 << (class + off).clamp(0, 32)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_are_as_good_as_they_say() {
        let mut perfect = Guesses::new(Prediction::Perfect, 1);
        assert_eq!((perfect.next(7), perfect.next(100)), (7, 100));
        // A proxy that is right 7 times of 10, over 10,000 predictions: 5 standard errors of √(0.21/10⁴) = 0.0046.
        let mut proxy = Guesses::new(Prediction::Proxy { accuracy: 0.7 }, 1);
        let guesses: Vec<i64> = (0..10_000).map(|_| proxy.next(100)).collect();
        let share = |guess: i64| guesses.iter().filter(|g| **g == guess).count() as f64 / 1e4;
        // log2 100 = 6.64, so the nearest class is 2^7.
        assert!((share(128) - 0.7).abs() < 0.023 && (share(64) + share(256) - 0.3).abs() < 0.023);
        // The logarithm of a noisy prediction has standard deviation σ: mean square 0.25 ± 5·0.25·√(2/10⁴).
        let mut noisy = Guesses::new(Prediction::Noisy { sigma: 0.5 }, 1);
        let square = |_| (noisy.next(100_000) as f64 / 1e5).ln().powi(2);
        let mean = (0..10_000).map(square).sum::<f64>() / 1e4;
        assert!((mean - 0.25).abs() < 0.018, "{mean}");
    }
}
