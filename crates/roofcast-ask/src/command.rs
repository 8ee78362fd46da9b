//! An engine's command line, read as a deployment and written from one: `vllm serve …`, `python -m sglang.launch_server …`.
//!
//! Knows: the flags of the engines' parsers (`catalog/engines/*.toml`), which of them are keys of a spec, and which are
//! not modelled. Knows nothing about bounds of values, which are checked when a spec is parsed.

mod desktop;
mod environment;
mod flags;
mod llama_cpp;
mod program;
mod sglang;
mod vllm;
mod words;
mod written;

pub use desktop::ollama_context;
pub use sglang::auto_drafts;
pub use written::{CommandLine, chosen, is_assumed, whole};

use crate::spec::EngineKind;
use crate::spec::settings::Setting;
use flags::{Flags, Given};
use program::Program;
use roofcast_facts::error::{Error, Result};

/// Place of a command in error messages.
pub const PLACE: &str = "--from-command";

/// Key of the longest sequence in tokens.
const LONGEST: &str = "engine.max_model_len";

/// Settings that a command line contains.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Command {
    /// Settings as keys of a spec.
    pub settings: Vec<Setting>,
    /// Flags that change the server's behaviour and that a forecast does not model.
    pub unmodelled: Vec<String>,
    /// Flags without effect on a forecast.
    pub ignored: Vec<String>,
    /// Notes on flags without an exactly equal key, and on how such a flag was read.
    pub notes: Vec<String>,
    /// The longest sequence that the command asks for, if the engine refuses more than the model's own context.
    pub longest: Option<Longest>,
    /// True for data-parallel ranks of vLLM without expert parallelism. `settings` has them as replicas, but ranks of a
    /// model with experts divide the experts, as `parallelism.attention_dp` says.
    pub data_parallel: bool,
    /// True for `--max-model-len auto`: the engine uses the longest sequence that fits its memory.
    pub fits: bool,
    /// Slots of Ollama's server, if Ollama starts it.
    pub ollama: Option<Ollama>,
    /// True for drafts whose number SGLang chooses by the model's architecture: [`auto_drafts`].
    pub auto_drafts: bool,
}

/// Slots of the server that Ollama starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ollama {
    /// Number of slots.
    pub slots: u64,
    /// Tokens of each slot's context, at most the model's; `None` if they are [`ollama_context`].
    pub context: Option<u64>,
}

/// A longest sequence, and the flag that sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Longest {
    /// Name of the flag: `--max-model-len` or `--context-length`.
    pub flag: String,
    /// Value of the flag in tokens.
    pub tokens: u64,
}

impl Command {
    fn set(&mut self, path: &str, value: impl Into<toml::Value>) {
        self.settings.push(Setting::new(path, value));
    }
}

