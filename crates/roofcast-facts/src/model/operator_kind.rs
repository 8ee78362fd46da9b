//! The operators of a forward pass, by name.
//!
//! Knows: the name of each operator, and the family of kernels that computes it. Knows nothing about sizes.

use serde::{Serialize, Serializer};

/// Family of kernels with common efficiencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// GEMMs with dense weights.
    Gemm,
    /// Attention over the KV cache, or a recurrence over a state.
    Attention,
    /// Scores of an indexer over its own cache.
    Indexer,
    /// Routed experts.
    Moe,
    /// Look-ups of table rows.
    Embedding,
    /// Norms and other elementwise kernels.
    Elementwise,
}

/// Declares the operators with their names.
macro_rules! operators {
    ($($(#[$doc:meta])* $kind:ident $name:literal)*) => {
        /// Kind of operator. Names such as `qkv_proj` follow vLLM's fused modules if vLLM has the operator.
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
    /// Look-up of the row of each token in the input embedding.
    Embedding "embedding"
    /// Projection from the embedding's width to the hidden size (OPT-350m).
    ProjectIn "project_in"
    /// Projection from the hidden size back to the embedding's width (OPT-350m).
    ProjectOut "project_out"
    /// Alternating residual streams, AltUp (Gemma 3n).
    Altup "altup"
    /// Low-rank residual, LAuReL (Gemma 3n).
    Laurel "laurel"
    /// Additional input of each layer, looked up by token (Gemma 3n and 4).
    PerLayerInput "per_layer_input"
    /// Mixing of several residual streams (DeepSeek-V4).
    HyperConnections "hyper_connections"
    /// Linear layer in place of attention or MLP (Nemotron-NAS).
    Linear "linear"
    /// Projection to queries, keys and values.
    QkvProj "qkv_proj"
    /// Projection to queries alone.
    QProj "q_proj"
    /// Projection from the latent of queries to queries.
    QBProj "q_b_proj"
    /// Projection to the latents of queries, keys and values.
    QkvAProj "qkv_a_proj"
    /// Projection from the latent to keys and values, of new tokens or of the whole context.
    KvBProj "kv_b_proj"
    /// Projection to the gate on an output.
    GProj "g_proj"
    /// Output projection of attention or a recurrence.
    OProj "o_proj"
    /// First half of a low-rank output projection.
    OAProj "o_a_proj"
    /// Input projection of a recurrent mixer, as one GEMM for all its inputs.
    InProj "in_proj"
    /// Projection to the gates of gated delta nets.
    InProjBa "in_proj_ba"
    /// Projection to Mamba's input-dependent parameters.
    XProj "x_proj"
    /// Projection to Mamba's time step.
    DtProj "dt_proj"
    /// Projection to the learning rate of a delta rule.
    BetaProj "beta_proj"
    /// Projection to the decay of a delta rule.
    DecayProj "decay_proj"
    /// Short convolution before a recurrence.
    Conv1d "conv1d"
    /// Projections to the values and scores of compressed attention.
    Compressor "compressor"
    /// Projections to the queries and keys of an indexer.
    IndexerProj "indexer_proj"
    /// Projection to the weights of an indexer's heads.
    IndexerWeights "indexer_weights"
    /// Softmax attention over keys and values.
    Attention "attention"
    /// Softmax attention over latents.
    LatentAttention "latent_attention"
    /// Softmax attention over a window and compressed entries.
    CompressedAttention "compressed_attention"
    /// Recurrence over a state.
    LinearAttention "linear_attention"
    /// Scores of an indexer over its own keys.
    Indexer "indexer"
    /// Gate and up projections of an MLP.
    GateUpProj "gate_up_proj"
    /// Down projection of an MLP.
    DownProj "down_proj"
    /// Shared experts, which compute every token.
    SharedExperts "shared_experts"
    /// Projections into and out of the latent stream of experts.
    LatentProj "latent_proj"
    /// Router: scores of experts.
    Router "router"
    /// Routed experts.
    Experts "experts"
    /// Norms, and other vectors that are read together with them.
    Norms "norms"
    /// Low-rank matrices that LoRA adapters add to other weights.
    Lora "lora"
    /// Output embedding: logits of the rows that are sampled.
    LmHead "lm_head"
}

impl OperatorKind {
    /// Family of kernels that computes the operator.
    pub fn family(self) -> Family {
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

    /// True if the work depends on the context: attention, or the expansion of latents for attention.
    pub fn attends(self) -> bool {
        matches!(self.family(), Family::Attention | Family::Indexer) || self == OperatorKind::KvBProj
    }

    /// True for a GEMM whose rows are the rows of the step.
    pub fn is_product(self) -> bool {
        self.family() == Family::Gemm && !self.attends()
    }

    /// True if checkpoints usually keep the weights unquantized.
    pub fn is_unquantized(self) -> bool {
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
