//! Conversations: the prompt of a turn is all earlier text of the conversation plus new text.
//!
//! Knows: the sessions in progress, the text of each, and which session sends its next turn at which time. All turns of
//! a session are drawn when it begins, so that the speed of answers changes only times. Memory grows with the sessions
//! in progress. Knows nothing about how requests are served.

use super::arrivals::{Arrivals, Clock};
use super::draws::Draws;
use super::empirical::LengthSide;
use super::length::Sampler;
use super::random::{Purpose, Stream};
use super::request::Run;
use super::request::{Prompt, Request};
use super::users::Think;
use roofcast_facts::units::Picoseconds;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Most turns of a session.
pub(super) const MOST_TURNS: u32 = 1000;

#[derive(Debug, Clone)]
pub(super) struct Sessions {
    /// Clock of session starts, and time of the next start; `None` if a session starts only when another ends.
    beginning: Option<(Clock, Picoseconds)>,
    /// Times at which sessions send their next turns.
    due: BinaryHeap<Reverse<(Picoseconds, u32)>>,
    going: BTreeMap<u32, Session>,
    turns: Sampler,
    turns_stream: Stream,
    think: Think,
    begun: u32,
    /// Number of prefixes, which have the smallest segments; session n has segment `first_segment` + n.
    first_segment: u32,
}

#[derive(Debug, Clone)]
struct Session {
    /// Remaining turns in reverse order, the next one last.
    turns: Vec<Turn>,
    said: Vec<Run>,
    length: u32,
    /// Number of tokens that the session's user has sent.
    own: u32,
    priority: i32,
    class: u32,
    adapter: u32,
    max_tokens: Option<u32>,
    answer: u32,
}

#[derive(Debug, Clone)]
struct Turn {
    input: u32,
    output: u32,
    /// Time from the previous answer to this turn.
    think: Picoseconds,
}

impl Sessions {
    /// The sessions of `arrivals`; `None` if `arrivals` is another process.
    pub(super) fn new(arrivals: &Arrivals, prefixes: u64, most: u64, seed: u64) -> Option<Sessions> {
        let Arrivals::Sessions { concurrency, turns, think_s, .. } = arrivals else { return None };
        let at_once = concurrency.unwrap_or(0).min(most) as u32;
        Some(Sessions {
            beginning: Clock::new(arrivals, seed).map(|mut clock| {
                let first = clock.next();
                (clock, first)
            }),
            due: (0..at_once).map(|session| Reverse((Picoseconds::ZERO, session))).collect(),
            going: BTreeMap::new(),
            turns: turns.sampler(LengthSide::Input)?,
            turns_stream: Stream::new(seed, Purpose::Turns),
            think: Think::new(*think_s, seed),
            begun: at_once,
            first_segment: prefixes as u32,
        })
    }

    pub(super) fn peek(&self) -> Option<Picoseconds> {
        let speaks = self.due.peek().map(|Reverse((at, _))| *at);
        let begins = self.beginning.as_ref().map(|(_, at)| *at);
        speaks.into_iter().chain(begins).min()
    }

    /// The next turn. If a turn is due when a session begins, the turn goes first.
    pub(super) fn next(&mut self, draws: &mut Draws) -> Option<Request> {
        let at = self.peek()?;
        let session = match self.due.peek() {
            Some(Reverse((due, session))) if *due == at => {
                let session = *session;
                self.due.pop();
                session
            }
            _ => {
                let (clock, due) = self.beginning.as_mut()?;
                *due = clock.next();
                self.begun += 1;
                self.begun - 1
            }
        };
        if !self.going.contains_key(&session) {
            let new = self.begin(draws);
            self.going.insert(session, new);
        }
        let segment = self.first_segment + session;
        self.going.get_mut(&session)?.speak(at, session, segment)
    }

    /// Draws all turns of a new session.
    fn begin(&mut self, draws: &mut Draws) -> Session {
        let count = self.turns.draw(&mut self.turns_stream).min(MOST_TURNS);
        let (class, priority) = draws.class();
        let mut turns = Vec::with_capacity(count as usize);
        for turn in 0..count {
            let (text, output) = draws.lengths(class);
            // The first turn has the images, which later prompts repeat.
            let input = if turn == 0 { text.saturating_add(draws.image_tokens()) } else { text };
            let think = if turn == 0 { Picoseconds::ZERO } else { self.think.draw() };
            turns.push(Turn { input, output, think });
        }
        turns.reverse();
        let adapter = draws.adapter(class);
        let prefix = draws.prefix(adapter);
        let prefix_run = prefix.map(|(segment, length)| Run { segment, start: 0, length: length.into() });
        Session {
            turns,
            said: prefix_run.into_iter().collect(),
            length: prefix.map_or(0, |(_, length)| length),
            own: 0,
            priority,
            class,
            adapter,
            max_tokens: draws.max_tokens(),
            answer: 0,
        }
    }

    /// Records an answer at `at`: the session continues, or ends.
    pub(super) fn answered(&mut self, session: u32, at: Picoseconds, segment: u32) {
        let Some(going) = self.going.get_mut(&session) else { return };
        going.said.push(Run { segment, start: 0, length: going.answer.into() });
        match going.turns.last() {
            // A prompt must stay below 2^32 tokens, the range of lengths.
            Some(turn) if going.length.checked_add(turn.input).is_some() => {
                self.due.push(Reverse((at + turn.think, session)));
            }
            _ => self.end(session, at),
        }
    }

    /// Ends the session; if a constant number of sessions is in progress, the next session begins.
    pub(super) fn end(&mut self, session: u32, at: Picoseconds) {
        if self.going.remove(&session).is_some() && self.beginning.is_none() {
            self.due.push(Reverse((at, self.begun)));
            self.begun += 1;
        }
    }
}

impl Session {
    fn speak(&mut self, at: Picoseconds, user: u32, segment: u32) -> Option<Request> {
        let turn = self.turns.pop()?;
        self.said.push(Run { segment, start: self.own.into(), length: turn.input.into() });
        self.own = self.own.saturating_add(turn.input);
        self.length = self.length.saturating_add(turn.input);
        self.answer = turn.output;
        let request = Request {
            at,
            input_len: self.length,
            output_len: turn.output,
            max_tokens: self.max_tokens,
            priority: self.priority,
            class: self.class,
            adapter: self.adapter,
            user,
            prompt: Prompt::Runs(self.said.clone().into()),
        };
        self.length = self.length.saturating_add(turn.output);
        Some(request)
    }
}
