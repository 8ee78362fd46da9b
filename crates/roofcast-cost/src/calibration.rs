//! Calibrations: times that engines add to measured kernels, efficiencies of unmeasured kernels, and bands of
//! forecasts.
//!
//! Knows: the embedded `catalog/calibration/engines.toml`, and user files in its format, whose engines replace the
//! embedded ones. Knows nothing about the fit that found the numbers; see `calibrate`.

mod shares;

use crate::coefficients::{
    AttentionKernel, Band, Coefficients, Constant, EngineTimes, Evidence, KernelTimes, Launches, ServerLoop,
};
use crate::kernel_time::Basis;
use crate::profile::Profiles;
use roofcast_ask::deployment::Deployment;
use roofcast_ask::engine_settings::EngineSettings;
use roofcast_ask::quantized_kernel::running;
use roofcast_ask::spec::{EngineKind, Release};
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::precision::Dtype;
use roofcast_facts::version::precedes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Comment at the head of a calibration file.
const HEAD: &str = "\
# What engines add to measured kernels, shares of chips whose kernels nobody timed, and the bands of forecasts.
# Times are in microseconds, host times those of a DGX H100's host. `prior` is what was published or measured elsewhere, `us` what `roofcast calibrate` found between
# `least` and `most`; a number whose bounds are equal is not fitted.
";
const PLACE: &str = "catalog/calibration/engines.toml";
const TEXT: &str = include_str!("../catalog/calibration/engines.toml");

/// Times that engines add, efficiencies of unmeasured kernels, and bands of forecasts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Source of the numbers, for reports.
    pub source: String,
    /// Bands by depth of evidence.
    #[serde(rename = "band", default)]
    pub bands: Vec<Band>,
    /// Efficiencies by the vendor of a chip; the first entry applies to all other vendors.
    #[serde(default)]
    pub shares: Vec<VendorShares>,
    /// Numbers of engines. For each engine name the newest version comes first, then the differences of older
    /// versions, newest to oldest.
    #[serde(rename = "engine", default)]
    pub engines: Vec<EngineNumbers>,
    /// User's kernel times, which replace the embedded profiles.
    #[serde(skip)]
    pub profiles: Option<Profiles>,
}

/// Efficiencies of unmeasured kernels on a vendor's chips, as fractions of peak rates and bandwidths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VendorShares {
    /// Name of the vendor, as in `nvidia`.
    pub(crate) vendor: String,
    /// Efficiencies of GEMMs: fraction of the peak, then of the bandwidth.
    pub(crate) gemm: [f64; 2],
    /// Efficiencies of routed experts: fraction of the peak, then of the bandwidth.
    pub(crate) experts: [f64; 2],
    /// Efficiencies of attention and recurrences: fraction of the peak, then of the bandwidth.
    pub(crate) attention: [f64; 2],
    /// Efficiency of all-reduces: fraction of the link's bandwidth.
    pub(crate) link: f64,
    /// Efficiencies of GEMMs in place of `gemm`, by architecture.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) gemm_of: BTreeMap<String, [f64; 2]>,
    /// Fraction of the peak in attention, in place of that of `attention`, by architecture.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attention_of: BTreeMap<String, f64>,
    /// Fixed time of each kernel in microseconds, on top of its work at the efficiency.
    pub(crate) start_us: f64,
    /// Source of the figures.
    pub(crate) source: String,
}

/// Numbers of one engine, or of its older versions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineNumbers {
    /// Name of the engine, as in `vllm`.
    pub name: String,
    /// First version that these numbers do not apply to, with its month: `0.14.0 (2026-01)`; absent for the newest
    /// numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Source of the priors and bounds.
    pub(crate) source: String,
    /// Numbers by name. Numbers that an older version does not list are taken from the next newer version.
    pub times: BTreeMap<String, Constant>,
}

/// Calibration key: the properties of a deployment that select measured and fitted numbers.
#[derive(Debug, Clone, Copy)]
pub struct CalibrationKey<'a> {
    /// The chip.
    pub(crate) accelerator: &'a Accelerator,
    /// The engine's name, version and settings.
    pub(crate) engine: &'a EngineSettings,
    /// The weight format.
    pub(crate) weights: &'a str,
    /// Dtype of activations that the deployment requests, if any.
    pub(crate) activations: Option<Dtype>,
}

