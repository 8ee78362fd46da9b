//! Observed lengths: pairs of prompt and answer, or the quantiles of both with their correlation.
//!
//! Knows: where observations come from, their moments, and how a pair is drawn. Between quantiles the distribution is
//! linear. If prompt and answer are correlated, two normals are drawn with the correlation 2 sin(π ρ/6), which gives
//! Spearman's ρ, and each normal's probability is looked up in the quantiles (a Gaussian copula). Knows nothing about
//! when requests arrive.

use super::random::{Stream, normal_cdf};
use super::trace::{Trace, TraceFormat};
use roofcast_facts::error::{Error, Result};
use roofcast_facts::preset::{MOST_TOKENS, PROBABILITIES, PresetStatistics, Quantiles, mean, over_lines};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Source of observed lengths: one of the keys `pairs`, `path` and `name`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LengthSource {
    /// Numbers of prompt and answer tokens; all pairs are equally likely.
    pub(crate) pairs: Option<Arc<[(u32, u32)]>>,
    /// Path of a trace file.
    pub(crate) path: Option<String>,
    /// Format of the file; detected from the first line if absent.
    pub(crate) format: Option<TraceFormat>,
    /// Name of a preset in the catalog.
    pub(crate) name: Option<String>,
    /// Observed lengths; `None` until they are loaded.
    #[serde(skip)]
    pub(crate) observed: Option<Observed>,
}

/// Observed lengths, in either form.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Observed {
    /// Pairs of lengths; all are equally likely.
    Pairs(Arc<[(u32, u32)]>),
    /// Quantiles of prompt and output lengths.
    Summary(Arc<PresetStatistics>),
}

/// One of the two lengths of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LengthSide {
    Input,
    Output,
}

/// Function that finds the lengths of a preset by its name.
pub(super) type Presets<'a> = &'a dyn Fn(&str) -> Result<Arc<PresetStatistics>>;

impl LengthSource {
    /// The observed lengths of a trace file.
    pub(super) fn of_file(path: &str, format: Option<TraceFormat>) -> LengthSource {
        LengthSource { path: Some(path.into()), format, ..LengthSource::default() }
    }

    /// The observed lengths of a preset.
    pub(super) fn of_preset(name: &str) -> LengthSource {
        LengthSource { name: Some(name.into()), ..LengthSource::default() }
    }

    /// Loads observations that need no file; `preset` finds published lengths.
    pub(super) fn settle(&mut self, place: &str, field: &str, preset: Presets) -> Result<()> {
        let observed = match (&self.pairs, &self.path, &self.name) {
            (Some(pairs), None, None) => Observed::Pairs(Arc::clone(pairs)),
            (None, None, Some(name)) => Observed::Summary(preset(name)?),
            (None, Some(_), None) => return Ok(()),
            _ => {
                return Err(Error::field(
                    place,
                    field,
                    "not one source",
                    "one of `pairs`, `path` and `name`",
                ));
            }
        };
        self.observed = Some(observed);
        Ok(())
    }

    /// Uses the lengths of the trace that `path` names.
    pub(super) fn accept(&mut self, trace: &Trace) {
        let pairs = trace.requests.iter().map(|r| (r.input_len, r.output_len)).collect();
        self.observed = Some(Observed::Pairs(pairs));
    }

    /// True if both sources are equal, so that a request draws a pair.
    pub(super) fn is(&self, other: &LengthSource) -> bool {
        (&self.pairs, &self.path, self.format, &self.name)
            == (&other.pairs, &other.path, other.format, &other.name)
    }

    pub(super) fn check(&self, place: &str, field: &str, side: LengthSide) -> Result<()> {
        let refuse = |found: &str, accepted: &str| Err(Error::field(place, field, found, accepted));
        match &self.observed {
            None => Ok(()),
            Some(Observed::Pairs(pairs)) => {
                let of_tokens = |n: &u32| (1..=MOST_TOKENS).contains(&u64::from(*n));
                match pairs.iter().find(|(input, output)| !of_tokens(input) || !of_tokens(output)) {
                    Some((input, output)) => {
                        refuse(&format!("[{input}, {output}]"), "pairs of 1 to 10^8 tokens")
                    }
                    None if pairs.is_empty() => refuse("[]", "one pair or more"),
                    None => Ok(()),
                }
            }
            Some(Observed::Summary(summary)) if side == LengthSide::Output && summary.output.is_none() => {
                refuse("of a set of prompts alone", "a set with answers")
            }
            Some(Observed::Summary(_)) => Ok(()),
        }
    }
}

impl Observed {
    pub(super) fn mean(&self, side: LengthSide) -> f64 {
        match self {
            Observed::Pairs(pairs) => pairs.iter().map(|p| of(*p, side)).sum::<f64>() / pairs.len() as f64,
            Observed::Summary(s) => mean(quantiles(s, side)),
        }
    }

