//! Replay of recorded agent sessions: turns that wait for answers and tools, and sub-agents that run during a wait.
//!
//! Knows: which session sends its next turn at which time, the text of each session, and the sub-agents for which a
//! turn waits. A turn is sent when the session's last answer is `wait` old and all sub-agents that were spawned before
//! the turn have ended. Knows nothing about file formats ([`super::trace`]) or how requests are served.

use super::arrivals::{Arrivals, Clock};
use super::replay::Replay;
use super::request::{Prompt, Request, Run};
use super::trace::Trace;
use super::trace::session::Text;
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
    /// Durations of ended sessions, from first turn to last answer, in the order of their ends.
    pub(super) tasks: Vec<Picoseconds>,
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
                let first = roots.len().saturating_sub(usize::try_from(most).unwrap_or(usize::MAX));
                let starting = roots.split_off(first);
                agents.waiting = Some(roots);
                starting.into_iter().rev().for_each(|session| agents.start(session, Picoseconds::ZERO, None));
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
            started: None,
        };
        self.going.insert(user, going);
        self.due.push(Reverse((at, user)));
    }

    pub(super) fn peek(&self) -> Option<Picoseconds> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// The next turn, in order of time and, for equal times, of users.
    pub(super) fn next(&mut self) -> Option<Request> {
        let Reverse((at, user)) = self.due.pop()?;
        let going = self.going.get_mut(&user)?;
        let turn = self.trace.sessions[going.session].turns.get(going.next)?;
        going.started = going.started.or(Some(at));
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
        Some(Request {
            at,
            input_len: going.length,
            output_len: turn.output,
            max_tokens: None,
            priority: 0,
            class: 0,
            adapter: 0,
            user,
            prompt: Prompt::Runs(going.said.clone().into()),
        })
    }

    /// Records at `at` the answer to `user`, whose tokens are `segment` from 0 on: sub-agents start, the next turn
    /// becomes due, or the session ends.
    pub(super) fn answered(&mut self, user: u32, at: Picoseconds, segment: u32) {
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
                going.ready = at + scaled(next.wait, scale);
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

    /// Ends the session of `user`: its parent continues, or another session starts.
    pub(super) fn end(&mut self, user: u32, at: Picoseconds) {
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
        if let Some(next) = self.waiting.as_mut().and_then(Vec::pop) {
            self.start(next, at, None);
        }
    }
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
mod tests {
    use super::*;
    use crate::workload::trace::session::{Session, Turn};

    const S: u64 = 1_000_000_000_000;

    fn turn(wait: u64, input: u32, spawns: &[usize]) -> Turn {
        let wait = Picoseconds(wait * S);
        let spawns = spawns.to_vec();
        Turn { wait, input, output: 10, text: Text::Added(None), spawns }
    }

    fn trace(sessions: Vec<Session>) -> Arc<Trace> {
        Arc::new(Trace { requests: Vec::new(), timed: true, sessions, images: 0 })
    }

    /// A parent asks at 0 and is answered at 5 s; two sub-agents start 1 s and 2 s later and end at 9 s and 20 s. The
    /// next turn waits for 3 s after the answer, until 8 s, and for both sub-agents: it is due at 20 s with 100 + 10 +
    /// 50 tokens.
    #[test]
    fn a_turn_waits_for_its_tools_and_its_sub_agents() {
        let parent = Session { turns: vec![turn(0, 100, &[]), turn(3, 50, &[1, 2])], ..Session::default() };
        let child = |at| Session {
            at: Picoseconds(at * S),
            turns: vec![turn(0, 30, &[])],
            spawned: true,
            ..Session::default()
        };
        let mut agents = Agents::new(trace(vec![parent, child(1), child(2)]), &Replay::default(), 0);
        let first = agents.next().unwrap();
        assert_eq!((first.at.0, first.user, first.input_len), (0, 0, 100));
        agents.answered(0, Picoseconds(5 * S), 7);
        let [one, two] = [(); 2].map(|()| agents.next().unwrap());
        assert_eq!([(one.at.0 / S, one.user), (two.at.0 / S, two.user)], [(6, 1), (7, 2)]);
        assert_eq!(agents.peek(), None);
        agents.answered(1, Picoseconds(9 * S), 8);
        assert_eq!(agents.peek(), None);
        agents.answered(2, Picoseconds(20 * S), 9);
        let next = agents.next().unwrap();
        assert_eq!((next.at.0 / S, next.user, next.input_len), (20, 0, 160));
        agents.answered(0, Picoseconds(25 * S), 7);
        assert_eq!((agents.peek(), agents.tasks.as_slice()), (None, [Picoseconds(25 * S)].as_slice()));
    }

    /// Of three sessions two are in progress: the third starts when one of these ends.
    #[test]
    fn as_many_sessions_as_asked_are_in_progress() {
        let session = || Session { turns: vec![turn(0, 100, &[])], ..Session::default() };
        let mut agents = Agents::new(
            trace(vec![session(), session(), session()]),
            &Replay { concurrency: Some(2), ..Replay::default() },
            0,
        );
        assert_eq!([(); 3].map(|()| agents.next().map(|r| r.user)), [Some(0), Some(1), None]);
        agents.answered(1, Picoseconds(4 * S), 0);
        assert_eq!(agents.next().map(|r| (r.at.0 / S, r.user)), Some((4, 2)));
    }

    /// Answers stay in the conversation, but a whole prompt replaces the conversation.
    #[test]
    fn a_whole_prompt_replaces_what_was_said() {
        let whole: Box<[Run]> = [Run { segment: 3, start: 0, length: 64 }].into();
        let last = Turn { input: 64, text: Text::Whole(whole.clone()), ..turn(0, 1, &[]) };
        let turns = vec![turn(0, 20, &[]), turn(0, 5, &[]), last];
        let mut agents =
            Agents::new(trace(vec![Session { turns, ..Session::default() }]), &Replay::default(), 0);
        agents.next();
        agents.answered(0, Picoseconds(S), 9);
        let second = agents.next().unwrap();
        let own_run = |start, length| Run { segment: OWN_TEXTS, start, length };
        let answer = Run { segment: 9, start: 0, length: 10 };
        assert_eq!(second.prompt, Prompt::Runs([own_run(0, 20), answer, own_run(30, 5)].into()));
        agents.answered(0, Picoseconds(2 * S), 8);
        assert_eq!(agents.next().unwrap().prompt, Prompt::Runs(whole));
    }
}