impl<'a> CalibrationKey<'a> {
    /// Returns the calibration key of a deployment.
    pub fn of(deployment: &'a Deployment) -> CalibrationKey<'a> {
        CalibrationKey {
            accelerator: &deployment.accelerator,
            engine: &deployment.engine,
            weights: &deployment.weights,
            activations: deployment.requested_formats().activations,
        }
    }
}

/// Host seconds per sequence in the engine's own loop when another process streams its tokens: within 3 to 10 µs
/// (vLLM's pull request 46112, a mock of its core).
const CORE_SEQUENCE: f64 = 5e-6;

/// Returns the numbers of an engine, whose loop has a core's time per sequence where a server beside it streams the tokens, and
/// the server's times.
fn served(times: EngineTimes, engine: &EngineSettings) -> (EngineTimes, ServerLoop) {
    let python = engine.has_python_server();
    // One thread of TensorRT-LLM schedules steps and answers requests.
    let answers = python && engine.kind() == EngineKind::TensorrtLlm;
    let loop_sequence = if answers { times.loop_sequence } else { times.loop_sequence.min(CORE_SEQUENCE) };
    let token = if python && !answers { times.loop_sequence } else { 0.0 };
    (EngineTimes { loop_sequence, ..times }, ServerLoop::of(engine.frontend, token))
}

impl Calibration {
    /// The embedded calibration.
    pub fn embedded() -> Result<&'static Calibration> {
        static PARSED: OnceLock<Result<Calibration>> = OnceLock::new();
        PARSED.get_or_init(|| Calibration::parse(PLACE, TEXT)).as_ref().map_err(Clone::clone)
    }

    /// Returns the calibration with its fitted numbers as priors for a fit to further rows, so that a few rows change
    /// well-supported numbers only a little.
    #[must_use]
    pub fn as_priors(&self) -> Calibration {
        let mut priors = self.clone();
        for constant in priors.engines.iter_mut().flat_map(|engine| engine.times.values_mut()) {
            constant.prior = constant.us;
        }
        priors
    }

    /// Reads `text`; `place` names the file in errors.
    pub fn parse(place: &str, text: &str) -> Result<Calibration> {
        let read: Calibration = toml::from_str(text).map_err(|e| Error::toml(place, text, "", &e))?;
        for engine in &read.engines {
            for (name, constant) in &engine.times {
                let field = || format!("engine.{}.times.{name}", engine.name);
                if !EngineTimes::NAMES.contains(&name.as_str()) {
                    let accepted = EngineTimes::NAMES.join(", ");
                    return Err(Error::field(place, field(), name, accepted));
                }
                let Constant { us, least, most, .. } = *constant;
                if !(least..=most).contains(&us) || !us.is_finite() || us < 0.0 {
                    let accepted = format!("{least} to {most}, the bounds beside it");
                    return Err(Error::field(place, field(), us, accepted));
                }
            }
        }
        let mut bands: Vec<&Band> = read.bands.iter().collect();
        bands.sort_by_key(|band| band.evidence);
        // A band alone is compared with itself, so that its widths are checked, too.
        let pairs = bands.iter().zip(bands.iter().skip(1).chain(bands.last()));
        if let Some((band, _)) = pairs.into_iter().find(|(wide, narrow)| !wide.is_around(narrow)) {
            let accepted = "widths of at least 1, none smaller than that of a deeper evidence";
            return Err(Error::field(place, "band", format!("{:?}", band.evidence), accepted));
        }
        let shares = read.shares.iter().flat_map(|s| [s.gemm, s.experts, s.attention, [s.link; 2]]);
        if let Some(share) = shares.flatten().find(|s| !(*s > 0.0 && *s <= 1.0)) {
            return Err(Error::field(place, "shares", share, "above 0, at most 1"));
        }
        Ok(read)
    }

