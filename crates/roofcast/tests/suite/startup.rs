//! Memory against the engines' own start-up logs, row by row and term by term.

use crate::support::{catalog, shared};
use roofcast::deployment::DeploymentOptions;
use roofcast::memory::{self, Memory, Start};
use roofcast::parallelism::RequestedParallelism;
use roofcast::scheduler::config::EngineConfig;
use roofcast::spec::{
    DraftMethod, EngineSpec, PrecisionSpec, SglangSpec, SpeculativeSpec, StateDtype, VllmSpec,
};
use roofcast::units::Bytes;
use roofcast::{Deployment, Error};
use std::collections::BTreeMap;
use std::sync::Arc;

const GIB: f64 = 1_073_741_824.0;

/// Memory that a rank holds outside PyTorch: 0.13 GiB.
const NOT_TORCH: Bytes = Bytes(139_586_437);
/// Row on the smaller of two cards of one name; row 85 is the case on the larger card.
const WRONG_CARD: &str = "43";

/// A row of the file, by column.
type Row = BTreeMap<String, String>;

fn rows(text: &str) -> Vec<Row> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().map(|row| row.unwrap()).collect()
}

/// A cell as a number; `None` if it is empty or the engine's own choice (`default (0.92)`, `auto`).
fn number<T: std::str::FromStr>(row: &Row, column: &str) -> Option<T> {
    row[column].parse().ok()
}

/// The version in `text`; `None` for forms such as `b9600?` or `2026`.
fn version(text: &str) -> Option<String> {
    text.contains('.').then(|| text.to_owned())
}

fn engine(row: &Row) -> EngineSpec {
    let flags = &row["other_flags"];
    let after = |flag: &str| flags.split_once(flag).and_then(|(_, rest)| rest.split_whitespace().next());
    let drafts = after("MTP n=").map(|n| SpeculativeSpec {
        num_speculative_tokens: n.parse().unwrap(),
        ..SpeculativeSpec::default()
    });
    EngineSpec {
        name: Some(row["engine"].clone()),
        version: version(&row["engine_version"]),
        gpu_memory_utilization: number(row, "gpu_memory_utilization"),
        max_model_len: number(row, "max_model_len"),
        max_num_seqs: number(row, "max_num_seqs"),
        max_num_batched_tokens: number(row, "max_num_batched_tokens"),
        sglang: SglangSpec {
            chunked_prefill_size: after("--chunked-prefill-size").map(|n| n.parse().unwrap()),
            ..SglangSpec::default()
        },
        block_size: after("--block-size").map(|n| n.parse().unwrap()),
        enable_prefix_caching: flags.contains("--enable-prefix-caching").then_some(true),
        enforce_eager: flags.contains("--enforce-eager").then_some(true),
        speculative: drafts,
        ..EngineSpec::default()
    }
}

/// The formats of a row, as values of `--weights` and `--kv`; without weights if the model's id states them (`said`).
fn precision(row: &Row, said: bool) -> PrecisionSpec {
    let weights = match row["weights"].as_str() {
        _ if said => None,
        "w4a16" => Some("int4"),
        "awq-int4" => Some("awq-int4"),
        other => Some(other),
    };
    PrecisionSpec {
        weights: weights.map(str::to_owned),
        kv: Some(row["kv_cache"].clone()).filter(|kv| kv != "bf16"),
        ..PrecisionSpec::default()
    }
}

fn deployment(row: &Row) -> Result<Deployment, Error> {
    let model = Arc::new(catalog().named(&row["model"])?.model()?);
    let chip = Arc::new(catalog().accelerator(&row["hardware"])?.clone());
    let flag = |name: &str| row["other_flags"].split_once(name)?.1.split_whitespace().next()?.parse().ok();
    let degree = |column| number::<u64>(row, column).or_else(|| flag(&format!("--{column} ")));
    let parallelism = RequestedParallelism {
        tp: degree("tp"),
        pp: degree("pp"),
        ep: degree("ep").filter(|ep| *ep > 1),
        attention_dp: degree("dp").filter(|dp| *dp > 1),
        ..RequestedParallelism::default()
    };
    let precision = precision(row, model.quantization.is_some());
    Deployment::resolve(
        model,
        chip,
        &DeploymentOptions { precision, parallelism, engine: engine(row), ..DeploymentOptions::default() },
    )
}

/// Comparisons for one row, as forecast over measured − 1.
#[derive(Debug)]
struct Compared {
    id: String,
    kv: Option<f64>,
    weights: Option<f64>,
    refused: bool,
    /// True if the engine started; `None` if the log does not state the longest request.
    started: Option<bool>,
}

fn gib(bytes: Bytes) -> f64 {
    bytes.as_f64() / GIB
}