/// Environment variables that set unequal pipeline stages.
const PARTITIONS: [&str; 2] = ["VLLM_PP_LAYER_PARTITION", "SGLANG_PP_LAYER_PARTITION"];
/// Environment variables that allow sequences longer than the context of the model's configuration.
const LENGTHENING: [&str; 2] = ["VLLM_ALLOW_LONG_MAX_MODEL_LEN", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"];

/// Reads a command line as a shell would split it; the command may start a container. Environment variables are read if
/// they change memory or the time of a step; others of an engine are named.
pub fn read(text: &str) -> Result<Command> {
    let words = words::split(text)?;
    let Program { engine, arguments, variables, ollama, unmodelled, notes } = program::program(&words)?;
    if let Some((name, value)) =
        variables.iter().filter_map(|v| v.split_once('=')).find(|(name, _)| PARTITIONS.contains(name))
    {
        let accepted = "omitted: stages of unequal layers are not modelled";
        return Err(Error::field(PLACE, name, format!("{value:?}"), accepted));
    }
    let flags = Flags::of(engine)?;
    let mut command = Command { notes, unmodelled, ollama, ..Command::default() };
    command.set("engine.name", engine.name());
    vllm::variables(&variables, &mut command);
    let (mut words_of_server, unread) = environment::read(engine, &variables)?;
    words_of_server.extend(arguments);
    if !unread.is_empty() {
        command.notes.push(format!("environment variables that are not read: {}", unread.join(", ")));
    }
    let mut apart = Vec::new();
    let mut all = Vec::new();
    for given in flags.given(engine, &words_of_server)? {
        flags.refuse(&given)?;
        all.extend(flags.fields(given)?);
    }
    for given in all {
        match flags.key(&given) {
            Some(LONGEST) if engine == EngineKind::Vllm && ["auto", "-1"].contains(&given.value.as_str()) => {
                command.fits = true;
            }
            Some(path) if path.contains('.') => {
                let value = flags::value(path, &given)?;
                if let (LONGEST, Some(tokens)) = (path, value.as_integer().and_then(|n| n.try_into().ok())) {
                    command.longest = Some(Longest { flag: given.flag, tokens });
                }
                command.set(path, value);
            }
            Some(name) => apart.push((name.to_owned(), given)),
            None if flags.is_gone(&given.flag) => {
                command
                    .notes
                    .push(format!("{}: gone from the engine's newest version, not counted", given.flag));
            }
            None if flags.is_unmodelled(&given.flag) => once(&mut command.unmodelled, given.flag),
            None => once(&mut command.ignored, given.flag),
        }
    }
    command.longest = command.longest.filter(|_| !words.iter().any(|word| lengthens(word)));
    match engine {
        EngineKind::Vllm => vllm::read(&apart, &mut command)?,
        EngineKind::Sglang => sglang::read(&apart, &mut command)?,
        EngineKind::TensorrtLlm => tensorrt_llm(&apart, &mut command),
        EngineKind::LlamaCpp => llama_cpp::read(&apart, &mut command)?,
        EngineKind::Transformers | EngineKind::Other => {}
    }
    Ok(command)
}

/// True for a flag or an environment variable that allows sequences longer than the context of the model's
/// configuration.
fn lengthens(word: &str) -> bool {
    let flag = word.replace('_', "-");
    let flags = ["--hf-overrides", "--rope-scaling", "--rope-theta", "--json-model-override-args"];
    flags.iter().any(|f| flag.starts_with(f))
        || word.split_once('=').is_some_and(|(name, on)| LENGTHENING.contains(&name) && on != "0")
}

/// True for a word of the form `NAME=value`.
fn is_variable(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    let sane = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(sane)
}

fn once(list: &mut Vec<String>, flag: String) {
    if !list.contains(&flag) {
        list.push(flag);
    }
}

/// The last value given for a flag that is handled separately.
fn last<'a>(apart: &'a [(String, Given)], name: &str) -> Option<&'a Given> {
    apart.iter().rev().find(|(known, _)| known == name).map(|(_, given)| given)
}

/// The last value given for a flag, as a whole number of at least 1.
fn count(apart: &[(String, Given)], name: &str) -> Result<Option<i64>> {
    last(apart, name).map(|given| flags::whole(given, 1)).transpose()
}

/// The last value of a switch; false if it is not given.
fn switched(apart: &[(String, Given)], name: &str) -> bool {
    last(apart, name).is_some_and(|given| given.value == "true")
}

/// Reads the flags of `trtllm-serve` that are not keys themselves.
fn tensorrt_llm(apart: &[(String, Given)], command: &mut Command) {
    formats(apart, command);
    if switched(apart, "no_reuse") {
        command.set("engine.enable_prefix_caching", false);
    }
}

