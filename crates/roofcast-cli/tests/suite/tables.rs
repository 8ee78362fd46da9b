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

/// A GEMM: dtype, rows, side of its square weight matrix, and its time in milliseconds.
type Line = (&'static str, i64, i64, f64);

/// Writes a Parquet table below `folder`, with a row group for each of `groups`; returns its path.
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
        // The column of the kernel's name is null.
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

/// Times of square GEMMs of 8,192 in bf16 on an H100, whose weights of 134.2 MB take 40.06 µs at 3.35 TB/s: 50 µs up to
/// 64 rows, 60 µs at 256, 200 µs at 1,024; each multiplied by `times`.
fn squares(times: f64) -> Vec<Line> {
    let row = |(m, microseconds): (i64, f64)| ("bfloat16", m, 8_192, microseconds * times * 1e-3);
    [(1, 50.0), (64, 50.0), (256, 60.0), (1024, 200.0)].map(row).to_vec()
}

#[test]
fn a_folder_of_tables_becomes_a_file_of_times() {
    let folder = tempfile::tempdir().unwrap();
    let lines = squares(1.0);
    let (first, second) = lines.split_at(1);
    let zstd = Compression::ZSTD(ZstdLevel::default());
    table(folder.path(), "h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet", zstd, &[first, second]);
    let slower = squares(2.0);
    table(folder.path(), "h100_sxm/gemm/sglang/0.5.14/gemm_perf.parquet", Compression::SNAPPY, &[&slower]);
    // Rows of unknown formats are counted, and files that are not used are named.
    let odd = vec![("ternary", 1, 16_384, 1.0); 30];
    table(folder.path(), "h100_sxm/gemm/trtllm/1.0/gemm_perf.parquet", zstd, &[&odd]);
    table(folder.path(), "h100_sxm/mhc/vllm/0.24.0/mhc_module_perf.parquet", zstd, &[&odd]);
    table(folder.path(), "abacus/gemm/vllm/0.24.0/gemm_perf.parquet", zstd, &[&odd]);
    let kept = tempfile::tempdir().unwrap();
    let (place, out) = (folder.path().display(), kept.path().join("times.bin"));
    let command = format!("calibrate --kernels {place} --source Ours --out {}", out.display());
    let (answer, code) = json(&command);
    assert_eq!((code, answer["schema"].as_str()), (0, Some("roofcast/kernel-times/1")), "{answer}");
    assert_eq!(answer["dropped"], serde_json::json!({"unknown-format": 30}));
    let unused = serde_json::json!({"accelerator abacus": 1, "table mhc_module": 1});
    assert_eq!((&answer["unused"], answer["files"].as_array().unwrap().len()), (&unused, 3));
    let bytes = std::fs::read(&out).unwrap();
    assert_eq!(answer["bytes"], bytes.len());
    let times = roofcast::profile::Profiles::read("times.bin", &bytes).unwrap();
    let [sglang, vllm] = &times.sections[..] else { panic!("{times:?}") };
    assert_eq!((&*sglang.engine, &*vllm.engine, &*vllm.version), ("sglang", "vllm", "0.24.0"));
    // 256 rows take 60 µs and 1,024 take 200 µs; the file rounds to steps, of which half is 0.27 %.
    let at = |section: &roofcast::profile::Section, m: f64| section.curve(0).unwrap().at(m) * 1e6;
    assert!((at(vllm, 256.0) / 60.0 - 1.0).abs() < 0.003 && (at(sglang, 1024.0) / 400.0 - 1.0).abs() < 0.003);
    let sources = std::fs::read_to_string(kept.path().join("times.sources.csv")).unwrap();
    for line in [
        "# Ours",
        "# omitted: 30 rows of formats that are not known",
        "# not used, with files: accelerator abacus (1), table mhc_module (1)",
        "h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet,0.24.0,4,4",
    ] {
        assert!(sources.lines().any(|l| l == line), "{line}: {sources}");
    }
    let run = roofcast(&command);
    assert!(run.code == 0 && run.out.contains("in 2 sections"), "{}{}", run.out, run.err);
    assert_eq!(std::fs::read(&out).unwrap(), bytes);
    let run = roofcast(&format!("{command} --per-row rows.csv"));
    assert!(run.code == 2 && run.err.contains("--per-row"), "{}", run.err);
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
    // A row with a time below 0 is refused.
    let lines = [("bfloat16", 1, 16_384, 1.0), ("bfloat16", 2, 16_384, -1.0)];
    table(folder.path(), name, Compression::UNCOMPRESSED, &[&lines]);
    refused(&place, &["gemm_perf.parquet:2", "latency", "-1"]);
    // Neither files nor tables are given.
    assert_eq!(roofcast("calibrate").code, 2);
}