fn compare(row: &Row) -> Compared {
    let d = deployment(row).unwrap_or_else(|e| panic!("{}: {e}", row["id"]));
    let start = Memory::of(&d).start(4096);
    let over = |forecast: f64, column| {
        let measured = number::<f64>(row, column).filter(|measured| *measured > 0.0);
        measured.map(|measured| forecast / measured - 1.0)
    };
    let kv = over(start.kv_tokens as f64, "measured_kv_tokens");
    let kv = kv.or_else(|| over(gib(start.kv_bytes), "measured_kv_gib"));
    // For llama.cpp the size of the file is known.
    let weights = if row["engine"] == "llama.cpp" { d.weight_bytes } else { start.weight_bytes };
    // In such rows the logged weights include the memory outside PyTorch ("W is weights + non-torch").
    let weights = weights + if row["note"].contains("non-torch") { NOT_TORCH } else { Bytes::ZERO };
    // Row 85 is case 43, which failed, on the right card.
    let failed = row["note"].contains("fail") || row["note"].contains("case 43");
    let compared = Compared {
        id: row["id"].clone(),
        kv,
        weights: over(gib(weights), "measured_weights_gib"),
        refused: start.refusal.is_some(),
        started: (failed || !row["max_model_len"].is_empty() && kv.is_some()).then_some(!failed),
    };
    print(row, &d, &start, &compared);
    compared
}

/// Prints the terms of a row, for reading with `--nocapture`.
fn print(row: &Row, d: &Deployment, start: &Start, compared: &Compared) {
    let rank = Memory::of(d).ranks()[0];
    let percent = |error: Option<f64>| error.map_or("     -".to_owned(), |e| format!("{:+6.1}", e * 100.0));
    eprintln!(
        "{} {:9} {:7} {:44.44} {:12} | budget {:6.2} weights {:6.2} ({:>6}, {}%) activations {:5.2} runtime {:4.2} KV {:6.2} \
         ({:>6}) tokens {:>9} ({:>9}) {}% {}{}",
        row["id"],
        row["engine"],
        row["engine_version"],
        row["model"],
        row["hardware"],
        gib(rank.budget_bytes),
        gib(start.weight_bytes),
        row["measured_weights_gib"],
        percent(compared.weights),
        gib(rank.activation_bytes),
        gib(rank.runtime_bytes),
        gib(start.kv_bytes),
        row["measured_kv_gib"],
        start.kv_tokens,
        row["measured_kv_tokens"],
        percent(compared.kv),
        if start.refusal.is_some() { "refused" } else { "starts" },
        if compared.started == Some(false) { " (did not start)" } else { "" },
    );
}

/// Median and 90th percentile of the absolute errors, and the mean of the signed errors.
fn spread(errors: &[f64]) -> [f64; 3] {
    let mut sizes: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let at = |share: f64| sizes[((sizes.len() - 1) as f64 * share).round() as usize];
    [at(0.5), at(0.9), errors.iter().sum::<f64>() / errors.len() as f64]
}

#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn start_up_logs_of_real_engines() {
    let file = shared("validation/startup_logs.csv");
    let rows = rows(&std::fs::read_to_string(file).unwrap());
    assert_eq!(rows.len(), 34);
    let compared: Vec<Compared> = rows.iter().map(compare).collect();
    let kv: Vec<f64> = compared.iter().filter(|c| c.id != WRONG_CARD).filter_map(|c| c.kv).collect();
    let weights: Vec<f64> = compared.iter().filter_map(|c| c.weights).collect();
    let ([kv_half, kv_tenth, kv_bias], [half, tenth, _]) = (spread(&kv), spread(&weights));
    eprintln!(
        "KV of {} logs: median {kv_half:.3}, 90th percentile {kv_tenth:.3}, bias {kv_bias:+.3}",
        kv.len()
    );
    eprintln!("weights of {} logs: median {half:.3}, 90th percentile {tenth:.3}", weights.len());
    // The aim for KV is a median error of 2 %.
    assert!(kv_half < 0.028 && kv_tenth < 0.12 && kv_bias.abs() < 0.01);
    assert!(half < 0.01 && tenth < 0.06);
    for row in &compared {
        assert!(row.started.is_none_or(|started| started != row.refused), "row {}", row.id);
    }
}

/// Llama-3.1-8B on an H100 under vLLM 0.11: 0.9 of 79.18 GiB, less 16,060,522,496 B of weights, the sampler's 38 ·
/// 128,256 · 1024 B together with 8192 tokens of 4096 values in 2 B, and 0.13 GiB.
#[test]
fn llama_on_an_h100_by_hand() {
    let engine =
        EngineSpec { version: Some("0.11.0".into()), max_model_len: Some(16_000), ..EngineSpec::default() };
    let d = llama(engine);
    let rank = Memory::of(&d).ranks()[0];
    assert_eq!(rank.activation_bytes, Bytes(38 * 128_256 * 1024 + 8192 * 4096 * 2));
    let kv = 0.9 * 85_018_542_080.0 - 16_060_522_496.0 - rank.activation_bytes.as_f64() - NOT_TORCH.as_f64();
    assert!((rank.kv_bytes.as_f64() - kv).abs() < 2.0, "{rank:?}");
    // A block has 16 · 131,072 B, a request ⌈16,000/16⌉ blocks.
    let start = Memory::of(&d).start(4096);
    let blocks = rank.kv_bytes.0 / (16 * 131_072);
    assert_eq!((start.max_model_len, start.kv_tokens), (16_000, blocks * 16));
    assert!((start.max_concurrency - blocks as f64 / 1000.0).abs() < 1e-9);
}

