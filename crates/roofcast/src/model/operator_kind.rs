//! The operators of a forward pass, by name.
//!
//! Knows: each operator's name, and the family of kernels that computes it. Knows nothing about sizes.

use serde::{Serialize, Serializer};

/// A family of kernels; calibrations are per family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// GEMMs with weights.
    Gemm,
    /// Attention over the KV cache, or a recurrent state in its place.
    Attention,
    /// An indexer's scores over its own cache.
    Indexer,
    /// Routed experts.
    Moe,
    /// Table look-ups.
    Embedding,
    /// Norms and other elementwise kernels.
    Elementwise,
}

/// The enum of operators with their names.
macro_rules! operators {
    ($($(#[$doc:meta])* $kind:ident $name:literal)*) => {
        /// Kind of operator. Its name, as in `qkv_proj`, follows vLLM's fused modules where there is one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum OperatorKind { $($(#[$doc])* $kind),* }

        impl OperatorKind {

            /// Name of the kind, as in `qkv_proj`.
            pub fn name(self) -> &'static str {
                match self { $(OperatorKind::$kind => $name),* }
            }
        }
    };
}

operators! {
    /// Look-up of each token's row in the input embedding.
    Embedding "embedding"
    /// Projection from the embedding's width to the hidden size (OPT-350m).
    ProjectIn "project_in"
    /// Projection back to the embedding's width.
    ProjectOut "project_out"
    /// Alternating streams (Gemma 3n).
    Altup "altup"
    /// Low-rank residual (Gemma 3n).
    Laurel "laurel"
    /// Inputs of each layer, looked up by token (Gemma 3n and 4).
    PerLayerInput "per_layer_input"
    /// Mixing of several residual streams (DeepSeek-V4).
    HyperConnections "hyper_connections"
    /// A linear layer in the place of attention or MLP (Nemotron-NAS).
    Linear "linear"
    /// Queries, keys and values.
    QkvProj "qkv_proj"
    /// Queries alone.
    QProj "q_proj"
    /// Queries from their latent.
    QBProj "q_b_proj"
    /// Latents of queries, keys and values.
    QkvAProj "qkv_a_proj"
    /// Keys and values from their latent: applied to new tokens, or to the whole context.
    KvBProj "kv_b_proj"
    /// The gate on an output.
    GProj "g_proj"
    /// The output projection.
    OProj "o_proj"
    /// The first half of an output projection of low rank.
    OAProj "o_a_proj"
    /// Input projection of a recurrent mixer, all inputs together.
    InProj "in_proj"
    /// Gates of gated delta networks.
    InProjBa "in_proj_ba"
    /// The input-dependent parameters of Mamba.
    XProj "x_proj"
    /// The time step of Mamba.
    DtProj "dt_proj"
    /// The learning rate of a delta rule.
    BetaProj "beta_proj"
    /// The decay of a delta rule.
    DecayProj "decay_proj"
    /// The short convolution before a recurrence.
    Conv1d "conv1d"
    /// Values and scores of compressed attention.
    Compressor "compressor"
    /// Queries and keys of an indexer.
    IndexerProj "indexer_proj"
    /// Weights of an indexer's heads.
    IndexerWeights "indexer_weights"
    /// Softmax attention over keys and values.
    Attention "attention"
    /// Softmax attention over latents.
    LatentAttention "latent_attention"
    /// Softmax attention over a window and compressed entries.
    CompressedAttention "compressed_attention"
    /// A recurrence over a state.
    LinearAttention "linear_attention"
    /// An indexer's scores over its own keys.
    Indexer "indexer"
    /// Gate and up projection of an MLP.
    GateUpProj "gate_up_proj"
    /// Down projection of an MLP.
    DownProj "down_proj"
    /// Experts that every token passes.
    SharedExperts "shared_experts"
    /// Projections into the stream of latent experts and out of it.
    LatentProj "latent_proj"
    /// Scores of experts.
    Router "router"
    /// Routed experts.
    Experts "experts"
    /// Norms, and vectors that are read with them.
    Norms "norms"
    /// Low-rank matrices that LoRA adapters add to other weights.
    Lora "lora"
    /// The output embedding: logits of the rows that are sampled.
    LmHead "lm_head"
}

impl OperatorKind {
    /// Family of kernels that computes the operator.
    pub(crate) fn family(self) -> Family {
        use OperatorKind as K;
        match self {
            K::Attention | K::LatentAttention | K::CompressedAttention | K::LinearAttention => {
                Family::Attention
            }
            K::Indexer => Family::Indexer,
            K::Experts => Family::Moe,
            K::Embedding => Family::Embedding,
            K::Norms => Family::Elementwise,
            _ => Family::Gemm,
        }
    }

    /// True if the work depends on the context: attention, or latents that are expanded for attention.
    pub(crate) fn attends(self) -> bool {
        matches!(self.family(), Family::Attention | Family::Indexer) || self == OperatorKind::KvBProj
    }

    /// True for a GEMM of the step's rows with weights.
    pub(crate) fn is_product(self) -> bool {
        self.family() == Family::Gemm && !self.attends()
    }

    /// True if the weights usually stay unquantized.
    pub(crate) fn is_unquantized(self) -> bool {
        use OperatorKind as K;
        matches!(self, K::LmHead | K::Router | K::Embedding | K::Norms | K::Lora)
    }
}

impl std::fmt::Display for OperatorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for OperatorKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
