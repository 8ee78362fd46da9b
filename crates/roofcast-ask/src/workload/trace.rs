//! Recorded traffic: files of requests with their times and lengths.
//!
//! Knows: how to detect the format of a text, and the rules for every format: lengths of at least one token, times in
//! ascending order, one format per file. Times of day are measured from the first row; seconds and milliseconds are
//! kept as they are. Opens no files: the caller provides the texts.

mod azure;
mod burstgpt;
mod clock;
mod csv;
mod json;
mod mooncake;
mod own;
mod pairs;
pub(crate) mod session;
mod sharegpt;
mod turns;
mod weka;

pub use clock::CoarseClock;

use super::request::{Prompt, Request};
use roofcast_facts::error::{Error, Result, shown};
use roofcast_facts::preset::MOST_TOKENS;
use roofcast_facts::table::separator;
use roofcast_facts::units::Picoseconds;
use serde::{Deserialize, Serialize};
use session::{Session, Text};

/// Latest time of a request in seconds: 115 days.
pub(super) const MOST_SECONDS: f64 = 1e7;

/// Most requests of a trace.
const MOST_REQUESTS: usize = 10_000_000;

/// Formats of recorded traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceFormat {
    /// CSV of Azure's public traces: `TIMESTAMP,ContextTokens,GeneratedTokens`.
    Azure,
    /// JSON lines of Mooncake: `timestamp` in ms, `input_length`, `output_length`, `hash_ids` of 512 tokens each.
    Mooncake,
    /// Mooncake's keys as `vllm bench serve --dataset-name timed_trace` reads them: `timestamp` in seconds, and 16
    /// tokens per block.
    Vllm,
    /// CSV of BurstGPT, with `Timestamp`, `Request tokens` and `Response tokens` among its columns.
    BurstGpt,
    /// JSON lines with `conversations`, or with lengths; without times.
    ShareGpt,
    /// roofcast's CSV: `arrival_s,input_len,output_len[,priority][,session][,max_tokens][,adapter]`, and those of vidur,
    /// ServeGen, Splitwise and others, which differ in names.
    Own,
    /// CSV `input_length,output_length`, without times.
    Pairs,
    /// JSON lines of sessions, one turn per line: aiperf's and Dynamo's multi-turn Mooncake traces.
    Turns,
    /// JSON lines of coding-agent sessions with sub-agents, one session per line: traces of kv-cache-tester (Weka).
    Weka,
}

impl TraceFormat {
    /// All formats.
    pub const ALL: [TraceFormat; 9] = [
        TraceFormat::Azure,
        TraceFormat::Mooncake,
        TraceFormat::Vllm,
        TraceFormat::BurstGpt,
        TraceFormat::ShareGpt,
        TraceFormat::Own,
        TraceFormat::Pairs,
        TraceFormat::Turns,
        TraceFormat::Weka,
    ];
}

/// Recorded requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Requests in order of time.
    pub requests: Vec<Request>,
    /// True if the file has times; otherwise the time of every request is 0.
    pub timed: bool,
    /// Sessions of the file; empty if it has none. With sessions, `requests` holds every turn at the start time of its
    /// session.
    pub sessions: Vec<Session>,
    /// Number of images in all prompts.
    pub images: u64,
    /// True if seconds are assumed: whole numbers up to 1000 or more, under a name without a unit.
    pub seconds_assumed: bool,
}

impl Trace {
    /// Reads `text`; `place` names the file in errors. The format is detected from the first line if `format` is
    /// `None`.
    pub fn parse(place: &str, text: &str, format: Option<TraceFormat>) -> Result<Trace> {
        let text = &*json::listed(text.strip_prefix('\u{feff}').unwrap_or(text));
        let flat = if format.is_none() { json::table(text) } else { None };
        let text = flat.as_deref().unwrap_or(text);
        let format = match format {
            Some(format) => format,
            None => detect(place, text)?,
        };
        let mut recording = Recording {
            place,
            requests: Vec::new(),
            sessions: Vec::new(),
            images: 0,
            seconds_assumed: false,
        };
        match format {
            TraceFormat::Azure => azure::read(text, &mut recording)?,
            TraceFormat::Mooncake => mooncake::read(text, mooncake::MOONCAKE, &mut recording)?,
            TraceFormat::Vllm => mooncake::read(text, mooncake::VLLM, &mut recording)?,
            TraceFormat::BurstGpt => burstgpt::read(text, &mut recording)?,
            TraceFormat::ShareGpt => sharegpt::read(text, &mut recording)?,
            TraceFormat::Own => own::read(text, &mut recording)?,
            TraceFormat::Pairs => pairs::read(text, &mut recording)?,
            TraceFormat::Turns => turns::read(text, &mut recording)?,
            TraceFormat::Weka => weka::read(text, &mut recording)?,
        }
        recording.requests.extend(turns_of(&recording.sessions));
        if recording.requests.is_empty() {
            return Err(Error::Parse {
                place: place.into(),
                message: "no requests; expected at least one".into(),
            });
        }
        let timed = !matches!(format, TraceFormat::ShareGpt | TraceFormat::Pairs);
        Ok(Trace {
            requests: recording.requests,
            timed,
            sessions: recording.sessions,
            images: recording.images,
            seconds_assumed: recording.seconds_assumed,
        })
    }

    /// Sentences on what the trace has and no forecast counts, and on what it does not say.
    pub(super) fn notes(&self) -> Vec<String> {
        let images = (self.images > 0).then(|| {
            let images = self.images;
            format!(
                "the trace has {images} images: its prompts have the tokens that it states, and no encoder computes them"
            )
        });
        let unit = self.seconds_assumed.then(|| {
            let (count, span) = (self.requests.len(), self.span_s());
            format!(
                "the trace's times are read as seconds, {count} requests in {span} s: divide them by 1000 if they are \
                 milliseconds"
            )
        });
        images.into_iter().chain(unit).collect()
    }

