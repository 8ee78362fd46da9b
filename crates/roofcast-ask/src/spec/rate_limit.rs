//! `[fleet.rate_limit]`: requests and tokens that a gateway admits, by token buckets.

use super::keys::about;
use roofcast_facts::error::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Largest rate or size of a bucket.
const MOST: f64 = 1e12;

/// Buckets of one kind of requests; at least one rate is set.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Buckets {
    /// Requests a second that fill the bucket.
    pub requests_per_s: Option<f64>,
    /// Most requests at one time; one second's if absent.
    pub request_burst: Option<f64>,
    /// Tokens a second that fill the bucket; a request takes its prompt and its bound on output.
    pub tokens_per_s: Option<f64>,
    /// Most tokens at one time; one second's if absent.
    pub token_burst: Option<f64>,
}

/// `[fleet.rate_limit]`: buckets of all requests, and of classes.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimitSpec {
    #[doc = about!("fleet.rate_limit.requests_per_s")]
    pub requests_per_s: Option<f64>,
    #[doc = about!("fleet.rate_limit.request_burst")]
    pub request_burst: Option<f64>,
    #[doc = about!("fleet.rate_limit.tokens_per_s")]
    pub tokens_per_s: Option<f64>,
    #[doc = about!("fleet.rate_limit.token_burst")]
    pub token_burst: Option<f64>,
    #[doc = about!("fleet.rate_limit.classes")]
    pub classes: BTreeMap<String, Buckets>,
}

impl RateLimitSpec {
    /// Buckets of all requests; `None` if only classes have some.
    pub fn all(&self) -> Option<Buckets> {
        let RateLimitSpec { requests_per_s, request_burst, tokens_per_s, token_burst, .. } = *self;
        let all = Buckets { requests_per_s, request_burst, tokens_per_s, token_burst };
        (all != Buckets::default()).then_some(all)
    }

    /// Refuses values out of range, bursts without a rate, and classes that the workload, whose classes are `names`, lacks.
    pub fn check(&self, place: &str, names: &[&str]) -> Result<()> {
        let section = "fleet.rate_limit";
        match self.all() {
            Some(all) => all.check(place, section)?,
            None if self.classes.is_empty() => {
                let accepted = "requests_per_s, tokens_per_s or classes";
                return Err(Error::field(place, section, "empty", accepted));
            }
            None => {}
        }
        for (name, buckets) in &self.classes {
            let section = format!("{section}.classes.{name}");
            if !names.contains(&name.as_str()) {
                let accepted = match names {
                    [] => "names of workload.classes, of which there are none".to_owned(),
                    names => format!("classes of the workload: {}", names.join(", ")),
                };
                return Err(Error::field(place, section, "no class", accepted));
            }
            buckets.check(place, &section)?;
        }
        Ok(())
    }
}

impl Buckets {
    fn check(&self, place: &str, section: &str) -> Result<()> {
        let pairs = [
            ("requests_per_s", self.requests_per_s, "request_burst", self.request_burst),
            ("tokens_per_s", self.tokens_per_s, "token_burst", self.token_burst),
        ];
        if pairs.iter().all(|(_, rate, _, burst)| rate.is_none() && burst.is_none()) {
            return Err(Error::field(place, section, "empty", "requests_per_s or tokens_per_s"));
        }
        for (rate_key, rate, burst_key, burst) in pairs {
            let refused = |key: &str, found: f64, accepted: String| {
                Err(Error::field(place, format!("{section}.{key}"), found, accepted))
            };
            match (rate, burst) {
                (Some(rate), _) if !(rate > 0.0 && rate <= MOST) => {
                    return refused(rate_key, rate, "above 0, at most 10^12 a second".to_owned());
                }
                (_, Some(burst)) if !(1.0..=MOST).contains(&burst) => {
                    return refused(burst_key, burst, "1 to 10^12".to_owned());
                }
                (None, Some(burst)) => return refused(burst_key, burst, format!("with {rate_key}")),
                _ => {}
            }
        }
        Ok(())
    }
}
