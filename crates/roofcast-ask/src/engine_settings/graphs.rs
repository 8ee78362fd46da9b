//! Sizes of the steps that captured CUDA graphs cover.
//!
//! Knows: vLLM's default by sequences, drafts, tokens of a step, chip, model and version (`VllmConfig._set_cudagraph_sizes`,
//! vLLM 0.11 to 0.33), and that a step beyond its largest graph runs without one, decodes too (`CudagraphDispatcher`). Other
//! engines are treated as capturing all decodes and no prompts, though SGLang captures more from 0.5.10 on for some models.

use crate::spec::{EngineKind, EngineSpec};
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::model::Model;

/// First version that captures steps with prompts, layer by layer around attention.
pub(super) const PIECES_SINCE: &str = "0.8.0 (2025-03)";
/// First version that counts the drafts of a decode (vLLM's pull request 30330).
const DRAFTS_SINCE: &str = "0.13.0 (2025-12)";
/// First version with the larger bound on data-centre Blackwell (pull request 49390; 0.27.1 has 512 on every chip).
const BLACKWELL_SINCE: &str = "0.28.0 (2026-08)";
/// First version with a default for gpt-oss (`GptOssForCausalLMConfig`, `model_executor/models/config.py`).
const GPT_OSS_SINCE: &str = "0.10.1 (2025-08)";
/// Tokens of the largest graph.
const USUAL: u64 = 512;
/// Tokens of the largest graph of gpt-oss, and on chips of compute capability 10.
const LARGE: u64 = 1024;

/// vLLM's bound on the tokens of a captured step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GraphBound {
    /// Twice the tokens of all sequences' decodes, up to this number.
    Decodes(u64),
    /// This number, whatever the sequences.
    Tokens(u64),
}

impl GraphBound {
    /// The bound of `engine` on `accelerator` for `model`.
    pub(crate) fn of(engine: &EngineSpec, accelerator: &Accelerator, model: &Model) -> GraphBound {
        let release = engine.release();
        if model.architecture.starts_with("gpt_oss") && release.is_since(GPT_OSS_SINCE) {
            return GraphBound::Tokens(LARGE);
        }
        let data_centre = accelerator.architecture == "blackwell";
        let large = data_centre && release.is_since(BLACKWELL_SINCE);
        GraphBound::Decodes(if large { LARGE } else { USUAL })
    }
}

/// Tokens of the largest steps that captured graphs cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Graphs {
    /// Tokens of a step with prompts; 0 if only decodes are captured.
    pub(super) prompts: u64,
    /// Tokens of a step of decodes alone.
    pub(super) decodes: u64,
}

impl Graphs {
    /// The graphs of `spec`, whose steps have at most `[sequences, tokens]`.
    pub(super) fn of(spec: &EngineSpec, bound: GraphBound, [sequences, tokens]: [u64; 2]) -> Graphs {
        let capture_size = spec.max_cudagraph_capture_size;
        let release = spec.release();
        if spec.enforce_eager == Some(true) {
            return Graphs { prompts: 0, decodes: 0 };
        }
        if release.kind != EngineKind::Vllm || !release.is_since(PIECES_SINCE) {
            return Graphs { prompts: capture_size.unwrap_or(0), decodes: u64::MAX };
        }
        let drafts = spec.speculative.as_ref().map_or(0, |drafts| drafts.num_speculative_tokens);
        let decode = if release.is_since(DRAFTS_SINCE) { drafts.saturating_add(1) } else { 1 };
        let largest = match bound {
            GraphBound::Decodes(most) => sequences.saturating_mul(decode).saturating_mul(2).min(most),
            GraphBound::Tokens(most) => most,
        };
        let listed = listed(largest.min(tokens));
        let usual = if listed >= decode { listed - listed % decode } else { listed };
        // Without graphs of prompts (`FULL_DECODE_ONLY`) those of decodes have the default sizes.
        Graphs {
            prompts: capture_size.unwrap_or(usual),
            decodes: capture_size.filter(|size| *size > 0).unwrap_or(usual),
        }
    }
}

/// Largest size of vLLM's list that is at most `most`: 1, 2, 4, multiples of 8 below 256, multiples of 16.
fn listed(most: u64) -> u64 {
    match most {
        256.. => most - most % 16,
        8.. => most - most % 8,
        4.. => 4,
        most => most.clamp(1, 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graphs(version: &str, keys: &str, bound: GraphBound, limits: [u64; 2]) -> [u64; 2] {
        let text = format!("name = \"vllm\"\nversion = \"{version}\"\n{keys}");
        let Graphs { prompts, decodes } = Graphs::of(&toml::from_str(&text).unwrap(), bound, limits);
        [prompts, decodes]
    }

    /// The sizes that vLLM 0.33's own function gives: 1024 sequences 512 tokens, and 1024 on Blackwell; 32 sequences 64, and
    /// with 4 drafts 2 · 32 · 5 = 320; of 20 tokens 16 are in the list, of 6 tokens 4. With 2 drafts 512 tokens hold 170
    /// decodes of 3.
    #[test]
    fn sizes_are_those_of_vllm() {
        let largest_decode =
            |keys: &str, bound, sequences| graphs("0.33.0", keys, bound, [sequences, 8192])[1];
        let usual = GraphBound::Decodes(512);
        let drafts = |n: u64| format!("speculative = {{ num_speculative_tokens = {n}, draft_cost = 0 }}");
        assert_eq!(largest_decode("", usual, 1024), 512);
        assert_eq!(largest_decode("", GraphBound::Decodes(1024), 1024), 1024);
        assert_eq!([largest_decode("", usual, 32), largest_decode(&drafts(4), usual, 32)], [64, 320]);
        assert_eq!(
            [largest_decode("", usual, 10), largest_decode("", usual, 3), largest_decode("", usual, 1)],
            [16, 4, 2]
        );
        assert_eq!(
            [largest_decode(&drafts(2), usual, 1024), largest_decode(&drafts(3), usual, 256)],
            [510, 512]
        );
        assert_eq!(graphs("0.12.0", &drafts(4), usual, [32, 8192]), [64, 64]);
        assert_eq!(graphs("0.33.0", "", GraphBound::Tokens(1024), [4, 512]), [512, 512]);
    }

    /// Requested sizes hold for decodes, too; graphs of decodes alone keep the default; an eager engine has none.
    #[test]
    fn settings_take_precedence() {
        let graphs_of = |version, keys: &str| graphs(version, keys, GraphBound::Decodes(512), [1024, 8192]);
        assert_eq!(graphs_of("0.33.0", "max_cudagraph_capture_size = 2048"), [2048, 2048]);
        assert_eq!(graphs_of("0.33.0", "max_cudagraph_capture_size = 0"), [0, 512]);
        assert_eq!(graphs_of("0.33.0", "enforce_eager = true"), [0, 0]);
        assert_eq!(graphs_of("0.7.3", ""), [0, u64::MAX]);
    }
}
