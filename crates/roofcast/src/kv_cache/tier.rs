//! Size and speed of a tier of the KV cache below the device.
//!
//! Knows nothing about the tokens in the tier.

/// The host tier of one replica.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostTier {
    /// Capacity of the host pool in tokens, in whole pages.
    pub tokens: u64,
    /// Time of a token on the link in seconds, on the rank with the most bytes, while nothing goes the other way.
    pub seconds_per_token: f64,
    /// Rate of each direction while both copy, over its rate alone: 1, or less where the host's memory is slower than
    /// both together.
    pub share: f64,
    /// Number of layers whose KV is copied.
    pub layers: u64,
    /// Bytes of a token over all ranks.
    pub token_bytes: f64,
}
