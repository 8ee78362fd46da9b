//! Queue limits of vLLM's server: a request beyond them is refused with HTTP 503.
//!
//! Knows: `max_num_queued_reqs` and `max_num_queued_tokens` as vLLM 0.32 checks them when a request arrives
//! (`check_admission` of `v1/engine/async_llm.py`), in one server for all data-parallel ranks of a replica. A prompt
//! counts whole until its first token. Knows nothing about schedulers.

use crate::arrival::Arrival;
use crate::engine::Replica;
use crate::engine_settings::EngineSettings;

/// Queue limits and the counts that they apply to.
#[derive(Debug)]
pub struct Admission {
    /// Most requests, waiting or running.
    max_num_queued_reqs: u64,
    /// Most prompt tokens of requests without their first token.
    max_num_queued_tokens: u64,
    /// Both counts of each replica as of its last step, because results arrive with the step's end.
    counts: Vec<[u64; 2]>,
}

impl Admission {
    /// The limits of a spec, for `replicas` replicas; `None` if the spec sets none.
    pub(crate) fn of(settings: &EngineSettings, replicas: usize) -> Option<Admission> {
        let own = settings.vllm()?;
        let limits = [own.max_num_queued_reqs, own.max_num_queued_tokens];
        let [max_num_queued_reqs, max_num_queued_tokens] = limits.map(|limit| limit.unwrap_or(u64::MAX));
        let counts = vec![[0; 2]; replicas];
        let any = limits.iter().any(Option::is_some);
        any.then_some(Admission { max_num_queued_reqs, max_num_queued_tokens, counts })
    }

    /// Records the counts when a step of replica `index` begins.
    pub(super) fn begin(&mut self, index: usize, replica: &dyn Replica) {
        self.counts[index] = count(replica);
    }

    /// True if replica `index` accepts a request, which is then counted.
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
