//! What bounds the time of a run's replicas.
//!
//! Knows: seconds by bottleneck, the bottleneck with most of them, and the energy that they take. Knows nothing about
//! single steps.

use roofcast_ask::deployment::Deployment;
use roofcast_facts::accelerator::Watts;
use serde::Serialize;

/// Seconds of the replicas' time, by bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimeShares {
    /// Seconds bound by memory bandwidth.
    pub memory_s: f64,
    /// Seconds bound by arithmetic.
    pub compute_s: f64,
    /// Seconds bound by links.
    pub communication_s: f64,
    /// Seconds bound by the host: its work, kernel launches, and whole steps that last as long as the engine's loop.
    pub host_s: f64,
    /// Seconds bound by the server: whole steps that last as long as its messages to clients.
    pub server_s: f64,
    /// Seconds among `host_s` and `server_s` in which accelerators compute; no part of the sum.
    pub overlapped_s: f64,
    /// Seconds for moving KV cache between device and host, and for loading LoRA adapters.
    pub swap_s: f64,
    /// Seconds without work.
    pub idle_s: f64,
    /// Seconds that the bytes of weights and KV cache take at full bandwidth, by mean steps; no part of the sum.
    pub reading_s: f64,
    /// Seconds that the FLOPs take at the peak rates, by mean steps; no part of the sum.
    pub arithmetic_s: f64,
}

impl TimeShares {
    /// Seconds with work.
    pub fn busy_s(&self) -> f64 {
        self.memory_s + self.compute_s + self.communication_s + self.host_s + self.server_s + self.swap_s
    }

    /// Joules of one accelerator that draws `watts`.
    pub(super) fn joules(&self, watts: Watts) -> f64 {
        let busy = self.busy_s();
        watts.joules(busy + self.idle_s, busy, [self.reading_s, self.arithmetic_s])
    }

    /// Name of the bottleneck with most of the busy time.
    pub fn bound(&self) -> &'static str {
        let shares = [
            ("memory", self.memory_s),
            ("compute", self.compute_s),
            ("communication", self.communication_s),
            ("host", self.host_s + self.swap_s),
            ("server", self.server_s),
        ];
        shares.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or("memory", |(name, _)| name)
    }

    /// Flag of the engine of `deployment` that lifts the bottleneck of a mean step: of the steps that wait for the server, its
    /// messages take `server_s` and the device `overlapped_s`. `None` if no flag does.
    pub(super) fn lifted_by(&self, deployment: &Deployment) -> Option<String> {
        let server = self.bound() == "server";
        server.then(|| deployment.lifts_server(self.server_s / self.overlapped_s.max(1e-12))).flatten()
    }

    /// Seconds of both.
    pub(super) fn plus(self, other: TimeShares) -> TimeShares {
        TimeShares {
            memory_s: self.memory_s + other.memory_s,
            compute_s: self.compute_s + other.compute_s,
            communication_s: self.communication_s + other.communication_s,
            host_s: self.host_s + other.host_s,
            server_s: self.server_s + other.server_s,
            overlapped_s: self.overlapped_s + other.overlapped_s,
            swap_s: self.swap_s + other.swap_s,
            idle_s: self.idle_s + other.idle_s,
            reading_s: self.reading_s + other.reading_s,
            arithmetic_s: self.arithmetic_s + other.arithmetic_s,
        }
    }
}
