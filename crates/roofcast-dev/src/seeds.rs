//! The four texts from which roofcast grew (the seeds), figure by figure: the printed figure, the figure by the text's
//! own rules, and the library's.
//!
//! Knows: the claims of the seeds with their inputs, and the library's answer to each question. Printed figures are
//! data. All other numbers are computed: `recomputed` by the seed's own formula and constants, `roofcast` by the
//! library with the catalog's exact dimensions and rates. Knows nothing about printing.

mod arithmetic_001;
mod latency_000;
mod measured;
pub(crate) mod multi_user_003;
mod tpu_004;

use roofcast_ask::deployment::{Deployment, DeploymentOptions};
use roofcast_ask::parallelism::RequestedParallelism;
use roofcast_ask::spec::{Convention, EngineSpec, PrecisionSpec};
use roofcast_cost::capacity::{self, Capacity, capacity};
use roofcast_cost::cost::{Cost, Utilization};
use roofcast_cost::forecaster::Forecaster;
use roofcast_cost::limits;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::batch::Batch;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::{Model, config};
use serde::Serialize;
use std::str::FromStr;
use std::sync::Arc;

/// One of the four texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seed {
    /// Latency and concurrency of LLaMA-13B and 65B on V100.
    Latency000,
    /// kipply's "transformer inference arithmetic": 52B on A100.
    Arithmetic001,
    /// Many users of Qwen1.5 on one RTX 4090.
    MultiUser003,
    /// Serving LLaMA-3-70B on TPU v5e, a chapter of "How To Scale Your Model".
    Tpu004,
}

impl Seed {
    /// All texts, in order.
    pub const ALL: [Seed; 4] = [Seed::Latency000, Seed::Arithmetic001, Seed::MultiUser003, Seed::Tpu004];

    /// Number of the text on the command line.
    pub fn id(self) -> &'static str {
        match self {
            Seed::Latency000 => "000",
            Seed::Arithmetic001 => "001",
            Seed::MultiUser003 => "003",
            Seed::Tpu004 => "004",
        }
    }

    /// Subject of the text in one line.
    pub fn title(self) -> &'static str {
        match self {
            Seed::Latency000 => "inference latency and concurrency: LLaMA-13B and 65B on 8 × V100 32 GB",
            Seed::Arithmetic001 => "transformer inference arithmetic: a 52B model on A100 40 GB",
            Seed::MultiUser003 => "many users of Qwen1.5 on one RTX 4090",
            Seed::Tpu004 => "serving LLaMA-3-70B on TPU v5e",
        }
    }
}

impl FromStr for Seed {
    type Err = Error;

    fn from_str(name: &str) -> Result<Seed> {
        let ids: Vec<_> = Seed::ALL.iter().map(|s| s.id()).collect();
        let seed = Seed::ALL.into_iter().find(|s| s.id() == name.trim());
        seed.ok_or_else(|| Error::field("arguments", "SEED", format!("{name:?}"), ids.join(", ")))
    }
}

/// Assessment of a printed figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SeedVerdict {
    /// The printed digits follow from the seed's own inputs.
    Exact,
    /// The figure is rounded but otherwise right.
    Rounded,
    /// The figure mixes GB and GiB, or other units.
    Unit,
    /// The figure does not follow from the seed's own inputs.
    Inconsistent,
    /// The arithmetic is right, but an input is wrong.
    WrongInput,
    /// The figure is a measurement, which is compared with the limit because it cannot be recomputed.
    Measured,
    /// The figure answers an exercise that the text leaves open.
    Open,
}

roofcast_facts::named! { SeedVerdict {
    Exact: "exact",
    Rounded: "rounded",
    Unit: "unit",
    Inconsistent: "inconsistent",
    WrongInput: "wrong-input",
    Measured: "measured",
    Open: "open",
} }

/// One printed figure of a seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Claim {
    /// Section of the text.
    pub section: &'static str,
    /// Description of the figure, unique within its section.
    pub claim: String,
    /// The printed figure with its own unit; `formula` if the text gives no number.
    pub said: String,
    /// Unit of `recomputed` and `roofcast`.
    pub unit: &'static str,
    /// The figure by the seed's own inputs and rules; `None` if it cannot be computed.
    pub recomputed: Option<f64>,
    /// The figure by the library; `None` if the library has no answer.
    pub roofcast: Option<f64>,
    /// Assessment of the seed's figure.
    pub verdict: SeedVerdict,
    /// Reason for a difference between the figures; may be empty.
    pub why: String,
}

impl Claim {
    /// A claim of `section`: the seed prints `said`; `recomputed` and `roofcast` are in `unit`.
    fn new(
        section: &'static str,
        claim: impl Into<String>,
        said: impl Into<String>,
        unit: &'static str,
    ) -> Claim {
        Claim {
            section,
            claim: claim.into(),
            said: said.into(),
            unit,
            recomputed: None,
            roofcast: None,
            verdict: SeedVerdict::Exact,
            why: String::new(),
        }
    }

