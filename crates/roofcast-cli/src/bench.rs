//! The load generator: a workload offered to an OpenAI-compatible server, and its results.
//!
//! Knows: how the parts make one run. [`load`] offers the traffic, [`ask`] completes one request, [`client`] holds the
//! sockets, [`answer`], [`stream`] and [`dialect`] parse the answers, [`report`] aggregates and judges. Prints nothing.

mod ask;
mod caveats;
pub(crate) mod classes;
mod client;
mod clock;
pub(crate) mod conversation;
pub(crate) mod counters;
mod dialect;
pub(crate) mod energy;
mod failure;
mod lag;
pub(crate) mod load;
pub(crate) mod network;
pub(crate) mod pixels;
mod probe;
pub(crate) mod prompt;
mod proxy;
mod ready;
pub(crate) mod report;
pub(crate) mod request;
mod reset;
mod response;
pub(crate) mod row_keys;
mod saturation;
pub(crate) mod scrape;
mod servers;
pub(crate) mod slices;
mod stop;
mod stream;
mod tally;
pub(crate) mod target;
pub(crate) mod texts;
mod tls;
pub(crate) mod turn;
pub(crate) mod vocabulary;
pub(crate) mod window;

use anyhow::{Context, Result, bail};
use ask::Asker;
use caveats::Given;
use classes::Class;
use client::Client;
use clock::Clock;
use energy::{Energy, Metering, Source};
use lag::Lag;
use load::{Bounds, Cancelling, Means};
use network::{Latency, NetworkLatency};
use probe::Probed;
use prompt::Prompts;
use report::{Judge, Report, Requested};
use request::Form;
use roofcast::record::Record;
use roofcast::workload::{Arrivals, Traffic, Workload};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use scrape::{Scrape, ServerMetrics};
use servers::Servers;
use std::sync::Arc;
use std::time::Duration;
use stop::Stop;
use target::Target;
use texts::Text;
use vocabulary::Vocabulary;

/// Most connections that are opened ahead of a run.
const MOST_AHEAD: u64 = 1 << 16;

/// Time without a received byte after which the user is warned that the server is silent.
const SILENCE: Duration = Duration::from_secs(5);

/// Progress of a measurement, for display while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Number of requests answered so far.
    Answers(u64),
    /// No byte has arrived for [`SILENCE`].
    Silent,
    /// More than two short requests are sent before the run, because the server counts words as several tokens.
    Probing,
    /// The measurement of the network's latency before the run takes long.
    Timing,
}

/// A server under test, with the settings of the requests sent to it.
pub(crate) struct Bench {
    runtime: tokio::runtime::Runtime,
    servers: Arc<Servers>,
    /// Sources of power readings.
    power: Vec<Source>,
    form: Form,
    how: How,
    prompts: Prompts,
    /// Signal that ends the current run and prevents all later ones.
    stop: Stop,
    /// True if the stop signal came before the first run.
    stopped: bool,
    lag: Lag,
    /// Properties of the load that are known before a run, from which caveats follow.
    given: Given,
}

/// Settings for the requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    /// Timeout of a request, from its sending.
    pub(crate) timeout: Duration,
    /// True if the server's metrics are read during runs.
    pub(crate) scrape: bool,
    pub(crate) bounds: Bounds,
    pub(crate) cancelling: Cancelling,
    /// True if a request that the server refuses for a while is repeated after the time that it names.
    pub(crate) repeats: bool,
    /// Longest wait for the server to become ready, if any.
    pub(crate) ready: Option<Duration>,
    /// True if the servers' prefix caches are emptied before each run.
    pub(crate) resets: bool,
    /// Latency of the network that is taken off, if any.
    pub(crate) network: Option<NetworkLatency>,
}

/// Source of the prompts' texts.
pub(crate) struct Speech {
    /// Prompts to send in turn; without any, words of the requested lengths.
    pub(crate) texts: Vec<Text>,
    /// The model's own single-token words, from its `tokenizer.json` if one was given.
    pub(crate) vocabulary: Option<Vocabulary>,
    /// Seed from which words are drawn.
    pub(crate) seed: u64,
    /// True if the user gave the seed, rather than the program.
    pub(crate) seeded: bool,
    /// Remarks on the prompts, one sentence each, for the report.
    pub(crate) notes: Vec<String>,
    /// True if short probe requests are sent before a run, to learn how the server counts tokens.
    pub(crate) learn: bool,
    /// Seed of the words with which prompts of a file begin, so that none repeats; `None` to send them as they are.
    pub(crate) busts: Option<u64>,
}

