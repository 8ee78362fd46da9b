//! Flags of engines, clients and planners that have a flag of this program for a counterpart.
//!
//! Knows: names of vLLM, SGLang, `vllm bench serve`, aiperf and AIConfigurator, as aliases where the meaning is equal and as
//! hints where it is not. Knows nothing about whole command lines of engines, which `--from-command` reads.

/// Aliases of a flag: names of other programs with an equal meaning.
pub(super) fn aliases(flag: &str) -> &'static [&'static str] {
    match flag {
        "tp" => &["tensor-parallel-size", "tp-size"],
        "pp" => &["pipeline-parallel-size", "pp-size"],
        "kv" => &["kv-cache-dtype"],
        "rate" => &["request-rate", "qps"],
        "requests" => &["num-prompts", "num-requests", "request-count"],
        "input-len" => &["random-input-len", "isl"],
        "output-len" => &["random-output-len", "osl"],
        "count" => &["gpus", "num-gpus"],
        "max-accelerators" => &["max-gpus", "total-gpus"],
        "engine-version" => &["version"],
        // The names of `bench`, which bounds single requests.
        "ttft-p99" => &["slo-ttft"],
        "tpot-p99" => &["slo-tpot"],
        "e2el-p99" => &["slo-e2el"],
        _ => &[],
    }
}

/// The flags to use for a flag that this program does not have; `None` for a flag without a counterpart.
pub(crate) fn counterpart(flag: &str) -> Option<&'static str> {
    Some(match flag {
        "draft" | "speculative-model" | "draft-model-path" => {
            "--draft-model MODEL with --num-speculative-tokens N"
        }
        "max-price" | "budget" | "max-cost" => {
            "none: a plan minimises the price (--minimise cost_per_hour), and catalog --price filters accelerators by it"
        }
        "data-parallel-size" | "dp" | "dp-size" => "--replicas N, or for expert models --attention-dp N",
        "dtype" | "quantization" => "--weights FORMAT, as in bf16, fp8, nvfp4, gptq-int4",
        "sla" | "slo" | "ttft" | "tpot" | "itl" | "e2el" => "--ttft-p99 MS, --tpot-p99 MS, --e2el-p99 MS",
        "count" | "gpus" | "num-gpus" => "--max-accelerators N: a plan finds the number",
        "max-count" | "max-chips" | "max-devices" | "max-accelerator" | "max-num-gpus" => {
            "--max-accelerators N (plan), --count N (simulate, limits, capacity)"
        }
        "batch" | "batch-size" => {
            "--batch N (limits, capacity), --concurrency N or --max-num-seqs N (simulate, plan)"
        }
        "context" | "seq-len" | "context-length" | "ctx-size" => {
            "--context N (limits, capacity), --input-len N and --output-len N, or --max-model-len N (simulate, plan)"
        }
        "prompt-len" | "prompt-tokens" | "input-tokens" => "--input-len N, or for limits --prefill N",
        "gen-len" | "max-tokens" | "output-tokens" | "max-new-tokens" => "--output-len N",
        "gpu" | "gpu-type" | "system" | "accelerator" | "device" => "--hardware NAME, as in h100-sxm",
        "users" | "concurrency" | "max-concurrency" => {
            "--batch N (limits), --users N (capacity, simulate, plan)"
        }
        "host-cache-size"
        | "disk-cache-size"
        | "max-local-cpu-size"
        | "max-local-disk-size"
        | "remote-url"
        | "hicache-storage-backend" => {
            "--kv-offloading-size GIB with --kv-storage-size GIB (vLLM), or --enable-hierarchical-cache (SGLang); tiers of \
             TensorRT-LLM and LMCache, and SGLang's storage, are not modelled"
        }
        "rate" | "request-rate" | "qps" => {
            "--rate N of simulate, plan and bench; limits and capacity have no traffic"
        }
        _ => return None,
    })
}
