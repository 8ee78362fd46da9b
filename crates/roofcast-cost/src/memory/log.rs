//! Memory figures of an engine's start-up log, term by term, for comparison with a forecast.
//!
//! Knows: the log lines of vLLM (V0, V1 and after), SGLang, TensorRT-LLM and llama.cpp with a figure of memory, and
//! the term of each. If several lines have one term, the last line counts, because each rank prints it; llama.cpp's
//! buffers on several devices are summed. Knows nothing about forecasts.

use super::{Rank, Start};
use roofcast_facts::units::Bytes;
use serde::Serialize;

/// Bytes in a GiB.
const GIB: f64 = 1_073_741_824.0;
/// Bytes in a MiB.
const MIB: f64 = 1_048_576.0;

/// Term of the division of an accelerator's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Term {
    /// Memory that the engine may use.
    Budget,
    /// Weights as loaded.
    Weights,
    /// Activations at their peak in a step.
    Activations,
    /// Memory outside the framework's allocator.
    Runtime,
    /// Captured CUDA graphs that are deducted from the budget.
    Graphs,
    /// KV cache.
    Kv,
    /// Number of tokens in the KV cache.
    KvTokens,
    /// Number of requests of the longest length that fit in the cache, in hundredths.
    Concurrency,
}

roofcast_facts::named! { Term {
    Budget: "budget",
    Weights: "weights",
    Activations: "activations",
    Runtime: "runtime",
    Graphs: "graphs",
    Kv: "KV cache",
    KvTokens: "KV tokens",
    Concurrency: "concurrency",
} }

/// Pattern of a log line: the texts before and after its figure, and the figure's unit.
struct LogPattern {
    term: Term,
    before: &'static str,
    behind: &'static str,
    unit: f64,
    /// True if the figures of several lines are summed.
    adds: bool,
}

const fn line(term: Term, before: &'static str, behind: &'static str, unit: f64) -> LogPattern {
    LogPattern { term, before, behind, unit, adds: false }
}

const fn part(term: Term, before: &'static str) -> LogPattern {
    LogPattern { term, before, behind: " MiB", unit: MIB, adds: true }
}

const LINES: [LogPattern; 25] = [
    // vLLM.
    line(Term::Weights, "Model loading took ", " GiB", GIB),
    line(Term::Weights, "model weights take ", "GiB", GIB),
    line(Term::Weights, "Actual usage is ", " GiB for weight", GIB),
    line(Term::Runtime, "non_torch_memory takes ", "GiB", GIB),
    line(Term::Runtime, "for peak activation, ", " GiB for non-torch", GIB),
    line(Term::Activations, "activation peak memory takes ", "GiB", GIB),
    line(Term::Activations, "GiB for weight, ", " GiB for peak activation", GIB),
    line(Term::Activations, "(weights + non-torch), ", " GiB for peak activation", GIB),
    line(Term::Graphs, "Estimated CUDA graph memory: ", " GiB", GIB),
    line(Term::Budget, "Desired GPU memory utilization is (", " GiB)", GIB),
    line(Term::Budget, "gpu_memory_utilization (", "GiB", GIB),
    line(Term::Kv, "reserved for KV Cache is ", "GiB", GIB),
    line(Term::Kv, "Available KV cache memory: ", " GiB", GIB),
    line(Term::Kv, "larger than the available KV cache memory (", " GiB", GIB),
    line(Term::KvTokens, "GPU KV cache size: ", " tokens", 1.0),
    line(Term::Concurrency, "tokens per request: ", "x", 100.0),
    // SGLang, whose GB are GiB.
    line(Term::Weights, "mem usage=", " GB", GIB),
    line(Term::KvTokens, "max_total_num_tokens=", ",", 1.0),
    line(Term::KvTokens, "KV Cache is allocated. #tokens: ", ",", 1.0),
    // TensorRT-LLM.
    line(Term::Kv, "Allocated ", " GiB for max tokens in paged KV cache", GIB),
    line(Term::KvTokens, "for max tokens in paged KV cache (", ")", 1.0),
    // llama.cpp.
    part(Term::Weights, "model buffer size ="),
    part(Term::Kv, "KV buffer size ="),
    part(Term::Activations, "compute buffer size ="),
    part(Term::Runtime, "RS buffer size ="),
];

