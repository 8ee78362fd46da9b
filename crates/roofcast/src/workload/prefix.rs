//! Prompt beginnings that requests share: system prompts, few-shot examples, documents.
//!
//! Knows: how long they are, how many there are, which request has which. A shared beginning is added to the prompt
//! length. Its number is its segment.

use super::random::{Purpose, Stream, Weighted};
use crate::error::{Error, Result};
use serde::Deserialize;

/// `[workload.prefix]`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefix {
    /// Tokens, on top of `input_len`.
    pub length: u64,
    /// Number of different prefixes.
    #[serde(default = "one")]
    pub count: u64,
    /// Fraction of the requests (of the sessions, where there are any) that have a prefix.
    #[serde(default = "all")]
    pub share: f64,
    /// Zipf's exponent: the k-th prefix is drawn with a weight of 1/k^skew; 0 draws all equally often.
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

/// Draws of prefixes.
#[derive(Debug, Clone)]
pub(super) struct PrefixDraws {
    length: u32,
    share: f64,
    choice: Weighted,
    stream: Stream,
}

impl PrefixDraws {
    pub(super) fn new(prefix: &Prefix, seed: u64) -> PrefixDraws {
        PrefixDraws {
            length: prefix.length as u32,
            share: prefix.share,
            choice: Weighted::new((1..=prefix.count).map(|k| libm::pow(k as f64, -prefix.skew))),
            stream: Stream::new(seed, Purpose::Prefix),
        }
    }

    /// Segment and length of the next request's prefix, if it has one.
    pub(super) fn draw(&mut self) -> Option<(u32, u32)> {
        let has = self.stream.unit() < self.share;
        has.then(|| (self.choice.draw(&mut self.stream), self.length))
    }
}
