//! `roofcast hardware measure`: measures this machine and describes it as an accelerator.

use crate::args::MeasureArgs;
use crate::exit;
use crate::measure::gpu::Gpu;
use crate::measure::machine::Machine;
use crate::measure::memory::{Buffer, Operation, Pages};
use crate::measure::{Pace, Spread, compute, gpu, memory};
use crate::show::number::{grouped, significant};
use crate::show::progress::Progress;
use crate::show::target::Target;
use crate::show::{self, table};
use anyhow::{Context, Result, bail};
use roofcast::accelerator::{Accelerator, Citation};
use roofcast::precision::Dtype;
use roofcast::units::{ByteRate, Bytes, FlopRate};
use roofcast::{Catalog, Error};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Fraction of the time that a thread may wait for a processor before the user is warned.
const MOST_WAIT: f64 = 0.05;

/// Measured rates of this machine; rates are per second of CPU time of the threads.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "HardwareMeasure"))]
pub(crate) struct Answer {
    /// Description of the machine by its system.
    machine: Machine,
    /// Number of timed spans of each rate.
    repeats: usize,
    /// Length of a span in milliseconds.
    repeat_ms: u64,
    /// Approximate size of the buffer.
    buffer_bytes: Bytes,
    /// Rates of memory.
    memory: Vec<MemoryRate>,
    /// Rates of arithmetic.
    compute: Vec<ComputeRate>,
    /// Formats for which this processor has no instructions.
    not_measured: Vec<&'static str>,
    /// GPUs that a tool lists.
    gpus: Vec<Gpu>,
    /// Output of a tool instead of a list.
    gpu_notes: Vec<String>,
    /// The measured machine as an accelerator; `None` if rates are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    accelerator: Option<Accelerator>,
    /// True if Ctrl-C or SIGTERM came before all rates were measured.
    interrupted: bool,
}

/// A rate of memory.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct MemoryRate {
    /// Operation; a copy counts bytes read and written.
    operation: Operation,
    /// Size of the buffer's pages.
    pages: Pages,
    /// Fraction of the buffer in huge pages.
    huge_share: Option<f64>,
    /// Number of threads.
    threads: usize,
    /// Bytes per second.
    bytes_per_s: Spread,
}

/// A rate of arithmetic.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ComputeRate {
    /// Format of the operands.
    dtype: &'static str,
    /// Instructions that were timed.
    instructions: &'static str,
    /// Number of threads.
    threads: usize,
    /// Operations per second; a multiply-add counts as two.
    operations_per_s: Spread,
}

/// The accelerator file: a catalog with one entry.
#[derive(Serialize)]
struct File<'a> {
    accelerator: [&'a Accelerator; 1],
}

pub(crate) fn run(args: &MeasureArgs) -> Result<ExitCode> {
    let file = args.output.as_deref().map(file).transpose()?;
    let machine = Machine::read()?;
    let threads = args.threads.unwrap_or(machine.threads);
    if threads > machine.threads {
        bail!("--threads: {threads}; accepted: 1 to {}, which this process may use at once", machine.threads);
    }
    let counts: &[usize] = if threads == 1 { &[1] } else { &[1, threads] };
    let progress = Progress::named()?;
    let pace = pace(args.quick);
    let size = memory::size(machine.cache_bytes, machine.free_bytes, args.quick);
    let memory = memory_rates(size, counts, pace, &progress)?;
    let (compute, not_measured) = compute_rates(counts, pace, &progress)?;
    let interrupted = !progress.goes_on();
    drop(progress);
    let (gpus, gpu_notes) = gpu::find(Catalog::embedded()?);
    let whole = || accelerator(&machine, threads, &memory, &compute);
    let accelerator = (!interrupted).then(whole).transpose()?;
    let answer = Answer {
        machine,
        repeats: pace.repeats,
        repeat_ms: pace.span.as_millis() as u64,
        buffer_bytes: size,
        memory,
        compute,
        not_measured,
        gpus,
        gpu_notes,
        accelerator,
        interrupted,
    };
    if let (Some(file), Some(accelerator)) = (&file, &answer.accelerator) {
        file.text(&toml(&answer, accelerator)?)?;
    }
    if args.shown.json {
        show::json("roofcast/hardware-measure/1", &answer)?;
    } else if args.shown.csv {
        show::csv(&["rate", "threads", "unit", "median", "least", "most"], &csv_rows(&answer))?;
    } else {
        show::text(&people(&answer, args.output.as_deref()))?;
    }
    Ok(if interrupted { exit::invalid() } else { ExitCode::SUCCESS })
}

