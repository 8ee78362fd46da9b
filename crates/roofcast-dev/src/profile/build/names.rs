//! Translation of names of engines, formats and kernels in the tables to this project's names.
//!
//! Knows: names of AIConfigurator's tables, and of the engines' own classes and functions in them. Knows nothing
//! about times.

use roofcast_facts::precision::{Dtype, Format};

/// Weight format: its name, the dtype whose peak rate applies, and the bits per weight with scales.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Weights {
    pub(super) name: &'static str,
    pub(super) dtype: Dtype,
    pub(super) bits: f64,
}

/// Weight format of a table's `gemm_dtype` or `moe_dtype`; `None` if unknown. Weight-only formats compute in bf16.
pub(super) fn weights(dtype: &str) -> Option<Weights> {
    let weights_of = |name, dtype, format: Format| Some(Weights { name, dtype, bits: format.width.as_f64() });
    match dtype {
        "bfloat16" => weights_of("bf16", Dtype::Bf16, Format::BF16),
        "fp8" => weights_of("fp8", Dtype::Fp8, Format::FP8),
        "fp8_block" => weights_of("fp8-block", Dtype::Fp8, Format::FP8_BLOCK),
        "nvfp4" => weights_of("nvfp4", Dtype::Fp4, Format::NVFP4),
        "w4a16_mxfp4" => weights_of("mxfp4", Dtype::Bf16, Format::MXFP4),
        "w4a8_mxfp4_mxfp8" => weights_of("mxfp4-mxfp8", Dtype::Fp8, Format::MXFP4),
        "int8_wo" => Some(Weights { name: "int8", dtype: Dtype::Bf16, bits: 8.0 }),
        "int4_wo" => weights_of("gptq-int4", Dtype::Bf16, Format::GPTQ_INT4),
        "sq" => Some(Weights { name: "w8a8-int8", dtype: Dtype::Int8, bits: 8.0 }),
        _ => None,
    }
}

/// Weight format in the table of an engine. SGLang's `int8_wo` (0.5.6) computes in int8: on an H100 it is up to 1.09
/// times as fast as the peak rate of bf16 allows.
pub(super) fn weights_of(engine: &str, dtype: &str) -> Option<Weights> {
    weights(if (engine, dtype) == ("sglang", "int8_wo") { "sq" } else { dtype })
}

/// Weight format of a section, by the name from [`weights`].
pub(super) fn weights_named(name: &str) -> Option<Weights> {
    let all = [
        "bfloat16",
        "fp8",
        "fp8_block",
        "nvfp4",
        "w4a16_mxfp4",
        "w4a8_mxfp4_mxfp8",
        "int8_wo",
        "int4_wo",
        "sq",
    ];
    all.into_iter().filter_map(weights).find(|format| format.name == name)
}

/// KV-cache format of a table's `kv_cache_dtype`, with the bits per value; `None` if unknown.
pub(super) fn cache(dtype: &str) -> Option<(&'static str, f64)> {
    match dtype {
        "bfloat16" | "bf16" => Some(("bf16", 16.0)),
        "fp8" => Some(("fp8", 8.0)),
        _ => None,
    }
}

/// Name of the engine to which a folder belongs.
pub(super) fn engine(folder: &str) -> &str {
    if folder == "trtllm" { "tensorrt-llm" } else { folder }
}

/// Second text of the first pair whose first text occurs in `source`.
fn containing<'a>(source: &str, names: &[(&str, &'a str)]) -> Option<&'a str> {
    names.iter().find(|(part, _)| source.contains(part)).map(|(_, name)| *name)
}

/// Name of a kernel that no published table has, such as a user's own: in lower case with hyphens.
fn own(source: &str) -> String {
    if source.is_empty() { "unnamed".to_owned() } else { source.to_lowercase().replace(['_', ' '], "-") }
}

