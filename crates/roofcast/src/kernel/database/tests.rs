use super::*;

enum Cell {
    Text(&'static str),
    Number(f64),
}
use Cell::{Number, Text};

struct Line(Vec<(&'static str, Cell)>);

impl Row for Line {
    fn text(&self, column: &str) -> Option<&str> {
        self.0.iter().find_map(|(name, cell)| match cell {
            Text(text) if *name == column => Some(*text),
            _ => None,
        })
    }

    fn number(&self, column: &str) -> Option<f64> {
        self.0.iter().find_map(|(name, cell)| match cell {
            Number(number) if *name == column => Some(*number),
            _ => None,
        })
    }
}

fn table(path: &str) -> Found<Table<'static>> {
    Table::of(path, Catalog::embedded().unwrap()).unwrap()
}

fn read(path: &str, line: Vec<(&'static str, Cell)>) -> Result<Found<Kernel>> {
    let Found::Read(table) = table(path) else { panic!("{path}") };
    table.row(4, &Line(line))
}

fn kernel(path: &str, line: Vec<(&'static str, Cell)>) -> Kernel {
    match read(path, line).unwrap() {
        Found::Read(kernel) => kernel,
        other => panic!("{other:?}"),
    }
}

fn near(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-3
}

const GEMM: &str = "tables/h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet";

fn gemm(dtype: &'static str, n: f64) -> Vec<(&'static str, Cell)> {
    vec![
        ("gemm_dtype", Text(dtype)),
        ("m", Number(16.0)),
        ("n", Number(n)),
        ("k", Number(n)),
        ("kernel_source", Text("cublas")),
        ("latency", Number(0.05)),
    ]
}

/// 8192² weights of two bytes are 134 MB, 40.1 µs at 3.35 TB/s; 2 · 16 · 8192² FLOP at 989.4 TFLOP/s are 2.17 µs.
#[test]
fn a_product_knows_its_engine_and_version() {
    let one = kernel(GEMM, gemm("bfloat16", 8192.0));
    assert!(near(one.memory, 134_217_728.0 / 3.35e12) && near(one.compute, 2.147e9 / 989.4e12), "{one:?}");
    assert_eq!(
        [&*one.backend, &*one.version, &*one.source, &*one.accelerator],
        ["vllm", "0.24.0", "cublas", "h100-sxm"]
    );
    assert_eq!((one.part, one.weights.as_deref(), one.measured), (Part::Gemm, Some("bf16"), 5e-5));
    // 16 · 8192 values of two bytes are taken and as many given; 64 tiles of 128 outputs are one wave of 132 multiprocessors.
    let passed = 262_144.0 / 3.35e12;
    assert!([one.passed, one.inputs].iter().all(|crossing| near(*crossing, passed)), "{one:?}");
    assert!(near(one.waves, 132.0 / 64.0) && one.depth == 8192.0, "{one:?}");
    // 16,384² weights of 4 + 20/128 bits.
    let four = kernel(GEMM, gemm("int4_wo", 16_384.0));
    assert!(near(four.memory, 268_435_456.0 * 4.156_25 / 8.0 / 3.35e12), "{four:?}");
    assert_eq!(four.weights.as_deref(), Some("gptq-int4"));
    // 0.5 MB stays in the cache; what nobody modelled is named.
    assert!(matches!(read(GEMM, gemm("bfloat16", 512.0)), Ok(Found::Skipped)));
    let Ok(Found::Unread(name)) = read(GEMM, gemm("ternary", 8192.0)) else { panic!() };
    assert_eq!(name, "gemm dtype ternary");
}

/// 64 decodes at 4096 tokens, 8 heads of 128, one byte, keys and values: 537 MB; a window of 2048 tokens halves it.
#[test]
fn decodes_read_their_window() {
    let path = "b200_sxm/attention/sglang/0.5.14/generation_attention_perf.parquet";
    let line = |window: f64| {
        vec![
            ("kv_cache_dtype", Text("fp8")),
            ("attn_dtype", Text("bfloat16")),
            ("batch_size", Number(64.0)),
            ("isl", Number(1.0)),
            ("step", Number(4095.0)),
            ("num_heads", Number(32.0)),
            ("num_key_value_heads", Number(8.0)),
            ("head_dim", Number(128.0)),
            ("window_size", Number(window)),
            ("latency", Number(0.4)),
        ]
    };
    let whole = kernel(path, line(0.0));
    assert!(near(whole.memory, 536_870_912.0 / 8e12) && whole.group == 4.0, "{whole:?}");
    assert!(whole.narrow && whole.context == 4096.0 && whole.tile == 128.0, "{whole:?}");
    assert!(near(kernel(path, line(2048.0)).memory, whole.memory / 2.0));
}

fn latent(path: &str, model: &'static str) -> Result<Found<Kernel>> {
    let line = vec![
        ("kv_cache_dtype", Text("bfloat16")),
        ("gemm_type", Text("fp8_block")),
        ("model", Text(model)),
        ("num_heads", Number(128.0)),
        ("batch_size", Number(64.0)),
        ("isl", Number(1.0)),
        ("step", Number(4095.0)),
        ("latency", Number(0.4)),
    ];
    read(path, line)
}

/// 64 · 4096 latents of 576 values in two bytes; 128 heads, 2 · (576 + 512) FLOP a head and pair. The module reads
/// 7168 · (1536 + 576) + 128 · (1536 · 192 + 512 · 256 + 7168 · 128) = 187,105,280 weights of a byte before it.
#[test]
fn latent_attention_by_hand() {
    let Ok(Found::Read(alone)) = latent("h200_sxm/mla/trtllm/1.3/generation_mla_perf.parquet", "") else {
        panic!()
    };
    let read = 64.0 * 4096.0 * 576.0 * 2.0;
    let computed = 2.0 * 128.0 * 64.0 * 4096.0 * 1088.0;
    assert!(near(alone.memory, read / 4.8e12) && near(alone.compute, computed / 989.4e12), "{alone:?}");
    assert_eq!((alone.part, alone.weights), (Part::LatentDecode, None));
    let module = "h200_sxm/mla/vllm/0.24.0/mla_generation_module_perf.parquet";
    let Ok(Found::Read(whole)) = latent(module, "deepseek-ai/DeepSeek-V3") else { panic!() };
    let weights = 187_105_280.0;
    assert!(near(whole.memory, weights / 4.8e12), "{whole:?}");
    assert!(near(whole.compute, 2.0 * 64.0 * weights / 1978.9e12), "{whole:?}");
    let [computing, moving] = whole.attention;
    assert!(near(computing, alone.compute) && near(moving, alone.memory) && alone.attention == [0.0; 2]);
    // Queries, keys and values of 320 a head, and 7168 + 1536 + 512 beside them: two bytes, written and read.
    let passed = 64.0 * 2.0 * (128.0 * 2.0 * 320.0 + 2.0 * 9216.0);
    assert!(near(whole.passed, passed / 4.8e12), "{whole:?}");
    assert_eq!((whole.part, whole.weights.as_deref()), (Part::LatentDecodeModule, Some("fp8-block")));
    let Ok(Found::Unread(name)) = latent(module, "moonshotai/Kimi-K3") else { panic!() };
    assert_eq!(name, "MLA of moonshotai/Kimi-K3");
}

/// Two of three matrices: two thirds of the FLOPs and bytes of gated experts of the same shape.
#[test]
fn experts_that_nothing_gates_have_two_matrices() {
    let path = "h200_sxm/moe/trtllm/1.3/moe_perf.parquet";
    let line = |source: &'static str| {
        let sizes = [4096.0, 4096.0, 1536.0, 8.0, 128.0, 1.0, 1.0];
        let names =
            ["num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"];
        let mut line: Vec<_> = names.into_iter().zip(sizes.map(Number)).collect();
        line.push(("moe_dtype", Text("fp8")));
        line.push(("distribution", Text("power_law_1.01")));
        line.push(("kernel_source", Text(source)));
        line.push(("latency", Number(3.0)));
        line
    };
    let (gated, plain) =
        (kernel(path, line("moe_torch_flow")), kernel(path, line("moe_torch_flow_nongated")));
    // All 128 experts, 3 · 4096 · 1536 bytes each.
    assert!(near(gated.memory, 128.0 * 18_874_368.0 / 4.8e12), "{gated:?}");
    assert!(near(plain.memory, gated.memory / 1.5) && near(plain.compute, gated.compute / 1.5));
}

/// 2²³ elements of two bytes over 8 GPUs; eager launches are the host's, and no engine sends 2 kB.
#[test]
fn messages_are_counted_in_elements() {
    let path = "h100_sxm/comm/vllm/0.24.0/custom_allreduce_perf.parquet";
    let of = |source: &'static str, elements: f64| {
        vec![
            ("kernel_source", Text(source)),
            ("allreduce_dtype", Text("bfloat16")),
            ("op_name", Text("all_reduce")),
            ("num_gpus", Number(8.0)),
            ("message_size", Number(elements)),
            ("latency", Number(0.1)),
        ]
    };
    let line = |source| of(source, 8_388_608.0);
    let one = kernel(path, line("vLLM_custom_graph"));
    assert!(near(one.memory, 16_777_216.0 * 1.75 / 450e9), "{one:?}");
    assert!(matches!(read(path, line("vLLM_custom_eager")), Ok(Found::Skipped)));
    // A message shorter than a row.
    assert!(matches!(read(path, of("vLLM_custom_graph", 1024.0)), Ok(Found::Skipped)));
}

#[test]
fn paths_of_both_layouts_and_of_none() {
    // With a family's folder and without, and systems whose names hold more than an id.
    for path in
        ["rtx_pro_6000_server/gemm/trtllm/1.3/gemm_perf.parquet", "gb200/trtllm/1.3/gemm_perf.parquet"]
    {
        assert!(matches!(table(path), Found::Read(_)), "{path}");
    }
    let unread = |path| match table(path) {
        Found::Unread(name) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(unread("h100_sxm/moe/sglang/0.5/wideep_moe_perf.parquet"), "operator wideep_moe");
    assert_eq!(unread("abacus/gemm/vllm/0.26.0/gemm_perf.parquet"), "accelerator abacus");
    let error =
        Table::of("vllm/0.24.0/gemm_perf.parquet", Catalog::embedded().unwrap()).unwrap_err().to_string();
    assert!(error.contains("SYSTEM") && error.contains("h100_sxm/gemm"), "{error}");
}

#[test]
fn broken_rows_name_table_row_and_column() {
    for (column, cell) in [("latency", Number(-1.0)), ("latency", Number(f64::NAN)), ("k", Text("many"))] {
        let mut line = gemm("bfloat16", 8192.0);
        line.retain(|(name, _)| *name != column);
        line.push((column, cell));
        let error = read(GEMM, line).unwrap_err().to_string();
        assert!(error.contains("gemm_perf.parquet:5") && error.contains(column), "{error}");
    }
}

/// All rows of a table as long as the sample; of a million 8192, within three standard deviations of a binomial's 90.
#[test]
fn long_tables_are_sampled_evenly() {
    let count = |rows: u64| (0..rows).filter(|i| taken(*i, rows)).count();
    assert_eq!(count(MOST_ROWS), 8192);
    assert!(count(1_000_000).abs_diff(8192) < 270, "{}", count(1_000_000));
    // Any half of it has half.
    assert!((0..500_000).filter(|i| taken(*i, 1_000_000)).count().abs_diff(4096) < 192);
}
