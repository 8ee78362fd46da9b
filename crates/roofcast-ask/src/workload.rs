//! Traffic: arrival times of requests, their lengths, and the tokens that they have in common.
//!
//! Knows: the keys of `[workload]`, their bounds and the values that a preset fills in. [`arrivals`] and [`length`]
//! give the means that a plan's arithmetic needs; [`traffic`] draws single requests; [`trace`] parses recorded ones.
//! Opens no files: [`Workload::load`] gets their contents from the caller.

mod adapters;
mod agents;
pub(crate) mod arrivals;
mod bounds;
pub(crate) mod class;
mod combined;
mod drawn;
mod draws;
mod elementary;
pub(crate) mod empirical;
pub(crate) mod images;
pub(crate) mod length;
mod pace;
pub mod prediction;
pub(crate) mod prefix;
mod profile;
pub mod random;
mod replay;
pub mod request;
pub mod series;
mod sessions;
pub mod trace;
pub(crate) mod traffic;
mod users;
mod words;

pub use adapters::Adapters;
pub use arrivals::Arrivals;
pub use arrivals::Conversations;
pub use class::Class;
pub use drawn::{DrawnLoad, LengthStatistics};
pub(crate) use empirical::LengthSource;
pub use images::Images;
pub use length::{Length, LengthKind};
pub use prefix::Prefix;
pub use replay::Replay;
pub use request::{Prompt, Request};
pub use trace::Trace;
pub use traffic::Traffic;
pub use users::TURN_ROUND;
pub use words::{estimated_tokens, words};

use class::WrittenClass;
use empirical::LengthSide;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::preset::Preset;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Default number of requests in a run.
pub const DEFAULT_REQUESTS: u64 = 1000;

/// Most requests of a run.
const MOST_REQUESTS: u64 = 1_000_000_000;

/// Most classes of priority.
const MOST_PRIORITIES: usize = 1000;

/// Largest bound on generated tokens.
const MOST_MAX_TOKENS: u64 = 100_000_000;

/// `[workload]`, with the values of its preset filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct Workload {
    /// Number of requests in a run; if `None`, [`DEFAULT_REQUESTS`], or all requests of a trace or
    /// of a profile.
    pub requests: Option<u64>,
    /// Seed of all random draws.
    pub seed: u64,
    /// Arrival process.
    pub arrivals: Arrivals,
    /// Number of prompt tokens.
    pub input_len: Length,
    /// Number of generated tokens.
    pub output_len: Length,
    /// Prefixes that prompts share; `None` if they share none.
    pub prefix: Option<Prefix>,
    /// Images of every request; `None` if prompts are text.
    pub images: Option<Images>,
    /// LoRA adapters that requests name; `None` if they name none, or classes name them.
    pub adapters: Option<Adapters>,
    /// Relative weight of each priority, starting with priority 0, the most urgent; if empty, all requests have
    /// priority 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub priorities: Vec<f64>,
    /// Classes of requests; if empty, all requests are of one kind. Results, which carry a workload, have none.
    #[serde(skip_serializing)]
    pub classes: Vec<Class>,
    /// The client's `max_tokens`, which cuts longer outputs; if `None`, each request asks for exactly the number of
    /// tokens that it generates.
    pub max_tokens: Option<u64>,
    /// Most requests that the client has in flight: a request that is due at this limit is sent only after an answer
    /// arrives.
    pub max_concurrency: Option<u64>,
    /// Recorded requests, which are sent in their order; `None` if requests are drawn, or if sessions are replayed.
    #[serde(skip)]
    pub recorded: Option<Arc<Trace>>,
}

/// `[workload]` as the spec writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    preset: Option<String>,
    requests: Option<u64>,
    #[serde(default)]
    seed: u64,
    rate: Option<f64>,
    arrivals: Option<Arrivals>,
    input_len: Option<Length>,
    output_len: Option<Length>,
    prefix: Option<Prefix>,
    images: Option<Images>,
    adapters: Option<Adapters>,
    #[serde(default)]
    priorities: Vec<f64>,
    #[serde(default)]
    classes: Vec<WrittenClass>,
    max_tokens: Option<u64>,
    max_concurrency: Option<u64>,
}

impl TryFrom<Written> for Workload {
    type Error = Error;

