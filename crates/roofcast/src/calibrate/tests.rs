//! Tests of fits to rows.

use super::*;
use crate::measurement::read;

const HEADER: &str =
    "id,source,kind,model,hardware,gpus,tp,engine,engine_version,weights,input_len,output_len,ttft_ms";

fn rows(lines: &[&str]) -> Vec<Measurement> {
    read("f.csv", &format!("{HEADER}\n{}\n", lines.join("\n"))).unwrap()
}

/// A fit forecasts rows of a kernel with shares of its own, here AWQ's of vLLM 0.4.2, as its calibration does for a user: times
/// twice as long as they were do not move what that kernel computes.
#[test]
fn a_fit_forecasts_as_its_calibration_does() {
    let line = |tokens: u64, ms: f64| {
        format!("{tokens},x,prefill,Qwen/Qwen1.5-7B-Chat,rtx-4090,1,1,vllm,0.4.2,awq-int4,{tokens},1,{ms}")
    };
    let lines = [line(64, 28.1), line(128, 48.3), line(200, 73.9), line(300, 147.9)];
    let rows = rows(&lines.each_ref().map(String::as_str));
    let catalog = Catalog::embedded().unwrap();
    let files = BTreeMap::from([("x".to_owned(), "f.csv".to_owned())]);
    let fit = Fit::new(&rows, files, catalog, Calibration::embedded().unwrap()).unwrap();
    let fitted = fit.in_sample();
    let tables = BTreeMap::from([(LeaveOut::Group, fitted.clone())]);
    let calibration = fit.finish(&tables, "x").calibration;
    let asked = crate::validate::points(&rows, catalog, &calibration);
    let ttft = |points: &[Point]| -> Vec<f64> {
        points.iter().map(|p| p.forecast.as_ref().unwrap().ttft_ms.unwrap()).collect()
    };
    let (fitted, asked) = (ttft(&fitted), ttft(&asked));
    assert_eq!(fitted.len(), lines.len());
    for (a, b) in fitted.iter().zip(&asked) {
        assert!((a / b - 1.0).abs() < 0.005, "{fitted:?} {asked:?}");
    }
}

/// Products in 16 bits have slopes of their own where experts alone are quantized, or weights may be unpacked: by AWQ's kernel
/// from 256 rows on, by Marlin on the way; not where all products have one format.
#[test]
fn products_of_two_sorts() {
    let rows = rows(&[
        "a,x,prefill,openai/gpt-oss-120b,h100-sxm,1,1,vllm,0.11.0,mxfp4,64,1,9",
        "b,x,prefill,Qwen/Qwen1.5-7B-Chat,rtx-4090,1,1,vllm,0.4.2,awq-int4,64,1,9",
        "c,x,prefill,Qwen/Qwen1.5-7B-Chat,rtx-4090,1,1,vllm,0.11.0,awq-int4,64,1,9",
        "d,x,prefill,meta-llama/Llama-3.1-8B-Instruct,h100-sxm,1,1,vllm,0.11.0,fp8,64,1,9",
        "e,x,prefill,meta-llama/Llama-3.1-8B-Instruct,h100-sxm,1,1,vllm,0.11.0,bf16,64,1,9",
    ]);
    let mut resolver = Resolver::new(Catalog::embedded().unwrap());
    let sorts: Vec<bool> = rows.iter().map(|row| has_two_sorts(&resolver.deployment(row).unwrap())).collect();
    assert_eq!(sorts, [true, true, true, false, false]);
}
