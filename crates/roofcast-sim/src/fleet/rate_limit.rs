//! Rate limits of a gateway in front of a fleet: token buckets of requests and of tokens, for all requests and by class.
//!
//! Knows: a bucket is full at first, holds at most its burst and fills at its rate; a request takes 1 from a bucket of
//! requests, and its prompt and its bound on output from a bucket of tokens. A request that some bucket cannot give is refused
//! (HTTP 429), and takes nothing. Knows nothing about replicas.

use roofcast_ask::arrival::Arrival;
use roofcast_ask::spec::{Buckets, RateLimitSpec};
use roofcast_facts::clock::Ticks;
use serde::Serialize;

/// A token bucket.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    rate: f64,
    burst: f64,
    held: f64,
    /// Time for which `held` is true.
    at: Ticks,
}

impl Bucket {
    /// A full bucket; `None` without a rate. The burst is one second's, and at least 1, if it is not stated.
    fn of(rate: Option<f64>, burst: Option<f64>) -> Option<Bucket> {
        let rate = rate?;
        let burst = burst.unwrap_or(rate).max(1.0);
        Some(Bucket { rate, burst, held: burst, at: Ticks::ZERO })
    }

    /// Fills the bucket until `at`; true if it then has `amount`.
    fn has(&mut self, amount: f64, at: Ticks) -> bool {
        let passed_s = Ticks(at.0.saturating_sub(self.at.0)).seconds();
        self.held = (self.held + passed_s * self.rate).min(self.burst);
        self.at = self.at.max(at);
        self.held >= amount
    }
}

/// Requests that take more tokens than a full bucket holds, so that no wait admits them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OversizedRequests {
    /// Number of the requests.
    pub requests: u64,
    /// Tokens of the smallest of the requests: its prompt and its bound on output.
    pub smallest: u64,
    /// Most tokens that the bucket holds which rejected the first of the requests.
    pub burst: f64,
    /// Key of the bucket's size.
    pub key: String,
}

/// Buckets of requests and of tokens.
#[derive(Debug, Clone, Copy)]
struct Pair([Option<Bucket>; 2]);

impl Pair {
    fn of(buckets: &Buckets) -> Pair {
        Pair([
            Bucket::of(buckets.requests_per_s, buckets.request_burst),
            Bucket::of(buckets.tokens_per_s, buckets.token_burst),
        ])
    }

    /// Size of the bucket of tokens, if it never holds `tokens`.
    fn below(&self, tokens: u64) -> Option<f64> {
        self.0[1].map(|bucket| bucket.burst).filter(|burst| *burst < tokens as f64)
    }
}

/// The rate limits of a fleet.
#[derive(Debug)]
pub(crate) struct RateLimit {
    all: Option<Pair>,
    /// Buckets of each class, in the order of the workload's.
    classes: Vec<Option<Pair>>,
    names: Vec<String>,
    /// Requests that take more tokens than a bucket holds; `None` without such a request.
    pub(crate) oversized: Option<OversizedRequests>,
}

impl RateLimit {
    /// The limits of `spec` for requests of the classes `names`.
    pub(crate) fn new(spec: &RateLimitSpec, names: &[&str]) -> RateLimit {
        let of_class = |name: &&str| spec.classes.get(*name).map(Pair::of);
        RateLimit {
            all: spec.all().as_ref().map(Pair::of),
            classes: names.iter().map(of_class).collect(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            oversized: None,
        }
    }

    /// Counts a request of class `class` if it takes more tokens than one of its buckets holds.
    fn measure(&mut self, class: usize, tokens: u64) {
        let of_all = self.all.and_then(|pair| pair.below(tokens)).map(|burst| (burst, String::new()));
        let of_class = || {
            let burst = self.classes.get(class)?.as_ref()?.below(tokens)?;
            Some((burst, format!("classes.{}.", self.names[class])))
        };
        let Some((burst, section)) = of_all.or_else(of_class) else { return };
        let key = format!("fleet.rate_limit.{section}token_burst");
        let counted =
            self.oversized.get_or_insert(OversizedRequests { requests: 0, smallest: tokens, burst, key });
        counted.requests += 1;
        counted.smallest = counted.smallest.min(tokens);
    }

    /// True if a request is admitted, which then takes its part of each bucket.
    pub(super) fn admits(&mut self, arrival: &Arrival) -> bool {
        let tokens = u64::from(arrival.input) + u64::from(arrival.max_tokens);
        self.measure(arrival.class as usize, tokens);
        let amounts = [1.0, tokens as f64];
        let of_class = self.classes.get_mut(arrival.class as usize).and_then(Option::as_mut);
        let mut pairs: Vec<&mut Pair> = self.all.iter_mut().chain(of_class).collect();
        let mut admitted = true;
        for pair in &mut pairs {
            for (bucket, amount) in pair.0.iter_mut().zip(amounts) {
                admitted &= bucket.as_mut().is_none_or(|bucket| bucket.has(amount, arrival.sent));
            }
        }
        if admitted {
            for (bucket, amount) in pairs.iter_mut().flat_map(|pair| pair.0.iter_mut().zip(amounts)) {
                bucket.iter_mut().for_each(|bucket| bucket.held -= amount);
            }
        }
        admitted
    }
}
