//! Specs that a plan cannot answer.
//!
//! Knows: the keys that a plan decides or does not judge, and loads without an end. Knows nothing about the search.

use roofcast_ask::spec::Spec;
use roofcast_ask::workload::{Arrivals, Workload};
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::Model;

/// What to do about images, whose encoder a plan's estimates do not count.
pub(super) const UNPLANNED_IMAGES: &str = "omitted: `simulate` counts the encoder of images, a plan does not";

/// Reason for which a plan refuses classes of requests.
const UNJUDGED_CLASSES: &str = "classes without a slo of their own in a plan, which judges all requests by [slo]: simulate --find judges classes";

/// Refuses specs that a plan cannot answer.
pub(super) fn check(spec: &Spec, workload: &Workload) -> Result<()> {
    let decided = [
        ("fleet.prefill", spec.fleet.prefill.is_some()),
        ("fleet.decode", spec.fleet.decode.is_some()),
        ("fleet.beside", spec.fleet.beside.is_some()),
        ("fleet.link", spec.fleet.link.is_some()),
        ("fleet.max_local_prefill_length", spec.fleet.max_local_prefill_length.is_some()),
        ("fleet.non_cached_tokens", spec.fleet.non_cached_tokens.is_some()),
        ("fleet.autoscale", spec.fleet.autoscale.is_some()),
        ("fleet.schedule", spec.fleet.schedule.is_some()),
    ];
    if let Some((field, _)) = decided.iter().find(|(_, set)| *set) {
        let accepted = "omitted: the plan decides how replicas are combined ([search] has disaggregated, mixed and \
                        link)";
        return Err(Error::field("spec", *field, "set", accepted));
    }
    let varied =
        [("fleet.failures", spec.fleet.failures.is_some()), ("fleet.slow", spec.fleet.slow.is_some())];
    if let Some((field, _)) = varied.iter().find(|(_, set)| *set) {
        let accepted = "omitted in a plan, whose replicas are equal and stay up: simulate shows what they do";
        return Err(Error::field("spec", *field, "set", accepted));
    }
    if spec.fleet.rate_limit.is_some() {
        let accepted = "omitted: a plan is for all that comes, not for what a gateway admits";
        return Err(Error::field("spec", "fleet.rate_limit", "set", accepted));
    }
    unjudged(workload)?;
    workload.without_images("spec", UNPLANNED_IMAGES)?;
    if let Some(most) = workload.max_concurrency {
        let accepted = "omitted: a plan is for all that comes, not for what a client holds back";
        return Err(Error::field("spec", "workload.max_concurrency", most, accepted));
    }
    if spec.engine.speculative.as_ref().is_some_and(|s| s.draft_model.is_some()) {
        let accepted = "draft_cost, which is the same on every deployment";
        return Err(Error::field("spec", "engine.speculative.draft_model", "set", accepted));
    }
    let confidence = spec.search.as_ref().and_then(|search| search.confidence);
    if let Some(share) = confidence.filter(|share| !(0.0..1.0).contains(share)) {
        let accepted = "a chance from 0 to below 1, as 0.8";
        return Err(Error::field("spec", "search.confidence", share, accepted));
    }
    money(spec)?;
    match &workload.arrivals {
        Arrivals::Offline | Arrivals::Burst { size: None, .. } => {
            let accepted = "a load that lasts: a plan is for what can be sustained";
            Err(Error::field("spec", "workload.arrivals", "all at one time", accepted))
        }
        Arrivals::Trace(replay) if replay.has_sessions() => {
            let accepted = "requests, or kind = \"sessions\": simulate replays recorded sessions";
            Err(Error::field("spec", "workload.arrivals", "a trace of sessions", accepted))
        }
        Arrivals::Trace(replay) if replay.recorded.is_some() && workload.arrivals.rate().is_none() => {
            let accepted = "a trace over some time, or closed_loop";
            Err(Error::field("spec", "workload.arrivals", "all at one time", accepted))
        }
        _ => Ok(()),
    }
}

/// Refuses classes with bounds of their own.
pub(super) fn unjudged(workload: &Workload) -> Result<()> {
    match workload.classes.iter().find(|class| class.slo.is_bounded()) {
        None => Ok(()),
        Some(class) => {
            let found = format!("a slo of the class {:?}", class.name);
            Err(Error::field("spec", "workload.classes", found, UNJUDGED_CLASSES))
        }
    }
}

/// Refuses requests of `tokens` tokens on average that are longer than any engine of the search serves.
pub(super) fn too_long(spec: &Spec, model: &Model, tokens: u64) -> Result<()> {
    let longest = [model.max_context, spec.engine.max_model_len].into_iter().flatten().min();
    let Some(most) = longest.filter(|most| tokens > *most) else { return Ok(()) };
    let found = format!("{tokens} tokens a request with its output");
    let key = match spec.engine.max_model_len {
        Some(own) if own == most => "engine.max_model_len",
        _ => "the model's own maximum",
    };
    Err(Error::field(
        "spec",
        "workload.input_len",
        found,
        format!("at most {most} with workload.output_len ({key})"),
    ))
}

/// Refuses prices that nobody asks.
fn money(spec: &Spec) -> Result<()> {
    /// Dollars above which a price is an error of units.
    const MOST: f64 = 1e4;
    let Some(search) = &spec.search else { return Ok(()) };
    if let Some(usd) = search.usd_per_kwh.filter(|usd| !(*usd > 0.0 && *usd <= MOST)) {
        return Err(Error::field(
            "spec",
            "search.usd_per_kwh",
            usd,
            format!("above 0, at most {MOST} dollars"),
        ));
    }
    let Some(api) = search.against_api else { return Ok(()) };
    let sane = |usd: &f64| (0.0..=MOST).contains(usd);
    let prices = [api.input, api.output, api.cached.unwrap_or(0.0)];
    if let Some(usd) = prices.iter().find(|usd| !sane(usd)) {
        let accepted = format!("0 to {MOST} dollars per million tokens");
        return Err(Error::field("spec", "search.against_api", usd, accepted));
    }
    if api.input + api.output <= 0.0 {
        return Err(Error::field("spec", "search.against_api", "0 and 0", "a price above 0"));
    }
    Ok(())
}
