//! The fit of whole steps and runs, on a thread of its own.
//!
//! Knows: that a fit takes minutes, and that Ctrl-C ends it at once: what is half done is of no use, so nobody waits for it.
//! Knows nothing about output.

use super::Answer;
use crate::show::progress::Progress;
use crate::show::target::Target;
use crate::verbs::validate::per_row;
use anyhow::Result;
use roofcast::calibrate::{Fit, LeaveOut};
use roofcast::calibration::Calibration;
use roofcast::measurement::Measurement;
use roofcast::report::scatter;
use roofcast::validate::{Point, Report, report};
use roofcast::{Catalog, Error};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How often Ctrl-C is looked for.
const POLL: Duration = Duration::from_millis(50);

/// What is fitted, and what is wanted of it.
pub(super) struct Work {
    pub(super) rows: Vec<Measurement>,
    /// The file that rows of each source stand in.
    pub(super) files: BTreeMap<String, String>,
    pub(super) catalog: Catalog,
    pub(super) prior: Calibration,
    pub(super) protocols: Vec<LeaveOut>,
    pub(super) source: String,
    /// Whether each row is wanted, as CSV.
    pub(super) per_row: bool,
    /// Whether a picture is wanted.
    pub(super) scatter: bool,
}

/// What came of it.
pub(super) struct Judged {
    calibration: Calibration,
    undetermined: Vec<String>,
    contradicted: usize,
    in_sample: Report,
    left_out: BTreeMap<LeaveOut, Report>,
    per_row: Option<String>,
    scatter: Option<String>,
}

impl Work {
    /// Fits and judges; none where Ctrl-C came before the end. The thread ends with the process, or after its phase.
    pub(super) fn watched(self) -> Result<Option<Judged>> {
        let progress = Arc::new(Progress::phases("phases: fit, judge what is left out", self.phases())?);
        let (send, receive) = channel();
        let heard = Arc::clone(&progress);
        // Nobody listens any more where Ctrl-C came.
        std::thread::spawn(move || drop(send.send(self.done(&heard))));
        loop {
            match receive.recv_timeout(POLL) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Timeout) if progress.goes_on() => {}
                Err(RecvTimeoutError::Timeout) => {
                    progress.cleared();
                    return Ok(None);
                }
                Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the fit ended without a result"),
            }
        }
    }

    /// The fit, and each judgement of it.
    fn phases(&self) -> u64 {
        self.protocols.len() as u64 + 1
    }

    /// Every phase, as long as it is to go on.
    fn done(&self, progress: &Progress) -> Result<Option<Judged>> {
        let phases = self.phases();
        progress.at(0, phases);
        let fit = Fit::new(&self.rows, self.files.clone(), &self.catalog, &self.prior)?;
        let mut tables = BTreeMap::new();
        for (done, protocol) in self.protocols.iter().enumerate() {
            if !progress.goes_on() {
                return Ok(None);
            }
            progress.at(done as u64 + 1, phases);
            tables.insert(*protocol, fit.left_out(*protocol));
        }
        self.judged(&fit, &tables).map(Some)
    }

    /// The calibration of a fit, and how far it is from what was measured.
    fn judged(&self, fit: &Fit, tables: &BTreeMap<LeaveOut, Vec<Point>>) -> Result<Judged> {
        let fitting = fit.finish(tables, &self.source);
        let rows = tables.values().next().filter(|_| self.per_row);
        let drawn = tables.values().last().filter(|_| self.scatter);
        Ok(Judged {
            calibration: fitting.calibration,
            undetermined: fitting.undetermined,
            contradicted: fit.contradicted(),
            in_sample: report(&fit.in_sample()),
            left_out: tables.iter().map(|(what, points)| (*what, report(points))).collect(),
            per_row: rows.map(|points| per_row(points)).transpose()?,
            scatter: drawn.and_then(|points| scatter::svg(points)),
        })
    }
}

impl Judged {
    /// Writes each row and the picture where files are named for them, and says the rest in `answer`.
    pub(super) fn shown(self, files: [Option<Target>; 2], answer: &mut Answer) -> Result<Calibration> {
        let [rows_file, scatter_file] = files;
        if let Some((file, text)) = rows_file.zip(self.per_row) {
            file.text(&text)?;
        }
        if let Some(file) = scatter_file {
            let accepted = "one or more rows that are measured and forecast";
            let none = || Error::field("arguments", "--svg", "no such rows", accepted);
            file.text(&self.scatter.ok_or_else(none)?)?;
        }
        answer.undetermined = self.undetermined;
        answer.contradicted = self.contradicted;
        answer.in_sample = Some(self.in_sample);
        answer.left_out = self.left_out;
        Ok(self.calibration)
    }
}
