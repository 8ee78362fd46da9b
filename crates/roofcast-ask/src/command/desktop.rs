//! Programs for the desktop that start llama.cpp's server themselves: `ollama run`, `ollama serve` and `lms load`.
//!
//! Knows: the flags of llama-server that are equal to such a command, and Ollama's context by memory. Knows nothing about
//! the meaning of the flags, or about the step down to a smaller context that Ollama takes after a load runs out of memory.
//!
//! Sources: of Ollama 0.33.2 `server/routes.go` (contexts by memory), `llm/server.go` (contexts above the model's),
//! `llm/llama_server.go` (flags of llama-server), `server/sched.go` (queue, batches), `envconfig/config.go` (variables and
//! their defaults), `cmd/cmd.go` (flags); lmstudio.ai/docs/cli/load.

use super::{Ollama, PLACE};
use roofcast_facts::error::{Error, Result};
use roofcast_facts::units::Bytes;

/// The server that a program starts.
pub(super) struct LlamaServer {
    /// Arguments of llama-server.
    pub(super) arguments: Vec<String>,
    /// Slots of Ollama's server and their context; `None` for LM Studio.
    pub(super) ollama: Option<Ollama>,
    /// Variables that change what a server does and that a forecast does not count.
    pub(super) unmodelled: Vec<String>,
    /// Notes on how the command was read.
    pub(super) notes: Vec<String>,
}

/// Contexts of Ollama without a setting, with the memory of all accelerators from which each holds.
const OLLAMA_CONTEXTS: [(Bytes, u64); 3] =
    [(Bytes(47 << 30), 262_144), (Bytes(23 << 30), 32_768), (Bytes::ZERO, 4096)];
/// Tokens of Ollama's smallest automatic batch, which it raises to 2048 if much memory is free.
const OLLAMA_BATCH: u64 = 512;
/// Context in tokens of LM Studio without a setting.
const LMS_CONTEXT: u64 = 4096;
/// Flags of `ollama run` with a value.
const OLLAMA_VALUES: [&str; 9] = [
    "--dimensions",
    "--draft",
    "--format",
    "--height",
    "--keepalive",
    "--negative",
    "--seed",
    "--steps",
    "--width",
];
/// Flags of `ollama run` without a value, or with one behind `=`.
const OLLAMA_SWITCHES: [&str; 10] = [
    "--experimental",
    "--experimental-websearch",
    "--experimental-yolo",
    "--hidethinking",
    "--insecure",
    "--nowordwrap",
    "--think",
    "--truncate",
    "--verbose",
    "--yes",
];
/// Variables that Ollama's server or client reads, also in older versions.
const OLLAMA_VARIABLES: [&str; 29] = [
    "OLLAMA_AUTH",
    "OLLAMA_CONTEXT_LENGTH",
    "OLLAMA_DEBUG",
    "OLLAMA_DEBUG_LOG_REQUESTS",
    "OLLAMA_EDITOR",
    "OLLAMA_FLASH_ATTENTION",
    "OLLAMA_GPU_OVERHEAD",
    "OLLAMA_HOME",
    "OLLAMA_HOST",
    "OLLAMA_INTEL_GPU",
    "OLLAMA_KEEP_ALIVE",
    "OLLAMA_KV_CACHE_TYPE",
    "OLLAMA_LIBRARY_PATH",
    "OLLAMA_LLM_LIBRARY",
    "OLLAMA_LOAD_TIMEOUT",
    "OLLAMA_MAX_LOADED_MODELS",
    "OLLAMA_MAX_QUEUE",
    "OLLAMA_MODELS",
    "OLLAMA_MULTIUSER_CACHE",
    "OLLAMA_NEW_ENGINE",
    "OLLAMA_NOHISTORY",
    "OLLAMA_NOPRUNE",
    "OLLAMA_NO_CLOUD",
    "OLLAMA_NUM_PARALLEL",
    "OLLAMA_ORIGINS",
    "OLLAMA_REMOTES",
    "OLLAMA_SCHED_SPREAD",
    "OLLAMA_TMPDIR",
    "OLLAMA_VULKAN",
];
/// Formats of llama.cpp's cache that are not quantized.
const UNQUANTIZED: [&str; 3] = ["f32", "f16", "bf16"];
/// Variables of Ollama's server that move models or memory.
const OLLAMA_UNMODELLED: [&str; 4] =
    ["OLLAMA_GPU_OVERHEAD", "OLLAMA_LLM_LIBRARY", "OLLAMA_LOAD_TIMEOUT", "OLLAMA_MAX_LOADED_MODELS"];
