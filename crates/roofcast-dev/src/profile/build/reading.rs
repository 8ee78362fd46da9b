//! Rows of a table as times of shapes: one time for each size, by kernel and format.
//!
//! Knows: several rows of one point are merged into their median. The minimum would be a run with a boosted clock or
//! with data in a cache, which a serving engine does not have. Knows nothing about other tables.

use super::columns::{Columns, Words};
use super::exchange_mode::ExchangeMode;
use super::names;
use super::points::{AXES, WordColumns, points};
use super::rules::{Dropped, ExclusionReason};
use super::source::{TableSource, TimedWork};
use roofcast_cost::profile::KernelTable;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::precision::Dtype;
use roofcast_facts::version::Version;
use std::collections::BTreeMap;

/// Name of the distribution of tokens over experts that is nearest to real traffic.
const DISTRIBUTION: &str = "power_law_1.01";
/// Name of the even distribution, in tables of experts behind an exchange, to which a stated imbalance is added.
const EVEN: &str = "uniform";

/// Identity of a section, except for its version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SectionKey {
    pub(super) table: KernelTable,
    pub(super) chip: String,
    pub(super) engine: String,
    /// Name of the kernel; empty for GEMM, because engines choose a GEMM kernel by rows.
    pub(super) kernel: String,
    pub(super) format: String,
}

/// One measured time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MeasuredTime {
    /// Number of rows, tokens, sequences or bytes.
    pub(super) size: u32,
    /// Tokens of each sequence of a decode, the new token included; 0 for other work.
    pub(super) context: u32,
    pub(super) seconds: f64,
}

/// Measurements of one shape in one table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ShapeMeasurements {
    pub(super) place: SectionKey,
    pub(super) kernel: String,
    pub(super) shape: Vec<u32>,
    /// Points in ascending order of size, then context, without duplicates.
    pub(super) points: Vec<MeasuredTime>,
}

/// Contents of a table.
#[derive(Debug, Clone)]
pub struct TableContents {
    pub(super) file: String,
    /// Version of the engine and its text; `None` if it has no order, in which case there are no groups.
    pub(super) version: Option<(Version, String)>,
    pub(super) rows: usize,
    pub(super) groups: Vec<ShapeMeasurements>,
    pub(super) dropped: Dropped,
}

/// Row of a table: codes of its kernel, its format and its third word, with its shape, size, context and time.
#[derive(Debug, Clone, Copy)]
struct CodedRow {
    words: [u32; 3],
    shape: [u32; AXES],
    point: MeasuredTime,
}

/// By size, the seconds of a convolution, of a recurrence, and of a kernel that computes both.
type Parts = BTreeMap<u32, [f64; 3]>;

/// Consecutive rows with equal words and shape.
struct Run<'a> {
    kernel: &'a str,
    format: &'a str,
    third: &'a str,
    shape: &'a [u32; AXES],
    rows: &'a [CodedRow],
}

