//! Times of a step outside its operators: small kernels, launches, the host, and messages between ranks.
//!
//! Knows: small kernels are counted by layer, with one time for each; a step that no captured graph covers waits for
//! its launches; the host's loop and the server's streams run beside the device, so that a step takes at least as long as
//! either. Times of all-reduces are looked up by bytes if all-reduces
//! over equally many ranks were timed, else they are a fixed start plus their bytes at a fraction of the link's rate.
//! Knows nothing about operators.

use super::messages::Messages;
use crate::coefficients::{Coefficients, busiest, waiting};
use crate::coefficients::{KernelTimes, SKEW};
use crate::step::{Pass, StepModel};
use roofcast_facts::shares::BottleneckShares;
use roofcast_facts::units::number;

/// Efficiency of HBM traffic in norms, activation functions and sampling, similar to copies by cuBLAS and Triton.
const ELEMENTWISE: f64 = 0.8;
/// Bytes of HBM traffic in sampling, per vocabulary entry and sampled row: fp32 logits are written, read by softmax
/// and read by the draw.
const SAMPLED: f64 = 12.0;
/// Fixed seconds of sampling (10 µs), and of the embedding, final norm and copies of tokens before and after it (20
/// µs).
const SAMPLER: f64 = 30e-6;

/// Host seconds of a kernel that compiled code launches: between 4 and 15 µs, of which 3 to 8 are the launch in a C++
/// program.
const COMPILED: f64 = 8e-6;

/// Seconds between two captured pieces, including the launch of attention by Python: a decode step of 32 layers takes
/// 8.1 ms in pieces and 7.7 ms whole (vLLM's pull request 10058), and one of 28 layers takes 7 % more in pieces
/// (16072): 5 to 15 µs a layer.
const PIECE: f64 = 10e-6;

/// Times of a step outside its operators, in seconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Overhead {
    /// Seconds of the small kernels of a step in a captured graph.
    pub(crate) small_kernels: f64,
    /// Seconds of one small kernel in a captured graph.
    pub(super) small_kernel: f64,
    /// Exposed host seconds: per step, per sequence, and additionally per step with prompts.
    pub(crate) exposed: [f64; 3],
    /// Seconds of the engine's loop on the host, which runs while the device computes: per step, and per sequence.
    pub(crate) loops: [f64; 2],
    /// Seconds of one process of the server to stream the tokens of a step, per sequence of the rank.
    pub(crate) streams: f64,
    /// True if the engine's loop and the server's streams are one after the other, in one process.
    one_process: bool,
    /// Host seconds of the launches of a step that no captured graph covers: of decodes, and with prompts.
    pub(crate) launches: [f64; 2],
    /// Seconds of the launches between captured pieces, and true if decodes also run in pieces.
    pieces: (f64, bool),
    /// Tokens of the largest pass of decodes, and of the largest pass with prompts, that a captured graph covers.
    captured: [u64; 2],
    /// Seconds per token of a rank in norms and activation functions.
    token: f64,
    /// Seconds of sampling per sampled row.
    sampled: f64,
    /// Fixed seconds of sampling per step.
    sampler: f64,
    /// Times of the messages between ranks.
    pub(crate) messages: Messages,
}

/// Least time of a pass, beside the device.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Floor {
    /// Seconds of the pass.
    pub seconds: f64,
    /// True if the server's messages take these seconds, false if the engine's loop does.
    pub server: bool,
}

impl Floor {
    /// True if a pass in which the device computes for `busy` seconds lasts as long as the floor.
    #[inline(always)]
    pub(super) fn binds(&self, busy: f64) -> bool {
        self.seconds > 0.0 && busy <= self.seconds
    }
}