/// Flags of `lms load` with a value.
const LMS_VALUES: [&str; 6] = ["--context-length", "--gpu", "--host", "--identifier", "--parallel", "--ttl"];

/// Tokens of a slot's context that Ollama chooses for accelerators with `memory` in all.
pub fn ollama_context(memory: Bytes) -> u64 {
    let fitting = OLLAMA_CONTEXTS.iter().find(|(least, _)| memory >= *least);
    fitting.map_or(LMS_CONTEXT, |(_, tokens)| *tokens)
}

/// Reads `ollama run MODEL` or `ollama serve`; `variables` are the environment variables of Ollama's server, each as
/// `NAME=value`.
pub(super) fn ollama(words: &[String], variables: &[String]) -> Result<LlamaServer> {
    let serves = words.first().is_some_and(|word| word == "serve" || word == "start");
    let mut flags = Vec::new();
    if !serves {
        let known = Known { values: &OLLAMA_VALUES, switches: Some(&OLLAMA_SWITCHES) };
        let model = options("ollama run", words.get(1..).unwrap_or_default(), &known)?.model;
        flags.push(("-m", if model.contains(':') { model } else { format!("{model}:latest") }));
    } else if let Some(word) = words.get(1) {
        let accepted =
            "no flags and no words behind ollama serve: environment variables in front of it set the server";
        return Err(Error::field(PLACE, "ollama serve", format!("{word:?}"), accepted));
    }
    let variable = |name: &str| {
        let values = variables.iter().rev().find_map(|v| v.strip_prefix(name)?.strip_prefix('='));
        // Ollama strips quotes, and an empty variable is none.
        values.map(|value| value.trim_matches(['"', '\'', ' ']).to_owned()).filter(|value| !value.is_empty())
    };
    let number = |name: &str| count(name, variable(name).filter(|value| value != "0"));
    let slots = number("OLLAMA_NUM_PARALLEL")?.unwrap_or(1);
    let context = number("OLLAMA_CONTEXT_LENGTH")?;
    flags.push(("-np", slots.to_string()));
    if let Some(tokens) = context {
        flags.push(("-c", tokens.saturating_mul(slots).to_string()));
    }
    flags.push(("-b", OLLAMA_BATCH.to_string()));
    let flash = variable("OLLAMA_FLASH_ATTENTION").map(flash_attention).transpose()?;
    if let Some(format) = variable("OLLAMA_KV_CACHE_TYPE").map(|format| format.to_lowercase()) {
        if flash == Some("off") && is_quantized(&format) {
            let accepted = "f16 with OLLAMA_FLASH_ATTENTION=0: Ollama starts llama-server with -ctv and -fa off, which ends \
                            with \"V cache quantization requires flash_attn\"; versions of Ollama with their own runner \
                            warned and used f16";
            return Err(Error::field(PLACE, "OLLAMA_KV_CACHE_TYPE", format!("{format:?}"), accepted));
        }
        flags.extend([("-ctk", format.clone()), ("-ctv", format)]);
    }
    flags.extend(flash.map(|mode| ("-fa", mode.to_owned())));
    let mut server = server(flags, variables.iter().filter_map(|given| unknown(given)).collect());
    server.ollama = Some(Ollama { slots, context });
    if context.is_none() {
        server.notes.push(
            "the context is Ollama's own: 4096 tokens below 23 GiB of accelerators, 32768 from there, 262144 from 47, at \
             most the model's: OLLAMA_CONTEXT_LENGTH=8192 before the command sets it"
                .to_owned(),
        );
    }
    if number("OLLAMA_MAX_QUEUE")?.is_some() {
        let note = "OLLAMA_MAX_QUEUE counts requests that wait for a model to load; of a loaded model all wait for a slot";
        server.notes.push(note.to_owned());
    }
    if variable("OLLAMA_KEEP_ALIVE").is_some_and(|time| is_no_time(&time)) {
        server.unmodelled.push("OLLAMA_KEEP_ALIVE=0, which loads the model for each request".to_owned());
    }
    let unmodelled = OLLAMA_UNMODELLED.into_iter().filter(|name| variable(name).is_some());
    server.unmodelled.extend(unmodelled.map(str::to_owned));
    Ok(server)
}