/// With one sequence the sampler is small, and the widest layer decides, here 8192 tokens of 2 B a value. Llama-3.1-8B:
/// 2 · 4096 of the residual and normalized stream, and gate, up and their product of 14,336 each, halved by two ranks.
/// Mixtral: for each of two experts a token has gate and up, 2 · 14,336, and the activation's result, 14,336.
#[test]
fn the_widest_layer_is_held_while_it_is_computed() {
    for (name, tp, values) in [
        ("meta-llama/Llama-3.1-8B-Instruct", 1, 2 * 4096 + 3 * 14_336),
        ("meta-llama/Llama-3.1-8B-Instruct", 2, 2 * 4096 + 3 * 7168),
        ("mistralai/Mixtral-8x7B-v0.1", 2, 2 * 4096 + 2 * (2 * 7168 + 7168)),
    ] {
        let engine = EngineSpec {
            version: Some("0.11.0".into()),
            max_num_seqs: Some(1),
            max_num_batched_tokens: Some(8192),
            ..EngineSpec::default()
        };
        let parallelism = RequestedParallelism { tp: Some(tp), ..RequestedParallelism::default() };
        let options = DeploymentOptions { engine, parallelism, ..DeploymentOptions::default() };
        let chip = Arc::new(catalog().accelerator("h200-sxm").unwrap().clone());
        let deployment = Deployment::resolve(crate::support::model(name), chip, &options).unwrap();
        let held = Memory::of(&deployment).ranks()[0].activation_bytes;
        assert_eq!(held, Bytes(8192 * 2 * values), "{name}, tp {tp}");
    }
}

/// Two ranks over PCIe have two channels that send and receive through 4 MiB; over NVLink buffers are much larger.
#[test]
fn ranks_hold_buffers_by_their_link() {
    let runtime = |chip: &str, tp| {
        let parallelism = RequestedParallelism { tp: Some(tp), ..RequestedParallelism::default() };
        let chip = Arc::new(catalog().accelerator(chip).unwrap().clone());
        let model = crate::support::model("meta-llama/Llama-3.1-8B-Instruct");
        let d = Deployment::resolve(
            model,
            chip,
            &DeploymentOptions { parallelism, ..DeploymentOptions::default() },
        )
        .unwrap();
        Memory::of(&d).ranks()[0].runtime_bytes
    };
    assert_eq!(runtime("l4", 2), runtime("l4", 1) + Bytes(16 << 20));
    assert!(runtime("h100-sxm", 2) > runtime("h100-sxm", 1) + Bytes(400 << 20));
}

fn llama(engine: EngineSpec) -> Deployment {
    let chip = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
    let model = crate::support::model("meta-llama/Llama-3.1-8B-Instruct");
    Deployment::resolve(model, chip, &DeploymentOptions { engine, ..DeploymentOptions::default() }).unwrap()
}

/// A cache of 1 GiB holds 8192 tokens of 131,072 B with the null block, and no request of 8208: neither a higher utilization nor fewer
/// sequences help.
#[test]
fn a_refusal_says_what_would_do() {
    let asked = |max_model_len, kv_cache_memory_bytes, gpu_memory_utilization| EngineSpec {
        max_model_len: Some(max_model_len),
        kv_cache_memory_bytes,
        gpu_memory_utilization,
        ..EngineSpec::default()
    };
    let given = llama(asked(8208, Some(1 << 30), None));
    let refusal = Memory::of(&given).start(0).refusal.unwrap();
    assert_eq!(
        (refusal.needed_bytes, refusal.available_bytes),
        (Bytes(513 * 16 * 131_072), Bytes(511 * 16 * 131_072))
    );
    assert_eq!((refusal.longest, refusal.gpu_memory_utilization, refusal.max_num_seqs), (8176, None, None));
    assert!(Memory::of(&llama(asked(8176, Some(1 << 30), None))).starts().is_ok());
    // 131,072 tokens need 16 GiB. With 0.42 · 79.18 GiB some memory is left; the suggested value is just enough.
    let tight = Memory::of(&llama(asked(131_072, None, Some(0.42)))).start(0).refusal.unwrap();
    let (share, fewer) = (tight.gpu_memory_utilization.unwrap(), tight.max_num_seqs);
    assert!(Memory::of(&llama(asked(131_072, None, Some(share)))).starts().is_ok(), "{share}");
    assert!(Memory::of(&llama(asked(131_072, None, Some(share - 0.01)))).starts().is_err(), "{share}");
    assert!(Memory::of(&llama(asked(tight.longest, None, Some(0.42)))).starts().is_ok());
    assert!(Memory::of(&llama(asked(tight.longest + 1, None, Some(0.42)))).starts().is_err());
    assert!(fewer.is_none_or(|count| count < 1024), "{fewer:?}");
    let told = Memory::of(&llama(asked(131_072, None, Some(0.42)))).starts().unwrap_err().to_string();
    assert!(told.contains("131072 tokens needs 16.00 GiB") && told.contains("max_model_len up to"), "{told}");
}

