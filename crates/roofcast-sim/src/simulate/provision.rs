//! The replicas that serve a workload, and the deployments on which they run.
//!
//! Knows: equal replicas of one deployment, up to the most that autoscaling may start, or pools of two variations of
//! the deployment, on one or two kinds of accelerator: either one for prefill and one for decode, or two that both
//! serve whole requests. Knows nothing about traffic.

use super::refused::{POOLED, has_pools, uncounted, varied, weighed};
use crate::engine::price::PriceBook;
use crate::engine::settings::runs_by_block;
use crate::engine::{self, Replica};
use crate::fleet::failures::Failures;
use crate::fleet::{Admission, Delivery, Ingest, Life, Pools, RateLimit, Scaling, Servers, TransferPath};
use crate::router::Router;
use crate::scheduler::Policy;
use crate::scheduler::config::EngineConfig;
use roofcast_ask::parallelism::RequestedParallelism;
use roofcast_ask::spec::{FleetSpec, PoolSpec, SlowSpec};
use roofcast_cost::forecaster::Forecaster;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::clock::Ticks;
use roofcast_facts::encoder::PromptImages;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::units::Picoseconds;
use std::iter::repeat_n;
use std::ops::Range;

/// The replicas of a fleet, by pool.
pub(super) struct Provision {
    /// Replicas that only compute prompts; `None` unless prefill is disaggregated.
    pub(super) prefill: Option<ResolvedPool>,
    /// Replicas that decode; they also compute prompts unless prefill is disaggregated.
    pub(super) serving: ResolvedPool,
    /// Replicas on other accelerators that also serve whole requests; `None` without them.
    pub(super) beside: Option<ResolvedPool>,
    fleet: FleetSpec,
}

/// A pool of equal replicas, with its resolved deployment.
pub(super) struct ResolvedPool {
    pub(super) forecaster: Forecaster,
    pub(super) config: EngineConfig,
    policy: Policy,
    /// Mean context of a request in tokens.
    context: u64,
    /// The pool's slower replicas; `None` if all are equal.
    slow: Option<SlowSpec>,
}

/// Mean properties of a workload's requests.
#[derive(Clone, Copy)]
pub(super) struct Requests {
    /// Mean number of tokens of a request when half of its output is generated.
    pub(super) context: u64,
    /// True if prompts share tokens.
    pub(super) shared: bool,
    /// Images of every prompt; `None` if prompts are text.
    pub(super) images: Option<PromptImages>,
}

impl ResolvedPool {
    fn of(forecaster: Forecaster, requests: Requests) -> Result<ResolvedPool> {
        let Requests { context, shared, images } = requests;
        let (mut config, policy) = EngineConfig::resolve(&forecaster.deployment, context, shared)?;
        config.images = images;
        Ok(ResolvedPool { forecaster, config, policy, context, slow: None })
    }

    /// The pool with slower replicas, if `slow` has some.
    fn slowed(self, slow: Option<&SlowSpec>, place: &str) -> Result<ResolvedPool> {
        slow.map_or(Ok(()), |slow| slow.check(place, self.count()))?;
        Ok(ResolvedPool { slow: slow.copied(), ..self })
    }

    /// The accelerator on which the pool runs.
    pub(super) fn chip(&self) -> &Accelerator {
        &self.forecaster.deployment.accelerator
    }

    /// Number of replicas in the pool.
    fn count(&self) -> u64 {
        self.forecaster.deployment.parallelism.replicas
    }

    /// Number of accelerators of each replica.
    pub(super) fn accelerators(&self) -> u64 {
        self.forecaster.deployment.parallelism.count() / self.count()
    }