impl TableSource<'_> {
    /// Reads the points of the table.
    pub fn read(&self, columns: &Columns) -> Result<TableContents> {
        if let TimedWork::Exchange(mode) = self.operator {
            return self.exchanges(columns, mode);
        }
        let latency = columns.numbers(["latency"])?[0].0;
        let invalid = |s: &f64| !(s.is_finite() && *s > 0.0);
        if let Some(row) = latency.iter().position(invalid) {
            let place = format!("{}:{}", columns.place, row + 1);
            return Err(Error::field(place, "latency", latency[row], "milliseconds above 0"));
        }
        let mut reading = TableContents {
            file: self.path.clone(),
            version: self.version.clone(),
            rows: latency.len(),
            groups: Vec::new(),
            dropped: Dropped::default(),
        };
        if self.version.is_none() {
            reading.dropped.add(ExclusionReason::Unversioned, latency.len());
            return Ok(reading);
        }
        let words = |at: usize| self.words().get(at).map_or_else(Words::default, |name| columns.words(name));
        let named = WordColumns { kernel: words(0), format: words(1), third: words(2) };
        let mut rows = self.rows(columns, &named, latency)?;
        reading.dropped.add(ExclusionReason::OtherWork, latency.len() - rows.len());
        let key = |r: &CodedRow| (r.words, r.shape, r.point.size, r.point.context);
        rows.sort_by(|a, b| key(a).cmp(&key(b)).then(a.point.seconds.total_cmp(&b.point.seconds)));
        let runs = rows.chunk_by(|a, b| (a.words, a.shape) == (b.words, b.shape)).map(|rows| Run {
            kernel: named.kernel.word(rows[0].words[0]),
            format: named.format.word(rows[0].words[1]),
            third: named.third.word(rows[0].words[2]),
            shape: &rows[0].shape,
            rows,
        });
        reading.groups = match self.operator {
            TimedWork::Experts | TimedWork::Exchanged(_) => {
                self.experts(runs.collect(), &mut reading.dropped)
            }
            TimedWork::Recurrent(kernel) => self.recurrent(kernel, runs.collect()),
            _ => runs.filter_map(|run| self.group(&run, &mut reading.dropped)).collect(),
        };
        Ok(reading)
    }

    /// Reads the rows of work that is modelled.
    fn rows(&self, columns: &Columns, named: &WordColumns, latency: &[f64]) -> Result<Vec<CodedRow>> {
        let point = points(self.operator, columns, named)?;
        let rows = latency.iter().enumerate().filter_map(|(row, milliseconds)| {
            let (shape, size, context) = point(row)?;
            let words = [named.kernel.code(row), named.format.code(row), named.third.code(row)];
            Some(CodedRow {
                words,
                shape,
                point: MeasuredTime { size, context, seconds: milliseconds * 1e-3 },
            })
        });
        Ok(rows.collect())
    }

    /// Points of the rows of one kernel; `None` if their format is unknown or has no peak rate.
    fn group(&self, run: &Run<'_>, dropped: &mut Dropped) -> Option<ShapeMeasurements> {
        let (table, kernel, format, dtype) = match self.named(run) {
            Some(named) => named,
            None => {
                dropped.add(ExclusionReason::UnknownFormat, run.rows.len());
                return None;
            }
        };
        if self.chip.peak(dtype).is_err() {
            dropped.add(ExclusionReason::NoPeak, run.rows.len());
            return None;
        }
        // All GEMM kernels of an engine form one section, because it chooses among them by rows.
        let place = self.place(table, if table == KernelTable::Gemm { "" } else { &kernel }, format);
        let shape = run.shape[..table.axes().len()].to_vec();
        Some(ShapeMeasurements { place, kernel, shape, points: medians(run.rows.iter().map(|r| r.point)) })
    }

    /// Table, kernel, format and compute dtype of rows.
    fn named(&self, run: &Run<'_>) -> Option<(KernelTable, String, &'static str, Dtype)> {
        Some(match self.operator {
            TimedWork::Gemm => {
                let format = names::weights_of(&self.engine, run.format)?;
                (KernelTable::Gemm, names::gemm(run.kernel, format.name), format.name, format.dtype)
            }
            TimedWork::Experts => {
                let format = names::weights_of(&self.engine, run.format)?;
                let kernel = names::experts(run.kernel, format.name);
                let [hidden, inter, top_k, experts, ..] = *run.shape;
                let nongated = names::is_nongated(hidden, inter, top_k, experts) && kernel != "nongated";
                let kernel = if nongated { format!("{kernel}-nongated") } else { kernel };
                (KernelTable::Experts, kernel, format.name, format.dtype)
            }
            TimedWork::Attention { decode } | TimedWork::Latent { decode } => {
                let (format, _) = names::cache(run.format)?;
                let latent = matches!(self.operator, TimedWork::Latent { .. });
                let table = match (latent, decode) {
                    (false, true) => KernelTable::Decode,
                    (false, false) => KernelTable::Prefill,
                    (true, true) => KernelTable::LatentDecode,
                    (true, false) => KernelTable::LatentPrefill,
                };
                let kernel = if latent { names::latent(run.kernel) } else { names::attention(run.kernel) };
                // Prompts whose queries are also in fp8 compute at the peak rate of fp8.
                match run.third {
                    "fp8" => (table, format!("{kernel}-fp8"), format, Dtype::Fp8),
                    _ => (table, kernel, format, Dtype::Bf16),
                }
            }
            TimedWork::Recurrent(kernel) => {
                let decode = run.format == "generation";
                let table = if decode { KernelTable::RecurrentDecode } else { KernelTable::RecurrentPrefill };
                (table, kernel.to_owned(), "bf16", Dtype::Bf16)
            }
            TimedWork::Exchanged(mode) => {
                let format = names::weights_of(&self.engine, run.format)?;
                let table = match mode {
                    ExchangeMode::LowLatency => KernelTable::MaskedExperts,
                    ExchangeMode::Normal => KernelTable::SortedExperts,
                };
                (table, names::exchanged(run.kernel), format.name, format.dtype)
            }
            // `TableSource::exchanges` reads these tables.
            TimedWork::Exchange(_) => return None,
            TimedWork::AllReduce | TimedWork::Collective(_) => {
                (KernelTable::AllReduce, names::all_reduce(run.kernel), "bf16", Dtype::Bf16)
            }
        })
    }

    /// Times of experts of each kernel and shape, with the distribution that is nearest to real traffic. Shapes that
    /// are split both by tensor and by expert are left out, because engines split one way or the other.
    fn experts(&self, runs: Vec<Run<'_>>, dropped: &mut Dropped) -> Vec<ShapeMeasurements> {
        let mut shapes: BTreeMap<_, Vec<Run<'_>>> = BTreeMap::new();
        for run in runs {
            shapes.entry((run.kernel, run.format, *run.shape)).or_default().push(run);
        }
        let distribution = match self.operator {
            TimedWork::Exchanged(_) => EVEN,
            _ => DISTRIBUTION,
        };
        let mut groups = Vec::new();
        for ((_, _, [.., tp, ep]), mut runs) in shapes {
            if tp > 1 && ep > 1 {
                dropped.add(ExclusionReason::MixedSplit, 1);
                continue;
            }
            runs.sort_by_key(|run| (run.third != distribution, run.third));
            runs.iter()
                .skip(1)
                .for_each(|run| dropped.add(ExclusionReason::OtherDistribution, run.rows.len()));
            groups.extend(runs.first().and_then(|run| self.group(run, dropped)));
        }
        groups
    }

    /// Sum of the times of short convolution and recurrence of each shape, if both were timed, or the time of a
    /// kernel that computes both; of several kernels for one purpose, the fastest.
    fn recurrent(&self, kernel: &str, runs: Vec<Run<'_>>) -> Vec<ShapeMeasurements> {
        let mut shapes: BTreeMap<_, Parts> = BTreeMap::new();
        for run in &runs {
            let part = match run.kernel {
                k if k.contains("conv1d") => 0,
                k if k.contains("kda_fused_decode") || k.contains("fused_kda_decode") => 2,
                _ => 1,
            };
            let sizes = shapes.entry((run.format, *run.shape)).or_default();
            for point in medians(run.rows.iter().map(|r| r.point)) {
                let fastest = &mut sizes.entry(point.size).or_insert([f64::INFINITY; 3])[part];
                *fastest = fastest.min(point.seconds);
            }
        }
        let group = |phase: &str, shape: [u32; AXES], sizes: Parts| {
            let points = sizes.into_iter().filter_map(|(size, [convolution, recurrence, both])| {
                let seconds = (convolution + recurrence).min(both);
                seconds.is_finite().then_some(MeasuredTime { size, context: 0, seconds })
            });
            let points: Vec<_> = points.collect();
            let decode = phase == "generation";
            let table = if decode { KernelTable::RecurrentDecode } else { KernelTable::RecurrentPrefill };
            let place = self.place(table, kernel, "bf16");
            let shape = shape[..table.axes().len()].to_vec();
            (!points.is_empty()).then(|| ShapeMeasurements {
                place,
                kernel: kernel.to_owned(),
                shape,
                points,
            })
        };
        shapes.into_iter().filter_map(|((phase, shape), sizes)| group(phase, shape, sizes)).collect()
    }

    pub(super) fn place(&self, table: KernelTable, kernel: &str, format: &str) -> SectionKey {
        SectionKey {
            table,
            chip: self.chip.id.clone(),
            engine: self.engine.clone(),
            kernel: kernel.to_owned(),
            format: format.to_owned(),
        }
    }
}

/// Points without duplicates of size and context: each has the median of its times.
pub(super) fn medians(points: impl IntoIterator<Item = MeasuredTime>) -> Vec<MeasuredTime> {
    let mut points: Vec<MeasuredTime> = points.into_iter().collect();
    let key = |p: &MeasuredTime| (p.size, p.context);
    points.sort_by(|a, b| key(a).cmp(&key(b)).then(a.seconds.total_cmp(&b.seconds)));
    let median = |same: &[MeasuredTime]| {
        let [low, high] = [(same.len() - 1) / 2, same.len() / 2].map(|at| same[at].seconds);
        MeasuredTime { seconds: (low + high) / 2.0, ..same[0] }
    };
    points.chunk_by(|a, b| key(a) == key(b)).map(median).collect()
}