/// Llama-3.1-8B on an H100 of 79.18 GiB, of which other processes hold 20. vLLM from 0.9.1 on asks for 0.9 of the
/// whole, 71.26 GiB, finds 59.18 and refuses; 0.74 of the whole is 58.59, with which its cache is as large as on an
/// empty card. The cache is smaller by 20 GiB in vLLM 0.9.0, and by 20 GiB times their fraction in SGLang and
/// TensorRT-LLM; that of llama.cpp has four slots of 16,128 tokens on either.
#[test]
fn other_processes_leave_less() {
    let of = |name: &str, version: Option<&str>, share: f64, used: Option<f64>| {
        let engine = EngineSpec {
            name: Some(name.into()),
            version: version.map(str::to_owned),
            max_model_len: Some(16_000),
            gpu_memory_utilization: Some(share),
            ..EngineSpec::default()
        };
        let chip = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
        let model = crate::support::model("meta-llama/Llama-3.1-8B-Instruct");
        Deployment::resolve(
            model,
            chip,
            &DeploymentOptions { engine, memory_used_gib: used, ..DeploymentOptions::default() },
        )
    };
    let kv = |name, version, share, used| {
        let d = of(name, version, share, used).unwrap();
        assert!(Memory::of(&d).starts().is_ok(), "{name} {version:?}");
        gib(Memory::of(&d).ranks()[0].kv_bytes)
    };
    let refused = of("vllm", Some("0.11.0"), 0.9, Some(20.0)).unwrap();
    let refusal = Memory::of(&refused).start(0).refusal.unwrap();
    assert_eq!(
        (refusal.gpu_memory_utilization, refusal.longest, refusal.max_num_seqs),
        (Some(0.74), 0, None)
    );
    assert!((gib(refusal.short_by_bytes) - (0.9 * 79.18 - 59.18)).abs() < 0.01, "{refusal:?}");
    let told = Memory::of(&refused).starts().unwrap_err().to_string();
    assert!(
        told.contains("59.18 GiB")
            && told.contains("71.26 GiB")
            && told.contains("gpu_memory_utilization up to 0.74"),
        "{told}"
    );
    assert_eq!(Memory::of(&refused).tokens(16_000), 0);
    for (name, version, share, less) in [
        ("vllm", Some("0.11.0"), 0.74, 0.0),
        ("vllm", Some("0.9.0"), 0.9, 20.0),
        ("sglang", None, 0.8, 16.0),
        ("tensorrt-llm", None, 0.9, 18.0),
        ("llama.cpp", None, 1.0, 0.0),
    ] {
        let found = kv(name, version, share, None) - kv(name, version, share, Some(20.0));
        assert!((found - less).abs() < 0.001, "{name} {version:?}: {found}");
    }
    for gib in [-1.0, 79.2, f64::NAN] {
        let told = of("vllm", None, 0.9, Some(gib)).unwrap_err().to_string();
        assert!(told.contains("memory_used_gib") && told.contains("79.18"), "{told}");
    }
}

/// gpt-oss-20b under vLLM: of 32,768 tokens 12 layers keep 2048 blocks of 16. The 12 layers with a window of 128 keep
/// ⌈(127 + 8192)/16⌉ + 1 = 521 up to version 0.25; from 0.26 on, which counts both steps in flight, ⌈(127 + 16,384)/16⌉
/// + 1 = 1033.
#[test]
fn windows_keep_the_tokens_in_flight() {
    let concurrency = |version: &str, asynchronous| {
        let engine = EngineSpec {
            version: Some(version.into()),
            max_model_len: Some(32_768),
            vllm: VllmSpec { async_scheduling: asynchronous, ..VllmSpec::default() },
            kv_cache_memory_bytes: Some(30_000 * 12 * 16 * 2048),
            ..EngineSpec::default()
        };
        let chip = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
        let model = crate::support::model("openai/gpt-oss-20b");
        let d =
            Deployment::resolve(model, chip, &DeploymentOptions { engine, ..DeploymentOptions::default() })
                .unwrap();
        Memory::of(&d).start(0).max_concurrency
    };
    for (version, asynchronous, blocks) in [
        ("0.25.1", None, 2048 + 521),
        ("0.26.0", None, 2048 + 1033),
        ("0.27.0", None, 2048 + 1033),
        ("0.27.0", Some(false), 2048 + 521),
    ] {
        let found = concurrency(version, asynchronous);
        assert!((found - 30_000.0 / f64::from(blocks)).abs() < 1e-9, "{version} {asynchronous:?}: {found}");
    }
}