    fn replicas(&self, seed: u64, leap: bool, prices: &PriceBook) -> Result<Vec<Box<dyn Replica>>> {
        let equal = |count: u64, forecaster: &Forecaster| {
            let settings = (self.config.clone(), self.policy.clone());
            let replica = engine::replicas(forecaster, settings, (self.context, seed), leap, prices)?;
            (0..count).map(|_| replica()).collect::<Result<Vec<_>>>()
        };
        let slowed = |slow: &SlowSpec| {
            equal(slow.replicas.min(self.count()), &self.forecaster.clone().slowed(slow.factor))
        };
        let mut all = self.slow.as_ref().map(slowed).transpose()?.unwrap_or_default();
        all.extend(equal(self.count() - all.len() as u64, &self.forecaster)?);
        Ok(all)
    }
}

impl Provision {
    /// Resolves `[fleet]` for a deployment; `place` names the spec in errors.
    pub(super) fn resolve(
        forecaster: &Forecaster,
        fleet: &FleetSpec,
        requests: Requests,
        place: &str,
    ) -> Result<Provision> {
        fleet.routing.check(place, &fleet.routers())?;
        if let Some(router) = fleet.decode.as_ref().and_then(|pool| pool.router).filter(|r| r.weighs_caches())
        {
            let accepted =
                "round_robin, least_loaded, power_of_two, session_sticky: decode replicas get whole caches";
            return Err(Error::field(place, "fleet.decode.router", router.name(), accepted));
        }
        let scaled = match (&fleet.autoscale, &fleet.schedule) {
            (Some(_), Some(_)) => {
                let accepted = "omitted with fleet.autoscale, which follows the load";
                return Err(Error::field(place, "fleet.schedule", "set", accepted));
            }
            (Some(autoscale), None) => {
                autoscale.check(place)?;
                Some(("fleet.autoscale", autoscale.max_replicas))
            }
            (None, Some(schedule)) => {
                schedule.check(place, "fleet.schedule")?;
                Some(("fleet.schedule", schedule.most()))
            }
            (None, None) => None,
        };
        varied(forecaster, fleet, place)?;
        fleet.local_prefill(place)?;
        if let Some(scaled) = scaled {
            return Provision::scaling(forecaster, fleet, scaled, requests, place);
        }
        let missing = |field: &str, accepted: &str| Err(Error::field(place, field, "missing", accepted));
        let (prefill, decode) = match (&fleet.prefill, &fleet.decode) {
            (None, None) => {
                if let Some(link) = fleet.link {
                    let accepted = "omitted without fleet.prefill and fleet.decode";
                    return Err(Error::field(place, "fleet.link", link.name(), accepted));
                }
                let serving = ResolvedPool::of(forecaster.clone(), requests)?;
                let serving = serving.slowed(fleet.slow.as_ref(), place)?;
                let beside = fleet.beside.as_ref().map(|spec| beside(forecaster, spec, requests, place));
                let beside = beside.transpose()?;
                weighed(fleet, place)?;
                return Ok(Provision { prefill: None, serving, beside, fleet: fleet.clone() });
            }
            (None, Some(_)) => return missing("fleet.prefill", "the pool that computes prompts"),
            (Some(_), None) => return missing("fleet.decode", "the pool that decodes"),
            (Some(prefill), Some(decode)) => (prefill, decode),
        };
        if fleet.beside.is_some() {
            let accepted = "omitted with disaggregated prefill and decode";
            return Err(Error::field(place, "fleet.beside", "set", accepted));
        }
        let engine = &forecaster.deployment.engine;
        uncounted(&forecaster.deployment, "fleet.prefill and fleet.decode have their own replicas", place)?;
        if let Err(reason) = has_pools(engine.scheduler) {
            let accepted = format!("{POOLED} with disaggregated prefill and decode: {reason}");
            return Err(Error::field(place, "engine.scheduler", engine.scheduler.name(), accepted));
        }
        if runs_by_block(engine) {
            let accepted = "vllm without priority, prefill_schedule_interval, long_prefill_token_threshold, \
                            speculative, kv_offloading_size and enable_lora, where prefill and decode are apart";
            return Err(Error::field(place, "engine.scheduler", "one that runs block by block", accepted));
        }
        let mut prefill =
            ResolvedPool::of(pool(forecaster.elsewhere(), prefill, "fleet.prefill", None)?, requests)?;
        prefill.config.hands_over = true;
        prefill.config.by_block = None;
        // A decode replica does not look up prefixes in its cache, because whole KV caches are transferred.
        let mut serving = ResolvedPool::of(pool(forecaster, decode, "fleet.decode", Some(false))?, requests)?;
        serving.config.by_block = None;
        Ok(Provision { prefill: Some(prefill), serving, beside: None, fleet: fleet.clone() })
    }

