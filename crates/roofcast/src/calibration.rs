//! Calibrations: which coefficients hold for which accelerator, engine and weight format.
//!
//! Knows: coefficients are a product of levels. The first level holds everywhere; a level with a selector multiplies what it
//! names where every key of its selector matches. What no level knows is served by the wider ones, with a wider band.
//! Knows nothing about how levels were fitted: that is [`crate::calibrate`]'s.

use crate::accelerator::{Accelerator, Topology};
use crate::coefficients::{
    AttentionKernel, Band, Coefficient, Coefficients, Evidence, Launches, ServerLoop, Values,
};
use crate::deployment::Deployment;
use crate::error::{Error, Result};
use crate::quantized_kernel::{Kernel, Unpacking, kernel};
use crate::spec::EngineSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Every embedded file.
const FILES: &[(&str, &str)] = &[("serving.toml", include_str!("../catalog/calibration/serving.toml"))];

/// Where a level holds; an absent key matches everything.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Selector {
    /// As in `hopper`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Catalog id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// How accelerators are joined, as in `pcie`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Topology>,
    /// As in `vllm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The engine's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether requests come through a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served: Option<bool>,
    /// The weight format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
}

/// One level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Where it holds.
    #[serde(default)]
    pub at: Selector,
    /// Where a level of kernel times comes from. Its coefficients stand in the place of the first level's; a fit to whole steps leaves them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<String>,
    /// Measured rows behind it.
    pub rows: u64,
    /// Median error of those rows, as fitted; a share.
    pub median_error: f64,
    /// 90th percentile of it.
    pub p90_error: f64,
    /// The first level's values; every other one's factors.
    pub coefficients: BTreeMap<Coefficient, f64>,
}

/// A set of levels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Where the measurements come from.
    pub source: String,
    /// Bands by what is known.
    #[serde(rename = "band")]
    pub bands: Vec<Band>,
    /// The levels; the first holds everywhere and has every coefficient.
    #[serde(rename = "level")]
    pub levels: Vec<Level>,
}

/// What is looked up.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The chip.
    pub accelerator: &'a Accelerator,
    /// The engine's name, version and kind of use.
    pub engine: &'a EngineSpec,
    /// The weight format.
    pub weights: &'a str,
}

impl<'a> Place<'a> {
    /// That of a deployment.
    pub fn of(deployment: &'a Deployment) -> Place<'a> {
        Place {
            accelerator: &deployment.accelerator,
            engine: &deployment.options.engine,
            weights: &deployment.weights,
        }
    }

    /// When the kernel of quantized weights unpacks them first.
    pub fn unpacks(&self) -> Option<Unpacking> {
        self.kernel().and_then(Kernel::unpacking)
    }

    /// The kernel of quantized weights; a resolved deployment has one that multiplies its weights, or none has a name.
    fn kernel(&self) -> Option<&'static Kernel> {
        kernel(self.engine, self.weights).ok().flatten()
    }
}

impl Selector {
    /// Whether a level with this selector holds at `place`.
    pub fn matches(&self, place: &Place) -> bool {
        let same = |key: &Option<String>, value: &str| key.as_deref().is_none_or(|k| k == value);
        same(&self.architecture, &place.accelerator.architecture)
            && same(&self.accelerator, &place.accelerator.id)
            && same(&self.engine, place.engine.name())
            && same(&self.version, place.engine.version.as_deref().unwrap_or_default())
            && same(&self.weights, place.weights)
            && self
                .link
                .is_none_or(|l| place.accelerator.link.as_ref().is_some_and(|link| link.topology == l))
            && self.served.is_none_or(|s| s == place.engine.served())
    }

    /// How close it describes a place: keys, a chip's before its generation's.
    fn keys(&self) -> usize {
        let texts = [
            &self.accelerator,
            &self.accelerator,
            &self.architecture,
            &self.engine,
            &self.version,
            &self.weights,
        ];
        texts.iter().filter(|t| t.is_some()).count() + usize::from(self.served.is_some())
    }

