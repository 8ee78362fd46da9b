//! Profiles built from tables of measured kernel times.
//!
//! Knows: the order of the rules: each table is read; of each shape the newest version is used; points faster than
//! the limit are dropped; times are put on the table's grid; and shapes that others predict are left out until the
//! file is small enough. Knows nothing about files: callers pass columns, and [`Profiles::to_bytes`] returns
//! bytes.

mod columns;
mod exchange_mode;
mod exchanges;
mod grid;
mod host;
mod limit;
mod names;
mod points;
mod reading;
mod rules;
mod source;
mod thin;

pub use columns::Columns;
pub use reading::TableContents;
pub use rules::{Dropped, ExclusionReason};
pub use source::TableSource;
pub(crate) use thin::Predictions;

use host::Family;
use limit::Limit;
use rayon::prelude::*;
use reading::{MeasuredTime, SectionKey};
use roofcast_cost::profile::{KernelTable, Profiles, Section, Writer};
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::Result;
use roofcast_facts::version::Version;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use thin::Shapes;

/// Smallest accepted ratio of a time to its limit. A time more than 5 % faster than the limit comes from data in caches
/// and is dropped.
const FASTEST: f64 = 1.0 / 1.05;
/// Fewest points of a shape that remain after the rules; a curve through one size cannot predict other sizes.
const FEWEST: usize = 2;

/// Result of a build.
#[derive(Debug)]
pub struct Built {
    /// Profiles that were built.
    pub profiles: Profiles,
    /// Report on the tables.
    pub report: BuildReport,
}

/// Report on the tables that were read and the rules that were applied.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BuildReport {
    /// Size of the profiles' file in bytes.
    pub bytes: usize,
    /// Contents of each section, in the order of the file.
    pub sections: Vec<SectionReport>,
    /// Counts of each rule, over all tables.
    pub dropped: Dropped,
    /// Chip, engine, version and format of GEMM tables whose times include host overhead.
    pub host_bound: Vec<String>,
    /// Tables that were read, in the order of their names.
    pub files: Vec<FileReport>,
    /// Accuracy of the predictions for shapes that are left out.
    pub predictions: Predictions,
}

/// Report on a section.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SectionReport {
    /// Name of the section's table, see [`KernelTable::name`].
    pub table: &'static str,
    /// Catalog id of the accelerator.
    pub chip: String,
    /// Owner of the kernel: an engine's name, or `nccl`.
    pub engine: String,
    /// Newest version of the engine among the times.
    pub version: String,
    /// Name of the kernel.
    pub kernel: String,
    /// Format of weights, or of the KV cache.
    pub format: String,
    /// Number of shapes in the file.
    pub shapes: usize,
    /// Number of shapes that others predict, which are not in the file.
    pub predicted: usize,
    /// Number of points that were faster than the limit.
    pub faster: usize,
    /// Median and 90th percentile of the errors of a decode's lines over context, as fractions; `None` for other
    /// tables.
    pub line_errors: Option<[f64; 2]>,
}

/// Report on the file of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileReport {
    /// Path of the file.
    pub file: String,
    /// Version of the engine.
    pub version: String,
    /// Number of rows in the file.
    pub rows: usize,
    /// Number of points that the profiles use.
    pub used: usize,
}

/// Measurements of a shape by one version of the engine.
#[derive(Debug, Clone, Default)]
struct VersionTimes {
    file: usize,
    text: String,
    kernels: BTreeSet<String>,
    points: Vec<MeasuredTime>,
}

/// Measurements of every shape of a section by every version.
type Versions = BTreeMap<Vec<u32>, BTreeMap<Version, VersionTimes>>;

/// Section from which predicted shapes have not yet been left out.
struct Draft {
    place: SectionKey,
    version: Option<(Version, String)>,
    kernels: BTreeSet<String>,
    shapes: Shapes,
    faster: usize,
    errors: Vec<f64>,
    /// Number of used points, by file.
    used: BTreeMap<usize, usize>,
    dropped: Dropped,
}

/// Builds profiles from all readings, with at most `most` bytes as a file.
pub fn build(mut readings: Vec<TableContents>, catalog: &Catalog, most: usize) -> Result<Built> {
    readings.sort_by(|a, b| a.file.cmp(&b.file));
    let mut report = BuildReport::default();
    readings.iter().for_each(|reading| report.dropped.merge(&reading.dropped));
    report.files = readings.iter().map(FileReport::of).collect();
    let mut places = by_place(readings);
    leave_out_host_bound(&mut places, catalog, &mut report)?;
    let drafts = places.into_iter().map(|(place, shapes)| {
        let chip = catalog.accelerator(&place.chip)?;
        Ok(Limit::of(&place, chip).map(|limit| (place, shapes, limit)))
    });
    let drafts = drafts.filter_map(Result::transpose).collect::<Result<Vec<_>>>()?;
    let drafts = drafts.into_par_iter().map(|(place, shapes, limit)| (draft(place, shapes, &limit), limit));
    let drafts: Vec<(Draft, Limit)> = drafts.collect();
    for (draft, _) in &drafts {
        report.dropped.merge(&draft.dropped);
        draft.used.iter().for_each(|(file, points)| report.files[*file].used += points);
    }
    let drafts: Vec<_> = drafts.into_iter().filter(|(draft, _)| !draft.shapes.is_empty()).collect();
    Ok(fitting(&drafts, report, most))
}

