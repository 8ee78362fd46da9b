//! Measured rows that the program carries.
//!
//! Knows: the batches that FasterTransformer's guide publishes for GPT models on A100s, with which the text of seed 001
//! compares its formulas. Knows nothing about forecasts.

/// Rows of one source.
struct Rows {
    name: &'static str,
    /// CSV of the columns that differ between rows.
    text: &'static str,
    /// The other columns, each with its value.
    constant: &'static [(&'static str, &'static str)],
}

/// Latencies of whole batches: <https://github.com/NVIDIA/FasterTransformer/blob/main/docs/gpt_guide.md>.
const FASTERTRANSFORMER: Rows = Rows {
    name: "fastertransformer",
    text: include_str!("../../catalog/measured/fastertransformer.csv"),
    constant: &[
        ("source", "fastertransformer_docs"),
        ("kind", "offline_static_batch"),
        ("hardware", "a100-sxm-80gb"),
        ("engine", "fastertransformer"),
        ("engine_version", "5.x docs"),
        ("weights", "fp16"),
        ("kv_cache", "fp16"),
        ("stat", "mean"),
    ],
};

/// A measurements CSV that the program carries by this name; `None` for another name.
pub fn carried(name: &str) -> Option<String> {
    let rows = [FASTERTRANSFORMER].into_iter().find(|rows| rows.name == name)?;
    let names: String = rows.constant.iter().map(|(column, _)| format!(",{column}")).collect();
    let values: String = rows.constant.iter().map(|(_, value)| format!(",{value}")).collect();
    let line =
        |(number, line): (usize, &str)| format!("{line}{}\n", if number == 0 { &names } else { &values });
    Some(rows.text.lines().enumerate().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::read;

    /// 78 rows of 530B, 42 of the three small models and 26 of 89B and 175B are the first 146, 174 others follow. The
    /// first row of the guide's table: 530B over 16 A100s, a prompt of 20 and 8 tokens, 565 ms.
    #[test]
    fn all_rows_are_read() {
        let rows = read("fastertransformer", &carried("fastertransformer").unwrap()).unwrap();
        assert_eq!(rows.len(), 146 + 174);
        let first = &rows[0];
        assert_eq!(
            (first.model.as_str(), first.hardware.as_str()),
            ("fastertransformer/megatron-530b", "a100-sxm-80gb")
        );
        assert_eq!((first.parallelism.tp, first.measured.e2e_ms), (Some(16), Some(565.0)));
        assert_eq!(carried("nothing"), None);
    }
}
