//! A mixed step's decodes and pieces of prompts, as attention sees them.
//!
//! Knows: how pairs and tokens seen add up, and when one kernel works on both. Knows nothing about the other operators.

use super::Chunk;
use super::op::{Closed, Kind, Op};
use crate::efficiency::mixed_tokens;

/// A mixed step's sums.
pub(super) struct Load<'a> {
    pub(super) seen: &'a [u64],
    /// What of `seen` the busiest rank has.
    pub(super) share: f64,
    pub(super) new: u64,
    pub(super) sampled: u64,
    pub(super) probed: &'a [[f64; 2]],
    /// The longest piece of a prompt; 0 where there is none.
    pub(super) longest: u64,
}

impl Load<'_> {
    /// What attention takes: of decodes, so much whatever their context and `first` for its first token, and of `chunks`.
    pub(super) fn attend(&self, op: &Op, mut decodes: [f64; 2], first: f64, chunks: &[Chunk]) -> [f64; 2] {
        let Kind::Attend { terms, closed, index, .. } = &op.kind else { return [0.0; 2] };
        for (seen, term) in self.seen.iter().zip(terms) {
            decodes[0] += term[0] * *seen as f64 * self.share;
            decodes[1] += term[1] * *seen as f64 * self.share;
        }
        let chunked = self.chunks(chunks, closed.as_deref(), *index);
        let both = [0, 1].map(|i| decodes[i] + chunked[i]);
        if self.longest == 0 || op.mixed_rows == 1.0 {
            return op.time(both[0], both[1] + op.bytes);
        }
        let beside = op.time_beside(decodes[0], decodes[1], first * mixed_tokens(self.longest));
        let prompts = op.time(chunked[0], chunked[1] + op.bytes);
        [0, 1].map(|i| beside[i] + prompts[i])
    }

    /// The chunks' FLOPs and bytes of the operator of `index`.
    fn chunks(&self, chunks: &[Chunk], closed: Option<&Closed>, index: usize) -> [f64; 2] {
        let Some(closed) = closed else {
            return self.probed.get(index).copied().unwrap_or_default();
        };
        let mut sum = [0.0; 2];
        for chunk in chunks {
            let (new, context) = (u64::from(chunk.new), u64::from(chunk.context));
            sum[0] += closed.flops_per_pair * closed.attention.pairs(new, context) as f64;
            sum[1] += closed.bytes_per_token * closed.attention.seen(new, context) as f64;
        }
        sum
    }
}
