//! `roofcast validate --split`: selects the rows that are shown, and refuses to show judging rows one by one.
//!
//! Knows: the flags that would show single rows or deployments. The library decides the side of a row.

use crate::args::{SplitArg, ValidateArgs};
use roofcast::Error;
use roofcast::measurement::Measurement;
use roofcast::validate::ErrorReport;
use roofcast::validate::split::Side;
use serde::Serialize;

/// The side that is shown, and the number of rows on each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Split {
    /// Side of the split that is shown.
    shown: SplitArg,
    /// Number of rows that may be read one by one.
    look: usize,
    /// Number of judging rows, which may be read only in aggregate.
    judge: usize,
}

impl Split {
    /// Keeps only the rows of the side `shown`.
    pub(super) fn keep(shown: SplitArg, rows: &mut Vec<Measurement>) -> Result<Split, Error> {
        let look = rows.iter().filter(|row| Side::of(row) == Side::Look).count();
        let split = Split { shown, look, judge: rows.len() - look };
        if let Some(side) = shown.side() {
            rows.retain(|row| Side::of(row) == side);
            if rows.is_empty() {
                let sides = format!("{}, {}", side.name(), split.words());
                return Err(Error::field("arguments", "--split", sides, "a side with rows, or all"));
            }
        }
        Ok(split)
    }

    /// Describes the split, as in `judge; the files have 2014 rows to look at, 6252 that judge`.
    pub(super) fn words(self) -> String {
        let shown = self.shown.side().map_or("all", Side::name);
        format!("{shown}; the files have {} rows to look at, {} that judge", self.look, self.judge)
    }

    /// The part of a report that may be shown: judging rows only in aggregate.
    pub(super) fn shown(self, report: ErrorReport) -> ErrorReport {
        if self.shown == SplitArg::Judge { report.sealed() } else { report }
    }
}

/// Refuses flags that show single judging rows or deployments, because a developer who sees their residuals tunes the
/// model to them, and they stop being an independent test.
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
            Err(Error::field("arguments", flag, "together with --split judge", accepted))
        }
        None => Ok(()),
    }
}
