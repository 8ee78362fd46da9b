//! Seed 003: the number of users that one RTX 4090 serves with Qwen1.5.
//!
//! Knows: the text's two formulas (noooop/zerollama, `tutorial/advance/0x02/parameters.py`), its conclusions on users,
//! and its measurements. Its counting rules are [`roofcast_ask::spec::Convention::Seed003`]. Knows nothing about other seeds.

use super::SeedVerdict::{Exact, Inconsistent, Measured as Seen, Rounded, Unit};
use super::measured::{SeedMeasurements, Server, measured};
use super::{Claim, GIB, SeedVerdict, Setup, closed_forms, decode, held, model, prefill};
use roofcast_ask::spec::{AttentionBackend, EngineSpec, Frontend};
use roofcast_cost::capacity::{CapacityQuestion, capacity};
use roofcast_cost::cost::{Utilization, cost};
use roofcast_cost::forecaster::Forecaster;
use roofcast_cost::memory::Memory;
use roofcast_facts::batch::Batch;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::Result;
use roofcast_facts::model::{Mixer, Model, TensorRole};
use roofcast_facts::precision::Dtype;

const RECALL: &str = "1 balance of the card";
const LIMIT: &str = "7.1.2 decode limit, Qwen1.5-7B";
const CELLS: &str = "2.5 KV tokens in 24 GiB, computed";
const USERS: &str = "2.5 to 2.8 users";
const GGUF: &str = "2.5 KV tokens, measured in llama.cpp, beside the forecast";
const KERNELS: &str = "7.1.2 one token of Qwen1.5-7B, measured, beside the limit";
const SPLIT: &str = "5 a prompt meets a decode, vLLM GPTQ 7B, measured";
const SERVERS: &str = "8 asyncio and gevent, overhead per token";
const TOKENS: &str = "8 asyncio and gevent, time per token";

const CARD: &str = "rtx-4090";
/// Month in which the text's engines were current; its vLLM is 0.5.0.
const MONTH: &str = "2024-06";
const SIZES: [&str; 6] = ["0.5B", "1.8B", "4B", "7B", "14B", "32B"];
/// The GGUF formats of the text's table, widest first.
const FORMATS: [&str; 8] = ["q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_0", "q3_k_m", "q2_k"];

pub(super) fn claims(catalog: &Catalog) -> Result<Vec<Claim>> {
    let seen = measured()?;
    let mut all = balance(catalog)?;
    all.extend(cells(catalog)?);
    all.extend(gguf(catalog, &seen)?);
    all.extend(users(catalog, &seen)?);
    all.extend(split(catalog)?);
    all.extend(limit(catalog)?);
    all.extend(kernels(catalog, &seen)?);
    let servers = seen.server.iter().map(|row| Ok((row, served(catalog, &seen, row)?)));
    let servers = servers.collect::<Result<Vec<_>>>()?;
    all.extend(servers.iter().flat_map(|(row, forecasts)| overheads(row, forecasts)));
    all.extend(servers.iter().flat_map(|(row, forecasts)| tokens(row, forecasts)));
    Ok(all)
}

/// Catalog id of the Qwen1.5 model of a size.
fn id(size: &str) -> String {
    format!("Qwen/Qwen1.5-{size}-Chat")
}

/// Elements of a model as the text counts them.
struct Counted {
    /// Ap: weights of the layers without norms, and lm_head; without input embedding.
    weights: f64,
    /// Elements of keys and values of one token.
    kv: f64,
}

