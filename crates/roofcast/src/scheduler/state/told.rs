//! What a timeline is told, where one is kept.
//!
//! Knows: most runs keep none, so that what builds a segment stands apart from the step's code. Knows nothing about what a
//! timeline does with it.

use super::State;
use crate::arrival::SequenceId;
use crate::clock::Ticks;
use crate::scheduler::state::decodes::Decodes;
use crate::timeline::{Mark, Segment};

impl<D: Decodes> State<D> {
    /// Tells the timeline what became of a request.
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

    /// A step that starts now, with what can be told before it is priced.
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

    /// Tells the timeline of `steps` steps of decodes up to `end`, that began with `used` blocks.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_of_decodes(&mut self, end: Ticks, steps: u64, used: u64, bound: &'static str) {
        let output_tokens = self.decodes.len() * steps;
        let blocks = [used, self.used()];
        self.tell(&Segment { end, steps, output_tokens, blocks, bound, ..self.segment() });
    }

    /// Tells it of a step of chunks beside `decodes` decodes up to `end`, of so many tokens of prompts and of outputs.
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
