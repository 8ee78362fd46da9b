//! Measured serving performance: each row is one point, measured on a real engine and real hardware.
//!
//! Knows: the columns of a measurements CSV, and the deployment of each row. Knows nothing about forecasts.

pub mod benchmark;
mod carried;
mod kind;
mod recipe;
pub mod results;
mod rows;
pub(crate) mod settings;

pub use carried::carried;
pub use kind::{MeasurementKind, Metrics, TpotMean};
pub use rows::{read, read_each};
pub(crate) use settings::RowSettings;

use roofcast_ask::deployment::DeploymentOptions;
use roofcast_ask::parallelism::RequestedParallelism;
use roofcast_ask::spec::{EngineKind, EngineSpec, PoolSpec, PrecisionSpec, ReservationKind, SchedulerKind};
use roofcast_ask::workload::{Arrivals, Prefix, Workload};
use roofcast_facts::error::{Error, Result};
use roofcast_facts::version::Version;

/// Engines whose points can be forecast. Engines whose scheduler is not modelled are forecast with vLLM's scheduler.
const ENGINES: [&str; 10] = [
    "vllm",
    "sglang",
    "tensorrt-llm",
    "llama.cpp",
    "transformers",
    "fastertransformer",
    "atom",
    "mlx-lm",
    "tgi",
    "lmdeploy",
];

/// Token counts of requests, uniformly distributed from `min` to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    /// Fewest tokens.
    pub min: u64,
    /// Most tokens.
    pub max: u64,
}

impl Lengths {
    /// Returns lengths from 0.8 to 1 times the stated one, which is the distribution that InferenceX draws.
    fn as_in_inferencex(self) -> Lengths {
        Lengths { min: (self.max * 4 / 5).clamp(1, self.min), max: self.max }
    }

    /// Mean of the distribution.
    pub fn mean(self) -> f64 {
        (self.min as f64 + self.max as f64) / 2.0
    }
}

/// One measured point.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// Name of the row.
    pub id: String,
    /// Source of the row, such as a benchmark's name.
    pub source: String,
    /// Kind of measurement.
    pub kind: MeasurementKind,
    /// Hugging Face id of the model.
    pub model: String,
    /// Catalog id of the accelerator.
    pub hardware: String,
    /// Degrees of parallelism; in disaggregated rows, of one decode worker.
    pub parallelism: RequestedParallelism,
    /// Prefill pool and decode pool of a disaggregated row.
    pub(crate) pools: Option<[PoolSpec; 2]>,
    /// Name of the engine, as in `vllm`.
    pub engine: String,
    /// Version of the engine in the source's spelling; empty if unknown.
    pub version: String,
    /// Weight format.
    pub weights: String,
    /// KV-cache format; empty for the engine's default.
    pub kv: String,
    /// Prompt tokens of a request.
    pub input: Option<Lengths>,
    /// Output tokens of a request.
    pub output: Option<Lengths>,
    /// Context tokens of each sequence in a decode step.
    pub context: Option<u64>,
    /// Requests in flight, or sequences of the batch.
    pub concurrency: Option<u64>,
    /// Requests per second.
    pub request_rate: Option<f64>,
    /// Measured metrics.
    pub measured: Metrics,
    /// True if the times are medians, false if they are means.
    pub median: bool,
    /// Definition of the mean TPOT.
    pub tpot_mean: TpotMean,
    /// The load itself, if the row carries it; else the load follows from the other fields.
    pub workload: Option<Box<Workload>>,
    /// Sentences on how the row's file was read.
    pub notes: Vec<String>,
    /// Settings of server and client.
    pub(crate) settings: RowSettings,
}

/// Beginning of ids of models whose publisher's fp8 checkpoints have one scale per 128 × 128 weights: Qwen3-32B-FP8.
const BLOCK_SCALED: &str = "Qwen/Qwen3";

impl Measurement {
    /// Rows with an equal group (model, accelerator, engine, weights) are points of one deployment, across sources.
    pub fn group(&self) -> String {
        [&self.model, &self.hardware, &self.engine, &self.weights].map(String::as_str).join(" | ")
    }

    /// True if all prompts precede the first decode: in FasterTransformer, and in benchmarks that time phases.
    pub(crate) fn has_phases(&self) -> bool {
        self.kind == MeasurementKind::StaticBatchPhases || self.engine == "fastertransformer"
    }

    /// Number of sequences of a step or static batch; `None` for other loads, in which requests may have to wait.
    pub(crate) fn batch(&self) -> Option<u64> {
        let together = self.kind == MeasurementKind::DecodeStep || self.has_phases();
        together.then(|| self.concurrency.unwrap_or(1))
    }

