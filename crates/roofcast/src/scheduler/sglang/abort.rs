//! Requests whose clients are gone.
//!
//! Knows: in SGLang a request that waits is dropped at once, and one that is computed ends with its next token. Source: SGLang
//! 0.5.23, `abort_request` of `managers/scheduler.py` and `to_finish` of `managers/schedule_batch.py`.

use super::{Phase, RequestId, Scheduler};

impl Scheduler {
    /// Takes a request out: from the queue at once, which is returned as true; elsewhere its next token is its last.
    pub fn abort(&mut self, id: RequestId) -> bool {
        let generated = self.generated(id);
        let r = &mut self.requests[id];
        match r.phase {
            Phase::Waiting => {
                r.phase = Phase::Finished;
                self.waiting.retain(|waiting| *waiting != id);
                return true;
            }
            // One that waits for a token of its prompt or has one to come anyway ends there by itself.
            Phase::Running if !r.samples && r.output > generated + 1 => {
                r.output = generated + 1;
                self.running.will_end(id, r.generated, r.output, r.bound);
            }
            Phase::Extending | Phase::Running => r.output = r.output.min(generated + 1),
            Phase::Leaving | Phase::Finished => {}
        }
        false
    }
}
