//! Reads tensors outside the layers, and tensors of a layer that belong to neither mixer nor FFN.
//!
//! Knows: embeddings, lm_head, hyper-connections, per-layer inputs and tables of n-grams. Knows nothing about mixers
//! and FFNs.

use super::Reader;
use crate::error::Result;
use crate::model::tensor::{OperatorKind, Split, Tensor, TensorRole};

impl Reader<'_> {
    /// Reads embeddings, final norm and lm_head.
    pub(super) fn outer(&mut self, vocab: u64, max_context: Option<u64>) -> Result<Vec<Tensor>> {
        let width = self.keys.count(&["word_embed_proj_dim"])?.unwrap_or(self.hidden);
        let table = |name, rows| {
            Tensor::linear(name, OperatorKind::Embedding, rows, width, Split::Even)
                .with_role(TensorRole::Embedding)
        };
        let mut outer = vec![table("embed_tokens", vocab)];
        outer.extend(self.outer_extras()?);
        let positions = match self.model_type {
            "gpt2" | "gpt_bigcode" | "megatron-gpt" => max_context.unwrap_or(1024),
            "gpt_neo" => max_context.unwrap_or(2048),
            // OPT's position table has two additional rows at the beginning.
            "opt" => max_context.unwrap_or(2048) + 2,
            _ => 0,
        };
        if positions > 0 {
            outer.push(Tensor::vector(
                "embed_positions",
                OperatorKind::Embedding,
                positions * self.hidden,
                Split::Replicated,
            ));
        }
        if width != self.hidden {
            outer.push(Tensor::linear(
                "project_in",
                OperatorKind::ProjectIn,
                self.hidden,
                width,
                Split::Replicated,
            ));
            outer.push(Tensor::linear(
                "project_out",
                OperatorKind::ProjectOut,
                width,
                self.hidden,
                Split::Replicated,
            ));
        }
        let mut norm = if self.norm_bias()? { 2 * self.hidden } else { self.hidden };
        if self.model_type == "bloom" {
            norm *= 2; // a norm behind the embedding, too
        }
        let final_norm = self.keys.flag("do_layer_norm_before", true)? && self.habits.norms > 0;
        outer.push(Tensor::vector(
            "norm",
            OperatorKind::Norms,
            if final_norm { norm } else { 0 },
            Split::Replicated,
        ));
        // A drafter of EAGLE-3 scores the frequent tokens alone.
        let scored = self.keys.count(&["draft_vocab_size"])?.unwrap_or(vocab);
        outer.push(
            Tensor::linear("lm_head", OperatorKind::LmHead, scored, width, Split::Even)
                .with_role(TensorRole::Head),
        );
        if matches!(self.model_type, "gptj" | "phi" | "phimoe") {
            outer.push(Tensor::vector("lm_head.bias", OperatorKind::LmHead, vocab, Split::Even));
        }
        Ok(outer)
    }

    /// Tables of n-grams (LongCat-Flash-Lite): for each n from 2 to `emb_neighbor_num` and each of `emb_split_num`
    /// hashes, one table of `ngram_vocab_size_ratio` times the vocabulary, and a projection of its row to the hidden
    /// size. The i-th of t tables has 2i + 1 additional rows, t on average. Source: `modeling_longcat_ngram.py` of
    /// LongCat-Flash-Lite; arXiv 2601.21204 states 31.4B parameters for hidden 3072, vocabulary 131072 and a ratio of
    /// 78.
    fn ngram_tables(&self) -> Result<Vec<Tensor>> {
        let keys = self.keys;
        let Some(ratio) = keys.count(&["ngram_vocab_size_ratio"])? else { return Ok(Vec::new()) };
        let neighbors = keys.required(&["emb_neighbor_num"])?;
        let tables = keys.required(&["emb_split_num"])? * neighbors.saturating_sub(1);
        if tables == 0 || !self.hidden.is_multiple_of(tables) {
            let accepted =
                format!("as many tables, emb_split_num for each n from 2, as divide {}", self.hidden);
            return Err(keys.bad("emb_neighbor_num", neighbors, accepted));
        }
        let rows = ratio * keys.required(&["vocab_size"])? + tables;
        let width = self.hidden / tables;
        let table =
            Tensor::linear("ngram_embeddings.embedders", OperatorKind::Embedding, rows, width, Split::Even);
        let projection = Tensor::linear(
            "ngram_embeddings.post_projs",
            OperatorKind::ProjectIn,
            self.hidden,
            width,
            Split::Replicated,
        );
        Ok(vec![table.with_role(TensorRole::Embedding).times(tables), projection.times(tables)])
    }

    /// Reads per-layer inputs (Gemma 3n and 4), the head of hyper-connections (DeepSeek-V4), and tables of n-grams.
    fn outer_extras(&self) -> Result<Vec<Tensor>> {
        let keys = self.keys;
        let mut extras = self.ngram_tables()?;
        if let Some(width) = self.per_layer_width()? {
            let rows = keys.required(&["vocab_size_per_layer_input", "vocab_size"])?;
            let all = width * self.layers;
            let table =
                Tensor::linear("embed_tokens_per_layer", OperatorKind::Embedding, rows, all, Split::Even);
            extras.push(table.with_role(TensorRole::Embedding));
            extras.push(Tensor::linear(
                "per_layer_model_projection",
                OperatorKind::PerLayerInput,
                all,
                self.hidden,
                Split::Even,
            ));
            extras.push(Tensor::vector(
                "per_layer_projection_norm",
                OperatorKind::Norms,
                width,
                Split::Replicated,
            ));
        }
        if let Some(inputs) = keys.count(&["altup_num_inputs"])? {
            // Each further stream has one projection into it before the first layer and one out of it after the last.
            let square =
                Tensor::linear("altup", OperatorKind::Altup, self.hidden, self.hidden, Split::Replicated);
            extras.push(square.times(2 * (inputs - 1)));
        }
        if let Some(streams) = self.streams()? {
            let wide = streams * self.hidden;
            let mix =
                Tensor::linear("hc_head", OperatorKind::HyperConnections, streams, wide, Split::Replicated);
            extras.push(mix.with_role(TensorRole::Router));
            extras.push(Tensor::vector("hc_head.base", OperatorKind::Norms, streams + 1, Split::Replicated));
        }
        if self.model_type == "ouro" {
            // Gate that decides early exit: one row with a bias.
            extras.push(Tensor::vector(
                "early_exit_gate",
                OperatorKind::Norms,
                self.hidden + 1,
                Split::Replicated,
            ));
        }
        if keys.count_or_zero(&["attn_res_block_size"])? > 0 {
            extras.push(Tensor::vector(
                "output_attn_res",
                OperatorKind::Norms,
                2 * self.hidden,
                Split::Replicated,
            ));
        }
        Ok(extras)
    }

    /// Reads the tensors of a layer in addition to mixer, FFN and norms.
    ///
    /// * Hyper-connections over n streams: twice a matrix of (2 + n)n rows, with as many biases and 3 scales; in Hy4,
    ///   2n rows and 2 scales.
    /// * Per-layer inputs: a gate down, a projection up and a norm.
    /// * Attention residuals: a norm and a row before the mixer, and before the FFN.
    /// * Gemma 3n: a low-rank residual with a norm (LAuReL); for n alternating streams n + n² rows of n coefficients,
    ///   a router of n rows, and its norm and scale (AltUp).
    /// * Muse Spark: norms before and after the experts of its narrow stream.
    pub(super) fn layer_extras(&self) -> Result<Vec<Tensor>> {
        let keys = self.keys;
        let whole = Split::Replicated;
        let mut extras = Vec::new();
        if let Some(streams) = self.streams()? {
            // Hy4 keeps the residual of each stream: no matrix mixes streams with each other.
            let (rows, scales) = if self.is_hy4() { (2 * streams, 2) } else { ((2 + streams) * streams, 3) };
            let mix =
                Tensor::linear("hc", OperatorKind::HyperConnections, rows, streams * self.hidden, whole);
            extras.push(mix.with_role(TensorRole::Router).times(2));
            extras.push(Tensor::vector("hc.base", OperatorKind::Norms, 2 * (rows + scales), whole));
        }
        if let Some(width) = self.per_layer_width()? {
            let gate = "per_layer_input_gate";
            let up = "per_layer_projection";
            extras.push(Tensor::linear(gate, OperatorKind::PerLayerInput, width, self.hidden, whole));
            extras.push(Tensor::linear(up, OperatorKind::PerLayerInput, self.hidden, width, whole));
            extras.push(Tensor::vector("post_per_layer_input_norm", OperatorKind::Norms, self.hidden, whole));
        }
        if keys.count_or_zero(&["attn_res_block_size"])? > 0 {
            extras.push(Tensor::vector("attn_res", OperatorKind::Norms, 4 * self.hidden, whole));
        }
        if let Some(width) = keys.count(&["moe_hidden_size"])? {
            extras.push(Tensor::vector("mlp.expert_norms", OperatorKind::Norms, 2 * width, whole));
        }
        if let Some(rank) = keys.count(&["laurel_rank"])? {
            extras.push(Tensor::linear("laurel.linear_left", OperatorKind::Laurel, rank, self.hidden, whole));
            extras.push(Tensor::linear(
                "laurel.linear_right",
                OperatorKind::Laurel,
                self.hidden,
                rank,
                whole,
            ));
            extras.push(Tensor::vector("laurel.norm", OperatorKind::Norms, self.hidden, whole));
        }
        if let Some(inputs) = keys.count(&["altup_num_inputs"])? {
            let router =
                Tensor::linear("altup.modality_router", OperatorKind::Altup, inputs, self.hidden, whole);
            extras.push(router.with_role(TensorRole::Router));
            let coefficients = (inputs + inputs * inputs) * inputs;
            extras.push(Tensor::vector(
                "altup.norms",
                OperatorKind::Norms,
                coefficients + 2 * self.hidden,
                whole,
            ));
        }
        Ok(extras)
    }

    /// Number of streams of hyper-connections (DeepSeek-V4's mHC, Hy4's iHC).
    fn streams(&self) -> Result<Option<u64>> {
        if !self.keys.flag("enable_ihc", true)? {
            return Ok(None);
        }
        self.keys.count(&["hc_mult"])
    }

    /// Width of Gemma's additional input of each layer, which is looked up by token.
    fn per_layer_width(&self) -> Result<Option<u64>> {
        Ok(Some(self.keys.count_or_zero(&["hidden_size_per_layer_input"])?).filter(|w| *w > 0))
    }
}
