//! Tables of every verb are at most 100 characters wide; `--wide` shows all their columns.

use super::schedule::{Schedule, start};
use super::support::roofcast;
use std::time::Duration;

/// Commands for every verb that prints a table.
const ASKED: &[&str] = &[
    "limits --model meta-llama/Llama-3.1-70B --hardware h100-sxm --count 4 --weights fp8 --kv 8 --batch 64",
    "limits --model deepseek-ai/DeepSeek-V3 --hardware h200-sxm --count 8 --batch 256",
    "limits --model deepseek-ai/DeepSeek-V3 --hardware h200-sxm --count 8 --sweep context=1024,1000000",
    "limits --model llama-3.1-8b --hardware h100-sxm --intensity 4096x4096",
    "capacity --model deepseek-ai/DeepSeek-V3 --hardware h200-sxm --count 8 --explain",
    "capacity --model llama-3.1-8b --hardware h100-sxm --users 500 --pp 4 --count 4",
    "plan",
    "plan examples/plan-tpu.toml",
    "simulate",
    "simulate examples/fleet-pools.toml",
    "simulate examples/kv-gaps.toml --requests 50",
    "simulate --requests 100 --sweep rate=1..32:x4",
    "simulate --model llama-3.1-70b --tp 4 --rate 1000 --requests 1000 --output-len 10",
    "plan --model llama-3.1-8b --hardware h100-sxm --weights gptq-int4 --set search.requests=100",
    "simulate --requests 100 --sweep scheduler=vllm,tensorrt-llm-max-utilization",
    "seeds",
    "catalog",
    "catalog deepseek-ai/DeepSeek-V3",
    "catalog rtx-4090",
    "catalog sharegpt",
    "hardware measure --quick",
    "validate examples/measured.csv",
    "calibrate examples/measured.csv",
];

/// Asserts that no line of the output is too long, except commands to copy; returns the output.
fn fits(arguments: &str) -> String {
    let run = roofcast(arguments);
    assert!([0, 3].contains(&run.code), "{arguments}: {}", run.err);
    let command = |line: &str| ["  vllm serve ", "  python"].iter().any(|start| line.starts_with(start));
    for line in run.out.lines().filter(|line| !command(line)) {
        assert!(line.chars().count() <= 100, "{arguments}: {line}");
    }
    run.out
}

#[test]
fn tables_keep_to_100_characters() {
    ASKED.iter().for_each(|arguments| drop(fits(arguments)));
}

#[test]
fn tables_of_a_live_server_do_too() {
    let url = start(Schedule { ttft: Duration::from_millis(4), itl: Duration::from_millis(1) });
    let base = format!(
        "bench --url {url} --model llama-3.1-8b --hardware h100-sxm --input-len 20 --output-len 4 --requests 8"
    );
    fits(&base);
    fits(&format!("{base} --sweep concurrency=1,2"));
}

#[test]
fn wide_tables_have_the_columns_that_narrow_ones_leave_out() {
    let base = "simulate --requests 20 --sweep rate=1,2";
    let narrow = fits(base);
    assert!(narrow.contains("further columns with --wide") && !narrow.contains("KV held  empty"), "{narrow}");
    let wide = roofcast(&format!("{base} --wide")).out;
    assert!(wide.contains("KV held  empty  preempted") && !wide.contains("--wide"), "{wide}");
}