    fn try_from(written: Written) -> Result<Workload> {
        let missing = |field: &str, accepted: &str| Error::field("workload", field, "missing", accepted);
        let preset = written.preset.as_ref().map(|name| Catalog::embedded()?.workload(name)).transpose()?;
        let arrivals = match (written.arrivals, written.rate) {
            (Some(_), Some(rate)) => {
                return Err(Error::field(
                    "workload",
                    "rate",
                    rate,
                    "no rate together with `arrivals`, which has its own",
                ));
            }
            (Some(arrivals), None) => arrivals,
            (None, Some(rate)) if preset.is_none() => Arrivals::Poisson { rate },
            (None, rate) => preset.and_then(|preset| of_preset(preset, rate)).ok_or_else(|| {
                missing("arrivals", "arrivals with a kind, a rate, or a preset with a rate")
            })?,
        };
        let source = match (&arrivals, preset) {
            (Arrivals::Trace(replay), _) => Some(LengthSource::of_file(&replay.path, replay.format)),
            (_, Some(preset)) => Some(LengthSource::of_preset(&preset.id)),
            _ => None,
        };
        let or_source = |length: Option<Length>, field| {
            let observed = || source.clone().map(|source| Length::Drawn(LengthKind::Empirical(source)));
            length.or_else(observed).ok_or_else(|| missing(field, "tokens, or a distribution of them"))
        };
        // Without lengths of the workload, every class must have its own, and the first class's stand for them.
        let of_classes = |length: fn(&WrittenClass) -> &Option<Length>| {
            let all_classes = written.classes.iter().all(|class| length(class).is_some());
            written.classes.first().filter(|_| all_classes).and_then(|class| length(class).clone())
        };
        let input_len = written.input_len.or_else(|| of_classes(|class| &class.input_len));
        let output_len = written.output_len.or_else(|| of_classes(|class| &class.output_len));
        let input_len = or_source(input_len, "input_len")?;
        let output_len = or_source(output_len, "output_len")?;
        let classes = written.classes.into_iter().map(|class| class.with(&input_len, &output_len));
        let mut workload = Workload {
            requests: written.requests,
            seed: written.seed,
            arrivals,
            classes: classes.collect(),
            input_len,
            output_len,
            prefix: written.prefix,
            images: written.images,
            adapters: written.adapters,
            priorities: written.priorities,
            max_tokens: written.max_tokens,
            max_concurrency: written.max_concurrency,
            recorded: None,
        };
        for (source, field) in workload.sources_mut() {
            source.settle("workload", field, &|name| {
                Ok(Arc::clone(&Catalog::embedded()?.workload(name)?.lengths))
            })?;
        }
        Ok(workload)
    }
}

/// The arrivals of a preset; at `rate` requests per second if that is given.
fn of_preset(preset: &Preset, rate: Option<f64>) -> Option<Arrivals> {
    let rate = rate.or(preset.rate)?;
    Some(match &preset.profile {
        Some(profile) => Arrivals::Profile { rate, counts: profile.counts.as_slice().into() },
        None => Arrivals::Poisson { rate },
    })
}

impl Workload {
    /// Refuses values outside their bounds.
    pub fn check(&self, place: &str) -> Result<()> {
        self.arrivals.check_expected(place, self.requests, MOST_REQUESTS)?;
        let total = self.total();
        if !(1..=MOST_REQUESTS).contains(&total) {
            return Err(Error::field(place, "workload.requests", total, "1 to 10^9 requests"));
        }
        self.input_len.check(place, "workload.input_len", LengthSide::Input)?;
        self.output_len.check(place, "workload.output_len", LengthSide::Output)?;
        self.arrivals.check(place, total)?;
        if let Some(bound) = self.max_tokens.filter(|bound| !(1..=MOST_MAX_TOKENS).contains(bound)) {
            let accepted = format!("1 to {MOST_MAX_TOKENS} tokens");
            return Err(Error::field(place, "workload.max_tokens", bound, accepted));
        }
        if let Some(most) = self.max_concurrency {
            let field = "workload.max_concurrency";
            if most == 0 {
                return Err(Error::field(place, field, most, "1 or more requests in flight"));
            }
            if matches!(self.arrivals, Arrivals::ClosedLoop { .. } | Arrivals::Sessions { .. }) {
                let accepted = "omitted for closed loops: arrivals.concurrency is the bound";
                return Err(Error::field(place, field, most, accepted));
            }
        }
        if let Some(prefix) = &self.prefix {
            prefix.check(place)?;
        }
        if let Some(adapters) = &self.adapters {
            adapters.check(place)?;
        }
        self.check_segments(place)?;
        self.check_images(place)?;
        let sane = |w: &f64| (0.0..=1e9).contains(w);
        let some = self.priorities.is_empty() || self.priorities.iter().sum::<f64>() > 0.0;
        if !self.priorities.iter().all(sane) || !some || self.priorities.len() > MOST_PRIORITIES {
            let beginning = format!("{:?}", self.priorities.iter().take(10).collect::<Vec<_>>());
            let accepted = "up to 1000 weights of 0 or more, one of them above 0";
            return Err(Error::field(place, "workload.priorities", beginning, accepted));
        }
        class::check(&self.classes, place)?;
        if !self.classes.is_empty() && !self.priorities.is_empty() {
            let accepted = "omitted with workload.classes, which have a priority each";
            return Err(Error::field(place, "workload.priorities", "set", accepted));
        }
        if self.replays_sessions() && !self.has_the_traces_lengths() {
            let accepted = "no input_len and no output_len: sessions are replayed as recorded";
            return Err(Error::field(place, "workload", "lengths of its own", accepted));
        }
        let drawn = self.prefix.is_some() || !self.priorities.is_empty() || !self.classes.is_empty();
        if self.is_replayed() && drawn {
            let accepted = "no prefix, priorities and classes where requests are replayed as recorded";
            return Err(Error::field(place, "workload", "a replay with more", accepted));
        }
        self.check_adapters(place)
    }

