//! `roofcast limits --sweep KEY=VALUES`: one row per step, for each combination of the keys' values.
//!
//! Knows: the quantities of a step that may vary, and the others that such a step needs. A key of the spec makes a
//! deployment of its own.

mod columns;
mod measured;
mod picture;
mod point;

use super::super::{About, MACHINE, common_title};
use super::asked_of;
use crate::args::{LimitsArgs, StepArgs};
use crate::exit;
use crate::input::dimensions::{self, Dimension, product, word};
use crate::input::scenario::Source;
use crate::show::column::{Columns, Tabled};
use crate::show::number::{counted, grouped};
use crate::show::picture::{Picture, pictures};
use crate::show::progress::Progress;
use crate::show::target::Target;
use crate::show::{self, Document, table};
use anyhow::{Context, Result};
use columns::{COLUMNS, compared};
use point::{Asked, Machine, Point};
use roofcast::Error;
use roofcast::deployment::support;
use roofcast::limits::alternatives::{Comparison, settings};
use roofcast::report;
use roofcast::spec::settings::Setting;
use serde::Serialize;
use std::process::ExitCode;
use toml::Value;

/// Keys that are quantities of a step; all other keys belong to the spec. `tp` changes only the tensor parallelism of
/// the deployment.
const KEYS: [&str; 5] = ["batch", "context", "prefill", "tp", "position"];

/// Name and version of the sweep's schema.
const SCHEMA: &str = "roofcast/limits-sweep/2";

/// Steps over the values of keys; the deployment is the one at the first values.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "LimitsSweep"))]
pub(crate) struct Answer<'a> {
    /// The deployment at the first values.
    #[serde(flatten)]
    about: Option<About<'a>>,
    /// Swept keys.
    sweep: Vec<&'a str>,
    /// Step at each combination of values.
    points: &'a [Point],
    /// True if points are missing because Ctrl-C or SIGTERM came before they were computed.
    interrupted: bool,
    /// Values at which there is no such deployment, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<String>,
}

/// A question: what varies, and what is constant.
pub(crate) struct Question<'a> {
    /// Keys with their values, each as `KEY=VALUES`.
    pub(crate) sweep: &'a [String],
    pub(crate) step: &'a StepArgs,
    /// Settings from flags, which must not be swept as well.
    pub(crate) given: &'a [Setting],
}

/// The swept dimensions, and the deployment for each combination of the spec's keys.
struct Space {
    dimensions: Vec<Dimension>,
    step: Step,
    machines: Vec<Machine>,
    /// Output tokens of a request, if the rate of freed KV tokens is asked for.
    output: Option<u64>,
    /// True if a signal came before every deployment was compiled.
    interrupted: bool,
    /// Values of degrees of parallelism at which there is no deployment, each with the reason.
    skipped: Vec<String>,
}

/// A sweep that has been computed, as far as it was not interrupted.
pub(crate) struct Swept {
    space: Space,
    points: Vec<Point>,
    /// Number of points of the whole sweep.
    all: usize,
}

pub(super) fn run(args: &LimitsArgs, source: &Source, picture: Option<&Target>) -> Result<ExitCode> {
    if args.measured.is_some() && args.sweep.len() > 1 {
        let accepted = "it with a sweep of one key";
        return Err(Error::field("arguments", "--measured", "together with several keys", accepted).into());
    }
    let progress = Progress::new("deployments")?;
    let given = args.deployment.flags.settings.as_slice();
    let question = Question { sweep: &args.sweep, step: &args.step, given };
    let swept = Swept::of(&question, source, &|done, all| {
        progress.at(done, all);
        progress.goes_on()
    })?;
    drop(progress);
    let Swept { space, points, all } = &swept;
    if let Some(picture) = picture.filter(|_| !points.is_empty()) {
        let measured = match (&args.measured, points.first()) {
            (Some(file), Some(first)) => space.asked(&first.values).map(|a| measured::steps(file, &a)),
            _ => None,
        };
        let measured = measured.transpose()?.unwrap_or_default();
        picture.text(&report::sweep::svg(&picture::drawn(space, points, &measured)))?;
    }
    if args.output.json {
        show::json(SCHEMA, &swept.answer())?;
    } else {
        if swept.interrupted() && !args.output.csv {
            let done = format!("{} of {all} points were computed", points.len());
            show::text(&format!("PARTIAL: interrupted when {done}\n\n"))?;
        }
        space.print(args.output.csv, points)?;
        if !args.output.csv {
            show::text(&(said(&swept.skipped()) + &swept.beyond()))?;
        }
    }
    Ok(if swept.interrupted() { exit::invalid() } else { ExitCode::SUCCESS })
}

