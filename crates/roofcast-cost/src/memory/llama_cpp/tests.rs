use super::*;
use crate::memory::Memory;
use roofcast_ask::deployment::DeploymentOptions;
use roofcast_ask::spec::{EngineSpec, PrecisionSpec, SpeculativeSpec};
use roofcast_facts::catalog::Catalog;
use roofcast_facts::model::config;
use serde_json::json;
use std::sync::Arc;

/// Start-up lines of the server, one row for each combination of flags.
const LINES: &str = include_str!("../../../../roofcast/tests/data/llama-server-b11549.csv");

/// One row of [`LINES`].
#[derive(Debug, serde::Deserialize)]
struct Line {
    model: String,
    held: u8,
    c: u64,
    np: i64,
    kvu: u8,
    b: u64,
    ub: u64,
    fa: u8,
    swa_full: u8,
    slots: u64,
    slot_context: u64,
    cells: u64,
    kv_mib: f64,
    window_cells: Option<u64>,
    window_kv_mib: Option<f64>,
    rs_mib: Option<f64>,
    compute_mib: f64,
}

/// The shapes of the models of [`LINES`]: four layers of 512 with 8 heads and 2 KV heads of 64; five layers with a window
/// of 512 tokens and a global one, of 640 with 4 heads and one KV head of 256; the first with Mamba-2 beside attention.
fn shape(name: &str) -> serde_json::Value {
    let llama = json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 1536,
        "vocab_size": 32000, "max_position_embeddings": 131_072, "tie_word_embeddings": false,
    });
    match name {
        "llama" => llama,
        "g3" => json!({
            "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "hidden_size": 640,
            "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
            "intermediate_size": 2048, "vocab_size": 32000, "max_position_embeddings": 32_768,
            "sliding_window": 512, "sliding_window_pattern": 6, "tie_word_embeddings": true,
        }),
        _ => json!({
            "model_type": "falcon_h1", "architectures": ["FalconH1ForCausalLM"], "hidden_size": 512,
            "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
            "intermediate_size": 1536, "vocab_size": 32000, "max_position_embeddings": 131_072,
            "mamba_d_ssm": 1024, "mamba_n_heads": 16, "mamba_d_head": 64, "mamba_d_state": 128,
            "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2, "tie_word_embeddings": false,
        }),
    }
}

fn deployment(name: &str, engine: EngineSpec, chip: &str) -> Deployment {
    let model = Arc::new(config::read(name, "test", &shape(name)).unwrap());
    let chip = Arc::new(Catalog::embedded().unwrap().accelerator(chip).unwrap().clone());
    let engine = EngineSpec { name: Some("llama.cpp".into()), ..engine };
    Deployment::resolve(model, chip, &DeploymentOptions { engine, ..DeploymentOptions::default() }).unwrap()
}

fn of_line(line: &Line) -> Deployment {
    let mut engine = EngineSpec {
        max_num_seqs: u64::try_from(line.np).ok(),
        max_num_batched_tokens: Some(line.b),
        attention_backend: (line.fa == 0).then_some(AttentionBackend::Naive),
        ..EngineSpec::default()
    };
    engine.llama_cpp.n_ctx = Some(line.c).filter(|c| *c > 0);
    engine.llama_cpp.kv_unified = (line.kvu == 1).then_some(true);
    engine.llama_cpp.n_ubatch = Some(line.ub);
    engine.llama_cpp.swa_full = Some(line.swa_full == 1);
    deployment(&line.model, engine, "h100-sxm")
}

fn mib(bytes: Bytes) -> f64 {
    bytes.as_f64() / f64::from(1 << 20)
}