    /// Number of different LoRA adapters that requests may name.
    pub fn adapter_count(&self) -> u64 {
        let recorded = self.recorded.iter().flat_map(|trace| &trace.requests);
        let recorded = recorded.map(|request| u64::from(request.adapter)).max();
        adapters::count(self.adapters.as_ref(), &self.classes) + recorded.unwrap_or(0)
    }

    /// The workload with its requests replaced by `requests`, replayed as they are.
    pub fn replayed(&self, requests: Vec<Request>) -> Workload {
        let path = "requests";
        let pairs = requests.iter().map(|request| (request.input_len, request.output_len)).collect();
        let observed = Some(empirical::Observed::Pairs(pairs));
        let source = LengthSource { observed, ..LengthSource::of_file(path, None) };
        let length = || Length::Drawn(LengthKind::Empirical(source.clone()));
        let trace = Arc::new(Trace {
            requests,
            timed: true,
            sessions: Vec::new(),
            images: 0,
            seconds_assumed: false,
        });
        let arrivals = Arrivals::Trace(Replay::of(path, Arc::clone(&trace)));
        Workload {
            recorded: Some(trace),
            requests: None,
            arrivals,
            input_len: length(),
            output_len: length(),
            prefix: None,
            images: None,
            adapters: None,
            priorities: Vec::new(),
            classes: Vec::new(),
            ..self.clone()
        }
    }

    /// Reads the workload's files; `read` returns the text of a path as it is written in the spec. Each file is read
    /// once.
    pub fn load<E: From<Error>>(
        &mut self,
        place: &str,
        read: impl Fn(&str) -> Result<String, E>,
    ) -> Result<(), E> {
        let mut traces: BTreeMap<(String, Option<trace::TraceFormat>), Arc<Trace>> = BTreeMap::new();
        self.check_paths(place)?;
        let mut trace = |path: &str, format: Option<trace::TraceFormat>| -> Result<Arc<Trace>, E> {
            let key = (path.to_owned(), format);
            if let Some(known) = traces.get(&key) {
                return Ok(Arc::clone(known));
            }
            let new = Arc::new(Trace::parse(path, &read(path)?, format)?);
            traces.insert(key, Arc::clone(&new));
            Ok(new)
        };
        if let Arrivals::Trace(replay) = &mut self.arrivals {
            let recorded = trace(&replay.path, replay.format)?;
            let spreads = replay.spread == Some(true);
            replay.recorded = Some(if spreads { Arc::new(recorded.spread()) } else { recorded });
        }
        for (source, _) in self.sources_mut() {
            if let Some(path) = source.path.clone() {
                source.accept(&*trace(&path, source.format)?);
            }
        }
        self.pace(place)?;
        Ok(self.check(place)?)
    }

    /// Sentences on parts of the traffic that are not counted, and on what a trace does not say.
    pub fn notes(&self) -> Vec<String> {
        let trace = match &self.arrivals {
            Arrivals::Trace(replay) => replay.recorded.as_ref(),
            _ => self.recorded.as_ref(),
        };
        trace.map_or(Vec::new(), |trace| trace.notes())
    }

    /// Turns a loaded replay into arrivals at its pace, of the recorded requests unless lengths are given.
    fn pace(&mut self, place: &str) -> Result<()> {
        let Arrivals::Trace(replay) = self.arrivals.clone() else { return Ok(()) };
        let requests = replay.recorded.clone().filter(|trace| trace.timed && trace.sessions.is_empty());
        self.recorded = requests.filter(|_| self.has_the_traces_lengths());
        self.arrivals = replay.paced(place)?;
        Ok(())
    }