/// Seconds of a pass outside its operators: small kernels, host, launches, links.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct PassOverhead {
    /// Seconds of small kernels, sampling included.
    pub(crate) small_kernels: f64,
    /// Exposed host seconds, among them the wait for the engine's loop.
    pub(crate) host: f64,
    /// Seconds in which the device waits for the server's messages.
    pub(crate) server: f64,
    /// Exposed seconds of launches.
    pub(crate) launches: f64,
    /// Exposed seconds of messages between ranks.
    pub(crate) links: f64,
    /// Seconds of dispatch and of combination among `links` that disappear if attention lasts longer, because they
    /// overlap; 0 without overlap.
    pub(crate) covered: [f64; 2],
}

impl Overhead {
    /// Computes the overhead of `model`; at a limit, only the bytes of messages at the links' bandwidth count.
    pub(crate) fn of(model: &StepModel, coefficients: &Coefficients, messages: Messages) -> Overhead {
        let KernelTimes::Measured { .. } = &coefficients.kernels else {
            return Overhead { messages, ..Overhead::default() };
        };
        let at = &model.surroundings;
        let factor = coefficients.factor;
        let engine = coefficients.engine.scaled(factor);
        let [server_step, server_sequence] =
            [coefficients.server.step, coefficients.server.sequence].map(|s| s * factor / at.host_speed);
        let host = |seconds: f64| seconds / at.host_speed;
        let beside = coefficients.regimes.launches as f64 * at.products as f64;
        let kernels = at.small_kernels as f64 + beside;
        let layer = coefficients.launches.map_or(0.0, |l| l.device * factor * at.layers as f64);
        let one_by_one = coefficients.launches.map(|l| host(l.host * factor) * at.layers as f64);
        let launches = at.launched.map(|launched| {
            let [one, compiled] = [engine.launch, COMPILED * factor];
            let [singly, within] = [launched.one_by_one, launched.compiled].map(|n| n as f64);
            let beside = beside * if launched.one_by_one > 0 { one } else { compiled };
            one_by_one.unwrap_or(host(one * singly + compiled * within + beside))
        });
        let bandwidth = model.bandwidth.0 * ELEMENTWISE / factor;
        let skew = busiest(at.experts, model.parallelism.ep, SKEW);
        Overhead {
            small_kernels: kernels * engine.small_kernel + layer,
            small_kernel: engine.small_kernel,
            exposed: [
                host(engine.step) + server_step,
                host(engine.sequence) + server_sequence,
                host(engine.prompt_step),
            ],
            loops: [host(engine.loop_step), host(engine.loop_sequence)],
            streams: host(coefficients.server.token * factor) * at.streams,
            one_process: coefficients.server.holds_engine,
            launches,
            pieces: (host(at.pieces.0 as f64 * PIECE * factor), at.pieces.1),
            captured: at.captured,
            token: (at.elementwise_bytes + skew * at.unfused_expert_bytes) / bandwidth,
            sampled: at.vocabulary as f64 * SAMPLED / bandwidth,
            sampler: SAMPLER * factor,
            messages,
        }
    }

    /// True if a captured graph covers a pass of `rows` rows; `prompts` is true if it computes prompts.
    #[inline(always)]
    pub(super) fn is_captured(&self, rows: u64, prompts: bool) -> bool {
        rows <= self.captured[usize::from(prompts)]
    }

    /// Seconds of the host during which the device waits in a pass.
    #[inline(always)]
    fn serial(&self, pass: &Pass) -> f64 {
        let [step, sequence, prompt] = self.exposed;
        step + sequence * number(pass.sequences) + if pass.longest > 0 { prompt } else { 0.0 }
    }

    /// Least seconds of a pass, whatever the device computes: the engine's loop with the part for which the device waits, or
    /// the streams of its server, another process; the sum of both in one process. SGLang's `event_loop_overlap`, vLLM's `AsyncScheduler` and TensorRT-LLM's
    /// overlap scheduler prepare a step and return the tokens of the step before while the device computes.
    #[inline(always)]
    pub(super) fn floor(&self, pass: &Pass) -> Floor {
        let sequences = number(pass.sequences);
        let engine = self.serial(pass) + self.loops[0] + self.loops[1] * sequences;
        let server = self.streams * sequences;
        let seconds = if self.one_process { engine + server } else { engine.max(server) };
        Floor { seconds, server: server > engine }
    }

