//! Choice of the measured kernels that apply to an operator.
//!
//! Knows: the order of the search: kernels of the engine on the chip, then of other engines on the chip, then on
//! sibling chips of its architecture, the nearest in bandwidth first. If an engine has several kernels of a format,
//! `catalog/kernels/choice.toml` states the one that each version chooses; without a rule, the fastest measured
//! kernel of the format is assumed. Knows nothing about times.

use super::Basis;
use crate::coefficients::{Evidence, KernelTimes};
use crate::profile::{KernelTable, Profiles, Section};
use roofcast_ask::spec::{EngineKind, Release};
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::precision::Dtype;
use roofcast_facts::version::precedes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Kernel name of a rule that allows the fastest kernel of all engines.
const ANY: &str = "any";
const PLACE: &str = "catalog/kernels/choice.toml";
const TEXT: &str = include_str!("../../catalog/kernels/choice.toml");

/// Subject of a search for kernels: an engine on a chip, with `ep` expert-parallel ranks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asking<'a> {
    pub(super) chip: &'a Accelerator,
    pub(super) engine: &'a Release,
    pub(super) ep: u64,
    /// Kernel of quantized weights that was asked for by name.
    pub(super) kernel: Option<&'a str>,
}

/// Measured kernel that may apply, with the chip on which it was timed.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeasuredKernel<'a> {
    pub(super) section: &'a Section,
    pub(super) chip: &'a Accelerator,
    pub(super) evidence: Evidence,
}

impl MeasuredKernel<'_> {
    /// Name of the kernel, as in `vllm 0.31.0 deepgemm, h100-sxm`.
    pub(super) fn name(&self) -> String {
        let Section { engine, version, kernel, chip, .. } = self.section;
        format!("{engine} {version} {kernel}, {chip}")
    }

    /// Basis of a time that the kernel measured; `exact` is true if the operator's own shape was timed.
    pub(super) fn basis(&self, exact: bool) -> Basis {
        Basis { evidence: self.evidence, exact, kernel: self.name(), in_place_of: None }
    }
}

/// Chips on which kernels were timed, by id.
#[derive(Debug)]
struct Chips(BTreeMap<String, Accelerator>);

impl Chips {
    /// Chips of the embedded kernel times.
    fn embedded() -> &'static Chips {
        static READ: OnceLock<Chips> = OnceLock::new();
        READ.get_or_init(|| {
            let ids = Profiles::embedded().map(|p| p.sections.iter().map(|s| s.chip.clone()).collect());
            let ids: std::collections::BTreeSet<String> = ids.unwrap_or_default();
            let chip_of = |id: String| {
                let chip = Catalog::embedded().ok()?.accelerator(&id).ok()?.clone();
                Some((id, chip))
            };
            Chips(ids.into_iter().filter_map(chip_of).collect())
        })
    }

    /// Chips whose kernel times apply to `chip`, best first: the chip itself, with any memory size, then chips of its
    /// architecture or of a sibling architecture.
    fn of(&self, chip: &Accelerator) -> Vec<(&Accelerator, bool)> {
        let alike = |other: &Accelerator| {
            other.id == chip.id
                || other.architecture == chip.architecture
                    && other.bandwidth_bytes_per_s == chip.bandwidth_bytes_per_s
                    && other.peak_flops == chip.peak_flops
        };
        let sibling = sibling(&chip.architecture);
        let apart =
            |other: &Accelerator| (other.bandwidth_bytes_per_s.0 / chip.bandwidth_bytes_per_s.0 - 1.0).abs();
        let mut all: Vec<_> = self.0.values().filter(|o| o.architecture == sibling || alike(o)).collect();
        all.sort_by(|a, b| {
            (!alike(a)).cmp(&!alike(b)).then(apart(a).total_cmp(&apart(b))).then(a.id.cmp(&b.id))
        });
        all.into_iter().map(|other| (other, alike(other))).collect()
    }
}

