//! Calibrations: which coefficients hold for which accelerator, engine and weight format.
//!
//! Knows: coefficients are a product of levels. The first level holds everywhere; a level with a selector multiplies what it
//! names where every key of its selector matches. What no level knows is served by the wider ones, with a wider band.
//! Knows nothing about how levels were fitted: that is [`crate::calibrate`]'s.

mod selector;

use crate::coefficients::{
    AttentionKernel, Band, Coefficient, Coefficients, Evidence, Launches, ServerLoop, Values,
};
use crate::error::{Error, Result};
use crate::quantized_kernel::Kernel;
use crate::spec::EngineSpec;
use crate::version::Version;
pub(crate) use selector::is_unquantized;
use selector::timed_format;
pub use selector::{Place, Selector};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Every embedded file.
const FILES: &[(&str, &str)] = &[("serving.toml", include_str!("../catalog/calibration/serving.toml"))];

/// One level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Where it holds.
    #[serde(default)]
    pub at: Selector,
    /// The tables of a level of kernel times, with engine and version. Its coefficients stand in the place of the first
    /// level's; a fit to whole steps leaves them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<String>,
    /// The files and sources of the rows behind a level of whole steps and runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The engine's versions among them, ascending, where the level is of an engine on a chip.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<String>,
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

    /// Why the first level cannot be the one whose coefficients the others multiply; none where it can.
    fn flaw_of_first(&self) -> Option<String> {
        let Some(first) = self.levels.first() else { return Some("missing".to_owned()) };
        if first.at != Selector::default() {
            return Some(format!("of {}", first.at.name()));
        }
        let absent = Coefficient::ALL.into_iter().filter(|c| !first.coefficients.contains_key(c));
        let absent: Vec<String> = absent.map(Coefficient::name).collect();
        (!absent.is_empty()).then(|| format!("without {}", absent.join(", ")))
    }

    fn check(&self, place: &str) -> Result<()> {
        if let Some(found) = self.flaw_of_first() {
            let accepted = "a level without a selector that has every coefficient";
            return Err(Error::field(place, "level[0]", found, accepted));
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
        let factors =
            |b: &Band| [b.factors(false), b.factors(true)].map(|f| [f.ttft, f.tpot, f.e2e, f.throughput]);
        let wrong = !self.bands.iter().flat_map(factors).flatten().all(|pair| sound(&pair));
        if wrong || self.bands.iter().all(|b| b.evidence != Evidence::Nothing) {
            let accepted = "a band for `nothing`, each of two numbers above 0, the lower first";
            return Err(Error::field(place, "band", "unusable", accepted));
        }
        Ok(())
    }

    /// This calibration with other levels of kernel times, which take the place of all it had where there are any. Its first
    /// level is then what the chips among them reach: the geometric mean of their shares, where enough were timed.
    pub fn with_kernels(&self, levels: Vec<Level>) -> Calibration {
        let mut calibration = self.clone();
        if levels.is_empty() {
            return calibration;
        }
        let means = means_of_chips(&levels);
        calibration.levels.retain(|l| l.kernels.is_none());
        if let Some(first) = calibration.levels.first_mut() {
            first.coefficients.extend(means);
        }
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
            if let Some(open_loop) = b.open_loop {
                let inline = table(&|| toml::Value::try_from(open_loop).ok());
                text.push_str(&format!("open_loop = {inline}\n"));
            }
        }
        for l in &self.levels {
            let at = table(&|| toml::Value::try_from(&l.at).ok());
            let coefficients = table(&|| toml::Value::try_from(&l.coefficients).ok());
            let errors = format!("median_error = {:?}\np90_error = {:?}", l.median_error, l.p90_error);
            text.push_str(&format!("\n[[level]]\nat = {at}\n"));
            if let Some(source) = &l.kernels {
                text.push_str(&format!("kernels = {}\n", inline(toml::Value::String(source.clone()))));
            }
            if let Some(source) = &l.source {
                text.push_str(&format!("source = {}\n", inline(toml::Value::String(source.clone()))));
            }
            if let Some(versions) = toml::Value::try_from(&l.versions).ok().filter(|_| !l.versions.is_empty())
            {
                text.push_str(&format!("versions = {}\n", inline(versions)));
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

    /// The bands of a depth of evidence, or the next wider ones.
    pub fn band(&self, evidence: Evidence) -> Option<&Band> {
        self.bands.iter().filter(|b| b.evidence <= evidence).max_by_key(|b| b.evidence)
    }

    /// What the coefficients of `place` are before any factor: those of its kernels, the closest first, or the first level's.
    /// A format whose products nobody timed starts from what 16-bit ones reach there.
    pub fn base(&self, place: &Place) -> Values {
        let weights = timed_format(place.weights);
        let mut values = Values([1.0; Coefficient::ALL.len()]);
        let timed = |weights| {
            let at = Place { weights, ..*place };
            let matches = |l: &&Level| l.kernels.is_some() && l.at.matches(&at);
            let mut held: Vec<&Level> = self.levels.iter().skip(1).filter(matches).collect();
            held.sort_by_key(|l| l.at.keys());
            held.into_iter().flat_map(|l| &l.coefficients)
        };
        let anywhere = self.levels.iter().take(1).flat_map(|l| &l.coefficients);
        let unquantized = timed("bf16").filter(|(coefficient, _)| coefficient.is_of_products());
        for (coefficient, value) in anywhere.chain(unquantized).chain(timed(weights)) {
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

    /// What a forecast of `place` rests on, in words: `vllm 0.18.0 on h100-sxm, kernel times of h100-sxm`.
    pub fn rests_on(&self, place: &Place) -> String {
        let chip = &place.accelerator.id;
        let runs = match self.evidence(place) {
            Evidence::Engine => {
                let own =
                    |l: &&Level| l.at.matches(place) && l.at.accelerator.is_some() && l.at.engine.is_some();
                let known = self.levels.iter().filter(own).flat_map(|l| &l.versions);
                let version = nearest(known, place.engine.version.as_deref());
                let version = version.map(|v| format!(" {v}")).unwrap_or_default();
                format!("{}{version} on {chip}", place.engine.name())
            }
            Evidence::Accelerator => format!("another engine on {chip}"),
            Evidence::Architecture => {
                format!("a sibling chip of {chip} ({})", place.accelerator.architecture)
            }
            Evidence::Nothing => format!("the datasheet of {chip} only"),
        };
        match self.kernels_of(place) {
            Some(kernels) => format!("{runs}, kernel times of {kernels}"),
            None => runs,
        }
    }

    /// Whose kernel times the coefficients of `place` start from: those of its engine on its chip, of other engines there, or
    /// of a sibling chip.
    fn kernels_of(&self, place: &Place) -> Option<String> {
        let chip = &place.accelerator.id;
        let timed = || self.levels.iter().filter(|l| l.kernels.is_some() && l.at.matches(place));
        let on_chip = || timed().filter(|l| l.at.accelerator.is_some());
        if let Some(own) = on_chip().find(|l| l.at.engine.is_some()) {
            let tables = own.kernels.iter().flat_map(|k| k.split("; "));
            let whose = tables.filter_map(|t| t.rsplit_once(": ")).map(|(_, whose)| whose).max();
            return Some(format!("{} on {chip}", whose.unwrap_or(place.engine.name())));
        }
        if on_chip().next().is_some() {
            return Some(format!("other engines on {chip}"));
        }
        let sibling = timed().any(|l| l.at.architecture.is_some());
        sibling.then(|| format!("a sibling chip ({})", place.accelerator.architecture))
    }

    /// `values` with the products of `kernel`.
    fn products(&self, place: &Place, kernel: &Kernel, mut values: Values) -> Values {
        let of_products = |c: &Coefficient| c.is_of_products() || c.is_of_small_m();
        let like = &kernel.like;
        let weights = if like.weights.is_empty() { place.weights } else { &like.weights };
        if place.engine.name() != like.engine || place.weights != weights {
            let name = Some(like.engine.clone());
            let engine = EngineSpec { name, served: place.engine.served, ..EngineSpec::default() };
            let measured = self.values(&Place { engine: &engine, weights, ..*place }, true);
            let all = Coefficient::ALL.into_iter().filter(of_products);
            all.for_each(|c| values.0[c as usize] = measured.0[c as usize]);
        }
        place.with_own_shares(values)
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
        let kernel = place.kernel();
        let own = self.values(place, true);
        Coefficients {
            name: self.rests_on(place),
            values: self.launched(place, kernel.map_or(own, |k| self.products(place, k, own))),
            unquantized: self.values(place, place.is_unquantized()),
            regimes: place.regimes(),
            attention: AttentionKernel::of(place.engine, place.accelerator),
            multiprocessors: place.accelerator.multiprocessors,
            launches: Launches::of(place.engine),
            server: ServerLoop::of(place.engine.frontend),
            band: self.band(self.evidence(place)).copied(),
            ideal: false,
        }
    }
}

/// Chips whose kernels tell a coefficient, below which their mean says little of others.
const ENOUGH_CHIPS: usize = 5;

/// The geometric mean of each share over the chips whose 16-bit kernels were timed, of all engines.
fn means_of_chips(levels: &[Level]) -> BTreeMap<Coefficient, f64> {
    let mut logs: BTreeMap<Coefficient, Vec<f64>> = BTreeMap::new();
    let of_chips = levels.iter().filter(|l| {
        let at = &l.at;
        at.accelerator.is_some() && at.engine.is_none() && at.weights.as_deref().is_none_or(|w| w == "bf16")
    });
    for (coefficient, value) in
        of_chips.flat_map(|l| &l.coefficients).filter(|(c, _)| c.is_share() || c.is_of_kernels_alone())
    {
        logs.entry(*coefficient).or_default().push(value.ln());
    }
    let mean = |logs: Vec<f64>| (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    logs.into_iter().filter(|(_, l)| l.len() >= ENOUGH_CHIPS).map(|(c, l)| (c, mean(l))).collect()
}

/// Of ascending versions the first that is not before `asked`, or else the newest.
fn nearest<'a>(known: impl Iterator<Item = &'a String>, asked: Option<&str>) -> Option<&'a String> {
    let mut last = None;
    for version in known {
        let reached = asked.is_some_and(|asked| {
            asked == version || Version::compare(version, asked).is_some_and(|order| order.is_ge())
        });
        if reached {
            return Some(version);
        }
        last = Some(version);
    }
    last
}

#[cfg(test)]
mod tests;