    pub(super) fn cv2(&self, side: LengthSide) -> f64 {
        let square = match self {
            Observed::Pairs(pairs) => {
                pairs.iter().map(|p| of(*p, side) * of(*p, side)).sum::<f64>() / pairs.len() as f64
            }
            // A linear part from a to b has the mean square (a² + ab + b²)/3.
            Observed::Summary(s) => over_lines(quantiles(s, side), |a, b| (a * a + a * b + b * b) / 3.0),
        };
        (square / (self.mean(side) * self.mean(side)) - 1.0).max(0.0)
    }

    /// Draws one of the two lengths.
    pub(super) fn draw(&self, side: LengthSide, stream: &mut Stream) -> u32 {
        match self {
            Observed::Pairs(pairs) => of(pairs[stream.below(pairs.len() as u64) as usize], side) as u32,
            Observed::Summary(summary) => quantile(quantiles(summary, side), stream.unit()),
        }
    }

    /// Draws both lengths, with the observed correlation.
    pub(super) fn draw_pair(&self, stream: &mut Stream) -> (u32, u32) {
        match self {
            Observed::Pairs(pairs) => pairs[stream.below(pairs.len() as u64) as usize],
            Observed::Summary(summary) => {
                let r = 2.0 * libm::sin(std::f64::consts::PI * summary.rank_correlation / 6.0);
                let input = stream.normal();
                let output = r * input + (1.0 - r * r).sqrt() * stream.normal();
                let look_up = |side, z| quantile(quantiles(summary, side), normal_cdf(z));
                (look_up(LengthSide::Input, input), look_up(LengthSide::Output, output))
            }
        }
    }
}

/// Quantiles of the lengths of one side; of the prompts if only prompts were recorded.
fn quantiles(summary: &PresetStatistics, side: LengthSide) -> &Quantiles {
    match side {
        LengthSide::Input => &summary.input,
        LengthSide::Output => summary.output.as_ref().unwrap_or(&summary.input),
    }
}

fn of(pair: (u32, u32), side: LengthSide) -> f64 {
    f64::from(if side == LengthSide::Input { pair.0 } else { pair.1 })
}

/// The length at cumulative probability `p`, in whole tokens.
fn quantile(quantiles: &Quantiles, p: f64) -> u32 {
    let above = PROBABILITIES.iter().position(|at| *at >= p).unwrap_or(PROBABILITIES.len() - 1).max(1);
    let low = PROBABILITIES[above - 1];
    let high = PROBABILITIES[above];
    let share = (p - low) / (high - low);
    (quantiles[above - 1] + share * (quantiles[above] - quantiles[above - 1]) + 0.5) as u32
}

#[cfg(test)]
mod tests {
    use super::super::random::Purpose;
    use super::*;

    fn summary() -> Arc<PresetStatistics> {
        let q = |p: f64| 100.0 + 900.0 * p;
        let output = Some(PROBABILITIES.map(|p| 10.0 + 90.0 * p));
        Arc::new(PresetStatistics {
            input: PROBABILITIES.map(q),
            output,
            rank_correlation: 0.6,
            quarters: Vec::new(),
        })
    }

    #[test]
    fn straight_quantiles_are_a_uniform_distribution() {
        let observed = Observed::Summary(summary());
        // Uniform on 100 to 1000: mean 550, variance 900²/12 = 67,500, cv² = 67,500/302,500.
        assert!((observed.mean(LengthSide::Input) - 550.0).abs() < 1e-9);
        assert!((observed.cv2(LengthSide::Input) - 67_500.0 / 302_500.0).abs() < 1e-9);
        assert_eq!((quantile(&summary().input, 0.5), quantile(&summary().input, 0.995)), (550, 996));
    }

    #[test]
    fn pairs_have_the_rank_correlation_that_was_asked_for() {
        let observed = Observed::Summary(summary());
        let mut stream = Stream::new(3, Purpose::Input);
        let n = 50_000;
        let drawn: Vec<_> = (0..n).map(|_| observed.draw_pair(&mut stream)).collect();
        // For uniform margins Spearman's ρ is the plain correlation: E[(x − 550)(y − 55)]/(259.81 · 25.98) = 0.6. Its
        // standard error is below 1/√n = 0.0045.
        let sum: f64 = drawn.iter().map(|(x, y)| (f64::from(*x) - 550.0) * (f64::from(*y) - 55.0)).sum();
        let correlation = sum / n as f64 / (259.81 * 25.98);
        assert!((correlation - 0.6).abs() < 5.0 * 0.0045, "{correlation}");
    }

    #[test]
    fn given_pairs_stay_together() {
        let pairs = Observed::Pairs([(1, 10), (3, 30)].into());
        let mut stream = Stream::new(3, Purpose::Input);
        let drawn: Vec<_> = (0..100).map(|_| pairs.draw_pair(&mut stream)).collect();
        assert!(
            drawn.iter().all(|(x, y)| x * 10 == *y) && drawn.contains(&(1, 10)) && drawn.contains(&(3, 30))
        );
        // Mean 20, mean square (100 + 900)/2 = 500, cv² = 500/400 − 1.
        assert_eq!((pairs.mean(LengthSide::Output), pairs.cv2(LengthSide::Output)), (20.0, 0.25));
    }
}