impl Swept {
    /// Computes the sweep. `watch` receives the number of compiled deployments and of all, and returns false to stop.
    pub(crate) fn of(
        question: &Question,
        source: &Source,
        watch: &dyn Fn(u64, u64) -> bool,
    ) -> Result<Swept> {
        let space = Space::of(question, source, watch)?;
        let combinations = product(&space.dimensions);
        let compiled = space.machines.len() as u64;
        // If compilation was interrupted, the points of the deployments compiled so far are still computed.
        let goes_on = || space.interrupted || watch(compiled, compiled);
        let points_asked: Vec<&Vec<Value>> = combinations.iter().take_while(|_| goes_on()).collect();
        let points: Vec<Point> = points_asked.iter().filter_map(|v| space.asked(v)?.point(v)).collect();
        let whole = !space.interrupted && points_asked.len() == combinations.len();
        if points.is_empty() && whole {
            let sweep_text = format!("{:?} (no such deployment)", question.sweep.join(" "));
            let accepted = "degrees that divide the model's heads and dimensions";
            return Err(Error::field("arguments", "--sweep", sweep_text, accepted).into());
        }
        let all = if whole { points.len() } else { combinations.len() };
        Ok(Swept { space, points, all })
    }

    /// Values at which there is no deployment, each with the reason.
    fn skipped(&self) -> Vec<String> {
        let valid = |value: &Value| self.points.iter().any(|point| point.values.contains(value));
        let tp = self.space.dimensions.iter().find(|d| d.path == "tp" && !self.interrupted());
        let values = tp.iter().flat_map(|d| &d.values).filter(|value| !valid(value));
        let skipped_degrees = values
            .map(|value| format!("tp = {value}: no divisor of the model's heads and of the accelerators"));
        self.space.skipped.iter().cloned().chain(skipped_degrees).collect()
    }

    /// Lines on points that no deployment of the sweep serves: longer than the model allows, or than memory holds.
    fn beyond(&self) -> String {
        let longest =
            self.space.machines.iter().filter_map(|m| m.forecaster.deployment.model.max_context).min();
        let long = longest.filter(|most| self.points.iter().any(|point| point.tokens > *most));
        let model = long.map(|most| {
            table::line(&format!("beyond the model's length of {} tokens: rows of more", grouped(most)))
        });
        let crowded = self.points.iter().filter(|point| !point.fits).count();
        let memory = (crowded > 0).then(|| {
            let rows = counted(crowded as u64, "row");
            table::line(&format!("{rows} beyond memory: the KV cache of the step does not fit, and times are those of a machine with more"))
        });
        [model, memory].into_iter().flatten().collect()
    }

    fn interrupted(&self) -> bool {
        self.points.len() < self.all
    }

    fn answer(&self) -> Answer<'_> {
        Answer {
            about: self.space.machines.first().map(|first| About::of(&first.forecaster.deployment)),
            sweep: self.space.dimensions.iter().map(|d| d.path.as_str()).collect(),
            points: &self.points,
            interrupted: self.interrupted(),
            skipped: self.skipped(),
        }
    }

    /// Data for the page.
    pub(crate) fn view(&self) -> View<'_> {
        let picture = picture::drawn(&self.space, &self.points, &[]);
        View {
            report: Document { schema: SCHEMA, body: self.answer() },
            pictures: pictures(|width| report::sweep::figure(&picture, width)),
            table: Columns::of(COLUMNS, self.points.iter(), false).table(self.points.iter()),
        }
    }
}

/// Data for the page: the answer, its picture for places of several widths, and its table.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "LimitsSweepAnswer"))]
pub(crate) struct View<'a> {
    report: Document<Answer<'a>>,
    pictures: Vec<Picture>,
    table: Tabled,
}

