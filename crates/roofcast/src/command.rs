//! An engine's command line, read as a deployment: `vllm serve …`, `python -m sglang.launch_server …`.
//!
//! Knows: the flags of the engines' parsers (`catalog/engines/*.toml`), which are keys of a spec, and which a
//! forecast does not model. Bounds of values are checked where a spec is parsed.

mod flags;
mod sglang;
mod vllm;
mod words;

use crate::error::{Error, Result};
use crate::spec::settings::Setting;
use flags::{Flags, Given};

/// Place of a command in error messages.
pub const PLACE: &str = "--from-command";

/// The key of the longest sequence.
const LONGEST: &str = "engine.max_model_len";

/// Contents of a command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// Keys of a spec.
    pub settings: Vec<Setting>,
    /// Flags that change the server's behaviour and that a forecast does not model.
    pub unmodelled: Vec<String>,
    /// Flags without effect on a forecast.
    pub ignored: Vec<String>,
    /// Notes on settings that have no key of exactly their meaning, and how they were read.
    pub notes: Vec<String>,
    /// The longest sequence asked for, where the engine refuses more than the model's own context.
    pub longest: Option<Longest>,
    /// True for `--max-model-len auto`: the engine uses the longest sequence that fits its memory.
    pub fits: bool,
}

/// A longest sequence, by its flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Longest {
    /// `--max-model-len`, `--context-length`.
    pub flag: String,
    /// Value of the flag in tokens.
    pub tokens: u64,
}

impl Command {
    fn set(&mut self, path: &str, value: impl Into<toml::Value>) {
        self.settings.push(Setting::new(path, value));
    }
}

/// An engine whose command lines are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServeCommand {
    Vllm,
    Sglang,
}

