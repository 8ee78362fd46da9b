//! Replays of recorded sessions by hand.

use super::*;
use crate::workload::trace::session::Session;

const S: u64 = 1_000_000_000_000;

fn turn(wait: u64, input: u32, spawns: &[usize]) -> Turn {
    let wait = Picoseconds(wait * S);
    let spawns = spawns.to_vec();
    Turn { wait, input, output: 10, text: Text::Added(None), spawns }
}

fn trace(sessions: Vec<Session>) -> Arc<Trace> {
    Arc::new(Trace { requests: Vec::new(), timed: true, sessions, images: 0, seconds_assumed: false })
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

/// Waits of 3, 3 and 3 s; a start at 2/3 of the 9 s is after the third turn, sent at 6 s: with a warm-up of 10 s the third
/// turn is sent at its end with one token, on 20 + 10 + 5 + 10 + 5 tokens of the conversation so far, and the fourth 3 s
/// after it, on 15 more. A start at half, 4.5 s, sends the second turn, of 3 s, at 8.5 s, and the third at 11.5 s.
#[test]
fn a_run_begins_within_sessions() {
    let turns = vec![turn(0, 20, &[]), turn(3, 5, &[]), turn(3, 5, &[]), turn(3, 5, &[])];
    let begun = |ratio: f64| {
        let ratio = Some(ratio);
        let replay = Replay {
            concurrency: Some(1),
            ramp_s: Some(10.0),
            trajectory_start_min_ratio: ratio,
            trajectory_start_max_ratio: ratio,
            ..Replay::default()
        };
        let session = Session { turns: turns.clone(), ..Session::default() };
        let mut agents = Agents::new(trace(vec![session]), &replay, 0);
        let warm = agents.next().unwrap();
        agents.answered(0, Picoseconds(10 * S), 7);
        let next = agents.next().unwrap();
        [warm, next].map(|request| (request.at.0, request.input_len, request.output_len))
    };
    assert_eq!(begun(2.0 / 3.0), [(10 * S, 50, 1), (13 * S, 65, 10)]);
    assert_eq!(begun(0.5), [(17 * S / 2, 35, 1), (23 * S / 2, 50, 10)]);
}

/// Two sessions of one turn, one in progress, begin anew, each with a token of its own first. Waits of 50 s are cut to
/// 20 s a turn, and to 5 s where no request is in flight.
#[test]
fn sessions_begin_anew_and_waits_are_cut() {
    let single = || Session { turns: vec![turn(0, 100, &[])], ..Session::default() };
    let replay = Replay { concurrency: Some(1), recycle: Some(true), ..Replay::default() };
    let mut agents = Agents::new(trace(vec![single(), single()]), &replay, 0);
    for user in 0..5 {
        let request = agents.next().unwrap();
        assert_eq!((request.user, request.input_len), (user, 101));
        agents.answered(user, Picoseconds(S), 0);
    }
    let waits = |replay: Replay| {
        let session = Session { turns: vec![turn(0, 100, &[]), turn(50, 5, &[])], ..Session::default() };
        let mut agents = Agents::new(trace(vec![session]), &replay, 0);
        agents.next();
        agents.answered(0, Picoseconds(S), 0);
        agents.next().map(|request| request.at.0 / S)
    };
    assert_eq!(waits(Replay { inter_turn_delay_cap_s: Some(20.0), ..Replay::default() }), Some(21));
    assert_eq!(waits(Replay { system_idle_gap_cap_s: Some(5.0), ..Replay::default() }), Some(6));
    assert_eq!(waits(Replay::default()), Some(51));
}

/// Answers stay in the conversation, but a whole prompt replaces the conversation.
#[test]
fn a_whole_prompt_replaces_what_was_said() {
    let whole: Box<[Run]> = [Run { segment: 3, start: 0, length: 64 }].into();
    let last = Turn { input: 64, text: Text::Whole(whole.clone()), ..turn(0, 1, &[]) };
    let turns = vec![turn(0, 20, &[]), turn(0, 5, &[]), last];
    let mut agents = Agents::new(trace(vec![Session { turns, ..Session::default() }]), &Replay::default(), 0);
    agents.next();
    agents.answered(0, Picoseconds(S), 9);
    let second = agents.next().unwrap();
    let own_run = |start, length| Run { segment: OWN_TEXTS, start, length };
    let answer = Run { segment: 9, start: 0, length: 10 };
    assert_eq!(second.prompt, Prompt::Runs([own_run(0, 20), answer, own_run(30, 5)].into()));
    agents.answered(0, Picoseconds(2 * S), 8);
    assert_eq!(agents.next().unwrap().prompt, Prompt::Runs(whole));
}
