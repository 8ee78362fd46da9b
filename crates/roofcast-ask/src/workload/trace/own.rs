//! CSV with times in seconds, since the start or since 1970, or as dates: roofcast's `arrival_s,input_len,output_len` and the
//! names of other tools; optionally `priority` (smaller first), `session`, `max_tokens` (the client's
//! bound, at least the output) and `adapter` (the name of a LoRA adapter, or nothing). Other columns are skipped.

use super::csv::CsvRow;
use super::{Recording, azure, csv, plain};
use crate::workload::request::Request;
use roofcast_facts::error::Result;
use roofcast_facts::table::separator;
use roofcast_facts::units::Picoseconds;
use std::collections::BTreeMap;
use std::ops::Range;

/// Names of the time: roofcast's, vidur's (`synthetic_request_generator`'s traces), ServeGen's, Splitwise's, plain ones.
const TIMES: [&str; 7] =
    ["arrival_s", "arrived_at", "timestamp", "arrival_timestamp", "arrival_time", "time", "ts"];
/// Names of a prompt's tokens.
const INPUTS: [&str; 8] = [
    "input_len",
    "num_prefill_tokens",
    "input_tokens",
    "input_length",
    "prompt_size",
    "prompt_tokens",
    "prompt_len",
    "prompt_length",
];
/// Names of an answer's tokens.
const OUTPUTS: [&str; 8] = [
    "output_len",
    "num_decode_tokens",
    "output_tokens",
    "output_length",
    "token_size",
    "completion_tokens",
    "gen_len",
    "generated_tokens",
];
/// Seconds of times since 1970, from 2001 to 2286.
const EPOCH_S: Range<f64> = 1e9..1e10;
/// Last time from which whole numbers may be milliseconds.
const IN_DOUBT_S: f64 = 1000.0;
const OPTIONAL: [&str; 4] = ["priority", "session", "max_tokens", "adapter"];

/// Names of time, input and output in `header`; `None` if it has no such columns.
pub(super) fn form(header: &str, separator: char) -> Option<[&'static str; 3]> {
    let [input, output] = lengths(header, separator)?;
    Some([named(header, separator, &TIMES)?, input, output])
}

/// Names of input and output in `header`; `None` if it has no such columns.
pub(super) fn lengths(header: &str, separator: char) -> Option<[&'static str; 2]> {
    Some([named(header, separator, &INPUTS)?, named(header, separator, &OUTPUTS)?])
}

