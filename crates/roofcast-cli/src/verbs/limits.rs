//! `roofcast limits`: step times and their bottlenecks, as one answer, a sweep or an intensity curve.

mod images;
mod operators;
pub(crate) mod sweep;
pub(crate) mod view;

use super::{About, MACHINE, warned};
use crate::args::{LimitsArgs, StepArgs};
use crate::input;
use crate::page::Alone;
use crate::show::number::{count, counted, grouped, ms, percent, significant};
use crate::show::target::Target;
use crate::show::{self, table};
use clap::ValueEnum;
use roofcast::cost::{Cost, Utilization};
use roofcast::limits::alternatives::{Alternative, Comparison, alternatives};
use roofcast::limits::{
    AdapterCost, ImageCost, IntensityPoint, Limits, LimitsQuestion, cost_curves, intensity, limits,
};
use roofcast::report;
use roofcast::{Deployment, deployment::support};
use serde::Serialize;
use std::process::ExitCode;
use view::View;

/// Name and version of the answer's schema.
const SCHEMA: &str = "roofcast/limits/1";

/// Limits and forecasts of one decode step of the batch, and of one prompt.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Limits"))]
pub(crate) struct Answer<'a> {
    #[serde(flatten)]
    about: About<'a>,
    /// Sequences in the decode step.
    batch: u64,
    /// Tokens of context of each sequence.
    context: u64,
    /// Tokens of the prompt.
    prompt: u64,
    /// Fraction of peak FLOP/s that counts as reachable.
    mfu_limit: f64,
    /// Fraction of peak bandwidth that counts as reachable.
    mbu_limit: f64,
    #[serde(flatten)]
    limits: &'a Limits,
    /// Cost of the image, or the video, of `--image`.
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<ImageCost>,
}

impl<'a> Answer<'a> {
    fn of(deployment: &'a Deployment, question: &LimitsQuestion, limits: &'a Limits) -> Answer<'a> {
        Answer {
            about: About::of(deployment),
            batch: question.batch,
            context: question.context,
            prompt: question.prefill,
            mfu_limit: question.utilization.mfu,
            mbu_limit: question.utilization.mbu,
            limits,
            image: None,
        }
    }
}

