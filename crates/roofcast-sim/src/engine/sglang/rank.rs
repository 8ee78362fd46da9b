//! SGLang's engine as one of several data-parallel ranks that step together.
//!
//! Knows: a batch is priced when it is decided, which in the overlap loop is one batch before its results. Knows nothing
//! about other ranks.

use super::Sglang;
use super::account::chunks;
use crate::engine::price::JointSteps;
use crate::engine::ranks::{Rank, StepLoad};
use crate::scheduler::state::decodes::Decodes;
use roofcast_facts::batch::Seen;
use roofcast_facts::clock::Ticks;

impl<D: Decodes> Rank for Sglang<D> {
    fn prepare(&mut self) -> Option<StepLoad> {
        let mut decided = self.schedule();
        // After a preemption, another decision may find work.
        while decided.as_ref().is_err_and(|changed| *changed) && self.pending.is_none() {
            decided = self.schedule();
        }
        let step = decided.as_ref().ok().map(|(step, _)| step);
        let load = step.map(|step| {
            let seen = if step.decodes > 0 { self.rows.seen() } else { Seen::default() };
            StepLoad::new(step.decodes, seen, chunks(step))
        });
        self.prepared = (load.is_some() || self.pending.is_some()).then_some(decided);
        load.or_else(|| self.pending.is_some().then(StepLoad::default))
    }

    fn impose(&mut self, price: Option<JointSteps>) {
        self.price.impose(price);
    }

    fn wait_for_others(&mut self, time: Ticks) {
        self.clock = time;
    }
}
