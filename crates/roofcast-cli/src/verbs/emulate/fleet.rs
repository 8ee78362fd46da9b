//! Assignment of engines to ports, according to `[fleet]`.
//!
//! Knows: without a router every replica has a port of its own; with a router all replicas share one port. The library
//! defines the composition of pools.

use super::kv_events::kv_events;
use crate::args::EmulateArgs;
use crate::emulate::dialect::Dialect;
use crate::emulate::group::Group;
use crate::emulate::metrics::{Fixed, Metrics};
use crate::emulate::pace::Pace;
use crate::emulate::replica::{EngineHandle, Latencies};
use anyhow::Result;
use roofcast::engine::online::Online;
use roofcast::fleet::{Ingest, Scaling, TransferPath};
use roofcast::router::{Router, Routing};
use roofcast::simulate::{pool, uncounted};
use roofcast::spec::{AutoscaleSpec, FleetSpec, PoolSpec};
use roofcast::{Error, Forecaster};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::runtime::Runtime;

/// Common settings of all engines that are started.
pub(super) struct Launch<'a> {
    pub(super) args: &'a EmulateArgs,
    pub(super) runtime: &'a Runtime,
    pub(super) dialect: Dialect,
    pub(super) pace: Pace,
    /// Mean number of tokens of a request's context.
    pub(super) context: u64,
    pub(super) seed: u64,
    /// Name by which clients call the model.
    pub(super) name: String,
    /// Name of the spec in errors.
    pub(super) place: String,
    /// Text printed at start-up.
    pub(super) text: String,
    pub(super) threads: Vec<JoinHandle<()>>,
    pub(super) started: u64,
}

impl Launch<'_> {
    /// Starts the engines, grouped by the port that they serve.
    pub(super) fn groups(
        &mut self,
        forecaster: &Forecaster,
        fleet: &FleetSpec,
        routed: bool,
    ) -> Result<Vec<Group>> {
        let missing = |field: &str, accepted: &str| Error::field(&self.place, field, "missing", accepted);
        let router = |routing: Routing| Router::new(routing, self.seed);
        let pools = [&fleet.prefill, &fleet.decode].into_iter().flatten().filter_map(|pool| pool.router);
        if let Some(router) = pools.chain([fleet.router]).find(|router| router.weighs_caches()) {
            let accepted = "round_robin, least_loaded, power_of_two, prefix_aware, session_sticky: to emulate a router that \
                            weighs caches, run that router in front of replicas that publish KV events (--kv-events-config)";
            return Err(Error::field(&self.place, "fleet.router", router.name(), accepted).into());
        }
        if fleet.schedule.is_some() {
            let accepted = "omitted: an emulated fleet starts and stops replicas by fleet.autoscale";
            return Err(Error::field(&self.place, "fleet.schedule", "set", accepted).into());
        }
        if let Some(autoscale) = &fleet.autoscale {
            let group = self.scaled(forecaster, autoscale)?;
            return Ok(vec![
                Group::new(group, Router::new(fleet.router, self.seed)).scaled(Scaling::new(*autoscale)),
            ]);
        }
        if fleet.beside.is_some() {
            let accepted = "omitted: an emulated fleet has one kind of replica, or is disaggregated";
            return Err(Error::field(&self.place, "fleet.beside", "set", accepted).into());
        }
        let (prefill, decode) = match (&fleet.prefill, &fleet.decode) {
            (None, None) if routed => {
                let front = router(fleet.router);
                return Ok(vec![Group::new(self.engines(forecaster, true)?, front)]);
            }
            (None, None) => {
                let external = self.args.data_parallel_external_lb;
                let engines = self.engines(forecaster, external)?.into_iter();
                let alone = |engine| Group::new(vec![engine], Router::new(Routing::RoundRobin, 0));
                return Ok(engines.map(alone).collect());
            }
            (None, Some(_)) => return Err(missing("fleet.prefill", "the pool that computes prompts").into()),
            (Some(_), None) => return Err(missing("fleet.decode", "the pool that decodes").into()),
            (Some(prefill), Some(decode)) => (prefill, decode),
        };
        let link = fleet.link.ok_or_else(|| missing("fleet.link", "nvlink, network or pcie"))?;
        let reason = "fleet.prefill and fleet.decode have their own replicas";
        uncounted(&forecaster.deployment, reason, &self.place)?;
        let routers = [prefill, decode].map(|pool| router(pool.router.unwrap_or(fleet.router)));
        let prompts = pool(forecaster.elsewhere(), prefill, "fleet.prefill", None)?;
        let others = pool(forecaster, decode, "fleet.decode", Some(false))?;
        let way = TransferPath::new(&prompts.deployment, &others.deployment, link, &self.place)?;
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
        autoscale.check(&self.place)?;
        uncounted(&forecaster.deployment, "fleet.autoscale has max_replicas", &self.place)?;
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
        let mut engine = Online::new(forecaster, self.context, self.seed)?;
        if self.args.enable_lora {
            let (most, rank) = (self.args.max_loras as usize, self.args.max_lora_rank);
            engine.serve_adapters(&forecaster.deployment, most, rank)?;
        }
        let metrics = Metrics::new(self.fixed(forecaster, &engine, rank));
        let (engine, thread) = match (self.args.ttft, self.args.itl) {
            (Some(ttft), Some(itl)) => {
                EngineHandle::stated(Latencies { ttft_ms: ttft, itl_ms: itl }, self.pace, metrics)?
            }
            _ => {
                let kv_events =
                    kv_events(self.args, (index, rank), &mut engine, self.runtime, &mut self.text)?;
                let server = Ingest::of(forecaster, forecaster.deployment.engine.cost);
                EngineHandle::start(engine, self.pace, metrics, kv_events, server)?
            }
        };
        self.threads.push(thread);
        Ok(Arc::new(engine))
    }

    fn fixed(&self, forecaster: &Forecaster, engine: &Online, rank: u64) -> Fixed {
        let (deployment, capacity) = (&forecaster.deployment, engine.capacity());
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
            max_loras: self.args.enable_lora.then_some(self.args.max_loras as usize),
        }
    }
}