/// gpt-oss-20b under llama.cpp: the file has 24 · 32 experts of 2880 · (5760 + 2880) values in 4.25 bits, 1,795,276,800
/// other values (2 · 201,088 · 2880 at the ends, 26,542,080 of attention in each layer) in 8.5 bits, and biases, sinks,
/// router and norms in 32 bits. Of a sequence of 4096 tokens 12 layers keep all, and 12 the window of 128 and a
/// micro-batch of 512, as 768 cells; a token has 2 · 8 · 64 values of 2 B in each layer.
#[test]
fn gpt_oss_in_llama_cpp_by_hand() {
    let of = |weights: Option<&str>| {
        let engine = EngineSpec { name: Some("llama.cpp".into()), ..EngineSpec::default() };
        let precision = PrecisionSpec { weights: weights.map(str::to_owned), ..PrecisionSpec::default() };
        let chip = Arc::new(catalog().accelerator("rtx-4090").unwrap().clone());
        let model = crate::support::model("openai/gpt-oss-20b");
        Deployment::resolve(
            model,
            chip,
            &DeploymentOptions { engine, precision, ..DeploymentOptions::default() },
        )
        .unwrap()
    };
    let d = of(None);
    let (experts, others) = (24 * 32 * 2880 * 8640_u64, 2 * 201_088 * 2880 + 24 * 26_542_080_u64);
    let singles = 24 * 32 * (5760 + 2880 + 2880) + 24 * (4096 + 2 * 512 + 2880 + 32 + 64) + 49 * 2880;
    let by_hand = experts as f64 * 4.25 / 8.0 + others as f64 * 8.5 / 8.0 + singles as f64 * 4.0;
    assert_eq!(d.weights, "mxfp4_moe");
    assert_eq!(d.weight_bytes, Bytes(by_hand as u64));
    assert!((gib(d.weight_bytes) - 11.27).abs() < 0.01, "{}", gib(d.weight_bytes));
    assert_eq!(of(Some("mxfp4_moe")).weight_bytes, d.weight_bytes);
    assert_eq!(
        (of(Some("mxfp4")).weights, of(Some("mxfp4")).weight_bytes),
        (d.weights.clone(), d.weight_bytes)
    );
    assert_eq!(memory::sequence_bytes(&d, 0, 4096), Bytes(12 * (4096 + 768) * 2048));
    // A context shorter than window and micro-batch is kept whole, in multiples of 256.
    assert_eq!(memory::sequence_bytes(&d, 0, 300), Bytes(12 * (300 + 512) * 2048));
}

/// Bytes of a sequence of 8,192 tokens under llama.cpp, which reads no window of files of Mistral, StarCoder2 and Phi-3: every
/// layer keeps all 8,192 tokens, of 2 · 8 · 128, 2 · 4 · 128 and 2 · 32 · 96 values of 2 B. vLLM keeps 4,096 and a block of
/// Mistral 7B v0.1 in every layer.
#[test]
fn windows_that_llama_cpp_does_not_read() {
    let of = |id: &str, engine: &str| {
        let engine = EngineSpec { name: Some(engine.to_owned()), ..EngineSpec::default() };
        let options = DeploymentOptions { engine, ..DeploymentOptions::default() };
        let chip = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
        let d = Deployment::resolve(crate::support::model(id), chip, &options).unwrap();
        memory::sequence_bytes(&d, 0, 8192)
    };
    assert_eq!(of("mistralai/Mistral-7B-v0.1", "llama.cpp"), Bytes(32 * 4096 * 8192));
    assert_eq!(of("bigcode/starcoder2-15b", "llama.cpp"), Bytes(40 * 2048 * 8192));
    assert_eq!(of("microsoft/Phi-3-mini-4k-instruct", "llama.cpp"), Bytes(32 * 12_288 * 8192));
    assert!(of("mistralai/Mistral-7B-v0.1", "vllm") <= Bytes(32 * 4096 * (4096 + 16)));
}

