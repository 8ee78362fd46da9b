//! Queue limits of vLLM's server: a request that would exceed them is refused with HTTP 503.
//!
//! Knows: `max_num_queued_reqs` and `max_num_queued_tokens` as vLLM 0.32 checks them when a request arrives
//! (`check_admission` of `v1/engine/async_llm.py`), in one server for all data-parallel ranks of a replica. All tokens
//! of a prompt count until the request has its first output token. Knows nothing about schedulers.

use crate::engine::Replica;
use roofcast_ask::arrival::Arrival;
use roofcast_ask::engine_settings::EngineSettings;

/// Queue limits, and the counts that they limit.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Most requests in flight, waiting or running.
    max_num_queued_reqs: u64,
    /// Most prompt tokens of the requests that have no output token yet.
    max_num_queued_tokens: u64,
    /// Both counts of each replica when its last step began, because a server sees the results of a step only at its
    /// end.
    counts: Vec<[u64; 2]>,
}

impl Admission {
    /// The limits of a spec, for `replicas` replicas; `None` if the spec sets none.
    pub(crate) fn of(settings: &EngineSettings, replicas: usize) -> Option<Admission> {
        let vllm = settings.vllm()?;
        let limits = [vllm.max_num_queued_reqs, vllm.max_num_queued_tokens];
        let [max_num_queued_reqs, max_num_queued_tokens] = limits.map(|limit| limit.unwrap_or(u64::MAX));
        let counts = vec![[0; 2]; replicas];
        let any = limits.iter().any(Option::is_some);
        any.then_some(Admission { max_num_queued_reqs, max_num_queued_tokens, counts })
    }

    /// Records the counts of replica `index` when a step begins.
    pub(super) fn begin(&mut self, index: usize, replica: &dyn Replica) {
        self.counts[index] = count(replica);
    }

    /// True if replica `index` accepts a request; an accepted request is counted.
    pub(super) fn accepts(&mut self, index: usize, replica: &dyn Replica, arrival: &Arrival) -> bool {
        let counts = &mut self.counts[index];
        if arrival.at >= replica.clock() {
            *counts = count(replica);
        }
        let [requests, tokens] = *counts;
        let accepts = requests < self.max_num_queued_reqs && tokens < self.max_num_queued_tokens;
        if accepts {
            *counts = [requests + 1, tokens + u64::from(arrival.input)];
        }
        accepts
    }
}

fn count(replica: &dyn Replica) -> [u64; 2] {
    [replica.in_flight(), replica.prompt_tokens()]
}
