//! The parts of a vision tower that turn its patches into tokens of the text model.
//!
//! Knows: the matrices of each family, from which width to which. Knows nothing about the layers before them.
//!
//! Source: the modules of Hugging Face transformers 5.24 (`modeling_*.py` of each family).

use crate::model::keys::Keys;

/// Edges in patches that Step's two convolutions halve one after another, and the entries of their kernels.
const STEP_EDGE: u64 = 4;
const STEP_KERNEL: u64 = 3 * 3;

/// Widths that a merger connects.
#[derive(Clone, Copy)]
pub(super) struct Widths {
    /// Width of a patch.
    pub(super) patch: u64,
    /// Number of patches along each side of a token.
    pub(super) merge: u64,
    /// Width of the text model.
    pub(super) text: u64,
}

/// Weights of a merger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Merger {
    /// Number of parameters.
    pub(super) parameters: u64,
    /// Number of multiplications for each token; a matrix that patches pass counts once for each patch of the token.
    pub(super) per_token: u64,
}

impl Merger {
    fn of_tokens(parameters: Option<u64>) -> Option<Merger> {
        Some(Merger { parameters: parameters?, per_token: parameters? })
    }

    /// The merger of a tower of type `kind` with the keys `vision`, before a text model of type `model_type`; `None` if
    /// its size does not fit a number.
    pub(super) fn of(vision: &Keys, model_type: &str, kind: &str, widths: Widths) -> Option<Merger> {
        let Widths { patch, merge, text } = widths;
        let patches = merge.checked_mul(merge)?;
        let wide = patch.checked_mul(patches)?;
        let count = |key: &str| vision.count(&[key]).ok().flatten();
        match kind {
            _ if model_type.starts_with("gemma") => Merger::of_tokens(patch.checked_mul(text)),
            // A convolution over a token's patches, a projection and a gated MLP.
            _ if kind.starts_with("glm4v") => {
                let out = count("out_hidden_size").unwrap_or(text);
                let inner = count("intermediate_size").unwrap_or(4 * out);
                let rows = wide.checked_add(out)?.checked_add(3 * inner)?;
                Merger::of_tokens(out.checked_mul(rows))
            }
            // An MLP over joined patches, and the projection into the text model.
            _ if kind.starts_with("llama4") => {
                let [inner, outer] =
                    ["projector_input_dim", "projector_output_dim"].map(|key| count(key).unwrap_or(wide));
                let adapter = wide.checked_mul(inner)?.checked_add(inner.checked_mul(outer)?)?;
                Merger::of_tokens(adapter.checked_add(outer.checked_mul(text)?))
            }
            // An MLP of each patch, then an MLP of a token's patches.
            _ if kind.starts_with("minimax_m3") => {
                let square = text.checked_mul(text)?;
                let alone = patch.checked_mul(text)?.checked_add(square)?;
                let joined = patches.checked_mul(square)?.checked_add(square)?;
                Some(Merger {
                    parameters: alone.checked_add(joined)?,
                    per_token: patches.checked_mul(alone)?.checked_add(joined)?,
                })
            }
            // Two convolutions, each of which halves both sides and doubles the width.
            _ if kind.starts_with("step3p5") => {
                let first = STEP_KERNEL.checked_mul(2 * patch)?.checked_mul(patch)?;
                let second = first.checked_mul(4)?;
                let projection = 4 * patch.checked_mul(text)?;
                Some(Merger {
                    parameters: first.checked_add(second)?.checked_add(projection)?,
                    per_token: (4 * first).checked_add(second)?.checked_add(projection)?,
                })
            }
            _ => {
                let deep = vision.value("deepstack_visual_indexes").and_then(|v| v.as_array());
                let mergers = 1 + deep.map_or(0, Vec::len) as u64;
                let merger = wide.checked_mul(wide)?.checked_add(wide.checked_mul(text)?)?;
                Merger::of_tokens(mergers.checked_mul(merger))
            }
        }
    }

    /// Number of patches along each side of a token of a tower of type `kind`, if the family fixes it.
    pub(super) fn edge(kind: &str) -> Option<u64> {
        kind.starts_with("step3p5").then_some(STEP_EDGE)
    }
}
