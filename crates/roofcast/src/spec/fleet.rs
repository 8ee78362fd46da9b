//! `[fleet]`: how replicas share the traffic.

use crate::router::Routing;
use serde::{Deserialize, Serialize};

/// `[fleet]`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FleetSpec {
    /// Who serves a request.
    pub router: Routing,
    /// Replicas that compute prompts alone; `decode` goes with it.
    pub prefill: Option<PoolSpec>,
    /// Replicas that decode alone.
    pub decode: Option<PoolSpec>,
    /// Over what caches travel from prefill to decode.
    pub link: Option<LinkKind>,
}

/// `[fleet.prefill]` and `[fleet.decode]`: equal replicas; what is absent is as in `[parallelism]` and `[engine]`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolSpec {
    /// How many.
    pub replicas: Option<u64>,
    /// Who of them serves a request; as in `[fleet]` where absent.
    pub router: Option<Routing>,
    /// Tensor parallelism.
    pub tp: Option<u64>,
    /// Pipeline stages.
    pub pp: Option<u64>,
    /// Sequences that run at once.
    pub max_num_seqs: Option<u64>,
    /// Tokens that one step computes at most.
    pub max_num_batched_tokens: Option<u64>,
    /// KV blocks.
    pub num_gpu_blocks: Option<u64>,
}

/// Links between accelerators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    /// Within a node: the accelerator's `link`.
    Nvlink,
    /// Between nodes: the accelerator's `network`.
    Network,
    /// Through the host.
    Pcie,
}

impl LinkKind {
    /// As in a spec.
    pub fn name(self) -> &'static str {
        match self {
            LinkKind::Nvlink => "nvlink",
            LinkKind::Network => "network",
            LinkKind::Pcie => "pcie",
        }
    }
}