/// Qwen3.6-27B in fp8 on an H200 under SGLang 0.5.16: 48 of 64 layers keep 48 matrices of 128 × 128 in fp32 and three
/// inputs of (2 · 16 + 48) · 128 channels in bf16. States take 0.9/1.9 of the room, and a running request holds five;
/// with 0.5.9 three, without the radix cache one. In 16 bits nearly twice as many fit.
#[test]
fn sglang_pools_recurrent_states() {
    let of = |version: &str, other: EngineSpec| {
        let engine = EngineSpec {
            name: Some("sglang".into()),
            version: Some(version.into()),
            gpu_memory_utilization: Some(0.8),
            ..other
        };
        let chip = Arc::new(catalog().accelerator("h200-sxm").unwrap().clone());
        let model = crate::support::model("Qwen/Qwen3.6-27B-FP8");
        Deployment::resolve(model, chip, &DeploymentOptions { engine, ..DeploymentOptions::default() })
            .unwrap()
    };
    let state = 48 * (48 * 128 * 128 * 4 + 3 * (2 * 16 + 48) * 128 * 2);
    let by_default = of("0.5.16", EngineSpec::default());
    let rank = Memory::of(&by_default).ranks()[0];
    let room = rank.kv_bytes + rank.state_bytes;
    let states = (room.as_f64() * 0.9 / 1.9 / state as f64) as u64;
    assert_eq!(rank.state_bytes, Bytes(states * state));
    assert_eq!(
        (Memory::of(&by_default).running(), Memory::of(&by_default).start(0).max_running_requests),
        (Some(states / 5), Some(states / 5))
    );
    // 16 layers have 2 · 4 · 256 values of 2 B a token; the bytes that a request takes of the KV cache include no
    // state.
    assert_eq!(Memory::of(&by_default).tokens(9216), rank.kv_bytes.0 / 65_536);
    assert_eq!(Memory::of(&by_default).sequences(9216), states / 5);
    let (config, _) = EngineConfig::resolve(&by_default, 9216, false).unwrap();
    assert_eq!(config.max_num_seqs, states / 5);
    assert_eq!(Memory::of(&of("0.5.9", EngineSpec::default())).running(), Some(states / 3));
    let no_tree = EngineSpec {
        sglang: SglangSpec { disable_radix_cache: Some(true), ..SglangSpec::default() },
        max_num_seqs: Some(40),
        ..EngineSpec::default()
    };
    let bounded = of("0.5.16", no_tree);
    assert_eq!(
        (Memory::of(&bounded).running(), Memory::of(&bounded).ranks()[0].state_bytes),
        (Some(40), Bytes(40 * state))
    );
    let asked = of(
        "0.5.16",
        EngineSpec {
            sglang: SglangSpec { max_mamba_cache_size: Some(100), ..SglangSpec::default() },
            ..EngineSpec::default()
        },
    );
    assert_eq!(
        (Memory::of(&asked).running(), Memory::of(&asked).ranks()[0].state_bytes),
        (Some(20), Bytes(100 * state))
    );
    let narrow =
        of("0.5.16", EngineSpec { mamba_ssm_dtype: Some(StateDtype::Bfloat16), ..EngineSpec::default() });
    let half = state - 48 * 48 * 128 * 128 * 2;
    assert_eq!(Memory::of(&narrow).running(), Some((room.as_f64() * 0.9 / 1.9 / half as f64) as u64 / 5));
    let none = of(
        "0.5.16",
        EngineSpec {
            sglang: SglangSpec { max_mamba_cache_size: Some(4), ..SglangSpec::default() },
            ..EngineSpec::default()
        },
    );
    assert!(
        EngineConfig::resolve(&none, 9216, false).unwrap_err().to_string().contains("max_mamba_cache_size")
    );
    // vLLM and other engines keep states in pages of the KV cache.
    let vllm = Deployment::resolve(
        by_default.model.clone(),
        by_default.accelerator.clone(),
        &DeploymentOptions::default(),
    )
    .unwrap();
    assert_eq!((Memory::of(&vllm).running(), Memory::of(&vllm).ranks()[0].state_bytes), (None, Bytes::ZERO));
}

/// Memory that SGLang leaves free on an H200 of 139.8 GiB: 512 + 1.5 · 8192 + 2 · 256 + 1024/8 MiB, and since 0.5.10 8
/// MiB for each of 58 captured chunks. A vision tower whose size the config's plain keys do not state counts as 24
/// layers of its width.
#[test]
fn sglang_leaves_room_by_its_rule() {
    let share = |model: &str, version: &str| {
        let engine = EngineSpec {
            name: Some("sglang".into()),
            version: Some(version.into()),
            ..EngineSpec::default()
        };
        let chip = Arc::new(catalog().accelerator("h200-sxm").unwrap().clone());
        let d = Deployment::resolve(
            crate::support::model(model),
            chip,
            &DeploymentOptions { engine, ..DeploymentOptions::default() },
        );
        d.unwrap().engine.gpu_memory_utilization
    };
    let mib = catalog().accelerator("h200-sxm").unwrap().usable_bytes.as_f64() / 1_048_576.0;
    let kept = 512.0 + 1.5 * 8192.0 + 2.0 * 256.0 + 128.0;
    let rounded = |kept: f64| ((mib - kept) / mib * 1000.0).round() / 1000.0;
    let llama = "meta-llama/Llama-3.1-8B-Instruct";
    assert_eq!(share(llama, "0.5.8"), rounded(kept));
    let sizes = 8 + 14 + 8 + 8 + 12 + 8;
    assert_eq!(share(llama, "0.5.16"), rounded(kept + 8.0 * f64::from(sizes)));
    let tower = 0.95 * (1.0 - 0.1 * (1152.0 * 1152.0 / (1024.0 * 1024.0) - 1.0));
    let of_images = share("Qwen/Qwen3.6-27B-FP8", "0.5.16");
    assert!((of_images - rounded(kept + 8.0 * f64::from(sizes)) * tower).abs() < 1e-9, "{of_images}");
}

