//! Size and speed of the tiers of the KV cache below the device: host memory, and storage below it.
//!
//! Knows: figures of the tiers. Knows nothing about the tokens in them.

/// Size and speed of the host tier of one replica.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostTier {
    /// Capacity of the host pool in tokens, in whole pages.
    pub tokens: u64,
    /// Speed of copies between the device and the host.
    pub speed: CopySpeed,
    /// Number of layers whose KV is copied.
    pub layers: u64,
    /// Bytes of KV per token, over all ranks.
    pub token_bytes: f64,
    /// Storage below the host; `None` without it.
    pub storage: Option<StorageTier>,
}

/// Size and speed of the storage below the host tier of one replica.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StorageTier {
    /// Capacity in tokens, in whole blocks.
    pub tokens: u64,
    /// Speed of copies between the host and storage.
    pub speed: CopySpeed,
}

/// Speed of the copies between a tier and the tier below it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CopySpeed {
    /// Seconds to copy one token down, on the rank with the most bytes, while nothing is copied up.
    pub store_s: f64,
    /// Seconds to copy one token up, on the rank with the most bytes, while nothing is copied down.
    pub load_s: f64,
    /// Seconds from the start of a copy to its first byte.
    pub latency_s: f64,
    /// Rate of each direction while both directions copy, as a fraction of its rate alone: below 1 if both share a
    /// memory that is slower than their sum.
    pub share: f64,
}

impl HostTier {
    /// The tiers of one of `ranks` data-parallel ranks that have equal parts of these, in whole pages of `page` tokens;
    /// each rank copies over its own links.
    pub fn of_rank(self, ranks: u64, page: u64) -> HostTier {
        let part = |tokens: u64| tokens / ranks / page * page;
        let slower = |speed: CopySpeed| CopySpeed {
            store_s: speed.store_s * ranks as f64,
            load_s: speed.load_s * ranks as f64,
            ..speed
        };
        let storage =
            |below: StorageTier| StorageTier { tokens: part(below.tokens), speed: slower(below.speed) };
        HostTier {
            tokens: part(self.tokens),
            speed: slower(self.speed),
            storage: self.storage.map(storage),
            ..self
        }
    }
}
