//! The limit against thousands of measured steps: none may be faster.

use crate::support::{catalog, data, shared};
use roofcast::calibration::Calibration;
use roofcast::measurement::{Kind, read};
use roofcast::validate::{Resolver, point, points, report};

/// Requests in flight beyond what the memory holds wait: the batch is what fits. The rows were measured by others; no
/// figure here was fitted to them.
#[test]
fn no_measured_step_beats_its_limit() {
    let Some(file) = shared("validation/measurements.csv") else { return };
    let rows = read("measurements.csv", &std::fs::read_to_string(file).unwrap()).unwrap();
    let mut resolver = Resolver::new(catalog());
    let mut compared = 0;
    for row in rows.iter().filter(|r| [Kind::ClosedLoop, Kind::DecodeStep].contains(&r.kind)) {
        let limit = point::limits(row, &resolver.deployment(row).unwrap());
        let (Some(measured), Some(limit)) = (row.measured.tpot_ms, limit.tpot_ms) else { continue };
        assert!(limit <= measured, "{}: measured {measured} ms, limit {limit} ms", row.id);
        compared += 1;
    }
    assert!(compared > 2000, "only {compared} rows");
}

/// One row of each hundred: nearly all are forecast, and none of those faster than its limit.
#[test]
fn forecasts_stand_beside_measurements_and_above_limits() {
    let Some(file) = shared("validation/measurements.csv") else { return };
    let rows = read("measurements.csv", &std::fs::read_to_string(file).unwrap()).unwrap();
    let some: Vec<_> = rows.into_iter().step_by(97).collect();
    let points = points(&some, catalog(), Calibration::embedded().unwrap());
    for point in &points {
        let Ok(forecast) = &point.forecast else { continue };
        let pairs = [(forecast.tpot_ms, point.limit.tpot_ms), (forecast.ttft_ms, point.limit.ttft_ms)];
        for (forecast, limit) in pairs.into_iter().filter_map(|(f, l)| f.zip(l)) {
            // Requests of a run differ in length; the limit is that of the mean one.
            assert!(forecast >= limit * 0.97, "{}: forecast {forecast}, limit {limit}", point.row.id);
        }
    }
    let report = report(&points);
    let left_out: u64 = report.skipped.iter().map(|s| s.rows).sum();
    assert_eq!(report.whole.rows, report.whole.predicted + left_out);
    assert!(report.whole.predicted * 100 >= report.whole.rows * 95, "{:?}", report.skipped);
}

/// 4224 tokens of a model of 4096: its engine ran with the maximum raised.
#[test]
fn what_ran_beyond_its_models_maximum_is_forecast() {
    let text = "source,kind,model,hardware,tp,engine,weights,input_len,output_len,concurrency,ttft_ms,tpot_ms\n\
        mine,static_batch_phases,meta-llama/Llama-2-70b-hf,h100-sxm,8,vllm,fp16,4096,128,1,400,30\n";
    let rows = read("f.csv", text).unwrap();
    let points = points(&rows, catalog(), Calibration::embedded().unwrap());
    let forecast = points[0].forecast.as_ref().unwrap();
    assert!(forecast.ttft_ms > points[0].limit.ttft_ms && forecast.tpot_ms > points[0].limit.tpot_ms);
}

/// Every 131st row, which a clone carries: none beats its limit, and half of the steps are forecast within 10 % (all rows of
/// the file within 4; they were fitted to).
#[test]
fn measured_rows_beside_the_tests() {
    let rows = read("measured.csv", &std::fs::read_to_string(data("measured.csv")).unwrap()).unwrap();
    let points = points(&rows, catalog(), Calibration::embedded().unwrap());
    let told: Vec<_> = points.iter().filter(|p| p.forecast.is_ok()).collect();
    assert!(told.len() * 20 >= points.len() * 19, "{} of {} forecast", told.len(), points.len());
    let mut errors: Vec<f64> =
        told.iter().filter_map(|p| p.ratio(1)).map(|ratio| (ratio - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    assert!(errors.len() > 10 && errors[errors.len() / 2] < 0.1, "{errors:?}");
}
