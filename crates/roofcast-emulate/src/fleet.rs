//! Assignment of engines to ports, according to `[fleet]`.
//!
//! Knows: without a router every replica has a port of its own; with a router all replicas share one port. The library
//! defines the composition of pools.

use crate::dialect::Dialect;
use crate::group::Group;
use crate::kv_events::KvEventsConfig;
use crate::metrics::{Buckets, Fixed, HostFacts, Metrics};
use crate::pace::Pace;
use crate::replica::{EngineHandle, Latencies};
use anyhow::Result;
use roofcast::engine::online::Online;
use roofcast::fleet::{Ingest, Scaling, TransferPath};
use roofcast::router::{Router, Routing};
use roofcast::simulate::{pool, uncounted};
use roofcast::spec::{AutoscaleRule, AutoscaleSpec, FleetSpec, PoolSpec};
use roofcast::{Error, Forecaster};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::runtime::Runtime;

/// Common settings of all engines that are started.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Runtime that publishes KV events.
    pub runtime: &'a Runtime,
    /// API whose metrics the engines have.
    pub dialect: Dialect,
    /// Clock of the engines.
    pub pace: Pace,
    /// Mean number of tokens of a request's context.
    pub context: u64,
    /// Seed of routers and engines.
    pub seed: u64,
    /// Name by which clients call the model.
    pub name: String,
    /// Name of the spec in errors.
    pub place: String,
    /// Bounds of histograms that the user chooses.
    pub buckets: Buckets,
    /// Fixed latencies, in place of an engine that takes steps.
    pub latencies: Option<Latencies>,
    /// Settings of the publishers of KV events; `None` without events.
    pub kv_events: Option<KvEventsConfig>,
    /// True if replicas without a router are data-parallel ranks of one server, and report their ranks.
    pub ranks: bool,
}

/// Running engines.
#[derive(Debug, Default)]
pub struct Launched {
    /// Engines by the port that they serve.
    pub groups: Vec<Group>,
    /// Addresses at which KV events are published and replayed.
    pub kv_events: Vec<String>,
    /// Threads of the engines, which end when the groups are dropped.
    pub threads: Vec<JoinHandle<()>>,
}

/// Engines that have been started so far.
struct Start<'a> {
    launch: &'a Launch<'a>,
    started: u64,
    kv_events: Vec<String>,
    threads: Vec<JoinHandle<()>>,
}

impl Launch<'_> {
    /// Starts the engines of a deployment and its fleet; `routed` if one router is in front of all replicas. Fails if the
    /// fleet has a setting that is not emulated, or lacks one; the error names its key and the accepted values.
    pub fn start(&self, forecaster: &Forecaster, fleet: &FleetSpec, routed: bool) -> Result<Launched> {
        let mut start = Start { launch: self, started: 0, kv_events: Vec::new(), threads: Vec::new() };
        let groups = start.groups(forecaster, fleet, routed)?;
        Ok(Launched { groups, kv_events: start.kv_events, threads: start.threads })
    }
}