    /// Text of a calibration file, which [`Calibration::parse`] reads back.
    pub fn to_toml(&self) -> String {
        let text = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let pair = |[low, high]: [f64; 2]| format!("[{low}, {high}]");
        let mut file = format!("{HEAD}source = {}\n", text(&self.source));
        for band in &self.bands {
            let table = toml::to_string(band).unwrap_or_default();
            file.push_str(&format!("\n[[band]]\n{}", table.replace("\n[", "\n[band.")));
        }
        for s in &self.shares {
            file.push_str(&format!(
                "\n[[shares]]\nvendor = {}\ngemm = {}\nexperts = {}\nattention = {}\nlink = {}\nstart_us = {}\nsource = {}\n",
                text(&s.vendor),
                pair(s.gemm),
                pair(s.experts),
                pair(s.attention),
                s.link,
                s.start_us,
                text(&s.source)
            ));
        }
        for EngineNumbers { name, until, source, times } in &self.engines {
            let until = until.as_ref().map_or(String::new(), |until| format!("until = {}\n", text(until)));
            let head = format!("\n[[engine]]\nname = {}\n{until}source = {}\n", text(name), text(source));
            file.push_str(&format!("{head}[engine.times]\n"));
            for (name, Constant { us, prior, least, most }) in times {
                let line = format!("{{ us = {us}, prior = {prior}, least = {least}, most = {most} }}");
                file.push_str(&format!("{name} = {line}\n"));
            }
        }
        file
    }

    /// Names of the engines that have numbers.
    pub fn engine_names(&self) -> impl Iterator<Item = &str> {
        self.engines.iter().map(|e| e.name.as_str())
    }

    /// Numbers of `engine` in seconds; for an unknown engine, the numbers of the first entry.
    pub(crate) fn engine(&self, engine: &Release) -> EngineTimes {
        let known = self.engines.iter().any(|e| e.name == engine.name);
        let first = self.engines.first().map_or("", |e| e.name.as_str());
        let name = if known { engine.name.as_str() } else { first };
        let before = |release: &String| engine.version.as_deref().is_some_and(|v| precedes(v, release));
        let mut times = EngineTimes::default();
        let holds = |e: &&EngineNumbers| e.name == name && e.until.as_ref().is_none_or(before);
        for (name, constant) in self.engines.iter().filter(holds).flat_map(|e| &e.times) {
            if let Some(value) = times.get_mut(name) {
                *value = constant.us * 1e-6;
            }
        }
        times
    }

    /// Band of a depth of evidence; if absent, the next wider band.
    pub fn band(&self, evidence: Evidence) -> Option<&Band> {
        self.bands.iter().filter(|b| b.evidence <= evidence).max_by_key(|b| b.evidence)
    }

    fn kernels(&self, chip: &Accelerator) -> KernelTimes {
        let profiles = match (&self.profiles, Profiles::embedded()) {
            (Some(own), _) => Cow::Owned(own.clone()),
            (None, Ok(embedded)) => Cow::Borrowed(embedded),
            (None, Err(_)) => Cow::Owned(Profiles::default()),
        };
        KernelTimes::Measured {
            profiles,
            shares: self.efficiency(&chip.vendor, &chip.architecture),
            host: self.efficiency("cpu", ""),
        }
    }

    /// Band of a deployment of depth `evidence`: without times for a part of its kernels, the band of the depth above counts for the
    /// rest of a step.
    pub(crate) fn weighed_band(&self, evidence: Evidence, untimed_part: f64) -> Option<Band> {
        let band = self.band(evidence)?;
        Some(match evidence {
            Evidence::Family => self.band(Evidence::Architecture)?.mixed(band, untimed_part),
            _ => *band,
        })
    }

    /// Description of the measurements behind a forecast at `place` of depth `evidence`, in which nobody timed `untimed`, and in which
    /// `all_reduces` count in place of those of the engine's own table.
    pub(crate) fn rests_on(
        &self,
        place: &CalibrationKey,
        evidence: Evidence,
        untimed: &[String],
        all_reduces: Option<&Basis>,
    ) -> String {
        let Accelerator { id: chip, architecture, .. } = place.accelerator;
        let all_reduces = all_reduces.map_or(String::new(), |b| format!(", all-reduces of {}", b.kernel));
        let kernels = match evidence {
            Evidence::Engine => format!("kernel times of {} on {chip}", place.engine.name()),
            Evidence::Accelerator => format!("kernel times of several engines on {chip}"),
            Evidence::Architecture => format!("kernel times of a sibling chip of {chip} ({architecture})"),
            Evidence::Family => {
                format!("kernel times of {architecture}, none of {}", untimed.join(" and "))
            }
            Evidence::Nothing => match self.running(place) {
                Some(kernel) => format!("the datasheet of {chip} and what {} does", kernel.name),
                None => format!("the datasheet of {chip} only"),
            },
        };
        kernels + &all_reduces
    }

