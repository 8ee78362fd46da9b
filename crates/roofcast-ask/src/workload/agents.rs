//! Replay of recorded agent sessions: turns that wait for answers and tools, and sub-agents that run during a wait.
//!
//! Knows: which session sends its next turn at which time, the text of each session, and the sub-agents for which a
//! turn waits. A turn is sent when the session's last answer is `wait` old and all sub-agents that were spawned before
//! the turn have ended. Knows nothing about file formats ([`super::trace`]) or how requests are served.

use super::arrivals::{Arrivals, Clock};
use super::random::{Purpose, Stream};
use super::replay::Replay;
use super::request::{Prompt, Request, Run};
use super::trace::Trace;
use super::trace::session::{Text, Turn};
use roofcast_facts::units::Picoseconds;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

/// The recorded sessions, with the progress of each.
#[derive(Debug, Clone)]
pub(super) struct Agents {
    trace: Arc<Trace>,
    /// Factor on recorded start times and waits.
    scale: f64,
    /// Sessions that have not started, other than sub-agents, with the next one last; `None` if sessions start at their
    /// recorded times.
    waiting: Option<Vec<usize>>,
    /// Times at which users send their next turns.
    due: BinaryHeap<Reverse<(Picoseconds, u32)>>,
    going: BTreeMap<u32, Going>,
    /// Number of users so far; each session or sub-agent in progress is one user.
    users: u32,
    /// Number of requests in flight.
    active: usize,
    /// Longest wait of a turn, and longest time without a request in flight.
    caps: Caps,
    /// Sessions that begin anew, in order, when none is waiting; empty if none does.
    again: Vec<usize>,
    /// Durations of ended sessions, from first turn to last answer, in the order of their ends.
    pub(super) tasks: Vec<Picoseconds>,
}

/// Longest waits that are replayed.
#[derive(Debug, Clone, Copy)]
struct Caps {
    turn: Picoseconds,
    idle: Picoseconds,
}

/// A session in progress.
#[derive(Debug, Clone)]
struct Going {
    /// Index of the session in the trace.
    session: usize,
    /// Index of the next turn in the session.
    next: usize,
    said: Vec<Run>,
    length: u32,
    /// The user that waits for this sub-agent; `None` if the session is not a sub-agent.
    parent: Option<u32>,
    /// Number of sub-agents for which the next turn waits.
    children: usize,
    /// Earliest time of the next turn.
    ready: Picoseconds,
    /// Time before which no turn follows the warm-up request, which has one output token; `None` without a warm-up.
    resumes: Option<Picoseconds>,
    started: Option<Picoseconds>,
}

/// First segment for texts without a recorded identity; traces use smaller segment numbers.
const OWN_TEXTS: u32 = 1 << 30;

impl Agents {
    /// The sessions of `trace`, which begin at the pace of `replay`: at their recorded times × its scale, at its rate, or
    /// so that a constant number is in progress.
    pub(super) fn new(trace: Arc<Trace>, replay: &Replay, seed: u64) -> Agents {
        let sessions = Arc::clone(&trace);
        let mut roots: Vec<usize> =
            (0..sessions.sessions.len()).filter(|index| !sessions.sessions[*index].spawned).collect();
        let mut agents = Agents {
            trace,
            scale: replay.scale.unwrap_or(1.0),
            waiting: None,
            due: BinaryHeap::new(),
            going: BTreeMap::new(),
            users: 0,
            active: 0,
            caps: Caps { turn: cap(replay.inter_turn_delay_cap_s), idle: cap(replay.system_idle_gap_cap_s) },
            again: Vec::new(),
            tasks: Vec::new(),
        };
        match replay.concurrency {
            None => {
                for (session, at) in begins(&sessions, &roots, replay, seed) {
                    agents.start(session, at, None);
                }
            }
            Some(most) => {
                roots.reverse();
                if replay.recycle == Some(true) {
                    agents.again.clone_from(&roots);
                }
                let first = roots.len().saturating_sub(usize::try_from(most).unwrap_or(usize::MAX));
                let starting = roots.split_off(first);
                agents.waiting = Some(roots);
                let mut position = replay.starts_within().then(|| Snapshot::new(replay, seed));
                for session in starting.into_iter().rev() {
                    match &mut position {
                        Some(position) => agents.start_within(session, position),
                        None => agents.start(session, Picoseconds::ZERO, None),
                    }
                }
            }
        }
        agents
    }

    fn start(&mut self, session: usize, at: Picoseconds, parent: Option<u32>) {
        let user = self.users;
        self.users += 1;
        let going = Going {
            session,
            next: 0,
            said: Vec::new(),
            length: 0,
            parent,
            children: 0,
            ready: at,
            resumes: None,
            started: None,
        };
        self.going.insert(user, going);
        self.due.push(Reverse((at, user)));
    }