/// Name of a GEMM kernel. Tables with `vllm_default` or `sglang` do not name the kernel; it is PyTorch's linear layer
/// in bf16.
pub(super) fn gemm(source: &str, format: &str) -> String {
    if matches!(source, "vllm_default" | "sglang") {
        return if format == "bf16" { "cublas" } else { "unnamed" }.to_owned();
    }
    let names = [
        ("torch.nn.functional.linear", "cublas"),
        ("torch_linear", "cublas"),
        ("torch_flow", "torch-flow"),
        ("trt_flow", "trt-plugin"),
        ("deepgemm", "deepgemm"),
        ("DeepGemm", "deepgemm"),
        ("cutedsl_tgv", "cutedsl-tgv"),
        ("cutedsl", "cutedsl"),
        ("CuteDsl", "cutedsl"),
        ("flashinfer_cutlass", "flashinfer-cutlass"),
        ("FlashInferCutlass", "flashinfer-cutlass"),
        ("FlashInferFp8BlockScaledMM", "flashinfer-swapab"),
        ("Cutlass", "cutlass"),
        ("sgl_kernel", "cutlass"),
        ("triton", "triton"),
        ("Triton", "triton"),
    ];
    containing(source, &names).map_or_else(|| own(source), str::to_owned)
}

/// Name of an expert kernel. vLLM's `vllm_fused_moe` (to 0.22) is its Triton kernel, which newer versions still run
/// in bf16; in fp8, other kernels replaced it.
pub(super) fn experts(source: &str, format: &str) -> String {
    match source {
        "vllm_fused_moe" if format == "bf16" => return "triton".to_owned(),
        "vllm_fused_moe" | "vllm_mxfp4_moe" => return "fused-moe-0.19".to_owned(),
        // SGLang's tables of gpt-oss use this name for OpenAI's Triton kernels.
        "sglang_fused_moe_triton" if format == "mxfp4" => return "oai-triton".to_owned(),
        "moe_torch_flow" => return "torch-flow".to_owned(),
        _ => {}
    }
    let names = [
        ("nongated", "nongated"),
        ("modular", "flashinfer-trtllm-modular"),
        ("flashinfer_trtllm", "flashinfer-trtllm"),
        ("flashinfer_cutlass", "flashinfer-cutlass"),
        ("oaitriton", "oai-triton"),
        ("marlin", "marlin"),
        ("min_latency", "min-latency"),
        ("torch_flow_cutlass", "cutlass"),
        ("deepgemm", "deepgemm"),
        ("xpu", "xpu"),
        ("triton", "triton"),
    ];
    containing(source, &names).map_or_else(|| own(source), str::to_owned)
}

/// True for a shape whose experts have no gate and thus two matrices: Nemotron 3's, whose `mlp_hidden_act` is `relu2`
/// (`config.json` of nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16, -Super-120B-A12B and -Ultra-550B-A55B).
/// TensorRT-LLM's tables mark this in the kernel's name; other engines' tables do not.
pub(super) fn is_nongated(hidden: u32, inter: u32, top_k: u32, experts: u32) -> bool {
    (top_k, experts) == (22, 512) || (hidden, inter, top_k, experts) == (2688, 1856, 6, 128)
}

/// Name of an attention kernel. vLLM's tables of versions with only one FlashAttention do not state its number; on
/// the chips of these tables it is FlashAttention 2.
pub(super) fn attention(source: &str) -> String {
    let names = [
        ("fa2", "fa2"),
        ("fa3", "fa3"),
        ("fa4", "fa4"),
        ("vllm_flash_attn", "fa2"),
        ("trtllm", "trtllm-gen"),
        ("triton", "triton"),
        ("flashinfer", "flashinfer"),
        ("torch_flow", "torch-flow"),
        ("default", "torch-flow"),
    ];
    containing(source, &names).map_or_else(|| own(source), str::to_owned)
}

/// Name of a latent attention kernel. In these tables, SGLang's `flash_attention` is FlashAttention 3.
pub(super) fn latent(source: &str) -> String {
    if source == "flash_attention" { "fa3".to_owned() } else { attention(source) }
}

/// Name of the kernel of experts behind DeepEP's exchange. SGLang's `deepepmoe` calls DeepGEMM's grouped GEMMs.
pub(super) fn exchanged(source: &str) -> String {
    if source == "deepepmoe" { "deepgemm".to_owned() } else { own(source) }
}

/// Name of an all-reduce kernel. TensorRT-LLM's all-reduces are launched from a graph, like the `graph` ones of other
/// engines.
pub(super) fn all_reduce(source: &str) -> String {
    let names = [
        ("eager", "eager"),
        ("torch.distributed", "eager"),
        ("MNNVL", "mnnvl"),
        ("oneCCL", "oneccl"),
        ("NCCL", "nccl"),
        ("graph", "graph"),
        ("TRTLLM", "graph"),
    ];
    containing(source, &names).map_or_else(|| own(source), str::to_owned)
}