    /// Refuses empty paths.
    fn check_paths(&mut self, place: &str) -> Result<()> {
        let arrivals = match &self.arrivals {
            Arrivals::Trace(replay) => Some((replay.path.clone(), "arrivals")),
            _ => None,
        };
        let lengths = self.sources_mut().filter_map(|(source, field)| Some((source.path.clone()?, field)));
        match arrivals.into_iter().chain(lengths).find(|(path, _)| path.trim().is_empty()) {
            Some((_, field)) => {
                Err(Error::field(place, format!("workload.{field}.path"), "empty", "the path of a trace"))
            }
            None => Ok(()),
        }
    }

    /// Number of requests in a run.
    pub fn total(&self) -> u64 {
        let of_arrivals = match &self.arrivals {
            Arrivals::Trace(replay) => replay.recorded.as_ref(),
            _ => None,
        };
        let recorded = of_arrivals.or(self.recorded.as_ref()).map(|trace| trace.requests.len() as u64);
        let recycles = matches!(&self.arrivals, Arrivals::Trace(replay) if replay.recycle == Some(true));
        match (self.requests, recorded) {
            (Some(asked), Some(recorded)) if !recycles => asked.min(recorded),
            (asked, recorded) => asked.or(self.arrivals.expected()).or(recorded).unwrap_or(DEFAULT_REQUESTS),
        }
    }

    /// Mean number of prompt tokens, including shared prefixes and images.
    pub fn input_mean(&self) -> f64 {
        let shared = self.prefix.map_or(0.0, |p| p.share * p.length as f64);
        let images = self.images.map_or(0.0, |images| images.total() as f64);
        self.mean(LengthSide::Input) + shared + images
    }

    /// The squared coefficient of variation of the number of prompt tokens.
    pub fn input_cv2(&self) -> f64 {
        if self.prefix.is_none() && self.images.is_none() && self.classes.is_empty() {
            return self.input_len.cv2(LengthSide::Input);
        }
        // The mean of squares over classes, each (1 + cv²) · mean², less the square of the mean.
        let square =
            |length: &Length| length.mean(LengthSide::Input).powi(2) * (1.0 + length.cv2(LengthSide::Input));
        let squares: f64 =
            self.of_classes(LengthSide::Input).map(|(share, length)| share * square(length)).sum();
        let own_cv2 = squares - self.mean(LengthSide::Input).powi(2);
        let shared = self.prefix.map_or(0.0, |p| p.share * (1.0 - p.share) * (p.length as f64).powi(2));
        (own_cv2 + shared) / self.input_mean().powi(2)
    }

    /// Mean number of generated tokens.
    pub fn output_mean(&self) -> f64 {
        self.mean(LengthSide::Output)
    }

    /// Mean of one length over all classes, without shared prefixes.
    fn mean(&self, side: LengthSide) -> f64 {
        self.of_classes(side).map(|(share, length)| share * length.mean(side)).sum()
    }

    /// Fraction of the requests and the length of each class; without classes, all requests and the workload's length.
    fn of_classes(&self, side: LengthSide) -> impl Iterator<Item = (f64, &Length)> {
        let whole: f64 = self.classes.iter().map(|class| class.share).sum();
        let side_length = move |input, output| if matches!(side, LengthSide::Input) { input } else { output };
        let whole_load =
            Some((1.0, side_length(&self.input_len, &self.output_len))).filter(|_| self.classes.is_empty());
        let each =
            self.classes.iter().map(move |c| (c.share / whole, side_length(&c.input_len, &c.output_len)));
        whole_load.into_iter().chain(each)
    }

    /// True if the arrivals are recorded sessions.
    fn replays_sessions(&self) -> bool {
        matches!(&self.arrivals, Arrivals::Trace(replay) if replay.has_sessions())
    }

    /// True if requests or sessions have the recorded lengths and prompts.
    fn is_replayed(&self) -> bool {
        self.recorded.is_some() || self.replays_sessions()
    }

    /// True if both lengths come from the trace that gives the arrivals.
    fn has_the_traces_lengths(&self) -> bool {
        let Arrivals::Trace(replay) = &self.arrivals else { return false };
        let traced = LengthSource::of_file(&replay.path, replay.format);
        [&self.input_len, &self.output_len]
            .iter()
            .all(|length| length.source().is_some_and(|s| s.is(&traced)))
    }

    fn sources_mut(&mut self) -> impl Iterator<Item = (&mut LengthSource, &'static str)> {
        let input = self.input_len.source_mut().map(|source| (source, "input_len"));
        let output = self.output_len.source_mut().map(|source| (source, "output_len"));
        let each = self.classes.iter_mut().flat_map(|class| {
            [class.input_len.source_mut(), class.output_len.source_mut()].into_iter().flatten()
        });
        input.into_iter().chain(output).chain(each.map(|source| (source, "classes")))
    }
}
