//! Fields that requests have in every trace: a name, an iteration of arrival, and a prompt composed of parts of
//! segments.
//!
//! Knows: bounds of these fields, and the numbers that replace segment names. Knows nothing about an engine's own
//! fields.

use roofcast_ask::workload::request::Run;
use roofcast_facts::error::{Error, Result};
use roofcast_sim::kv_cache::prefix::Tokens;
use std::collections::BTreeMap;

/// Largest number of tokens, position or iteration that is accepted.
pub(super) const MOST: u64 = 1 << 24;

/// A part of a prompt: name of the segment, first token within the segment, length in tokens.
pub(super) type Part = (String, u64, u64);

/// Refuses a request `id` whose parts do not add up to `prompt_len`, or whose fields are out of bounds.
pub(super) fn check(
    place: &str,
    id: &str,
    arrival_step: u64,
    (prompt_len, prompt): (u64, &[Part]),
) -> Result<()> {
    let refused =
        |found: String, accepted: String| Err(Error::field(place, format!("requests.{id}"), found, accepted));
    let sum: u64 = prompt.iter().map(|(_, _, n)| *n).fold(0, u64::saturating_add);
    if sum != prompt_len || prompt_len == 0 || prompt_len > MOST {
        let lengths = format!("prompt_len {prompt_len} of parts that add to {sum}");
        return refused(lengths, format!("lengths from 1 to {MOST} that agree"));
    }
    if prompt.iter().any(|(_, start, _)| *start > MOST) || arrival_step > MOST {
        return refused("positions beyond 2^24".into(), "smaller ones".into());
    }
    Ok(())
}

/// Refuses arrival iterations that decrease.
pub(super) fn in_order(place: &str, mut steps: impl Iterator<Item = u64>) -> Result<()> {
    let mut before = 0;
    if steps.all(|step| std::mem::replace(&mut before, step) <= step) {
        return Ok(());
    }
    let accepted = "requests in order of arrival";
    Err(Error::field(place, "requests.arrival_step", "a step that goes back", accepted))
}

/// Numbers that stand for segment names, by LoRA adapter and name.
#[derive(Debug, Default)]
pub(super) struct Segments<'a>(BTreeMap<(u32, &'a str), u32>);

impl<'a> Segments<'a> {
    /// The number of a segment whose tokens were computed with a LoRA adapter (0 without an adapter); a new pair gets
    /// the next number.
    pub(super) fn number(&mut self, adapter: u32, name: &'a str) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry((adapter, name)).or_insert(next)
    }

    /// The tokens of a prompt, computed with a LoRA adapter (0 without an adapter).
    pub(super) fn tokens(&mut self, adapter: u32, prompt: &'a [Part]) -> Tokens {
        let mut tokens = Tokens::default();
        for (segment, start, length) in prompt {
            tokens.push(Run { segment: self.number(adapter, segment), start: *start, length: *length });
        }
        tokens
    }
}