/// Results of a run.
pub(crate) struct Measured {
    pub(crate) report: Report,
    pub(crate) records: Vec<Record>,
    /// Metrics of the server, if they were read.
    pub(crate) server: Option<ServerMetrics>,
    /// Energy used, if it was measured.
    pub(crate) energy: Option<Energy>,
}

impl Bench {
    /// Creates a bench and its runtime; sends nothing yet.
    pub(crate) fn new(
        (targets, power): (Vec<Target>, Vec<Option<Target>>),
        form: Form,
        how: How,
        speech: Speech,
        tell: &mut dyn FnMut(Told),
    ) -> Result<Bench> {
        let clock = Clock::start();
        let lag = Lag::new(clock);
        let [resting, waking] = [lag.clone(), lag.clone()];
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // The runtime polls sockets only when all ready tasks have run: this saves polls, and makes the rounds that
            // [`lag`] measures well defined.
            .event_interval(u32::MAX)
            .on_thread_park(move || resting.rests())
            .on_thread_unpark(move || waking.woke())
            .build()
            .context("the runtime of the client")?;
        allow_connections();
        let servers = Arc::new(Servers::new(targets, clock)?);
        let source = |target: Option<Target>| match target {
            Some(target) => Ok(Source::Exporter(Arc::new(Client::new(target, clock)?))),
            None => Ok(Source::Here),
        };
        let power = power.into_iter().map(source).collect::<Result<Vec<_>>>()?;
        let stop = {
            let _within = runtime.enter();
            Stop::new().context("waiting for Ctrl-C")?
        };
        let given = Given {
            seeded: speech.seeded && speech.texts.is_empty(),
            runs_on: form.runs_on(),
            assumed: !speech.learn,
            scraped: how.scrape,
            tokenized: speech.vocabulary.is_some(),
            notes: speech.notes,
            shares_prompts: false,
            classes: Vec::new(),
        };
        let prompts = Prompts::new(speech.seed, speech.vocabulary);
        let mut bench =
            Bench { runtime, servers, power, form, how, prompts, stop, stopped: false, lag, given };
        if let Some(most) = how.ready {
            bench.wait_ready(most)?;
        }
        if !bench.stopped && speech.learn && speech.texts.is_empty() {
            bench.learn(tell)?;
        }
        bench.prompts.texts = speech.texts;
        bench.prompts.busts = speech.busts;
        Ok(bench)
    }

