//! Flags of `llama-server` that are read together, because several keys depend on each.

use super::flags::{self, Given, wrong};
use super::{Command, count, desktop, last};
use roofcast_facts::error::Result;

/// Smallest value of `-ngl` that is read as all layers.
const ALL_LAYERS: i64 = 99;
/// Most drafts of a draft model in a step (`common_params_speculative_draft` of b11549, `n_max`; 16 in builds of 2025).
const DRAFTS: i64 = 3;
/// Most drafts of an n-gram that occurred before (`size_m` of `common_params_speculative_ngram_map`), and of `ngram-mod`.
const NGRAM_DRAFTS: i64 = 48;
const NGRAM_MOD_DRAFTS: i64 = 64;
/// Number of layers that no model exceeds.
const ALL_EXPERTS: i64 = 999;

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
        if let Some(values) = last(apart, "cache_v").filter(|given| desktop::is_quantized(&given.value)) {
            let accepted = "f32, f16 or bf16 with -fa off: llama.cpp ends with \"V cache quantization requires flash_attn\"";
            return Err(wrong(values, accepted));
        }
        command.set("engine.attention_backend", "naive");
    }
    places(apart, command)?;
    caches(apart, command)?;
    drafts(apart, command)?;
    split(apart, command)
}

/// Reads `-sm` and `-ts`. Layers are split unless `-sm` says otherwise (llama.cpp, docs/multi-gpu.md): `tensor` splits
/// matrices. The deprecated `row` keeps each layer's attention and KV cache on one card, as `layer` does, and divides its
/// dense matrices, too (b11434, `make_gpu_buft_list` and `dev_layer` of src/llama-model.cpp). Without `-ts`, all
/// accelerators of the question share the model.
fn split(apart: &[(String, Given)], command: &mut Command) -> Result<()> {
    let mode = last(apart, "split_mode");
    let shares = last(apart, "tensor_split").map(counted_shares).transpose()?;
    let mode_name = mode.map(|given| given.value.as_str());
    if mode_name == Some("row") {
        let note = "-sm row is forecast as -sm layer, which has its memory: that all cards multiply at once is not counted";
        command.notes.push(note.to_owned());
    }
    match (mode_name, shares) {
        (None | Some("layer" | "row"), Some(shares)) => command.set("parallelism.pp", shares),
        (None | Some("layer" | "row"), None) => {}
        (Some("none"), _) => {
            command.set("parallelism.tp", 1);
            command.set("parallelism.pp", 1);
        }
        (Some("tensor"), Some(shares)) => command.set("parallelism.tp", shares),
        (Some("tensor"), None) => command.set("parallelism.pp", 1),
        (Some(_), _) => {
            return Err(wrong(mode.unwrap_or(&apart[0].1), "none, layer, row or tensor"));
        }
    }
    Ok(())
}

/// Number of cards with a share of the model.
fn counted_shares(given: &Given) -> Result<i64> {
    let mut count = 0;
    for share in given.value.split([',', '/']) {
        match share.trim().parse::<f64>() {
            Ok(share) if share.is_finite() && share >= 0.0 => count += i64::from(share > 0.0),
            _ => return Err(wrong(given, "numbers from 0, one for each card, as 3,1")),
        }
    }
    if count == 0 { Err(wrong(given, "a share above 0")) } else { Ok(count) }
}

