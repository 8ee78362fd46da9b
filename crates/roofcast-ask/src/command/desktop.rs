//! Programs for the desktop that start llama.cpp's server themselves: `ollama run` and `lms load`.
//!
//! Knows: the flags of llama-server that are equal to such a command. Knows nothing about their meaning.
//!
//! Sources: `docs/context-length.mdx` and `docs/faq.mdx` of Ollama (contexts, `OLLAMA_NUM_PARALLEL`,
//! `OLLAMA_KV_CACHE_TYPE`); lmstudio.ai/docs/cli/load.

use super::PLACE;
use roofcast_facts::error::{Error, Result};

/// The server that a program starts.
pub(super) struct LlamaServer {
    /// Arguments of llama-server.
    pub(super) arguments: Vec<String>,
    /// Notes on how the command was read.
    pub(super) notes: Vec<String>,
}

/// Context in tokens without a setting: Ollama's below 24 GiB of memory, and LM Studio's.
const CONTEXT: u64 = 4096;
/// Flags of `ollama run` with a value.
const OLLAMA_VALUES: [&str; 5] = ["--dimensions", "--format", "--height", "--keepalive", "--width"];
/// Flags of `lms load` with a value.
const LMS_VALUES: [&str; 6] = ["--context-length", "--gpu", "--host", "--identifier", "--parallel", "--ttl"];

/// Reads `ollama run MODEL`; `variables` are the environment variables of Ollama's server, each as `NAME=value`.
pub(super) fn ollama(words: &[String], variables: &[String]) -> Result<LlamaServer> {
    let Options { model, values } = options("ollama run", words, &OLLAMA_VALUES)?;
    drop(values);
    let variable = |name: &str| {
        variables.iter().rev().find_map(|v| v.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    };
    let slots = count("OLLAMA_NUM_PARALLEL", variable("OLLAMA_NUM_PARALLEL"))?.unwrap_or(1);
    let context = count("OLLAMA_CONTEXT_LENGTH", variable("OLLAMA_CONTEXT_LENGTH"))?;
    let model = if model.contains(':') { model } else { format!("{model}:latest") };
    let mut flags = vec![("-m", model), ("-np", slots.to_string())];
    flags.push(("-c", context.unwrap_or(CONTEXT).saturating_mul(slots).to_string()));
    if let Some(format) = variable("OLLAMA_KV_CACHE_TYPE") {
        flags.extend([("-ctk", format.clone()), ("-ctv", format)]);
    }
    let note = format!(
        "a context of {CONTEXT} tokens, Ollama's below 24 GiB of memory (32768 from 24 GiB on, 262144 from 48): \
         OLLAMA_CONTEXT_LENGTH=32768 before the command sets it"
    );
    Ok(server(flags, context.is_none().then_some(note)))
}

/// Reads `lms load MODEL`, of LM Studio. A model without a format is read in q4_k_m, unless its checkpoint has one.
pub(super) fn lms(words: &[String]) -> Result<LlamaServer> {
    let Options { model, values } = options("lms load", words, &LMS_VALUES)?;
    let value =
        |name: &str| values.iter().rev().find(|(flag, _)| flag == name).map(|(_, value)| value.clone());
    if let Some(share) = value("--gpu").filter(|share| !["max", "1", "1.0"].contains(&share.as_str())) {
        let accepted = "max: no forecast counts layers on the host";
        return Err(Error::field(PLACE, "--gpu", format!("{share:?}"), accepted));
    }
    let context = count("--context-length", value("--context-length"))?;
    let stored = model.contains("gpt-oss") || model.contains(':');
    let model = match model.split_once('@') {
        Some((name, format)) => format!("{name}:{format}"),
        None if stored => model,
        None => format!("{model}:q4_k_m"),
    };
    let mut flags = vec![("-m", model), ("-c", context.unwrap_or(CONTEXT).to_string())];
    if let Some(slots) = count("--parallel", value("--parallel"))? {
        flags.push(("-np", slots.to_string()));
        flags.push(("-kvu", String::new()));
    }
    let note = format!("a context of {CONTEXT} tokens, LM Studio's own: --context-length sets another");
    Ok(server(flags, context.is_none().then_some(note)))
}

/// llama-server with `flags`; an empty value stands for none.
fn server(flags: Vec<(&str, String)>, note: Option<String>) -> LlamaServer {
    let words = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    LlamaServer {
        arguments: words.filter(|word| !word.is_empty()).collect(),
        notes: note.into_iter().collect(),
    }
}

/// The model and the flags with values of a command.
struct Options {
    model: String,
    values: Vec<(String, String)>,
}

/// Reads the words behind `command`, of whose flags `valued` have a value.
fn options(command: &str, words: &[String], valued: &[&str]) -> Result<Options> {
    let mut model = None;
    let mut values = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (name, value) =
            word.split_once('=').map_or((word.as_str(), None), |(n, v)| (n, Some(v.to_owned())));
        if valued.contains(&name) {
            let value = value.or_else(|| words.next().cloned()).unwrap_or_default();
            values.push((name.to_owned(), value));
        } else if !word.starts_with('-') && model.is_none() {
            model = Some(word.clone());
        }
    }
    let absent = || Error::field(PLACE, command, "without a model", "the name of a model behind it");
    Ok(Options { model: model.ok_or_else(absent)?, values })
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

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn arguments(server: Result<LlamaServer>) -> String {
        server.unwrap().arguments.join(" ")
    }

    #[test]
    fn ollama_starts_one_slot_with_its_context() {
        let plain = ollama(&words("--verbose --keepalive 5m llama3.1 hello there"), &[]);
        assert!(plain.as_ref().unwrap().notes[0].contains("OLLAMA_CONTEXT_LENGTH"));
        assert_eq!(arguments(plain), "-m llama3.1:latest -np 1 -c 4096");
        let variables = words("OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_NUM_PARALLEL=4 OLLAMA_KV_CACHE_TYPE=q8_0");
        let set = ollama(&words("qwen3:8b"), &variables);
        assert!(set.as_ref().unwrap().notes.is_empty());
        assert_eq!(arguments(set), "-m qwen3:8b -np 4 -c 32768 -ctk q8_0 -ctv q8_0");
        let wrong = ollama(&words("qwen3:8b"), &words("OLLAMA_NUM_PARALLEL=many")).err().unwrap().to_string();
        assert!(wrong.contains("OLLAMA_NUM_PARALLEL") && wrong.contains("a whole number"), "{wrong}");
        assert!(ollama(&words("--verbose"), &[]).err().unwrap().to_string().contains("without a model"));
    }

    #[test]
    fn lm_studio_loads_a_context() {
        let loaded = lms(&words("qwen/qwen3-8b --context-length 16384 --gpu max --identifier a -y"));
        assert_eq!(arguments(loaded), "-m qwen/qwen3-8b:q4_k_m -c 16384");
        let parallel = lms(&words("openai/gpt-oss-20b --parallel=2"));
        assert_eq!(arguments(parallel), "-m openai/gpt-oss-20b -c 4096 -np 2 -kvu");
        assert_eq!(arguments(lms(&words("qwen3-8b@q8_0 --context-length 4096"))), "-m qwen3-8b:q8_0 -c 4096");
        let refused = lms(&words("qwen3-8b --gpu 0.5")).err().unwrap().to_string();
        assert!(refused.contains("--gpu") && refused.contains("max"), "{refused}");
    }
}
