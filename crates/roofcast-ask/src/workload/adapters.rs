//! LoRA adapters that requests name.
//!
//! Knows: the number of adapters, the fraction of requests with one, and how popular each is; adapters that classes
//! name have the numbers after these. A request without an adapter has number 0. Knows nothing about how adapters are
//! served.

use super::class::Class;
use super::random::{Purpose, Stream, Weighted};
use roofcast_facts::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// `[workload.adapters]`: LoRA adapters that requests name.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapters {
    /// Number of adapters.
    pub count: u64,
    /// Fraction of the requests (of the sessions, if there are any) that name an adapter.
    #[serde(default = "all")]
    pub share: f64,
    /// Zipf's exponent: the k-th adapter is drawn with weight 1/k^skew; 0 draws all adapters equally often.
    #[serde(default)]
    pub skew: f64,
}

fn all() -> f64 {
    1.0
}

impl Adapters {
    pub(super) fn check(&self, place: &str) -> Result<()> {
        let refuse = |field: &str, found: String, accepted: &str| {
            Err(Error::field(place, format!("workload.adapters.{field}"), found, accepted))
        };
        if !(1..=100_000).contains(&self.count) {
            return refuse("count", self.count.to_string(), "1 to 10^5");
        }
        if !(0.0..=1.0).contains(&self.share) {
            return refuse("share", self.share.to_string(), "a number from 0 to 1");
        }
        if !(0.0..=10.0).contains(&self.skew) {
            return refuse("skew", self.skew.to_string(), "a number from 0 to 10");
        }
        Ok(())
    }
}

/// Number of different adapters that a workload's own adapters and its classes name.
pub(super) fn count(adapters: Option<&Adapters>, classes: &[Class]) -> u64 {
    adapters.map_or(0, |adapters| adapters.count) + names(classes).len() as u64
}

/// Adapters that classes name, each once, in order.
fn names(classes: &[Class]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in classes.iter().filter_map(|class| class.adapter.as_deref()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Random choice of each request's adapter.
#[derive(Debug, Clone)]
pub(super) struct AdapterDraws {
    /// Adapters of the workload: probability that a request names one, choice and stream.
    drawn: Option<(f64, Weighted, Stream)>,
    /// Number of the adapter that each class names.
    named: Vec<Option<u32>>,
}

impl AdapterDraws {
    /// The draws; `None` if no request names an adapter.
    pub(super) fn new(adapters: Option<&Adapters>, classes: &[Class], seed: u64) -> Option<AdapterDraws> {
        let drawn_count = adapters.map_or(0, |adapters| adapters.count);
        let names = names(classes);
        let number = |name: &str| {
            let at = names.iter().position(|known| *known == name)?;
            Some((drawn_count + at as u64 + 1) as u32)
        };
        let named = classes.iter().map(|class| class.adapter.as_deref().and_then(number)).collect();
        let drawn = adapters.map(|adapters| {
            let weights = (1..=adapters.count).map(|k| libm::pow(k as f64, -adapters.skew));
            (adapters.share, Weighted::new(weights), Stream::new(seed, Purpose::Adapter))
        });
        (drawn_count > 0 || !names.is_empty()).then_some(AdapterDraws { drawn, named })
    }

    /// Number of the adapter of the next request, of class `class`; 0 without one.
    pub(super) fn draw(&mut self, class: u32) -> u32 {
        if let Some(Some(named)) = self.named.get(class as usize) {
            return *named;
        }
        let Some((share, choice, stream)) = &mut self.drawn else { return 0 };
        if stream.unit() < *share { choice.draw(stream) + 1 } else { 0 }
    }
}