/// Reads the drafter, of `--spec-type` or a draft model alone, and its drafts. Of several types the first counts.
fn drafts(apart: &[(String, Given)], command: &mut Command) -> Result<()> {
    let model = last(apart, "spec_model");
    let kinds = last(apart, "spec_type");
    let first = kinds.map_or("", |given| given.value.split(',').next().unwrap_or_default().trim());
    let (method, most) = match (first, model) {
        ("none", _) | ("", None) => return Ok(()),
        ("" | "draft-simple", Some(_)) => (None, DRAFTS),
        ("draft-mtp", _) => (Some("mtp"), DRAFTS),
        ("draft-eagle3", Some(_)) => (Some("eagle3"), DRAFTS),
        ("draft-dflash", Some(_)) => (Some("dflash"), DRAFTS),
        ("ngram-simple" | "ngram-map-k" | "ngram-map-k4v", _) => (Some("ngram"), NGRAM_DRAFTS),
        ("ngram-mod", _) => (Some("ngram"), NGRAM_MOD_DRAFTS),
        ("draft-simple" | "draft-eagle3" | "draft-dflash", None) => {
            return Err(wrong(kinds.unwrap_or(&apart[0].1), "-md beside it: the file of the draft model"));
        }
        _ => {
            let accepted = "none, draft-simple, draft-mtp, draft-eagle3, draft-dflash, ngram-simple, ngram-map-k, \
                            ngram-map-k4v or ngram-mod; the drafts of draft-dspark and ngram-cache are not modelled";
            return Err(wrong(kinds.unwrap_or(&apart[0].1), accepted));
        }
    };
    let of_model = !matches!(method, Some("ngram"));
    let drafts = count(apart, "spec_tokens")?.filter(|_| of_model);
    command.set("engine.speculative.num_speculative_tokens", drafts.unwrap_or(most));
    if let Some(method) = method {
        command.set("engine.speculative.method", method);
    }
    if let Some(model) = model.filter(|_| of_model && method != Some("mtp")) {
        command.set("engine.speculative.draft_model", model.value.as_str());
    }
    if let Some(given) = kinds.filter(|given| given.value.contains(',')) {
        command.notes.push(format!("{} {} is read as its first type", given.flag, given.value));
    }
    Ok(())
}

/// Reads where layers, experts and single tensors lie.
fn places(apart: &[(String, Given)], command: &mut Command) -> Result<()> {
    if let Some(given) = last(apart, "gpu_layers")
        && !["all", "auto", "-1"].contains(&given.value.as_str())
    {
        let layers = flags::whole(given, 0)?;
        if layers < ALL_LAYERS {
            command.set("engine.n_gpu_layers", layers);
        }
    }
    if last(apart, "cpu_moe").is_some() {
        command.set("engine.n_cpu_moe", ALL_EXPERTS);
    }
    let named: Vec<&str> =
        apart.iter().filter(|(name, _)| name == "override_tensor").map(|(_, g)| g.value.as_str()).collect();
    if !named.is_empty() {
        command.set("engine.override_tensor", named.join(","));
    }
    Ok(())
}