/// layer = (d + 1)·d + 2·(d + 1)·d/g + d·d + 3·d·ffn; Ap = L·layer + d·V; KV = 2·L·d/g.
fn counted(model: &Model) -> Counted {
    let d = model.hidden as f64;
    let layers = model.layers.len() as f64;
    let first = model.layers.first();
    let g = match first.map(|l| &l.mixer) {
        Some(Mixer::Attention(a)) => a.heads as f64 / a.kv_heads as f64,
        _ => 1.0,
    };
    let tensors = first.map(|l| l.ffn.tensors(model.hidden)).unwrap_or_default();
    let ffn: f64 = tensors.iter().filter(|t| t.role == TensorRole::Linear).map(|t| t.elements() as f64).sum();
    let layer = (d + 1.0) * d + 2.0 * (d + 1.0) * d / g + d * d + ffn;
    Counted { weights: layers * layer + d * model.vocab as f64, kv: 2.0 * layers * d / g }
}

impl Counted {
    /// Number of KV tokens that fit: int((24·2^30 − Ap·w/8) / (KV·kv/8)); negative if the weights alone do not fit.
    fn tokens(&self, w_bits: f64, kv_bits: f64) -> f64 {
        ((24.0 * GIB - self.weights * w_bits / 8.0) / (self.kv * kv_bits / 8.0)).trunc()
    }

    /// Time of one token in milliseconds: (Ap·w + KV·kv) / (8 · 1008 · `giga`); the text's `giga` is 2^30.
    fn step_ms(&self, w_bits: f64, kv_bits: f64, giga: f64) -> f64 {
        (self.weights * w_bits + self.kv * kv_bits) / (1008.0 * giga * 8.0) * 1e3
    }
}

fn balance(catalog: &Catalog) -> Result<Vec<Claim>> {
    let seven = id("7B");
    let d = Setup::new(&seven, CARD, "bf16", "bf16").resolve(catalog)?;
    let ridge = |dtype| {
        closed_forms(&d, 1, 1).ridge.iter().find(|r| r.dtype == dtype).map_or(f64::NAN, |r| r.flops_per_byte)
    };
    Ok(vec![
        Claim::new(RECALL, "FLOPs to bytes, 83 TFLOPS over 1008 GB/s", "82:1", "FLOP/B")
            .recomputed(83e12 / 1008e9)
            .roofcast(ridge(Dtype::Fp32))
            .is(Exact, "for fp32"),
        Claim::new(RECALL, "the same for the bf16 that decodes", "–", "FLOP/B")
            .recomputed(83e12 / 1008e9)
            .roofcast(ridge(Dtype::Bf16))
            .is(SeedVerdict::WrongInput, "83 TFLOPS is the fp32 rate; dense bf16 on tensor cores is 165"),
    ])
}

fn cells(catalog: &Catalog) -> Result<Vec<Claim>> {
    const SAID: [[&str; 2]; 6] = [
        ["257424", "259784"],
        ["123312", "127192"],
        ["54220", "58567"],
        ["35612", "42382"],
        ["15114", "23285"],
        ["oom", "37778"],
    ];
    let mut all = Vec::new();
    for (size, said) in SIZES.iter().zip(SAID) {
        let name = id(size);
        let counted = counted(&*model(catalog, &name)?);
        for ((weights, bits), said) in [("w8", 8.0), ("w4", 4.0)].into_iter().zip(said) {
            let d = Setup::new(&name, CARD, weights, "16").resolve(catalog)?;
            let tokens = held(&d, 1024, 1).kv_tokens;
            let why = match (*size, weights) {
                ("0.5B", "w8") => "ours, here and below: embedding, lm_head and norms count, at 16 bits",
                ("32B", "w8") => "negative: the weights do not fit",
                _ => "",
            };
            all.push(
                Claim::new(CELLS, format!("{size} {weights}kv16"), said, "tokens")
                    .recomputed(counted.tokens(bits, 16.0))
                    .roofcast(tokens as f64)
                    .is(Exact, why),
            );
        }
    }
    Ok(all)
}

