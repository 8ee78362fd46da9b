//! Flags of `python -m sglang.launch_server` that are read together, because several keys depend on each.

use super::flags::{Given, wrong};
use super::vllm::{is_path, not_in_memory};
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

/// Drafts of a step: steps of the drafter, the tokens that each keeps of a branch, and the tokens that are verified, the
/// one before the drafts among them.
#[derive(Clone, Copy)]
struct Drafts {
    steps: i64,
    topk: i64,
    verified: i64,
}

/// Drafts for which no flag states a number, of most architectures (`_auto_choose_speculative_params` of
/// `arg_groups/speculative_hook.py`, 0.5.23).
const CHAIN: Drafts = Drafts { steps: 3, topk: 1, verified: 4 };
/// Drafts for which no flag states a number, of [`TREES`].
const TREE: Drafts = Drafts { steps: 5, topk: 4, verified: 8 };
/// Architectures with [`TREE`], by `model_type`: `LlamaForCausalLM` and `Grok1ForCausalLM`.
const TREES: [&str; 3] = ["llama", "grok-1", "git"];
/// Tokens that are verified of n-grams without a flag, and the most of them on a level (`_handle_ngram`,
/// `fields/spec.py`, 0.5.23).
const NGRAMS: Drafts = Drafts { steps: 1, topk: 10, verified: 12 };

impl Drafts {
    /// Number of drafts that a step verifies.
    fn count(self) -> i64 {
        self.verified - 1
    }

    fn told(self, flag: &str) -> String {
        let shape = match self.topk {
            1 => String::new(),
            topk => format!(", a tree of top-k {topk}"),
        };
        let count = self.count();
        format!(
            "{flag} is read as {count} drafts a step{shape}; steps with SGLang's drafts are not simulated: no forecast of \
             times has them"
        )
    }
}

/// The number of drafts that SGLang chooses for a model of `architecture`, and the note on it.
pub fn auto_drafts(architecture: &str) -> (i64, String) {
    let drafts = if TREES.contains(&architecture) { TREE } else { CHAIN };
    let by = format!("by the model ({} steps, {} tokens verified)", drafts.steps, drafts.verified);
    (drafts.count(), drafts.told(&format!("--speculative-algorithm without --speculative-num-steps, {by},")))
}

/// Reads the flags `--speculative-…`. A chain of n steps drafts n tokens, and verifies n + 1 (`--speculative-num-draft-tokens`,
/// which SGLang adjusts); n-grams and trees, of `--speculative-eagle-topk` above 1, state the tokens that are verified.
fn drafts(apart: &[(String, Given)], command: &mut Command) -> Result<()> {
    // Without an algorithm the other flags have no effect.
    let Some(given) = last(apart, "spec_method") else { return Ok(()) };
    let algorithm = given.value.to_ascii_uppercase();
    let drafter = last(apart, "spec_model").map(|given| given.value.as_str());
    let (method, model) = match (algorithm.as_str(), drafter) {
        ("STANDALONE", model) => (None, model),
        ("NGRAM", _) => (Some("ngram"), None),
        ("EAGLE" | "NEXTN", None) => (Some("mtp"), None),
        ("EAGLE" | "NEXTN", model) => (Some("eagle"), model),
        ("EAGLE3", model) => (Some("eagle3"), model),
        ("DFLASH", model) => (Some("dflash"), model),
        _ => return Err(wrong(given, "EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM or DFLASH")),
    };
    let verified = count(apart, "spec_tokens")?;
    let numbers = match algorithm.as_str() {
        "NGRAM" => Drafts { verified: verified.unwrap_or(NGRAMS.verified), ..NGRAMS },
        "DFLASH" => Drafts { verified: verified.unwrap_or(CHAIN.verified), ..CHAIN },
        _ => of_steps(apart, verified)?,
    };
    let stated = ["spec_steps", "spec_topk", "spec_tokens"].iter().any(|name| last(apart, name).is_some());
    command.auto_drafts = !stated && !["NGRAM", "DFLASH", "STANDALONE"].contains(&algorithm.as_str());
    command.set("engine.speculative.num_speculative_tokens", numbers.count().max(1));
    if let Some(method) = method {
        command.set("engine.speculative.method", method);
    }
    let config = model.filter(|model| method.is_none() || is_path(model));
    if let Some(model) = config {
        command.set("engine.speculative.draft_model", model);
    }
    if !command.auto_drafts {
        command.notes.push(numbers.told(&given.flag));
    }
    command.notes.extend(model.filter(|_| config.is_none()).map(not_in_memory));
    Ok(())
}