impl Start<'_> {
    /// Starts the engines, grouped by the port that they serve.
    fn groups(&mut self, forecaster: &Forecaster, fleet: &FleetSpec, routed: bool) -> Result<Vec<Group>> {
        let Launch { place, seed, ranks, .. } = self.launch;
        let missing = |field: &str, accepted: &str| Error::field(place, field, "missing", accepted);
        let router = |routing: Routing| Router::new(routing, *seed);
        let pools = [&fleet.prefill, &fleet.decode].into_iter().flatten().filter_map(|pool| pool.router);
        if let Some(router) = pools.chain([fleet.router]).find(|router| router.weighs_caches()) {
            let accepted = "round_robin, least_loaded, power_of_two, prefix_aware, session_sticky: to emulate a router that \
                            weighs caches, run that router in front of replicas that publish KV events (--kv-events-config)";
            return Err(Error::field(place, "fleet.router", router.name(), accepted).into());
        }
        let varied = [("fleet.failures", fleet.failures.is_some()), ("fleet.slow", fleet.slow.is_some())];
        if let Some((field, _)) = varied.iter().find(|(_, set)| *set) {
            let accepted = "omitted: POST /admin/replicas fails replicas of an emulated fleet";
            return Err(Error::field(&self.launch.place, *field, "set", accepted).into());
        }
        if fleet.local_prefill(place)? > 0 {
            let accepted = "fleet.max_local_prefill_length and fleet.non_cached_tokens omitted: an emulated prefill pool computes every prompt";
            return Err(Error::field(place, "fleet", "conditionally disaggregated", accepted).into());
        }
        if fleet.rate_limit.is_some() {
            let accepted = "omitted: rate limits are those of the gateway in front of the emulated server";
            return Err(Error::field(place, "fleet.rate_limit", "set", accepted).into());
        }
        if fleet.schedule.is_some() {
            let accepted = "omitted: an emulated fleet starts and stops replicas by fleet.autoscale";
            return Err(Error::field(place, "fleet.schedule", "set", accepted).into());
        }
        if let Some(autoscale) = &fleet.autoscale {
            let group = self.scaled(forecaster, autoscale)?;
            return Ok(vec![
                Group::new(group, Router::new(fleet.router, *seed)).scaled(Scaling::new(autoscale)),
            ]);
        }
        if fleet.beside.is_some() {
            let accepted = "omitted: an emulated fleet has one kind of replica, or is disaggregated";
            return Err(Error::field(place, "fleet.beside", "set", accepted).into());
        }
        let (prefill, decode) = match (&fleet.prefill, &fleet.decode) {
            (None, None) if routed => {
                let front = router(fleet.router);
                return Ok(vec![Group::new(self.engines(forecaster, true)?, front)]);
            }
            (None, None) => {
                let engines = self.engines(forecaster, *ranks)?.into_iter();
                let alone = |engine| Group::new(vec![engine], Router::new(Routing::RoundRobin, 0));
                return Ok(engines.map(alone).collect());
            }
            (None, Some(_)) => return Err(missing("fleet.prefill", "the pool that computes prompts").into()),
            (Some(_), None) => return Err(missing("fleet.decode", "the pool that decodes").into()),
            (Some(prefill), Some(decode)) => (prefill, decode),
        };
        let link = fleet.link.ok_or_else(|| missing("fleet.link", "nvlink, network or pcie"))?;
        let reason = "fleet.prefill and fleet.decode have their own replicas";
        uncounted(&forecaster.deployment, reason, place)?;
        let routers = [prefill, decode].map(|pool| router(pool.router.unwrap_or(fleet.router)));
        let prompts = pool(forecaster.elsewhere(), prefill, "fleet.prefill", None)?;
        let others = pool(forecaster, decode, "fleet.decode", Some(false))?;
        let way = TransferPath::new(&prompts.deployment, &others.deployment, link, place)?;
        let mut engines = self.engines(&prompts, true)?;
        let count = engines.len();
        engines.extend(self.engines(&others, true)?);
        let [front, between] = routers;
        Ok(vec![Group::new(engines, front).apart(count, between, way)])
    }

    /// Largest number of engines that autoscaling may run.
    fn scaled(
        &mut self,
        forecaster: &Forecaster,
        autoscale: &AutoscaleSpec,
    ) -> Result<Vec<Arc<EngineHandle>>> {
        let place = &self.launch.place;
        autoscale.check(place)?;
        if autoscale.rule != AutoscaleRule::Immediate {
            let accepted = "immediate: to emulate an autoscaler, run it beside the emulated fleet";
            return Err(Error::field(place, "fleet.autoscale.rule", autoscale.rule.name(), accepted).into());
        }
        uncounted(&forecaster.deployment, "fleet.autoscale has max_replicas", place)?;
        let all = PoolSpec { replicas: Some(autoscale.max_replicas), ..PoolSpec::default() };
        self.engines(&pool(forecaster, &all, "fleet.autoscale", None)?, true)
    }

    /// Starts the replicas of a deployment. If `ranks`, each reports its index as its data-parallel rank, else 0.
    fn engines(&mut self, forecaster: &Forecaster, ranks: bool) -> Result<Vec<Arc<EngineHandle>>> {
        let count = forecaster.deployment.parallelism.replicas;
        (0..count).map(|_| self.engine(forecaster, ranks)).collect()
    }

    fn engine(&mut self, forecaster: &Forecaster, ranks: bool) -> Result<Arc<EngineHandle>> {
        let index = self.started;
        self.started += 1;
        let rank = if ranks { index } else { 0 };
        let launch = self.launch;
        let mut engine = Online::new(forecaster, launch.context, launch.seed)?;
        let metrics = Metrics::new(launch.fixed(forecaster, &engine, rank));
        let (engine, thread) = match launch.latencies {
            Some(latencies) => EngineHandle::stated(latencies, launch.pace.clone(), metrics)?,
            None => {
                let publisher = launch.kv_events.as_ref();
                let publisher = publisher
                    .map(|config| config.start((index, rank), &mut engine, launch.runtime))
                    .transpose()?;
                let (kv_events, bound) = publisher.unzip();
                self.kv_events.extend(bound.into_iter().flatten());
                let server = Ingest::of(forecaster, forecaster.deployment.engine.cost);
                EngineHandle::start(engine, launch.pace.clone(), metrics, kv_events, server)?
            }
        };
        self.threads.push(thread);
        Ok(Arc::new(engine))
    }
}

impl Launch<'_> {
    /// Properties of an engine that its metrics show.
    fn fixed(&self, forecaster: &Forecaster, engine: &Online, rank: u64) -> Fixed {
        let deployment = &forecaster.deployment;
        let capacity = engine.capacity();
        Fixed {
            dialect: self.dialect,
            model: self.name.clone(),
            engine: rank as usize,
            max_model_len: capacity.max_model_len,
            max_num_seqs: capacity.max_num_seqs,
            num_gpu_blocks: capacity.num_gpu_blocks,
            block_size: capacity.block_size,
            cache_dtype: deployment.kv.name.to_string(),
            enable_prefix_caching: capacity.enable_prefix_caching,
            gpu_memory_utilization: deployment.engine.gpu_memory_utilization,
            buckets: self.buckets.clone(),
            max_loras: deployment.engine.lora.map(|lora| lora.max_loras as usize),
            host: engine.host_tier().map(|host| HostFacts {
                chunks: host.tokens / capacity.block_size.max(1),
                token_bytes: host.token_bytes,
                workers: deployment.parallelism.tp * deployment.parallelism.pp,
                has_info: deployment.engine.is_since("0.33"),
            }),
            num_speculative_tokens: deployment
                .engine
                .speculative
                .as_ref()
                .map_or(0, |s| s.num_speculative_tokens),
        }
    }
}