/// Chips with kernel times that `chip` supersedes in arithmetic of `dtype`: of its architecture and bandwidth, with at most its
/// memory, multiprocessors and rate.
pub(super) fn superseded(chip: &Accelerator, dtype: Dtype) -> impl Iterator<Item = &'static Accelerator> {
    let rate = move |chip: &Accelerator| chip.peak_flops.get(&dtype).map(|rate| rate.0 * chip.held_back());
    Chips::embedded().0.values().filter(move |other| {
        other.id != chip.id
            && other.architecture == chip.architecture
            && other.kernel_bandwidth() == chip.kernel_bandwidth()
            && other.memory_bytes <= chip.memory_bytes
            && other.multiprocessors <= chip.multiprocessors
            && rate(other) <= rate(chip)
    })
}

/// Architecture whose kernels also run on `architecture`: a GB10 (`blackwell-soc`) runs kernels of consumer
/// Blackwell.
fn sibling(architecture: &str) -> &str {
    match architecture {
        "blackwell-soc" => "blackwell-rtx",
        "ampere-soc" => "ampere",
        other => other,
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rule: Vec<ChoiceRule>,
}

/// Rule by which an engine chooses one of several kernels of a format.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChoiceRule {
    table: String,
    engine: String,
    #[serde(default)]
    architectures: Vec<String>,
    formats: Vec<String>,
    /// True if the rule requires several expert-parallel ranks, false if it requires one; absent if it applies to
    /// both.
    expert_parallel: Option<bool>,
    /// First version of the engine that the rule applies to, with its month; the rule ends before `until`.
    since: Option<String>,
    until: Option<String>,
    kernel: String,
    /// Position in the engine's source code, or in its tables, that states the choice.
    #[allow(dead_code)]
    source: String,
}

impl ChoiceRule {
    fn holds(&self, kernels: &Asking, table: KernelTable, format: &str) -> bool {
        let before =
            |release: &String| kernels.engine.version.as_deref().is_some_and(|v| precedes(v, release));
        self.table == table.name()
            && self.engine == kernels.engine.name
            && (self.architectures.is_empty()
                || self.architectures.iter().any(|a| a == sibling(&kernels.chip.architecture)))
            && self.formats.iter().any(|f| f == format)
            && self.expert_parallel.is_none_or(|ep| ep == (kernels.ep > 1))
            && !self.since.as_ref().is_some_and(before)
            && self.until.as_ref().is_none_or(before)
    }
}

fn rules() -> Result<&'static [ChoiceRule]> {
    static PARSED: OnceLock<Result<Vec<ChoiceRule>>> = OnceLock::new();
    let parse = || toml::from_str::<File>(TEXT).map(|f| f.rule).map_err(|e| Error::toml(PLACE, TEXT, "", &e));
    PARSED.get_or_init(parse).as_ref().map(Vec::as_slice).map_err(Clone::clone)
}

/// Measured kernels that apply to `table`, in the first of `formats` that was timed; empty if no table has any of the
/// formats.
pub(super) fn candidates<'a>(
    kernels: &Asking,
    profiles: &'a Profiles,
    table: KernelTable,
    formats: &[&str],
) -> Vec<MeasuredKernel<'a>> {
    candidates_for(kernels, profiles, table, formats, formats.first().copied().unwrap_or_default())
}

/// Like [`candidates`], for `weights` whose rule of choice is not that of the first of `formats`, which stands for it.
pub(super) fn candidates_for<'a>(
    kernels: &Asking,
    profiles: &'a Profiles,
    table: KernelTable,
    formats: &[&str],
    weights: &str,
) -> Vec<MeasuredKernel<'a>> {
    let of_table: Vec<&Section> = profiles.sections.iter().filter(|s| s.table == table).collect();
    for (chip, own) in Chips::embedded().of(kernels.chip) {
        for format in formats {
            let here: Vec<&Section> =
                of_table.iter().copied().filter(|s| s.chip == chip.id && s.format == *format).collect();
            let named = if formats.first() == Some(format) { weights } else { format };
            let (chosen, of_engine) = chosen(kernels, table, named, &here);
            if !chosen.is_empty() {
                let evidence = evidence_of(own, of_engine);
                return chosen
                    .into_iter()
                    .map(|section| MeasuredKernel { section, chip, evidence })
                    .collect();
            }
        }
    }
    Vec::new()
}

