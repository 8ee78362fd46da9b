//! vLLM's engine as one of several data-parallel ranks that step together.
//!
//! Knows: which of the pending steps runs next; a step without work takes no time, so that the next one is decided at
//! once. Knows nothing about other ranks.

use super::{Blocks, Scheduled};
use crate::engine::Replica;
use crate::engine::price::JointSteps;
use crate::engine::ranks::{Rank, StepLoad};
use crate::scheduler::vllm::Step;
use roofcast_facts::clock::Ticks;

impl Rank for Blocks {
    fn prepare(&mut self) -> Option<StepLoad> {
        let works = |step: &Step| !step.work.is_empty();
        while !Replica::is_empty(self) {
            let Scheduled { nothing, asked, .. } = self.schedule();
            if !nothing && self.pending.len() < self.flight() {
                continue;
            }
            if self.pending.front().is_some_and(works) {
                self.prepared = true;
                return self.pending.front().map(|step| self.load(step));
            }
            // A step without work takes no time and ends no request.
            self.deliver(&mut Vec::new());
            if nothing && !asked && !self.pending.iter().any(works) {
                break;
            }
        }
        None
    }

    fn impose(&mut self, price: Option<JointSteps>) {
        self.price.impose(price);
    }

    fn wait_for_others(&mut self, time: Ticks) {
        self.clock = time;
    }
}