/// The target of `--output`, whose name must end in `.toml` because `--hardware` accepts only such names.
fn file(path: &Path) -> Result<Target> {
    if path.extension().is_none_or(|e| e != "toml") {
        let shown_path = format!("{:?}", path.display().to_string());
        return Err(Error::field("arguments", "--output", shown_path, "a file that ends in .toml").into());
    }
    Target::of("--output", path)
}

fn pace(quick: bool) -> Pace {
    let pace_of = |warm_up, span, repeats| Pace {
        warm_up: Duration::from_millis(warm_up),
        span: Duration::from_millis(span),
        repeats,
    };
    if quick { pace_of(5, 20, 3) } else { pace_of(50, 200, 5) }
}

fn memory_rates(size: Bytes, counts: &[usize], pace: Pace, progress: &Progress) -> Result<Vec<MemoryRate>> {
    let mut rates = vec![];
    for pages in [Pages::Small, Pages::Huge] {
        for &threads in counts {
            if !progress.goes_on() {
                return Ok(rates);
            }
            progress.say(format!("memory, {} pages, threads: {threads}", named(&pages)));
            let Some(mut buffer) = Buffer::new(size, pages, threads)? else { continue };
            // Copying overwrites the pattern that reading checks, so it comes last.
            for operation in [Operation::Read, Operation::Copy] {
                let bytes_per_s = buffer.measure(operation, threads, pace)?;
                rates.push(MemoryRate {
                    operation,
                    pages,
                    huge_share: buffer.huge_share,
                    threads,
                    bytes_per_s,
                });
            }
        }
    }
    Ok(rates)
}

/// Rates by number format, and the formats for which this processor has no instructions.
fn compute_rates(
    counts: &[usize],
    pace: Pace,
    progress: &Progress,
) -> Result<(Vec<ComputeRate>, Vec<&'static str>)> {
    let mut rates = vec![];
    let mut without = vec![];
    for kernel in compute::KERNELS {
        let dtype = kernel.name;
        for &threads in counts {
            if !progress.goes_on() {
                return Ok((rates, without));
            }
            progress.say(format!("{dtype}, threads: {threads}"));
            match compute::measure(kernel, threads, pace)? {
                Some((instructions, operations_per_s)) => {
                    rates.push(ComputeRate { dtype, instructions, threads, operations_per_s });
                }
                None if without.contains(&dtype) => {}
                None => without.push(dtype),
            }
        }
    }
    Ok((rates, without))
}

