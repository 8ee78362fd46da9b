//! JSON lines of coding-agent sessions, one session per line, as kv-cache-tester publishes them
//! (github.com/callanjfox).
//!
//! A session has `requests`. A request has its offset `t` and `think_time` in seconds, `in` and `out` tokens, and
//! `hash_ids` of whole blocks of `block_size` tokens, which are local to the session. An entry may instead be a
//! sub-agent (`type` `subagent`) with its own requests, which starts at its `t` and ends before the parent's next
//! request. System prompts that sessions have in common have different ids in each session, so that nothing is shared
//! between sessions.

use super::mooncake::runs;
use super::session::{Session, Text, Turn};
use super::{Recording, json};
use crate::workload::request::Run;
use roofcast_facts::error::Result;
use roofcast_facts::units::Picoseconds;
use serde::Deserialize;

/// Largest size of a block in tokens.
const MOST_BLOCK: u64 = 1 << 20;

#[derive(Deserialize)]
struct Line {
    block_size: u64,
    requests: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    t: f64,
    think_time: Option<f64>,
    api_time: Option<f64>,
    #[serde(rename = "in", default)]
    input: u64,
    #[serde(rename = "out", default)]
    output: u64,
    #[serde(default)]
    hash_ids: Vec<u32>,
    /// Requests of the sub-agent; `None` for a plain request.
    requests: Option<Vec<Item>>,
}

pub(super) fn read(text: &str, recording: &mut Recording) -> Result<()> {
    json::lines(text, recording, |line, found: Line, recording| {
        if !(1..=MOST_BLOCK).contains(&found.block_size) {
            let message = format!("`block_size` is {}; accepted: 1 to {MOST_BLOCK} tokens", found.block_size);
            return Err(recording.error(line, 1, message));
        }
        // Index of the session, which precedes the sessions of its sub-agents.
        let index = recording.sessions.len();
        recording.sessions.push(Session::default());
        let segment = index as u32;
        let session =
            Reader { line, block: found.block_size, segment }.session(&found.requests, recording)?;
        recording.sessions[index] = session;
        Ok(())
    })
}

/// Properties that all requests of a line have in common.
struct Reader {
    line: usize,
    block: u64,
    /// Segment that holds the tokens of the session's block ids.
    segment: u32,
}

impl Reader {
    /// Reads `items` as a session; sub-agents are added to the recording.
    fn session(&self, items: &[Item], recording: &mut Recording) -> Result<Session> {
        let mut session = Session::default();
        let mut spawns = Vec::new();
        let mut answered = 0.0_f64;
        for item in items {
            if let Some(requests) = &item.requests {
                let at = recording.seconds(self.line, 1, "t", (item.t - answered).max(0.0))?;
                let child = self.session(requests, recording)?;
                spawns.push(recording.sessions.len());
                recording.sessions.push(Session { at, spawned: true, ..child });
                continue;
            }
            let wait =
                recording.seconds(self.line, 1, "think_time", item.think_time.unwrap_or(0.0).max(0.0))?;
            let wait = if session.turns.is_empty() { Picoseconds::ZERO } else { wait };
            let input = recording.tokens(self.line, 1, "in", item.input)?;
            let output = recording.tokens(self.line, 1, "out", item.output.max(1))?;
            let text = Text::Whole(self.prompt(item, session.turns.len()));
            session.turns.push(Turn { wait, input, output, text, spawns: std::mem::take(&mut spawns) });
            answered = item.t + item.api_time.unwrap_or(0.0);
        }
        if session.turns.is_empty() {
            return Err(recording.error(
                self.line,
                1,
                "a session without requests; expected at least one".into(),
            ));
        }
        session.background = spawns;
        Ok(session)
    }

    /// Tokens of a prompt: whole blocks by their ids, and the rest as tokens that no other turn has.
    fn prompt(&self, item: &Item, turn: usize) -> Box<[Run]> {
        let mut runs = runs(&item.hash_ids, self.segment, self.block, item.input);
        let left = item.input - runs.iter().map(|run| run.length).sum::<u64>();
        if left > 0 {
            // Start after all ids, which have 32 bits.
            let start = ((1 << 32) + turn as u64) * MOST_BLOCK;
            runs.push(Run { segment: self.segment, start, length: left });
        }
        runs.into()
    }
}

#[cfg(test)]
mod tests {
    use crate::workload::request::Run;
    use crate::workload::trace::Trace;
    use crate::workload::trace::session::Text;

    /// A parent session with two requests, between which a sub-agent with one request runs.
    const ONE: &str = concat!(
        r#"{"id":"x","block_size":64,"requests":[{"t":0,"in":130,"out":9,"hash_ids":[1,2],"api_time":2},"#,
        r#"{"t":5,"type":"subagent","requests":[{"t":0,"in":64,"out":4,"hash_ids":[7]}]},"#,
        r#"{"t":9,"in":192,"out":3,"hash_ids":[1,2,3],"api_time":1,"think_time":1.5}]}"#
    );

    #[test]
    fn a_sub_agent_runs_before_the_parents_next_request() {
        let trace = Trace::parse("t", ONE, None).unwrap();
        let [parent, child] = trace.sessions.as_slice() else { panic!("two sessions") };
        // The sub-agent starts at 5 s, and the answer before came at 0 + 2 s.
        assert_eq!((child.spawned, child.at.seconds(), parent.spawned), (true, 3.0, false));
        assert_eq!(
            (parent.turns[1].spawns.as_slice(), parent.turns[1].wait.seconds()),
            ([1].as_slice(), 1.5)
        );
        // Ids 1 to 3 are one run of 192 tokens; 130 tokens are two blocks and two tokens without an id.
        let whole = Text::Whole([Run { segment: 0, start: 64, length: 192 }].into());
        assert_eq!(parent.turns[1].text, whole);
        let Text::Whole(first) = &parent.turns[0].text else { panic!("a whole prompt") };
        assert_eq!(first.iter().map(|run| run.length).collect::<Vec<_>>(), [128, 2]);
    }

    #[test]
    fn blocks_of_any_size_are_not_taken() {
        for size in ["0", "1048577", "18446744073709551615"] {
            let text = ONE.replace("\"block_size\":64", &format!("\"block_size\":{size}"));
            let error = Trace::parse("t", &text, None).unwrap_err().to_string();
            assert!(error.contains(size) && error.contains("1 to 1048576"), "{error}");
        }
    }

    #[test]
    fn a_session_without_requests_is_refused() {
        let error = Trace::parse("t", r#"{"block_size":64,"requests":[]}"#, None).unwrap_err().to_string();
        assert!(error.contains("t:1:1") && error.contains("without requests"), "{error}");
    }
}
