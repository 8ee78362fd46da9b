//! `roofcast keys [SEARCH]`: the keys of a spec, which `--set` and sweeps accept, with their flags.

use crate::args::KeysArgs;
use crate::exit;
use crate::show::{self, table};
use anyhow::Result;
use roofcast::spec::keys::{KEYS, SpecKey};
use serde::Serialize;
use std::process::ExitCode;

const SCHEMA: &str = "roofcast/keys/1";

/// Keys of a spec that a search finds.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Keys"))]
pub(crate) struct Answer {
    /// The keys in the order of a spec.
    keys: Vec<Line>,
}

/// A key with its flag, unit and default, as text.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "KeyLine"))]
struct Line {
    /// Dotted key.
    key: &'static str,
    /// Flag that sets the key; `null` if none does.
    flag: Option<String>,
    /// Description of the key with its unit and default.
    about: &'static str,
}

impl Line {
    fn of(key: &SpecKey) -> Line {
        Line { key: key.path, flag: key.flag.map(|flag| format!("--{flag}")), about: key.about }
    }

    /// True if the line contains every word of a search.
    fn has(&self, words: &[String]) -> bool {
        let text = format!("{} {} {}", self.key, self.flag.as_deref().unwrap_or_default(), self.about);
        let text = text.to_lowercase();
        words.iter().all(|word| text.contains(&word.to_lowercase()))
    }
}

pub(crate) fn run(args: &KeysArgs) -> Result<ExitCode> {
    let keys: Vec<Line> = KEYS.iter().map(Line::of).filter(|line| line.has(&args.words)).collect();
    let code = if keys.is_empty() { exit::infeasible() } else { ExitCode::SUCCESS };
    if args.output.json {
        show::json(SCHEMA, &Answer { keys })?;
        return Ok(code);
    }
    let row = |line: &Line| {
        [line.key, line.flag.as_deref().unwrap_or_default(), line.about].map(str::to_owned).to_vec()
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    if args.output.csv {
        show::csv(&["key", "flag", "about"], &rows)?;
    } else if rows.is_empty() {
        show::text(&format!("no key has {}; `roofcast keys` lists all\n", args.words.join(" and ")))?;
    } else {
        let pairs: Vec<(String, String)> = keys
            .iter()
            .map(|line| {
                (
                    line.key.to_owned(),
                    line.flag.as_ref().map_or(String::new(), |flag| format!("{flag}: ")) + line.about,
                )
            })
            .collect();
        let pairs: Vec<_> = pairs.iter().map(|(key, about)| (key.as_str(), about.clone())).collect();
        show::text(&table::pairs(&pairs))?;
    }
    Ok(code)
}
