//! `roofcast validate --split`: which of the files' rows are shown, and what is refused of those that judge.
//!
//! Knows which flags tell rows or deployments apart. Which side a row is on is the library's.

use crate::args::{SplitArg, ValidateArgs};
use roofcast::Error;
use roofcast::measurement::Measurement;
use roofcast::validate::Report;
use roofcast::validate::split::Side;
use serde::Serialize;

/// The rows that are shown, of those of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Split {
    shown: SplitArg,
    /// Rows that may be looked at one by one.
    look: usize,
    /// Rows that are read as a table only.
    judge: usize,
}

impl Split {
    /// Keeps the rows of the side that was asked for.
    pub(super) fn keep(shown: SplitArg, rows: &mut Vec<Measurement>) -> Result<Split, Error> {
        let look = rows.iter().filter(|row| Side::of(row) == Side::Look).count();
        let split = Split { shown, look, judge: rows.len() - look };
        if let Some(side) = shown.side() {
            rows.retain(|row| Side::of(row) == side);
            if rows.is_empty() {
                let found = format!("{}, {}", side.name(), split.words());
                return Err(Error::field("arguments", "--split", found, "a side with rows, or all"));
            }
        }
        Ok(split)
    }

    /// As in `judge; the files have 2014 rows to look at, 6252 that judge`.
    pub(super) fn words(self) -> String {
        let shown = self.shown.side().map_or("all", Side::name);
        format!("{shown}; the files have {} rows to look at, {} that judge", self.look, self.judge)
    }

    /// What is shown of a report: of rows that judge no single deployment or row.
    pub(super) fn shown(self, report: Report) -> Report {
        if self.shown == SplitArg::Judge { report.sealed() } else { report }
    }
}

/// Refuses to tell rows or deployments apart that only judge: whoever reads their residuals fits to them.
pub(super) fn refuse_rows(args: &ValidateArgs) -> Result<(), Error> {
    let flags = [
        ("--per-row", args.per_row.is_some()),
        ("--svg", args.svg.is_some()),
        ("--curves", args.curves.is_some()),
        ("--html", args.html.is_some()),
        ("--group", args.group.is_some()),
        ("--ranking", args.ranking),
    ];
    match flags.into_iter().find(|(_, given)| *given && args.split == SplitArg::Judge) {
        Some((flag, _)) => {
            let accepted = "it with --split look: rows that judge are shown as a table of errors only, since residuals that \
                            are read are fitted to; measurements of your own need no --split";
            Err(Error::field("arguments", flag, "beside --split judge", accepted))
        }
        None => Ok(()),
    }
}
