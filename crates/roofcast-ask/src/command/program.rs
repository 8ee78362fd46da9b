//! The program that a command starts: an engine's server, started directly, by Python, by a shell or in a container.
//!
//! Knows: how shells, `docker run` and images of engines wrap a server's arguments. Knows nothing about the meaning of
//! flags.
//!
//! Sources: `docker run --help` of Docker 28; the `ENTRYPOINT` of the images `vllm/vllm-openai`, `rocm/vllm`,
//! `ghcr.io/ggml-org/llama.cpp`, `ollama/ollama` and `nvcr.io/nvidia/tensorrt-llm/release`. SGLang's image has no entry point.

use super::{Ollama, PLACE, desktop, is_variable, words};
use crate::spec::EngineKind;
use roofcast_facts::error::{Error, Result};

/// The server that a command starts.
pub(super) struct Program {
    pub(super) engine: EngineKind,
    /// Arguments of the server's command line.
    pub(super) arguments: Vec<String>,
    /// Environment variables of the server, each as `NAME=value`.
    pub(super) variables: Vec<String>,
    /// Slots of Ollama's server, if Ollama starts it.
    pub(super) ollama: Option<Ollama>,
    /// Variables that change what a server does and that a forecast does not count.
    pub(super) unmodelled: Vec<String>,
    /// Notes on how the command was read.
    pub(super) notes: Vec<String>,
}

impl Program {
    /// A server that is started with `arguments`.
    fn started(engine: EngineKind, arguments: Vec<String>) -> Program {
        let variables = Vec::new();
        Program { engine, arguments, variables, ollama: None, unmodelled: Vec::new(), notes: Vec::new() }
    }
}

/// Options of `docker run` without a value. Short ones are also combined, as in `-itd`.
const SWITCHES: [&str; 12] = [
    "--detach",
    "--init",
    "--interactive",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--rm",
    "--sig-proxy",
    "--tty",
];
/// Letters of the short options without a value.
const LETTERS: &str = "ditPq";
/// Shells that run a command after `-c`.
const SHELLS: [&str; 3] = ["bash", "sh", "zsh"];
/// Most levels of shells and containers within each other that are read.
const MOST_DEEP: usize = 4;

/// The program that `words` start.
pub(super) fn program(words: &[String]) -> Result<Program> {
    inside(words, MOST_DEEP)
}

fn inside(all: &[String], deep: usize) -> Result<Program> {
    let count = all.iter().take_while(|word| is_variable(word)).count();
    let (own, rest) = all.split_at(count);
    let name = rest.first().map_or("", |word| word.rsplit('/').next().unwrap_or(word));
    if deep == 0 {
        return Err(unknown(rest));
    }
    let mut program = match name {
        "sudo" | "exec" | "env" | "nohup" => inside(&rest[1..], deep - 1)?,
        "docker" | "podman" | "nerdctl" => container(rest, deep)?,
        "ollama" if rest.get(1).is_some_and(|word| ["run", "serve", "start"].contains(&word.as_str())) => {
            llama_server(desktop::ollama(&rest[1..], own)?)
        }
        "lms" if rest.get(1).is_some_and(|word| word == "load") => llama_server(desktop::lms(&rest[2..])?),
        shell if SHELLS.contains(&shell) => {
            match rest.iter().position(|word| word.ends_with('c') && word.starts_with('-')) {
                Some(at) if rest.len() > at + 1 => inside(&words::split(&rest[at + 1])?, deep - 1)?,
                _ => return Err(unknown(rest)),
            }
        }
        _ => server(rest)?,
    };
    program.variables.splice(0..0, own.iter().cloned());
    Ok(program)
}

/// The server that a program for the desktop starts.
fn llama_server(server: desktop::LlamaServer) -> Program {
    let desktop::LlamaServer { arguments, ollama, unmodelled, notes } = server;
    Program { ollama, unmodelled, notes, ..Program::started(EngineKind::LlamaCpp, arguments) }
}