impl Space {
    fn of(question: &Question, source: &Source, watch: &dyn Fn(u64, u64) -> bool) -> Result<Space> {
        let read = |text: &String| Dimension::read(text, &KEYS, &[question.given]);
        let dimensions = question.sweep.iter().map(read).collect::<Result<Vec<_>, Error>>()?;
        dimensions::check(&dimensions)?;
        let section = |d: &Dimension| d.path.split('.').next().unwrap_or_default().to_owned();
        let idle =
            |d: &&Dimension| !KEYS.contains(&d.path.as_str()) && !MACHINE.contains(&section(d).as_str());
        if let Some(d) = dimensions.iter().find(idle) {
            let useless = format!("{} without effect on a step", d.path);
            let accepted = format!("{}, or a key of {}", KEYS.join(", "), MACHINE.join(", "));
            return Err(Error::field("arguments", "--sweep", useless, accepted).into());
        }
        let step = Step::of(&dimensions)?;
        step.check(question, &dimensions)?;
        let of_spec: Vec<Dimension> =
            dimensions.iter().filter(|d| !KEYS.contains(&d.path.as_str())).cloned().collect();
        let wanted = product(&of_spec);
        let all = wanted.len();
        let mut machines = Vec::new();
        let mut illegal = Vec::new();
        for values in wanted {
            if !watch((machines.len() + illegal.len()) as u64, all as u64) {
                break;
            }
            match machine(question.step, source, &of_spec, values) {
                Ok(machine) => machines.push(machine),
                Err(error) if dimensions::is_illegal(&of_spec, &error) => illegal.push(error),
                Err(error) => return Err(error),
            }
        }
        for machine in machines.iter().filter(|_| step != Step::Prefill) {
            support::check_generates("arguments", &machine.forecaster.deployment.model)?;
        }
        let interrupted = machines.len() + illegal.len() < all;
        if machines.is_empty() && !illegal.is_empty() {
            return Err(illegal.remove(0));
        }
        let skipped = illegal.iter().map(|error| format!("{error:#}")).collect();
        Ok(Space { machines, dimensions, step, output: question.step.output_len, interrupted, skipped })
    }

    /// Prints the points as a table for people or as CSV; prints nothing without points.
    fn print(&self, csv: bool, points: &[Point]) -> Result<()> {
        let keys = self.keys(csv);
        let Some(first) = self.machines.first().filter(|_| !points.is_empty()) else { return Ok(()) };
        if !first.compared.is_empty() {
            let names: Vec<&str> = first.compared.iter().map(|(name, _)| name.as_str()).collect();
            let (header, rows) = compared_rows(&keys, &names, points, csv);
            let header: Vec<&str> = header.iter().map(String::as_str).collect();
            return print(&header, &rows, csv, &self.title(), keys.len());
        }
        let columns = Columns::of(COLUMNS, points.iter(), csv);
        let header: Vec<&str> = keys.iter().copied().chain(columns.names()).collect();
        let row = |p: &Point| columns::values(p, csv).into_iter().chain(columns.row(p)).collect();
        let rows: Vec<Vec<String>> = points.iter().map(row).collect();
        print(&header, &rows, csv, &self.title(), keys.len())
    }

    /// The question at one combination of values; `None` if its deployment is missing.
    fn asked<'a>(&'a self, values: &[Value]) -> Option<Asked<'a>> {
        let pairs_of = |wanted: bool| {
            let pairs = self.dimensions.iter().zip(values);
            pairs.filter(move |(d, _)| KEYS.contains(&d.path.as_str()) == wanted)
        };
        let named: Vec<&Value> = pairs_of(false).map(|(_, value)| value).collect();
        let machine = self.machines.iter().find(|m| m.values.iter().eq(named.iter().copied()))?;
        let whole = |value: &Value| value.as_integer().and_then(|n| u64::try_from(n).ok());
        let keys = pairs_of(true).filter_map(|(d, value)| Some((d.path.as_str(), whole(value)?)));
        Some(Asked { machine, step: self.step, keys: keys.collect(), output: self.output })
    }

    /// Headings of the value columns.
    fn keys(&self, csv: bool) -> Vec<&str> {
        self.dimensions.iter().map(|d| if csv { d.path.as_str() } else { d.short() }).collect()
    }

    /// The properties that all rows have in common, then the assumptions in which they differ.
    fn title(&self) -> String {
        let abouts: Vec<_> = self.machines.iter().map(|m| About::of(&m.forecaster.deployment)).collect();
        common_title(&abouts)
    }
}

/// The skipped values in lines; empty without any.
pub(crate) fn said(skipped: &[String]) -> String {
    skipped.iter().map(|value| table::line(&format!("skipped: {value}"))).collect()
}

/// Compiles the deployment at `values` of the spec's keys.
fn machine(step: &StepArgs, source: &Source, of: &[Dimension], values: Vec<Value>) -> Result<Machine> {
    let varied = || of.iter().zip(&values);
    let settings_of: Vec<Setting> = varied().map(|(d, v)| Setting::new(&d.path, v.clone())).collect();
    let resolved = || -> Result<Machine> {
        let mut deployment = source.scenario(&settings_of)?.deployment()?;
        let question = asked_of(step, &mut deployment);
        let compared = step.compare.map(|kind| settings(&deployment, kind.into())).unwrap_or_default();
        let forecaster = question.forecaster(deployment)?;
        Ok(Machine { values: values.clone(), forecaster, question, compared })
    };
    let named: Vec<String> = varied().map(|(d, value)| format!("{} = {}", d.path, word(value))).collect();
    match named.as_slice() {
        [] => resolved(),
        named => resolved().with_context(|| format!("with {}", named.join(", "))),
    }
}

