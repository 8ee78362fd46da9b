//! Lengths of prompts and outputs.
//!
//! Knows: distributions of token counts, their moments in closed form, and how they are drawn. A log-normal length is
//! exp(mu + sigma·z) for a standard normal z, rounded to a whole token and limited to `min` (1) and `max` (10^8). Knows
//! nothing about when requests arrive.

use super::elementary::exp;
use super::empirical::{LengthSide, LengthSource, Observed};
use super::random::{Ahead, Stream, normal_cdf};
use roofcast_facts::error::{Error, Result};
use roofcast_facts::preset::MOST_TOKENS as MOST;
use serde::{Deserialize, Serialize};

/// A distribution of token counts; a bare number is a fixed length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a whole number of tokens, or a table with kind = \"fixed\" (value), \"uniform\" (min, max), \"lognormal\" (mu, sigma; min, max) or \"empirical\" (pairs, path or name)"
)]
pub enum Length {
    /// A fixed length, in tokens.
    Tokens(u64),
    /// A named distribution.
    Drawn(LengthKind),
}

/// Named length distributions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LengthKind {
    /// A fixed length.
    Fixed {
        /// Length in tokens.
        value: u64,
    },
    /// Uniform distribution over whole numbers.
    Uniform {
        /// Smallest length in tokens.
        min: u64,
        /// Largest length in tokens.
        max: u64,
    },
    /// Log-normal distribution: the exponential of a normal draw.
    Lognormal {
        /// Mean of the logarithm.
        mu: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// Smallest length in tokens; smaller draws are raised to this. 1 if absent.
        min: Option<u64>,
        /// Largest length in tokens; larger draws are lowered to this. 10^8 if absent.
        max: Option<u64>,
    },
    /// Observed lengths. If prompts and outputs have one source, a request draws a pair.
    Empirical(LengthSource),
}

impl Length {
    /// Mean in tokens before rounding: exp(mu + sigma²/2) for a log-normal without limits. 0 for observations in a file
    /// that is not loaded.
    pub(super) fn mean(&self, side: LengthSide) -> f64 {
        match self {
            Length::Tokens(n) | Length::Drawn(LengthKind::Fixed { value: n }) => *n as f64,
            Length::Drawn(LengthKind::Uniform { min, max }) => (*min as f64 + *max as f64) / 2.0,
            Length::Drawn(LengthKind::Lognormal { mu, sigma, min, max }) => {
                lognormal_moment(1.0, *mu, *sigma, *min, *max)
            }
            Length::Drawn(LengthKind::Empirical(source)) => {
                source.observed.as_ref().map_or(0.0, |observed| observed.mean(side))
            }
        }
    }

    /// The squared coefficient of variation: exp(sigma²) − 1 for a log-normal, (max − min)²/12 over the squared mean
    /// for a uniform distribution.
    pub(super) fn cv2(&self, side: LengthSide) -> f64 {
        match self {
            Length::Drawn(LengthKind::Uniform { min, max }) => {
                let width = *max as f64 - *min as f64;
                width * width / 12.0 / self.mean(side).powi(2)
            }
            Length::Drawn(LengthKind::Lognormal { sigma, min: None, max: None, .. }) => {
                libm::expm1(sigma * sigma)
            }
            Length::Drawn(LengthKind::Lognormal { mu, sigma, min, max }) => {
                lognormal_moment(2.0, *mu, *sigma, *min, *max) / self.mean(side).powi(2) - 1.0
            }
            Length::Drawn(LengthKind::Empirical(source)) => {
                source.observed.as_ref().map_or(0.0, |observed| observed.cv2(side))
            }
            Length::Tokens(_) | Length::Drawn(LengthKind::Fixed { .. }) => 0.0,
        }
    }

    pub(super) fn check(&self, place: &str, field: &str, side: LengthSide) -> Result<()> {
        let sane = match *self {
            Length::Drawn(LengthKind::Empirical(ref source)) => return source.check(place, field, side),
            Length::Tokens(n) | Length::Drawn(LengthKind::Fixed { value: n }) => (1..=MOST).contains(&n),
            Length::Drawn(LengthKind::Uniform { min, max }) => min >= 1 && min <= max && max <= MOST,
            Length::Drawn(LengthKind::Lognormal { mu, sigma, min, max }) => {
                let min = min.unwrap_or(1);
                let max = max.unwrap_or(MOST);
                let cut = min >= 1 && min <= max && max <= MOST;
                cut && mu.is_finite() && sigma.is_finite() && sigma >= 0.0
            }
        };
        if sane && (1.0..=MOST as f64).contains(&self.mean(side)) {
            return Ok(());
        }
        Err(Error::field(
            place,
            field,
            self.written(),
            "lengths from 1 to 10^8 tokens, min at most max, sigma at least 0",
        ))
    }

    /// The distribution as a spec writes it.
    fn written(&self) -> String {
        let bound = |name: &str, n: &Option<u64>| n.map_or(String::new(), |n| format!(", {name} = {n}"));
        match self {
            Length::Tokens(n) => n.to_string(),
            Length::Drawn(LengthKind::Fixed { value }) => format!("{{ kind = \"fixed\", value = {value} }}"),
            Length::Drawn(LengthKind::Uniform { min, max }) => {
                format!("{{ kind = \"uniform\", min = {min}, max = {max} }}")
            }
            Length::Drawn(LengthKind::Lognormal { mu, sigma, min, max }) => {
                let bounds = bound("min", min) + &bound("max", max);
                format!("{{ kind = \"lognormal\", mu = {mu}, sigma = {sigma}{bounds} }}")
            }
            Length::Drawn(LengthKind::Empirical(_)) => "{ kind = \"empirical\" }".to_owned(),
        }
    }