/// Reads the command of a server without a shell or container around it.
fn server(words: &[String]) -> Result<Program> {
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let program = word(0).rsplit('/').next().unwrap_or_default();
    let python = program.starts_with("python") && word(1) == "-m";
    let (engine, skipped) = match (program, word(1), word(2)) {
        ("vllm", "serve", _) => (EngineKind::Vllm, 2),
        ("sglang", "serve", _) => (EngineKind::Sglang, 2),
        ("trtllm-serve", "serve", _) => (EngineKind::TensorrtLlm, 2),
        ("trtllm-serve", ..) => (EngineKind::TensorrtLlm, 1),
        ("llama-server" | "llama-server.exe", ..) => (EngineKind::LlamaCpp, 1),
        (_, _, "vllm.entrypoints.openai.api_server") if python => (EngineKind::Vllm, 3),
        (_, _, "sglang.launch_server") if python => (EngineKind::Sglang, 3),
        _ if is_mlx(program) || python && is_mlx(word(2)) => return Err(mlx(words)),
        _ => return Err(unknown(words)),
    };
    Ok(Program::started(engine, words[skipped..].to_vec()))
}

/// True for a program of MLX's packages: `mlx_lm.server`, `mlx_lm.generate`, `mlx_vlm.server`, `vllm-mlx`.
fn is_mlx(program: &str) -> bool {
    let package = program.split('.').next().unwrap_or_default().replace('-', "_");
    ["mlx_lm", "mlx_vlm", "vllm_mlx", "mlx_omni_server", "mlx_openai_server"].contains(&package.as_str())
}

/// The refusal of a program of MLX.
fn mlx(words: &[String]) -> Error {
    let beginning = words.iter().take(3).cloned().collect::<Vec<_>>().join(" ");
    let accepted = "llama-server … with a GGUF file of the model, whose kernels on Apple's chips are known; nobody timed MLX's, and its \
                    server has no fixed cache: what it holds grows with its requests. `roofcast limits --model mlx-community/NAME \
                    --hardware m4-pro` has the limit of an MLX checkpoint";
    Error::field(PLACE, "the command", format!("{beginning:?}"), accepted)
}

/// Reads `docker run OPTIONS IMAGE COMMAND`. For an image with a server as entry point, the command may consist of
/// arguments only.
fn container(words: &[String], deep: usize) -> Result<Program> {
    let started = ["run", "create"];
    let mut rest = words.iter().skip_while(|word| !started.contains(&word.as_str())).skip(1).peekable();
    let mut variables = Vec::new();
    let mut entry = None;
    while let Some(option) = rest.next_if(|word| word.starts_with('-')) {
        let (name, value) =
            option.split_once('=').map_or((option.as_str(), None), |(n, v)| (n, Some(v.to_owned())));
        let letters = name.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        let switch = letters
            .map_or(SWITCHES.contains(&name), |all| all.chars().all(|letter| LETTERS.contains(letter)));
        if switch {
            continue;
        }
        let value = value.or_else(|| rest.next().cloned()).unwrap_or_default();
        match name {
            "-e" | "--env" if is_variable(&value) => variables.push(value),
            "--entrypoint" => entry = Some(value),
            _ => {}
        }
    }
    let Some(image) = rest.next() else { return Err(unknown(words)) };
    let command: Vec<String> = entry.into_iter().chain(rest.cloned()).collect();
    let flags_alone = command.first().is_none_or(|word| word.starts_with('-'));
    if image.to_lowercase().contains("ollama") {
        // The entry point is `ollama`, its command without one is `serve`.
        let served = if command.is_empty() { vec!["serve".to_owned()] } else { command };
        return inside(&[variables, vec!["ollama".to_owned()], served].concat(), deep - 1);
    }
    let mut program = match of_image(image) {
        Some(engine) if flags_alone => Program::started(engine, command),
        Some(engine) => match inside(&command, deep - 1) {
            // The first argument of vLLM's entry point, `vllm serve`, is the model.
            Err(_) if engine == EngineKind::Vllm => Program::started(engine, command),
            other => other?,
        },
        None => inside(&command, deep - 1)?,
    };
    program.variables.splice(0..0, variables);
    Ok(program)
}

/// The engine that the entry point of an image starts.
fn of_image(image: &str) -> Option<EngineKind> {
    let name = image.to_lowercase();
    if name.contains("llama.cpp") {
        Some(EngineKind::LlamaCpp)
    } else if name.contains("vllm") {
        Some(EngineKind::Vllm)
    } else {
        None
    }
}

fn unknown(words: &[String]) -> Error {
    let beginning = words.iter().take(3).cloned().collect::<Vec<_>>().join(" ");
    let accepted = "vllm serve …, python -m vllm.entrypoints.openai.api_server …, python -m sglang.launch_server …, sglang \
                    serve …, trtllm-serve …, llama-server …, ollama run …, ollama serve, lms load …, or docker run of an image with one of these";
    Error::field(PLACE, "the command", format!("{beginning:?}"), accepted)
}