    /// A pool of equal replicas, with at most `most` replicas of the autoscaling in `section`.
    fn scaling(
        forecaster: &Forecaster,
        fleet: &FleetSpec,
        (section, most): (&str, u64),
        requests: Requests,
        place: &str,
    ) -> Result<Provision> {
        let pools = [
            ("fleet.prefill", fleet.prefill.is_some()),
            ("fleet.decode", fleet.decode.is_some()),
            ("fleet.beside", fleet.beside.is_some()),
            ("fleet.link", fleet.link.is_some()),
        ];
        if let Some((field, _)) = pools.iter().find(|(_, set)| *set) {
            let accepted = format!("omitted together with {section}, which has no pools");
            return Err(Error::field(place, *field, "set", accepted));
        }
        let count = if section == "fleet.autoscale" { "max_replicas" } else { "replicas" };
        uncounted(&forecaster.deployment, &format!("{section} has {count}"), place)?;
        let all = PoolSpec { replicas: Some(most), ..PoolSpec::default() };
        let serving = ResolvedPool::of(pool(forecaster, &all, section, None)?, requests)?;
        let serving = serving.slowed(fleet.slow.as_ref(), place)?;
        Ok(Provision { prefill: None, serving, beside: None, fleet: fleet.clone() })
    }

    /// Starts and stops of the replicas, by load or by a schedule, and their failures.
    pub(super) fn life(&self, seed: u64, place: &str) -> Result<Life> {
        let fleet = &self.fleet;
        let count = self.serving.count() + self.beside.as_ref().map_or(0, ResolvedPool::count);
        let failures = fleet.failures.as_ref().map(|spec| {
            spec.check(place, count)?;
            Ok(Failures::new(spec, count as usize, seed))
        });
        let planned = fleet.schedule.as_ref().map(Scaling::planned);
        let block = u64::from(self.serving.config.block_size);
        let ruled = fleet.autoscale.as_ref().map(|spec| Scaling::new(spec).with_blocks(block));
        let scaling = ruled.or(planned);
        Ok(Life { scaling, failures: failures.transpose()? })
    }

    /// The replicas in order of pool: prefill, serving, on other accelerators.
    pub(super) fn replicas(
        &self,
        seed: u64,
        leap: bool,
        prices: &PriceBook,
    ) -> Result<Vec<Box<dyn Replica>>> {
        let pools = self.prefill.iter().chain([&self.serving]).chain(&self.beside);
        let each = pools.map(|pool| pool.replicas(seed, leap, prices)).collect::<Result<Vec<_>>>()?;
        Ok(each.into_iter().flatten().collect())
    }

    /// Tokens that the caches of all replicas that compute prompts hold, with the tiers below.
    pub(super) fn cached_tokens(&self) -> u64 {
        let of_pool = |pool: &ResolvedPool| {
            let device = pool.config.blocks * u64::from(pool.config.block_size);
            let below = pool
                .config
                .host
                .map_or(0, |host| host.tokens + host.storage.map_or(0, |storage| storage.tokens));
            pool.count() * pool.config.engines() * (device + below)
        };
        of_pool(self.prefill.as_ref().unwrap_or(&self.serving)) + self.beside.as_ref().map_or(0, of_pool)
    }

