//! JSON lines of sessions, one turn per line: `session_id`, `input_length`, `output_length`, `hash_ids` of 512 tokens.
//!
//! aiperf 0.13 and Dynamo write this format as multi-turn Mooncake traces: the first line of a session has `timestamp`
//! in ms, later lines have `delay` in ms after the previous answer, and lengths and ids count only new tokens. Equal
//! ids mean equal tokens.

use super::mooncake::{MOONCAKE, runs};
use super::session::{Session, Text, Turn};
use super::{Recording, json};
use roofcast_facts::error::Result;
use roofcast_facts::units::Picoseconds;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Line {
    session_id: String,
    timestamp: Option<f64>,
    #[serde(default)]
    delay: f64,
    input_length: u64,
    output_length: u64,
    #[serde(default)]
    hash_ids: Vec<u32>,
}

pub(super) fn read(text: &str, recording: &mut Recording) -> Result<()> {
    let mut sessions: BTreeMap<String, usize> = BTreeMap::new();
    json::lines(text, recording, |line, found: Line, recording| {
        let input = recording.tokens(line, 1, "input_length", found.input_length)?;
        let output = recording.tokens(line, 1, "output_length", found.output_length)?;
        let at = recording.seconds(line, 1, "timestamp", found.timestamp.unwrap_or(0.0) / 1e3)?;
        let wait = recording.seconds(line, 1, "delay", found.delay / 1e3)?;
        let known = !found.hash_ids.is_empty();
        if known && found.input_length.div_ceil(MOONCAKE.block) != found.hash_ids.len() as u64 {
            let blocks = found.input_length.div_ceil(MOONCAKE.block);
            let message =
                format!("{} `hash_ids` for {input} tokens; expected {blocks}, or none", found.hash_ids.len());
            return Err(recording.error(line, 1, message));
        }
        let text =
            Text::Added(known.then(|| runs(&found.hash_ids, 0, MOONCAKE.block, found.input_length).into()));
        let turn = Turn { wait, input, output, text, spawns: Vec::new() };
        let next = recording.sessions.len();
        let index = *sessions.entry(found.session_id).or_insert(next);
        if index == next {
            recording.sessions.push(Session { at, ..Session::default() });
            recording.sessions[index].turns.push(Turn { wait: Picoseconds::ZERO, ..turn });
        } else {
            recording.sessions[index].turns.push(turn);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use crate::workload::trace::Trace;
    use crate::workload::trace::session::Text;
    use roofcast_facts::units::Picoseconds;

    const TWO: &str = r#"{"session_id":"a","input_length":600,"output_length":7,"hash_ids":[4,9],"timestamp":1000}
{"session_id":"b","input_length":100,"output_length":3,"timestamp":2000}
{"session_id":"a","input_length":40,"output_length":5,"hash_ids":[12],"delay":2500}
"#;

    #[test]
    fn turns_add_to_their_session() {
        let trace = Trace::parse("t", TWO, None).unwrap();
        let [a, b] = trace.sessions.as_slice() else { panic!("two sessions") };
        assert_eq!((a.turns.len(), b.turns.len(), a.at.seconds(), b.at.seconds()), (2, 1, 1.0, 2.0));
        assert_eq!((a.turns[1].input, a.turns[1].wait), (40, Picoseconds::from_seconds(2.5)));
        assert_eq!(b.turns[0].text, Text::Added(None));
        // The second prompt has 600 + 7 + 40 tokens.
        assert_eq!(trace.requests.iter().map(|r| r.input_len).collect::<Vec<_>>(), [600, 647, 100]);
    }

    #[test]
    fn ids_that_do_not_fit_are_refused() {
        let text = TWO.replace("[12]", "[12,13]");
        let error = Trace::parse("t", &text, None).unwrap_err().to_string();
        assert!(error.contains("t:3:1") && error.contains("expected 1"), "{error}");
    }
}
