//! JSON lines with block hashes: `timestamp`, `input_length`, `output_length`, `hash_ids`.
//!
//! Mooncake's published traces (github.com/kvcache-ai/Mooncake) have times in milliseconds and blocks of 512 tokens;
//! vLLM's `timed_trace` reads these keys as seconds and blocks of 16 tokens. Equal ids mean equal tokens: block `id`
//! holds the tokens `id·size ..` of one segment. The last block of a prompt may be partial.

use super::{Recording, json};
use crate::workload::request::Run;
use crate::workload::request::{Prompt, Request};
use roofcast_facts::error::Result;
use serde::Deserialize;

/// Units in which a trace counts.
#[derive(Clone, Copy)]
pub(super) struct Units {
    /// Time units per second: 1000 for milliseconds.
    per_second: f64,
    pub(super) block: u64,
}

pub(super) const MOONCAKE: Units = Units { per_second: 1e3, block: 512 };
pub(super) const VLLM: Units = Units { per_second: 1.0, block: 16 };

#[derive(Deserialize)]
pub(super) struct Line {
    timestamp: f64,
    input_length: u64,
    output_length: u64,
    #[serde(default)]
    hash_ids: Vec<u32>,
}

impl Line {
    /// True if the number of ids equals the number of blocks of this size in the prompt.
    fn is_cut_by(&self, block: u64) -> bool {
        self.input_length.div_ceil(block) == self.hash_ids.len() as u64
    }
}

/// True if the first line of a trace fits vLLM's block size but not Mooncake's.
pub(super) fn is_vllms(line: &Line) -> bool {
    line.is_cut_by(VLLM.block) && !line.is_cut_by(MOONCAKE.block)
}

pub(super) fn read(text: &str, units: Units, recording: &mut Recording) -> Result<()> {
    json::lines(text, recording, |line, found: Line, recording| {
        let at = recording.seconds(line, 1, "timestamp", found.timestamp / units.per_second)?;
        let input_len = recording.tokens(line, 1, "input_length", found.input_length)?;
        let output_len = recording.tokens(line, 1, "output_length", found.output_length)?;
        let prompt = if found.hash_ids.is_empty() {
            Prompt::Own
        } else if found.is_cut_by(units.block) {
            Prompt::Runs(runs(&found.hash_ids, 0, units.block, found.input_length).into())
        } else {
            let ids = found.hash_ids.len();
            let blocks = found.input_length.div_ceil(units.block);
            let message = format!(
                "{ids} `hash_ids` for {input_len} tokens; expected {blocks}, one for each {} tokens, or none",
                units.block
            );
            return Err(recording.error(line, 1, message));
        };
        recording.add(line, Request { prompt, ..super::plain(at, input_len, output_len) })
    })
}

/// The first `tokens` tokens of the blocks `ids`, as runs of a segment; consecutive blocks form one run.
pub(super) fn runs(ids: &[u32], segment: u32, block: u64, tokens: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut left = tokens;
    for id in ids {
        let start = u64::from(*id) * block;
        let length = left.min(block);
        left -= length;
        match runs.last_mut() {
            _ if length == 0 => break,
            Some(last) if last.start + last.length == start => last.length += length,
            _ => runs.push(Run { segment, start, length }),
        }
    }
    runs
}