fn gguf(catalog: &Catalog, seen: &SeedMeasurements) -> Result<Vec<Claim>> {
    let mut all = Vec::new();
    for row in &seen.kv_tokens {
        let name = format!("{}{}", seen.model_prefix, row.size);
        for format in FORMATS {
            let setup = Setup::new(&name, &seen.hardware, format, "16");
            let limit = held(&setup.resolve(catalog)?, 1024, 1).kv_tokens as f64;
            let forecast = Memory::of(&setup.served_by(catalog, llama_cpp())?).tokens(1024) as f64;
            let tokens = row.tokens.get(format).map(|t| *t as f64);
            let why = match tokens {
                Some(tokens) => format!("{}; the limit is {limit:.0}", off(forecast, tokens)),
                None => String::new(),
            };
            let largest_context = tokens.map_or("oom".to_owned(), |t| format!("{t}"));
            all.push(
                Claim::new(GGUF, format!("{} {format}", row.size), largest_context, "tokens")
                    .roofcast(forecast)
                    .is(Seen, why),
            );
        }
    }
    Ok(all)
}

/// llama.cpp of June 2024, which writes the attention scores to memory.
fn llama_cpp() -> EngineSpec {
    EngineSpec {
        name: Some("llama.cpp".into()),
        attention_backend: Some(AttentionBackend::Naive),
        ..EngineSpec::default()
    }
}

/// Text of a forecast's relative error.
fn off(forecast: f64, measured: f64) -> String {
    format!("forecast {:+.1} %", (forecast / measured - 1.0) * 100.0)
}

/// One of the text's conclusions on the users of a 4-bit model.
struct Served {
    size: &'static str,
    context: u64,
    /// Tokens promised over tokens that fit, in percent.
    sold: u64,
    said: &'static str,
    verdict: SeedVerdict,
    why: &'static str,
}

const SERVED: [Served; 12] = {
    const fn row(
        size: &'static str,
        context: u64,
        sold: u64,
        said: &'static str,
        verdict: SeedVerdict,
        why: &'static str,
    ) -> Served {
        Served { size, context, sold, said, verdict, why }
    }
    const SHORT: &str = "2 × 8192 tokens are more than the 15,086 measured";
    [
        row(
            "7B",
            1024,
            100,
            "30",
            Rounded,
            "from the 33,780 tokens of q4_k_m; ours from the limit of q4_k_m",
        ),
        row("7B", 8192, 100, "4", Exact, ""),
        row("14B", 1024, 100, "15", Rounded, ""),
        row("14B", 8192, 100, "2", Exact, ""),
        row("32B", 1024, 100, "15", Rounded, "15 × 1000 fit, 15 × 1024 do not"),
        row("32B", 8192, 100, "2", Inconsistent, SHORT),
        row("7B", 1024, 100, "32", Exact, ""),
        row("7B", 8192, 200, "8", Exact, ""),
        row("14B", 1024, 100, "16", Exact, ""),
        row("14B", 8192, 200, "4", Exact, ""),
        row("32B", 1024, 100, "16", Inconsistent, "14 fit what was measured"),
        row("32B", 8192, 200, "4", Inconsistent, SHORT),
    ]
};

fn users(catalog: &Catalog, seen: &SeedMeasurements) -> Result<Vec<Claim>> {
    let mut all = Vec::new();
    for (index, s) in SERVED.iter().enumerate() {
        let row = seen.kv_tokens.iter().find(|r| r.size == s.size);
        let tokens = row.and_then(|r| r.tokens.get("q4_k_m")).map_or(f64::NAN, |t| *t as f64);
        let name = id(s.size);
        let d = Setup::new(&name, CARD, "q4_k_m", "16").resolve(catalog)?;
        let question =
            CapacityQuestion { context: s.context, batch: 1, oversubscription_percent: s.sold, users: None };
        let part = if index < SERVED.len() / 2 { "2.5" } else { "2.8" };
        let sold = if s.sold > 100 { ", sold twice" } else { "" };
        all.push(
            Claim::new(
                USERS,
                format!("{part}: {} 4-bit, {}k context{sold}", s.size, s.context / 1024),
                s.said,
                "users",
            )
            .recomputed(tokens / s.context as f64 * s.sold as f64 / 100.0)
            .roofcast(capacity(&d, &question).users as f64)
            .is(s.verdict, s.why),
        );
    }
    all.insert(
        SERVED.len() / 2,
        Claim::new(USERS, "2.6: over-subscription where 90 % stay below half of 8k", "2", "×")
            .recomputed(8192.0 / 4096.0)
            .roofcast(8192.0 / 4096.0)
            .is(Exact, "a premise on lengths; what preemption costs is the simulator's to say"),
    );
    Ok(all)
}

