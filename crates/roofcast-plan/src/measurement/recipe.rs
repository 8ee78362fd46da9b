//! Launch settings of public benchmarks that the rows of their results do not state.
//!
//! Knows: a recipe selects rows and cites its source; the first recipe that matches a row applies. Knows nothing
//! about measured values.

use super::Measurement;
use roofcast_ask::parallelism::RequestedParallelism;
use roofcast_ask::spec::{EngineKind, EngineSpec, Frontend};
use roofcast_facts::error::{Error, Result};
use roofcast_facts::precision::Dtype;
use serde::Deserialize;
use std::sync::OnceLock;

/// Text of the embedded recipes.
const TEXT: &str = include_str!("../../catalog/recipes.toml");
/// Largest accepted token budget of a step.
const MOST_TOKENS: u64 = 1 << 24;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recipes {
    recipe: Vec<Recipe>,
    queue: Vec<QueuedRequests>,
    cold: Vec<Cold>,
    release: Vec<Release>,
    in_process: Vec<InProcess>,
}

/// Source whose programs call the engine in process, without a server, for every kind of load.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct InProcess {
    /// Web address that shows the in-process calls.
    from: String,
    source: String,
}

/// Number of requests that a source queues at once, by prompt and output tokens.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct QueuedRequests {
    /// Web address that states the number.
    from: String,
    source: String,
    engine: String,
    num_prompts: Vec<[u64; 3]>,
}

/// Rows of runs that began without a warm-up.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cold {
    /// Web address that shows the missing warm-up.
    from: String,
    source: String,
    /// Versions in the spelling of the rows, without the image's name.
    versions: Vec<String>,
}

/// Release of the engine for rows that state no version, or a date as version.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Release {
    /// Web address that states the release.
    from: String,
    source: String,
    engine: String,
    version: String,
}

/// Settings for matching rows. An absent selector matches every row; an absent setting is left to the engine's
/// default.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recipe {
    /// Web address that states the settings.
    from: String,
    sources: Vec<String>,
    engine: String,
    of_version: Option<String>,
    #[serde(default)]
    models: Vec<String>,
    #[serde(default)]
    hardware: Vec<String>,
    weights: Option<String>,
    /// Prompt and output tokens of matching rows.
    lengths: Option<[u64; 2]>,
    tp: Option<u64>,
    ep: Option<u64>,
    tp_below: Option<u64>,
    concurrency_from: Option<u64>,
    concurrency_below: Option<u64>,
    max_num_batched_tokens: Option<Budget>,
    max_num_seqs: Option<u64>,
    scheduler_recv_interval: Option<u64>,
    batch_wait_timeout_iters: Option<u64>,
    batch_wait_max_tokens_ratio: Option<f64>,
    attention_dp_enable_balance: Option<bool>,
    attention_dp_time_out_iters: Option<u64>,
    enforce_eager: Option<bool>,
    /// Dtype of activations, if it is not the weight format's own.
    activations: Option<Dtype>,
    max_cudagraph_capture_size: Option<u64>,
    async_scheduling: Option<bool>,
    stream_interval: Option<u64>,
    #[serde(default)]
    frontend: Frontend,
    /// Seconds from the end of an answer until the client's next request reaches the server, if known.
    return_s: Option<f64>,
    /// Number of different prompts that the client repeats, if it is small.
    prompts: Option<u64>,
    /// True if attention runs data-parallel over the tensor-parallel ranks of the row.
    #[serde(default)]
    enable_attention_dp: bool,
}

/// Token budget of a step, as multiples of prompt, output and concurrency plus a constant.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Budget {
    inputs: u64,
    outputs: u64,
    concurrencies: u64,
    tokens: u64,
    least: u64,
}

impl Recipe {
    fn matches(&self, row: &Measurement) -> bool {
        let named = |list: &[String], value: &str| list.is_empty() || list.iter().any(|l| l == value);
        let lengths = [row.input, row.output].map(|l| l.map_or(0, |l| l.max));
        let tp = row.parallelism.tp.unwrap_or(1);
        let users = row.concurrency.unwrap_or(0);
        self.sources.contains(&row.source)
            && self.engine == row.engine
            && self.of_version.as_ref().is_none_or(|v| *v == super::version(&row.version))
            && named(&self.models, &row.model)
            && named(&self.hardware, &row.hardware)
            && self.weights.as_ref().is_none_or(|w| *w == row.weights)
            && self.lengths.is_none_or(|l| l == lengths)
            && self.tp.is_none_or(|t| tp == t)
            && self.ep.is_none_or(|e| row.parallelism.ep.unwrap_or(1) == e)
            && self.tp_below.is_none_or(|t| tp < t)
            && self.concurrency_from.is_none_or(|c| users >= c)
            && self.concurrency_below.is_none_or(|c| users < c)
    }
}