    /// Waits until the servers are ready.
    fn wait_ready(&mut self, most: Duration) -> Result<()> {
        let waiting = ready::wait(&self.servers, most);
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = self.stop.recv() => {
                    self.stopped = true;
                    Ok(())
                }
                done = waiting => done,
            }
        })
    }

    /// Sends short probe requests to learn how the server counts tokens. Fails if there is no server.
    fn learn(&mut self, tell: &mut dyn FnMut(Told)) -> Result<()> {
        let asker = Asker::new(&self.servers, &self.form, self.how.timeout, false);
        let probed = probe::probe(&asker, &self.prompts, &mut self.stop, tell);
        match self.runtime.block_on(probed) {
            Probed::Learnt(prompts) => self.prompts = prompts,
            Probed::Untold(why) => self.given.notes.push(format!(
                "the server does not tell how it counts prompts ({why}): a word is taken for a token"
            )),
            Probed::Unreachable(why) => bail!(
                "arguments: `--url` is {}: {why}; --wait-ready SECONDS waits for a server that is starting",
                self.servers.of(0).1.url()
            ),
            Probed::Stopped => self.stopped = true,
        }
        Ok(())
    }

    /// Offers a workload to the server and returns the results; `tell` receives the number of answers so far.
    pub(crate) fn run(
        &mut self,
        workload: &Workload,
        place: &str,
        judge: &Judge,
        mut tell: impl FnMut(Told),
    ) -> Result<Measured> {
        // The words of a prompt have the tokens of its text; images are beside them.
        let mut text = workload.clone();
        self.prompts.images = text.images.take();
        let traffic = Traffic::new(&text, place)?.without_turn_round();
        let requested = requested(workload);
        let classes = workload.classes.iter().map(|class| Class { name: class.name.clone(), slo: class.slo });
        let classes = classes.collect();
        let given = Given { shares_prompts: traffic.shares_prompts(), classes, ..self.given.clone() };
        if self.how.resets && !self.stopped {
            self.runtime.block_on(reset::reset(&self.servers))?;
        }
        let network = match self.how.network.filter(|_| !self.stopped) {
            Some(network) => self.runtime.block_on(network.of(&self.servers, &mut self.stop, &mut tell)),
            None => Latency::Unknown,
        };
        self.stopped |= network == Latency::Stopped;
        let network = match network {
            Latency::Known(latency) => Some(latency),
            Latency::Unknown | Latency::Stopped => None,
        };
        let before = cpu_seconds();
        let (run, server, energy) = self.runtime.block_on(async {
            let ahead = requested.concurrency.unwrap_or(0).min(traffic.total()).min(MOST_AHEAD) as usize;
            let talks = matches!(workload.arrivals, Arrivals::Sessions { .. });
            let scrape =
                if self.how.scrape { Some(Scrape::start(Arc::clone(&self.servers)).await) } else { None };
            let asker = Arc::new(Asker::new(&self.servers, &self.form, self.how.timeout, talks));
            let means = Means {
                asker,
                prompts: &self.prompts,
                lag: &self.lag,
                ahead,
                stopped: self.stopped,
                bounds: self.how.bounds,
                cancelling: self.how.cancelling,
                repeats: self.how.repeats,
                has_classes: !workload.classes.is_empty(),
            };
            let metering =
                if self.power.is_empty() { None } else { Some(Metering::start(self.power.clone()).await) };
            let run = load::drive(means, traffic, &mut self.stop, tell).await;
            let tokens = run.records.iter().map(|record| record.output_len).sum();
            let energy = match metering {
                Some(metering) => metering.stop(tokens).await,
                None => None,
            };
            match scrape {
                Some(scrape) => (run, Some(scrape.stop().await), energy),
                None => (run, None, energy),
            }
        });
        // Each run draws other words, so that the server's prefix cache does not carry over from one run to the next.
        self.prompts.seed = self.prompts.seed.wrapping_add(1);
        self.prompts.said += run.records.len() as u64;
        let cpu_s = cpu_seconds() - before;
        let judge = &Judge { network, ..*judge };
        let mut report = Report::of(&run, server.as_ref(), (requested, &given), judge, cpu_s);
        if self.how.network.is_some() && network.is_none() && !self.stopped {
            report.warnings.push("no network latency is taken off: /health does not answer".to_owned());
        }
        if energy.is_none() && !self.power.is_empty() {
            report
                .warnings
                .push("no energy: what --power names tells none under a name that is known".to_owned());
        }
        Ok(Measured { report, records: run.records, server, energy })
    }
}

/// The load that a workload asks for: its users or its rate.
fn requested(workload: &Workload) -> Requested {
    let (concurrency, think_s) = match &workload.arrivals {
        Arrivals::ClosedLoop { concurrency, think_s, .. } => (Some(*concurrency), *think_s),
        Arrivals::Sessions { concurrency, think_s, .. } => (*concurrency, *think_s),
        _ => (None, None),
    };
    let thinks = think_s.is_some_and(|t| t > 0.0);
    Requested { concurrency, rate: workload.arrivals.rate(), thinks }
}

/// Processor time of this process, in seconds.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Raises the limit of open files to the system's maximum. If that fails, connections beyond the limit fail with an
/// error each.
fn allow_connections() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

#[cfg(test)]
mod testing {
    /// Text of a recorded response of a real server.
    pub(super) fn capture(name: &str) -> String {
        std::fs::read_to_string(format!("{}/tests/data/captures/{name}.txt", env!("CARGO_MANIFEST_DIR")))
            .unwrap()
    }
}