fn split(catalog: &Catalog) -> Result<Vec<Claim>> {
    let seven = id("7B");
    let d = Setup::new(&seven, CARD, "gptq-int4", "16").resolve(catalog)?;
    Ok(vec![
        Claim::new(SPLIT, "one decoded token", "6-7 ms", "ms")
            .roofcast(decode(&d, 1, 1).limit.ms())
            .is(Seen, ""),
        Claim::new(SPLIT, "prompt of 256 tokens", "24 ms", "ms")
            .roofcast(prefill(&d, 256, 1.0).limit.ms())
            .is(Seen, "compute-bound: at 256 tokens 4-bit weights no longer help"),
    ])
}

fn limit(catalog: &Catalog) -> Result<Vec<Claim>> {
    let seven = id("7B");
    let counted = counted(&*model(catalog, &seven)?);
    let mut all = Vec::new();
    for (weights, bits, said) in [("w16", 16.0, "13.12"), ("w8", 8.0, "6.56"), ("w4", 4.0, "3.28")] {
        let setup = Setup::new(&seven, CARD, weights, "16");
        let why = format!(
            "1008 GB/s read as GiB/s; {:.2} ms in decimal. Ours keeps lm_head at 16 bits; by the text's rules it gives {:.2}",
            counted.step_ms(bits, 16.0, 1e9),
            decode(&setup.by_seed_003().resolve(catalog)?, 1, 1).limit.ms(),
        );
        all.push(
            Claim::new(LIMIT, format!("{weights}kv16"), format!("{said} ms"), "ms")
                .recomputed(counted.step_ms(bits, 16.0, GIB))
                .roofcast(decode(&setup.resolve(catalog)?, 1, 1).limit.ms())
                .is(Unit, why),
        );
    }
    Ok(all)
}

fn kernels(catalog: &Catalog, seen: &SeedMeasurements) -> Result<Vec<Claim>> {
    let name = format!("{}7B", seen.model_prefix);
    let row = |kernel: &super::measured::SeedKernel| {
        let d = Setup::new(&name, &seen.hardware, &kernel.weights, "16").resolve(catalog)?;
        let limit = decode(&d, 1, 1).limit.ms();
        Ok(Claim::new(
            KERNELS,
            format!("{} ({})", kernel.name, kernel.weights),
            format!("{} ms", kernel.ms),
            "ms",
        )
        .roofcast(limit)
        .is(
            Seen,
            format!("{:.2} × the limit; {}", kernel.ms / limit, forecast(catalog, &name, seen, kernel)?),
        ))
    };
    seen.kernel.iter().map(row).collect()
}

/// A claim that compares the forecast of a one-token pass, by engine, kernel and fusion, with the measurement.
fn forecast(
    catalog: &Catalog,
    name: &str,
    seen: &SeedMeasurements,
    kernel: &super::measured::SeedKernel,
) -> Result<String> {
    let engine = EngineSpec {
        name: Some(kernel.engine.clone()),
        version: Some(MONTH.into()),
        served: Some(false),
        quantization_kernel: kernel.quantization_kernel.clone(),
        fuse_layers: kernel.fuse_layers,
        ..EngineSpec::default()
    };
    let deployment = Setup::new(name, &seen.hardware, &kernel.weights, "16").served_by(catalog, engine)?;
    let step =
        cost(&Forecaster::embedded(deployment)?, &Batch::decode(1, 1), Utilization::FULL).forecast.ms();
    Ok(format!("forecast {step:.2}, {:+.0} %", (step / kernel.ms - 1.0) * 100.0))
}

