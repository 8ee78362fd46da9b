//! Recording of steps and requests in a timeline, if one is kept.
//!
//! Knows: most runs keep none, so the code that builds segments is separate from the step's code. Knows nothing about
//! how a timeline uses them.

use super::State;
use crate::arrival::SequenceId;
use crate::clock::Ticks;
use crate::scheduler::state::decodes::Decodes;
use crate::timeline::{Mark, Segment};

impl<D: Decodes> State<D> {
    /// Records a mark of a request in the timeline.
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

    /// A segment for a step that starts now, as far as known before it is priced.
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

    /// Records `steps` steps of decodes up to `end` in the timeline, which began with `used` blocks.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_of_decodes(&mut self, end: Ticks, steps: u64, used: u64, bound: &'static str) {
        let output_tokens = self.decodes.len() * steps;
        let blocks = [used, self.used()];
        self.tell(&Segment { end, steps, output_tokens, blocks, bound, ..self.segment() });
    }

    /// Records a step of chunks together with `decodes` decodes up to `end`, with its tokens of prompts and of
    /// outputs.
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
