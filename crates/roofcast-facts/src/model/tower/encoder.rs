//! The tower as a model whose tokens are patches.
//!
//! Knows: its layers and the matrices before and after them, so that a pass of the model is an image. The merger, which
//! multiplies tokens, stands as a matrix for patches with as many FLOPs per image. Knows nothing about images' sizes.

use super::Tower;
use crate::model::{Attention, Checkpoint, Dense, Ffn, Layer, Mixer, Model, OperatorKind, Split, Tensor};
use crate::precision::Dtype;

impl Tower {
    /// The tower of `model` as a model in 16 bits; `None` if the config does not state heads that divide the width.
    pub fn as_model(&self, model: &Model) -> Option<Model> {
        let heads = self.heads.filter(|heads| *heads > 0 && self.width.is_multiple_of(*heads))?;
        let layer = |window| Layer {
            mixer: Mixer::Attention(Attention { window, ..Attention::new(heads, heads, self.width / heads) }),
            ffn: Ffn::Dense(Dense { intermediate: self.inner, gated: self.gated, bias: false }),
            norms: 2 * self.width,
            parallel: false,
            extra: Vec::new(),
        };
        let (full, window) =
            self.windows.map_or((self.layers, None), |(full, patches)| (full, Some(patches)));
        let reach = |index: u64| if index < full { None } else { window };
        let matrix = |operator, rows| Tensor::linear("vision", operator, rows, self.width, Split::Even);
        let merged = self.merging.div_ceil(self.patches_per_token.max(1) * self.width);
        Some(Model {
            name: format!("the vision tower of {}", model.name),
            architecture: "vision".to_owned(),
            hidden: self.width,
            vocab: 0,
            max_context: None,
            dtype: if model.dtype == Dtype::Fp16 { Dtype::Fp16 } else { Dtype::Bf16 },
            tied: false,
            layers: (0..self.layers).map(|index| layer(reach(index))).collect(),
            passes: 1,
            outer: vec![
                matrix(OperatorKind::ProjectIn, self.embedding.div_ceil(self.width)),
                matrix(OperatorKind::ProjectOut, merged),
            ],
            quantization: None,
            published: Vec::new(),
            stored: None,
            checkpoint: Checkpoint::Named,
            tower: None,
            ahead: 0,
            assumptions: Vec::new(),
        })
    }
}