    /// Delay of KV events on their way to the router; `None` if the router reads the caches themselves.
    pub(super) fn event_delay(&self, place: &str) -> Result<Option<Ticks>> {
        let seconds = self.fleet.routing.event_delay_s;
        let router = self.fleet.router;
        if seconds == 0.0 {
            return Ok(None);
        }
        let mut pools = [Some(&self.serving), self.beside.as_ref()].into_iter().flatten();
        let publishes = |pool: &ResolvedPool| {
            let config = &pool.config;
            config.by_block.is_some() && config.host.is_none() && config.ranks.is_none()
        };
        let accepted = if !router.receives_events() {
            "0 with other routers than dynamo_kv, llm_d, kvaware, kv_aware and lmetric, which receive KV events"
        } else if self.prefill.is_some() || !pools.all(publishes) {
            "0, or the scheduler vllm without windows, attention_dp, pools of prefill and decode, and kv_offloading_size"
        } else {
            return Ok(Some(Ticks::from(Picoseconds::from_seconds(seconds))));
        };
        Err(Error::field(place, "fleet.routing.event_delay_s", seconds, accepted))
    }

    /// The API servers in front of the replicas; none if they add no time.
    fn ingest(&self) -> Servers {
        let pools = self.prefill.iter().chain([&self.serving]).chain(&self.beside);
        let server = |pool: &ResolvedPool| Ingest::of(&pool.forecaster, pool.config.cost);
        let each = pools.flat_map(|pool| repeat_n(server(pool), pool.count() as usize));
        Servers::new(each.collect::<Option<Vec<_>>>().unwrap_or_default())
    }

    /// Number of replicas that only compute prompts.
    pub(super) fn prefillers(&self) -> u64 {
        self.prefill.as_ref().map_or(0, ResolvedPool::count)
    }

    /// The way of requests of the classes `classes` to the replicas.
    pub(super) fn delivery(&self, (seed, classes): (u64, &[&str]), place: &str) -> Result<Delivery> {
        let spec = self.fleet.rate_limit.as_ref();
        spec.map_or(Ok(()), |spec| spec.check(place, classes))?;
        let pools = self.prefill.iter().chain([&self.serving]).chain(&self.beside);
        let replicas = pools.map(ResolvedPool::count).sum::<u64>() as usize;
        Ok(Delivery {
            rate_limit: spec.map(|spec| RateLimit::new(spec, classes)),
            servers: self.ingest(),
            admission: Admission::of(&self.serving.forecaster.deployment.engine, replicas),
            pools: self.pools(seed, place)?,
        })
    }

    /// The prefill and decode pools; `None` unless prefill is disaggregated.
    fn pools(&self, seed: u64, place: &str) -> Result<Option<Pools>> {
        let Some(prefill) = &self.prefill else { return Ok(None) };
        let Some(link) = self.fleet.link else {
            return Err(Error::field(place, "fleet.link", "missing", "nvlink, network or pcie"));
        };
        let way = TransferPath::new(
            &prefill.forecaster.deployment,
            &self.serving.forecaster.deployment,
            link,
            place,
        )?;
        let routing = self.fleet.decode.as_ref().and_then(|pool| pool.router).unwrap_or(self.fleet.router);
        let decode = self.serving.count() as usize;
        let local = self.fleet.local_prefill(place)?;
        let pools = [self.prefillers() as usize, decode];
        let lanes = u32::try_from(prefill.config.engines()).unwrap_or(1);
        Ok(Some(Pools::new(pools, lanes, Router::new(routing, seed), way, local)))
    }

