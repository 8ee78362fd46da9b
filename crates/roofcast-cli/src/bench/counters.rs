//! What an engine's counters say beside a run: drafts that were accepted, and KV cache that came from elsewhere.
//!
//! Knows: the names of vLLM 0.33 (`v1/spec_decode/metrics.py`, `distributed/kv_transfer/kv_connector/v1/nixl/stats.py`,
//! `offloading/metrics.py`), SGLang 0.5.23 (`observability/metrics_collector.py`) and llama.cpp (`tools/server`). Knows
//! nothing about the requests of the run: the counters are of all that the server did meanwhile.

use crate::show::number::{grouped, percent, significant};
use serde::Serialize;
use std::collections::BTreeMap;

/// Growth of counters over a run, by name.
type Counters = BTreeMap<String, f64>;

/// Drafts of speculative decoding over a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Drafts {
    /// Drafted tokens.
    pub(crate) drafted_tokens: Option<f64>,
    /// Fraction of the drafted tokens that were accepted.
    pub(crate) acceptance_rate: Option<f64>,
    /// Tokens of a step of a sequence with drafts, the accepted ones and the model's own.
    pub(crate) acceptance_length: Option<f64>,
    /// Fraction of the steps in which the draft at each position was accepted; empty if the server does not say.
    pub(crate) by_position: Vec<f64>,
}

/// KV cache that came from another instance or from the host over a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Transfers {
    /// Prompt tokens whose KV cache was not computed here but transferred or loaded.
    pub(crate) prompt_tokens: Option<f64>,
    /// Fraction of all prompt tokens that `prompt_tokens` are.
    pub(crate) prompt_share: Option<f64>,
    /// Number of transfers between instances.
    pub(crate) transfers: Option<f64>,
    /// Bytes that were transferred between instances.
    pub(crate) bytes: Option<f64>,
    /// Mean milliseconds of a transfer between instances.
    pub(crate) mean_ms: Option<f64>,
    /// Transfers between instances that failed.
    pub(crate) failed: Option<f64>,
    /// Bytes that were loaded from the host.
    pub(crate) loaded_bytes: Option<f64>,
    /// Bytes that were stored to the host.
    pub(crate) stored_bytes: Option<f64>,
}

/// Counters of steps with drafts, drafted tokens and accepted tokens: vLLM's, llama.cpp's.
const DRAFTS: [[&str; 3]; 2] = [
    [
        "vllm:spec_decode_num_drafts_total",
        "vllm:spec_decode_num_draft_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_total",
    ],
    [
        "llamacpp:spec_decode_num_drafts_total",
        "llamacpp:spec_decode_num_draft_tokens_total",
        "llamacpp:spec_decode_num_accepted_tokens_total",
    ],
];

/// Counters whose labels are kept, each with the label.
pub(super) const LABELLED: [(&str, &str); 2] = [
    ("vllm:spec_decode_num_accepted_tokens_per_pos_total", "position"),
    ("vllm:prompt_tokens_by_source_total", "source"),
];

/// True if the sum and number of values of a histogram are kept as counters.
pub(super) fn keeps_sums(histogram: &str) -> bool {
    histogram.starts_with("vllm:nixl_")
}

/// Name under which a counter is kept for one value of its label.
pub(super) fn labelled(name: &str, label: &str, value: &str) -> String {
    format!("{name}{{{label}=\"{value}\"}}")
}

impl Drafts {
    /// Drafts by the counters; `None` if none were drafted.
    pub(super) fn of(counters: &Counters) -> Option<Drafts> {
        let grown = |name: &str| counters.get(name).copied().filter(|n| *n > 0.0);
        let counted = DRAFTS.iter().find_map(|[steps, drafted, accepted]| {
            Some([grown(steps).unwrap_or(0.0), grown(drafted)?, grown(accepted).unwrap_or(0.0)])
        });
        let Some([steps, drafted, accepted]) = counted else {
            let steps = grown("sglang:spec_verify_calls_total")?;
            let length = grown("sglang:generation_tokens_total").map(|tokens| tokens / steps);
            return Some(Drafts { acceptance_length: length, ..Drafts::default() });
        };
        let [(by_position, label), _] = LABELLED;
        let places =
            (0..).map_while(|place: u32| counters.get(&labelled(by_position, label, &place.to_string())));
        Some(Drafts {
            drafted_tokens: Some(drafted),
            acceptance_rate: Some(accepted / drafted),
            acceptance_length: (steps > 0.0).then(|| 1.0 + accepted / steps),
            by_position: places.filter(|_| steps > 0.0).map(|count| count / steps).collect(),
        })
    }

    /// The drafts in words.
    pub(crate) fn words(&self) -> String {
        let rate = self.acceptance_rate.zip(self.drafted_tokens).map(|(rate, drafted)| {
            format!("{} of {} drafted tokens accepted", percent(rate), grouped(drafted as u64))
        });
        let length = self.acceptance_length.map(|tokens| format!("{} tokens a step", significant(tokens)));
        rate.into_iter().chain(length).collect::<Vec<_>>().join(", ")
    }
}