/// Figures of a log.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Logged {
    figures: Vec<(Term, f64)>,
}

impl Logged {
    /// Reads the lines with a figure of memory; `None` if there is no such line.
    pub fn read(log: &str) -> Option<Logged> {
        let mut logged = Logged::default();
        for text in log.lines() {
            // Buffers on the host are not part of an accelerator's memory.
            if text.contains("CPU") && text.contains("buffer size") || text.contains("_Host ") {
                continue;
            }
            for line in &LINES {
                if let Some(figure) = figure(text, line) {
                    logged.add(line, figure);
                }
            }
            if let Some(both) = keys_and_values(text) {
                logged.add(&line(Term::Kv, "", "", GIB), both);
            }
        }
        (!logged.figures.is_empty()).then_some(logged)
    }

    fn add(&mut self, line: &LogPattern, figure: f64) {
        match self.figures.iter_mut().find(|(term, _)| *term == line.term) {
            Some((_, known)) if line.adds => *known += figure,
            Some((_, known)) => *known = figure,
            None => self.figures.push((line.term, figure)),
        }
    }

    /// Figure of a term in the log: bytes, tokens, or hundredths of a request.
    pub(crate) fn of(&self, term: Term) -> Option<f64> {
        self.figures.iter().find(|(known, _)| *known == term).map(|(_, figure)| *figure)
    }

    /// Bytes of the budget that no other term explains, if the log states budget, weights and cache.
    pub fn unexplained(&self) -> Option<f64> {
        let explained_terms = [Term::Activations, Term::Runtime, Term::Graphs];
        let explained: f64 = explained_terms.into_iter().filter_map(|term| self.of(term)).sum();
        Some(self.of(Term::Budget)? - self.of(Term::Weights)? - self.of(Term::Kv)? - explained)
    }
}

/// One term, measured and forecast, in bytes, tokens, or hundredths of a request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TermComparison {
    /// Term that is compared.
    pub term: Term,
    /// Figure in the log.
    pub measured: f64,
    /// Figure of the forecast.
    pub forecast: f64,
}

/// Compares the terms of `logged` with the forecast for the fullest `rank` and its engine. The forecast's runtime
/// term includes the captured graphs.
pub fn beside(logged: &Logged, rank: &Rank, start: &Start) -> Vec<TermComparison> {
    let graphs = logged.of(Term::Graphs).unwrap_or(0.0);
    let bytes = |bytes: Bytes| bytes.as_f64();
    let forecasts = [
        (Term::Budget, bytes(rank.budget_bytes)),
        (Term::Weights, bytes(start.weight_bytes)),
        (Term::Activations, bytes(rank.activation_bytes)),
        (Term::Runtime, bytes(rank.runtime_bytes)),
        (Term::Kv, bytes(start.kv_bytes)),
        (Term::KvTokens, start.kv_tokens as f64),
        (Term::Concurrency, start.max_concurrency * 100.0),
    ];
    let row = |(term, forecast): (Term, f64)| {
        let more = if term == Term::Runtime { graphs } else { 0.0 };
        Some(TermComparison { term, measured: logged.of(term)? + more, forecast })
    };
    forecasts.into_iter().filter_map(row).collect()
}

/// Number between the texts before and after the figure; the last number there, because a percentage may precede a
/// size.
fn figure(text: &str, line: &LogPattern) -> Option<f64> {
    let rest = text.split_once(line.before)?.1;
    let inner = rest.split_once(line.behind)?.0;
    let last = inner.trim().rsplit([' ', '=']).next()?;
    let number: f64 = last.replace(',', "").parse().ok()?;
    (number.is_finite() && number.abs() < 1e15).then_some(number * line.unit)
}

