//! Numbers of kernels that the host launches one by one in a step outside captured graphs.
//!
//! Knows: which kernels Python launches and which compiled code does, by engine, version and mode. Prompts have more
//! kernels than decodes: their activations are quantized by themselves, latents are expanded, and recurrences are
//! computed in chunks. Does not know times.
//!
//! vLLM's compiled code (from 0.8 on) launches norms, rotary embeddings, activation functions and 16-bit GEMMs; between
//! its pieces Python launches custom operators: attention with its cache write, GEMMs with quantized activations, routed
//! experts and all-reduces (vLLM 0.33, `compilation/backends.py` and the operators that `direct_register_custom_op`
//! registers). PyTorch models of SGLang, of TensorRT-LLM from 1.0 on, and of vLLM without its compiler have every
//! kernel launched by Python; TensorRT's engines and ggml have none.

use super::kernels::{KERNELS_OF_EXPERTS, small_kernels};
use crate::operator::collective::Links;
use crate::operator::{Form, Operator};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::EngineKind;
use roofcast_facts::model::Mixer;

/// Kernels that a prompt adds to a decode's in a layer with latent attention: concatenations of keys for the prompt and for
/// decodes in its step, three casts, a copy of the output, and the attention of decodes (vLLM 0.33,
/// `v1/attention/backends/mla/common.py`, `forward`).
const LATENT_PROMPT: u64 = 7;
/// Kernels that a prompt adds to a decode's in a recurrent layer: convolution, norms of queries and keys, sums of
/// decays, the products and the triangular solution of a chunk, the states between chunks, their outputs, and the
/// gathers and copies of states (vLLM 0.33, `model_executor/layers/fla/ops/chunk.py` and `models/qwen3_next.py`).
const RECURRENT_PROMPT: u64 = 21;
/// Kernels that quantize activations around the two grouped GEMMs of routed experts.
const EXPERTS_QUANTIZE: u64 = 2;
/// Factor on the launches of a compiled graph that is not divided into pieces: with `FULL_DECODE_ONLY` it takes 56 ms to
/// launch, and about half in pieces (vLLM's pull requests 20050 and 20059).
const FLATTENED: u64 = 2;

/// Kernels of one step by the code that launches them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Launched {
    /// Kernels that the engine launches by itself, Python's one by one.
    pub(crate) one_by_one: u64,
    /// Kernels that compiled code launches, of an engine that is written in Python.
    pub(crate) compiled: u64,
}

/// Code that launches the kernels of a step outside captured graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Launcher {
    /// The engine launches every kernel by itself: in Python, or in C++ if it is written in C++.
    Engine,
    /// Compiled code launches kernels between the custom operators that Python launches.
    Pieces,
    /// Compiled code launches them, all in one graph that is not captured.
    Flattened,
    /// Compiled code launches every kernel.
    Compiled,
}

impl Launcher {
    fn of(deployment: &Deployment) -> Launcher {
        let engine = &deployment.engine;
        match engine.kind() {
            EngineKind::Vllm if engine.enforce_eager || !engine.is_since("0.8.0 (2025-03)") => {
                Launcher::Engine
            }
            EngineKind::Vllm if engine.max_cudagraph_capture_size == 0 => Launcher::Flattened,
            EngineKind::Vllm => Launcher::Pieces,
            EngineKind::Sglang | EngineKind::Transformers | EngineKind::LlamaCpp => Launcher::Engine,
            EngineKind::TensorrtLlm if engine.is_since("1.0.0rc0 (2025-06)") => Launcher::Engine,
            EngineKind::TensorrtLlm | EngineKind::Other => Launcher::Compiled,
        }
    }
}

impl Launched {
    /// Kernels of a step of decodes and of a step with prompts.
    pub(super) fn of(deployment: &Deployment, operators: &[Operator], links: &Links) -> [Launched; 2] {
        let launcher = Launcher::of(deployment);
        [false, true].map(|prompts| {
            let [custom, others] = counted(deployment, operators, links, prompts);
            match launcher {
                Launcher::Engine => Launched { one_by_one: custom + others, compiled: 0 },
                Launcher::Pieces => Launched { one_by_one: custom, compiled: others },
                Launcher::Flattened => {
                    Launched { one_by_one: FLATTENED * custom, compiled: FLATTENED * others }
                }
                Launcher::Compiled => Launched { one_by_one: 0, compiled: custom + others },
            }
        })
    }
}