/// Drafts of a drafter that runs step by step.
fn of_steps(apart: &[(String, Given)], verified: Option<i64>) -> Result<Drafts> {
    let topk = count(apart, "spec_topk")?.unwrap_or(1);
    let steps = count(apart, "spec_steps")?;
    let chain = |steps: i64| Drafts { steps, topk: 1, verified: steps.saturating_add(1) };
    match (topk, steps, verified) {
        (1, Some(steps), _) => Ok(chain(steps)),
        (1, None, verified) => Ok(verified.map_or(CHAIN, |tokens| chain((tokens - 1).max(1)))),
        (topk, steps, Some(verified)) => Ok(Drafts { steps: steps.unwrap_or(CHAIN.steps), topk, verified }),
        (_, _, None) => match last(apart, "spec_topk") {
            Some(given) => {
                Err(wrong(given, "1, or --speculative-num-draft-tokens beside it: the tokens of the tree"))
            }
            None => Ok(CHAIN),
        },
    }
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
    use super::auto_drafts;
    use crate::command::read;

    /// Number of drafts, method and drafter that a command of SGLang sets, as TOML values.
    fn drafts(flags: &str) -> [Option<String>; 3] {
        let command = read(&format!("python -m sglang.launch_server --model-path m {flags}")).unwrap();
        ["num_speculative_tokens", "method", "draft_model"].map(|key| {
            let path = format!("engine.speculative.{key}");
            command.settings.iter().find(|s| s.path == path).map(|s| s.value.to_string())
        })
    }

    /// A chain of 5 steps drafts 5 tokens and verifies 6; n-grams of 4 verified tokens are 3 drafts.
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
        assert!(tree.contains("--speculative-eagle-topk") && tree.contains("tokens of the tree"), "{tree}");
        assert!(refused("LOOKAHEAD").contains("STANDALONE"));
    }

    /// SGLang's own numbers: 12 verified tokens of n-grams, 4 of a chain, 8 of Llama's tree, of which one is no draft.
    #[test]
    fn drafts_without_numbers_are_sglangs() {
        let count = |flags: &str| drafts(flags)[0].clone();
        assert_eq!(count("--speculative-algorithm NGRAM").as_deref(), Some("11"));
        let tree = "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 4 \
                    --speculative-num-draft-tokens 16";
        assert_eq!(count(tree).as_deref(), Some("15"));
        assert_eq!([auto_drafts("llama").0, auto_drafts("qwen3").0], [7, 3]);
        let auto = |flags: &str| {
            let text = format!("sglang serve --model-path m --speculative-algorithm {flags}");
            read(&text).unwrap().auto_drafts
        };
        assert!(auto("EAGLE3") && !auto("NGRAM") && !auto("STANDALONE"));
        assert!(!auto("EAGLE3 --speculative-num-steps 3"));
    }

    #[test]
    fn drafters_by_name_are_not_in_memory() {
        let text =
            "sglang serve --model-path m --speculative-algorithm EAGLE3 --speculative-draft-model-path a/b";
        let notes = read(text).unwrap().notes;
        assert!(notes[0].contains("the drafter a/b is not in memory"), "{notes:?}");
        let notes = read(&format!("{text} --speculative-num-steps 2")).unwrap().notes;
        assert!(
            notes[0].contains("no forecast of times") && !notes[0].contains("--acceptance-rate"),
            "{notes:?}"
        );
    }
}
