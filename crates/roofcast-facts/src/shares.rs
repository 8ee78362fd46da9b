//! Times by bottleneck.
//!
//! Knows: how times by bottleneck are added, scaled and named. Knows nothing about their origin.

use std::ops::Add;

/// A time, divided into one part per bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct BottleneckShares<T> {
    /// Time bound by HBM bandwidth.
    pub memory: T,
    /// Time bound by arithmetic.
    pub compute: T,
    /// Time bound by links between accelerators.
    pub communication: T,
    /// Time bound by the host: its work and launches.
    pub host: T,
}

impl<T: Copy + Add<Output = T>> BottleneckShares<T> {
    /// Sum of all parts.
    pub fn total(&self) -> T {
        self.memory + self.compute + self.communication + self.host
    }

    /// Returns the sum with `other`, part by part.
    pub fn plus(self, other: BottleneckShares<T>) -> BottleneckShares<T> {
        BottleneckShares {
            memory: self.memory + other.memory,
            compute: self.compute + other.compute,
            communication: self.communication + other.communication,
            host: self.host + other.host,
        }
    }
}

impl BottleneckShares<f64> {
    /// Returns every part times `factor`.
    pub fn scaled(self, factor: f64) -> BottleneckShares<f64> {
        BottleneckShares {
            memory: self.memory * factor,
            compute: self.compute * factor,
            communication: self.communication * factor,
            host: self.host * factor,
        }
    }

    /// Returns the parts rounded to whole units.
    pub fn whole(self) -> BottleneckShares<u64> {
        // Rounding to the nearest; times are not negative, and converting a signed word is one instruction.
        let whole = |s: f64| (s + 0.5) as i64 as u64;
        BottleneckShares {
            memory: whole(self.memory),
            compute: whole(self.compute),
            communication: whole(self.communication),
            host: whole(self.host),
        }
    }
}

impl BottleneckShares<u128> {
    /// Adds the parts of a step.
    pub fn add(&mut self, step: BottleneckShares<u64>) {
        self.memory += u128::from(step.memory);
        self.compute += u128::from(step.compute);
        self.communication += u128::from(step.communication);
        self.host += u128::from(step.host);
    }
}

impl BottleneckShares<u64> {
    /// Returns every part times `factor`.
    pub fn scaled(self, factor: f64) -> BottleneckShares<u64> {
        let BottleneckShares { memory, compute, communication, host } = self;
        let [memory, compute, communication, host] = [memory, compute, communication, host].map(|s| s as f64);
        BottleneckShares { memory, compute, communication, host }.scaled(factor).whole()
    }

    /// Name of the bottleneck with the largest part.
    pub fn largest(&self) -> &'static str {
        let named = [
            (self.memory, "memory"),
            (self.compute, "compute"),
            (self.communication, "communication"),
            (self.host, "host"),
        ];
        named.iter().max_by_key(|(share, _)| share).map_or("", |(_, name)| name)
    }
}
