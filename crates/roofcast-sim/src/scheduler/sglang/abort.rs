//! Abort of requests whose clients have disconnected.
//!
//! Knows: in SGLang a waiting request is dropped at once, and a running request ends with its next token. Knows nothing
//! about connections. Source: SGLang 0.5.23, `abort_request` of `managers/scheduler.py` and `to_finish` of
//! `managers/schedule_batch.py`.

use super::{RequestId, RequestPhase, Scheduler};

impl Scheduler {
    /// Aborts a request. Returns true if the request was removed from the queue at once; otherwise its next token is
    /// its last.
    pub(crate) fn abort(&mut self, id: RequestId) -> bool {
        let generated = self.generated(id);
        let r = &mut self.requests[id];
        match r.phase {
            RequestPhase::Waiting => {
                r.phase = RequestPhase::Finished;
                self.waiting.retain(|waiting| *waiting != id);
                return true;
            }
            // A request that is about to sample its first or its last token ends with that token anyway.
            RequestPhase::Running if !r.samples && r.output > generated + 1 => {
                r.output = generated + 1;
                self.running.will_end(id, r.generated, r.output, r.bound);
            }
            RequestPhase::Extending | RequestPhase::Running => r.output = r.output.min(generated + 1),
            RequestPhase::Leaving | RequestPhase::Finished => {}
        }
        false
    }
}