    /// Overhead of a pass in which GEMMs and experts take `operators` seconds, without the wait for the host's loop.
    #[inline(always)]
    pub(crate) fn beside(&self, pass: &Pass, operators: f64) -> PassOverhead {
        let rows = number(pass.rows);
        let small_kernels =
            self.small_kernels + self.token * rows + self.sampler + self.sampled * number(pass.sampled);
        let device = operators + small_kernels;
        let uncaptured = !self.is_captured(pass.rows, pass.longest > 0);
        let launched = if uncaptured { self.launches[usize::from(pass.longest > 0)] } else { 0.0 };
        let pieces = if !uncaptured && (pass.longest > 0 || self.pieces.1) { self.pieces.0 } else { 0.0 };
        let launches = waiting(device, launched) + pieces;
        PassOverhead {
            small_kernels,
            host: self.serial(pass),
            server: 0.0,
            launches,
            links: self.messages.time(rows, number(pass.gathered()))
                + self.messages.shared.seconds(pass)
                + self.messages.exchange(rows, pass.has_prompts()),
            covered: [0.0; 2],
        }
    }

    /// Overhead of a pass at its limit, whose exchanges overlap with all `operators`, in seconds.
    pub(super) fn overlapped(&self, pass: &Pass, operators: f64) -> PassOverhead {
        let alone = self.beside(pass, operators);
        let rows = number(pass.rows);
        let covered = (self.messages.exchange(rows, pass.has_prompts()) - operators).max(0.0);
        let links =
            self.messages.time(rows, number(pass.gathered())) + self.messages.shared.seconds(pass) + covered;
        // Attention hides both halves of what lasts longer.
        PassOverhead { links, covered: [covered / 2.0; 2], ..alone }
    }

    /// Overhead of a pass in two microbatches of at most `rows` rows, whose exchanges overlap with kernels: `operators`
    /// are the seconds of all operators and of routed experts among them.
    pub(super) fn split(&self, pass: &Pass, [operators, experts]: [f64; 2], rows: u64) -> PassOverhead {
        let alone = self.beside(pass, operators);
        let small_kernels = alone.small_kernels + self.small_kernels;
        let kernels = operators + small_kernels;
        let launches = match self.is_captured(pass.rows, pass.has_prompts()) {
            true => 2.0 * alone.launches,
            false => waiting(kernels, 2.0 * self.launches[usize::from(pass.has_prompts())]),
        };
        let [around, experts] = [(kernels - experts) / 2.0, experts / 2.0];
        let prompts = pass.has_prompts();
        let exchanges = self.messages.both_ways(number(rows), prompts);
        let works = self.messages.works(number(rows), prompts);
        let mut links = self.messages.time(number(pass.rows), number(pass.gathered()))
            + self.messages.shared.seconds(pass);
        let mut covered = [0.0; 2];
        for ((exchange, work), covered) in exchanges.into_iter().zip(works).zip(&mut covered) {
            let work = work.min(exchange);
            *covered = (exchange - work - around).max(0.0);
            links += 2.0 * work + *covered + (exchange - work - experts).max(0.0);
        }
        links += exchanges[1] / self.messages.exchange_layers.max(1.0);
        PassOverhead { small_kernels, launches, links, covered, ..alone }
    }
}