/// Kinds of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Decode of one token for each of `batch` sequences of `context` tokens.
    Decode,
    /// Decode of one token for each sequence, at output position `position` after a prompt of `prefill` tokens.
    Position,
    /// Prefill of one prompt of `prefill` tokens.
    Prefill,
}

impl Step {
    fn of(dimensions: &[Dimension]) -> Result<Step, Error> {
        let has = |key: &str| dimensions.iter().any(|d| d.path == key);
        let step = match (has("position"), has("prefill")) {
            (true, _) => Step::Position,
            (false, true) => Step::Prefill,
            (false, false) => Step::Decode,
        };
        let idle = dimensions.iter().find(|d| KEYS.contains(&d.path.as_str()) && !step.has(&d.path));
        match idle {
            Some(d) => {
                let useless = format!("{} without effect together with {}", d.path, step.name());
                let accepted = format!("with {} {}", step.name(), step.keys().join(", "));
                Err(Error::field("arguments", "--sweep", useless, accepted))
            }
            None => Ok(step),
        }
    }

    /// Name of the swept key that selects this kind.
    fn name(self) -> &'static str {
        match self {
            Step::Decode => "batch",
            Step::Position => "position",
            Step::Prefill => "prefill",
        }
    }

    /// The quantities on which the step depends.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Step::Decode => &["batch", "context", "tp", "output-len"],
            Step::Position => &["batch", "prefill", "position", "tp"],
            Step::Prefill => &["prefill", "tp"],
        }
    }

    fn has(self, key: &str) -> bool {
        self.keys().contains(&key)
    }

    /// Refuses a flag that has no effect on this kind of step, or whose value is swept as well.
    fn check(self, question: &Question, dimensions: &[Dimension]) -> Result<(), Error> {
        let tp = question.given.iter().any(|setting| setting.path == "parallelism.tp");
        let fixed = question.step;
        let flags = [
            ("batch", fixed.batch.is_some()),
            ("context", fixed.context.is_some()),
            ("prefill", fixed.prefill.is_some()),
            ("output-len", fixed.output_len.is_some()),
            ("tp", tp),
        ];
        let swept = |key: &str| dimensions.iter().any(|d| d.path == key);
        if let Some((key, _)) = flags.iter().find(|(key, given)| *given && (!self.has(key) || swept(key))) {
            let sweep = question.sweep.iter().map(|text| text.split('=').next().unwrap_or(text));
            let sweep = sweep.map(|key| format!("--sweep {key}=…")).collect::<Vec<_>>().join(" ");
            let useless = format!("without effect together with {sweep}");
            let accepted = format!("it with other sweeps, {sweep} without it");
            return Err(Error::field("arguments", format!("--{key}"), useless, accepted));
        }
        Ok(())
    }
}

/// Indices of the columns that a narrow table drops, in this order.
fn spare(header: &[&str]) -> Vec<usize> {
    let spare =
        ["no links", "MFU", "MBU", "p10", "p90", "limit tok/s", "FLOPs", "KV", "weights", "forecast tok/s"];
    spare.iter().filter_map(|name| header.iter().position(|title| title == name)).collect()
}

/// Prints a table or CSV; the first `keys` columns hold words.
fn print(header: &[&str], rows: &[Vec<String>], csv: bool, title: &str, keys: usize) -> Result<()> {
    if csv {
        show::csv(header, rows)?;
    } else {
        let left = if rows.iter().all(|row| row[..keys].iter().all(|cell| numeric(cell))) { 0 } else { keys };
        show::text(&(title.to_owned() + &table::fitted(header, rows, left, &spare(header))))?;
    }
    Ok(())
}

fn numeric(cell: &str) -> bool {
    cell.chars().all(|c| c.is_ascii_digit() || ",. ".contains(c))
}

/// Rows of a comparison, with a column for each compared setting.
fn compared_rows(
    keys: &[&str],
    names: &[&str],
    points: &[Point],
    csv: bool,
) -> (Vec<String>, Vec<Vec<String>>) {
    let unit = |name: &&str| if csv { format!("{name}_ms") } else { format!("{name} ms") };
    let header = keys.iter().map(|key| (*key).to_owned()).chain(names.iter().map(unit)).collect();
    (header, points.iter().map(|p| compared(p, csv)).collect())
}

impl From<crate::args::CompareArg> for Comparison {
    fn from(arg: crate::args::CompareArg) -> Comparison {
        use crate::args::CompareArg as A;
        match arg {
            A::Attention => Comparison::Attention,
            A::Launches => Comparison::Launches,
            A::Kernels => Comparison::Kernels,
            A::Layouts => Comparison::Layouts,
        }
    }
}
