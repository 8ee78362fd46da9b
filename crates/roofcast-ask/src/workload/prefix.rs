//! Prefixes that prompts share: system prompts, few-shot examples, documents.
//!
//! Knows: the length of prefixes, their number, and which request has which. A prefix is added to the prompt length.
//! The number of a prefix is its segment; every LoRA adapter computes a prefix anew, as a segment of its own. Knows nothing about prefix caches.

use super::random::{Purpose, Stream, Weighted};
use roofcast_facts::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// `[workload.prefix]`: prefixes that prompts share.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefix {
    /// Length of a prefix in tokens, in addition to `input_len`.
    pub length: u64,
    /// Number of different prefixes.
    #[serde(default = "one")]
    pub count: u64,
    /// Fraction of the requests (of the sessions, if there are any) that have a prefix.
    #[serde(default = "all")]
    pub share: f64,
    /// Zipf's exponent: the k-th prefix is drawn with weight 1/k^skew; 0 draws all prefixes equally often.
    #[serde(default)]
    pub skew: f64,
}

fn one() -> u64 {
    1
}

fn all() -> f64 {
    1.0
}

impl Prefix {
    pub(super) fn check(&self, place: &str) -> Result<()> {
        let refuse = |field: &str, found: String, accepted: &str| {
            Err(Error::field(place, format!("workload.prefix.{field}"), found, accepted))
        };
        if !(1..=100_000_000).contains(&self.length) {
            return refuse("length", self.length.to_string(), "1 to 10^8 tokens");
        }
        if !(1..=1_000_000).contains(&self.count) {
            return refuse("count", self.count.to_string(), "1 to 10^6");
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

/// Random choice of each request's prefix.
#[derive(Debug, Clone)]
pub(super) struct PrefixDraws {
    length: u32,
    count: u32,
    share: f64,
    choice: Weighted,
    stream: Stream,
}

impl PrefixDraws {
    pub(super) fn new(prefix: &Prefix, seed: u64) -> PrefixDraws {
        PrefixDraws {
            length: prefix.length as u32,
            count: prefix.count as u32,
            share: prefix.share,
            choice: Weighted::new((1..=prefix.count).map(|k| libm::pow(k as f64, -prefix.skew))),
            stream: Stream::new(seed, Purpose::Prefix),
        }
    }

    /// Segment and length of the prefix of the next request, which names adapter `adapter`; `None` if it has none.
    pub(super) fn draw(&mut self, adapter: u32) -> Option<(u32, u32)> {
        let has = self.stream.unit() < self.share;
        has.then(|| (self.choice.draw(&mut self.stream) + self.count * adapter, self.length))
    }
}
