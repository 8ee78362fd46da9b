//! The tables of kernel times: the axes of a shape, and the grid of sizes.
//!
//! Knows: axes and grids. Knows nothing about files.

/// Table of kernel times, for one kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelTable {
    /// GEMM `C[m, n] = A[m, k] B[k, n]`: seconds over m, quantization of activations included if the engine's kernel
    /// does it.
    Gemm,
    /// Routed experts of one layer on one rank, with a power law of 1.01 as routing: seconds over the tokens of the
    /// replica.
    Experts,
    /// Attention of decodes with one token per sequence: a start in seconds, and a slope in seconds per token of
    /// context, over sequences.
    Decode,
    /// Causal attention of one prompt without cached tokens: seconds over its tokens.
    Prefill,
    /// Latent attention (MLA) of decodes, absorbed, the attention kernel alone: start and slope over sequences.
    LatentDecode,
    /// Latent attention (MLA) of one prompt with expanded keys and values, the attention kernel alone: seconds over
    /// tokens.
    LatentPrefill,
    /// Recurrence and short convolution of decodes (gated delta, KDA, Mamba-2): seconds over sequences.
    RecurrentDecode,
    /// Recurrence and short convolution of one prompt: seconds over tokens.
    RecurrentPrefill,
    /// All-reduce of 16-bit values among the ranks of one node: seconds over bytes.
    AllReduce,
    /// Routed experts of one layer on one rank behind a low-latency exchange, for which every expert has a fixed
    /// number of rows of which a mask marks the used ones, with even routing: seconds over the tokens of the replica.
    MaskedExperts,
    /// Routed experts of one layer on one rank behind a high-throughput exchange, whose rows are sorted by expert,
    /// with even routing: seconds over the tokens of the replica.
    SortedExperts,
    /// Dispatch of tokens to the ranks of their experts: seconds over the tokens of one rank.
    Dispatch,
    /// Combination of the experts' results on the ranks of the tokens: seconds over the tokens of one rank.
    Combine,
}

roofcast_facts::named! { KernelTable {
    Gemm: "gemm",
    Experts: "experts",
    Decode: "decode attention",
    Prefill: "prefill attention",
    LatentDecode: "latent decode attention",
    LatentPrefill: "latent prefill attention",
    RecurrentDecode: "recurrent decode",
    RecurrentPrefill: "recurrent prefill",
    AllReduce: "all-reduce",
    MaskedExperts: "masked experts",
    SortedExperts: "sorted experts",
    Dispatch: "dispatch",
    Combine: "combine",
} }

impl KernelTable {
    /// Names of the axes of a shape, in order. Heads, experts and widths are per rank unless `tp` or `ep` is an axis;
    /// a window of 0 means no window.
    pub fn axes(self) -> &'static [&'static str] {
        match self {
            KernelTable::Gemm => &["n", "k"],
            KernelTable::Experts | KernelTable::MaskedExperts | KernelTable::SortedExperts => {
                &["hidden", "inter", "top_k", "experts", "tp", "ep"]
            }
            KernelTable::Decode | KernelTable::Prefill => &["heads", "kv_heads", "head_dim", "window"],
            KernelTable::LatentDecode | KernelTable::LatentPrefill => &["heads"],
            KernelTable::RecurrentDecode | KernelTable::RecurrentPrefill => {
                &["key_heads", "key_dim", "value_heads", "value_dim"]
            }
            KernelTable::AllReduce => &["ranks"],
            KernelTable::Dispatch | KernelTable::Combine => &["hidden", "top_k", "experts", "ranks"],
        }
    }

    /// Sizes of the grid: rows, tokens, sequences or bytes.
    pub fn grid(self) -> &'static [u32] {
        match self {
            KernelTable::Gemm => &[
                1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 512, 768, 1024, 1536, 2048, 3072,
                4096, 8192, 16384, 32768,
            ],
            KernelTable::Experts => &[
                1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
                8192, 16384,
            ],
            KernelTable::Decode | KernelTable::LatentDecode => &[1, 4, 16, 64, 256, 1024],
            KernelTable::Prefill | KernelTable::LatentPrefill => {
                &[16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
            }
            KernelTable::RecurrentDecode => &[1, 4, 16, 64, 256, 1024],
            KernelTable::RecurrentPrefill => &[16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384],
            KernelTable::AllReduce => &[
                256,
                1 << 10,
                1 << 12,
                1 << 14,
                1 << 15,
                1 << 16,
                1 << 17,
                1 << 18,
                1 << 19,
                1 << 20,
                1 << 21,
                1 << 22,
                1 << 23,
                1 << 24,
                1 << 25,
                1 << 26,
                1 << 28,
            ],
            KernelTable::MaskedExperts | KernelTable::SortedExperts => &[
                4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131_072,
                262_144, 524_288,
            ],
            KernelTable::Dispatch | KernelTable::Combine => {
                &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536]
            }
        }
    }

    /// True if each size has a start and a slope instead of one time.
    pub fn has_slopes(self) -> bool {
        matches!(self, KernelTable::Decode | KernelTable::LatentDecode)
    }

    /// Number of values of one shape.
    pub(crate) fn columns(self) -> usize {
        self.grid().len() * if self.has_slopes() { 2 } else { 1 }
    }
}