/// Forecast times of one model behind both servers, by concurrency.
struct Forecast {
    users: u64,
    asyncio_ms: f64,
    gevent_ms: f64,
}

/// Context in tokens halfway through outputs of 1000 tokens, over which the table takes the mean.
const HALFWAY: u64 = 500;

/// Step times of vLLM with GPTQ weights behind both servers, for at most as many users as the memory holds halfway
/// through their outputs.
fn served(catalog: &Catalog, seen: &SeedMeasurements, row: &Server) -> Result<Vec<Forecast>> {
    let name = format!("{}{}", seen.model_prefix, row.size);
    let setup = Setup::new(&name, &seen.hardware, "gptq-int4", "16");
    // A 32B model fits on the card only with a small token budget.
    let engine = |frontend| EngineSpec {
        version: Some(MONTH.into()),
        served: Some(false),
        max_num_batched_tokens: Some(512),
        max_num_seqs: Some(64),
        frontend,
        ..EngineSpec::default()
    };
    let forecasters = [Frontend::Asyncio, Frontend::Gevent]
        .map(|frontend| setup.served_by(catalog, engine(frontend)).and_then(Forecaster::embedded));
    let [asyncio, gevent] = forecasters;
    let asyncio = asyncio?;
    let gevent = gevent?;
    let most_sequences = Memory::of(&asyncio.deployment).sequences(HALFWAY).max(1);
    let step = |forecaster: &Forecaster, users: u64| {
        let batch = Batch::decode(users.min(most_sequences), HALFWAY);
        cost(forecaster, &batch, Utilization::FULL).forecast.ms()
    };
    let forecast_of = |users: &u64| Forecast {
        users: *users,
        asyncio_ms: step(&asyncio, *users),
        gevent_ms: step(&gevent, *users),
    };
    Ok(seen.concurrency.iter().map(forecast_of).collect())
}

/// Claims on the server overhead of one model: gevent − asyncio, as printed and rounded to two digits.
fn overheads(row: &Server, forecasts: &[Forecast]) -> Vec<Claim> {
    let cells = row.gevent_ms.iter().zip(&row.asyncio_ms).zip(&row.overhead_ms).zip(forecasts);
    let claim = |(((gevent, asyncio), said), forecast): (((&f64, &f64), &f64), &Forecast)| {
        // The figures have two decimal digits, so that hundredths are whole numbers.
        let difference = ((gevent - asyncio) * 100.0).round() / 100.0;
        let same = (difference - said).abs() < 0.005;
        let (verdict, why) = if same { (Exact, "") } else { (Rounded, "rounded before it was subtracted") };
        let words = format!("{}, {} users: {gevent:.2} − {asyncio:.2}", row.size, forecast.users);
        Claim::new(SERVERS, words, format!("{said:.2} ms"), "ms")
            .recomputed(difference)
            .roofcast(forecast.gevent_ms - forecast.asyncio_ms)
            .is(verdict, why)
    };
    cells.map(claim).collect()
}

/// Claims on the times per token behind the gevent server.
fn tokens(row: &Server, forecasts: &[Forecast]) -> Vec<Claim> {
    let claim = |(gevent, forecast): (&f64, &Forecast)| {
        let words = format!("{} gevent, {} users", row.size, forecast.users);
        Claim::new(TOKENS, words, format!("{gevent:.2} ms"), "ms")
            .roofcast(forecast.gevent_ms)
            .is(Seen, off(forecast.gevent_ms, *gevent))
    };
    row.gevent_ms.iter().zip(forecasts).map(claim).collect()
}
