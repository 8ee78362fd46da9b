//! `roofcast calibrate --kernels` reads tables of kernel times as Parquet, in the layout of AIConfigurator's database.

use super::support::{json, roofcast};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

const SCHEMA: &str = "message gemm {
    optional binary kernel_source (UTF8);
    required binary gemm_dtype (UTF8);
    required int64 m;
    required int64 n;
    required int64 k;
    required double latency;
}";

/// A product by dtype, rows and the side of its square of weights, and what it took in milliseconds.
type Line = (&'static str, i64, i64, f64);

/// Writes a table below `folder`, a row group for each of `groups`.
fn table(folder: &Path, name: &str, compression: Compression, groups: &[&[Line]]) -> String {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut writer = SerializedFileWriter::new(File::create(&path).unwrap(), schema, properties).unwrap();
    for lines in groups {
        let mut group = writer.next_row_group().unwrap();
        let sides: Vec<i64> = lines.iter().map(|l| l.2).collect();
        let rows: Vec<i64> = lines.iter().map(|l| l.1).collect();
        let latencies: Vec<f64> = lines.iter().map(|l| l.3).collect();
        let dtypes: Vec<ByteArray> = lines.iter().map(|l| l.0.into()).collect();
        let mut column = |write: &dyn Fn(&mut parquet::file::writer::SerializedColumnWriter<'_>)| {
            let mut next = group.next_column().unwrap().unwrap();
            write(&mut next);
            next.close().unwrap();
        };
        // Nobody said which kernel it was.
        let absent = vec![0_i16; lines.len()];
        column(&|c| {
            c.typed::<ByteArrayType>().write_batch(&[], Some(&absent), None).unwrap();
        });
        column(&|c| {
            c.typed::<ByteArrayType>().write_batch(&dtypes, None, None).unwrap();
        });
        for counts in [&rows, &sides, &sides] {
            column(&|c| {
                c.typed::<Int64Type>().write_batch(counts, None, None).unwrap();
            });
        }
        column(&|c| {
            c.typed::<DoubleType>().write_batch(&latencies, None, None).unwrap();
        });
        group.close().unwrap();
    }
    writer.close().unwrap();
    path.display().to_string()
}

/// bf16 weights of 16,896², 33,792² and 67,584² on an H100 at 80 % of its peak and 90 % of its bandwidth, of which the longer hides four
/// fifths of the shorter, and 4 µs: c = 2 m n k/989.4e12, w = 2 n k/3.35e12. What m (n + k) values take and give crosses the
/// bus once. All are whole tiles of rows, and whole waves of 132 · 128 columns; three sizes tell computing, crossings and launches apart.
fn products() -> Vec<Line> {
    let took = |m: i64, side: i64| {
        let weights = (side * side) as f64;
        let (c, w) = (2.0 * m as f64 * weights / 989.4e12 / 0.8, 2.0 * weights / 3.35e12 / 0.9);
        let passed = 2.0 * (m * 2 * side) as f64 / 3.35e12;
        ("bfloat16", m, side, (c.max(w) + 0.2 * c.min(w) + passed + 4e-6) * 1e3)
    };
    // 21 is odd: both halves of the rows have all numbers of tokens.
    let rows = |i: i64| [16, 32, 64].get((i % 21) as usize).copied().unwrap_or(i % 21 * 128);
    (0..400).map(|i| took(rows(i), 16_896 << (i / 42 % 3))).collect()
}

#[test]
fn a_folder_of_tables_is_fitted_by_engine_and_version() {
    let folder = tempfile::tempdir().unwrap();
    let lines = products();
    let (first, second) = lines.split_at(150);
    let zstd = Compression::ZSTD(ZstdLevel::default());
    table(folder.path(), "h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet", zstd, &[first, second]);
    let halved: Vec<Line> = lines.iter().map(|l| (l.0, l.1, l.2, l.3 * 2.0)).collect();
    table(folder.path(), "h100_sxm/gemm/sglang/0.5.14/gemm_perf.parquet", Compression::SNAPPY, &[&halved]);
    // What is not modelled is named once, whatever the number of rows.
    let odd = vec![("ternary", 1, 16_384, 1.0); 30];
    table(folder.path(), "h100_sxm/gemm/trtllm/1.0/gemm_perf.parquet", zstd, &[&odd]);
    table(folder.path(), "h100_sxm/mhc/vllm/0.24.0/mhc_module_perf.parquet", zstd, &[&odd]);
    table(folder.path(), "abacus/gemm/vllm/0.24.0/gemm_perf.parquet", zstd, &[&odd]);
    let out = folder.path().join("out.toml").display().to_string();
    let place = folder.path().display();
    let (answer, code) = json(&format!("calibrate --kernels {place} --out {out}"));
    assert_eq!(code, 0);
    let fits = answer["kernels"].as_array().unwrap();
    let of = |engine: &str| fits.iter().find(|f| f["backend"] == engine).unwrap();
    let near = |value: &serde_json::Value, to: f64| (value.as_f64().unwrap() / to - 1.0).abs() < 0.01;
    let (vllm, sglang) = (of("vllm"), of("sglang"));
    assert_eq!(
        (fits.len(), vllm["version"].as_str(), vllm["rows"].as_u64()),
        (2, Some("0.24.0"), Some(400)),
        "{answer}"
    );
    assert!(vllm["source"].is_null(), "{vllm}");
    assert!(near(&vllm["compute"], 0.8) && near(&vllm["memory"], 0.9), "{vllm}");
    assert!(near(&sglang["compute"], 0.4) && near(&sglang["memory"], 0.45), "{sglang}");
    assert_eq!(
        answer["kernels_unread"],
        serde_json::json!(["accelerator abacus", "gemm dtype ternary", "operator mhc_module"])
    );
    assert_eq!(answer["kernels_skipped"], 30);
    let run = roofcast(&format!("calibrate --kernels {place}"));
    assert!(run.code == 0 && run.out.contains("not modelled, left out: accelerator abacus,"), "{}", run.out);
    assert!(std::fs::read_to_string(out).unwrap().contains("h100-sxm"));
}

#[test]
fn what_is_no_table_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    let refused = |path: &str, words: &[&str]| {
        let run = roofcast(&format!("calibrate --kernels {path}"));
        assert_eq!(run.code, 2, "{} {}", run.out, run.err);
        for word in words {
            assert!(run.err.contains(word), "{word}: {}", run.err);
        }
    };
    refused(&place, &["no tables", ".parquet"]);
    refused(&format!("{place}/none.parquet"), &["none.parquet"]);
    let text = folder.path().join("rows.csv");
    std::fs::write(&text, "a,b\n").unwrap();
    refused(&text.display().to_string(), &["rows.csv", "not a table"]);
    let name = "h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet";
    let broken = folder.path().join(name);
    std::fs::create_dir_all(broken.parent().unwrap()).unwrap();
    std::fs::write(&broken, b"PAR1 and no more").unwrap();
    refused(&place, &["gemm_perf.parquet"]);
    // A row that cannot be: no time is below 0.
    let lines = [("bfloat16", 1, 16_384, 1.0), ("bfloat16", 2, 16_384, -1.0)];
    table(folder.path(), name, Compression::UNCOMPRESSED, &[&lines]);
    refused(&place, &["gemm_perf.parquet:2", "latency", "-1"]);
    // Neither files nor tables.
    assert_eq!(roofcast("calibrate").code, 2);
}