    /// Prompt and output tokens of the longest request.
    pub(crate) fn longest(&self) -> u64 {
        let tokens = |l: Option<Lengths>| l.map_or(0, |l| l.max);
        tokens(self.input).saturating_add(tokens(self.output)).max(self.context.unwrap_or(0))
    }

    /// Web address of the recipe that supplies settings which the row does not state, if known.
    pub fn recipe(&self) -> Option<&'static str> {
        recipe::source(self)
    }

    /// Prefix that prompts share, if the server caches prefixes: of a repeated prompt all but the last token.
    pub(crate) fn prefix(&self) -> Option<Prefix> {
        let input = self.input.filter(|_| self.settings.keeps_prefixes())?;
        let repeated = || Some([input.min.checked_sub(1)?, recipe::prompts(self)?]);
        let [length, count] = self.settings.shared_prefix.or_else(repeated)?;
        (length > 0 && length < input.min).then_some(Prefix { length, count, share: 1.0, skew: 0.0 })
    }

    /// Refuses an engine that no forecast is made for.
    pub(crate) fn check_engine(&self) -> Result<()> {
        if ENGINES.contains(&self.engine.as_str()) {
            return Ok(());
        }
        Err(Error::field(&self.id, "engine", format!("{:?}", self.engine), ENGINES.join(", ")))
    }

    /// Loads the traces that the row's load names; `read` returns the contents of a file.
    ///
    /// # Errors
    /// A file is not read, or no trace.
    pub fn load<E: From<Error>>(&mut self, read: impl Fn(&str) -> Result<String, E>) -> Result<(), E> {
        match &mut self.workload {
            Some(workload) => workload.load(&self.id, read),
            None => Ok(()),
        }
    }

    /// True if prompts of the row may begin with tokens that the server has in its prefix cache.
    pub(crate) fn may_hit(&self) -> bool {
        let shares = |load: &Workload| {
            load.prefix.is_some()
                || matches!(load.arrivals, Arrivals::Sessions { .. } | Arrivals::Trace { .. })
        };
        self.settings.keeps_prefixes() && self.workload.as_deref().is_some_and(shares)
    }

    /// Options of the row's deployment; `checkpoint` is the quantization of the model's own checkpoint. If the row
    /// has no KV format, it is 8 bits in TensorRT-LLM with 4- and 8-bit weights and in vLLM servers with ModelOpt's.
    pub fn options(&self, checkpoint: Option<&str>) -> DeploymentOptions {
        let weights = self.weights.as_str();
        let quantized = checkpoint.is_some();
        let in_blocks = checkpoint == Some("fp8-block") || self.model.starts_with(BLOCK_SCALED);
        let eight = match EngineKind::of(&self.engine) {
            EngineKind::TensorrtLlm => ["fp8", "nvfp4", "mxfp4"].contains(&weights),
            EngineKind::Vllm => {
                self.kind.served() && (weights == "nvfp4" || weights == "fp8" && !quantized && !in_blocks)
            }
            _ => false,
        };
        let kv = match self.kv.as_str() {
            "" if eight => Some("fp8".to_owned()),
            "" => None,
            named => Some(named.to_owned()),
        };
        DeploymentOptions {
            precision: PrecisionSpec {
                weights: Some(if weights == "fp8" && in_blocks { "fp8-block" } else { weights })
                    .filter(|w| !w.is_empty())
                    .map(str::to_owned),
                online: false,
                activations: recipe::activations(self),
                kv,
            },
            parallelism: recipe::parallelism(self),
            engine: self.engine_spec(),
            power_limit_w: self.settings.power_limit_w,
            ..DeploymentOptions::default()
        }
    }

    /// Seconds from the end of an answer until the client's next request reaches the server, if known.
    pub(crate) fn return_s(&self) -> Option<f64> {
        recipe::return_s(self)
    }

    /// Number of requests that the run queued at once, if its settings or its benchmark's documents state it.
    pub(crate) fn num_prompts(&self) -> Option<u64> {
        self.settings.num_prompts.or_else(|| recipe::num_prompts(self))
    }

    /// True if the run began on a cold server, so that the warm-up is part of the mean TTFT.
    pub fn is_cold(&self) -> bool {
        recipe::cold(self)
    }

    /// Version of the engine: the row's, or the known release if the row's has no order.
    fn release(&self) -> Option<String> {
        let written = version(&self.version);
        if Version::parse(&written).is_none()
            && let Some(release) = recipe::release(self)
        {
            return Some(release.to_owned());
        }
        Some(written).filter(|v| !v.is_empty())
    }

    fn engine_spec(&self) -> EngineSpec {
        // Some sources append settings to the version, as in `…(max_num_batched_tokens=64,max_num_seqs=32)`.
        let setting = |key: &str| {
            let after = self.version.split_once(&format!("{key}="))?.1;
            after.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok().filter(|n| *n > 0)
        };
        let apart = self.has_phases();
        let scheduler = match EngineKind::of(&self.engine) {
            _ if apart => SchedulerKind::Static,
            // Disaggregated rows use vLLM's scheduler for every engine, because no other one is recorded.
            _ if self.pools.is_some() => SchedulerKind::Vllm,
            EngineKind::Sglang => SchedulerKind::Sglang,
            EngineKind::TensorrtLlm => SchedulerKind::TensorrtLlm,
            _ => SchedulerKind::Vllm,
        };
        // TensorRT-LLM does not split prompts, so its users set the token budget to one prompt plus all decodes.
        let decodes = self.concurrency.unwrap_or(UNKNOWN_DECODES);
        let longest = self.input.map_or(0, |i| i.max) + decodes;
        let whole = (scheduler == SchedulerKind::TensorrtLlm).then(|| longest.clamp(8192, 1 << 24));
        // Some sources append the AWQ kernel to the version, as in `2024-05/06 AWQ use_exllama_v2`.
        let kernels = [("AWQ gemm", "awq-gemm"), ("AWQ use_exllama_v2", "exllama-v2")];
        let kernel = kernels.iter().find(|(written, _)| self.version.contains(written));
        let mut spec = EngineSpec {
            name: Some(self.engine.clone()),
            version: self.release(),
            quantization_kernel: kernel.map(|(_, name)| (*name).to_owned()),
            served: Some(self.kind.served()),
            scheduler: Some(scheduler),
            max_num_batched_tokens: setting("max_num_batched_tokens").or(whole),
            max_num_seqs: setting("max_num_seqs"),
            reservation: if apart { ReservationKind::Oracle } else { ReservationKind::default() },
            ..EngineSpec::default()
        };
        recipe::fill(self, &mut spec);
        self.settings.fill(&mut spec);
        spec
    }
}

