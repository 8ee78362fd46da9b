//! Identity of a KV block's content: the tokens of the block and of every block before it.
//!
//! Tokens are known by segment and position only, so a block's content is a list of runs, hashed together with the
//! identity of the previous block into 126 bits, as vLLM hashes token ids. Blocks that no other request can ever hold
//! are identified by their owner and need no hashing.

use roofcast_ask::workload::request::{OWN_SEGMENTS, Prompt, Run};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Identity of a block's content and of all content before the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Content(u128);

/// Bit that marks contents that only their owner can hold.
const OWN: u128 = 1 << 127;

impl Content {
    /// Identity of the empty content before the first block.
    pub(crate) const START: Content = Content(0);

    /// Returns the identity of block `index` of a request, a block that no other request shares.
    pub(crate) fn own(owner: u64, index: usize) -> Content {
        Content(OWN | u128::from(owner) << 32 | index as u128)
    }

    /// Returns the identity of this content as a child of node `node` of a radix tree.
    pub(crate) fn below(self, node: u32) -> Content {
        let low = self.0 as u64;
        let high = (self.0 >> 64) as u64;
        let node = mix(u64::from(node) + 1);
        Content((u128::from(high ^ node) << 64 | u128::from(low ^ node.rotate_left(32))) & !OWN)
    }