    /// Seconds from the first request to the last.
    pub fn span_s(&self) -> f64 {
        match self.requests.as_slice() {
            [first, .., last] => last.at.seconds() - first.at.seconds(),
            _ => 0.0,
        }
    }

    /// Mean arrivals per second, from the gaps between requests; `None` if all requests come at once.
    pub fn rate(&self) -> Option<f64> {
        self.rate_of(self.requests.len())
    }

    /// Mean arrivals per second of the first `count` requests; `None` if they come at once.
    pub fn rate_of(&self, count: usize) -> Option<f64> {
        let requests = self.requests.get(..count).unwrap_or(&self.requests);
        let [first, .., last] = requests else { return None };
        let span = last.at.seconds() - first.at.seconds();
        (span > 0.0).then(|| (requests.len() - 1) as f64 / span)
    }

    /// The squared coefficient of variation of the gaps between requests; 0 if all requests come at once.
    pub fn cv2(&self) -> f64 {
        let Some(rate) = self.rate() else { return 0.0 };
        let gaps = self.requests.windows(2).map(|pair| pair[1].at.seconds() - pair[0].at.seconds());
        let squares: f64 = gaps.map(|gap| (gap * rate - 1.0).powi(2)).sum();
        squares / (self.requests.len() - 1) as f64
    }
}

fn detect(place: &str, text: &str) -> Result<TraceFormat> {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let format = match first {
        json if json.starts_with('{') => json::detect(json, |line| {
            serde_json::from_value(line).is_ok_and(|line| mooncake::is_vllms(&line))
        }),
        header if own::form(header, separator(text)).is_some() => Some(TraceFormat::Own),
        header if own::lengths(header, separator(text)).is_some() => Some(TraceFormat::Pairs),
        header => match header.split(separator(text)).next().unwrap_or_default().trim() {
            "TIMESTAMP" => Some(TraceFormat::Azure),
            "Timestamp" => Some(TraceFormat::BurstGpt),
            "arrival_s" => Some(TraceFormat::Own),
            "input_length" => Some(TraceFormat::Pairs),
            _ => None,
        },
    };
    format.ok_or_else(|| Error::Parse {
        place: format!("{place}:1:1"),
        message: format!(
            "{:?} is the first line of no known trace; expected a CSV header (TIMESTAMP,… of Azure; Timestamp,… of \
             BurstGPT; arrival_s,input_len,output_len; input_length,output_length) or JSON lines with timestamp, \
             input_length and output_length, or with conversations",
            first.chars().take(60).collect::<String>()
        ),
    })
}

/// Requests that were read so far.
struct Recording<'a> {
    place: &'a str,
    requests: Vec<Request>,
    sessions: Vec<Session>,
    images: u64,
    seconds_assumed: bool,
}

impl Recording<'_> {
    /// Adds a request that was read from `line`; an earlier time than that of the previous request is an error.
    fn add(&mut self, line: usize, request: Request) -> Result<()> {
        if let Some(last) = self.requests.last().filter(|last| last.at > request.at) {
            let now = request.at.seconds();
            let before = last.at.seconds();
            let message =
                format!("the time {now} s is before {before} s of the line above; expected times in order");
            return Err(self.error(line, 1, message));
        }
        if self.requests.len() == MOST_REQUESTS {
            let message = format!("more than {MOST_REQUESTS} requests; expected a part of such a trace");
            return Err(self.error(line, 1, message));
        }
        self.requests.push(request);
        Ok(())
    }

    fn error(&self, line: usize, column: usize, message: String) -> Error {
        Error::Parse { place: format!("{}:{line}:{column}", self.place), message }
    }

    /// Returns `count` as a number of tokens; an error if it is 0 or too large.
    fn tokens(&self, line: usize, column: usize, name: &str, count: u64) -> Result<u32> {
        match u32::try_from(count) {
            Ok(n) if (1..=MOST_TOKENS).contains(&count) => Ok(n),
            _ => {
                let message = format!("`{name}` is {count}; accepted: 1 to {MOST_TOKENS} tokens");
                Err(self.error(line, column, message))
            }
        }
    }

    /// Returns `seconds` as a time since the start; an error if it is not valid.
    fn seconds(&self, line: usize, column: usize, name: &str, seconds: f64) -> Result<Picoseconds> {
        if (0.0..=MOST_SECONDS).contains(&seconds) {
            return Ok(Picoseconds::from_seconds(seconds));
        }
        let message = format!("`{name}` is {} s; accepted: 0 to {MOST_SECONDS} s", shown(seconds));
        Err(self.error(line, column, message))
    }
}

/// Every turn as a request at the start time of its session, in order of time, with the recorded prompt length.
fn turns_of(sessions: &[Session]) -> Vec<Request> {
    let mut requests = Vec::new();
    for session in sessions {
        let mut conversation = 0_u32;
        for turn in &session.turns {
            let input = match turn.text {
                Text::Added(_) => conversation.saturating_add(turn.input),
                Text::Whole(_) => turn.input,
            };
            conversation = input.saturating_add(turn.output);
            requests.push(plain(session.at, input, turn.output));
        }
    }
    requests.sort_by_key(|request| request.at);
    requests
}

/// A request without tokens in common with other requests.
fn plain(at: Picoseconds, input_len: u32, output_len: u32) -> Request {
    Request {
        at,
        input_len,
        output_len,
        max_tokens: None,
        priority: 0,
        class: 0,
        adapter: 0,
        user: 0,
        prompt: Prompt::Own,
    }
}
