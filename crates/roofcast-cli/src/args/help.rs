//! Layout of help: the headings of a verb's flags, common flags in `-h`, examples at the end, and the verbs in two
//! groups.
//!
//! Knows: names of flags and verbs. Knows nothing about their effect.

use crate::show::table;
use clap::{Arg, Command};

/// Heading of flags for input files.
const INPUT: &str = "Input";
/// Heading of flags for model, hardware, formats and parallelism.
pub(super) const MACHINE: &str = "Model and hardware";
/// Heading of flags for the engine and the routing to its replicas.
pub(super) const ENGINE: &str = "Engine";
/// Heading of flags for load and SLO.
pub(super) const LOAD: &str = "Load and SLO";
/// Heading of flags for output files.
const OUTPUT: &str = "Output";

/// Flags that are not keys of a spec, by heading.
const HEADINGS: [(&str, &[&str]); 3] = [
    (
        INPUT,
        &[
            "from_command",
            "from_manifest",
            "set",
            "catalog",
            "measured",
            "calibration",
            "group",
            "kernels",
            "url",
            "endpoint",
            "served_model",
            "prompts",
            "tokenizer",
            "no_stream",
            "timeout",
            "header",
            "api_key_env",
            "extra_body",
            "assume_tokens",
            "metrics",
            "baseline",
        ],
    ),
    (
        LOAD,
        &[
            "batch",
            "context",
            "prefill",
            "output_len",
            "mfu",
            "mbu",
            "oversubscription",
            "users",
            "compare",
            "image",
            "video_frames",
            "intensity",
            "sweep",
            "threads",
            "no_leap",
            "oracle",
            "constant",
            "warmup",
            "cooldown",
            "slo_ttft",
            "slo_tpot",
            "slo_e2el",
            "max_lag",
            "find_rate",
            "exhaustive",
            "curve",
            "why",
        ],
    ),
    (
        OUTPUT,
        &[
            "json",
            "csv",
            "svg",
            "html",
            "records",
            "series",
            "trace",
            "trace_limit",
            "dump_spec",
            "explain",
            "launch_dir",
            "per_row",
            "curves",
            "out",
            "measurements",
            "detailed",
            "cells",
            "shard",
            "numbers",
            "cell_time_limit",
            "merge",
            "missing",
            "partial",
            "source",
            "ranking",
            "leave_out",
        ],
    ),
];

/// Flags that `-h` shows for a verb with more than [`MOST`] flags; `--help` and `roofcast keys` show the others, too.
const EVERYDAY: [&str; 38] = [
    "from_command",
    "set",
    "url",
    "endpoint",
    "model",
    "hardware",
    "count",
    "weights",
    "kv",
    "tp",
    "replicas",
    "engine",
    "max-num-seqs",
    "max-num-batched-tokens",
    "max-model-len",
    "workload",
    "requests",
    "rate",
    "concurrency",
    "input-len",
    "output-len",
    "ttft-p99",
    "tpot-p99",
    "slo_ttft",
    "slo_tpot",
    "batch",
    "context",
    "prefill",
    "users",
    "sweep",
    "compare",
    "max-accelerators",
    "launch_dir",
    "measured",
    "explain",
    "svg",
    "json",
    "port",
];

/// Largest number of flags of a verb with which `-h` shows all.
const MOST: usize = 25;

/// Verbs that maintain the program: its calibration, its evidence, the texts it was developed from.
const MAINTAINERS: [&str; 5] = ["calibrate", "validate", "conformance", "seeds", "hardware"];