impl Transfers {
    /// Transfers by the counters; `None` if there were none.
    pub(super) fn of(counters: &Counters) -> Option<Transfers> {
        let grown = |name: &str| counters.get(name).copied().filter(|n| *n > 0.0);
        let [_, (by_source, label)] = LABELLED;
        let prompt_tokens = grown(&labelled(by_source, label, "external_kv_transfer"));
        let prompts = grown("vllm:prompt_tokens_total");
        let transfers = grown("vllm:nixl_xfer_time_seconds_count");
        let counted = Transfers {
            prompt_tokens,
            prompt_share: prompt_tokens.zip(prompts).map(|(came, all)| came / all),
            transfers,
            bytes: grown("vllm:nixl_bytes_transferred_sum"),
            mean_ms: grown("vllm:nixl_xfer_time_seconds_sum").zip(transfers).map(|(s, n)| 1e3 * s / n),
            failed: grown("vllm:nixl_num_failed_transfers_total")
                .or(grown("sglang:num_transfer_failed_reqs_total")),
            loaded_bytes: grown("vllm:kv_offload_load_bytes_total"),
            stored_bytes: grown("vllm:kv_offload_store_bytes_total"),
        };
        (counted != Transfers::default()).then_some(counted)
    }

    /// The transfers in words.
    pub(crate) fn words(&self) -> String {
        let share = self.prompt_share.map(|share| {
            let tokens = grouped(self.prompt_tokens.unwrap_or(0.0) as u64);
            format!("{tokens} prompt tokens came from elsewhere ({})", percent(share))
        });
        let time = self.mean_ms.map_or(String::new(), |ms| format!(", {} ms each", significant(ms)));
        let transfers = self.transfers.map(|count| format!("{} transfers{time}", grouped(count as u64)));
        let failed = self.failed.map(|count| format!("{} failed", grouped(count as u64)));
        let bytes = |bytes: Option<f64>, what: &str| {
            bytes.map(|bytes| format!("{} GB {what}", significant(bytes / 1e9)))
        };
        let parts = [
            share,
            transfers,
            failed,
            bytes(self.bytes, "transferred"),
            bytes(self.loaded_bytes, "loaded from the host"),
            bytes(self.stored_bytes, "stored there"),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(grown: &[(&str, f64)]) -> Counters {
        grown.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    /// 100 steps with three drafts each accept 150 of 300 tokens: 1 + 150/100 tokens a step; the first draft in 80 steps.
    #[test]
    fn accepted_drafts_are_a_rate_and_a_length() {
        let vllm = counters(&[
            ("vllm:spec_decode_num_drafts_total", 100.0),
            ("vllm:spec_decode_num_draft_tokens_total", 300.0),
            ("vllm:spec_decode_num_accepted_tokens_total", 150.0),
            ("vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"}", 80.0),
            ("vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"1\"}", 50.0),
            ("vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"2\"}", 20.0),
        ]);
        let drafts = Drafts::of(&vllm).unwrap();
        assert_eq!((drafts.acceptance_rate, drafts.acceptance_length), (Some(0.5), Some(2.5)));
        assert_eq!(drafts.by_position, [0.8, 0.5, 0.2]);
        assert_eq!(drafts.words(), "50 % of 300 drafted tokens accepted, 2.50 tokens a step");
        let sglang =
            counters(&[("sglang:spec_verify_calls_total", 40.0), ("sglang:generation_tokens_total", 100.0)]);
        assert_eq!(Drafts::of(&sglang).unwrap().acceptance_length, Some(2.5));
        assert_eq!(Drafts::of(&counters(&[("vllm:spec_decode_num_draft_tokens_total", 0.0)])), None);
    }

    /// 4 transfers of 2 s in sum are 500 ms each; 600 of 800 prompt tokens came from elsewhere.
    #[test]
    fn transfers_are_a_share_of_the_prompts() {
        let vllm = counters(&[
            ("vllm:prompt_tokens_total", 800.0),
            ("vllm:prompt_tokens_by_source_total{source=\"external_kv_transfer\"}", 600.0),
            ("vllm:nixl_xfer_time_seconds_count", 4.0),
            ("vllm:nixl_xfer_time_seconds_sum", 2.0),
            ("vllm:nixl_bytes_transferred_sum", 3e9),
        ]);
        let transfers = Transfers::of(&vllm).unwrap();
        assert_eq!((transfers.prompt_share, transfers.mean_ms), (Some(0.75), Some(500.0)));
        let words =
            "600 prompt tokens came from elsewhere (75 %), 4 transfers, 500.0 ms each, 3.00 GB transferred";
        assert_eq!(transfers.words(), words);
        assert_eq!(Transfers::of(&counters(&[("vllm:prompt_tokens_total", 8.0)])), None);
    }
}
