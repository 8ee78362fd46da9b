//! Size and speed of a tier of the KV cache below the device.
//!
//! Knows: figures of the tier. Knows nothing about the tokens in the tier.

/// Size and speed of the host tier of one replica.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostTier {
    /// Capacity of the host pool in tokens, in whole pages.
    pub(crate) tokens: u64,
    /// Seconds to copy one token over the link, on the rank with the most bytes, while nothing is copied in the other
    /// direction.
    pub(crate) seconds_per_token: f64,
    /// Rate of each direction while both directions copy, as a fraction of its rate alone: below 1 if the host's
    /// memory is slower than the sum of both.
    pub(crate) share: f64,
    /// Number of layers whose KV is copied.
    pub(crate) layers: u64,
    /// Bytes of KV per token, over all ranks.
    pub(crate) token_bytes: f64,
}