/// Formats whose kernels do arithmetic of equal precision on weights of about equal bytes, `format` first.
fn precision(format: &str) -> Vec<&str> {
    const ALIKE: [&[&str]; 2] = [&["fp8", "fp8-block"], &["gptq-int4", "mxfp4"]];
    let alike = ALIKE.into_iter().find(|formats| formats.contains(&format)).unwrap_or_default();
    std::iter::once(format).chain(alike.iter().copied().filter(|other| *other != format)).collect()
}

/// Kernels of all engines on the chip of `kernel`, of equal precision.
pub(super) fn kin<'a>(
    profiles: &'a Profiles,
    table: KernelTable,
    kernel: &MeasuredKernel<'a>,
) -> Vec<MeasuredKernel<'a>> {
    let formats = precision(&kernel.section.format);
    let alike = |s: &&Section| {
        s.table == table && s.chip == kernel.section.chip && formats.contains(&s.format.as_str())
    };
    profiles.sections.iter().filter(alike).map(|section| MeasuredKernel { section, ..*kernel }).collect()
}

/// Kernels that may run in place of `kernel`, which is implausible, the most similar first: the engine's own of equal
/// precision on the chip, the engine's own on chips of the architecture, then kernels of other engines.
pub(super) fn substitutes<'a>(
    kernels: &Asking,
    profiles: &'a Profiles,
    table: KernelTable,
    kernel: &MeasuredKernel<'a>,
) -> Vec<MeasuredKernel<'a>> {
    let formats = precision(&kernel.section.format);
    let chips = Chips::embedded().of(kernels.chip);
    let mut others = Vec::new();
    for of_engine in [true, false] {
        for (chip, own) in &chips {
            for format in &formats {
                let evidence = evidence_of(*own, of_engine);
                let here = profiles.sections.iter().filter(|s| {
                    s.table == table
                        && s.chip == chip.id
                        && s.format == *format
                        && (s.engine == kernels.engine.name) == of_engine
                        && !std::ptr::eq(*s, kernel.section)
                });
                others.extend(here.map(|section| MeasuredKernel { section, chip, evidence }));
            }
        }
    }
    others
}

/// All-reduces of every engine: those on the chip itself first, then those on chips of its architecture, on each the engine's own first.
pub(super) fn all_reduces<'a>(kernels: &Asking, profiles: &'a Profiles) -> Vec<MeasuredKernel<'a>> {
    let timed = |s: &&Section| s.table == KernelTable::AllReduce;
    let mut all = Vec::new();
    for (chip, own) in Chips::embedded().of(kernels.chip) {
        for of_engine in [true, false] {
            let evidence = evidence_of(own, of_engine);
            let here = profiles.sections.iter().filter(timed);
            let here = here
                .filter(|s| s.chip == chip.id && (s.engine == kernels.engine.name) == of_engine)
                .map(|section| MeasuredKernel { section, chip, evidence });
            all.extend(here);
        }
    }
    all
}

/// Depth of evidence of a kernel of the chip itself, or of another; and of the engine itself, or of another.
fn evidence_of(own_chip: bool, of_engine: bool) -> Evidence {
    match (own_chip, of_engine) {
        (true, true) => Evidence::Engine,
        (true, false) => Evidence::Accelerator,
        (false, _) => Evidence::Architecture,
    }
}