impl FileReport {
    fn of(reading: &TableContents) -> FileReport {
        let version = reading.version.as_ref().map_or_else(String::new, |(_, text)| text.clone());
        FileReport { file: reading.file.clone(), version, rows: reading.rows, used: 0 }
    }
}

/// Groups measured points by section, shape and version. Points of two kernels that one version ran for a shape are
/// merged, because the engine chose between the kernels by rows.
fn by_place(readings: Vec<TableContents>) -> BTreeMap<SectionKey, Versions> {
    let mut places: BTreeMap<SectionKey, Versions> = BTreeMap::new();
    for (file, reading) in readings.into_iter().enumerate() {
        let Some((version, text)) = reading.version else { continue };
        for group in reading.groups {
            let shapes = places.entry(group.place).or_default();
            let measured = shapes.entry(group.shape).or_default().entry(version.clone()).or_default();
            measured.file = file;
            measured.text.clone_from(&text);
            measured.kernels.insert(group.kernel);
            measured.points.extend(group.points);
        }
    }
    let all = places.values_mut().flat_map(|shapes| shapes.values_mut()).flat_map(|v| v.values_mut());
    all.for_each(|measured| measured.points = reading::medians(std::mem::take(&mut measured.points)));
    places
}

/// Leaves out versions whose GEMM times include host overhead.
fn leave_out_host_bound(
    places: &mut BTreeMap<SectionKey, Versions>,
    catalog: &Catalog,
    report: &mut BuildReport,
) -> Result<()> {
    let mut comparable: BTreeMap<(String, String), Vec<SectionKey>> = BTreeMap::new();
    for place in places.keys().filter(|place| place.table == KernelTable::Gemm) {
        comparable.entry((place.chip.clone(), place.format.clone())).or_default().push(place.clone());
    }
    let mut bound: Vec<(SectionKey, Version)> = Vec::new();
    for ((chip, _), alike) in &comparable {
        let limit = Limit::of(&alike[0], catalog.accelerator(chip)?);
        let mut families: BTreeMap<(&SectionKey, &Version), Family<'_>> = BTreeMap::new();
        for place in alike {
            for (shape, versions) in places.get(place).into_iter().flatten() {
                for (version, measured) in versions {
                    families.entry((place, version)).or_default().insert(shape, &measured.points);
                }
            }
        }
        let (names, families): (Vec<_>, Vec<_>) = families.into_iter().unzip();
        let verdicts = limit.map(|limit| host::host_bound(&families, &limit)).unwrap_or_default();
        let host_bound = names.iter().zip(verdicts).filter(|(_, bound)| *bound);
        bound.extend(host_bound.map(|((place, version), _)| ((*place).clone(), (*version).clone())));
    }
    for (place, version) in bound {
        let mut text = String::new();
        for versions in places.get_mut(&place).into_iter().flat_map(|shapes| shapes.values_mut()) {
            let Some(measured) = versions.remove(&version) else { continue };
            report.dropped.add(ExclusionReason::HostBound, measured.points.len());
            text = measured.text;
        }
        report
            .host_bound
            .push([&place.chip, &place.engine, &text, &place.format].map(String::as_str).join(" "));
    }
    Ok(())
}

/// Newest version that measured at least half as many points as any other, and the number of points of other versions
/// that are therefore not used.
fn newest(versions: BTreeMap<Version, VersionTimes>) -> Option<(Version, VersionTimes, usize)> {
    let largest = versions.values().map(|m| m.points.len()).max()?;
    let all: usize = versions.values().map(|m| m.points.len()).sum();
    let mut newest_first = versions.into_iter().rev();
    let (version, measured) = newest_first.find(|(_, m)| 2 * m.points.len() >= largest)?;
    let others = all - measured.points.len();
    Some((version, measured, others))
}

