//! Settings of engine and router that a search chooses among, other than the sizes of a step.
//!
//! Knows: their combinations, how they are laid over a spec, and their words. Knows nothing about chips' shapes.

use super::launch::vendors;
use crate::accelerator::Accelerator;
use crate::error::{Error, Result};
use crate::router::Routing;
use crate::spec::{EngineKind, SearchSpec, Spec};
use crate::workload::Arrivals;

/// Settings of engine and router other than numbers; `None` values are taken from the spec.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReplicaSettings {
    pub(super) engine: Option<String>,
    pub(super) router: Option<Routing>,
    pub(super) enable_chunked_prefill: Option<bool>,
    pub(super) enable_prefix_caching: Option<bool>,
    /// GiB of the host tier of each engine.
    pub(super) kv_offloading_size: Option<u64>,
    /// True if drafts are made, if the spec has drafts.
    pub(super) speculative: Option<bool>,
}

impl ReplicaSettings {
    /// `spec` with these settings over it.
    pub(super) fn lay(&self, spec: &mut Spec) {
        if let Some(name) = &self.engine {
            spec.engine.scheduler = EngineKind::of(name).scheduler();
            if spec.engine.name() != name {
                spec.engine.version = None;
            }
            spec.engine.name = Some(name.clone());
        }
        spec.fleet.router = self.router.unwrap_or(spec.fleet.router);
        spec.engine.enable_chunked_prefill =
            self.enable_chunked_prefill.or(spec.engine.enable_chunked_prefill);
        spec.engine.enable_prefix_caching = self.enable_prefix_caching.or(spec.engine.enable_prefix_caching);
        spec.engine.kv_offloading_size =
            self.kv_offloading_size.map(|gib| gib as f64).or(spec.engine.kv_offloading_size);
        if self.speculative == Some(false) {
            spec.engine.speculative = None;
        }
    }

    /// True if the engine named here or in the spec runs on `chip`, as far as that is known.
    pub(super) fn runs_on(&self, chip: &Accelerator, spec: &Spec) -> bool {
        let named =
            self.engine.as_deref().or(spec.engine.name.as_deref()).map(|name| vendors(EngineKind::of(name)));
        named.is_none_or(|vendors| vendors.is_empty() || vendors.contains(&chip.vendor.as_str()))
    }

    /// The settings in words, if there are any.
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

/// The settings of engines and routers: every combination of the search's values. If prompts share tokens and no
/// router is given, a prefix-aware router is considered as well.
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
    Ok(vary(all, &search.speculative, |told, on| told.speculative = Some(on)))
}

/// Every one of `all` with every one of `values`; `all` themselves if there are none.
fn vary<T: Clone>(
    all: Vec<ReplicaSettings>,
    values: &[T],
    set: impl Fn(&mut ReplicaSettings, T),
) -> Vec<ReplicaSettings> {
    if values.is_empty() {
        return all;
    }
    let with = |told: &ReplicaSettings, value: &T| {
        let mut told = told.clone();
        set(&mut told, value.clone());
        told
    };
    all.iter()
        .flat_map(|told| values.iter().map(move |value| (told, value)))
        .map(|(t, v)| with(t, v))
        .collect()
}