/// Slots, cells and bytes are those of the server's start-up lines, on rows that were looked at and on rows that were
/// kept apart alike. The compute buffer is exact within 2 % and 0.6 MiB with flash attention, whose largest phase is the
/// feed-forward layer, and within 12 % if scores are written; with recurrent layers it is not compared.
#[test]
fn start_up_lines_of_the_server() {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(LINES.as_bytes());
    let mut counts = [0, 0];
    let mut wrong = Vec::new();
    for line in reader.deserialize::<Line>() {
        let line = line.unwrap();
        let d = of_line(&line);
        let slots = &d.engine.slots;
        let n_ctx = n_ctx(&d);
        let pool = pool(&d).unwrap();
        let windows = line.window_cells.map(|_| slots.window_cells(512, n_ctx));
        let each = if line.cells * slots.streams() == pool.cells { line.cells } else { 0 };
        let kv = mib(kv_bytes(&d, 0, slots, n_ctx));
        let logged = line.kv_mib + line.window_kv_mib.unwrap_or(0.0);
        let states = mib(states(&d, 0, slots));
        let compute = mib(buffer(&d, slots, n_ctx, STREAMS));
        let bound = if line.fa == 1 { 0.02 } else { 0.12 } * line.compute_mib + 0.6;
        let equal = slots.count == line.slots
            && pool.slot_context == line.slot_context
            && each == line.cells
            && windows == line.window_cells
            && (kv - logged).abs() < 0.01
            && (states - line.rs_mib.unwrap_or(0.0)).abs() < 0.01
            && (line.rs_mib.is_some() || (compute - line.compute_mib).abs() < bound);
        counts[usize::from(line.held)] += 1;
        if !equal {
            wrong
                .push(format!("{line:?}: {pool:?}, {windows:?}, KV {kv}, states {states}, buffer {compute}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {counts:?} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(counts[0] > 100 && counts[1] > 50, "{counts:?}");
}

fn catalog_model(name: &str, chip: &str, precision: &str, engine: EngineSpec) -> Deployment {
    let catalog = Catalog::embedded().unwrap();
    let entry = catalog.model(name).unwrap();
    let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
    let precision = PrecisionSpec { weights: Some(precision.into()), ..PrecisionSpec::default() };
    let engine = EngineSpec { name: Some("llama.cpp".into()), ..engine };
    let options = DeploymentOptions { engine, precision, ..DeploymentOptions::default() };
    Deployment::resolve(model, Arc::new(catalog.accelerator(chip).unwrap().clone()), &options).unwrap()
}

fn with_context(n_ctx: u64, slots: Option<u64>) -> EngineSpec {
    let mut engine = EngineSpec { max_num_seqs: slots, ..EngineSpec::default() };
    engine.llama_cpp.n_ctx = Some(n_ctx);
    engine
}

/// Llama-3.1-8B keeps 32 · 2 · 8 · 128 · 2 = 131,072 B a token: 32,768 cells are 4 GiB on every card that holds them.
/// `-c 5000 -np 4` gives 1250 tokens a slot, rounded up to 1280.
#[test]
fn the_cache_has_the_cells_of_the_context() {
    for chip in ["rtx-4090", "h100-sxm"] {
        let d = catalog_model("llama-3.1-8b", chip, "q4_k_m", with_context(32_768, None));
        let start = Memory::of(&d).start(0);
        assert_eq!((start.max_model_len, start.kv_tokens, start.kv_bytes), (32_768, 32_768, Bytes(4 << 30)));
        assert!(start.refusal.is_none() && start.max_concurrency == 1.0, "{start:?}");
    }
    let d = catalog_model("llama-3.1-8b", "rtx-4090", "q4_k_m", with_context(5000, Some(4)));
    let start = Memory::of(&d).start(0);
    assert_eq!((start.max_model_len, start.kv_tokens, start.max_concurrency), (1280, 5120, 4.0));
    let d = catalog_model("llama-3.1-8b", "rtx-4090", "q4_k_m", with_context(1 << 20, None));
    let refusal = Memory::of(&d).start(0).refusal.unwrap();
    assert_eq!(refusal.needed_bytes, Bytes(128 << 30));
    let message = refusal.told("llama.cpp", 131_072);
    assert!(
        message.contains("its KV cache needs 128.00 GiB") && message.contains("n_ctx up to"),
        "{message}"
    );
    let largest = catalog_model("llama-3.1-8b", "rtx-4090", "q4_k_m", with_context(refusal.longest, None));
    assert!(Memory::of(&largest).starts().is_ok());
    let beyond = catalog_model("llama-3.1-8b", "rtx-4090", "q4_k_m", with_context(refusal.longest + 1, None));
    assert!(Memory::of(&beyond).starts().is_err());
}

/// Without `-c`, slots that share a cache have the model's 131,072 tokens; slots with their own caches have as many
/// each. On a card with too little memory the cache leaves 1 GiB free.
#[test]
fn without_a_context_it_is_the_models() {
    let deployment_of = |chip: &str, slots: Option<u64>| {
        let engine = EngineSpec { max_num_seqs: slots, ..EngineSpec::default() };
        catalog_model("llama-3.1-8b", chip, "q4_k_m", engine)
    };
    assert_eq!(
        pool(&deployment_of("h100-sxm", None)).unwrap(),
        Pool { cells: 131_072, slot_context: 131_072, unified: true }
    );
    assert_eq!(
        pool(&deployment_of("h100-sxm", Some(4))).unwrap(),
        Pool { cells: 524_288, slot_context: 131_072, unified: false }
    );
    let d = deployment_of("rtx-4060", None);
    let slots = &d.engine.slots;
    let cells = pool(&d).unwrap().cells;
    let left = |cells: u64| {
        let whole = taken(&d, 0, slots, cells) + kv_bytes(&d, 0, slots, cells);
        budget(&d, Bytes::ZERO).saturating_sub(whole)
    };
    assert!(cells < 131_072 && left(cells) >= MARGIN && left(cells + CELLS) < MARGIN, "{cells}");
}

/// A 9B in q4_k_m (about 5.4 GiB) runs on a card of 8 GB with 8192 tokens.
#[test]
fn a_9b_runs_on_8_gb() {
    for model in ["google/gemma-2-9b-it", "01-ai/Yi-1.5-9B-Chat"] {
        let d = catalog_model(model, "rtx-4060", "q4_k_m", with_context(8192, Some(1)));
        assert!(Memory::of(&d).starts().is_ok(), "{model}: {:?}", Memory::of(&d).start(0));
    }
}

/// Cells of a window of 1024: four slots that share the cache keep 4 · 1024 + 512 = 4608, slots of their own
/// 1024 + 512 = 1536 each, and with `-ub 2048` 3072.
#[test]
fn cells_of_windows_depend_on_slots_and_micro_batch() {
    let slots =
        |count, unified, n_ubatch, swa_full| Slots { count, unified, n_ubatch, swa_full, ..Slots::default() };
    let cells = |slots: Slots| (slots.window_cells(1024, 65_536), slots.streams());
    assert_eq!(cells(slots(4, true, 512, false)), (4608, 1));
    assert_eq!(cells(slots(4, false, 512, false)), (1536, 4));
    assert_eq!(cells(slots(1, false, 2048, false)), (3072, 1));
    assert_eq!(cells(slots(4, true, 512, true)), (65_536, 1));
}

/// Llama-3.1-8B has 32 layers, whose cache of 8192 tokens is 8192 · 32 · 2 · 8 · 128 · 2 B = 1024 MiB, 32 MiB a layer. Of
/// 33 layers with lm_head, `-ngl 20` leaves the first 13 on the host, `-ngl 32` the first, and `-ngl 0` all and lm_head.
#[test]
fn layers_on_the_host_have_their_cache_there() {
    let deployment_of = |change: fn(&mut EngineSpec)| {
        let mut engine = with_context(8192, Some(1));
        change(&mut engine);
        let d = catalog_model("llama-3.1-8b", "rtx-3060", "q4_k_m", engine);
        let rank = rank(&d, 0);
        (mib(rank.kv_bytes), mib(rank.host_bytes.unwrap_or_default()), rank.weight_bytes, d)
    };
    let (kv, host, whole, _) = deployment_of(|_| ());
    assert_eq!((kv, host), (1024.0, 0.0));
    for (layers, cached) in [(20, 19.0), (32, 31.0), (0, 0.0)] {
        let change: fn(&mut EngineSpec) = match layers {
            20 => |engine| engine.llama_cpp.n_gpu_layers = Some(20),
            32 => |engine| engine.llama_cpp.n_gpu_layers = Some(32),
            _ => |engine| engine.llama_cpp.n_gpu_layers = Some(0),
        };
        let (kv, host, weights, d) = deployment_of(change);
        let moved = mib(d.stages[0].host_bytes);
        assert_eq!(kv, cached * 32.0, "-ngl {layers}");
        assert!((host - moved - (1024.0 - kv)).abs() < 1e-6, "-ngl {layers}: {host} {moved}");
        assert!((mib(weights) + moved - mib(whole)).abs() < 1e-3, "-ngl {layers}: {weights:?}");
    }
    let (kv, host, weights, _) = deployment_of(|engine| engine.llama_cpp.no_kv_offload = Some(true));
    assert_eq!((kv, host, weights), (0.0, 1024.0, whole));
}

/// Experts of gpt-oss-120b are 36 layers of 128 · 3 · 2880 · 2880 weights in 4.25 bits, 1.69 GB a layer with their biases
/// in 32 bits, (2 · 2880 + 2880) · 128 · 4 B = 4.4 MB. The largest tensor of a layer is a third of its weights.
#[test]
fn experts_on_the_host_leave_attention_and_cache() {
    let weights = 128.0 * 3.0 * 2880.0 * 2880.0 * 4.25 / 8.0;
    let layer = weights + 128.0 * 3.0 * 2880.0 * 4.0;
    for (layers, named, share) in [
        (Some(10), None, 10.0),
        (Some(999), None, 36.0),
        (None, Some("blk.[0-4].ffn_(up|down)_exps=CPU"), 10.0 / 3.0),
    ] {
        let mut engine = with_context(8192, Some(1));
        engine.llama_cpp.n_cpu_moe = layers;
        engine.llama_cpp.override_tensor = named.map(str::to_owned);
        let d = catalog_model("openai/gpt-oss-120b", "rtx-4090", "mxfp4", engine);
        let stage = &d.stages[0];
        let host_bytes = stage.host_bytes.as_f64();
        let wanted = share * layer;
        assert!((host_bytes / wanted - 1.0).abs() < 0.002, "{layers:?} {named:?}: {host_bytes} {wanted}");
        let largest = stage.largest_on_host.as_f64();
        assert!((largest / (weights / 3.0) - 1.0).abs() < 1e-6, "{largest}");
        assert!(stage.blocks.iter().all(|(block, _)| !block.cache_on_host));
    }
}

/// Qwen3.5-27B in 8 bits with three drafts of `draft-mtp`, one slot and 8192 cells: one more attention layer of width 5120
/// (queries with gates, keys and values of 4 heads of 256, output), its MLP of 3 × 17,408, and `eh_proj`; a cache of one
/// layer (32 MiB), a compute buffer of 130 MiB (the log says 162.02 MiB for both), and three more copies of the states of
/// 149.625 MiB (pull request 22673).
#[test]
fn layers_that_draft_have_a_context_of_their_own() {
    let rank = |drafts: Option<u64>| {
        let speculative = drafts.map(|count| SpeculativeSpec {
            num_speculative_tokens: count,
            method: Some(DraftMethod::Mtp),
            ..SpeculativeSpec::default()
        });
        let engine = EngineSpec { speculative, ..with_context(8192, Some(1)) };
        rank(&catalog_model("Qwen/Qwen3.5-27B", "h100-sxm", "q8_0", engine), 0)
    };
    let [plain, drafting] = [rank(None), rank(Some(3))];
    let more = |part: fn(&Rank) -> Bytes| part(&drafting).0 - part(&plain).0;
    let attention = 5120 * (2 * 6144 + 2 * 1024) + 6144 * 5120;
    let matrices = attention + 3 * 5120 * 17_408 + 2 * 5120 * 5120;
    let norms = more(|rank| rank.weight_bytes) - matrices * 17 / 16;
    assert!((1..100_000).contains(&norms), "{norms}");
    assert_eq!(more(|rank| rank.kv_bytes), 32 << 20);
    assert_eq!(more(|rank| rank.activation_bytes), 130 << 20);
    assert_eq!(plain.state_bytes.0 * 8, 1197 << 20);
    assert_eq!(drafting.state_bytes.0, 4 * plain.state_bytes.0);
}