    /// The router over the replicas that accept new requests.
    pub(super) fn router(&self, seed: u64) -> Router {
        let routing = self.fleet.prefill.as_ref().and_then(|pool| pool.router).unwrap_or(self.fleet.router);
        let block = u64::from(self.serving.config.block_size);
        let router = Router::new(routing, seed).weighing_caches(self.fleet.routing, block);
        match (&self.beside, self.fleet.beside_weight) {
            (Some(beside), Some(weight)) => {
                let [equal, other] = [self.serving.count(), beside.count()].map(|n| n as usize);
                router.weighted([vec![1.0; equal], vec![weight; other]].concat())
            }
            _ => router,
        }
    }

    /// Range of the serving pool among all `replicas`, which are neither prefill replicas nor replicas on other
    /// accelerators.
    pub(super) fn servers(&self, replicas: usize) -> Range<usize> {
        let beside = self.beside.as_ref().map_or(0, ResolvedPool::count) as usize;
        self.prefillers() as usize..replicas - beside
    }

    /// The prefill pool if it runs on other accelerators than the decode pool, else `None`.
    pub(super) fn elsewhere(&self) -> Option<&ResolvedPool> {
        self.prefill.as_ref().filter(|pool| pool.chip().id != self.serving.chip().id)
    }

    /// Ranges of `replicas` by accelerator: one range for a uniform fleet, two for prefill and decode, or for two kinds
    /// that both serve.
    pub(super) fn sides(&self, replicas: usize) -> Vec<(&ResolvedPool, Range<usize>)> {
        let serving = self.servers(replicas);
        let prompts = self.prefill.iter().map(|pool| (pool, 0..serving.start));
        let beside = self.beside.iter().map(|pool| (pool, serving.end..replicas));
        prompts.chain([(&self.serving, serving.clone())]).chain(beside).collect()
    }

    /// Number of accelerators of replica `index`.
    pub(super) fn accelerators(&self, index: usize) -> u64 {
        match &self.prefill {
            Some(prefill) if (index as u64) < prefill.count() => prefill.accelerators(),
            Some(_) => self.serving.accelerators(),
            None => match &self.beside {
                Some(beside) if index as u64 >= self.serving.count() => beside.accelerators(),
                _ => self.serving.accelerators(),
            },
        }
    }
}

/// The pool of replicas on other accelerators that serve requests together with `forecaster`'s.
fn beside(forecaster: &Forecaster, spec: &PoolSpec, requests: Requests, place: &str) -> Result<ResolvedPool> {
    if spec.router.is_some() {
        let accepted = "omitted: fleet.router applies to all replicas";
        return Err(Error::field(place, "fleet.beside.router", "set", accepted));
    }
    ResolvedPool::of(pool(forecaster.elsewhere(), spec, "fleet.beside", None)?, requests)
}

/// The deployment of a pool's replicas: `forecaster`'s deployment with the pool's settings applied. `section` names the
/// pool in errors; `prefix_caching` replaces the setting if it is given.
pub fn pool(
    forecaster: &Forecaster,
    spec: &PoolSpec,
    section: &str,
    prefix_caching: Option<bool>,
) -> Result<Forecaster> {
    let base = &forecaster.deployment;
    let pool = base.varied(|options| {
        options.other = None;
        let parallelism = options.parallelism;
        options.parallelism = RequestedParallelism {
            tp: spec.tp.or(parallelism.tp),
            pp: spec.pp.or(parallelism.pp),
            ep: spec.ep.or(parallelism.ep),
            attention_dp: spec.attention_dp.or(parallelism.attention_dp),
            replicas: spec.replicas.or(Some(1)),
            ..parallelism
        };
        let engine = &mut options.engine;
        engine.max_num_seqs = spec.max_num_seqs.or(engine.max_num_seqs);
        engine.max_num_batched_tokens = spec.max_num_batched_tokens.or(engine.max_num_batched_tokens);
        engine.num_gpu_blocks = spec.num_gpu_blocks.or(engine.num_gpu_blocks);
        engine.enable_prefix_caching = prefix_caching.or(engine.enable_prefix_caching);
    });
    pool.map(|deployment| forecaster.reshaped(deployment)).map_err(|e| e.within(section))
}