    /// Starts a session within its recorded waits: the last turn before the position is the warm-up request, sent as long
    /// before the end of the warm-up as the position is after the turn; the turn after the position is sent as long after
    /// the end.
    fn start_within(&mut self, session: usize, snapshot: &mut Snapshot) {
        let turns = &self.trace.sessions[session].turns;
        let wait = |turn: &Turn| scaled(turn.wait, self.scale).min(self.caps.turn);
        let whole: u64 = turns.iter().skip(1).map(|turn| wait(turn).0).sum();
        let place = (snapshot.draw() * whole as f64) as u64;
        let mut before = 0;
        let mut next = 1;
        while next < turns.len() && before + wait(&turns[next]).0 <= place {
            before += wait(&turns[next]).0;
            next += 1;
        }
        let earlier: Vec<&Turn> = turns[..next - 1].iter().collect();
        let at = Picoseconds(snapshot.warm_up.0.saturating_sub(place - before));
        let resumes = match turns.get(next) {
            Some(turn) => Picoseconds(snapshot.warm_up.0 + (before + wait(turn).0 - place)),
            None => snapshot.warm_up,
        };
        let user = self.users;
        let mut text = Vec::new();
        let mut length = 0_u32;
        for turn in earlier {
            match &turn.text {
                Text::Whole(_) => {}
                Text::Added(runs) => {
                    let own_run = |start: u32, length: u32| Run {
                        segment: OWN_TEXTS + user,
                        start: start.into(),
                        length: length.into(),
                    };
                    let added = [own_run(length, turn.input)];
                    text.extend_from_slice(runs.as_deref().unwrap_or(&added));
                    length = length.saturating_add(turn.input);
                    text.push(own_run(length, turn.output));
                    length = length.saturating_add(turn.output);
                }
            }
        }
        self.start(session, at, None);
        if let Some(going) = self.going.get_mut(&user) {
            going.next = next - 1;
            going.said = text;
            going.length = length;
            going.resumes = Some(resumes);
        }
    }

    pub(super) fn peek(&self) -> Option<Picoseconds> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// The next turn, in order of time and, for equal times, of users.
    pub(super) fn next(&mut self) -> Option<Request> {
        let Reverse((at, user)) = self.due.pop()?;
        let going = self.going.get_mut(&user)?;
        let turn = self.trace.sessions[going.session].turns.get(going.next)?;
        // The time of a task that began before the run is not known.
        going.started = going.started.or(Some(at)).filter(|_| going.resumes.is_none());
        self.active += 1;
        match &turn.text {
            Text::Whole(runs) => {
                going.said.clone_from(&runs.to_vec());
                going.length = turn.input;
            }
            Text::Added(runs) => {
                let own_run = [Run {
                    segment: OWN_TEXTS + user,
                    start: going.length.into(),
                    length: turn.input.into(),
                }];
                going.said.extend_from_slice(runs.as_deref().unwrap_or(&own_run));
                going.length = going.length.saturating_add(turn.input);
            }
        }
        let mut prompt = going.said.clone();
        let mut input_len = going.length;
        if !self.again.is_empty() {
            // A token of its own before the first turn keeps a session from the cache of its earlier replays.
            prompt.insert(0, Run { segment: OWN_TEXTS + user, start: u64::from(u32::MAX), length: 1 });
            input_len = input_len.saturating_add(1);
        }
        Some(Request {
            at,
            input_len,
            output_len: if going.resumes.is_some() { 1 } else { turn.output },
            max_tokens: None,
            priority: 0,
            class: 0,
            adapter: 0,
            user,
            prompt: Prompt::Runs(prompt.into()),
        })
    }

    /// Cuts a time without a request in flight, which began at `at`, to the longest one.
    fn cut(&mut self, at: Picoseconds) {
        let Some(next) = self.peek().filter(|_| self.active == 0) else { return };
        let excess = next.0.saturating_sub(at.0).saturating_sub(self.caps.idle.0);
        if excess == 0 {
            return;
        }
        let earlier = |time: Picoseconds| Picoseconds(time.0 - excess);
        self.due = self.due.drain().map(|Reverse((time, user))| Reverse((earlier(time), user))).collect();
        for going in self.going.values_mut().filter(|going| going.children > 0) {
            going.ready = Picoseconds(going.ready.0.saturating_sub(excess).max(at.0));
        }
    }

    /// Records at `at` the answer to `user`, whose tokens are `segment` from 0 on: sub-agents start, the next turn
    /// becomes due, or the session ends.
    pub(super) fn answered(&mut self, user: u32, at: Picoseconds, segment: u32) {
        self.active = self.active.saturating_sub(1);
        self.follow(user, at, segment);
        self.cut(at);
    }

