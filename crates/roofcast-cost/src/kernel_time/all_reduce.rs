//! Times of all-reduces among the ranks of a node, from the tables.
//!
//! Knows: an engine switches algorithms by size, and near a switch an all-reduce takes up to three times as long as the
//! fastest one. A table whose times exceed [`KIN`] times the fastest at more than [`SWITCH`] sizes, among all engines on the chip and on
//! chips of its architecture with equal links, has a collective that the engine does not run there: a fallback to NCCL of an older
//! version, or of ranks in several hosts. The most similar plausible table takes its place where it is faster, the chip's own first, because
//! links and hosts are the chip's. No time exceeds [`KIN`] times the fastest. Knows nothing about which messages there are.

use super::choice::{MeasuredKernel, all_reduces, candidates};
use super::gate::KIN;
use super::{Basis, Kernels};
use crate::profile::{Curve, KernelTable};
use roofcast_facts::accelerator::Link;

/// Sizes of the grid at which a plausible table may exceed the bound: the two around a switch of algorithms.
const SWITCH: usize = 2;

impl Kernels<'_> {
    /// Curve of an all-reduce's seconds over bytes, if all-reduces over `ranks` ranks were timed on such links.
    pub(crate) fn all_reduce(&self, ranks: u64) -> Option<(Curve, Basis)> {
        let own_link = self.chip.link.as_ref().filter(|_| ranks <= self.chip.node_size)?;
        let profiles = self.profiles()?;
        let curve = |kernel: &MeasuredKernel| reduced(kernel, own_link, ranks);
        let timed = candidates(&self.asking, profiles, KernelTable::AllReduce, &["bf16"]);
        let (chosen, times) = timed.iter().find_map(|kernel| Some((kernel, curve(kernel)?)))?;
        let all = all_reduces(&self.asking, profiles);
        let alike = all.iter().filter(|kernel| has_link(kernel, own_link)).filter_map(curve);
        let fastest = alike.fold(times.clone(), |least, other| least.least(&other));
        let beyond = |times: &Curve| times.sizes().filter(|s| times.at(*s) > KIN * fastest.at(*s)).count();
        let within = |times: &Curve| times.map(|size, seconds| seconds.min(KIN * fastest.at(size)));
        let exact = |kernel: &MeasuredKernel| kernel.chip.id == self.chip.id;
        if beyond(&times) > SWITCH {
            let others = all.iter().filter_map(|kernel| Some((kernel, curve(kernel)?)));
            if let Some((other, faster)) = others.into_iter().find(|(_, times)| beyond(times) <= SWITCH) {
                let basis = other.basis(exact(other)).in_place_of(chosen.name());
                return Some((within(&times.least(&faster)), basis));
            }
        }
        Some((within(&times), chosen.basis(exact(chosen))))
    }
}

/// Seconds of `kernel` over bytes among `ranks` ranks with links like `own_link`: beyond the start, the time of one byte, it grows
/// with the ratio of the links' rates. `None` if no such all-reduce was timed in a captured graph.
fn reduced(kernel: &MeasuredKernel, own_link: &Link, ranks: u64) -> Option<Curve> {
    let link = kernel.chip.link.as_ref().filter(|_| kernel.section.kernel != "eager")?;
    let alike = link.topology.is_pcie() == own_link.topology.is_pcie()
        && link.topology.is_through_host() == own_link.topology.is_through_host();
    let (index, _) = kernel.section.nearest(|s| (alike && u64::from(s[0]) == ranks).then_some(0.0))?;
    let slower = link.bytes_per_s.0 / own_link.bytes_per_s.0;
    let times = kernel.section.curve(index)?.on_grid(KernelTable::AllReduce.grid());
    let start = times.at(1.0);
    Some(times.map(|_, seconds| start + (seconds - start) * slower))
}

