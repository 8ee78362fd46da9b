//! Settings of engine and router from which a search chooses, other than the sizes of a step.
//!
//! Knows: the combinations of these settings, how they are applied to a spec, and their text. Knows nothing about the
//! shapes of replicas.

use roofcast_ask::deployment::support;
use roofcast_ask::spec::{EngineKind, EngineSpec, SearchSpec, Spec};
use roofcast_ask::workload::Arrivals;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::error::{Error, Result};
use roofcast_sim::router::Routing;

/// Settings of engine and router, other than sizes of a step; the spec applies to `None` values.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReplicaSettings {
    pub(super) engine: Option<String>,
    pub(super) router: Option<Routing>,
    pub(super) enable_chunked_prefill: Option<bool>,
    pub(super) enable_prefix_caching: Option<bool>,
    /// GiB of the host tier of each engine; 0 for none.
    pub(super) kv_offloading_size: Option<u64>,
    /// True to use the drafts of the spec, false not to.
    pub(super) speculative: Option<bool>,
}

impl ReplicaSettings {
    /// Applies these settings to `spec`.
    pub(super) fn lay(&self, spec: &mut Spec) {
        spec.fleet.router = self.router.unwrap_or(spec.fleet.router);
        spec.engine = self.engine_spec(&spec.engine);
    }

    /// The settings of the engine, from `base`, without the sections of other engines.
    pub(super) fn engine_spec(&self, base: &EngineSpec) -> EngineSpec {
        let mut engine = base.clone();
        if let Some(name) = &self.engine {
            engine.scheduler = EngineKind::of(name).scheduler();
            if engine.name() != name {
                engine.version = None;
            }
            engine.name = Some(name.clone());
        }
        engine.enable_chunked_prefill = self.enable_chunked_prefill.or(engine.enable_chunked_prefill);
        engine.enable_prefix_caching = self.enable_prefix_caching.or(engine.enable_prefix_caching);
        engine.vllm.kv_offloading_size =
            self.kv_offloading_size.map(|gib| gib as f64).or(engine.vllm.kv_offloading_size);
        if self.speculative == Some(false) {
            engine.speculative = None;
        }
        engine.own()
    }

    /// GiB of vLLM's host tier of each engine; 0 without one.
    pub(super) fn host_gib(&self, base: &Spec) -> f64 {
        self.engine_spec(&base.engine).vllm.kv_offloading_size.unwrap_or(0.0)
    }

    /// False if the engine of these settings, or else of the spec, is known not to run on `chip`.
    pub(super) fn runs_on(&self, chip: &Accelerator, spec: &Spec) -> bool {
        let named = self.engine.as_deref().or(spec.engine.name.as_deref()).map(EngineKind::of);
        named.is_none_or(|engine| support::runs_on(engine, chip))
    }

    /// Text of each setting that has a value.
    pub(super) fn words(&self) -> Vec<String> {
        let switched = |on: Option<bool>, what: &str| {
            on.map(|on| if on { format!("with {what}") } else { format!("without {what}") })
        };
        let router = self.router.map(|router| format!("router {}", router.name()));
        [
            self.engine.clone(),
            router,
            switched(self.enable_chunked_prefill, "chunked prefill"),
            switched(self.enable_prefix_caching, "prefix caching"),
            self.kv_offloading_size.map(|gib| format!("{gib} GiB of host tier")),
            switched(self.speculative, "drafts"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

pub(super) fn listed(list: &[String]) -> Vec<Option<String>> {
    if list.is_empty() { vec![None] } else { list.iter().cloned().map(Some).collect() }
}

/// The settings of engines and routers: every combination of the search's values. If prompts share tokens and the spec
/// names no router, a prefix-aware router is considered as well.
pub(super) fn told(search: &SearchSpec, spec: &Spec, shared: bool) -> Result<Vec<ReplicaSettings>> {
    const ENGINES: [EngineKind; 3] = [EngineKind::Vllm, EngineKind::Sglang, EngineKind::TensorrtLlm];
    if let Some(name) = search.engines.iter().find(|name| !ENGINES.contains(&EngineKind::of(name))) {
        return Err(Error::field(
            "spec",
            "search.engines",
            format!("{name:?}"),
            ENGINES.map(EngineKind::name).join(", "),
        ));
    }
    if search.speculative.contains(&true) && spec.engine.speculative.is_none() {
        let accepted = "with [engine.speculative], which has the measured acceptance_rate";
        return Err(Error::field("spec", "search.speculative", true, accepted));
    }
    let sessions = spec.workload.as_ref().is_some_and(|w| matches!(w.arrivals, Arrivals::Sessions { .. }));
    let mut routers: Vec<Option<Routing>> = search.routers.iter().copied().map(Some).collect();
    if routers.is_empty() {
        routers.push(None);
        let finds = if sessions { Routing::SessionSticky } else { Routing::PrefixAware };
        routers.extend((shared && spec.fleet.router == Routing::default()).then_some(Some(finds)));
    }
    let sizes = &search.kv_offloading_size;
    let engines: Vec<Option<String>> = listed(&search.engines);
    let all = vary(vec![ReplicaSettings::default()], &engines, |told, engine| told.engine = engine);
    let all = vary(all, &routers, |told, router| told.router = router);
    let all = vary(all, &search.enable_chunked_prefill, |told, on| told.enable_chunked_prefill = Some(on));
    let all = vary(all, &search.enable_prefix_caching, |told, on| told.enable_prefix_caching = Some(on));
    let all = vary(all, sizes, |told, gib| told.kv_offloading_size = Some(gib));
    let mut all = vary(all, &search.speculative, |told, on| told.speculative = Some(on));
    // Other engines than vLLM have no size of a host tier to choose.
    let unlike = |told: &ReplicaSettings| told.kv_offloading_size.unwrap_or(0) as f64 > told.host_gib(spec);
    all.retain(|told| !unlike(told));
    if all.is_empty() {
        let accepted = "with 0, or with the engine vllm, which has such a host tier";
        return Err(Error::field("spec", "search.kv_offloading_size", format!("{sizes:?}"), accepted));
    }
    Ok(all)
}

/// Every item of `all` combined with every item of `values`; `all` unchanged if `values` is empty.
fn vary<T: Clone>(
    all: Vec<ReplicaSettings>,
    values: &[T],
    set: impl Fn(&mut ReplicaSettings, T),
) -> Vec<ReplicaSettings> {
    if values.is_empty() {
        return all;
    }
    let with = |told: &ReplicaSettings, value: &T| {
        let mut variant = told.clone();
        set(&mut variant, value.clone());
        variant
    };
    all.iter()
        .flat_map(|told| values.iter().map(move |value| (told, value)))
        .map(|(t, v)| with(t, v))
        .collect()
}