/// The machine as a catalog entry. Its rates are the fastest repeat's: disturbances only slow a measurement down, and a
/// limit is the highest rate that can be reached.
fn accelerator(
    machine: &Machine,
    threads: usize,
    memory: &[MemoryRate],
    compute: &[ComputeRate],
) -> Result<Accelerator> {
    let reads = memory.iter().filter(|r| r.operation == Operation::Read);
    let fastest =
        reads.max_by(|a, b| a.bytes_per_s.max.total_cmp(&b.bytes_per_s.max)).context("no memory rate")?;
    let mut peak_flops = BTreeMap::new();
    for kernel in compute::KERNELS {
        let rates = compute.iter().filter(|r| r.dtype == kernel.name).map(|r| r.operations_per_s.max);
        if let (Some(dtype), Some(rate)) = (kernel.dtype, rates.max_by(f64::total_cmp)) {
            peak_flops.insert(dtype, FlopRate(rate.round()));
        }
    }
    let accelerator = Accelerator {
        id: machine.id(),
        name: format!("{} (measured)", machine.name),
        aliases: vec![],
        vendor: "cpu".into(),
        architecture: machine.architecture.into(),
        vllm_small_batches: false,
        memory_bytes: machine.memory_bytes,
        usable_bytes: machine.memory_bytes,
        memory_options: vec![],
        bandwidth_bytes_per_s: ByteRate(fastest.bytes_per_s.max.round()),
        multiprocessors: None,
        host_link: None,
        sustained_flops: BTreeMap::new(),
        power_limit_w: None,
        fp16_accumulate_flops: None,
        sustained_bandwidth: None,
        in_band_ecc: false,
        node_size: 1,
        host_speed: 1.0,
        power_w: None,
        notes: format!(
            "Measured on up to {threads} threads, the fastest repeat of each rate: the whole machine as one accelerator. \
             Bandwidth: reading with {} pages. Formats by other instructions: {}. Matrix units (AMX, SME) are not \
             reached. Memory: what the system reports.",
            named(&fastest.pages),
            widened(compute),
        ),
        peak_flops,
        link: None,
        network: None,
        price: None,
        sources: vec![Citation {
            of: "bandwidth_bytes_per_s, peak_flops (measured)".into(),
            url: concat!("roofcast ", env!("CARGO_PKG_VERSION"), " hardware measure").into(),
        }],
    };
    accelerator.check("hardware measure")?;
    Ok(accelerator)
}

/// A warning if other programs held the processors during the measurement.
fn interference(answer: &Answer) -> Option<String> {
    let memory = answer.memory.iter().map(|r| r.bytes_per_s.waited_share);
    let waited = memory.chain(answer.compute.iter().map(|r| r.operations_per_s.waited_share)).flatten();
    let longest_wait = waited.max_by(f64::total_cmp).filter(|w| *w > MOST_WAIT)?;
    let share = show::number::percent(longest_wait);
    Some(format!(
        "other work held the processors up to {share} of the time. That time does not count, but caches and memory were \
         shared: rates may be too low; measure while idle"
    ))
}

/// Lists the formats without instructions of their own, which are computed in a wider format.
fn widened(compute: &[ComputeRate]) -> String {
    let wide = compute.iter().filter(|r| r.instructions.contains("widened"));
    let mut names: Vec<_> = wide.map(|r| format!("{} ({})", r.dtype, r.instructions)).collect();
    names.dedup();
    if names.is_empty() { "none".into() } else { names.join("; ") }
}

/// The accelerator file: every rate with its spread as comments, then the entry.
fn toml(answer: &Answer, accelerator: &Accelerator) -> Result<String> {
    let mut text = "# Measured by `roofcast hardware measure`: the median of the repeats, and the slowest to the fastest.\n".to_owned();
    text += &interference(answer).map_or(String::new(), |c| format!("# {c}\n"));
    for (what, rate) in lines(answer) {
        text += &format!("# {what}: {rate}\n");
    }
    Ok(text + "\n" + &toml::to_string_pretty(&File { accelerator: [accelerator] })?)
}

/// CSV rows of the rates, in bytes or operations per second.
fn csv_rows(answer: &Answer) -> Vec<Vec<String>> {
    let row = |rate: String, threads: usize, unit: &str, s: &Spread| {
        let figures = [s.median, s.min, s.max].map(|v| v.to_string());
        [rate, threads.to_string(), unit.to_owned()].into_iter().chain(figures).collect()
    };
    let memory = answer.memory.iter().map(|r| {
        let rate = format!("{}, {} pages", named(&r.operation), named(&r.pages));
        row(rate, r.threads, "bytes_per_s", &r.bytes_per_s)
    });
    let compute = answer.compute.iter().map(|r| {
        row(format!("{} ({})", r.dtype, r.instructions), r.threads, "operations_per_s", &r.operations_per_s)
    });
    memory.chain(compute).collect()
}

