//! Random draws of a request: class, lengths, shared prefix, priority.
//!
//! Knows: a separate random stream for each purpose. Knows nothing about when requests are due.

use super::Workload;
use super::adapters::AdapterDraws;
use super::arrivals::Arrivals;
use super::class::Class;
use super::empirical::{LengthSide, Observed};
use super::length::{Length, Sampler};
use super::prefix::PrefixDraws;
use super::random::{Purpose, Stream, Weighted};
use super::request::{Prompt, Request};
use super::trace::Trace;
use roofcast_facts::preset::{PresetStatistics, Quarter};
use roofcast_facts::units::Picoseconds;
use std::sync::Arc;

/// Draws of a request's properties other than its time.
#[derive(Debug, Clone)]
pub(super) struct Draws {
    lengths: LengthDraws,
    prefixes: Option<PrefixDraws>,
    priorities: Option<Weighted>,
    priority_stream: Stream,
    classes: Option<Box<ClassDraws>>,
    adapters: Option<Box<AdapterDraws>>,
    /// Tokens of the images of each request.
    image_tokens: u32,
    max_tokens: Option<u32>,
    recorded: Option<Recorded>,
}

/// Recorded requests, taken in their order, and from the first one again after the last: users who begin one after
/// another may send more than there are.
#[derive(Debug, Clone)]
struct Recorded {
    trace: Arc<Trace>,
    next: usize,
}

impl Recorded {
    /// The next recorded request, sent at `at` by `user`.
    fn request(&mut self, at: Picoseconds, user: u32, max_tokens: Option<u32>) -> Request {
        let recorded = self.trace.requests[self.next].clone();
        self.next = (self.next + 1) % self.trace.requests.len();
        let max_tokens = recorded.max_tokens.or(max_tokens);
        let output_len = recorded.output_len.min(max_tokens.unwrap_or(u32::MAX));
        Request { at, user, output_len, max_tokens, ..recorded }
    }
}

/// Draws of the lengths of prompts and outputs.
#[derive(Debug, Clone)]
struct LengthDraws {
    lengths: Lengths,
    input_stream: Stream,
    output_stream: Stream,
}

#[derive(Debug, Clone)]
enum Lengths {
    Apart {
        input: Sampler,
        output: Sampler,
    },
    /// An observed pair of lengths, drawn from the stream of prompts.
    Together(Observed),
    /// Observed pairs of the quarters of an hour of a recording, whose profile the arrivals follow.
    ByQuarter(Quarters),
}

/// The lengths of a recording by its quarters of an hour: a request has those of the quarter that its number falls into.
#[derive(Debug, Clone)]
struct Quarters {
    /// For each quarter, the number of requests up to its end and its lengths.
    quarters: Vec<(u64, Observed)>,
    /// Number of requests so far in this round of the recording.
    drawn: u64,
}

impl Quarters {
    /// The quarters of `statistics`; `None` if they are not known.
    fn of(statistics: &PresetStatistics) -> Option<Quarters> {
        let mut through = 0;
        let quarter = |quarter: &Quarter| {
            through += quarter.requests;
            (through, Observed::Summary(Arc::new(quarter.statistics())))
        };
        let quarters: Vec<_> = statistics.quarters.iter().map(quarter).collect();
        (!quarters.is_empty()).then_some(Quarters { quarters, drawn: 0 })
    }

    /// A pair of lengths of the next request.
    fn draw(&mut self, stream: &mut Stream) -> (u32, u32) {
        let total = self.quarters.last().map_or(1, |(through, _)| *through);
        let quarter = self.quarters.partition_point(|(through, _)| *through <= self.drawn);
        self.drawn = (self.drawn + 1) % total;
        self.quarters[quarter].1.draw_pair(stream)
    }
}

impl LengthDraws {
    /// Draws of lengths from the streams `part` of `seed`; `None` if a file is not loaded.
    fn new(input: &Length, output: &Length, seed: u64, part: u64) -> Option<LengthDraws> {
        let lengths = match (input.source(), output.source()) {
            (Some(input), Some(output)) if input.is(output) => Lengths::Together(input.observed.clone()?),
            _ => Lengths::Apart {
                input: input.sampler(LengthSide::Input)?,
                output: output.sampler(LengthSide::Output)?,
            },
        };
        let stream = |purpose| Stream::part(seed, purpose, part);
        let input_stream = stream(Purpose::Input);
        let output_stream = stream(Purpose::Output);
        Some(LengthDraws { lengths, input_stream, output_stream })
    }

    /// Number of prompt tokens and of output tokens.
    #[inline(always)]
    fn draw(&mut self) -> (u32, u32) {
        match &mut self.lengths {
            Lengths::Apart { input, output } => {
                (input.draw(&mut self.input_stream), output.draw(&mut self.output_stream))
            }
            Lengths::Together(observed) => observed.draw_pair(&mut self.input_stream),
            Lengths::ByQuarter(quarters) => quarters.draw(&mut self.input_stream),
        }
    }
}