pub(crate) fn run(args: &LimitsArgs) -> anyhow::Result<ExitCode> {
    let picture = Target::asked("--svg", args.svg.as_ref())?;
    let page = Alone::asked(args.html.as_ref())?;
    let source = input::source(&args.deployment)?;
    if !args.sweep.is_empty() && !args.deployment.source.dump_spec {
        return sweep::run(args, &source, picture.as_ref());
    }
    let scenario = source.scenario(&[])?;
    let mut deployment = scenario.deployment()?;
    if args.deployment.source.dump_spec {
        scenario.dump(&format!("limits SPEC.toml{}", asked(args)), Some(&deployment), &MACHINE)?;
        return Ok(ExitCode::SUCCESS);
    }
    support::check_generates(&scenario.place, &deployment.model)?;
    let question = asked_of(&args.step, &mut deployment);
    if let Some(kind) = args.step.compare {
        return compare(args, &deployment, &question, kind.into());
    }
    if let Some(shape) = &args.intensity {
        return curve(args, &deployment, shape, picture.as_ref());
    }
    let forecaster = question.forecaster(deployment)?;
    let deployment = &forecaster.deployment;
    let answer = limits(&forecaster, &question);
    let size = args.image.size()?;
    let image = size.map(|size| roofcast::limits::image(&forecaster, size)).transpose()?;
    if let Some(picture) = &picture {
        let curves = cost_curves(&forecaster, &question);
        picture.text(&report::roofline::svg(deployment, &question, &answer, &curves))?;
    }
    if let Some(page) = &page {
        page.write(
            "limits",
            &View::of(&forecaster, &question, &answer, &view::capacity_of(deployment, &question)),
        )?;
    }
    if args.output.json {
        show::json(SCHEMA, &Answer { image, ..Answer::of(deployment, &question, &answer) })?;
    } else if args.output.csv {
        let phases = [("decode", &answer.decode), ("prefill", &answer.prefill)];
        let rows: Vec<_> = phases.iter().flat_map(|(phase, cost)| operators::csv_rows(phase, cost)).collect();
        show::csv(
            &[
                "phase",
                "operator",
                "layers",
                "dtype",
                "flops",
                "weight_bytes",
                "kv_bytes",
                "intensity",
                "bound",
                "limit_ms",
                "forecast_ms",
                "share",
                "rests_on",
            ],
            &rows,
        )?;
    } else {
        let image = image.as_ref().map_or(String::new(), images::people);
        let title = warned(&forecaster) + &About::of(deployment).title();
        show::text(&(title + &people(deployment, &question, &answer) + &image))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The step that the flags ask for.
fn asked_of(step: &StepArgs, deployment: &mut Deployment) -> LimitsQuestion {
    let context = input::context(step.context, deployment);
    LimitsQuestion {
        batch: step.batch.unwrap_or(1),
        context,
        prefill: step.prefill.unwrap_or(context),
        utilization: Utilization { mfu: step.mfu, mbu: step.mbu },
    }
}

/// The step and the prompt with each setting of a kind.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "LimitsCompare"))]
pub(crate) struct Compared<'a> {
    #[serde(flatten)]
    about: About<'a>,
    /// Kind of the settings, as given to `--compare`.
    comparison: Comparison,
    /// Sequences in the decode step.
    batch: u64,
    /// Tokens of context of each sequence.
    context: u64,
    /// Tokens of the prompt.
    prompt: u64,
    /// Forecasts with each setting.
    alternatives: &'a [Alternative],
}

/// Prints the requested step under each setting of the kind that `comparison` names.
fn compare(
    args: &LimitsArgs,
    deployment: &Deployment,
    question: &LimitsQuestion,
    comparison: Comparison,
) -> anyhow::Result<ExitCode> {
    let compared = alternatives(deployment, comparison, question);
    let about = About::of(deployment);
    let LimitsQuestion { batch, context, prefill: prompt, .. } = *question;
    if args.output.json {
        let answer = Compared { about, comparison, batch, context, prompt, alternatives: &compared };
        show::json("roofcast/limits-compare/1", &answer)?;
    } else if args.output.csv {
        let row = |a: &Alternative| {
            let times = [a.decode, a.attention, a.prefill].map(|t| t.ms().to_string());
            std::iter::once(a.name.clone()).chain(times).collect()
        };
        let rows: Vec<Vec<String>> = compared.iter().map(row).collect();
        show::csv(&["setting", "decode_ms", "attention_ms", "prefill_ms"], &rows)?;
    } else {
        let row = |a: &Alternative| vec![a.name.clone(), ms(a.decode), ms(a.attention), ms(a.prefill)];
        let note = format!(
            "forecast of a decode step of {} of {} tokens, and of one prompt of {} tokens\n\n",
            counted(batch, "sequence"),
            grouped(context),
            grouped(prompt)
        );
        let header = ["setting", "decode ms", "attention ms", "prefill ms"];
        let rows: Vec<_> = compared.iter().map(row).collect();
        show::text(&(about.title() + &note + &table::table(&header, &rows, 1)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The flags that have no key in a spec, as text.
fn asked(args: &LimitsArgs) -> String {
    let number = |flag: &str, n: Option<u64>| n.map_or(String::new(), |n| format!(" --{flag} {n}"));
    let share = |flag: &str, v: f64| if v < 1.0 { format!(" --{flag} {v}") } else { String::new() };
    let text =
        |flag: &str, v: &Option<String>| v.as_ref().map_or(String::new(), |v| format!(" --{flag} {v}"));
    let counts = [
        ("batch", args.step.batch),
        ("context", args.step.context),
        ("prefill", args.step.prefill),
        ("output-len", args.step.output_len),
        ("video-frames", args.image.video_frames),
    ];
    let counts: String = counts.into_iter().map(|(flag, n)| number(flag, n)).collect();
    let sweeps: String = args.sweep.iter().map(|text| format!(" --sweep {text}")).collect();
    let curves = sweeps + &text("intensity", &args.intensity);
    let compared =
        args.step.compare.and_then(|kind| kind.to_possible_value()).map(|v| v.get_name().to_owned());
    counts
        + &share("mfu", args.step.mfu)
        + &share("mbu", args.step.mbu)
        + &text("compare", &compared)
        + &text("image", &args.image.image)
        + &curves
}

fn people(deployment: &Deployment, question: &LimitsQuestion, l: &Limits) -> String {
    let decode =
        format!("decode: {} of {} tokens", counted(question.batch, "sequence"), grouped(question.context));
    let prefill = format!("prefill: one prompt of {} tokens", grouped(question.prefill));
    let warning = if l.fits {
        ""
    } else {
        "this batch does not fit in memory (see roofcast capacity); times are those of a machine with more\n\n"
    };
    warning.to_owned()
        + &phase(&decode, &l.decode, [l.decode_tokens_per_s, l.decode_forecast_tokens_per_s])
        + &phase(&prefill, &l.prefill, [l.prefill_tokens_per_s, l.prefill_forecast_tokens_per_s])
        + &balance(deployment, question, l)
}

fn phase(title: &str, cost: &Cost, [limit_rate, forecast_rate]: [f64; 2]) -> String {
    let band = cost.forecast_band;
    let mut pairs = vec![
        (
            "limit",
            format!(
                "{} ms, {}-bound, {} tokens/s",
                ms(cost.limit_with_communication),
                cost.bound.name(),
                grouped(limit_rate as u64)
            ),
        ),
        (
            "  consists of",
            format!("operators {} ms, links {} ms", ms(cost.limit), ms(cost.terms.communication)),
        ),
        (
            "  each alone",
            format!(
                "weights {} ms, KV {} ms, FLOPs {} ms",
                ms(cost.terms.weights),
                ms(cost.terms.kv),
                ms(cost.terms.flops)
            ),
        ),
        (
            "  at the limit",
            format!(
                "MFU {}, MBU {}, {} FLOP/B",
                percent(cost.mfu),
                percent(cost.mbu),
                significant(cost.intensity)
            ),
        ),
        (
            "forecast",
            format!(
                "{} ms, {}-bound, {} tokens/s ({} to {} ms; {})",
                ms(cost.forecast),
                cost.forecast_bound,
                grouped(forecast_rate as u64),
                ms(band[0]),
                ms(band[1]),
                cost.forecast_source
            ),
        ),
    ];
    pairs.extend(cost.lifted_by.as_ref().map(|flag| ("  lifted by", lifted(cost, flag))));
    format!("{title}\n\n{}{}", table::pairs(&pairs), operators::table(cost))
}

/// The wait for the server's messages, and the flag that lifts it.
fn lifted(cost: &Cost, flag: &str) -> String {
    format!(
        "{flag}: messages to clients take all of the step, and the accelerators wait {} ms of it",
        ms(cost.beside.server)
    )
}

fn balance(deployment: &Deployment, question: &LimitsQuestion, l: &Limits) -> String {
    let ridge: Vec<_> =
        l.ridge.iter().map(|r| format!("{} {}", r.dtype, significant(r.flops_per_byte))).collect();
    let critical: Vec<_> = l
        .critical_batch
        .iter()
        .map(|c| format!("{}-bit weights in {}: {:.0}", c.weight_bits, c.dtype, c.batch))
        .collect();
    let t = &l.tensor_parallel;
    let k = &l.kv_cache;
    let mut pairs = vec![
        ("ridge, FLOP/B", ridge.join(", ")),
        ("critical batch", critical.join("; ")),
        (
            "useful tp",
            format!(
                "{} (closed form: {} compute-bound, {} memory-bound)",
                t.useful_tp,
                significant(t.compute_bound_width),
                significant(t.memory_bound_width)
            ),
        ),
        (
            "KV cache",
            format!(
                "a step that reads the cache takes {} ms ({} ms of it for the cache), one that computes the context \
                 again {} ms; the cache is faster from {} tokens",
                ms(k.cached),
                ms(l.decode.terms.kv),
                ms(k.recomputed),
                grouped(k.break_even_context)
            ),
        ),
        ("KV projections", format!("{} of a token's matrix FLOPs", percent(k.kv_flops_share))),
    ];
    if let Some(e) = l.experts {
        let share = percent(e.distinct / e.count as f64);
        let alike = format!("; the limit is {} ms if all tokens choose alike", ms(e.least));
        let alike = if question.batch > 1 { alike.as_str() } else { "" };
        pairs.push((
            "experts",
            format!(
                "{} of {} per token; this batch reads {} ({share}) in each layer{alike}",
                e.per_token,
                e.count,
                significant(e.distinct)
            ),
        ));
    }
    pairs.extend(l.adapters.map(|cost| ("LoRA", adapters(&cost))));
    for way in &l.all_reduce {
        let message = l.decode.communication.message_bytes.gb();
        pairs.push((
            "all-reduce",
            format!(
                "{message} by {}: {} ms + {} ms latency",
                way.algorithm,
                ms(way.bandwidth),
                ms(way.latency)
            ),
        ));
    }
    let header = ["tp", "bottleneck", "limit ms", "links ms"];
    let row = |d: &roofcast::limits::Degree| {
        vec![d.tp.to_string(), d.bound.name().to_owned(), ms(d.limit + d.communication), ms(d.communication)]
    };
    let degrees = table::table(&header, &t.degrees.iter().map(row).collect::<Vec<_>>(), 2);
    let parameters = deployment.model.parameters();
    format!(
        "balance ({} parameters, {} active)\n\n{}{degrees}",
        count(parameters.total),
        count(parameters.active),
        table::pairs(&pairs)
    )
}

/// Bytes of LoRA adapters, and the time that they add to the decode step.
fn adapters(a: &AdapterCost) -> String {
    format!(
        "{} of rank {}, {} each: add {} ms at the limit, {} ms as forecast; a load takes {} ms",
        counted(a.adapters, "adapter"),
        a.max_lora_rank,
        a.bytes.gb(),
        ms(a.limit),
        ms(a.forecast),
        ms(a.load)
    )
}

/// Arithmetic intensity of one layer over the batch size.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Intensity"))]
pub(crate) struct Curve<'a> {
    /// Id of the accelerator.
    hardware: &'a str,
    /// Rows of the layer's weights.
    rows: u64,
    /// Columns of the layer's weights.
    columns: u64,
    /// Format of the weights.
    weights: &'a str,
    /// Intensity at each batch size.
    points: Vec<IntensityPoint>,
}

/// Prints the arithmetic intensity of one layer over the batch size.
fn curve(
    args: &LimitsArgs,
    deployment: &Deployment,
    shape: &str,
    picture: Option<&Target>,
) -> anyhow::Result<ExitCode> {
    let accepted = "ROWSxCOLUMNS, each 1 to 16777216, as 4096x4096";
    let sides: Option<Vec<u64>> =
        shape.split('x').map(|s| s.parse().ok().filter(|n| (1..=1 << 24).contains(n))).collect();
    let Some([rows, columns]) = sides.as_deref().and_then(|s| <[u64; 2]>::try_from(s).ok()) else {
        return Err(roofcast::Error::field("arguments", "--intensity", format!("{shape:?}"), accepted).into());
    };
    let batches: Vec<u64> = (0..=12).map(|p| 1 << p).collect();
    let bytes = deployment.weight_bytes.as_f64() / deployment.model.parameters().total as f64;
    let points = intensity(deployment, rows, columns, bytes, &batches);
    if let Some(picture) = picture {
        picture.text(&report::intensity::svg(deployment, rows, columns, &points))?;
    }
    if args.output.json {
        let curve = Curve {
            hardware: &deployment.accelerator.id,
            rows,
            columns,
            weights: &deployment.weights,
            points,
        };
        show::json("roofcast/intensity/1", &curve)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |p: &IntensityPoint| {
        vec![p.batch.to_string(), significant(p.flops_per_byte), p.bound.name().to_owned()]
    };
    let rows: Vec<_> = points.iter().map(row).collect();
    let header = ["batch", "FLOP/B", "bound"];
    if args.output.csv {
        show::csv(&header, &rows)?
    } else {
        show::text(&table::table(&header, &rows, 0))?
    }
    Ok(ExitCode::SUCCESS)
}