/// Each of 8 ranks of vLLM runs 256 sequences; SGLang's ranks share that number.
#[test]
fn sequences_are_each_ranks_own() {
    let seats = |name: &str| {
        let engine = EngineSpec { name: Some(name.into()), max_num_seqs: Some(256), ..EngineSpec::default() };
        let parallelism =
            RequestedParallelism { attention_dp: Some(8), ep: Some(8), ..RequestedParallelism::default() };
        let chip = Arc::new(catalog().accelerator("h200-sxm").unwrap().clone());
        let model = crate::support::model("Qwen/Qwen3-30B-A3B");
        Deployment::resolve(
            model,
            chip,
            &DeploymentOptions { parallelism, engine, ..DeploymentOptions::default() },
        )
        .unwrap()
        .seats()
    };
    assert_eq!((seats("vllm"), seats("sglang")), (8 * 256, 256));
}

/// DeepSeek-V4-Flash under vLLM 0.22 with steps of 16,384 tokens (github.com/vllm-project/vllm/issues/44376: "6.66 GiB
/// KV cache is needed", "the estimated maximum model length is 13528"). A block has 22 pages of 64 · 584 B, 64 · 132 B
/// and 2 · 584 B, each in multiples of 576 B: 22 · (37,440 + 8640 + 1728). 30,000 tokens are ⌈30,000/256⌉ = 118 blocks
/// of entries, 2 · (⌈(127 + 16,384)/64⌉ + 1) = 518 of windows, ⌈(7 + 16,384)/4⌉ + 1 = 4099 and ⌈(127 + 16,384)/8⌉ + 1 =
/// 2065 of states. From 0.30 on pages are not padded to each other: 21 · (37,440 + 8640) + 20 · 1728 B, and 32,768
/// tokens are in flight.
#[test]
fn compressors_keep_a_state_per_token_in_flight() {
    let start = |version: &str, blocks: u64, block: u64| {
        let engine = EngineSpec {
            version: Some(version.into()),
            max_model_len: Some(30_000),
            max_num_batched_tokens: Some(16_384),
            kv_cache_memory_bytes: Some(blocks * block),
            ..EngineSpec::default()
        };
        let chip = Arc::new(catalog().accelerator("gh200").unwrap().clone());
        let model = crate::support::model("deepseek-ai/DeepSeek-V4-Flash");
        let parallelism = RequestedParallelism { tp: Some(2), ..RequestedParallelism::default() };
        let options = DeploymentOptions { engine, parallelism, ..DeploymentOptions::default() };
        let d = Deployment::resolve(model, chip, &options).unwrap();
        assert_eq!(d.kv.name, "fp8");
        Memory::of(&d).start(0)
    };
    let padded = 22 * (37_440 + 8640 + 1728);
    let refusal = start("0.22.0", 5554, padded).refusal.unwrap();
    assert_eq!(refusal.needed_bytes, Bytes((118 + 518 + 4099 + 2065) * padded));
    assert_eq!((format!("{:.2}", gib(refusal.needed_bytes)).as_str(), refusal.longest), ("6.66", 13_528));
    let packed = 21 * (37_440 + 8640) + 20 * 1728;
    let blocks = 118 + 2 * (30_000_u64.div_ceil(64) + 1) + (30_000 / 4 + 1) + (30_000 / 8 + 1);
    assert_eq!(start("0.30.0", 2 * blocks, packed).max_concurrency, 2.0);
}

