//! `roofcast conformance FILE…`: replays recorded scheduling decisions.

use crate::args::ConformanceArgs;
use crate::show::number::grouped;
use crate::{input, show};
use roofcast::conformance::{StepDifference, compare, parse};
use serde::Serialize;
use std::process::ExitCode;

/// Recorded steps of real schedulers, replayed.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Conformance"))]
pub(crate) struct Answer {
    /// True if every step of every trace was reproduced.
    agree: bool,
    /// Traces in the order of their files.
    traces: Vec<Replayed>,
}

/// A replayed trace.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Replayed {
    /// Name of the file.
    file: String,
    /// Name of the trace.
    name: String,
    /// Recorded engine: vLLM or SGLang.
    engine: &'static str,
    /// Version of the engine.
    version: String,
    /// Number of recorded steps.
    steps: u64,
    /// True if every step was reproduced.
    agree: bool,
    /// First difference; `null` if every step was reproduced.
    difference: Option<StepDifference>,
}

/// Replays the files. Exit code 0 if all decisions agree, 1 if one differs.
pub(crate) fn run(args: &ConformanceArgs) -> anyhow::Result<ExitCode> {
    let mut traces = Vec::new();
    for path in &args.files {
        let file = path.display().to_string();
        let trace = parse(&file, &input::text(path)?)?;
        let difference = compare(&trace);
        traces.push(Replayed {
            file,
            name: trace.name().to_owned(),
            engine: trace.engine().0,
            version: trace.engine().1.to_owned(),
            steps: trace.steps() as u64,
            agree: difference.is_none(),
            difference,
        });
    }
    let agree = traces.iter().all(|t| t.agree);
    if args.output.json {
        show::json("roofcast/conformance/1", &Answer { agree, traces })?;
    } else if args.output.csv {
        let header = ["file", "name", "engine", "version", "steps", "agree"];
        show::csv(&header, &traces.iter().map(csv_row).collect::<Vec<_>>())?;
    } else {
        show::text(&traces.iter().map(people).collect::<String>())?;
    }
    Ok(if agree { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn csv_row(t: &Replayed) -> Vec<String> {
    let words = [&t.file, &t.name, t.engine, &t.version].map(str::to_owned);
    words.into_iter().chain([t.steps.to_string(), t.agree.to_string()]).collect()
}

fn people(t: &Replayed) -> String {
    let Some(d) = &t.difference else {
        return format!("agrees   {} ({} steps, {} {})\n", t.name, grouped(t.steps), t.engine, t.version);
    };
    let side = |s: &Option<serde_json::Value>| {
        s.as_ref().map_or("no such step".to_owned(), serde_json::Value::to_string)
    };
    let fields = d.fields.join(", ");
    format!(
        "differs  {} at step {} in {fields}\n  recorded {}\n  replayed {}\n",
        t.name,
        d.step,
        side(&d.recorded),
        side(&d.replayed)
    )
}