/// Builds a section from the newest measurements, on its table's grid.
fn draft(place: SectionKey, shapes: Versions, limit: &Limit) -> Draft {
    let mut draft = Draft {
        version: None,
        kernels: BTreeSet::new(),
        shapes: Shapes::new(),
        faster: 0,
        errors: Vec::new(),
        used: BTreeMap::new(),
        dropped: Dropped::default(),
        place,
    };
    for (shape, versions) in shapes {
        let Some((version, mut measured, others)) = newest(versions) else { continue };
        draft.dropped.add(ExclusionReason::Older, others);
        let before = measured.points.len();
        measured.points.retain(|p| {
            let limit_s = limit.seconds(&shape, f64::from(p.size), f64::from(p.context));
            p.seconds >= FASTEST * limit_s
        });
        draft.faster += before - measured.points.len();
        match columns(&shape, &measured.points, limit, &mut draft.errors) {
            Some(columns) => {
                *draft.used.entry(measured.file).or_default() += measured.points.len();
                draft.kernels.extend(measured.kernels);
                draft.shapes.insert(shape, columns);
                draft.version = draft.version.max(Some((version, measured.text)));
            }
            None => draft.dropped.add(ExclusionReason::TooFew, 1),
        }
    }
    draft.dropped.add(ExclusionReason::FasterThanLimit, draft.faster);
    // The kernel's name if only one ran; empty if the engine chose among several by rows or shape.
    if draft.place.kernel.is_empty() {
        let only_kernel = draft.kernels.first().filter(|_| draft.kernels.len() == 1);
        draft.place.kernel = only_kernel.cloned().unwrap_or_else(|| "as-selected".to_owned());
    }
    draft
}

/// Values of a shape on its table's grid; `None` if too few points remain.
fn columns(
    shape: &[u32],
    points: &[MeasuredTime],
    limit: &Limit,
    errors: &mut Vec<f64>,
) -> Option<Vec<Option<f64>>> {
    let grid = limit.table.grid();
    if limit.table.has_slopes() {
        let window = f64::from(shape.get(3).copied().unwrap_or(0));
        let lines = grid::lines(points, window, grid);
        errors.extend(lines.errors);
        return lines.columns.iter().any(Option::is_some).then_some(lines.columns);
    }
    let columns = grid::on_grid(points, grid, |size| FASTEST * limit.seconds(shape, size, 0.0));
    (columns.iter().flatten().count() >= FEWEST).then_some(columns)
}

/// Keeps as many shapes of the sections as fit into `most` bytes.
fn fitting(drafts: &[(Draft, Limit)], mut report: BuildReport, most: usize) -> Built {
    let neighbours: Vec<_> = drafts
        .par_iter()
        .map(|(draft, limit)| thin::Neighbours::of(&draft.place, &draft.shapes, limit))
        .collect();
    let mut profiles = Profiles::default();
    let mut thinned = Vec::new();
    for tolerance in thin::TOLERANCES {
        thinned = neighbours.iter().map(|n| n.kept(tolerance)).collect();
        let sections =
            drafts.iter().zip(&thinned).map(|((draft, _), thinned)| section(draft, &thinned.shapes));
        profiles = Profiles { sections: sections.collect() };
        if profiles.to_bytes().len() <= most {
            break;
        }
    }
    let errors = thinned.iter().flat_map(|thinned| thinned.errors.iter().copied()).collect();
    report.predictions = Predictions::of(errors);
    report.dropped.add(ExclusionReason::Predicted, report.predictions.shapes);
    let sections = drafts.iter().zip(&thinned).map(|((draft, _), thinned)| SectionReport::of(draft, thinned));
    report.sections = sections.collect();
    report.bytes = profiles.to_bytes().len();
    Built { profiles, report }
}

fn section(draft: &Draft, kept: &[bool]) -> Section {
    let mut writer = Writer::default();
    let shapes = draft.shapes.iter().zip(kept).filter(|(_, kept)| **kept);
    shapes.for_each(|((shape, columns), _)| writer.shape(shape, columns));
    let place = &draft.place;
    let names =
        [&place.chip, &place.engine, draft.version(), &place.kernel, &place.format].map(|name: &str| name);
    writer.section(place.table, names)
}

impl Draft {
    /// Newest version of the engine among the times.
    fn version(&self) -> &str {
        self.version.as_ref().map_or("", |(_, text)| text)
    }
}

impl SectionReport {
    fn of(draft: &Draft, kept: &thin::Kept) -> SectionReport {
        let place = draft.place.clone();
        let errors = (!draft.errors.is_empty()).then(|| {
            let all = roofcast_ask::summary::Statistics::of(&mut draft.errors.clone());
            [all.median, all.p90]
        });
        SectionReport {
            table: place.table.name(),
            chip: place.chip,
            engine: place.engine,
            version: draft.version().to_owned(),
            kernel: place.kernel,
            format: place.format,
            shapes: kept.shapes.iter().filter(|kept| **kept).count(),
            predicted: kept.errors.len(),
            faster: draft.faster,
            line_errors: errors,
        }
    }
}

#[cfg(test)]
mod tests;