    /// `accelerator h100-sxm, engine vllm`, or `everywhere`.
    pub fn name(&self) -> String {
        let text = |key: &str, value: &Option<String>| value.as_ref().map(|v| format!("{key} {v}"));
        let served = self.served.map(|s| if s { "served".to_owned() } else { "offline".to_owned() });
        let parts = [
            text("architecture", &self.architecture),
            text("accelerator", &self.accelerator),
            self.link.map(|l| format!("link {}", format!("{l:?}").to_lowercase())),
            text("engine", &self.engine),
            text("version", &self.version),
            served,
            text("weights", &self.weights),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "everywhere".to_owned() } else { parts.join(", ") }
    }
}

impl Calibration {
    /// The embedded calibration, parsed once.
    pub fn embedded() -> Result<&'static Calibration> {
        static PARSED: OnceLock<Result<Calibration>> = OnceLock::new();
        let parse = || {
            let (path, text) = FILES[0];
            Calibration::parse(&format!("catalog/calibration/{path}"), text)
        };
        PARSED.get_or_init(parse).as_ref().map_err(Clone::clone)
    }

    /// Reads a calibration from TOML; `place` names the file in errors.
    pub fn parse(place: &str, text: &str) -> Result<Calibration> {
        let parsed: Calibration = toml::from_str(text).map_err(|e| Error::toml(place, text, "", &e))?;
        parsed.check(place)?;
        Ok(parsed)
    }

    fn check(&self, place: &str) -> Result<()> {
        let first = self.levels.first();
        if first.is_none_or(|l| l.at != Selector::default() || l.coefficients.len() != Coefficient::ALL.len())
        {
            let accepted = "a level without a selector that has every coefficient";
            return Err(Error::field(place, "level[0]", "incomplete", accepted));
        }
        for level in &self.levels {
            for (coefficient, value) in &level.coefficients {
                if !(value.is_finite() && *value > 0.0 && *value <= 1e6) {
                    let field = format!("{} at {}", coefficient.name(), level.at.name());
                    return Err(Error::field(place, field, value, "a number above 0, at most 10^6"));
                }
            }
        }
        let sound = |b: &[f64; 2]| b[0] > 0.0 && b[0] <= b[1] && b[1].is_finite();
        let wrong = self.bands.iter().any(|b| ![b.ttft, b.tpot, b.e2e, b.throughput].iter().all(sound));
        if wrong || self.bands.iter().all(|b| b.evidence != Evidence::Nothing) {
            let accepted = "a band for `nothing`, each of two numbers above 0, the lower first";
            return Err(Error::field(place, "band", "unusable", accepted));
        }
        Ok(())
    }

    /// This calibration with other levels of kernel times: they take the place of those for the same selectors.
    pub fn with_kernels(&self, levels: Vec<Level>) -> Calibration {
        let mut calibration = self.clone();
        let replaced = |l: &Level| l.kernels.is_some() && levels.iter().any(|new| new.at == l.at);
        calibration.levels.retain(|l| !replaced(l));
        let after_first = calibration.levels.len().min(1);
        calibration.levels.splice(after_first..after_first, levels);
        calibration
    }

    /// As TOML, a level a few lines.
    pub fn to_toml(&self) -> String {
        let inline = |value: toml::Value| value.to_string();
        let table = |value: &dyn Fn() -> Option<toml::Value>| value().map(inline).unwrap_or_default();
        let mut text = format!("source = {}\n", inline(toml::Value::String(self.source.clone())));
        for b in &self.bands {
            let evidence = table(&|| toml::Value::try_from(b.evidence).ok());
            text.push_str(&format!(
                "\n[[band]]\nevidence = {evidence}\nttft = {:?}\ntpot = {:?}\n",
                b.ttft, b.tpot
            ));
            text.push_str(&format!("e2e = {:?}\nthroughput = {:?}\n", b.e2e, b.throughput));
        }
        for l in &self.levels {
            let at = table(&|| toml::Value::try_from(&l.at).ok());
            let coefficients = table(&|| toml::Value::try_from(&l.coefficients).ok());
            let errors = format!("median_error = {:?}\np90_error = {:?}", l.median_error, l.p90_error);
            text.push_str(&format!("\n[[level]]\nat = {at}\n"));
            if let Some(source) = &l.kernels {
                text.push_str(&format!("kernels = {}\n", inline(toml::Value::String(source.clone()))));
            }
            text.push_str(&format!("rows = {}\n{errors}\n", l.rows));
            text.push_str(&format!("coefficients = {coefficients}\n"));
        }
        text
    }

    /// How much of `place` has been measured.
    pub fn evidence(&self, place: &Place) -> Evidence {
        let any = |test: &dyn Fn(&Selector) -> bool| {
            self.levels.iter().any(|l| l.kernels.is_none() && l.at.matches(place) && test(&l.at))
        };
        if any(&|s| s.accelerator.is_some() && s.engine.is_some()) {
            Evidence::Engine
        } else if any(&|s| s.accelerator.is_some()) {
            Evidence::Accelerator
        } else if any(&|s| s.architecture.is_some()) {
            Evidence::Architecture
        } else {
            Evidence::Nothing
        }
    }

    /// The bands of what is known of `place`, or the next wider ones.
    pub fn band(&self, known: Evidence) -> Option<&Band> {
        self.bands.iter().filter(|b| b.evidence <= known).max_by_key(|b| b.evidence)
    }

    /// What the coefficients of `place` are before any factor: those of its kernels, the closest first, or the first level's.
    pub fn base(&self, place: &Place) -> Values {
        // Tables have one of the two 16-bit formats, whose kernels take the same time.
        let weights = if place.weights == "fp16" { "bf16" } else { place.weights };
        let place = Place { weights, ..*place };
        let mut values = Values([1.0; Coefficient::ALL.len()]);
        let mut held: Vec<&Level> =
            self.levels.iter().skip(1).filter(|l| l.kernels.is_some() && l.at.matches(&place)).collect();
        held.sort_by_key(|l| l.at.keys());
        for (coefficient, value) in self.levels.iter().take(1).chain(held).flat_map(|l| &l.coefficients) {
            values.0[*coefficient as usize] = *value;
        }
        values
    }

    /// The values of `place`; `weights` says whether levels of its weight format count.
    fn values(&self, place: &Place, weights: bool) -> Values {
        let mut values =
            self.base(&Place { weights: if weights { place.weights } else { "bf16" }, ..*place });
        let fitted = self.levels.iter().skip(1).filter(|l| l.kernels.is_none());
        let held = fitted.filter(|l| l.at.matches(place) && (weights || l.at.weights.is_none()));
        for (coefficient, factor) in held.flat_map(|l| &l.coefficients) {
            values.0[*coefficient as usize] *= factor;
        }
        values
    }

    /// `values` with the products of `kernel`.
    fn products(&self, place: &Place, kernel: &Kernel, mut values: Values) -> Values {
        const OF_PRODUCTS: [Coefficient; 5] = [
            Coefficient::GemmMemory,
            Coefficient::GemmCompute,
            Coefficient::GemmExposed,
            Coefficient::SmallMRow,
            Coefficient::SmallMMost,
        ];
        let like = &kernel.like;
        let weights = if like.weights.is_empty() { place.weights } else { &like.weights };
        if place.engine.name() != like.engine || place.weights != weights {
            let name = Some(like.engine.clone());
            let engine = EngineSpec { name, served: place.engine.served, ..EngineSpec::default() };
            let measured = self.values(&Place { engine: &engine, weights, ..*place }, true);
            OF_PRODUCTS.iter().for_each(|c| values.0[*c as usize] = measured.0[*c as usize]);
        }
        let own = [
            (Coefficient::GemmCompute, kernel.gemm_compute),
            (Coefficient::GemmExposed, kernel.gemm_exposed),
        ];
        for (coefficient, value) in own {
            values.0[coefficient as usize] = value.unwrap_or(values.0[coefficient as usize]);
        }
        values
    }

    /// `values` with the layer of vLLM's captured graphs where launches are counted one by one.
    fn launched(&self, place: &Place, mut values: Values) -> Values {
        if let Some(launches) = Launches::of(place.engine) {
            let engine = EngineSpec { served: place.engine.served, ..EngineSpec::default() };
            let captured = self.values(&Place { engine: &engine, ..*place }, true);
            values.0[Coefficient::Layer as usize] = captured.get(Coefficient::Layer) + launches.device;
        }
        values
    }

    /// The coefficients of `place`.
    pub fn coefficients(&self, place: &Place) -> Coefficients {
        let evidence = self.evidence(place);
        let chip = &place.accelerator.id;
        let name = match evidence {
            Evidence::Engine => format!("{} on {chip}", place.engine.name()),
            Evidence::Accelerator => format!("{chip}, any engine"),
            Evidence::Architecture => format!("{}, any chip", place.accelerator.architecture),
            Evidence::Nothing => "generic".to_owned(),
        };
        let kernel = place.kernel();
        let own = self.values(place, true);
        Coefficients {
            name,
            values: self.launched(place, kernel.map_or(own, |k| self.products(place, k, own))),
            unquantized: self.values(place, false),
            unpacks: place.unpacks(),
            attention: AttentionKernel::of(place.engine, place.accelerator),
            launches: Launches::of(place.engine),
            server: ServerLoop::of(place.engine.frontend),
            band: self.band(evidence).copied(),
            ideal: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_embedded() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("catalog/calibration");
        let mut on_disk: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        on_disk.sort();
        assert_eq!(on_disk, FILES.iter().map(|(path, _)| *path).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let calibration = Calibration::embedded().unwrap();
        assert_eq!(&Calibration::parse("written", &calibration.to_toml()).unwrap(), calibration);
    }

    /// A chip's kernels of bf16 count for fp16, too, and for no other format.
    #[test]
    fn both_16_bit_formats_have_one_kernel() {
        let chip = crate::Catalog::embedded().unwrap().accelerator("h100-sxm").unwrap();
        let engine = EngineSpec::default();
        let share = |weights| {
            let place = Place { accelerator: chip, engine: &engine, weights };
            Calibration::embedded().unwrap().base(&place).get(Coefficient::GemmCompute)
        };
        assert_eq!(share("fp16"), share("bf16"));
        assert_ne!(share("fp16"), share("q8_0"));
    }

    #[test]
    fn wrong_calibrations_are_refused() {
        let good = Calibration::embedded().unwrap().to_toml();
        for (from, to, says) in [
            ("evidence = \"nothing\"", "evidence = \"all\"", "nothing"),
            ("[[level]]", "[[level]]\nweight = 1", "weight"),
            ("gemm_memory = ", "gemm_memory = -", "gemm_memory"),
        ] {
            let error = Calibration::parse("mine.toml", &good.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains("mine.toml") && error.contains(says), "{error}");
        }
    }

    /// The chip's own kernels go before its generation's, those before the first level; factors multiply either; what is not
    /// quantized takes the kernels of 16 bits.
    #[test]
    fn the_closest_kernels_stand_below_the_factors() {
        let mut calibration = Calibration::embedded().unwrap().clone();
        calibration.levels.truncate(1);
        let level = |at: Selector, kernels: bool, value: f64| Level {
            at,
            kernels: kernels.then(|| "by hand".to_owned()),
            rows: 1,
            median_error: 0.0,
            p90_error: 0.0,
            coefficients: BTreeMap::from([(Coefficient::GemmCompute, value)]),
        };
        let kernels = |accelerator: Option<&str>, weights: &str| Selector {
            architecture: accelerator.is_none().then(|| "hopper".to_owned()),
            accelerator: accelerator.map(str::to_owned),
            weights: Some(weights.into()),
            ..Selector::default()
        };
        calibration.levels.push(level(kernels(Some("h100-sxm"), "fp8"), true, 0.6));
        calibration.levels.push(level(kernels(None, "fp8"), true, 0.4));
        calibration.levels.push(level(kernels(None, "bf16"), true, 0.7));
        calibration.levels.push(level(Selector { served: Some(true), ..Selector::default() }, false, 0.5));
        let compute = |chip: &str, weights: &str| {
            let accelerator = crate::Catalog::embedded().unwrap().accelerator(chip).unwrap();
            let engine = EngineSpec { served: Some(true), ..EngineSpec::default() };
            let coefficients = calibration.coefficients(&Place { accelerator, engine: &engine, weights });
            [coefficients.values, coefficients.unquantized].map(|f| f.get(Coefficient::GemmCompute))
        };
        assert_eq!(compute("h100-sxm", "fp8"), [0.6 * 0.5, 0.7 * 0.5]);
        assert_eq!(compute("h200-sxm", "fp8"), [0.4 * 0.5, 0.7 * 0.5]);
        let everywhere = calibration.levels[0].coefficients[&Coefficient::GemmCompute];
        assert_eq!(compute("a100-sxm-80gb", "fp16"), [everywhere * 0.5; 2]);
    }

    #[test]
    fn who_knows_less_is_never_given_a_narrower_band() {
        let calibration = Calibration::embedded().unwrap();
        let depths = [Evidence::Engine, Evidence::Accelerator, Evidence::Architecture, Evidence::Nothing];
        let bands = depths.map(|known| *calibration.band(known).unwrap());
        for pair in bands.windows(2) {
            let of = |b: &Band| [b.ttft, b.tpot, b.e2e, b.throughput];
            for (narrow, wide) in of(&pair[0]).into_iter().zip(of(&pair[1])) {
                assert!(wide[0] <= narrow[0] && narrow[1] <= wide[1], "{narrow:?} {wide:?}");
            }
        }
    }

    /// What nobody measured of a chip is what others reach: the geometric mean over those whose 16-bit kernels were.
    #[test]
    fn the_first_level_is_the_mean_of_measured_chips() {
        let levels = &Calibration::embedded().unwrap().levels;
        let measured = levels.iter().filter(|l| {
            let at = &l.at;
            let plain = at.weights.as_deref().is_none_or(|w| w == "bf16");
            l.kernels.is_some() && at.accelerator.is_some() && at.engine.is_none() && plain
        });
        let mut logs: BTreeMap<Coefficient, Vec<f64>> = BTreeMap::new();
        for (coefficient, value) in measured.flat_map(|l| &l.coefficients) {
            logs.entry(*coefficient).or_default().push(value.ln());
        }
        let means = logs.into_iter().filter(|(coefficient, logs)| coefficient.is_share() && logs.len() >= 5);
        let mut compared = 0;
        for (coefficient, logs) in means {
            let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
            let first = levels[0].coefficients[&coefficient];
            assert!((first / mean - 1.0).abs() < 0.005, "{coefficient:?}: {first} for a mean of {mean}");
            compared += 1;
        }
        assert_eq!(compared, 10);
    }

    #[test]
    fn levels_multiply_where_they_match() {
        let mut calibration = Calibration::embedded().unwrap().clone();
        calibration.levels.truncate(1);
        let at = |accelerator: &str, engine: &str| Selector {
            accelerator: Some(accelerator.into()),
            engine: Some(engine.into()),
            ..Selector::default()
        };
        let level = |at, factor| Level {
            at,
            kernels: None,
            rows: 1,
            median_error: 0.0,
            p90_error: 0.0,
            coefficients: BTreeMap::from([(Coefficient::Step, factor)]),
        };
        calibration.levels.push(level(at("h100-sxm", "vllm"), 2.0));
        calibration.levels.push(level(at("h100-sxm", "sglang"), 5.0));
        calibration.levels.push(level(Selector { engine: Some("vllm".into()), ..Selector::default() }, 3.0));
        let chip = crate::Catalog::embedded().unwrap().accelerator("h100-sxm").unwrap();
        let engine = EngineSpec::default();
        let place = Place { accelerator: chip, engine: &engine, weights: "bf16" };
        let once = calibration.levels[0].coefficients[&Coefficient::Step];
        // 2 for vllm on this chip, 3 for vllm anywhere; nothing of sglang's.
        assert_eq!(calibration.coefficients(&place).values.get(Coefficient::Step), once * 2.0 * 3.0);
        assert_eq!(calibration.evidence(&place), Evidence::Engine);
    }
}