/// Value of `-fa` for a value of `OLLAMA_FLASH_ATTENTION`, which Go reads as a boolean.
fn flash_attention(value: String) -> Result<&'static str> {
    match value.to_lowercase().as_str() {
        "1" | "t" | "true" => Ok("on"),
        "0" | "f" | "false" => Ok("off"),
        _ => Err(Error::field(PLACE, "OLLAMA_FLASH_ATTENTION", format!("{value:?}"), "1 or 0")),
    }
}

/// True for a format of llama.cpp's cache with fewer than 16 bits a value.
pub(super) fn is_quantized(format: &str) -> bool {
    !UNQUANTIZED.contains(&format)
}

/// The note on a variable by a name of Ollama's that it does not read, which is probably a typing error.
fn unknown(given: &str) -> Option<String> {
    let name = given.split_once('=')?.0;
    if !name.starts_with("OLLAMA_") || OLLAMA_VARIABLES.contains(&name) {
        return None;
    }
    let near = nearest(name, &OLLAMA_VARIABLES);
    Some(format!("Ollama has no variable {name}, which is not counted; did you mean {near}?"))
}

/// The name of `all` that is most similar to `name`.
fn nearest<'a>(name: &str, all: &[&'a str]) -> &'a str {
    let likeness = |other: &&&str| strsim::normalized_damerau_levenshtein(name, other);
    all.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b))).copied().unwrap_or_default()
}

/// True for a duration of nothing, as `0`, `0s` or `0m`.
fn is_no_time(time: &str) -> bool {
    time.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse() == Ok(0.0)
}

/// Reads `lms load MODEL`, of LM Studio. A model without a format is read in q4_k_m, unless its checkpoint has one.
pub(super) fn lms(words: &[String]) -> Result<LlamaServer> {
    let Options { model, values } =
        options("lms load", words, &Known { values: &LMS_VALUES, switches: None })?;
    let value =
        |name: &str| values.iter().rev().find(|(flag, _)| flag == name).map(|(_, value)| value.clone());
    if let Some(share) = value("--gpu").filter(|share| !["max", "1", "1.0"].contains(&share.as_str())) {
        let accepted = "max: no forecast counts layers on the host";
        return Err(Error::field(PLACE, "--gpu", format!("{share:?}"), accepted));
    }
    let context = count("--context-length", value("--context-length"))?;
    let stored = model.contains("gpt-oss") || model.contains(':');
    let model = match model.split_once('@') {
        Some((_, "")) => {
            let accepted = "a model, or a model and its format, as qwen3-8b@q4_k_m";
            return Err(Error::field(PLACE, "lms load", format!("{model:?}"), accepted));
        }
        Some((name, format)) => format!("{name}:{format}"),
        None if stored => model,
        None => format!("{model}:q4_k_m"),
    };
    let mut flags = vec![("-m", model), ("-c", context.unwrap_or(LMS_CONTEXT).to_string())];
    if let Some(slots) = count("--parallel", value("--parallel"))? {
        flags.push(("-np", slots.to_string()));
        flags.push(("-kvu", String::new()));
    }
    let note = format!("a context of {LMS_CONTEXT} tokens, LM Studio's own: --context-length sets another");
    Ok(server(flags, context.is_none().then_some(note).into_iter().collect()))
}

/// llama-server with `flags`; an empty value stands for none.
fn server(flags: Vec<(&str, String)>, notes: Vec<String>) -> LlamaServer {
    let words = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    let arguments = words.filter(|word| !word.is_empty()).collect();
    LlamaServer { arguments, ollama: None, unmodelled: Vec::new(), notes }
}

/// The model and the flags with values of a command.
struct Options {
    model: String,
    values: Vec<(String, String)>,
}

/// Flags of a command.
struct Known<'a> {
    /// Flags with a value.
    values: &'a [&'a str],
    /// Flags without a value; `None` if flags beyond `values` are not checked.
    switches: Option<&'a [&'a str]>,
}

