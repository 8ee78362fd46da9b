//! Work of a pool's accelerators in a run, by which they draw power.
//!
//! Knows: the bytes and FLOPs of a pool's mean step of decodes and of its mean step with a prompt, in seconds at full rates. Knows
//! nothing about watts.

use super::TimeShares;
use crate::tally::Tally;
use roofcast_ask::deployment::Deployment;
use roofcast_cost::cost::{Utilization, limit};
use roofcast_facts::batch::{Batch, Sequences};

/// Counts the work of the replicas of a pool in their `times`.
pub(super) fn count(deployment: &Deployment, tallies: &[&Tally], times: &mut [TimeShares]) {
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(|tally| of(tally)).sum::<u64>();
    let steps = sum(|tally| tally.steps);
    if steps == 0 {
        return;
    }
    let decodes = sum(|tally| tally.decoding_steps);
    let drafted = sum(|tally| tally.drafted_tokens);
    let contexts: u128 = tallies.iter().map(|tally| tally.token_steps).sum();
    let context = mean(contexts as f64, sum(|tally| tally.running_steps)).max(1);
    let decoding = match mean(decodes as f64, sum(|tally| tally.decode_steps)) {
        0 => Batch::default(),
        each => {
            let all = each * deployment.parallelism.replicas;
            Batch::verify(all, context, mean(drafted as f64, decodes))
        }
    };
    let prompts = sum(|tally| tally.scheduled_tokens).saturating_sub(decodes + drafted);
    // A prompt is taken to be computed in one step.
    let admitted = sum(|tally| tally.admitted).clamp(1, steps);
    let with_prompt = if prompts > 0 { admitted } else { 0 };
    let chunk = mean(prompts as f64, with_prompt).max(1);
    let mut mixed = decoding.clone();
    let each = Sequences::prompt(chunk, chunk, true);
    mixed.groups.push(Sequences { count: deployment.parallelism.replicas, ..each });
    let [of_decodes, of_mixed] = [&decoding, &mixed].map(|batch| seconds(deployment, batch));
    for (time, tally) in times.iter_mut().zip(tallies) {
        let share = tally.steps as f64 / steps as f64;
        let [alone, mixed] = [(steps - with_prompt) as f64, with_prompt as f64].map(|number| number * share);
        time.reading_s = of_decodes[0] * alone + of_mixed[0] * mixed;
        time.arithmetic_s = of_decodes[1] * alone + of_mixed[1] * mixed;
    }
}

/// Mean of a sum over `number` in whole units; 0 of none.
fn mean(sum: f64, number: u64) -> u64 {
    if number > 0 { (sum / number as f64).round() as u64 } else { 0 }
}

/// Seconds of a step's bytes at full bandwidth, and of its FLOPs at the peak rates.
fn seconds(deployment: &Deployment, batch: &Batch) -> [f64; 2] {
    if batch.groups.is_empty() {
        return [0.0; 2];
    }
    let terms = limit(deployment, batch, Utilization::FULL).terms;
    [terms.weights.seconds() + terms.kv.seconds(), terms.flops.seconds()]
}