/// Sections of one chip, table and format that an engine may run, and true if the engine itself was timed. Candidates
/// are the engine's kernel that was asked for by name, else the kernel that a rule names, else every kernel of the engine, else every kernel of other engines.
fn chosen<'a>(
    kernels: &Asking,
    table: KernelTable,
    format: &str,
    here: &[&'a Section],
) -> (Vec<&'a Section>, bool) {
    let engine = kernels.engine.name.as_str();
    let of_engine: Vec<&Section> = here.iter().copied().filter(|s| s.engine == engine).collect();
    let of_kernel: Vec<&Section> =
        of_engine.iter().copied().filter(|s| kernels.kernel == Some(s.kernel.as_str())).collect();
    if !of_kernel.is_empty() {
        return (of_kernel, true);
    }
    let rule = rules().unwrap_or_default().iter().find(|rule| rule.holds(kernels, table, format));
    if rule.is_some_and(|rule| rule.kernel == ANY) {
        return (here.to_vec(), !of_engine.is_empty());
    }
    let named = |sections: &[&'a Section]| -> Vec<&'a Section> {
        sections.iter().copied().filter(|s| rule.is_some_and(|rule| rule.kernel == s.kernel)).collect()
    };
    let by_rule = named(&of_engine);
    if !by_rule.is_empty() {
        return (by_rule, true);
    }
    if !of_engine.is_empty() {
        return (of_engine, true);
    }
    let by_rule = named(here);
    if !by_rule.is_empty() {
        return (by_rule, false);
    }
    (here.iter().copied().filter(|s| table == KernelTable::AllReduce || s.engine != "nccl").collect(), false)
}

/// Formats of tables that represent the arithmetic of `weights`, the nearest first; empty for kernels that are
/// described in `catalog/kernels.toml` instead.
pub(super) fn formats(kernels: &Asking, table: KernelTable, weights: &str) -> &'static [&'static str] {
    let experts = table == KernelTable::Experts;
    let datacentre = kernels.chip.architecture == "blackwell";
    match weights {
        "bf16" | "fp16" | "fp32" => &["bf16"],
        // Kernels of products read scales per channel or per tensor alike.
        "fp8" | "fp8-dynamic" => &["fp8", "fp8-block"],
        "fp8-block" => &["fp8-block", "fp8"],
        "nvfp4" => &["nvfp4"],
        "w8a8-int8" | "int8" => &["w8a8-int8", "fp8"],
        "mxfp4-mxfp8" if experts => &["mxfp4-mxfp8", "mxfp4"],
        "mxfp4" if experts && datacentre && kernels.engine.kind != EngineKind::Vllm => {
            &["mxfp4-mxfp8", "mxfp4"]
        }
        "mxfp4" if experts => &["mxfp4", "mxfp4-mxfp8"],
        "gptq-int4" | "awq-int4" | "w4a16" | "int4" if experts => &["gptq-int4"],
        _ => &[],
    }
}

/// Engine, version and accelerator of the kernel tables behind a forecast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Timed {
    /// Name of the engine whose kernels were timed.
    pub engine: String,
    /// Newest version of the engine among the kernel times.
    pub version: String,
    /// Catalog id of the accelerator on which the kernels were timed.
    pub accelerator: String,
}

/// Kernel tables that apply to `weights` under `engine` on `chip`; `None` if no such kernel was timed.
pub fn timed(times: &KernelTimes, engine: &Release, weights: &str, chip: &Accelerator) -> Option<Timed> {
    let Section { engine, version, chip, .. } = first(times, engine, weights, chip)?.section;
    Some(Timed { engine: engine.clone(), version: version.clone(), accelerator: chip.clone() })
}

/// First candidate for the GEMMs of a layer, or for its experts, in any of the formats of `weights`.
fn first<'a>(
    times: &'a KernelTimes,
    engine: &'a Release,
    weights: &str,
    chip: &'a Accelerator,
) -> Option<MeasuredKernel<'a>> {
    let KernelTimes::Measured { profiles, .. } = times else { return None };
    let kernels = Asking { chip, engine, ep: 1, kernel: None };
    let first_of = |table| {
        let timed =
            |part| candidates(&kernels, profiles, table, formats(&kernels, table, part)).into_iter().next();
        weights.split('+').find_map(timed)
    };
    first_of(KernelTable::Gemm).or_else(|| first_of(KernelTable::Experts))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A B300 has a B200's bandwidth, multiprocessors and bf16 rate, and less int8 (0.15 of 4.5 POP/s); a GB200 has more
    /// multiprocessors than either. An H200 has another bandwidth than an H100.
    #[test]
    fn a_chip_supersedes_those_that_exceed_it_in_nothing() {
        let older = |id: &str, dtype| {
            let chip = Catalog::embedded().unwrap().accelerator(id).unwrap();
            superseded(chip, dtype).map(|chip| chip.id.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(older("b300-sxm", Dtype::Bf16), ["b200-sxm"]);
        assert!(older("b300-sxm", Dtype::Int8).is_empty());
        assert!(!older("h200-sxm", Dtype::Fp8).contains(&"h100-sxm"));
        assert!(older("gb300", Dtype::Bf16).contains(&"gb200"));
    }
}
