//! Bounds of histograms that the user chooses.
//!
//! Knows: the families and checks of vLLM 0.33's `--custom-histogram-buckets` (`v1/metrics/buckets.py`). Knows nothing about
//! single metrics.

use super::histogram::Histogram;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Families of histograms. The emulator has no histogram of the last.
const FAMILIES: [&str; 8] = [
    "request_latency",
    "time_to_first_token",
    "inter_token_latency",
    "iteration_tokens",
    "request_params_n",
    "request_num_preemptions",
    "request_tokens",
    "kv_cache_residency",
];

/// Bounds of histograms by family, in place of the usual ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Buckets(BTreeMap<String, Vec<f64>>);

impl Buckets {
    /// Reads a JSON object of lists by family; the error names what is accepted.
    pub fn parse(text: &str) -> Result<Buckets, String> {
        let accepted = || {
            let families = FAMILIES.join(", ");
            format!("{{\"FAMILY\": [BOUND, …]}} with bounds above 0 that rise, and a FAMILY of {families}")
        };
        let written: Map<String, Value> = serde_json::from_str(text).map_err(|_| accepted())?;
        let bounds = |(family, bounds): (String, Value)| {
            let bounds: Vec<f64> = bounds.as_array()?.iter().map(Value::as_f64).collect::<Option<_>>()?;
            let rise = bounds.windows(2).all(|pair| pair[0] < pair[1]);
            let sane = rise && bounds.first().is_some_and(|first| *first > 0.0);
            (sane && FAMILIES.contains(&family.as_str())).then_some((family, bounds))
        };
        written.into_iter().map(bounds).collect::<Option<_>>().map(Buckets).ok_or_else(accepted)
    }

    /// An empty histogram of a family, `usual` unless the user gives its bounds.
    pub(super) fn of(&self, family: &str, usual: Histogram) -> Histogram {
        self.0.get(family).map_or(usual, |bounds| Histogram::new(bounds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_checked_as_vllms() {
        let buckets = Buckets::parse(r#"{"request_latency": [0.01, 0.5, 1]}"#).unwrap();
        let bucket_count = |family| buckets.of(family, Histogram::new(&[7.0])).cumulated().count();
        // Three bounds and the last bucket, or one and the last.
        assert_eq!((bucket_count("request_latency"), bucket_count("request_tokens")), (4, 2));
        for wrong in [
            "{",
            "[]",
            r#"{"nothing": [1]}"#,
            r#"{"request_latency": []}"#,
            r#"{"request_latency": [2, 1]}"#,
            r#"{"request_latency": [0, 1]}"#,
            r#"{"request_latency": 3}"#,
        ] {
            assert!(
                Buckets::parse(wrong).unwrap_err().contains("request_latency, time_to_first_token"),
                "{wrong}"
            );
        }
    }
}