impl Budget {
    fn of(self, row: &Measurement) -> u64 {
        let tokens = |l: Option<super::Lengths>| l.map_or(0, |l| l.max);
        let parts = [
            self.inputs.saturating_mul(tokens(row.input)),
            self.outputs.saturating_mul(tokens(row.output)),
            self.concurrencies.saturating_mul(row.concurrency.unwrap_or(0)),
            self.tokens,
        ];
        parts.into_iter().fold(0, u64::saturating_add).max(self.least).clamp(1, MOST_TOKENS)
    }
}

fn recipes() -> Result<&'static Recipes> {
    static PARSED: OnceLock<Result<Recipes>> = OnceLock::new();
    let parse = || toml::from_str(TEXT).map_err(|e| Error::toml("catalog/recipes.toml", TEXT, "", &e));
    PARSED.get_or_init(parse).as_ref().map_err(Clone::clone)
}

fn find(row: &Measurement) -> Option<&'static Recipe> {
    recipes().ok()?.recipe.iter().find(|r| r.matches(row))
}

/// Release of the row's engine, if the row's version has no order and the release is known.
pub(super) fn release(row: &Measurement) -> Option<&'static str> {
    let is_of_row = |r: &&Release| r.source == row.source && r.engine == row.engine;
    Some(recipes().ok()?.release.iter().find(is_of_row)?.version.as_str())
}

/// Web address of settings that the row does not state.
pub(super) fn source(row: &Measurement) -> Option<&'static str> {
    Some(find(row)?.from.as_str())
}

/// Dtype of activations that the row states or its launch script sets, if it is not the weight format's own.
pub(super) fn activations(row: &Measurement) -> Option<Dtype> {
    let weight_only = row.settings.weight_only.then_some(Dtype::Bf16);
    weight_only.or_else(|| find(row)?.activations)
}

/// Number of different prompts that the row's client repeats, if it is small.
pub(super) fn prompts(row: &Measurement) -> Option<u64> {
    find(row)?.prompts
}

/// Seconds from the end of an answer until the client's next request reaches the server, if known.
pub(super) fn return_s(row: &Measurement) -> Option<f64> {
    find(row)?.return_s
}

/// Number of requests that the row's run queued at once, if known.
pub(super) fn num_prompts(row: &Measurement) -> Option<u64> {
    let lengths = [row.input?.max, row.output?.max];
    let count_of = |[input, output, count]: &[u64; 3]| (lengths == [*input, *output]).then_some(*count);
    let is_of_row = |q: &&QueuedRequests| q.source == row.source && q.engine == row.engine;
    recipes().ok()?.queue.iter().find(is_of_row)?.num_prompts.iter().find_map(count_of)
}

/// True if the row's run began on a cold server.
pub(super) fn cold(row: &Measurement) -> bool {
    let version = super::version(&row.version);
    let is_cold = |c: &Cold| c.source == row.source && c.versions.contains(&version);
    recipes().is_ok_and(|recipes| recipes.cold.iter().any(is_cold))
}

/// Degrees of parallelism of the row, with attention data parallelism from its recipe.
pub(super) fn parallelism(row: &Measurement) -> RequestedParallelism {
    let written = row.parallelism;
    if written.attention_dp.is_none_or(|ranks| ranks == 1) && find(row).is_some_and(|r| r.enable_attention_dp)
    {
        return RequestedParallelism { tp: Some(1), attention_dp: written.tp, ..written };
    }
    written
}

