//! Metrics of engines: the effect of each event on counters.
//!
//! Knows: counters, levels and histograms in seconds on the wall clock, with the bounds of the imitated server.
//! [`vllm`], [`sglang`] and [`llama_cpp`] know names and labels.

mod exposition;
mod histogram;
mod llama_cpp;
mod sglang;
mod vllm;

use super::dialect::Dialect;
use exposition::{Exposition, Style, quoted};
use histogram::Histogram;
use roofcast::engine::online::Levels;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Histogram bounds of a step's delay, in seconds.
const LAG: [f64; 10] = [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 0.1, 1.0, 10.0];

/// Delay from which a step counts as late.
pub(super) const LATE: Duration = Duration::from_millis(10);

/// Constant properties of an engine.
#[derive(Debug, Clone)]
pub(crate) struct Fixed {
    pub(crate) dialect: Dialect,
    pub(crate) model: String,
    /// The data-parallel rank.
    pub(crate) engine: usize,
    pub(crate) max_model_len: u64,
    pub(crate) max_num_seqs: u64,
    pub(crate) num_gpu_blocks: u64,
    pub(crate) block_size: u64,
    pub(crate) cache_dtype: String,
    pub(crate) enable_prefix_caching: bool,
    pub(crate) gpu_memory_utilization: f64,
    /// Most adapters at one time, if adapters are served.
    pub(crate) max_loras: Option<usize>,
}

/// Properties of a request that metrics use, in addition to its times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    /// Tokens that the client allowed.
    pub(crate) max_tokens: u64,
    /// True if it ends by itself, not by that bound.
    pub(crate) stops: bool,
    /// True if it is streamed.
    pub(crate) streams: bool,
    /// Number of choices asked for, set on the last of them.
    pub(crate) choices: Option<u64>,
}

/// A finished request, in seconds and counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) e2e: f64,
    pub(crate) queue: f64,
    pub(crate) prefill: f64,
    pub(crate) decode: f64,
    pub(crate) inference: f64,
    pub(crate) prompt_tokens: u64,
    pub(crate) computed_prompt_tokens: u64,
    pub(crate) generation_tokens: u64,
    pub(crate) preemptions: u64,
}

/// Counters kept separately for streaming and other requests.
#[derive(Debug, Clone)]
struct Served {
    ttft: Histogram,
    tpot: Histogram,
    e2e: Histogram,
    prompt: u64,
    generated: u64,
    finished: u64,
}

impl Served {
    fn plus(&self, other: &Served) -> Served {
        Served {
            ttft: self.ttft.plus(&other.ttft),
            tpot: self.tpot.plus(&other.tpot),
            e2e: self.e2e.plus(&other.e2e),
            prompt: self.prompt + other.prompt,
            generated: self.generated + other.generated,
            finished: self.finished + other.finished,
        }
    }
}

/// One engine's metrics.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    fixed: Fixed,
    created: f64,
    levels: Levels,
    /// Requests whose caches are in transfer, and requests that wait for their adapter's slot.
    deferred: u64,
    /// Names of adapters whose requests wait, and of those whose requests run.
    adapters: [String; 2],
    /// Level at which it sleeps.
    asleep: Option<u64>,
    counts: Counts,
    /// Counters of whole answers, and of streams.
    served: [Served; 2],
    itl: Histogram,
    queue: Histogram,
    /// Inference, prefill, decode.
    phases: [Histogram; 3],
    /// Prompt, generated, the most generated of a request's choices, allowed, computed of the prompt.
    tokens: [Histogram; 5],
    iteration: Histogram,
    choices: Histogram,
    preempted: Histogram,
    lag: Histogram,
    latest_lag: Duration,
    late: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    queried: u64,
    hit: u64,
    /// Tokens looked up in external caches, and found there.
    external: [u64; 2],
    preemptions: u64,
    prompt_cached: u64,
    prompt_external: u64,
    stopped: u64,
    full_length: u64,
    aborted: u64,
    /// Requests that ran, summed over steps.
    running_steps: u64,
    /// Tokens of the longest sequence.
    longest: u64,
    /// Rejections by number of requests, and by number of tokens.
    rejected: [u64; 2],
}

impl Counts {
    fn plus(&self, other: &Counts) -> Counts {
        let both = |one: [u64; 2], other: [u64; 2]| [one[0] + other[0], one[1] + other[1]];
        Counts {
            queried: self.queried + other.queried,
            hit: self.hit + other.hit,
            external: both(self.external, other.external),
            preemptions: self.preemptions + other.preemptions,
            prompt_cached: self.prompt_cached + other.prompt_cached,
            prompt_external: self.prompt_external + other.prompt_external,
            stopped: self.stopped + other.stopped,
            full_length: self.full_length + other.full_length,
            aborted: self.aborted + other.aborted,
            running_steps: self.running_steps + other.running_steps,
            longest: self.longest.max(other.longest),
            rejected: both(self.rejected, other.rejected),
        }
    }
}

/// Two lists of names as one, in order.
fn joined(one: &str, other: &str) -> String {
    let names: BTreeSet<&str> =
        one.split(',').chain(other.split(',')).filter(|name| !name.is_empty()).collect();
    names.into_iter().collect::<Vec<_>>().join(",")
}

