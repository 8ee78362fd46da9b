//! Flags of `python -m sglang.launch_server` that are read together, because several keys depend on each.

use super::flags::{Given, wrong};
use super::{Command, count, formats, last, once, switched};
use roofcast_facts::error::Result;

pub(super) fn read(apart: &[(String, Given)], command: &mut Command) -> Result<()> {
    formats(apart, command);
    let fraction = command.settings.iter().any(|s| s.path == "engine.gpu_memory_utilization");
    if fraction {
        let note =
            "--mem-fraction-static is taken as the share of memory for everything, activations among it";
        command.notes.push(note.to_owned());
    }
    // SGLang divides its tensor-parallel ranks into the data-parallel ranks of attention.
    let tp = count(apart, "tensor_parallel")?;
    let copies = count(apart, "data_parallel")?;
    let of_attention = match count(apart, "attention_data_parallel")? {
        Some(ranks) => Some(ranks),
        None => copies.filter(|_| switched(apart, "dp_attention")),
    };
    match of_attention {
        Some(ranks) => {
            let all = tp.unwrap_or(1);
            if all % ranks != 0 {
                let given = last(apart, "attention_data_parallel").or_else(|| last(apart, "data_parallel"));
                let divisor = format!("a divisor of {all}, the tensor-parallel size");
                return given.map_or(Ok(()), |given| Err(wrong(given, &divisor)));
            }
            command.set("parallelism.tp", all / ranks);
            command.set("parallelism.attention_dp", ranks);
        }
        None => {
            if let Some(tp) = tp {
                command.set("parallelism.tp", tp);
            }
            if let Some(copies) = copies.filter(|n| *n > 1) {
                command.set("parallelism.replicas", copies);
            }
        }
    }
    exchange(apart, command);
    // Priorities of which smaller ones come first are the key `policy`, which is every engine's.
    let on = |path: &str| {
        command.settings.iter().rev().find(|s| s.path == path).is_some_and(|s| s.value == true.into())
    };
    if on("engine.enable_priority_scheduling") && on("engine.schedule_low_priority_values_first") {
        command.set("engine.policy", "priority");
    }
    // The pool has whole pages: SGLang 0.5.23, `max_total_num_tokens // page_size * page_size`.
    if let Some(tokens) = count(apart, "pool_tokens")? {
        let page = command.settings.iter().rev().find(|s| s.path == "engine.block_size");
        let page = page.and_then(|s| s.value.as_integer()).filter(|page| *page > 0).unwrap_or(1);
        command.set("engine.num_gpu_blocks", tokens / page);
    }
    Ok(())
}

/// Reads `--moe-a2a-backend` and `--deepep-mode`. SGLang sets as many expert-parallel ranks as tensor-parallel ranks with
/// DeepEP (`server_args.py`, `_handle_a2a_moe`).
fn exchange(apart: &[(String, Given)], command: &mut Command) {
    let Some(given) = last(apart, "all2all") else { return };
    match given.value.as_str() {
        "none" => {}
        "deepep" => {
            let mode = last(apart, "deepep_mode").map_or("deepep", |mode| mode.value.as_str());
            let backend = match mode {
                "normal" => "deepep_high_throughput",
                "low_latency" => "deepep_low_latency",
                _ => "deepep_auto",
            };
            command.set("engine.experts.all2all_backend", backend);
            if let Ok(Some(ranks)) = count(apart, "tensor_parallel") {
                command.set("parallelism.ep", ranks);
            }
        }
        _ => once(&mut command.unmodelled, given.flag.clone()),
    }
}