impl Draws {
    /// Draws of the requests of `workload`; `None` if a file is not loaded.
    pub(super) fn new(workload: &Workload) -> Option<Draws> {
        let seed = workload.seed;
        let priorities = &workload.priorities;
        let classes = match workload.classes.as_slice() {
            [] => None,
            classes => Some(Box::new(ClassDraws::new(classes, seed)?)),
        };
        let mut lengths = LengthDraws::new(&workload.input_len, &workload.output_len, seed, 0)?;
        if let (Arrivals::Profile { .. }, Lengths::Together(Observed::Summary(statistics))) =
            (&workload.arrivals, &lengths.lengths)
            && let Some(quarters) = Quarters::of(statistics)
        {
            lengths.lengths = Lengths::ByQuarter(quarters);
        }
        Some(Draws {
            lengths,
            prefixes: workload.prefix.as_ref().map(|prefix| PrefixDraws::new(prefix, seed)),
            priorities: (!priorities.is_empty()).then(|| Weighted::new(priorities.iter().copied())),
            priority_stream: Stream::new(seed, Purpose::Priority),
            classes,
            adapters: AdapterDraws::new(workload.adapters.as_ref(), &workload.classes, seed).map(Box::new),
            image_tokens: workload.images.map_or(0, |images| images.total() as u32),
            max_tokens: workload.max_tokens.and_then(|tokens| u32::try_from(tokens).ok()),
            recorded: workload.recorded.clone().map(|trace| Recorded { trace, next: 0 }),
        })
    }

    /// Number of prompt tokens and of output tokens of a request of class `class`, without the shared prefix.
    #[inline(always)]
    pub(super) fn lengths(&mut self, class: u32) -> (u32, u32) {
        let (input, output) = match &mut self.classes {
            Some(classes) => classes.lengths(class),
            None => self.lengths.draw(),
        };
        (input, output.min(self.max_tokens.unwrap_or(u32::MAX)))
    }

    /// Tokens of a request's images.
    pub(super) fn image_tokens(&self) -> u32 {
        self.image_tokens
    }

    /// The client's bound on output tokens; `None` if each request asks for exactly its output.
    pub(super) fn max_tokens(&self) -> Option<u32> {
        self.max_tokens
    }

    /// True if prompts share prefixes.
    pub(super) fn shares_prefixes(&self) -> bool {
        let shared = |recorded: &Recorded| recorded.trace.requests.iter().any(|r| r.prompt != Prompt::Own);
        self.prefixes.is_some() || self.recorded.as_ref().is_some_and(shared)
    }

    /// Segment and length of the shared prefix of a request with adapter `adapter`; `None` if the request has none.
    #[inline(always)]
    pub(super) fn prefix(&mut self, adapter: u32) -> Option<(u32, u32)> {
        self.prefixes.as_mut().and_then(|prefixes| prefixes.draw(adapter))
    }

    /// Number of the LoRA adapter of a request of class `class`; 0 without one.
    #[inline(always)]
    pub(super) fn adapter(&mut self, class: u32) -> u32 {
        self.adapters.as_mut().map_or(0, |adapters| adapters.draw(class))
    }

    /// Number of the request's class, 0 without classes, and its priority.
    #[inline(always)]
    pub(super) fn class(&mut self) -> (u32, i32) {
        match &mut self.classes {
            Some(classes) => classes.draw(),
            None => {
                let priorities = self.priorities.as_ref();
                (0, priorities.map_or(0, |choice| choice.draw(&mut self.priority_stream) as i32))
            }
        }
    }

    #[inline(always)]
    pub(super) fn request(&mut self, at: Picoseconds, user: u32) -> Request {
        if let Some(recorded) = &mut self.recorded {
            let recorded = recorded.request(at, user, self.max_tokens);
            // A trace names adapters, or the workload does.
            return Request { adapter: recorded.adapter + self.adapter(0), ..recorded };
        }
        let (class, priority) = self.class();
        let (text, output_len) = self.lengths(class);
        let own_length = text.saturating_add(self.image_tokens);
        let adapter = self.adapter(class);
        let (input_len, prompt) = match self.prefix(adapter) {
            Some((segment, length)) => (own_length + length, Prompt::Shared { segment, length }),
            None => (own_length, Prompt::Own),
        };
        let max_tokens = self.max_tokens;
        Request { at, input_len, output_len, max_tokens, priority, class, adapter, user, prompt }
    }
}

/// Random choice of each request's class.
#[derive(Debug, Clone)]
struct ClassDraws {
    choice: Weighted,
    stream: Stream,
    each: Vec<(i32, LengthDraws)>,
}

impl ClassDraws {
    /// Draws of `classes`; `None` if a file of their lengths is not loaded. Lengths of each class have streams of their
    /// own, the first class those of a workload without classes.
    fn new(classes: &[Class], seed: u64) -> Option<ClassDraws> {
        let lengths = |(number, class): (usize, &Class)| {
            let lengths = LengthDraws::new(&class.input_len, &class.output_len, seed, number as u64)?;
            Some((class.priority, lengths))
        };
        Some(ClassDraws {
            choice: Weighted::new(classes.iter().map(|class| class.share)),
            stream: Stream::new(seed, Purpose::Class),
            each: classes.iter().enumerate().map(lengths).collect::<Option<_>>()?,
        })
    }

    /// Number of the drawn class, and its priority.
    fn draw(&mut self) -> (u32, i32) {
        let class = self.choice.draw(&mut self.stream);
        (class, self.each[class as usize].0)
    }

    /// Number of prompt tokens and of output tokens of a request of class `class`.
    fn lengths(&mut self, class: u32) -> (u32, u32) {
        self.each[class as usize].1.draw()
    }
}
