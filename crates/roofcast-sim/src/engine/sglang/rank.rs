//! SGLang's engine as one of several data-parallel ranks that step together.
//!
//! Knows: a batch is priced when it is decided, which in the overlap loop is one batch before its results. Knows nothing
//! about other ranks.

use super::account::chunks;
use super::{Batch, Sglang};
use crate::engine::price::JointSteps;
use crate::engine::ranks::{Rank, Repeats, StepLoad};
use crate::scheduler::sglang::{ForwardMode, Step};
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

    fn repeats(&mut self) -> Repeats {
        let prepared = self.prepared.take();
        let repeats = match &prepared {
            Some(Ok((step, 0))) => self.repeats_of(step),
            _ => Repeats::default(),
        };
        self.prepared = prepared;
        repeats
    }

    fn impose(&mut self, price: Option<JointSteps>) {
        self.price.impose(price);
    }

    fn wait_for_others(&mut self, time: Ticks) {
        self.clock = time;
    }
}

impl<D: Decodes> Sglang<D> {
    /// Batches that equal the decided one, `step`; in the overlap loop the batch in flight must equal it, too.
    fn repeats_of(&mut self, step: &Step) -> Repeats {
        let alike = |b: &Batch| b.step.kind == ForwardMode::Decode && b.step.decodes == step.decodes;
        let changed = !step.joined.is_empty() || !step.left.is_empty() || !self.fresh.is_empty();
        let follows = !self.overlaps() || !changed && self.pending.as_ref().is_some_and(alike);
        let equal_decisions = if D::LEAPS && follows { self.equal_decisions(step) } else { 0 };
        if equal_decisions == 0 {
            return Repeats::default();
        }
        Repeats {
            steps: 1 + self.scheduler.affordable(equal_decisions),
            growth: self.rows.growth().within.to_vec(),
            in_flight: self.pending.as_ref().map(|before| Ticks::from(before.time)),
            ..Repeats::default()
        }
    }
}