/// Reads the words behind `command`, whose flags are `known`.
fn options(command: &str, words: &[String], known: &Known) -> Result<Options> {
    let mut model = None;
    let mut values = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (name, value) =
            word.split_once('=').map_or((word.as_str(), None), |(n, v)| (n, Some(v.to_owned())));
        if known.values.contains(&name) {
            let value = value.or_else(|| words.next().cloned()).unwrap_or_default();
            values.push((name.to_owned(), value));
        } else if let Some(switches) = known.switches.filter(|all| is_unknown(word, name, all)) {
            let near = nearest(name, &[known.values, switches].concat());
            let accepted = format!("a flag of {command}'s; did you mean {near}?");
            return Err(Error::field(PLACE, name, "no flag of this command", accepted));
        } else if !word.starts_with('-') && model.is_none() {
            model = Some(word.clone());
        }
    }
    let absent = || Error::field(PLACE, command, "without a model", "the name of a model behind it");
    Ok(Options { model: model.ok_or_else(absent)?, values })
}

/// True for a word with the flag `name` that `switches` lack.
fn is_unknown(word: &str, name: &str, switches: &[&str]) -> bool {
    word.starts_with("--") && word != "--" && !switches.contains(&name)
}

/// A whole number of at least 1.
fn count(name: &str, value: Option<String>) -> Result<Option<u64>> {
    let Some(value) = value else { return Ok(None) };
    let number = value.parse::<u64>().ok().filter(|n| (1..=1 << 30).contains(n));
    number.map(Some).ok_or_else(|| Error::field(PLACE, name, format!("{value:?}"), "a whole number from 1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::read;
    use crate::command::tests::spec;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn arguments(server: Result<LlamaServer>) -> String {
        server.unwrap().arguments.join(" ")
    }

    #[test]
    fn ollama_starts_one_slot_with_its_context() {
        let plain = ollama(&words("run --verbose --keepalive 5m llama3.1 hello there"), &[]);
        assert!(plain.as_ref().unwrap().notes[0].contains("OLLAMA_CONTEXT_LENGTH"));
        assert_eq!(plain.as_ref().unwrap().ollama, Some(Ollama { slots: 1, context: None }));
        assert_eq!(arguments(plain), "-m llama3.1:latest -np 1 -b 512");
        let variables = words("OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_NUM_PARALLEL=4 OLLAMA_KV_CACHE_TYPE=q8_0");
        let set = ollama(&words("run qwen3:8b"), &variables);
        assert!(set.as_ref().unwrap().notes.is_empty());
        assert_eq!(set.as_ref().unwrap().ollama, Some(Ollama { slots: 4, context: Some(8192) }));
        assert_eq!(arguments(set), "-m qwen3:8b -np 4 -c 32768 -b 512 -ctk q8_0 -ctv q8_0");
        let refused = |command: &str, variables: &str| {
            ollama(&words(command), &words(variables)).err().unwrap().to_string()
        };
        let wrong = refused("run qwen3:8b", "OLLAMA_NUM_PARALLEL=many");
        assert!(wrong.contains("OLLAMA_NUM_PARALLEL") && wrong.contains("a whole number"), "{wrong}");
        assert!(refused("serve", "OLLAMA_FLASH_ATTENTION=perhaps").contains("1 or 0"));
        assert!(refused("run --verbose", "").contains("without a model"));
    }

    #[test]
    fn ollama_serves_any_model_by_its_variables() {
        let variables =
            "OLLAMA_NUM_PARALLEL=4 OLLAMA_FLASH_ATTENTION=0 OLLAMA_MAX_QUEUE=64 OLLAMA_KEEP_ALIVE=0m";
        let served = ollama(&words("serve"), &words(variables));
        let read = served.as_ref().unwrap();
        assert_eq!(read.ollama, Some(Ollama { slots: 4, context: None }));
        assert!(read.notes[1].contains("OLLAMA_MAX_QUEUE"), "{:?}", read.notes);
        assert!(read.unmodelled[0].contains("OLLAMA_KEEP_ALIVE"), "{:?}", read.unmodelled);
        assert_eq!(arguments(served), "-np 4 -b 512 -fa off");
        let forever = ollama(
            &words("serve"),
            &words("OLLAMA_KEEP_ALIVE=-1 OLLAMA_NUM_PARALLEL=0 OLLAMA_CONTEXT_LENGTH="),
        );
        assert!(forever.as_ref().unwrap().unmodelled.is_empty());
        assert_eq!(arguments(forever), "-np 1 -b 512");
    }

    /// llama-server ends with a quantized V cache and `-fa off` (`llama_init_from_model`), and Ollama hands both on.
    #[test]
    fn quantized_values_need_flash_attention() {
        let refused = |text: &str| read(text).unwrap_err().to_string();
        for text in [
            "OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_FLASH_ATTENTION=0 ollama serve",
            "llama-server -m m.gguf -ctk q8_0 -ctv q8_0 -fa off",
        ] {
            assert!(refused(text).contains("V cache quantization requires flash_attn"), "{}", refused(text));
        }
        for text in [
            "OLLAMA_KV_CACHE_TYPE=f16 OLLAMA_FLASH_ATTENTION=0 ollama serve",
            "OLLAMA_KV_CACHE_TYPE=q8_0 ollama serve",
            "llama-server -m m.gguf -ctk q8_0 -fa off",
            "llama-server -m m.gguf -ctk q8_0 -ctv q8_0 -fa auto",
        ] {
            read(text).unwrap();
        }
    }

    #[test]
    fn unknown_names_of_ollama_are_noted_or_refused() {
        let typed = ollama(&words("serve"), &words("OLLAMA_NUM_PARALEL=4 CUDA_VISIBLE_DEVICES=0")).unwrap();
        assert!(
            typed.notes[0].contains("OLLAMA_NUM_PARALEL") && typed.notes[0].contains("OLLAMA_NUM_PARALLEL?")
        );
        assert!(ollama(&words("serve"), &words("OLLAMA_HOST=0.0.0.0")).unwrap().notes[0].contains("context"));
        for (text, says) in [
            ("serve --foo", "no flags"),
            ("run qwen3:8b --keepaliv 5m", "did you mean --keepalive?"),
            ("run --foo qwen3:8b", "--foo"),
        ] {
            let refused = ollama(&words(text), &[]).err().unwrap().to_string();
            assert!(refused.contains(says), "{text}: {refused}");
        }
        ollama(&words("run --think=false --verbose qwen3:8b tell me - please"), &[]).unwrap();
    }

    #[test]
    fn the_image_of_ollama_serves() {
        let text = "docker run -d --gpus=all -v ollama:/root/.ollama -p 11434:11434 -e OLLAMA_NUM_PARALLEL=2 ollama/ollama";
        let expected = "name = \"llama.cpp\"\nmax_num_seqs = 2\nmax_num_batched_tokens = 512";
        assert_eq!(spec(text)["engine"], toml::Value::Table(expected.parse().unwrap()));
        assert_eq!(read(text).unwrap().ollama, Some(Ollama { slots: 2, context: None }));
    }

    /// Ollama logged these pairs as `vram-based default context`: an RTX 4090, an L4, a Strix Halo, an M4 of 24 GB, and a
    /// machine without an accelerator.
    #[test]
    fn contexts_of_ollama_are_by_memory() {
        for (gib, tokens) in
            [(23.5, 32_768), (22.0, 4096), (102.2, 262_144), (17.8, 4096), (0.0, 4096), (25.0, 32_768)]
        {
            assert_eq!(ollama_context(Bytes((gib * f64::from(1 << 30)) as u64)), tokens, "{gib}");
        }
        assert_eq!(ollama_context(Bytes(47 << 30)), 262_144);
        assert_eq!(ollama_context(Bytes((47 << 30) - 1)), 32_768);
    }

    #[test]
    fn lm_studio_loads_a_context() {
        let loaded = lms(&words("qwen/qwen3-8b --context-length 16384 --gpu max --identifier a -y"));
        assert_eq!(arguments(loaded), "-m qwen/qwen3-8b:q4_k_m -c 16384");
        let parallel = lms(&words("openai/gpt-oss-20b --parallel=2"));
        assert_eq!(arguments(parallel), "-m openai/gpt-oss-20b -c 4096 -np 2 -kvu");
        assert_eq!(arguments(lms(&words("qwen3-8b@q8_0 --context-length 4096"))), "-m qwen3-8b:q8_0 -c 4096");
        let unformatted = lms(&words("qwen3-8b@")).err().unwrap().to_string();
        assert!(unformatted.contains("\"qwen3-8b@\"") && unformatted.contains("q4_k_m"), "{unformatted}");
        let refused = lms(&words("qwen3-8b --gpu 0.5")).err().unwrap().to_string();
        assert!(refused.contains("--gpu") && refused.contains("max"), "{refused}");
    }
}
