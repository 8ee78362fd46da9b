//! A spec as text: every key with a comment that gives its meaning and unit.
//!
//! Knows: how to write a table so that parsing returns an equal table. Knows nothing about resolved values.

use super::keys::{KEYS, about_section};
use super::settings::get;
use toml::{Table, Value};

/// A key that is not set, with the value that applies.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Absent {
    /// Path of the key.
    pub(crate) path: &'static str,
    /// The value that applies, in TOML; `None` if it is unknown.
    pub(crate) holds: Option<Value>,
}

/// The table as TOML: sections and keys in the order of [`KEYS`], each with its description; keys of `absent` are
/// commented out.
pub(crate) fn write(table: &Table, absent: &[Absent]) -> String {
    let mut sections: Vec<&str> = Vec::new();
    for path in KEYS.iter().map(|key| key.path) {
        let section = path.rsplit_once('.').map_or("", |(section, _)| section);
        if !sections.contains(&section) {
            sections.push(section);
        }
    }
    // A section precedes its subsections.
    sections
        .sort_by_key(|name| (rank(name.split('.').next().unwrap_or_default()), name.matches('.').count()));
    let text = |name: &&str| section(table, name, absent);
    sections.iter().filter_map(text).collect::<Vec<_>>().join("\n")
}

fn rank(section: &str) -> usize {
    KEYS.iter().position(|key| key.section() == section).unwrap_or(KEYS.len())
}

fn section(table: &Table, name: &str, absent: &[Absent]) -> Option<String> {
    let written = get(table, name).and_then(Value::as_table);
    let last_part = |path: &str| {
        path.rsplit_once('.').filter(|(section, _)| *section == name).map(|(_, key)| key.to_owned())
    };
    let mut lines: Vec<(String, &str)> = Vec::new();
    for key in KEYS {
        let Some(last) = last_part(key.path) else { continue };
        match written.and_then(|section| section.get(&last)) {
            // A length may be a table.
            Some(value) => lines.push((format!("{last} = {value}"), without_default(key.about))),
            None => {
                let Some(absent) = absent.iter().find(|a| a.path == key.path) else { continue };
                let holds = absent.holds.as_ref().map_or(String::new(), |v| format!(" {v}"));
                lines.push((format!("# {last} ={holds}"), key.about));
            }
        }
    }
    if lines.is_empty() && !written.is_some_and(Table::is_empty) {
        return None;
    }
    // Comment a section out if it contains only comments, because an empty section might have a meaning.
    let mark = if written.is_some() { "" } else { "# " };
    let width = lines.iter().map(|(text, _)| text.chars().count()).filter(|n| *n <= 44).max().unwrap_or(0);
    let about = about_section(name).map_or(String::new(), |about| format!("# {about}\n"));
    let lines: String = lines.iter().map(|(text, about)| format!("{text:width$}  # {about}\n")).collect();
    Some(format!("{about}{mark}[{name}]\n{lines}"))
}

/// Description of a key that is set: without the default.
fn without_default(about: &str) -> &str {
    about.split(" [default").next().unwrap_or(about)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;

    #[test]
    fn what_is_written_is_read_back() {
        let text = "model.name = \"a\\\"b\"\nengine.watermark = 0.25\nengine.speculative.draft_cost = 0.1\n\
                    engine.speculative.num_speculative_tokens = 3\nengine.speculative.acceptance_rate = 0.5\n\
                    workload.input_len = { kind = \"lognormal\", mu = 6.9, sigma = 0.7 }\nworkload.output_len = 7\n\
                    workload.priorities = [1.0, 2.0]\nfleet = {}\n\
                    workload.arrivals = { kind = \"poisson\", rate = 5 }\nslo.tpot_p99_ms = 50\nsearch.tp = [1, 2]\n\
                    engine.length_prediction = { kind = \"noisy\", sigma = 0.5 }";
        let table: Table = text.parse().unwrap();
        let absent = [Absent { path: "precision.weights", holds: Some("bf16".into()) }];
        let written = write(&table, &absent);
        assert_eq!(written.parse::<Table>().unwrap(), table, "{written}");
        assert!(written.contains("# weights = \"bf16\"  # weight format"), "{written}");
        assert!(
            written.contains("tpot_p99_ms = 50  # time per output token, 99th percentile, ms"),
            "{written}"
        );
        assert_eq!(Spec::parse("t", &written).unwrap(), Spec::parse("t", text).unwrap());
    }
}
