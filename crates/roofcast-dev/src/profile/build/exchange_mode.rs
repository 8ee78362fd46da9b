//! Modes of DeepEP's kernels in tables of exchanges.
//!
//! Knows: the columns of each mode's tables, and the name of its kernels here. Knows nothing about rows.

/// Modes of DeepEP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExchangeMode {
    LowLatency,
    Normal,
}

impl ExchangeMode {
    /// Name of the mode's kernels.
    pub(super) fn kernel(self) -> &'static str {
        match self {
            ExchangeMode::LowLatency => "deepep-low-latency",
            ExchangeMode::Normal => "deepep-normal",
        }
    }

    /// Names of the columns of numbers.
    pub(super) fn numbers(self) -> &'static [&'static str] {
        match self {
            ExchangeMode::LowLatency => &[
                "dispatch_avg_t_us",
                "combine_avg_t_us",
                "node_num",
                "hidden_size",
                "num_token",
                "num_topk",
                "num_experts",
            ],
            ExchangeMode::Normal => &[
                "dispatch_transmit_us",
                "dispatch_notify_us",
                "combine_transmit_us",
                "combine_notify_us",
                "dispatch_sms",
                "combine_sms",
                "node_num",
                "hidden_size",
                "num_token",
                "num_topk",
                "num_experts",
            ],
        }
    }
}