/// Names and values of the rates, as lines for people.
fn lines(answer: &Answer) -> Vec<(String, String)> {
    let spread = |s: &Spread, by: f64, unit: &str| {
        let [median, min, max] = [s.median, s.min, s.max].map(|v| significant(v / by));
        format!("{median} {unit} ({min} to {max})")
    };
    let memory = answer.memory.iter().map(|r| {
        let what = format!("{}, {} pages, threads: {}", named(&r.operation), named(&r.pages), r.threads);
        (what, spread(&r.bytes_per_s, 1e9, "GB/s"))
    });
    let compute = answer.compute.iter().map(|r| {
        let what = format!("{} ({}), threads: {}", r.dtype, r.instructions, r.threads);
        let unit = if r.dtype == Dtype::Int8.name() { "GOP/s" } else { "GFLOP/s" };
        (what, spread(&r.operations_per_s, 1e9, unit))
    });
    memory.chain(compute).collect()
}

/// Name of an enum's variant in JSON.
fn named<T: Serialize>(variant: &T) -> String {
    serde_json::to_value(variant).ok().and_then(|v| Some(v.as_str()?.to_owned())).unwrap_or_default()
}

fn people(answer: &Answer, output: Option<&Path>) -> String {
    let m = &answer.machine;
    let both = |b: Bytes| format!("{} ({})", b.gib(), b.gb());
    let mut pairs = vec![
        ("machine", format!("{}, {}, threads: {}", m.name, m.architecture, m.threads)),
        ("memory", both(m.memory_bytes)),
        ("last-level cache", both(m.cache_bytes)),
        ("buffer", both(answer.buffer_bytes)),
        ("repeats", format!("{} of {} ms each", answer.repeats, grouped(answer.repeat_ms))),
    ];
    pairs
        .extend(answer.not_measured.iter().map(|d| ("not measured", format!("{d}: no instructions for it"))));
    let rates = lines(answer).into_iter().map(|(what, rate)| vec![what, rate]).collect::<Vec<_>>();
    let mut text = table::pairs(&pairs);
    text += &table::table(&["rate", "median (slowest to fastest)"], &rates, 1);
    if let Some(share) =
        answer.memory.iter().filter_map(|r| r.huge_share.filter(|_| r.pages == Pages::Huge)).reduce(f64::min)
    {
        text += &format!("huge pages held at least {} of their buffers\n\n", show::number::percent(share));
    }
    text += &interference(answer).map_or(String::new(), |c| table::line(&c) + "\n");
    text += &gpus(answer);
    match output {
        _ if answer.interrupted => {
            table::line("PARTIAL: interrupted before all rates were measured; nothing is written")
                + "\n"
                + &text
        }
        Some(path) => {
            text + &format!("wrote {0}: roofcast limits --hardware {0} --model …\n", path.display())
        }
        None => text + "--output my-machine.toml writes this machine as an accelerator\n",
    }
}

fn gpus(answer: &Answer) -> String {
    let mut text: String = answer.gpu_notes.iter().map(|n| format!("{n}\n")).collect();
    if answer.gpus.is_empty() {
        return text;
    }
    let dash = || "–".to_owned();
    let row = |g: &Gpu| {
        let link = match (g.pcie_generation, g.pcie_lanes) {
            (Some(generation), Some(lanes)) => format!("gen {generation} × {lanes}"),
            _ => dash(),
        };
        vec![
            g.name.clone(),
            g.catalog.clone().unwrap_or_else(|| "not in the catalog".into()),
            g.memory_bytes.map_or_else(dash, Bytes::gib),
            link,
            g.power_limit_w.map_or_else(dash, |w| format!("{} W", significant(w))),
        ]
    };
    let rows: Vec<_> = answer.gpus.iter().map(row).collect();
    text += &table::table(&["GPU (not measured)", "--hardware", "memory", "PCIe", "power limit"], &rows, 2);
    text
}