/// Reads `-ctk` and `-ctv`; both must be equal, because a forecast has one format for keys and values. Without one of them
/// its part is in f16, which both then count as.
fn caches(apart: &[(String, Given)], command: &mut Command) -> Result<()> {
    let format = |name: &str| {
        last(apart, name).map(|given| given.value.replace("f16", "fp16").replace("bfp16", "bf16"))
    };
    let keys = format("cache_k");
    let values = format("cache_v");
    match (keys, values, last(apart, "cache_v").or_else(|| last(apart, "cache_k"))) {
        (Some(k), Some(v), Some(given)) if k != v => Err(wrong(given, "one format for keys and values")),
        (Some(format), Some(_), _) => {
            command.set("precision.kv", format);
            Ok(())
        }
        (Some(_), None, Some(given)) | (None, Some(_), Some(given))
            if desktop::is_quantized(&given.value) =>
        {
            let other = if last(apart, "cache_k").is_some() { "values" } else { "keys" };
            command.notes.push(format!(
                "{} {} leaves the {other} in f16: a forecast has one format, and counts f16 for both, too much for one half",
                given.flag, given.value
            ));
            command.set("precision.kv", "fp16");
            Ok(())
        }
        (Some(format), None, _) | (None, Some(format), _) => {
            command.set("precision.kv", format);
            Ok(())
        }
        (None, None, _) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::command::read;
    use crate::command::tests::spec;

    #[test]
    fn a_llama_server_command_is_a_deployment() {
        let text = "llama-server -hf unsloth/Qwen3-8B-GGUF:Q4_K_M -c 32768 -np 8 -ngl 99 -fa on -ctk q8_0 -ctv q8_0 --jinja \
                    --port 8080";
        let expected = "model.name = \"unsloth/Qwen3-8B-GGUF:Q4_K_M\"\nprecision.kv = \"q8_0\"\n\
                        engine.name = \"llama.cpp\"\nengine.max_num_seqs = 8\nengine.n_ctx = 32768";
        assert_eq!(spec(text), expected.parse().unwrap());
        let image = format!(
            "docker run --gpus all ghcr.io/ggml-org/llama.cpp:server-cuda {}",
            &text["llama-server ".len()..]
        );
        assert_eq!(spec(&image), expected.parse().unwrap());
        let unified = spec("llama-server -m m.gguf -c 32768 -np 8 -kvu -ts 3,1");
        assert_eq!(unified["engine"]["n_ctx"], 32_768.into());
        assert_eq!(unified["engine"]["kv_unified"], true.into());
        let flags = spec("llama-server -m m.gguf -c 0 -np -1 --no-kv-unified -ub 1024 --swa-full -fa off");
        let expected = "name = \"llama.cpp\"\nkv_unified = false\nn_ubatch = 1024\nswa_full = true\n\
                        attention_backend = \"naive\"";
        assert_eq!(flags["engine"], toml::Value::Table(expected.parse().unwrap()));
        assert_eq!(unified["parallelism"]["pp"], 2.into());
        let part = spec("llama-server -m m.gguf -ngl 20 -cmoe -ot a=CPU -ot b=CUDA0 -nkvo");
        let expected = "name = \"llama.cpp\"\nn_gpu_layers = 20\nn_cpu_moe = 999\noverride_tensor = \"a=CPU,b=CUDA0\"\n\
                        no_kv_offload = true";
        assert_eq!(part["engine"], toml::Value::Table(expected.parse().unwrap()));
        let refused = |flags: &str| read(&format!("llama-server -m m.gguf {flags}")).unwrap_err().to_string();
        assert!(refused("-ctk q8_0 -ctv q4_0").contains("one format"));
    }

    /// Three drafts of a model by default, 48 of an n-gram and 64 of `ngram-mod`, as b11549's parameters state.
    #[test]
    fn drafters_are_read_by_their_types() {
        let drafts = |flags: &str| {
            let all = spec(&format!("llama-server -m m.gguf {flags}"));
            all["engine"].get("speculative").cloned()
        };
        let table = |text: &str| Some(toml::Value::Table(text.parse().unwrap()));
        assert_eq!(drafts("-md d.gguf"), table("num_speculative_tokens = 3\ndraft_model = \"d.gguf\""));
        assert_eq!(
            drafts("-hfd a/b --draft-max 16 --draft-min 1"),
            table("num_speculative_tokens = 16\ndraft_model = \"a/b\"")
        );
        assert_eq!(
            drafts("--spec-type draft-mtp --spec-draft-n-max 2"),
            table("num_speculative_tokens = 2\nmethod = \"mtp\"")
        );
        assert_eq!(drafts("--spec-type ngram-mod"), table("num_speculative_tokens = 64\nmethod = \"ngram\""));
        assert_eq!(
            drafts("--spec-type ngram-simple --draft-max 4"),
            table("num_speculative_tokens = 48\nmethod = \"ngram\"")
        );
        assert_eq!([drafts("--spec-type none -md d.gguf"), drafts("--draft-max 4")], [None, None]);
        let refused = |flags: &str| read(&format!("llama-server -m m.gguf {flags}")).unwrap_err().to_string();
        assert!(refused("--spec-type draft-simple").contains("-md"));
        assert!(refused("--spec-type ngram-cache").contains("ngram-cache are not modelled"));
        assert!(
            read("llama-server -m m -md d --spec-type draft-mtp,ngram-mod").unwrap().notes[0]
                .contains("first")
        );
    }

    /// Layers are split unless `-sm` names matrices, and a share of 0 leaves a card out (llama.cpp, docs/multi-gpu.md).
    #[test]
    fn cards_hold_layers_unless_matrices_are_split() {
        for (flags, key, degree) in [
            ("-sm layer -ts 1,1,1", "pp", 3),
            ("-sm tensor -ts 1,1", "tp", 2),
            ("-sm row -ts 3,0,1", "pp", 2),
            ("-sm none", "pp", 1),
            ("-sm tensor", "pp", 1),
        ] {
            let split = spec(&format!("llama-server -m m.gguf {flags}"));
            assert_eq!(split["parallelism"][key], degree.into(), "{flags}");
        }
        assert!(read("llama-server -m m.gguf -sm row").unwrap().notes[0].contains("-sm layer"));
        assert!(read("llama-server -m m.gguf -sm column").unwrap_err().to_string().contains("row or tensor"));
        for shares in ["a,b", "nan,1", "-1,1", "1e400,1", ",,,", "0,0"] {
            let refused = read(&format!("llama-server -m m.gguf -ts {shares}")).unwrap_err().to_string();
            assert!(
                refused.contains("-ts") && refused.contains("share") | refused.contains("3,1"),
                "{refused}"
            );
        }
    }
}