/// Sum of the two halves in which SGLang prints the cache: `K size: 8.23 GB, V size: 8.23 GB`.
fn keys_and_values(text: &str) -> Option<f64> {
    let half = |before| figure(text, &line(Term::Kv, before, " GB", GIB));
    Some(half("K size: ")? + half("V size: ")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gib(logged: &Logged, term: Term) -> Option<f64> {
        logged.of(term).map(|bytes| (bytes / GIB * 100.0).round() / 100.0)
    }

    #[test]
    fn vllm_says_its_terms() {
        let log = "INFO [gpu_model_runner.py:5306] Model loading took 27.52 GiB and 6.27 seconds\n\
            INFO [gpu_worker.py:538] Available KV cache memory: 11.57 GiB\n\
            INFO [kv_cache_utils.py:2146] GPU KV cache size: 75,824 tokens\n\
            INFO Maximum concurrency for 40,960 tokens per request: 1.85x\n\
            INFO Desired GPU memory utilization is (0.92, 40.87 GiB). Actual usage is 27.52 GiB for weight, 0.6 GiB for \
            peak activation, 0.1 GiB for non-torch memory, and 0.65 GiB for CUDAGraph memory.";
        let logged = Logged::read(log).unwrap();
        assert_eq!(gib(&logged, Term::Weights), Some(27.52));
        assert_eq!((gib(&logged, Term::Budget), gib(&logged, Term::Kv)), (Some(40.87), Some(11.57)));
        assert_eq!((gib(&logged, Term::Activations), gib(&logged, Term::Runtime)), (Some(0.6), Some(0.1)));
        assert_eq!((logged.of(Term::KvTokens), logged.of(Term::Concurrency)), (Some(75_824.0), Some(185.0)));
        // 40.87 − 27.52 − 11.57 − 0.6 − 0.1 = 1.08 GiB.
        assert!((logged.unexplained().unwrap() / GIB - 1.08).abs() < 1e-9);
    }

    #[test]
    fn vllm_before_v1_says_them_in_one_line() {
        let log = "the current vLLM instance can use total_gpu_memory (79.15GiB) x gpu_memory_utilization (0.90) = 71.23GiB\n\
            model weights take 14.99GiB; non_torch_memory takes 0.11GiB; PyTorch activation peak memory takes 1.20GiB; the rest \
            of the memory reserved for KV Cache is 54.93GiB.";
        let logged = Logged::read(log).unwrap();
        assert_eq!((gib(&logged, Term::Budget), gib(&logged, Term::Kv)), (Some(71.23), Some(54.93)));
        // 71.23 − 14.99 − 0.11 − 1.20 − 54.93 = 0.
        assert!(logged.unexplained().unwrap().abs() / GIB < 1e-9);
    }

    #[test]
    fn others_say_less() {
        let sglang = "Load weight end. type=Qwen3, dtype=torch.bfloat16, avail mem=8.70 GB, mem usage=14.39 GB.\n\
            KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB";
        let logged = Logged::read(sglang).unwrap();
        assert_eq!((gib(&logged, Term::Weights), gib(&logged, Term::Kv)), (Some(14.39), Some(16.46)));
        assert_eq!(logged.of(Term::KvTokens), Some(367_404.0));
        let llama = "load_tensors:   CPU_Mapped model buffer size =   417.66 MiB\n\
            load_tensors:        CUDA0 model buffer size =  1024.00 MiB\nload_tensors:        CUDA1 model buffer size =  1024.00 MiB\n\
            llama_kv_cache_unified:      CUDA0 KV buffer size =   512.00 MiB";
        let logged = Logged::read(llama).unwrap();
        assert_eq!((gib(&logged, Term::Weights), gib(&logged, Term::Kv)), (Some(2.0), Some(0.5)));
        let trt = "[TRT-LLM] [I] Allocated 5.34 GiB for max tokens in paged KV cache (70016).";
        let logged = Logged::read(trt).unwrap();
        assert_eq!((gib(&logged, Term::Kv), logged.of(Term::KvTokens)), (Some(5.34), Some(70_016.0)));
        assert_eq!(Logged::read("nothing here\n"), None);
    }
}