/// Examples at the end of a verb's help.
const EXAMPLES: [(&str, &[&str]); 8] = [
    (
        "limits",
        &[
            "roofcast limits --model llama-3.1-70b --hardware h100-sxm --count 8 --batch 64",
            "roofcast limits --model qwen3-32b --hardware h200-sxm --sweep batch=1..256:x2",
        ],
    ),
    (
        "capacity",
        &[
            "roofcast capacity --model deepseek-v3 --hardware h200-sxm --count 8 --context 32k",
            "roofcast capacity --model llama-3.1-8b --hardware rtx-4090 --weights q4_k_m --users 40",
        ],
    ),
    (
        "plan",
        &[
            "roofcast plan --model llama-3.1-70b --rate 5 --ttft-p99 2s --tpot-p99 50ms",
            "roofcast plan spec.toml --launch-dir launch",
        ],
    ),
    (
        "simulate",
        &[
            "roofcast simulate --model qwen3-8b --hardware l40s --rate 2 --input-len 1k --output-len 200",
            "roofcast simulate --hardware h100-sxm --sweep rate=4..32:x2 --ttft-p99 2s",
            "roofcast simulate --from-command \"vllm serve Qwen/Qwen3-32B -tp 2\" --hardware h100-sxm",
        ],
    ),
    (
        "bench",
        &[
            "roofcast bench --url http://127.0.0.1:8000 --model llama-3.1-8b --rate 4",
            "roofcast bench --url http://127.0.0.1:8000 --model llama-3.1-8b --sweep concurrency=1..64:x2",
        ],
    ),
    ("emulate", &["roofcast emulate --model llama-3.1-8b --hardware h100-sxm --port 8000"]),
    ("keys", &["roofcast keys prefix", "roofcast keys engine.speculative"]),
    (
        "validate",
        &[
            "roofcast validate measured.csv",
            "roofcast validate run.json --model llama-3.1-8b --hardware h100-sxm",
        ],
    ),
];

/// Puts the arguments of a verb under headings, and appends examples.
pub(super) fn arranged(command: Command) -> Command {
    let all = command.get_arguments().filter(|arg| arg.get_long().is_some() && !arg.is_hide_set()).count();
    let examples = EXAMPLES.iter().find(|(verb, _)| *verb == command.get_name()).map(|(_, lines)| lines);
    let command = command.mut_args(|arg| headed(arg, all > MOST));
    let Some(lines) = examples else { return command };
    let lines: String = lines.iter().map(|line| format!("  {line}\n")).collect();
    let rest = if all > MOST {
        "\n`--help` has every flag, `roofcast keys [SEARCH]` every key of a spec, for --set.\n"
    } else {
        ""
    };
    command.after_help(format!("Examples:\n{lines}{rest}"))
}

/// Puts an argument under its heading; for a verb with `many` flags, hides uncommon arguments from `-h`.
fn headed(arg: Arg, many: bool) -> Arg {
    let id = arg.get_id().as_str().to_owned();
    let has_id = |(_, ids): &&(&str, &[&str])| ids.contains(&id.as_str());
    let heading = HEADINGS.iter().find(has_id).map(|(heading, _)| *heading);
    let arg = match heading {
        Some(heading) if arg.get_long().is_some() => arg.help_heading(heading),
        _ => arg,
    };
    let rare = many && arg.get_long().is_some() && !EVERYDAY.contains(&id.as_str());
    if rare { arg.hide_short_help(true) } else { arg }
}

/// The program's command, whose help lists everyday verbs before maintenance verbs.
pub(crate) fn grouped(command: Command) -> Command {
    let line = |verb: &Command| {
        (verb.get_name().to_owned(), verb.get_about().map(ToString::to_string).unwrap_or_default())
    };
    let (maintain, everyday): (Vec<_>, Vec<_>) =
        command.get_subcommands().map(line).partition(|(name, _)| MAINTAINERS.contains(&name.as_str()));
    let listed = |verbs: &[(String, String)]| {
        let pairs: Vec<_> = verbs.iter().map(|(name, about)| (name.as_str(), about.clone())).collect();
        table::pairs(&pairs).trim_end().lines().map(|line| format!("  {line}\n")).collect::<String>()
    };
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\nCommands:\n{}\nTo maintain its evidence:\n{}\nOptions:\n{{options}}\n",
        listed(&everyday),
        listed(&maintain)
    );
    command.help_template(template)
}