impl Metrics {
    pub(crate) fn new(fixed: Fixed) -> Metrics {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let sglang = fixed.dialect == Dialect::Sglang;
        let (ttft, itl, whole) = if sglang {
            (&sglang::TTFT[..], &sglang::ITL[..], &sglang::E2E[..])
        } else {
            (&vllm::TTFT[..], &vllm::ITL[..], &vllm::PHASES[..])
        };
        let queue = if sglang { &sglang::QUEUE[..] } else { &vllm::PHASES[..] };
        let tokens = match sglang {
            true => Histogram::new(&sglang::TOKENS),
            false => Histogram::one_two_five(fixed.max_model_len),
        };
        let served = Served {
            ttft: Histogram::new(ttft),
            tpot: Histogram::new(itl),
            e2e: Histogram::new(whole),
            prompt: 0,
            generated: 0,
            finished: 0,
        };
        let phase = Histogram::new(whole);
        let iteration: Vec<f64> =
            [1.0].into_iter().chain((3..15).map(|power| f64::from(1 << power))).collect();
        Metrics {
            created: since.as_secs_f64(),
            fixed,
            levels: Levels::default(),
            deferred: 0,
            adapters: Default::default(),
            asleep: None,
            counts: Counts::default(),
            served: [served.clone(), served],
            itl: Histogram::new(itl),
            queue: Histogram::new(queue),
            phases: [(); 3].map(|()| phase.clone()),
            tokens: [(); 5].map(|()| tokens.clone()),
            iteration: Histogram::new(&iteration),
            choices: Histogram::new(&[1.0, 2.0, 5.0, 10.0, 20.0]),
            preempted: Histogram::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0]),
            lag: Histogram::new(&LAG),
            latest_lag: Duration::ZERO,
            late: 0,
        }
    }

    /// Constant properties of the engine.
    pub(crate) fn fixed(&self) -> &Fixed {
        &self.fixed
    }

    /// Sets the load of the engine; `coming` requests, not in its queue, wait for their caches.
    pub(crate) fn levels(&mut self, levels: Levels, coming: u64) {
        self.levels = Levels { waiting: levels.waiting + coming, ..levels };
        self.deferred = levels.deferred + coming;
    }

    /// Sets the adapters whose requests wait, and whose requests run.
    pub(crate) fn adapters(&mut self, waiting: String, running: String) {
        self.adapters = [waiting, running];
    }

    /// Sets the level at which the engine sleeps, if it does.
    pub(crate) fn sleeps(&mut self, level: Option<u64>) {
        self.asleep = level;
    }

    pub(crate) fn stepped(&mut self, tokens: u64, lag: Duration) {
        self.iteration.add(tokens as f64);
        self.counts.running_steps += self.levels.running;
        self.lag.add(lag.as_secs_f64());
        self.latest_lag = lag;
        self.late += u64::from(lag > LATE);
    }

    /// Counts an admission: `cached` prompt tokens from the cache, `external` from another instance.
    pub(crate) fn admitted(&mut self, prompt: u64, cached: u64, external: u64, resumed: bool) {
        if resumed {
            // Tokens that a request finds again after its preemption count as neither.
            return;
        }
        if self.fixed.enable_prefix_caching {
            self.counts.queried += prompt;
            self.counts.hit += cached;
        }
        if external > 0 {
            self.counts.external[0] += prompt - cached;
            self.counts.external[1] += external;
        }
    }

    pub(crate) fn preempted(&mut self) {
        self.counts.preemptions += 1;
    }

    pub(crate) fn first_token(&mut self, prompt: u64, cached: u64, external: u64, ttft: f64, facts: Facts) {
        let served = &mut self.served[usize::from(facts.streams)];
        served.prompt += prompt;
        served.ttft.add(ttft);
        self.counts.prompt_cached += cached + external;
        self.counts.prompt_external += external;
    }

    pub(crate) fn next_token(&mut self, itl: f64) {
        self.itl.add(itl);
    }

    pub(crate) fn generated(&mut self, tokens: u64, facts: Facts) {
        self.served[usize::from(facts.streams)].generated += tokens;
    }

    /// Counts an abort on request.
    pub(crate) fn aborted(&mut self) {
        self.counts.aborted += 1;
    }

    /// Counts a disconnected client: vLLM counts it nowhere (`abort_requests` of its
    /// `v1/engine/output_processor.py`), SGLang as aborted.
    pub(crate) fn left(&mut self) {
        self.counts.aborted += u64::from(self.fixed.dialect != Dialect::Vllm);
    }

    /// Counts a rejected request: too many requests, or too many tokens.
    pub(crate) fn rejected(&mut self, reason: usize) {
        self.counts.rejected[reason] += 1;
    }

    pub(crate) fn finished(&mut self, ended: &Ended, facts: Facts) {
        *(if facts.stops { &mut self.counts.stopped } else { &mut self.counts.full_length }) += 1;
        self.queue.add(ended.queue);
        let phases = [ended.inference, ended.prefill, ended.decode];
        self.phases.iter_mut().zip(phases).for_each(|(histogram, seconds)| histogram.add(seconds));
        let [prompt, generated, most, allowed, computed] = &mut self.tokens;
        prompt.add(ended.prompt_tokens as f64);
        generated.add(ended.generation_tokens as f64);
        allowed.add(facts.max_tokens as f64);
        computed.add(ended.computed_prompt_tokens as f64);
        if let Some(choices) = facts.choices {
            most.add(ended.generation_tokens as f64);
            self.choices.add(choices as f64);
        }
        let served = &mut self.served[usize::from(facts.streams)];
        served.finished += 1;
        served.e2e.add(ended.e2e);
        // For an answer of one token vLLM reports 0, SGLang nothing.
        match ended.generation_tokens.saturating_sub(1) {
            0 if self.fixed.dialect != Dialect::Vllm => {}
            0 => served.tpot.add(0.0),
            gaps => served.tpot.add(ended.decode / gaps as f64),
        }
        self.preempted.add(ended.preemptions as f64);
        self.counts.longest = self.counts.longest.max(ended.prompt_tokens + ended.generation_tokens);
    }

    /// Steps that ended late, and all.
    pub(crate) fn late(&self) -> (u64, u64) {
        (self.late, self.lag.count())
    }

    /// Fraction of the KV blocks in use, and the number of waiting requests.
    pub(crate) fn load(&self) -> (f64, f64) {
        let usage = self.levels.blocks as f64 / (self.fixed.num_gpu_blocks - 1).max(1) as f64;
        (usage, self.levels.waiting as f64)
    }

    /// Requests that run.
    pub(crate) fn running(&self) -> u64 {
        self.levels.running
    }

    /// Sum of both engines, for metrics that servers do not split by engine.
    fn plus(&self, other: &Metrics) -> Metrics {
        let [waiting, running] = [0, 1].map(|index| joined(&self.adapters[index], &other.adapters[index]));
        Metrics {
            levels: Levels {
                running: self.levels.running + other.levels.running,
                waiting: self.levels.waiting + other.levels.waiting,
                deferred: self.levels.deferred + other.levels.deferred,
                blocks: self.levels.blocks + other.levels.blocks,
            },
            deferred: self.deferred + other.deferred,
            adapters: [waiting, running],
            counts: self.counts.plus(&other.counts),
            served: [0, 1].map(|index| self.served[index].plus(&other.served[index])),
            itl: self.itl.plus(&other.itl),
            queue: self.queue.plus(&other.queue),
            phases: [0, 1, 2].map(|index| self.phases[index].plus(&other.phases[index])),
            tokens: [0, 1, 2, 3, 4].map(|index| self.tokens[index].plus(&other.tokens[index])),
            lag: self.lag.plus(&other.lag),
            latest_lag: self.latest_lag.max(other.latest_lag),
            ..self.clone()
        }
    }

    fn show_lag(&self, text: &mut Exposition<'_>) {
        let help = "Seconds by which steps ended later than forecast: what the emulator itself adds.";
        text.histogram(("roofcast:schedule_lag_seconds", help), &self.lag);
        let help = "Seconds by which the last step ended late.";
        text.gauge(("roofcast:latest_schedule_lag_seconds", help), self.latest_lag.as_secs_f64());
    }

    /// Sum over streaming and other requests.
    fn all(&self) -> Served {
        self.served[0].plus(&self.served[1])
    }
}