impl PassOverhead {
    /// Attributes the times to bottlenecks.
    #[inline(always)]
    pub(crate) fn shares(&self) -> BottleneckShares<f64> {
        BottleneckShares {
            memory: self.small_kernels,
            compute: 0.0,
            communication: self.links,
            host: self.host + self.launches,
            ..BottleneckShares::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coefficients::{EngineTimes, KernelEfficiency as KernelShares, ServerLoop};
    use crate::profile::Profiles;
    use crate::step::Contexts;
    use roofcast_ask::deployment::{Deployment, DeploymentOptions};
    use roofcast_facts::model::config;
    use std::borrow::Cow;
    use std::sync::Arc;

    fn llama() -> StepModel {
        served_by(None)
    }

    /// Llama-3.1-8B on an H100 with a version of vLLM.
    fn served_by(version: Option<&str>) -> StepModel {
        let catalog = roofcast_facts::Catalog::embedded().unwrap();
        let entry = catalog.model("meta-llama/Llama-3.1-8B-Instruct").unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let chip = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let mut options = DeploymentOptions::default();
        options.engine.version = version.map(str::to_owned);
        let mut model = StepModel::compile(&Deployment::resolve(model, chip, &options).unwrap());
        model.surroundings.host_speed = 1.0;
        model
    }

    fn measured(engine: EngineTimes) -> Coefficients {
        let kernels = KernelTimes::Measured {
            profiles: Cow::Owned(Profiles::default()),
            shares: KernelShares::UNKNOWN,
            host: KernelShares::UNKNOWN,
        };
        let server = ServerLoop { token: engine.loop_sequence, ..ServerLoop::default() };
        Coefficients { kernels, engine, server, ..Coefficients::ideal(1.0, 1.0) }
    }

    fn overhead(model: &StepModel, engine: EngineTimes) -> Overhead {
        Overhead::of(model, &measured(engine), Messages::default())
    }

    fn pass(rows: u64, longest: u64) -> Pass<'static> {
        Pass {
            rows,
            sampled: 0,
            sequences: 10,
            tokens: rows,
            decodes: 0,
            share: 0.0,
            contexts: Contexts::Groups(Cow::Borrowed(&[])),
            chunks: Cow::Borrowed(&[]),
            longest,
            ends: false,
        }
    }

    /// 160 small kernels of 2 µs are 320 µs, plus 30 µs of sampling; a token moves 32 · 2 · 59,392 bytes at 0.8 ·
    /// 3.35 TB/s in 1.418 µs. Exposed are 100 µs per step, and 3 µs for each of 10 sequences.
    #[test]
    fn what_a_captured_step_adds_by_hand() {
        let engine = EngineTimes {
            small_kernel: 2e-6,
            step: 100e-6,
            sequence: 3e-6,
            launch: 1.0,
            ..Default::default()
        };
        let added = overhead(&llama(), engine).beside(&pass(10, 0), 5e-3);
        assert!((added.small_kernels - (350e-6 + 10.0 * 1.4183e-6)).abs() < 1e-9, "{added:?}");
        assert!((added.host - 130e-6).abs() < 1e-12 && added.launches == 0.0, "{added:?}");
    }

    /// Python launches 32 attentions and 32 cache writes in 45 µs each, compiled code 128 GEMMs, 128 other small kernels,
    /// the embedding and lm_head in 8 µs each: 2.88 + 2.064 = 4.944 ms. With 4.944 ms of the device, the step takes the
    /// cube root of 2 times as long, 26 % more. vLLM's graphs cover up to 512 tokens of prompts.
    #[test]
    fn a_prompt_beyond_the_captured_sizes_waits_for_launches() {
        let overhead = overhead(&llama(), EngineTimes { launch: 45e-6, ..Default::default() });
        let token = 32.0 * 2.0 * 59_392.0 / (0.8 * 3.35e12);
        let device = |rows: f64| 4.944e-3 - 30e-6 - rows * token;
        let waited = |rows: u64, longest| overhead.beside(&pass(rows, longest), device(rows as f64)).launches;
        assert!((waited(600, 600) / (4.944e-3 * 0.259_92) - 1.0).abs() < 1e-3, "{}", waited(600, 600));
        // 512 tokens of prompts are captured in pieces, with 32 attentions of 10 µs between the pieces; decodes are
        // captured whole.
        assert!((waited(512, 512) / 320e-6 - 1.0).abs() < 1e-9 && waited(512, 0) == 0.0);
        // A step of 513 decodes has no graph, either, and no prompt to wait for.
        assert!(waited(513, 0) > 0.5e-3, "{}", waited(513, 0));
    }

    /// Before 0.11 vLLM captured decodes in pieces, too: 32 attentions of 10 µs; 0.7 captured none in pieces.
    #[test]
    fn decodes_were_captured_in_pieces() {
        let waited = |version: &str, longest: u64| {
            let overhead = overhead(&served_by(Some(version)), EngineTimes::default());
            overhead.beside(&pass(256, longest), 5e-3).launches
        };
        assert!((waited("0.10.0", 0) / 320e-6 - 1.0).abs() < 1e-9, "{}", waited("0.10.0", 0));
        assert!((waited("0.10.0", 256) / 320e-6 - 1.0).abs() < 1e-9);
        assert_eq!((waited("0.11.0", 0), waited("0.7.0", 0)), (0.0, 0.0));
    }

    /// 10 sequences: 100 µs + 10 · 3 µs for which the device waits, 1 ms + 10 · 5 µs of the engine's loop, 10 · 200 µs of
    /// streams. Beside the engine the streams bound a step, at 2 ms; in the engine's process the sum does, 0.13 + 1.05 + 2 ms.
    #[test]
    fn one_process_does_one_thing_at_a_time() {
        let engine = EngineTimes {
            step: 100e-6,
            sequence: 3e-6,
            loop_step: 1e-3,
            loop_sequence: 5e-6,
            ..Default::default()
        };
        let floor = |holds_engine: bool| {
            let server = ServerLoop { token: 200e-6, holds_engine, ..ServerLoop::default() };
            let coefficients = Coefficients { server, ..measured(engine) };
            Overhead::of(&llama(), &coefficients, Messages::default()).floor(&pass(10, 0)).seconds
        };
        assert!((floor(false) - 2e-3).abs() < 1e-12, "{}", floor(false));
        assert!((floor(true) - 3.18e-3).abs() < 1e-12, "{}", floor(true));
    }

    /// Of 8 ranks with 128 experts the busiest has 1 + √(8/128) · 0.61 · 3^0.75 = 1.3476 times the mean: copies of 1 MB a
    /// token for experts take 1.3476 MB at 0.8 · 3.35 TB/s, next to 0.5 MB that do not depend on experts.
    #[test]
    fn copies_for_experts_wait_for_the_busiest_rank() {
        let mut model = llama();
        model.parallelism.ep = 8;
        model.surroundings.experts = 128;
        (model.surroundings.elementwise_bytes, model.surroundings.unfused_expert_bytes) = (0.5e6, 1e6);
        let token = overhead(&model, EngineTimes::default()).token;
        assert!((token / ((0.5e6 + 1.3476e6) / (0.8 * 3.35e12)) - 1.0).abs() < 1e-4, "{token}");
    }

    /// A host with half the speed takes twice as long for all of its work; the device's time does not change.
    #[test]
    fn a_slower_host_takes_longer() {
        let engine = EngineTimes {
            small_kernel: 2e-6,
            launch: 1e-6,
            step: 1e-4,
            sequence: 1e-6,
            prompt_step: 1e-3,
            loop_step: 1e-3,
            loop_sequence: 1e-6,
            ..Default::default()
        };
        let mut model = llama();
        let usual = overhead(&model, engine);
        model.surroundings.host_speed = 0.5;
        let slow = overhead(&model, engine);
        let host = |o: &Overhead| {
            [o.exposed[0], o.exposed[1], o.exposed[2], o.loops[0], o.loops[1], o.launches[1], o.streams]
        };
        for (slow, usual) in host(&slow).into_iter().zip(host(&usual)) {
            assert!(usual > 0.0 && (slow / usual - 2.0).abs() < 1e-9, "{slow} {usual}");
        }
        assert_eq!((slow.small_kernels, slow.token), (usual.small_kernels, usual.token));
    }
}