fn named(header: &str, separator: char, known: &[&'static str]) -> Option<&'static str> {
    let has = |name: &&&str| header.split(separator).any(|column| column.trim() == **name);
    known.iter().find(has).copied()
}

/// Time of a row in seconds; of dates, and of seconds since 1970, since the `first` one.
fn time(row: &CsvRow, first: &mut Option<f64>, recording: &Recording) -> Result<Picoseconds> {
    let written = row.text(0).unwrap_or_default();
    let since_1970 =
        written.parse().ok().filter(|seconds| EPOCH_S.contains(seconds)).or_else(|| azure::seconds(written));
    match since_1970 {
        Some(seconds) => {
            let since = seconds - *first.get_or_insert(seconds);
            recording.seconds(row.line, row.column(0), "the time since the first row", since)
        }
        None => row.seconds(0, recording),
    }
}

pub(super) fn read(text: &str, recording: &mut Recording) -> Result<()> {
    let header = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let roofcasts = [TIMES[0], INPUTS[0], OUTPUTS[0]];
    let columns = [form(header, separator(text)).unwrap_or(roofcasts).as_slice(), &OPTIONAL].concat();
    let mut adapters: BTreeMap<String, u32> = BTreeMap::new();
    let mut sessions: BTreeMap<String, u32> = BTreeMap::new();
    let mut first = None;
    csv::rows(text, &columns, 3, recording, |row, recording| {
        let at = time(row, &mut first, recording)?;
        let mut request = plain(at, row.tokens(1, recording)?, row.tokens(2, recording)?);
        if row.text(3).is_some() {
            request = Request { priority: row.value(3, "a whole number", recording)?, ..request };
        }
        if let Some(session) = row.text(4) {
            let next = sessions.len() as u32;
            let user =
                session.parse().unwrap_or_else(|_| *sessions.entry(session.to_owned()).or_insert(next));
            request = Request { user, ..request };
        }
        if row.text(5).is_some_and(|text| !text.is_empty()) {
            let bound = row.tokens(5, recording)?;
            if bound < request.output_len {
                let output_len = request.output_len;
                let output = columns[2];
                let message = format!("`max_tokens` is {bound}; accepted: {output}, {output_len}, or more");
                return Err(recording.error(row.line, row.column(5), message));
            }
            request = Request { max_tokens: Some(bound), ..request };
        }
        if let Some(name) = row.text(6).filter(|text| !text.is_empty()) {
            let next = adapters.len() as u32 + 1;
            request = Request { adapter: *adapters.entry(name.to_owned()).or_insert(next), ..request };
        }
        recording.add(row.line, request)
    })?;
    let is_whole = |request: &Request| request.at.seconds().fract() == 0.0;
    let last = recording.requests.last().map_or(0.0, |request| request.at.seconds());
    recording.seconds_assumed = first.is_none()
        && !TIMES[..2].contains(&columns[0])
        && last >= IN_DOUBT_S
        && recording.requests.iter().all(is_whole);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Trace, TraceFormat};

    /// Times in seconds, prompts and answers of a text.
    fn read(text: &str) -> Vec<(f64, u32, u32)> {
        let trace = Trace::parse("t", text, None).unwrap();
        trace.requests.iter().map(|r| (r.at.seconds(), r.input_len, r.output_len)).collect()
    }

    /// Columns of Splitwise and of a gateway's log, with dates and seconds since 1970 counted from the first row.
    #[test]
    fn columns_of_other_tools() {
        let expected = [(0.0, 100, 20), (1.5, 30, 5)];
        for text in [
            "request_id,arrival_timestamp,batch_size,prompt_size,token_size\n0,0,1,100,20\n1,1.5,1,30,5\n",
            "arrival_time,prompt_tokens,completion_tokens\n1715000000.5,100,20\n1715000002,30,5\n",
            "timestamp,input_length,output_length\n2024-01-01T00:00:00Z,100,20\n2024-01-01T00:00:01.5Z,30,5\n",
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
        let sessions = "timestamp,input_tokens,output_tokens,session\n0,1,1,a\n1,1,1,b\n2,1,1,a\n";
        let trace = Trace::parse("t", sessions, None).unwrap();
        assert_eq!(trace.requests.iter().map(|r| r.user).collect::<Vec<_>>(), [0, 1, 0]);
        let pairs = Trace::parse("t", "prompt_len,output_len\n100,20\n", None).unwrap();
        assert_eq!((pairs.timed, pairs.requests[0].input_len), (false, 100));
    }

    /// Conversations by role and content, also as one JSON list, and behind a system's text.
    #[test]
    fn conversations_of_other_data_sets() {
        let turn = |role: &str, text: &str| format!(r#"{{"role": "{role}", "content": "{text}"}}"#);
        let [user, answer] = [turn("user", "one two three four"), turn("assistant", "five six")];
        let plain = format!(r#"{{"conversation": [{user}, {answer}], "timestamp": "2023-04-09T00:02:53Z"}}"#);
        let system = format!(r#"{{"messages": [{}, {user}, {answer}]}}"#, turn("system", "be kind"));
        let [one, list, more] =
            [plain.clone(), format!("[{plain},\n {plain}]"), system].map(|text| read(&text));
        assert_eq!((one.len(), list.len()), (1, 2));
        assert_eq!(list[1], one[0]);
        assert!(more[0].1 > one[0].1 && more[0].2 == one[0].2);
        assert_eq!(Trace::parse("t", &plain, Some(TraceFormat::ShareGpt)).unwrap().requests.len(), 1);
    }

    /// Whole numbers of 1000 and more without a unit may be milliseconds; a name with a unit, dates and fractions say
    /// seconds.
    #[test]
    fn whole_numbers_without_a_unit_are_in_doubt() {
        for (header, times, doubt) in [
            ("timestamp", ["0", "1500", "3000"], true),
            ("arrival_s", ["0", "1500", "3000"], false),
            ("timestamp", ["0", "1500.5", "3000"], false),
            ("timestamp", ["0", "1", "2"], false),
            ("timestamp", ["1700000000", "1700001500", "1700003000"], false),
        ] {
            let rows: String = times.iter().map(|time| format!("{time},100,20\n")).collect();
            let text = format!("{header},input_tokens,output_tokens\n{rows}");
            let trace = Trace::parse("t.csv", &text, None).unwrap();
            assert_eq!(trace.seconds_assumed, doubt, "{text}");
        }
    }
}
