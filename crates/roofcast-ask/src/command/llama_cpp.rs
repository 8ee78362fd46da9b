//! Flags of `llama-server` that are read together, because several keys depend on each.

use super::flags::{Given, wrong};
use super::{Command, count, last, once};
use roofcast_facts::error::Result;

/// Smallest value of `-ngl` that is read as all layers.
const ALL_LAYERS: i64 = 99;

pub(super) fn read(apart: &[(String, Given)], command: &mut Command) -> Result<()> {
    // `-np -1` and `-c 0` are the defaults.
    if last(apart, "slots").is_some_and(|given| given.value != "-1")
        && let Some(slots) = count(apart, "slots")?
    {
        command.set("engine.max_num_seqs", slots);
    }
    if last(apart, "context").is_some_and(|given| given.value != "0")
        && let Some(context) = count(apart, "context")?
    {
        command.set("engine.n_ctx", context);
    }
    if let Some(given) = last(apart, "unified") {
        command.set("engine.kv_unified", !given.flag.starts_with("--no-"));
    }
    if last(apart, "flash")
        .is_some_and(|given| ["off", "0", "false", "disabled"].contains(&given.value.as_str()))
    {
        command.set("engine.attention_backend", "naive");
    }
    if let Some(given) = last(apart, "gpu_layers") {
        let all = ["all", "auto", "-1"].contains(&given.value.as_str());
        if !all && count(apart, "gpu_layers")?.is_some_and(|layers| layers < ALL_LAYERS) {
            command.notes.push(format!(
                "{} {}: every layer is taken to be on the accelerator",
                given.flag, given.value
            ));
        }
    }
    caches(apart, command)?;
    if let Some(given) = last(apart, "tensor_split") {
        let shares = given.value.split([',', '/']).count() as i64;
        let by_row = last(apart, "split_mode").is_some_and(|mode| mode.value == "row");
        command.set(if by_row { "parallelism.tp" } else { "parallelism.pp" }, shares);
    }
    if last(apart, "split_mode").is_some() && last(apart, "tensor_split").is_none() {
        once(&mut command.unmodelled, "--split-mode without --tensor-split".to_owned());
    }
    Ok(())
}

/// Reads `-ctk` and `-ctv`; both must be equal, because a forecast has one format for keys and values.
fn caches(apart: &[(String, Given)], command: &mut Command) -> Result<()> {
    let format = |name: &str| {
        last(apart, name).map(|given| given.value.replace("f16", "fp16").replace("bfp16", "bf16"))
    };
    let (keys, values) = (format("cache_k"), format("cache_v"));
    match (keys, values, last(apart, "cache_v").or_else(|| last(apart, "cache_k"))) {
        (Some(k), Some(v), Some(given)) if k != v => Err(wrong(given, "one format for keys and values")),
        (Some(format), ..) | (None, Some(format), _) => {
            command.set("precision.kv", format);
            Ok(())
        }
        (None, None, _) => Ok(()),
    }
}