/// MiMo-7B has one multi-token-prediction layer like its 36 others (hidden 4096, 32 and 8 heads of 128 with biases,
/// 11,008 wide), and a projection of two hidden states. If it drafts, a rank holds its weights in 2 B, and a token has
/// 37 times 2 · 8 · 128 values of 2 B; with n-grams or another drafter it is left out, which the answer says.
#[test]
fn layers_that_draft_are_in_memory() {
    let of = |drafts: Option<f64>| {
        let speculative = drafts.map(|cost| SpeculativeSpec {
            num_speculative_tokens: 1,
            method: (cost == 0.0).then_some(DraftMethod::Ngram),
            draft_cost: Some(cost).filter(|cost| *cost > 0.0),
            ..SpeculativeSpec::default()
        });
        let engine = EngineSpec { speculative, ..EngineSpec::default() };
        let chip = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
        let model = crate::support::model("XiaomiMiMo/MiMo-7B-Base");
        Deployment::resolve(model, chip, &DeploymentOptions { engine, ..DeploymentOptions::default() })
            .unwrap()
    };
    let weights = |d: &Deployment| Memory::of(d).ranks()[0].weight_bytes;
    let (without, with) = (of(None), of(Some(0.05)));
    let attention = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 4096 + 2 * 1024;
    let layer = attention + 3 * 4096 * 11_008 + 2 * 4096;
    assert_eq!(weights(&with), weights(&without) + Bytes(2 * (layer + 2 * 4096 * 4096)));
    assert_eq!(with.weight_bytes, without.weight_bytes + Bytes(2 * (layer + 2 * 4096 * 4096)));
    assert_eq!(memory::sequence_bytes(&with, 0, 1600), Bytes(1600 * 37 * 4096));
    assert_eq!(weights(&of(Some(0.0))), weights(&without));
    let says = |d: &Deployment, words: &str| d.assumptions.iter().any(|sentence| sentence.contains(words));
    assert!(says(&without, "1 multi-token-prediction layers are not counted"));
    assert!(says(&with, "are counted") && !says(&with, "not counted"));
}

/// The start of a model under a version of vLLM, with settings that `change` modifies.
fn start_of(model: &str, version: &str, change: impl FnOnce(&mut DeploymentOptions)) -> memory::Start {
    let engine = EngineSpec {
        name: Some("vllm".into()),
        version: Some(version.into()),
        max_model_len: Some(8192),
        ..EngineSpec::default()
    };
    let mut options = DeploymentOptions { engine, ..DeploymentOptions::default() };
    change(&mut options);
    let chip = Arc::new(catalog().accelerator("rtx-4090").unwrap().clone());
    let d = Deployment::resolve(Arc::new(catalog().named(model).unwrap().model().unwrap()), chip, &options)
        .unwrap();
    Memory::of(&d).start(8192)
}

/// `--quantization fp8` of Qwen3-14B: 14.77 billion weights are 27.5 GiB in 16 bits, which vLLM before 0.14 loads first and
/// 24 GB do not hold. Without `online`, `fp8` is the checkpoint that its maker publishes.
#[test]
fn weights_that_an_engine_quantizes_are_loaded_in_16_bits() {
    let refusal = |version: &str, online: bool| {
        start_of("Qwen/Qwen3-14B", version, |options| {
            options.precision =
                PrecisionSpec { weights: Some("fp8".into()), online, ..PrecisionSpec::default() };
        })
        .refusal
        .map(|refusal| refusal.told("vllm", 8192))
    };
    let told = refusal("0.11.0", true).unwrap();
    assert!(told.contains("27.5") && told.contains("in 16 bits"), "{told}");
    assert_eq!([refusal("0.14.0", true), refusal("0.11.0", false)], [None, None]);
}

/// Qwen3-8B keeps 36 · 2 · 8 · 128 · 2 = 147,456 B a token: 1.125 GiB are 8192 tokens in 512 blocks of 16. From 0.30 on the
/// pool's null block is not among the blocks that one request of 8192 tokens must fit.
#[test]
fn the_null_block_is_kept_back() {
    let refusal = |version: &str| {
        start_of("Qwen/Qwen3-8B", version, |options| {
            options.engine.kv_cache_memory_bytes = Some(8192 * 147_456);
        })
        .refusal
    };
    assert_eq!(refusal("0.28.0"), None);
    let refused = refusal("0.30.0").unwrap();
    assert_eq!((refused.longest, refused.available_bytes), (511 * 16, Bytes(511 * 16 * 147_456)));
}

/// DeepSeek-V3.2 keeps 512 + 64 values and 132 B of an indexer in each of 61 layers. In 8 bits a row is 576 B, and 656 B on
/// Hopper: 512, four scales of 4 B, and the rotary part in 16 bits.
#[test]
fn rows_of_sparse_attention_have_scales_on_hopper() {
    let token = |chip: &str, kv: &str| {
        let engine = EngineSpec { name: Some("vllm".into()), ..EngineSpec::default() };
        let precision = PrecisionSpec { kv: Some(kv.into()), ..PrecisionSpec::default() };
        let options = DeploymentOptions { engine, precision, ..DeploymentOptions::default() };
        let chip = Arc::new(catalog().accelerator(chip).unwrap().clone());
        let d =
            Deployment::resolve(crate::support::model("deepseek-ai/DeepSeek-V3.2"), chip, &options).unwrap();
        d.model.kv_bytes_per_token(d.kv, 4096)
    };
    assert_eq!(token("h200-sxm", "fp8"), Bytes(61 * (656 + 132)));
    assert_eq!([token("mi355x", "fp8"), token("b200-sxm", "fp8")], [Bytes(61 * (576 + 132)); 2]);
    assert_eq!(token("h200-sxm", "bf16"), Bytes(61 * (2 * 576 + 132)));
}
