//! The limit against thousands of measured steps: none may be faster.

use crate::support::{catalog, model};
use roofcast::cost::{Utilization, cost};
use roofcast::deployment::Options;
use roofcast::operator::Batch;
use roofcast::parallelism::Request;
use roofcast::spec::PrecisionSpec;
use roofcast::{Deployment, memory};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One measured step time of a real engine.
struct Row<'a>(BTreeMap<&'a str, &'a str>);

impl Row<'_> {
    fn number(&self, key: &str) -> Option<f64> {
        self.0[key].parse().ok()
    }

    fn count(&self, key: &str) -> Option<u64> {
        self.number(key).map(|n| n as u64).filter(|n| *n > 0)
    }

    /// Tokens of a sequence halfway through its output; lengths are uniform where a least one is given.
    fn context(&self) -> Option<u64> {
        let mean = |key: &str, least: &str| {
            let most = self.number(key)?;
            Some((most + self.number(least).unwrap_or(most)) / 2.0)
        };
        let halfway = || {
            Some((mean("input_len", "input_len_min")? + mean("output_len", "output_len_min")? / 2.0) as u64)
        };
        self.count("context_len").or_else(halfway)
    }

    fn deployment(&self) -> Deployment {
        let eight = self.0["engine"] == "tensorrt-llm" && ["fp8", "nvfp4"].contains(&self.0["weights"]);
        let kv = match self.0["kv_cache"] {
            "" if eight => Some("fp8".to_owned()),
            "" => None,
            named => Some(named.to_owned()),
        };
        let (tp, dp) = (self.count("tp").unwrap_or(1), self.count("attention_dp").unwrap_or(1));
        let options = Options {
            precision: PrecisionSpec { weights: Some(self.0["weights"].to_owned()), activations: None, kv },
            parallelism: Request {
                count: self.count("gpus"),
                tp: Some(tp),
                pp: self.count("pp"),
                ep: self.count("ep").map(|ep| ep.min(tp * dp)).filter(|ep| *ep > 1),
                attention_dp: Some(dp),
                replicas: None,
            },
            ideal: false,
            ..Options::default()
        };
        let chip = catalog().accelerator(self.0["hardware"]).unwrap().clone();
        Deployment::resolve(model(self.0["model"]), Arc::new(chip), &options).unwrap()
    }
}

/// Requests in flight beyond what the memory holds wait: the batch is what fits. The rows were measured by others; no
/// figure here was fitted to them.
#[test]
fn no_measured_step_beats_its_limit() {
    let file =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/validation/measurements.csv");
    let Ok(text) = std::fs::read_to_string(file) else {
        eprintln!("the measurements are not beside the checkout: nothing was compared");
        return;
    };
    let header: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    let mut compared = 0;
    for line in text.lines().skip(1) {
        let row = Row(header.iter().copied().zip(line.split(',')).collect());
        let step = ["closed_loop", "decode_step"].contains(&row.0["kind"]);
        let (Some(measured), Some(context), true) = (row.number("tpot_ms"), row.context(), step) else {
            continue;
        };
        let deployment = row.deployment();
        let fits = memory::sequences(&deployment, context).saturating_mul(deployment.parallelism.replicas);
        let batch = row.count("concurrency").unwrap_or(1).min(fits.max(1));
        let limit = cost(&deployment, &Batch::decode(batch, context), Utilization::FULL).limit.ms();
        assert!(limit <= measured, "{}: measured {measured} ms, limit {limit} ms", row.0["id"]);
        compared += 1;
    }
    assert!(compared > 2000, "only {compared} rows");
}