/// Reads a command line as a shell would split it; environment variables before the command are skipped.
pub fn read(text: &str) -> Result<Command> {
    let words = words::split(text)?;
    let variables = words.iter().take_while(|word| is_variable(word)).count();
    let (engine, arguments) = engine(&words[variables..])?;
    let flags = Flags::of(engine)?;
    let (settings, unmodelled, ignored, notes) = (vec![], vec![], vec![], vec![]);
    let mut command = Command { settings, unmodelled, ignored, notes, longest: None, fits: false };
    command.set("engine.name", if engine == ServeCommand::Vllm { "vllm" } else { "sglang" });
    let mut apart = Vec::new();
    for given in flags.given(engine, arguments)? {
        match flags.key(&given.flag) {
            Some(LONGEST)
                if engine == ServeCommand::Vllm && ["auto", "-1"].contains(&given.value.as_str()) =>
            {
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
            None if flags.is_unmodelled(&given.flag) => once(&mut command.unmodelled, given.flag),
            None => once(&mut command.ignored, given.flag),
        }
    }
    command.longest = command.longest.filter(|_| !words.iter().any(|word| lengthens(word)));
    match engine {
        ServeCommand::Vllm => vllm::read(&apart, &mut command)?,
        ServeCommand::Sglang => sglang::read(&apart, &mut command)?,
    }
    Ok(command)
}

/// The engine that a command starts, and the arguments that it gets.
fn engine(words: &[String]) -> Result<(ServeCommand, &[String])> {
    let program = words.first().map_or("", |word| word.rsplit('/').next().unwrap_or(word));
    let second = words.get(1).map_or("", String::as_str);
    let third = words.get(2).map_or("", String::as_str);
    let python = program.starts_with("python") && second == "-m";
    match (program, second, third) {
        ("vllm", "serve", _) => Ok((ServeCommand::Vllm, &words[2..])),
        ("sglang", "serve", _) => Ok((ServeCommand::Sglang, &words[2..])),
        (_, _, "vllm.entrypoints.openai.api_server") if python => Ok((ServeCommand::Vllm, &words[3..])),
        (_, _, "sglang.launch_server") if python => Ok((ServeCommand::Sglang, &words[3..])),
        _ => {
            let found = words.iter().take(3).cloned().collect::<Vec<_>>().join(" ");
            let accepted = "vllm serve …, python -m vllm.entrypoints.openai.api_server …, python -m \
                            sglang.launch_server … or sglang serve …";
            Err(Error::field(PLACE, "the command", format!("{found:?}"), accepted))
        }
    }
}

/// True if a word allows more than the model's context: vLLM's and SGLang's variables for it, and flags that change
/// the model's configuration.
fn lengthens(word: &str) -> bool {
    let flag = word.replace('_', "-");
    let flags = ["--hf-overrides", "--rope-scaling", "--rope-theta", "--json-model-override-args"];
    let variables = ["VLLM_ALLOW_LONG_MAX_MODEL_LEN", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"];
    flags.iter().any(|f| flag.starts_with(f))
        || word.split_once('=').is_some_and(|(name, on)| variables.contains(&name) && on != "0")
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

/// The last value as a whole number from 1.
fn count(apart: &[(String, Given)], name: &str) -> Result<Option<i64>> {
    last(apart, name).map(|given| flags::whole(given, 1)).transpose()
}

/// The last value of a switch; false if it is not given.
fn switched(apart: &[(String, Given)], name: &str) -> bool {
    last(apart, name).is_some_and(|given| given.value == "true")
}

/// Formats of weights and cache, by the engines' names.
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

    /// The spec that a command's settings give, starting from an empty one.
    fn spec(text: &str) -> Table {
        lay(Table::new(), &read(text).unwrap().settings).unwrap()
    }

    #[test]
    fn a_vllm_command_is_a_deployment() {
        let text = "CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen3-32B \\\n  --tensor-parallel-size 2 --max-model-len 32k \
                    --max_num_seqs=128 --no-enable-prefix-caching --kv-cache-dtype fp8_e4m3 --quantization fp8 \
                    --gpu-memory-utilization 0.92 --port 8000 --served-model-name a b --enable-lora --enforce-eager";
        let expected = "model.name = \"Qwen/Qwen3-32B\"\nparallelism.tp = 2\nprecision.kv = \"fp8\"\n\
                        precision.weights = \"fp8\"\nengine.name = \"vllm\"\n\
                        engine.max_model_len = 32000\nengine.max_num_seqs = 128\nengine.enforce_eager = true\n\
                        engine.enable_prefix_caching = false\nengine.gpu_memory_utilization = 0.92";
        assert_eq!(spec(text), expected.parse().unwrap());
        let command = read(text).unwrap();
        assert_eq!(command.ignored, ["--port", "--served-model-name"]);
        assert_eq!(command.unmodelled, ["--enable-lora"]);
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
    fn drafts_are_read_from_their_json() {
        let drafts = "'{\"model\": \"meta-llama/Llama-3.2-1B\", \"num_speculative_tokens\": 4}'";
        let table = spec(&format!("vllm serve m --speculative-config {drafts}"));
        assert_eq!(table["engine"]["speculative"]["draft_model"], "meta-llama/Llama-3.2-1B".into());
        assert_eq!(table["engine"]["speculative"]["num_speculative_tokens"], 4.into());
        let table = spec("vllm serve m -sc.method ngram --speculative-config.num_speculative_tokens 3");
        assert_eq!(table["engine"]["speculative"]["draft_cost"], 0.0.into());
        assert_eq!(table["engine"]["speculative"]["num_speculative_tokens"], 3.into());
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
    fn what_no_engine_has_is_refused_with_what_is_near() {
        let refused = |text: &str| read(text).unwrap_err().to_string();
        for (text, says) in [
            ("vllm serve m --max-num-seq-s 3", "--max-num-seqs"),
            ("vllm serve m --max-num-seqs", "without a value"),
            ("vllm serve m --max-num-seqs many", "a whole number"),
            ("vllm serve m n", "\"n\""),
            ("vllm serve 'm", "quote"),
            ("ollama run m", "vllm serve"),
            ("", "vllm serve"),
            ("python -m sglang.launch_server --tp 8 --dp 3 --enable-dp-attention", "a divisor of 8"),
            ("vllm serve m --speculative-config {", "JSON"),
        ] {
            assert!(refused(text).contains(says), "{text}: {}", refused(text));
        }
    }

    #[test]
    fn every_key_of_the_lists_is_a_key_of_a_spec_or_read_apart() {
        let apart = [
            "data_parallel",
            "expert_parallel",
            "quantization",
            "kv_cache",
            "speculative_config",
            "spec_model",
            "spec_method",
            "spec_tokens",
            "limit_mm",
            "tensor_parallel",
            "attention_data_parallel",
            "dp_attention",
        ];
        for engine in [ServeCommand::Vllm, ServeCommand::Sglang] {
            let flags = Flags::of(engine).unwrap();
            for (flag, path) in flags.keys() {
                let known = crate::spec::keys::KEYS.iter().any(|key| key.path == path);
                assert!(known || apart.contains(&path), "{flag}: {path}");
                assert!(flags.parses(flag), "{flag} is a key, but no flag");
            }
        }
    }
}