/// Adds the settings of the row's recipe to `spec`, if there is a recipe.
pub(super) fn fill(row: &Measurement, spec: &mut EngineSpec) {
    if recipes().is_ok_and(|recipes| recipes.in_process.iter().any(|p| p.source == row.source)) {
        spec.served = Some(false);
    }
    // A server of llama.cpp is started with as many slots as it gets users, `llama-batched-bench` as it has sequences.
    if EngineKind::of(&row.engine) == EngineKind::LlamaCpp {
        spec.max_num_seqs = spec.max_num_seqs.or(row.concurrency);
    }
    let Some(recipe) = find(row) else { return };
    spec.max_num_batched_tokens =
        recipe.max_num_batched_tokens.map(|b| b.of(row)).or(spec.max_num_batched_tokens);
    spec.max_num_seqs = recipe.max_num_seqs.or(spec.max_num_seqs);
    spec.sglang.scheduler_recv_interval = recipe.scheduler_recv_interval;
    spec.tensorrt_llm.batch_wait_timeout_iters = recipe.batch_wait_timeout_iters;
    spec.tensorrt_llm.batch_wait_max_tokens_ratio = recipe.batch_wait_max_tokens_ratio;
    spec.tensorrt_llm.attention_dp_enable_balance = recipe.attention_dp_enable_balance;
    spec.tensorrt_llm.attention_dp_time_out_iters = recipe.attention_dp_time_out_iters;
    spec.enforce_eager = recipe.enforce_eager;
    spec.vllm.async_scheduling = recipe.async_scheduling;
    spec.max_cudagraph_capture_size = recipe.max_cudagraph_capture_size;
    spec.stream_interval = recipe.stream_interval;
    spec.frontend = recipe.frontend;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::read;

    fn spec(source: &str, engine: &str, model: &str, chip: &str, tp: u64, users: u64) -> EngineSpec {
        let header = "source,kind,model,hardware,tp,engine,weights,input_len,output_len,concurrency";
        let line = format!("{source},closed_loop,{model},{chip},{tp},{engine},fp8,1024,1024,{users}");
        let row = read("f.csv", &format!("{header}\n{line}\n")).unwrap().remove(0);
        assert_eq!(row.recipe().is_some(), source != "mine");
        row.options(None).engine
    }

    #[test]
    fn every_recipe_says_where_it_stands() {
        let Recipes { recipe, queue, cold, in_process, .. } = recipes().unwrap();
        assert!(recipe.len() > 10 && recipe.iter().all(|r| !r.sources.is_empty()));
        let from = recipe.iter().map(|r| &r.from).chain(queue.iter().map(|q| &q.from));
        let from = from.chain(cold.iter().map(|c| &c.from)).chain(in_process.iter().map(|p| &p.from));
        assert!(from.into_iter().all(|from| from.contains(" at ")));
    }

    /// NVIDIA's rows, of all engines, are measured through Dynamo and a compiled client; other sources' rows are not.
    #[test]
    fn nvidias_rows_have_a_compiled_server_and_client() {
        let path = |source: &str, engine: &str| {
            let header = "source,kind,model,hardware,engine,weights,input_len,output_len,concurrency";
            let line = format!("{source},closed_loop,m,h100-sxm,{engine},fp8,1024,1024,8");
            let row = read("f.csv", &format!("{header}\n{line}\n")).unwrap().remove(0);
            (row.options(None).engine.frontend, row.return_s())
        };
        for engine in ["vllm", "sglang", "tensorrt-llm"] {
            assert_eq!(path("nvidia_lab", engine), (Frontend::Dynamo, Some(0.0005)), "{engine}");
            assert_eq!(path("mine", engine), (Frontend::Asyncio, None), "{engine}");
        }
    }

    /// AccelMark calls its engines in process, also in closed loops.
    #[test]
    fn programs_that_call_their_engines_have_no_server() {
        assert_eq!(spec("mine", "vllm", "m", "h100-sxm", 1, 1).served, Some(true));
        let row = "source,kind,model,hardware,engine,weights,input_len,output_len,concurrency\n\
                   accelmark,closed_loop,m,h100-sxm,vllm,bf16,470,176,1\n";
        assert_eq!(read("f.csv", row).unwrap()[0].options(None).engine.served, Some(false));
    }

    #[test]
    fn releases_stand_for_versions_without_an_order() {
        let version = |source: &str, written: &str| {
            let header = "source,kind,model,hardware,engine,engine_version,weights,input_len,output_len";
            let line = format!("{source},prefill,m,rtx-4090,vllm,{written},fp8,100,1");
            let row = read("f.csv", &format!("{header}\n{line}\n")).unwrap().remove(0);
            row.options(None).engine.version
        };
        assert_eq!(version("noooop_4090_prefill", "2024-05/06").as_deref(), Some("0.4.2"));
        assert_eq!(version("noooop_4090_prefill", "0.5.1").as_deref(), Some("0.5.1"));
        assert_eq!(version("mine", "nightly").as_deref(), Some("nightly"));
        assert_eq!(version("mine", ""), None);
        let releases = &recipes().unwrap().release;
        assert!(releases.iter().all(|r| roofcast_facts::version::Version::parse(&r.version).is_some()));
    }

    #[test]
    fn early_runs_had_no_warm_up() {
        let cold = |source: &str, version: &str| {
            let header =
                "source,kind,model,hardware,engine,engine_version,weights,input_len,output_len,concurrency";
            let line = format!("{source},closed_loop,m,h200-sxm,tensorrt-llm,{version},fp8,1024,1024,4");
            read("f.csv", &format!("{header}\n{line}\n")).unwrap().remove(0).is_cold()
        };
        assert!(cold("inferencex", "") && cold("inferencex", "x/release:1.1.0rc2.post2"));
        assert!(!cold("inferencex", "1.2.0rc6.post2") && !cold("mine", ""));
    }

    /// NVIDIA's overview of TensorRT-LLM 1.0: attention is data-parallel over eight ranks, for MoE models only.
    #[test]
    fn a_rows_benchmark_says_how_many_requests_it_sends() {
        let row = |model: &str| {
            let header = "source,kind,model,hardware,tp,engine,engine_version,weights,input_len,output_len";
            let line = format!(
                "trtllm_docs,offline_max_throughput,{model},h100-sxm,8,tensorrt-llm,1.0 (PyTorch backend),fp8,128,2048"
            );
            read("f.csv", &format!("{header}\n{line}\n")).unwrap().remove(0)
        };
        let qwen = row("Qwen/Qwen3-235B-A22B");
        let llama = row("meta-llama/Llama-3.1-405B-Instruct");
        assert_eq!((qwen.num_prompts(), llama.num_prompts()), (Some(3000), Some(3000)));
        let ranks = |row: &Measurement| {
            let p = row.options(None).parallelism;
            (p.tp, p.attention_dp)
        };
        assert_eq!((ranks(&qwen), ranks(&llama)), ((Some(1), Some(8)), (Some(8), Some(1))));
        assert_eq!(llama.options(None).engine.max_num_seqs, Some(4096));
    }

    #[test]
    fn a_rows_settings_are_those_of_its_launch_script() {
        let llama = "meta-llama/Llama-3.1-70B-Instruct";
        let waiting = spec("inferencex", "tensorrt-llm", llama, "h200-sxm", 4, 16);
        // The budget is one prompt, one output and 200 tokens.
        assert_eq!(waiting.max_num_batched_tokens, Some(2248));
        assert_eq!(
            (waiting.tensorrt_llm.batch_wait_timeout_iters, waiting.tensorrt_llm.batch_wait_max_tokens_ratio),
            (Some(20), Some(0.9))
        );
        assert_eq!(
            spec("inferencex", "tensorrt-llm", llama, "h200-sxm", 8, 16)
                .tensorrt_llm
                .batch_wait_timeout_iters,
            None
        );
        let r1 = |users| spec("inferencex", "sglang", "deepseek-ai/DeepSeek-R1", "b200-sxm", 8, users);
        assert_eq!([8, 16].map(|users| r1(users).sglang.scheduler_recv_interval), [Some(10), Some(30)]);
        assert_eq!(
            spec("nvidia_lab", "vllm", llama, "h100-sxm", 2, 8).max_num_batched_tokens,
            Some(1024 + 2012)
        );
        // InferenceX's earliest scripts for vLLM all schedule asynchronously, but differ in captured graph sizes.
        let oss = "openai/gpt-oss-120b";
        let h100 = "h100-sxm";
        for (model, chip, captured) in [
            (oss, h100, Some(2048)),
            (oss, "mi355x", Some(8192)),
            (llama, "b200-sxm", Some(0)),
            (llama, h100, None),
        ] {
            let settings = spec("inferencemax_raw", "vllm", model, chip, 8, 64);
            assert_eq!(
                (settings.max_cudagraph_capture_size, settings.vllm.async_scheduling),
                (captured, Some(true)),
                "{chip}"
            );
        }
        // Versions before the generator's release computed prompts one by one: a budget of one prompt, 1000 tokens
        // and the number of requests in flight.
        let header =
            "source,kind,model,hardware,engine,engine_version,weights,input_len,output_len,concurrency";
        let early = format!("nvidia_lab,closed_loop,{llama},h100-sxm,tensorrt-llm,1.0.0rc3,fp8,1024,128,8");
        let row = read("f.csv", &format!("{header}\n{early}\n")).unwrap().remove(0);
        assert_eq!(row.options(None).engine.max_num_batched_tokens, Some(1024 + 1000 + 8));
        let later = spec("nvidia_lab", "tensorrt-llm", llama, "h100-sxm", 2, 8);
        assert_eq!(later.max_num_batched_tokens, Some(1024 + 2012));
        // Rows of sources without a recipe get no settings.
        assert_eq!(spec("mine", "vllm", llama, "h100-sxm", 2, 8).max_num_batched_tokens, None);
    }
}