    /// Returns the identity of this content followed by `run`. Two blocks differ if the content up to their ends
    /// differs.
    pub(crate) fn then(self, run: Run) -> Content {
        let low = self.0 as u64;
        let high = (self.0 >> 64) as u64;
        let mut lanes = [low, high];
        for value in [u64::from(run.segment), run.start, run.length] {
            lanes[0] = mix(lanes[0] ^ value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            lanes[1] = mix(lanes[1].rotate_left(23) ^ value.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ lanes[0]);
        }
        Content((u128::from(lanes[1]) << 64 | u128::from(lanes[0])) & !OWN)
    }
}

/// Map from contents to values. The order of the map has no effect, because the map is never iterated.
pub(crate) type ContentMap<T> = HashMap<Content, T, BuildHasherDefault<Hashed>>;

/// Hasher of contents, one multiplication each. A content that its owner alone can hold is two small numbers, and the
/// map's slots and tags come from different bits of the hash, so that each must depend on both numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.0 = self.0.rotate_left(8) ^ u64::from(*b));
    }
    fn write_u128(&mut self, content: u128) {
        let product = (content as u64 ^ (content >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}

/// A bijection of 64 bits in which every bit depends on every other (the finalizer of MurmurHash3).
fn mix(value: u64) -> u64 {
    let mut v = value;
    v = (v ^ v >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    v = (v ^ v >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    v ^ v >> 33
}

/// Tokens of a sequence, prompt and output, as runs.
#[derive(Debug, Clone, Default)]
pub struct Tokens {
    runs: Vec<Run>,
    length: u64,
    /// Run, and position in the run, at which the next block begins whose content has not been identified.
    named: (usize, u64),
}

impl Tokens {
    /// Takes the tokens of a prompt, up to its unique part.
    pub(crate) fn of_prompt(prompt: &Prompt) -> Tokens {
        let mut tokens = Tokens::default();
        match prompt {
            Prompt::Own => {}
            Prompt::Shared { segment, length } => {
                tokens.push(Run { segment: *segment, start: 0, length: u64::from(*length) })
            }
            Prompt::Runs(runs) => runs.iter().for_each(|run| tokens.push(*run)),
        }
        tokens
    }

    /// Contents of the leading whole blocks of `block` tokens; each content also covers the `ahead` tokens after its
    /// block.
    pub(crate) fn contents(mut self, (block, ahead): (u64, u64)) -> Vec<Content> {
        let mut past = Content::START;
        let mut contents = Vec::new();
        for _ in 0..self.length.saturating_sub(ahead) / block {
            past = self.name_next(past, (block, ahead));
            contents.push(past);
        }
        contents
    }

    /// Appends a run; a run that continues the last one extends it, so that equal tokens give equal runs.
    pub fn push(&mut self, run: Run) {
        self.length += run.length;
        match self.runs.last_mut() {
            Some(last) if last.segment == run.segment && last.start + last.length == run.start => {
                last.length += run.length
            }
            _ => self.runs.push(run),
        }
    }

    /// Returns the runs in order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Number of tokens.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// True if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Identity of the next `block` tokens after `past`, together with the `ahead` tokens that follow them. Each call
    /// identifies the next block in order.
    pub(crate) fn name_next(&mut self, past: Content, (block, ahead): (u64, u64)) -> Content {
        let (content, end) = self.name(past, self.named, block);
        self.named = end;
        self.name(content, end, ahead).0
    }

    /// Identity of `tokens` tokens from position `from` on, after the content `past`, and the position behind them.
    fn name(&self, past: Content, from: (usize, u64), tokens: u64) -> (Content, (usize, u64)) {
        let (mut index, mut at) = from;
        let mut left = tokens;
        let mut content = past;
        if left == 0 {
            return (past, from);
        }
        while let Some(run) = self.runs.get(index) {
            let length = (run.length - at).min(left);
            if length > 0 {
                content = content.then(Run { segment: run.segment, start: run.start + at, length });
            }
            left -= length;
            at += length;
            if left == 0 {
                break;
            }
            (index, at) = (index + 1, 0);
        }
        (content, (index, at))
    }
}

/// Tokens of a request that other requests may have in common.
#[derive(Debug, Clone, Default)]
pub struct SharedPrefix {
    /// Tokens of the prompt, up to its unique part.
    pub tokens: Tokens,
    /// Position from which tokens are unique to the request; `u64::MAX` if the output may be repeated, too.
    pub own_from: u64,
    /// Segment of the output's tokens.
    pub output_segment: u32,
    /// Output token ids, which a later prompt may repeat; `None` if only the length of the output is known.
    pub output_tokens: Option<Arc<[u32]>>,
}

impl SharedPrefix {
    /// Takes a prompt of token ids and the output that will follow. Each token is a run, so that equal tokens give
    /// equal runs at any position.
    pub(crate) fn of_tokens(prompt: &[u32], output: Arc<[u32]>) -> SharedPrefix {
        let mut tokens = Tokens::default();
        prompt.iter().for_each(|token| tokens.push(real(*token)));
        SharedPrefix { tokens, own_from: u64::MAX, output_segment: 0, output_tokens: Some(output) }
    }
}

/// Run of one token id.
pub(crate) fn real(token: u32) -> Run {
    Run { segment: token, start: 0, length: 1 }
}

/// Appends `length` tokens of an output from output token `start` on: from the ids `real_ones`, or from the output's
/// segment.
pub(crate) fn push_output(
    tokens: &mut Tokens,
    (segment, real_ones): (u32, Option<&[u32]>),
    start: u64,
    length: u64,
) {
    match real_ones {
        None => tokens.push(Run { segment, start, length }),
        Some(ids) => {
            let output_ids = ids.iter().skip(start as usize).take(length as usize);
            output_ids.for_each(|token| tokens.push(real(*token)));
        }
    }
}

/// Source of segment numbers for outputs, downwards from the largest number, which traffic never uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outputs(u32);

impl Default for Outputs {
    fn default() -> Outputs {
        Outputs(u32::MAX)
    }
}

impl Outputs {
    /// Prefix of a prompt, with a new segment for its output. Numbers are reused after 2^31 requests, when the tokens
    /// of their first users have long been evicted.
    pub(crate) fn prefix(&mut self, prompt: Prompt) -> SharedPrefix {
        let output_segment = self.0;
        self.0 = if self.0 <= OWN_SEGMENTS + 1 { u32::MAX } else { self.0 - 1 };
        let own_from = match &prompt {
            Prompt::Own => 0,
            Prompt::Shared { length, .. } => u64::from(*length),
            Prompt::Runs(_) => u64::MAX,
        };
        let tokens = Tokens::of_prompt(&prompt);
        SharedPrefix { tokens, own_from, output_segment, output_tokens: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(runs: &[(u32, u64, u64)]) -> Tokens {
        let mut tokens = Tokens::default();
        runs.iter().for_each(|&(segment, start, length)| tokens.push(Run { segment, start, length }));
        tokens
    }

    #[test]
    fn real_tokens_are_found_in_prompts_and_outputs_alike() {
        // Output tokens 7 8 9 after a prompt of 7 have the contents of a prompt of 7 7 8 9.
        let mut answered = SharedPrefix::of_tokens(&[7], Arc::from([7, 8, 9, 10])).tokens;
        push_output(&mut answered, (0, Some(&[7, 8, 9, 10])), 0, 2);
        push_output(&mut answered, (0, Some(&[7, 8, 9, 10])), 2, 1);
        let mut repeated = SharedPrefix::of_tokens(&[7, 7, 8, 9], Arc::from([])).tokens;
        let mut other = SharedPrefix::of_tokens(&[7, 7, 9, 8], Arc::from([])).tokens;
        let [answered, repeated, other] =
            [&mut answered, &mut repeated, &mut other].map(|t| t.name_next(Content::START, (4, 0)));
        assert!(answered == repeated && answered != other);
    }

    #[test]
    fn equal_tokens_with_equal_pasts_are_the_same_content() {
        let mut whole = tokens(&[(1, 0, 40), (2, 0, 24)]);
        let mut pieces = tokens(&[(1, 0, 7), (1, 7, 33), (2, 0, 24)]);
        let mut other = tokens(&[(1, 0, 40), (2, 1, 24)]);
        let mut past = [Content::START; 3];
        let mut same = Vec::new();
        for _ in 0..4 {
            for (content, tokens) in past.iter_mut().zip([&mut whole, &mut pieces, &mut other]) {
                *content = tokens.name_next(*content, (16, 0));
            }
            same.push((past[0] == past[1], past[0] == past[2]));
        }
        // The third block holds 8 tokens of segment 1 and 8 of segment 2; from there on the contents differ.
        assert_eq!(same, [(true, true), (true, true), (true, false), (true, false)]);
        assert!(Content::own(3, 1).0 & OWN != 0 && past[0].0 & OWN == 0);
    }
}