/// Decodes assumed in a step if a row states no concurrency: TensorRT-LLM's default `max_batch_size`.
const UNKNOWN_DECODES: u64 = 2048;

/// Removes the image's name, a leading `v` and settings from a version: `vllm/vllm-openai:v0.11.2` becomes `0.11.2`.
fn version(text: &str) -> String {
    let bare = text.rsplit(':').next().unwrap_or_default();
    let bare = bare.split('(').next().unwrap_or_default().trim();
    bare.strip_prefix('v').unwrap_or(bare).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "id,kind,model,hardware,gpus,tp,engine,engine_version,weights,input_len,input_len_min,output_len,concurrency,ttft_ms,tpot_ms,stat\n";

    #[test]
    fn a_row_becomes_a_deployments_options() {
        let line =
            "a,closed_loop,m,h100-sxm,2,2,tensorrt-llm,x/y:v0.11.2,fp8,1024,819,1024,64,71.5,14.9,median\n";
        let rows = read("f.csv", &format!("{HEADER}{line}")).unwrap();
        let row = &rows[0];
        assert_eq!((row.input.unwrap().mean(), row.median), (921.5, true));
        let options = row.options(None);
        assert_eq!(options.precision.kv.as_deref(), Some("fp8"));
        assert_eq!(options.engine.version.as_deref(), Some("0.11.2"));
        assert_eq!(options.parallelism.tp, Some(2));
    }

    /// fp8 is block-scaled if the model's or its publisher's own fp8 checkpoint is; vLLM's cache is then unquantized.
    #[test]
    fn fp8_in_blocks() {
        let precision = |model: &str, checkpoint| {
            let line = format!("a,closed_loop,{model},h100-sxm,2,2,vllm,,fp8,100,,100,8,71.5,14.9,mean\n");
            let row = read("f.csv", &format!("{HEADER}{line}")).unwrap().remove(0);
            let precision = row.options(checkpoint).precision;
            [precision.weights, precision.kv].map(Option::unwrap_or_default)
        };
        assert_eq!(precision("deepseek-ai/DeepSeek-R1", Some("fp8-block")), ["fp8-block", ""]);
        assert_eq!(precision("Qwen/Qwen3-32B", None), ["fp8-block", ""]);
        assert_eq!(precision("meta-llama/Llama-3.1-70B-Instruct", None), ["fp8", "fp8"]);
    }

    /// A batch computes its prompts before its decodes in FasterTransformer, and in benchmarks that time phases.
    #[test]
    fn batches_whose_phases_are_apart() {
        let scheduler = |kind: &str, engine: &str| {
            let line = format!("a,{kind},m,h100-sxm,2,2,{engine},,bf16,100,,100,8,71.5,14.9,mean\n");
            read("f.csv", &format!("{HEADER}{line}")).unwrap()[0].options(None).engine.scheduler()
        };
        assert_eq!(scheduler("static_batch_phases", "vllm"), SchedulerKind::Static);
        assert_eq!(scheduler("offline_static_batch", "fastertransformer"), SchedulerKind::Static);
        assert_eq!(scheduler("offline_static_batch", "vllm"), SchedulerKind::Vllm);
    }

    /// 8-bit caches that rows do not state: TensorRT-LLM's, and vLLM's for ModelOpt (`kv_cache_quant_algo` FP8).
    #[test]
    fn caches_that_rows_do_not_name() {
        let kv = |kind: &str, engine: &str, weights: &str, quantized: bool| {
            let checkpoint = quantized.then_some("fp8");
            let line = format!("a,{kind},m,h100-sxm,2,2,{engine},,{weights},100,,100,8,71.5,14.9,mean\n");
            read("f.csv", &format!("{HEADER}{line}")).unwrap()[0].options(checkpoint).precision.kv
        };
        let eight = Some("fp8".to_owned());
        assert_eq!(kv("closed_loop", "tensorrt-llm", "fp8", true), eight);
        assert_eq!(kv("closed_loop", "vllm", "nvfp4", false), eight);
        assert_eq!(kv("closed_loop", "vllm", "fp8", false), eight);
        // No 8-bit cache: DeepSeek's own fp8, an offline run, another engine, and 16-bit weights.
        assert_eq!(kv("closed_loop", "vllm", "fp8", true), None);
        assert_eq!(kv("offline_static_batch", "vllm", "fp8", false), None);
        assert_eq!(kv("closed_loop", "sglang", "fp8", false), None);
        assert_eq!(kv("closed_loop", "vllm", "bf16", false), None);
    }

    /// Users make a closed loop and a rate an open one; lengths of prompts alone do not say what was measured.
    #[test]
    fn columns_imply_the_kind_of_a_server_s_run() {
        let row = |columns: &str, cells: &str| {
            let text = format!("model,hardware,{columns},tpot_ms\nllama-3.1-8b,h100-sxm,{cells},9\n");
            read("f.csv", &text).map(|rows| rows[0].kind).map_err(|error| error.to_string())
        };
        let lengths = "input_len,output_len";
        assert_eq!(row(&format!("{lengths},concurrency"), "512,128,8"), Ok(MeasurementKind::ClosedLoop));
        assert_eq!(row(&format!("{lengths},request_rate"), "512,128,2"), Ok(MeasurementKind::OpenLoop));
        for (columns, cells) in [("input_len", "512"), (lengths, "512,128"), ("kind,concurrency", "loop,8")] {
            let error = row(columns, cells).unwrap_err();
            assert!(error.contains("f.csv:2") && error.contains("closed_loop, open_loop"), "{error}");
        }
    }

    #[test]
    fn wrong_cells_name_line_and_column() {
        let line = "a,closed_loop,m,h100-sxm,2,2,vllm,,fp8,many,,1024,64,71.5,14.9,median\n";
        let error = read("f.csv", &format!("{HEADER}{line}")).unwrap_err().to_string();
        assert!(
            error.contains("f.csv:2") && error.contains("input_len") && error.contains("many"),
            "{error}"
        );
        let error = read("f.csv", "a,b\n1,2\n").unwrap_err().to_string();
        assert!(error.contains("`model`") && error.contains("kind"), "{error}");
        let settings = "2024 chunked-prefill(max_num_batched_tokens=64,max_num_seqs=32)";
        let line = format!("a,prefill,m,h100-sxm,1,1,vllm,\"{settings}\",fp8,100,,1,1,71.5,,\n");
        let spec = read("f.csv", &format!("{HEADER}{line}")).unwrap()[0].options(None).engine;
        assert_eq!((spec.max_num_batched_tokens, spec.max_num_seqs), (Some(64), Some(32)));
        assert_eq!(spec.version.as_deref(), Some("2024 chunked-prefill"));
    }

    #[test]
    fn a_version_may_name_the_kernel() {
        let kernel = |version: &str| {
            let line = format!("a,prefill,m,rtx-4090,1,1,transformers,{version},awq-int4,100,,1,1,71.5,,\n");
            read("f.csv", &format!("{HEADER}{line}")).unwrap()[0].options(None).engine.quantization_kernel
        };
        let kernels = ["2024-05/06 AWQ gemm", "2024-05/06 AWQ use_exllama_v2", "4.40.0"].map(kernel);
        assert_eq!(kernels.each_ref().map(|k| k.as_deref()), [Some("awq-gemm"), Some("exllama-v2"), None]);
    }
}