/// True if the chip of `kernel` has links of the kind and rate of `link`.
fn has_link(kernel: &MeasuredKernel, link: &Link) -> bool {
    kernel.chip.link.as_ref().is_some_and(|l| l.kind == link.kind && l.bytes_per_s == link.bytes_per_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coefficients::Evidence;
    use crate::forecaster::Forecaster;
    use crate::profile::Profiles;
    use roofcast_ask::deployment::{Deployment, DeploymentOptions};
    use roofcast_facts::catalog::Catalog;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn all_reduce(chip: &str, engine: &str, ranks: u64) -> Option<(Curve, Basis)> {
        let catalog = Catalog::embedded().unwrap();
        let model = Arc::new(catalog.named("meta-llama/Llama-3.1-8B-Instruct").unwrap().model().unwrap());
        let chip = Arc::new(catalog.accelerator(chip).unwrap().clone());
        let mut options = DeploymentOptions::default();
        options.engine.name = Some(engine.to_owned());
        let forecaster = Forecaster::embedded(Deployment::resolve(model, chip, &options).ok()?).unwrap();
        Kernels::of(&forecaster.deployment, &forecaster.coefficients).all_reduce(ranks)
    }

    /// Over all tables: no engine's all-reduce takes more than 2.5 times as long as the fastest of any engine among as many ranks on
    /// chips of the architecture with equal links.
    #[test]
    fn engines_reduce_in_similar_times() {
        let catalog = Catalog::embedded().unwrap();
        let tables = &Profiles::embedded().unwrap().sections;
        let tables = || tables.iter().filter(|s| s.table == KernelTable::AllReduce && s.kernel != "eager");
        let chips: BTreeSet<&str> = tables().map(|s| s.chip.as_str()).collect();
        let mut compared = 0;
        let engines = ["vllm", "sglang", "tensorrt-llm"];
        for (chip, engine) in chips.iter().flat_map(|chip| engines.map(|engine| (*chip, engine))) {
            let machine = catalog.accelerator(chip).unwrap();
            for ranks in [2, 4, 8, 16] {
                let Some((times, basis)) = all_reduce(chip, engine, ranks) else { continue };
                let alike = tables().filter(|s| {
                    let other = catalog.accelerator(&s.chip).unwrap();
                    let [link, own_link] = [other, machine].map(|chip| chip.link.as_ref().unwrap());
                    other.architecture == machine.architecture
                        && (&link.kind, link.bytes_per_s) == (&own_link.kind, own_link.bytes_per_s)
                });
                for table in alike {
                    let Some((index, _)) = table.nearest(|s| (u64::from(s[0]) == ranks).then_some(0.0))
                    else {
                        continue;
                    };
                    let other = table.curve(index).unwrap();
                    for size in other.sizes() {
                        compared += 1;
                        let ratio = times.at(size) / other.at(size);
                        assert!(
                            ratio < 2.501,
                            "{chip} {engine} {ranks} {size}: {ratio:.2} of {}",
                            basis.kernel
                        );
                    }
                }
            }
        }
        assert!(compared > 1000, "{compared}");
    }

    /// vLLM's table of eight B200 has 22.1 µs at 256 KiB, 512 KiB and 1 MiB, where its own on eight B300 with equal links has 6.6, 7.0 and
    /// 8.0, so that SGLang's on B200 counts, 8.5 µs at 256 KiB. Among eight GB300, which are two hosts, SGLang's table has 29.6 µs at
    /// 32 KiB and TensorRT-LLM's kernels for NVLink across hosts take 4.5. vLLM's on eight H200 has 5.4 µs at 256 KiB, and counts.
    #[test]
    fn a_fallback_gives_way_to_the_most_similar_table() {
        let at = |chip, engine, bytes: f64| {
            let (times, basis) = all_reduce(chip, engine, 8).unwrap();
            (times.at(bytes) * 1e6, basis)
        };
        let (micros, basis) = at("b200-sxm", "vllm", 262_144.0);
        assert!((micros / 8.5 - 1.0).abs() < 0.02, "{micros}");
        assert!(basis.kernel.starts_with("sglang") && basis.kernel.ends_with("graph, b200-sxm"), "{basis:?}");
        assert!(basis.in_place_of.as_deref().unwrap().starts_with("vllm"), "{basis:?}");
        assert_eq!((basis.evidence, basis.exact), (Evidence::Accelerator, false));
        let (micros, basis) = at("gb300", "sglang", 32_768.0);
        assert!((micros / 4.5 - 1.0).abs() < 0.02, "{micros}");
        assert!(basis.kernel.ends_with("mnnvl, gb300") && basis.in_place_of.is_some(), "{basis:?}");
        let (micros, basis) = at("h200-sxm", "vllm", 262_144.0);
        assert!((micros / 5.4 - 1.0).abs() < 0.02, "{micros}");
        assert_eq!((basis.evidence, basis.exact, basis.in_place_of), (Evidence::Engine, true, None));
    }
}