    fn running(
        &self,
        place: &CalibrationKey,
    ) -> Option<&'static roofcast_ask::quantized_kernel::QuantizedKernel> {
        running(
            &place.engine.release,
            place.engine.quantization_kernel.as_deref(),
            place.weights,
            place.activations,
            place.accelerator,
        )
    }

    /// Kernel times and engine numbers for an accelerator, an engine and a weight format, without their evidence and its band,
    /// which depend on the model.
    pub(crate) fn coefficients(&self, place: &CalibrationKey) -> Coefficients {
        let kernel = self.running(place);
        let (engine, server) = served(self.engine(&place.engine.host_release()), place.engine);
        Coefficients {
            name: String::new(),
            kernels: self.kernels(place.accelerator),
            regimes: kernel.map(|k| k.regimes(place.accelerator)).unwrap_or_default(),
            attention: AttentionKernel::of(place.engine, place.accelerator),
            multiprocessors: place.accelerator.multiprocessors,
            engine,
            launches: Launches::of(place.engine.kind(), place.engine.fuse_layers, place.engine.enforce_eager),
            server,
            evidence: Evidence::Nothing,
            untimed: Vec::new(),
            untimed_part: 0.0,
            band: None,
            factor: 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coefficients::{Load, ends};
    use crate::forecaster::Forecaster;
    use roofcast_ask::deployment::DeploymentOptions;
    use roofcast_facts::catalog::{Catalog, EntryKind};
    use std::sync::Arc;

    const ENGINES: [&str; 5] = ["vllm", "sglang", "tensorrt-llm", "llama.cpp", "transformers"];
    const FORMATS: [&str; 5] = ["bf16", "fp8", "nvfp4", "awq-int4", "q4_k_m"];

    /// On every accelerator of the catalog, with every engine and format that run there, the interval of each metric
    /// contains the forecast, and no deployment with deeper evidence has a wider one.
    #[test]
    fn intervals_contain_the_forecast_and_evidence_never_widens_them() {
        let catalog = Catalog::embedded().unwrap();
        let model = Arc::new(catalog.named("meta-llama/Llama-3.1-8B-Instruct").unwrap().model().unwrap());
        let calibration = Calibration::embedded().unwrap();
        let mut seen: BTreeMap<Evidence, Band> = BTreeMap::new();
        for listed in catalog.listing().unwrap().iter().filter(|l| l.line.kind == EntryKind::Accelerator) {
            let chip = Arc::new(catalog.accelerator(&listed.line.id).unwrap().clone());
            for (engine, format) in ENGINES.iter().flat_map(|e| FORMATS.iter().map(move |f| (e, f))) {
                let mut options = DeploymentOptions::default();
                options.engine.name = Some((*engine).to_owned());
                options.precision.weights = Some((*format).to_owned());
                let Ok(deployment) = Deployment::resolve(Arc::clone(&model), Arc::clone(&chip), &options)
                else {
                    continue;
                };
                let coefficients = Forecaster::new(deployment, calibration).coefficients;
                seen.insert(coefficients.evidence, coefficients.band.unwrap());
            }
        }
        assert!(seen.len() == Evidence::ALL.len(), "{:?}", seen.keys());
        let bands: Vec<&Band> = seen.values().collect();
        for band in &bands {
            for width in Load::ALL.iter().flat_map(|load| band.widths(*load).all()) {
                let [low, high] = ends(width);
                assert!(low <= 1.0 && 1.0 <= high, "{band:?}");
            }
        }
        assert!(bands.windows(2).all(|pair| pair[0].is_around(pair[1])), "{bands:?}");
    }

    /// DeepSeek-V4 has products in `fp8-block` and experts in `mxfp4`, both of which were timed on a B200.
    #[test]
    fn several_formats_rest_on_the_kernels_of_each() {
        let catalog = Catalog::embedded().unwrap();
        let model = Arc::new(catalog.named("deepseek-ai/DeepSeek-V4-Flash").unwrap().model().unwrap());
        let chip = Arc::new(catalog.accelerator("b200-sxm").unwrap().clone());
        let deployment = Deployment::resolve(model, chip, &DeploymentOptions::default()).unwrap();
        assert_eq!(deployment.weights, "fp8-block+mxfp4");
        let coefficients = Forecaster::new(deployment, Calibration::embedded().unwrap()).coefficients;
        assert!(coefficients.evidence >= Evidence::Architecture, "{:?}", coefficients.untimed);
    }

    /// Fitted numbers that rest on a bound, each of which stands for a term that the model lacks; `docs/cost-model.md` names the
    /// terms.
    #[test]
    fn numbers_at_a_bound_are_known() {
        let calibration = Calibration::embedded().unwrap();
        let at_bound = |c: &Constant| c.least < c.most && (c.us == c.least || c.us == c.most);
        let of = |e: &EngineNumbers| {
            let until =
                e.until.as_deref().map_or("", |until| until.split(' ').next().unwrap_or(until)).to_owned();
            let names = e.times.iter().filter(|(_, c)| at_bound(c)).map(|(name, _)| name.clone());
            let name = e.name.clone();
            names.map(move |number| format!("{name} {until} {number}")).collect::<Vec<_>>()
        };
        let resting: Vec<String> = calibration.engines.iter().flat_map(of).collect();
        let known = ["vllm  sequence", "vllm 0.8.0 sequence", "vllm 0.8.0 step", "llama.cpp  prompt_step"];
        assert_eq!(resting, known);
        let docs = include_str!("../../../docs/cost-model.md");
        for number in
            ["`sequence` of vLLM", "`sequence` and `step` of vLLM before 0.8", "`prompt_step` of llama.cpp"]
        {
            assert!(docs.contains(number), "{number}");
        }
    }

    /// vLLM 0.11 with `--async-scheduling` has the host times of 0.14, and 0.14 without it has the host times of 0.13.
    #[test]
    fn scheduling_ahead_has_its_own_host_times() {
        let catalog = Catalog::embedded().unwrap();
        let model = Arc::new(catalog.named("meta-llama/Llama-3.1-8B-Instruct").unwrap().model().unwrap());
        let chip = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let calibration = Calibration::embedded().unwrap();
        let engine_times = |version: &str, ahead: Option<bool>| {
            let mut options = DeploymentOptions::default();
            options.engine.version = Some(version.to_owned());
            options.engine.vllm.async_scheduling = ahead;
            let deployment = Deployment::resolve(Arc::clone(&model), Arc::clone(&chip), &options).unwrap();
            calibration.coefficients(&CalibrationKey::of(&deployment)).engine
        };
        assert_eq!(engine_times("0.11.0", Some(true)), engine_times("0.14.0", None));
        assert_eq!(engine_times("0.14.0", Some(false)), engine_times("0.13.0", None));
        assert_eq!(engine_times("0.7.3", Some(true)), engine_times("0.7.3", None));
        assert!(engine_times("0.13.0", None).step > 2.0 * engine_times("0.13.0", Some(true)).step);
    }

    #[test]
    fn a_calibration_with_a_narrower_interval_for_less_evidence_is_refused() {
        let embedded = Calibration::embedded().unwrap();
        let changed = |index: usize, width: f64| {
            let mut changed = embedded.clone();
            changed.bands[index].closed_loop.tpot = width;
            Calibration::parse("own.toml", &changed.to_toml()).map(|_| ()).map_err(|e| e.to_string())
        };
        assert_eq!(changed(0, 9.0), Ok(()));
        for (index, width) in [(0, 1.01), (1, 1.01), (4, 9.0), (4, 0.9)] {
            let refused = changed(index, width).unwrap_err();
            assert!(refused.contains("own.toml") && refused.contains("at least 1"), "{refused}");
        }
    }
}
