//! What a KV block holds, as an identity: the tokens of its own and of every block before it.
//!
//! Tokens are known by segment and position only, so a block's content is a list of runs. Contents are numbered as
//! they are first seen: equal ones get equal numbers, with no hash that could collide.

use std::collections::BTreeMap;

/// A run of consecutive tokens of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// Where the tokens come from: a shared text, or a request's own output.
    pub segment: u32,
    /// Position of the first.
    pub start: u64,
    /// How many.
    pub length: u64,
}

/// The identity of a block and its past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Content(u32);

/// All contents seen.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    known: BTreeMap<(Option<Content>, Vec<Run>), Content>,
}

impl Contents {
    /// The identity of a block of `runs` behind `past`.
    pub fn of(&mut self, past: Option<Content>, runs: &[Run]) -> Content {
        let next = Content(self.known.len() as u32);
        *self.known.entry((past, runs.to_vec())).or_insert(next)
    }
}

/// The tokens of a sequence: its prompt and what it generated.
#[derive(Debug, Clone, Default)]
pub struct Tokens {
    runs: Vec<Run>,
    length: u64,
}

impl Tokens {
    /// Adds a run; one that continues the last extends it, so that equal tokens are equal runs.
    pub fn push(&mut self, run: Run) {
        self.length += run.length;
        match self.runs.last_mut() {
            Some(last) if last.segment == run.segment && last.start + last.length == run.start => {
                last.length += run.length
            }
            _ => self.runs.push(run),
        }
    }

    /// How many tokens.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The runs of tokens `from..to`.
    pub fn slice(&self, from: u64, to: u64) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut at = 0;
        for run in &self.runs {
            let (low, high) = (from.max(at), to.min(at + run.length));
            if low < high {
                runs.push(Run { start: run.start + low - at, length: high - low, ..*run });
            }
            at += run.length;
        }
        runs
    }
}
