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
    /// Time bound by the host: its work and launches, and whole steps that last as long as the engine's loop.
    pub host: T,
    /// Time bound by the server: whole steps that last as long as its messages.
    pub server: T,
    /// Part of `host` and `server` in which the device computes; no part of the total.
    pub overlapped: T,
}

impl<T: Copy> BottleneckShares<T> {
    /// Returns the parts changed by `change`.
    pub fn map<U>(self, change: impl Fn(T) -> U) -> BottleneckShares<U> {
        BottleneckShares {
            memory: change(self.memory),
            compute: change(self.compute),
            communication: change(self.communication),
            host: change(self.host),
            server: change(self.server),
            overlapped: change(self.overlapped),
        }
    }
}

impl<T: Copy + Add<Output = T>> BottleneckShares<T> {
    /// Sum of all parts.
    pub fn total(&self) -> T {
        self.memory + self.compute + self.communication + self.host + self.server
    }

    /// Returns the sum with `other`, part by part.
    pub fn plus(self, other: BottleneckShares<T>) -> BottleneckShares<T> {
        BottleneckShares {
            memory: self.memory + other.memory,
            compute: self.compute + other.compute,
            communication: self.communication + other.communication,
            host: self.host + other.host,
            server: self.server + other.server,
            overlapped: self.overlapped + other.overlapped,
        }
    }
}

impl<T: Copy + Default> BottleneckShares<T> {
    /// A step of `time` that lasts as long as the server's messages, if `server`, or the engine's loop; the device computes
    /// in the part `overlapped`.
    pub fn paced(server: bool, time: T, overlapped: T) -> BottleneckShares<T> {
        let step = BottleneckShares { overlapped, ..BottleneckShares::default() };
        if server {
            BottleneckShares { server: time, ..step }
        } else {
            BottleneckShares { host: time, ..step }
        }
    }
}

impl BottleneckShares<f64> {
    /// Returns every part times `factor`.
    pub fn scaled(self, factor: f64) -> BottleneckShares<f64> {
        self.map(|part| part * factor)
    }

    /// Returns the parts rounded to whole units.
    pub fn whole(self) -> BottleneckShares<u64> {
        // Rounding to the nearest; times are not negative, and converting a signed word is one instruction.
        self.map(|part| (part + 0.5) as i64 as u64)
    }
}

impl BottleneckShares<u128> {
    /// Adds the parts of a step.
    pub fn add(&mut self, step: BottleneckShares<u64>) {
        *self = self.plus(step.map(u128::from));
    }
}

impl BottleneckShares<u64> {
    /// Returns every part times `factor`.
    pub fn scaled(self, factor: f64) -> BottleneckShares<u64> {
        self.map(|part| part as f64).scaled(factor).whole()
    }

    /// Name of the bottleneck with the largest part.
    pub fn largest(&self) -> &'static str {
        let named = [
            (self.memory, "memory"),
            (self.compute, "compute"),
            (self.communication, "communication"),
            (self.host, "host"),
            (self.server, "server"),
        ];
        named.iter().max_by_key(|(share, _)| share).map_or("", |(_, name)| name)
    }
}