    /// Sets the figure by the seed's own rules.
    fn recomputed(self, value: f64) -> Claim {
        Claim { recomputed: Some(value), ..self }
    }

    /// Sets the library's figure.
    fn roofcast(self, value: f64) -> Claim {
        Claim { roofcast: Some(value), ..self }
    }

    /// Sets the verdict and its reason.
    fn is(self, verdict: SeedVerdict, why: impl Into<String>) -> Claim {
        Claim { verdict, why: why.into(), ..self }
    }
}

/// Every claim of `seed`, in the order of its text. Fails only if `catalog` lacks an entry that the seed needs.
pub fn claims(catalog: &Catalog, seed: Seed) -> Result<Vec<Claim>> {
    match seed {
        Seed::Latency000 => latency_000::claims(catalog),
        Seed::Arithmetic001 => arithmetic_001::claims(catalog),
        Seed::MultiUser003 => multi_user_003::claims(catalog),
        Seed::Tpu004 => tpu_004::claims(catalog),
    }
}

/// Deployment of a seed, with the idealizations of the seeds: nominal memory, perfect sharding, no reserved memory.
#[derive(Debug, Clone, Copy)]
struct Setup<'a> {
    model: &'a str,
    hardware: &'a str,
    weights: &'a str,
    kv: &'a str,
    tp: u64,
    pp: u64,
    paper: bool,
}

impl<'a> Setup<'a> {
    fn new(model: &'a str, hardware: &'a str, weights: &'a str, kv: &'a str) -> Setup<'a> {
        Setup { model, hardware, weights, kv, tp: 1, pp: 1, paper: false }
    }

    /// Returns the setup sharded over `tp` accelerators.
    fn tp(self, tp: u64) -> Setup<'a> {
        Setup { tp, ..self }
    }

    /// Returns the setup in `pp` pipeline stages.
    fn pp(self, pp: u64) -> Setup<'a> {
        Setup { pp, ..self }
    }

    /// Returns the setup with the counting rules of seed 003.
    fn by_seed_003(self) -> Setup<'a> {
        Setup { paper: true, ..self }
    }

    /// The deployment as an engine serves it, without idealizations.
    fn served_by(self, catalog: &Catalog, engine: EngineSpec) -> Result<Deployment> {
        let options = DeploymentOptions { ideal: false, engine, ..self.options() };
        Deployment::resolve(model(catalog, self.model)?, chip(catalog, self.hardware)?, &options)
    }

    fn options(self) -> DeploymentOptions {
        DeploymentOptions {
            precision: PrecisionSpec {
                weights: Some(self.weights.to_owned()),
                kv: Some(self.kv.to_owned()),
                ..PrecisionSpec::default()
            },
            parallelism: RequestedParallelism {
                tp: Some(self.tp),
                pp: Some(self.pp),
                ..RequestedParallelism::default()
            },
            ideal: true,
            ..DeploymentOptions::default()
        }
    }

    fn resolve(self, catalog: &Catalog) -> Result<Deployment> {
        let options = self.options();
        let model = model(catalog, self.model)?;
        let chip = chip(catalog, self.hardware)?;
        if self.paper {
            let (options, chip) = options.counted(Convention::Seed003, &chip);
            return Deployment::resolve(model, Arc::new(chip), &options);
        }
        Deployment::resolve(model, chip, &options)
    }
}

fn model(catalog: &Catalog, name: &str) -> Result<Arc<Model>> {
    let entry = catalog.model(name)?;
    config::read(&entry.id, "catalog", &entry.config).map(Arc::new)
}

fn chip(catalog: &Catalog, name: &str) -> Result<Arc<Accelerator>> {
    catalog.accelerator(name).cloned().map(Arc::new)
}

/// KV capacity of `deployment` for sequences of `context` tokens; the smallest machine is the one that holds `batch`
/// sequences.
fn held(deployment: &Deployment, context: u64, batch: u64) -> Capacity {
    let question = capacity::CapacityQuestion { context, batch, oversubscription_percent: 100, users: None };
    capacity(deployment, &question)
}

/// The limit of one decode step.
fn decode(deployment: &Deployment, batch: u64, context: u64) -> Cost {
    roofcast_cost::cost::limit(deployment, &Batch::decode(batch, context), Utilization::FULL)
}

/// The limit of one prompt's prefill, at `mfu` of the peak.
fn prefill(deployment: &Deployment, tokens: u64, mfu: f64) -> Cost {
    let utilization = Utilization { mfu, ..Utilization::FULL };
    roofcast_cost::cost::limit(deployment, &Batch::prefill(1, tokens), utilization)
}

/// All closed forms at `batch` sequences of `context` tokens.
fn closed_forms(deployment: &Deployment, batch: u64, context: u64) -> limits::Limits {
    let question =
        limits::LimitsQuestion { batch, context, prefill: context, utilization: Utilization::FULL };
    limits::limits(&Forecaster::ideal(deployment.clone()), &question)
}

/// Number of bytes of a GiB.
const GIB: f64 = (1_u64 << 30) as f64;