/// Reads the formats of weights and KV cache, by the engines' names.
fn formats(apart: &[(String, Given)], command: &mut Command) {
    if let Some(given) = last(apart, "quantization") {
        let name = given.value.to_lowercase();
        match name.as_str() {
            "fp8" | "mxfp4" => command.set("precision.weights", name),
            "awq" | "awq_marlin" => command.set("precision.weights", "awq-int4"),
            "gptq" | "gptq_marlin" => command.set("precision.weights", "gptq-int4"),
            "bitsandbytes" => command.set("precision.weights", "nf4"),
            _ => command.notes.push(format!("{} {name}: the checkpoint's own format is taken", given.flag)),
        }
    }
    if let Some(given) = last(apart, "kv_cache") {
        let name = given.value.to_lowercase();
        let format = match name.as_str() {
            "bfloat16" => "bf16",
            "float16" | "half" => "fp16",
            fp8 if fp8.starts_with("fp8") => "fp8",
            other => other,
        };
        command.set("precision.kv", format);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::settings::lay;
    use toml::Table;

    /// The spec that the settings of command `text` give, starting from an empty spec.
    pub(super) fn spec(text: &str) -> Table {
        lay(Table::new(), &read(text).unwrap().settings).unwrap()
    }

    #[test]
    fn a_vllm_command_is_a_deployment() {
        let text = "CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen3-32B \\\n  --tensor-parallel-size 2 --max-model-len 32k \
                    --max_num_seqs=128 --no-enable-prefix-caching --kv-cache-dtype fp8_e4m3 --quantization fp8 \
                    --gpu-memory-utilization 0.92 --port 8000 --served-model-name a b --enable-lora --enforce-eager";
        let expected = "model.name = \"Qwen/Qwen3-32B\"\nparallelism.tp = 2\nprecision.kv = \"fp8\"\n\
                        precision.weights = \"fp8\"\nprecision.online = true\nengine.name = \"vllm\"\n\
                        engine.max_model_len = 32000\nengine.max_num_seqs = 128\nengine.enforce_eager = true\n\
                        engine.enable_prefix_caching = false\nengine.gpu_memory_utilization = 0.92\n\
                        engine.enable_lora = true";
        assert_eq!(spec(text), expected.parse().unwrap());
        let command = read(text).unwrap();
        assert_eq!(command.ignored, ["--port", "--served-model-name"]);
        assert!(command.unmodelled.is_empty(), "{:?}", command.unmodelled);
    }

    #[test]
    fn experts_over_data_parallel_ranks() {
        let table = spec("vllm serve deepseek-ai/DeepSeek-V3 -tp 2 -dp 8 --enable-expert-parallel");
        assert_eq!(
            table["parallelism"],
            toml::Value::Table("tp = 2\nattention_dp = 8\nep = 16".parse().unwrap())
        );
        let table = spec("vllm serve llama-3.1-8b -dp 4");
        assert_eq!(table["parallelism"]["replicas"], 4.into());
    }

    #[test]
    fn storage_of_sglang_and_lmcache_are_named_as_not_modelled() {
        let text = "sglang serve --model-path m --enable-hierarchical-cache --hicache-storage-backend file";
        assert_eq!(read(text).unwrap().unmodelled, ["--hicache-storage-backend"]);
        let text = "sglang serve --model-path m --enable-lmcache --lmcache-config-file c.yaml";
        assert_eq!(read(text).unwrap().unmodelled, ["--enable-lmcache"]);
    }

    /// 2^35 bytes are 32 GiB. A connector that moves KV cache between servers is not a host tier.
    #[test]
    fn a_host_tier_is_read_from_its_size_or_its_connector() {
        let table = spec("vllm serve m --kv-offloading-size 32");
        assert_eq!(table["engine"]["kv_offloading_size"], 32.0.into());
        let config = "{\"kv_connector\": \"OffloadingConnector\", \"kv_connector_extra_config\": \
                      {\"cpu_bytes_to_use\": 34359738368, \"eviction_policy\": \"arc\"}}";
        let table = spec(&format!("vllm serve m --kv-transfer-config '{config}'"));
        assert_eq!(table["engine"]["kv_offloading_size"], 32.0.into());
        assert_eq!(table["engine"]["kv_offloading_eviction_policy"], "arc".into());
        let other =
            read("vllm serve m --kv-transfer-config '{\"kv_connector\": \"NixlConnector\"}'").unwrap();
        assert_eq!(other.unmodelled, ["--kv-transfer-config"]);
        let wrong = read("vllm serve m --kv-transfer-config '{\"kv_connector\": \"OffloadingConnector\"}'");
        assert!(wrong.unwrap_err().to_string().contains("cpu_bytes_to_use"));
    }

    #[test]
    fn drafts_are_read_from_their_json() {
        let drafts = "'{\"model\": \"meta-llama/Llama-3.2-1B\", \"num_speculative_tokens\": 4}'";
        let table = spec(&format!("vllm serve m --speculative-config {drafts}"));
        assert_eq!(table["engine"]["speculative"]["draft_model"], "meta-llama/Llama-3.2-1B".into());
        assert_eq!(table["engine"]["speculative"]["num_speculative_tokens"], 4.into());
        let table = spec("vllm serve m -sc.method ngram --speculative-config.num_speculative_tokens 3");
        assert_eq!(table["engine"]["speculative"]["method"], "ngram".into());
        assert_eq!(table["engine"]["speculative"]["num_speculative_tokens"], 3.into());
        let table = spec("vllm serve m -sc.method eagle3 -sc.synthetic_acceptance_length 2.5");
        assert_eq!(table["engine"]["speculative"]["acceptance_length"], 2.5.into());
    }

    #[test]
    fn an_sglang_command_is_a_deployment() {
        let text = "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --dp 8 --enable-dp-attention \
                    --ep-size 8 --mem-fraction-static 0.85 --chunked-prefill-size -1 --schedule-policy lpm \
                    --max-running-requests 256 --trust-remote-code --host 0.0.0.0";
        let table = spec(text);
        let parallelism = "tp = 1\nattention_dp = 8\nep = 8".parse().unwrap();
        assert_eq!(table["parallelism"], toml::Value::Table(parallelism));
        let engine = "name = \"sglang\"\ngpu_memory_utilization = 0.85\n\
                      chunked_prefill_size = -1\nschedule_policy = \"lpm\"\nmax_num_seqs = 256";
        assert_eq!(table["engine"], toml::Value::Table(engine.parse().unwrap()));
        let command = read(text).unwrap();
        assert_eq!(command.ignored, ["--trust-remote-code", "--host"]);
        assert!(command.notes[0].contains("--mem-fraction-static"), "{:?}", command.notes);
    }

    #[test]
    fn experts_on_many_ranks_are_read() {
        let text = "vllm serve m -dp 32 -tp 2 -ep -dcp 2 --all2all-backend deepep_low_latency --enable-dbo --enable-eplb \
                    --eplb-config '{\"num_redundant_experts\": 32}'";
        let expected = "all2all_backend = \"deepep_low_latency\"\nenable_dbo = true\nenable_eplb = true\n\
                        num_redundant_experts = 32";
        assert_eq!(spec(text)["engine"]["experts"], toml::Value::Table(expected.parse().unwrap()));
        assert_eq!(spec(text)["engine"]["decode_context_parallel_size"], 2.into());
        let command_of = |flags: &str| read(&format!("vllm serve m -ep --all2all-backend {flags}")).unwrap();
        assert_eq!(command_of("pplx -dp 32").unmodelled, ["--all2all-backend"]);
        assert!(command_of("deepep_low_latency -tp 8").notes[0].contains("--all2all-backend"));
        let text = "sglang serve --model-path m --tp 16 --dp 16 --enable-dp-attention --moe-a2a-backend deepep \
                    --deepep-mode low_latency --enable-two-batch-overlap --enable-eplb --ep-num-redundant-experts 32";
        assert_eq!(spec(text)["engine"]["experts"], toml::Value::Table(expected.parse().unwrap()));
        assert_eq!(spec(text)["parallelism"]["ep"], 16.into());
    }

    #[test]
    fn containers_and_shells_run_the_same_servers() {
        let plain = spec("vllm serve Qwen/Qwen3-32B -tp 2");
        for text in [
            "docker run --runtime nvidia --gpus all -v cache:/cache --env \"HF_TOKEN=x\" -p 8000:8000 --ipc=host \
             vllm/vllm-openai:v0.19.0 --model Qwen/Qwen3-32B -tp 2",
            "sudo docker run -itd --rm --shm-size 16g rocm/vllm:latest vllm serve Qwen/Qwen3-32B -tp 2",
            "podman run --device nvidia.com/gpu=all --entrypoint bash vllm/vllm-openai -c 'vllm serve Qwen/Qwen3-32B -tp 2'",
            "docker run --gpus all vllm/vllm-openai Qwen/Qwen3-32B --tensor-parallel-size 2",
        ] {
            assert_eq!(spec(text), plain, "{text}");
        }
        let text = "docker run --gpus all lmsysorg/sglang:latest python3 -m sglang.launch_server --model-path m --tp 4";
        assert_eq!(spec(text)["parallelism"]["tp"], 4.into());
        let refused = read("docker run --gpus all lmsysorg/sglang:latest").unwrap_err().to_string();
        assert!(refused.contains("sglang serve"), "{refused}");
    }

    #[test]
    fn a_trtllm_serve_command_is_a_deployment() {
        let text = "trtllm-serve meta-llama/Llama-3.1-8B-Instruct --backend pytorch --tp_size 2 --max_batch_size 64 \
                    --max_num_tokens 4096 --max_seq_len 8192 --kv_cache_free_gpu_memory_fraction 0.85 --host 0.0.0.0";
        let expected = "model.name = \"meta-llama/Llama-3.1-8B-Instruct\"\nparallelism.tp = 2\n\
                        engine.name = \"tensorrt-llm\"\nengine.max_num_seqs = 64\nengine.max_num_batched_tokens = 4096\n\
                        engine.max_model_len = 8192\nengine.gpu_memory_utilization = 0.85";
        assert_eq!(spec(text), expected.parse().unwrap());
    }

    #[test]
    fn what_moves_weights_or_cache_is_refused_by_name() {
        for (text, name) in [
            ("vllm serve m -tp 8 -pcp 8", "-pcp"),
            ("sglang serve --model-path m --offload-group-size 4", "--offload-group-size"),
            ("VLLM_PP_LAYER_PARTITION=30,34 vllm serve m -pp 2", "VLLM_PP_LAYER_PARTITION"),
            (
                "docker run -e VLLM_PP_LAYER_PARTITION=30,34 vllm/vllm-openai --model m",
                "VLLM_PP_LAYER_PARTITION",
            ),
        ] {
            let refused = read(text).unwrap_err().to_string();
            assert!(refused.contains(name) && refused.contains("omitted"), "{text}: {refused}");
        }
        for text in
            ["vllm serve m --cpu-offload-gb 10 -pcp 1", "sglang serve --model-path m --cpu-offload-gb 10"]
        {
            assert_eq!(spec(text)["engine"]["cpu_offload_gb"], 10.0.into());
        }
    }

    #[test]
    fn flags_of_older_versions_are_noted() {
        let command =
            read("sglang serve --model-path m --enable-ep-moe --cuda-graph-max-bs 64 --tp 8").unwrap();
        assert!(
            command.notes.len() == 2 && command.notes.iter().all(|note| note.contains("gone")),
            "{command:?}"
        );
        let table = spec(
            "sglang serve --model-path m --mamba-scheduler-strategy extra_buffer --mamba-ssm-dtype bfloat16",
        );
        assert_eq!(table["engine"]["mamba_radix_cache_strategy"], "extra_buffer".into());
    }

    #[test]
    fn what_no_engine_has_is_refused_with_what_is_near() {
        let refused = |text: &str| read(text).unwrap_err().to_string();
        for (text, says) in [
            ("vllm serve m --max-num-seq-s 3", "--max-num-seqs"),
            ("vllm serve m --max-num-seqs", "without a value"),
            ("vllm serve m --max-num-seqs many", "a whole number"),
            ("vllm serve m n", "\"n\""),
            ("vllm serve 'm", "quote"),
            ("tgi run m", "vllm serve"),
            ("", "vllm serve"),
            ("python -m sglang.launch_server --tp 8 --dp 3 --enable-dp-attention", "a divisor of 8"),
            ("vllm serve m --speculative-config {", "JSON"),
            ("mlx_lm.server --model mlx-community/Qwen3-8B-4bit --port 8080", "MLX's"),
            ("python3 -m mlx_lm generate --model m --prompt a", "llama-server"),
        ] {
            assert!(refused(text).contains(says), "{text}: {}", refused(text));
        }
    }

    #[test]
    fn every_key_of_the_lists_is_a_key_of_a_spec_or_read_apart() {
        let apart: Vec<&str> =
            "data_parallel expert_parallel quantization quantization_config kv_cache kv_transfer all2all \
             deepep_mode cudagraph_mode cudagraph_sizes pool_tokens no_reuse speculative_config spec_model \
             spec_method spec_tokens spec_steps spec_topk limit_mm tensor_parallel attention_data_parallel \
             dp_attention context slots gpu_layers cpu_moe override_tensor cache_k cache_v unified flash \
             tensor_split split_mode spec_type"
                .split(' ')
                .collect();
        for engine in [EngineKind::Vllm, EngineKind::Sglang, EngineKind::TensorrtLlm, EngineKind::LlamaCpp] {
            let flags = Flags::of(engine).unwrap();
            for (flag, path) in flags.keys() {
                let known = crate::spec::keys::at(path).is_some();
                assert!(known || apart.contains(&path), "{flag}: {path}");
                assert!(flags.parses(flag), "{flag} is a key, but no flag");
            }
        }
    }
}
