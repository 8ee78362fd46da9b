//! Recording of steps and requests in a timeline, for runs that keep one.
//!
//! Knows: most runs keep no timeline, so that the code that builds segments is separate from the code of every step.
//! Knows nothing about how a timeline uses segments.

use super::State;
use crate::scheduler::state::decodes::Decodes;
use crate::timeline::{Mark, Segment};
use roofcast_ask::arrival::SequenceId;
use roofcast_facts::clock::Ticks;

impl<D: Decodes> State<D> {
    /// Records a mark in the life of a request in the timeline.
    #[inline(always)]
    pub(super) fn mark(&mut self, id: SequenceId, mark: Mark) {
        if self.timeline.is_some() {
            self.write_down(id, mark);
        }
    }

    #[cold]
    #[inline(never)]
    fn write_down(&mut self, id: SequenceId, mark: Mark) {
        if let Some(timeline) = &mut self.timeline {
            timeline.mark(self.sequences[id as usize].arrival.number, mark, self.clock);
        }
    }

    /// The segment of a step that starts now, with the fields that are known before the step is priced.
    fn segment(&self) -> Segment {
        Segment {
            start: self.clock,
            end: self.clock,
            steps: 1,
            running: self.running(),
            decodes: self.decodes.len(),
            waiting: self.waiting(),
            chunks: self.chunks.len() as u64,
            prefill_tokens: 0,
            output_tokens: 0,
            blocks: [self.used(); 2],
            bound: "",
        }
    }

    /// Records `steps` steps of decodes up to `end` in the timeline; `used` blocks were held when they began.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_of_decodes(&mut self, end: Ticks, steps: u64, used: u64, bound: &'static str) {
        let output_tokens = self.decodes.len() * steps;
        let blocks = [used, self.used()];
        self.tell(&Segment { end, steps, output_tokens, blocks, bound, ..self.segment() });
    }

    /// Records a step of chunks and `decodes` decodes up to `end`, with the number of prompt tokens and of output
    /// tokens.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_of_chunks(
        &mut self,
        end: Ticks,
        decodes: u64,
        [prefill_tokens, output_tokens]: [u64; 2],
        bound: &'static str,
    ) {
        self.tell(&Segment { end, decodes, prefill_tokens, output_tokens, bound, ..self.segment() });
    }

    fn tell(&mut self, segment: &Segment) {
        if let Some(timeline) = &mut self.timeline {
            timeline.computed(segment);
        }
    }
}