/// Metrics of the engines behind one port, in their server's format; pinned gauges show their pinned values, and `up`
/// is the number of running engines if that varies.
pub(crate) fn text(all: &[Metrics], pinned: &BTreeMap<String, f64>, up: Option<usize>) -> String {
    let Some(first) = all.first() else { return String::new() };
    let dialect = first.fixed.dialect;
    let style = match dialect {
        Dialect::Vllm => Style::Python,
        Dialect::Sglang => Style::PythonShared,
        Dialect::LlamaCpp => Style::Cpp,
    };
    let mut text = Exposition::new(style, pinned);
    let merged = all[1..].iter().fold(first.clone(), |sum, one| sum.plus(one));
    match dialect {
        Dialect::Vllm => {
            all.iter().for_each(|one| one.show_vllm(&mut text));
            merged.show_vllm_server(&mut text);
        }
        Dialect::Sglang => {
            all.iter().for_each(|one| one.show_sglang(&mut text));
            merged.show_sglang_server(&mut text);
        }
        Dialect::LlamaCpp => merged.show_llama_cpp(&mut text),
    }
    if let Some(up) = up {
        text.relabel(String::new());
        text.gauge(("roofcast:replicas_up", "Replicas that are up, those that start among them."), up as f64);
    }
    text.text()
}

/// True if a text of metrics has a gauge of this name.
pub(crate) fn is_gauge(text: &str, name: &str) -> bool {
    text.lines().any(|line| line.strip_prefix("# TYPE ").is_some_and(|rest| rest == format!("{name} gauge")))
}

fn label(name: &str, value: &str) -> String {
    format!("{name}={}", quoted(value))
}
