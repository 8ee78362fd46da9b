//! Size and speed of a tier of the KV cache below the device.
//!
//! Does not contain: which tokens are in the tier.

/// The host tier of one replica.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostTier {
    /// Tokens of the host pool, in whole pages.
    pub tokens: u64,
    /// Seconds that a token takes over the link, on the rank with the most bytes.
    pub seconds_per_token: f64,
    /// Layers whose KV is copied.
    pub layers: u64,
}