    /// Source of observed lengths; `None` for other distributions.
    pub(super) fn source(&self) -> Option<&LengthSource> {
        match self {
            Length::Drawn(LengthKind::Empirical(source)) => Some(source),
            _ => None,
        }
    }

    /// Source of observed lengths, to be loaded; `None` for other distributions.
    pub(super) fn source_mut(&mut self) -> Option<&mut LengthSource> {
        match self {
            Length::Drawn(LengthKind::Empirical(source)) => Some(source),
            _ => None,
        }
    }

    /// Sampler of the distribution; `None` if a file is not loaded.
    pub(super) fn sampler(&self, side: LengthSide) -> Option<Sampler> {
        Some(match *self {
            Length::Tokens(n) | Length::Drawn(LengthKind::Fixed { value: n }) => Sampler::Fixed(tokens(n)),
            Length::Drawn(LengthKind::Uniform { min, max }) => {
                Sampler::Uniform { min: tokens(min), count: max - min + 1 }
            }
            Length::Drawn(LengthKind::Lognormal { mu, sigma, min, max }) => {
                let min = min.unwrap_or(1) as f64;
                let max = max.unwrap_or(MOST) as f64;
                Sampler::Lognormal { mu, sigma, min, max, ahead: Ahead::new() }
            }
            Length::Drawn(LengthKind::Empirical(ref source)) => {
                Sampler::Observed(source.observed.clone()?, side)
            }
        })
    }
}

/// A validated length in the integer type of requests.
fn tokens(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// E X^k of a log-normal limited to a = `min` and b = `max`: aᵏ Φ(α) + exp(kμ + k²σ²/2) (Φ(β − kσ) − Φ(α − kσ)) + bᵏ (1
/// − Φ(β)), with α = (ln a − μ)/σ and β = (ln b − μ)/σ. Without limits if neither is given.
fn lognormal_moment(k: f64, mu: f64, sigma: f64, min: Option<u64>, max: Option<u64>) -> f64 {
    let whole = libm::exp(k * mu + k * k * sigma * sigma / 2.0);
    if min.is_none() && max.is_none() {
        return whole;
    }
    let a = min.unwrap_or(1) as f64;
    let b = max.unwrap_or(MOST) as f64;
    if sigma == 0.0 {
        return libm::pow(libm::exp(mu).clamp(a, b), k);
    }
    let alpha = (libm::log(a) - mu) / sigma;
    let beta = (libm::log(b) - mu) / sigma;
    let between = normal_cdf(beta - k * sigma) - normal_cdf(alpha - k * sigma);
    let inner = if between > 0.0 { whole * between } else { 0.0 };
    libm::pow(a, k) * normal_cdf(alpha) + inner + libm::pow(b, k) * normal_cdf(-beta)
}

/// State of drawing from one distribution.
#[derive(Debug, Clone)]
pub(super) enum Sampler {
    Fixed(u32),
    Uniform { min: u32, count: u64 },
    Lognormal { mu: f64, sigma: f64, min: f64, max: f64, ahead: Ahead<u32> },
    Observed(Observed, LengthSide),
}

impl Sampler {
    #[inline(always)]
    pub(super) fn draw(&mut self, stream: &mut Stream) -> u32 {
        match self {
            Sampler::Observed(observed, side) => observed.draw(*side, stream),
            Sampler::Fixed(n) => *n,
            Sampler::Uniform { min, count } => *min + stream.below(*count) as u32,
            Sampler::Lognormal { mu, sigma, min, max, ahead } => {
                // Add ½ and truncate, which rounds a positive number.
                let rounded = |normal: f64| exp(*mu + *sigma * normal).clamp(*min, *max) + 0.5;
                ahead.next(|| {
                    let mut lengths = stream.normals();
                    lengths.iter_mut().for_each(|draw| *draw = rounded(*draw));
                    lengths.map(|length| length as u32)
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_by_hand() {
        let lognormal = |mu, sigma, min, max| Length::Drawn(LengthKind::Lognormal { mu, sigma, min, max });
        // exp(6.9 + 0.7²/2) = exp(7.145) = 1267.8.
        assert!((lognormal(6.9, 0.7, None, None).mean(LengthSide::Input) - 1267.75).abs() < 0.1);
        assert_eq!(Length::Drawn(LengthKind::Uniform { min: 10, max: 20 }).mean(LengthSide::Input), 15.0);
        // With limits that draws hardly ever reach the moments are unchanged; with equal limits the mean is that value.
        assert!(
            (lognormal(6.9, 0.7, Some(1), Some(100_000_000)).mean(LengthSide::Input) - 1267.75).abs() < 0.1
        );
        let constant = lognormal(6.9, 0.7, Some(5), Some(5));
        assert!(
            (constant.mean(LengthSide::Input) - 5.0).abs() < 1e-9
                && constant.cv2(LengthSide::Input).abs() < 1e-9,
            "{} {}",
            constant.mean(LengthSide::Input),
            constant.cv2(LengthSide::Input)
        );
        // Limited from above at the median e^6 = 403.43: e^6 (½ + e^½ Φ(−1)) = 403.43 (0.5 + 1.64872 · 0.158655) =
        // 307.24. The limit is a whole number, 403, so that the mean is ½ · 0.43 = 0.21 lower, 307.03.
        assert!((lognormal(6.0, 1.0, None, Some(403)).mean(LengthSide::Input) - 307.03).abs() < 0.02);
    }
}
