//! Flags of `python -m sglang.launch_server` that are read together, because several keys depend on each.

use super::flags::{Given, wrong};
use super::vllm::is_path;
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
    drafts(apart, command)?;
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

/// Drafts of a step for which no flag states a number: SGLang's choice for most architectures, in one chain
/// (`_auto_choose_speculative_params` of `arg_groups/speculative_hook.py`, 0.5.23).
const STEPS: i64 = 3;

/// Reads the flags `--speculative-…`. A chain of n steps drafts n tokens, and verifies n + 1 (`--speculative-num-draft-tokens`,
/// which SGLang adjusts); n-grams state the tokens that are verified. A tree of drafts, `--speculative-eagle-topk` above 1,
/// is no number of drafts.
fn drafts(apart: &[(String, Given)], command: &mut Command) -> Result<()> {
    // Without an algorithm the other flags have no effect.
    let Some(given) = last(apart, "spec_method") else { return Ok(()) };
    let algorithm = given.value.to_ascii_uppercase();
    let drafter = last(apart, "spec_model").map(|given| given.value.as_str());
    if let Some(topk) = last(apart, "spec_topk").filter(|given| given.value.trim() != "1") {
        return Err(wrong(topk, "1: trees of drafts are not modelled"));
    }
    let (method, model) = match (algorithm.as_str(), drafter) {
        ("STANDALONE", model) => (None, model),
        ("NGRAM", _) => (Some("ngram"), None),
        ("EAGLE" | "NEXTN", None) => (Some("mtp"), None),
        ("EAGLE" | "NEXTN", model) => (Some("eagle"), model),
        ("EAGLE3", model) => (Some("eagle3"), model),
        ("DFLASH", model) => (Some("dflash"), model),
        _ => return Err(wrong(given, "EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM or DFLASH")),
    };
    let by_steps = !["NGRAM", "DFLASH"].contains(&algorithm.as_str());
    let chain = count(apart, "spec_steps")?.filter(|_| by_steps);
    let verified = count(apart, "spec_tokens")?.map(|tokens| tokens.saturating_sub(1).max(1));
    let tokens = chain.or(verified).unwrap_or(STEPS);
    command.set("engine.speculative.num_speculative_tokens", tokens);
    if let Some(method) = method {
        command.set("engine.speculative.method", method);
    }
    let config = model.filter(|model| method.is_none() || is_path(model));
    if let Some(model) = config {
        command.set("engine.speculative.draft_model", model);
    }
    let cost = if config.is_none() && method != Some("ngram") { " and --draft-cost" } else { "" };
    command.notes.push(format!(
        "{} is read as {tokens} drafts a step; a forecast of times with drafts needs --acceptance-rate or \
         --acceptance{cost}",
        given.flag
    ));
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

#[cfg(test)]
mod tests {
    use crate::command::read;

    /// Number of drafts, method and drafter that a command of SGLang sets, as TOML values.
    fn drafts(flags: &str) -> [Option<String>; 3] {
        let command = read(&format!("python -m sglang.launch_server --model-path m {flags}")).unwrap();
        ["num_speculative_tokens", "method", "draft_model"].map(|key| {
            let path = format!("engine.speculative.{key}");
            command.settings.iter().find(|s| s.path == path).map(|s| s.value.to_string())
        })
    }

    /// A chain of 5 steps drafts 5 tokens and verifies 6; n-grams of 4 verified tokens are 3 drafts. A tree is refused.
    #[test]
    fn drafts_are_read_by_sglangs_names() {
        let text = |value: &str| Some(format!("\"{value}\""));
        let eagle = "--speculative-algorithm EAGLE3 --speculative-num-steps 5 --speculative-eagle-topk 1 \
                     --speculative-num-draft-tokens 6 --speculative-draft-model-path ./drafter";
        assert_eq!(drafts(eagle), [Some("5".to_owned()), text("eagle3"), text("./drafter")]);
        assert_eq!(drafts("--speculative-algorithm NEXTN"), [Some("3".to_owned()), text("mtp"), None]);
        let standalone =
            "--speculative-algorithm STANDALONE --speculative-draft-model-path a/b --speculative-num-steps 2";
        assert_eq!(drafts(standalone), [Some("2".to_owned()), None, text("a/b")]);
        let ngram = "--speculative-algorithm NGRAM --speculative-num-draft-tokens 4";
        assert_eq!(drafts(ngram), [Some("3".to_owned()), text("ngram"), None]);
        assert_eq!(drafts("--speculative-num-steps 2"), [None, None, None]);
        let refused = |flags: &str| {
            let text =
                format!("python -m sglang.launch_server --model-path m --speculative-algorithm {flags}");
            read(&text).unwrap_err().to_string()
        };
        let tree = refused("EAGLE --speculative-eagle-topk 4");
        assert!(tree.contains("--speculative-eagle-topk") && tree.contains("trees of drafts"), "{tree}");
        assert!(refused("LOOKAHEAD").contains("STANDALONE"));
    }
}
