//! Speculative decoding: drafts of the next tokens, which the model verifies in one step (Leviathan et al., ICML
//! 2023).
//!
//! Knows: a share of a sequence's steps has drafts; each draft is accepted with a probability that depends on its position
//! in the step and on the drafts before it; drafts after the first mismatch are rejected; and the time of drafting. Drafts
//! and acceptance depend only on the request and the position in its output, not on the replica or the time. Knows nothing about how tokens are scheduled.

use super::price::StepPrices;
use roofcast_ask::workload::random::{Purpose, Stream};
use roofcast_cost::forecaster::Forecaster;
use roofcast_facts::batch::{Seen, Sequences};
use roofcast_facts::error::{Error, Result};
use roofcast_facts::shares::BottleneckShares;

/// Drafting, and acceptance of drafts.
#[derive(Debug, Clone)]
pub(crate) struct Speculation {
    count: u64,
    /// Probability that a step has drafts.
    share: f64,
    /// For each draft of a step with drafts, the probability that it and all earlier ones are accepted.
    reached: Vec<f64>,
    stream: Stream,
    /// Draws of the latest requests, by request number modulo [`DRAWN`].
    latest: Vec<Drawn>,
    drafter: Drafter,
}

/// Draws of one request, from an output position on.
#[derive(Debug, Clone, Copy, Default)]
struct Drawn {
    request: Option<u64>,
    /// Position of the first draw.
    first: u64,
    draws: [f64; AHEAD],
}

impl Drawn {
    /// Draws of a request around an output position, from a block of the generator on, which has eight.
    fn of(stream: &mut Stream, request: u64, generated: u64) -> Drawn {
        let first = generated - generated % 8;
        let draws = stream.units_at(u128::from(request) * PLACES + u128::from(first));
        Drawn { request: Some(request), first, draws }
    }

    fn has(&self, request: u64, generated: u64) -> bool {
        self.request == Some(request) && (self.first..self.first + AHEAD as u64).contains(&generated)
    }
}

/// Source of drafts, by its cost.
#[derive(Debug, Clone)]
enum Drafter {
    /// A method that takes this fraction of the model's step time per drafted token.
    Share(f64),
    /// A draft model, with the prices of its steps.
    Model(Box<StepPrices>),
}

/// Number of draws that one refill of the generator gives.
const AHEAD: usize = 32;
/// Number of requests whose draws are kept.
const DRAWN: usize = 256;

/// Number of draws reserved for each request, more than a request has tokens.
const PLACES: u128 = 1 << 32;

impl Speculation {
    /// Speculation of a deployment; `None` without drafts. `seed` seeds the draws of acceptance.
    pub(crate) fn resolve(forecaster: &Forecaster, seed: u64) -> Result<Option<Speculation>> {
        let deployment = &forecaster.deployment;
        let Some((spec, reached)) = deployment.engine.drafts()? else { return Ok(None) };
        let drafter = match (spec.cost(), &forecaster.draft) {
            (Some(share), _) => Drafter::Share(share),
            (None, Some(draft)) => {
                Drafter::Model(Box::new(StepPrices::new(draft.timing(deployment.engine.cost))))
            }
            (None, None) => {
                let draft_name = spec.draft_model.as_deref().unwrap_or_default();
                return Err(Error::field(
                    "engine.speculative",
                    "draft_model",
                    draft_name,
                    "a model handed in",
                ));
            }
        };
        Ok(Some(Speculation {
            count: spec.num_speculative_tokens,
            share: spec.share()?,
            reached,
            stream: Stream::new(seed, Purpose::Acceptance),
            latest: vec![Drawn::default(); DRAWN],
            drafter,
        }))
    }

    /// Number of drafts proposed after token number `generated` of request `request`.
    pub(crate) fn proposed(&mut self, request: u64, generated: u64) -> u64 {
        let has_drafts = self.share >= 1.0 || self.drawn(request, generated) <= self.share;
        if has_drafts { self.count } else { 0 }
    }

    /// Number of accepted drafts, of `drafts` that follow token number `generated` of request `request`. One draw decides
    /// whether there are drafts, and how many are accepted.
    pub(crate) fn accepted(&mut self, request: u64, generated: u64, drafts: u64) -> u64 {
        let drawn = self.drawn(request, generated);
        let is_kept = |reached: &&f64| drawn <= self.share * **reached;
        self.reached.iter().take(drafts as usize).take_while(is_kept).count() as u64
    }

    fn drawn(&mut self, request: u64, generated: u64) -> f64 {
        let drawn = &mut self.latest[request as usize % DRAWN];
        if !drawn.has(request, generated) {
            *drawn = Drawn::of(&mut self.stream, request, generated);
        }
        drawn.draws[(generated - drawn.first) as usize]
    }

    /// Time of drafting for sequences with contexts `sampling`, after a step that took `step` and also computed
    /// `prompts`. A draft model drafts one token of every sequence in each pass, and computes prompts in the first
    /// pass.
    pub(crate) fn drafting(
        &mut self,
        sampling: &[u64],
        prompts: &[Sequences],
        step: BottleneckShares<u64>,
    ) -> BottleneckShares<u64> {
        let price = match &mut self.drafter {
            Drafter::Share(share) => {
                let passes = if sampling.is_empty() { 0.0 } else { self.count as f64 };
                return step.scaled(*share * passes);
            }
            Drafter::Model(price) => price,
        };
        let passes = if sampling.is_empty() { 1 } else { self.count };
        let reaches = price.reaches().to_vec();
        let pass_shares = |pass: u64| {
            let seen = |reach: u64| sampling.iter().map(|c| (c + pass).min(reach)).sum();
            let within: Vec<u64> = reaches.iter().copied().map(seen).collect();
            let prompts = if pass == 0 { prompts } else { &[] };
            let seen = Seen { all: seen(u64::MAX), within: &within };
            price.mixed(sampling.len() as u64, seen, prompts).1
        };
        (0..passes).map(pass_shares).fold(BottleneckShares::default(), BottleneckShares::plus)
    }
}