/// Kernels of custom operators, and all others, of a step of decodes or of a step with `prompts`.
fn counted(deployment: &Deployment, operators: &[Operator], links: &Links, prompts: bool) -> [u64; 2] {
    let quantizes = |operator: &Operator| operator.dtype.bits() <= 8;
    let [mut custom, mut others] = [links.all_reduces + links.norms, 0];
    for operator in operators {
        let [in_custom, beside] = match &operator.form {
            Form::Product { matrix, .. } if matrix.elements <= 0.0 => [0, 0],
            Form::Product { .. } if quantizes(operator) => [2, 0],
            Form::Product { .. } => [0, 1],
            Form::Lookup { .. } => [0, 1],
            Form::Experts(_) => {
                [KERNELS_OF_EXPERTS + if quantizes(operator) { EXPERTS_QUANTIZE } else { 0 }, 0]
            }
            Form::Context(_) => [1, 0],
        };
        custom += in_custom * operator.layers;
        others += beside * operator.layers;
    }
    for layer in &deployment.model.layers {
        let small = small_kernels(layer);
        let more = if !prompts {
            0
        } else if matches!(layer.mixer, Mixer::GatedDelta(_) | Mixer::Kda(_)) {
            RECURRENT_PROMPT
        } else if matches!(layer.mixer, Mixer::Latent(_)) {
            LATENT_PROMPT
        } else {
            0
        };
        // Of the small kernels, custom operators have the cache write and the absorbed products of latents.
        let within = match layer.mixer {
            Mixer::None => 0,
            Mixer::Latent(_) => 3,
            _ => 1,
        };
        custom += within + more;
        others += small - within;
    }
    [custom, others]
}

/// First version of SGLang whose default captures steps with prompts, up to a chunk, where attention is not latent.
const PREFILL_GRAPHS: &str = "0.5.23 (2026-11)";

/// Tokens of the largest pass of decodes, and of the largest pass with prompts, that a captured graph covers.
pub(super) fn captured(deployment: &Deployment) -> [u64; 2] {
    let engine = &deployment.engine;
    let latent = || deployment.model.layers.iter().any(|layer| matches!(layer.mixer, Mixer::Latent(_)));
    if engine.enforce_eager {
        return [0, 0];
    }
    let prompts = match engine.kind() {
        EngineKind::Sglang if engine.is_since(PREFILL_GRAPHS) && !latent() => engine.max_num_batched_tokens,
        _ => engine.max_cudagraph_capture_size,
    };
    [engine.captured_decodes, prompts]
}

#[cfg(test)]
mod tests {
    use crate::step::tests::compiled_with;
    use roofcast_ask::deployment::DeploymentOptions;

    /// Kernels of a step with prompts that Python launches, and kernels that compiled code launches.
    fn launched(model: &str, engine: &str, options: impl Fn(&mut DeploymentOptions)) -> [u64; 2] {
        let mut with = DeploymentOptions::default();
        with.engine.name = Some(engine.to_owned());
        options(&mut with);
        let [_, prompts] = compiled_with(model, &with).surroundings.launched;
        [prompts.one_by_one, prompts.compiled]
    }

    /// A layer of Llama-3.1-8B in bf16 has four GEMMs, attention with its cache write, two norms, rotary embedding and
    /// activation, and the model an embedding and lm_head: of 32 · 10 + 2 kernels Python launches two a layer in vLLM,
    /// all in SGLang, none in TensorRT's engines; with two ranks 64 all-reduces more. In fp8 a GEMM and its quantization
    /// are custom operators: 2 + 4 · 2 a layer of 14.
    #[test]
    fn launches_of_a_dense_prompt_by_hand() {
        let llama = |engine: &str, options: &dyn Fn(&mut DeploymentOptions)| {
            launched("meta-llama/Llama-3.1-8B-Instruct", engine, options)
        };
        let plain = &|_: &mut DeploymentOptions| ();
        assert_eq!(llama("vllm", plain), [64, 258]);
        assert_eq!(llama("sglang", plain), [322, 0]);
        assert_eq!(llama("tensorrt-llm", plain), [322, 0]);
        let version = |version: &'static str| {
            move |o: &mut DeploymentOptions| o.engine.version = Some(version.to_owned())
        };
        assert_eq!(llama("tensorrt-llm", &version("0.20.0")), [0, 322]);
        assert_eq!(llama("tensorrt-llm", &version("1.0.0rc3")), [322, 0]);
        assert_eq!(llama("vllm", &version("0.7.3")), [322, 0]);
        assert_eq!(llama("vllm", &|o| o.engine.enforce_eager = Some(true)), [322, 0]);
        assert_eq!(llama("vllm", &|o| o.engine.max_cudagraph_capture_size = Some(0)), [128, 516]);
        assert_eq!(llama("vllm", &|o| o.parallelism.tp = Some(2)), [128, 258]);
        assert_eq!(llama("vllm", &|o| o.precision.weights = Some("fp8".to_owned())), [320, 130]);
    }

    /// A layer of Qwen3-30B-A3B under an eager host on four ranks has 16 kernels: five small ones, three GEMMs,
    /// attention, five of experts, two all-reduces; 48 layers, an embedding and lm_head. At 45 µs these are 34.7 ms:
    /// 33.9 were measured for a step of 8 users on four RTX 4090 (vLLM's issue 45709).
    #[test]
    fn launches_of_an_eager_step_by_hand() {
        let mut options = DeploymentOptions::default();
        options.engine.enforce_eager = Some(true);
        options.parallelism.tp = Some(4);
        let [decodes, _] = compiled_with("Qwen/Qwen3-30B-A3B", &options).surroundings.launched;
        assert_eq!((decodes.one_by_one, decodes.compiled), (48 * 16 + 2, 0));
    }
}