    fn follow(&mut self, user: u32, at: Picoseconds, segment: u32) {
        let trace = Arc::clone(&self.trace);
        let scale = self.scale;
        let Some(going) = self.going.get_mut(&user) else { return };
        let session = &trace.sessions[going.session];
        let Some(turn) = session.turns.get(going.next) else { return };
        if matches!(turn.text, Text::Added(_)) {
            going.said.push(Run { segment, start: 0, length: turn.output.into() });
            going.length = going.length.saturating_add(turn.output);
        }
        going.next += 1;
        match session.turns.get(going.next) {
            Some(next) => {
                let wait = scaled(next.wait, scale).min(self.caps.turn);
                going.ready = going.resumes.take().map_or(at + wait, |resumes| resumes.max(at));
                going.children = next.spawns.len();
                if next.spawns.is_empty() {
                    self.due.push(Reverse((going.ready, user)));
                }
                next.spawns.iter().for_each(|child| {
                    self.start(*child, at + scaled(trace.sessions[*child].at, scale), Some(user))
                });
            }
            None => {
                session.background.iter().for_each(|child| {
                    self.start(*child, at + scaled(trace.sessions[*child].at, scale), None)
                });
                self.end(user, at);
            }
        }
    }

    /// Ends the session of `user`, whose request was refused at `at`.
    pub(super) fn refused(&mut self, user: u32, at: Picoseconds) {
        self.active = self.active.saturating_sub(1);
        self.end(user, at);
        self.cut(at);
    }

    /// Ends the session of `user`: its parent continues, or another session starts.
    fn end(&mut self, user: u32, at: Picoseconds) {
        let Some(ended) = self.going.remove(&user) else { return };
        if let Some(parent) = ended.parent {
            if let Some(waiting) = self.going.get_mut(&parent) {
                waiting.children -= 1;
                if waiting.children == 0 {
                    self.due.push(Reverse((waiting.ready.max(at), parent)));
                }
            }
            return;
        }
        if self.trace.sessions[ended.session].spawned {
            return;
        }
        if let Some(started) = ended.started {
            self.tasks.push(Picoseconds(at.0 - started.0));
        }
        let Some(waiting) = self.waiting.as_mut() else { return };
        if waiting.is_empty() {
            waiting.clone_from(&self.again);
        }
        if let Some(next) = waiting.pop() {
            self.start(next, at, None);
        }
    }
}

/// Positions within recorded sessions at which a run begins.
struct Snapshot {
    stream: Stream,
    ratios: [f64; 2],
    /// End of the warm-up.
    warm_up: Picoseconds,
}

impl Snapshot {
    fn new(replay: &Replay, seed: u64) -> Snapshot {
        let ratios = [
            replay.trajectory_start_min_ratio.unwrap_or(0.0),
            replay.trajectory_start_max_ratio.unwrap_or(1.0),
        ];
        let warm_up = Picoseconds::from_seconds(replay.ramp_s.unwrap_or(0.0));
        Snapshot { stream: Stream::new(seed, Purpose::Snapshot), ratios, warm_up }
    }

    fn draw(&mut self) -> f64 {
        let [least, most] = self.ratios;
        least + (most - least) * self.stream.unit()
    }
}

/// A bound in seconds; without one, a time later than any wait.
fn cap(seconds: Option<f64>) -> Picoseconds {
    seconds.map_or(Picoseconds(u64::MAX), Picoseconds::from_seconds)
}

/// Start times of the sessions `roots`: as recorded × the scale of `replay`, or at its rate. The rate scales recorded times;
/// sessions that all begin at one time in the record begin independently of each other.
fn begins(trace: &Trace, roots: &[usize], replay: &Replay, seed: u64) -> Vec<(usize, Picoseconds)> {
    let recorded = |index: &usize| trace.sessions[*index].at;
    let first = roots.iter().map(recorded).min().unwrap_or_default();
    let last = roots.iter().map(recorded).max().unwrap_or_default();
    let span_s = last.seconds() - first.seconds();
    let Some(rate) = replay.rate else {
        let scale = replay.scale.unwrap_or(1.0);
        return roots.iter().map(|index| (*index, scaled(recorded(index), scale))).collect();
    };
    if span_s > 0.0 {
        let scale = (roots.len() - 1) as f64 / span_s / rate;
        return roots.iter().map(|index| (*index, scaled(recorded(index), scale))).collect();
    }
    let clock = Clock::new(&Arrivals::Poisson { rate }, seed);
    let times = clock.into_iter().flat_map(|mut clock| std::iter::repeat_with(move || clock.next()));
    roots.iter().copied().zip(times).collect()
}

/// A recorded time multiplied by `scale`; exact if the factor is 1.
pub(super) fn scaled(time: Picoseconds, scale: f64) -> Picoseconds {
    if scale == 1.0 { time } else { Picoseconds::from_seconds(time.seconds() * scale) }
}

#[cfg(test)]
mod tests;
