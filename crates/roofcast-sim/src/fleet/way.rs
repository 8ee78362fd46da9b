//! The transfer of a KV cache from one deployment to another.
//!
//! Knows: every sending rank sends its part of a prompt's KV cache and every receiving rank receives its part, all at
//! once; the rank with most bytes on its link determines the time. Between two kinds of accelerator the slower link
//! counts. Knows nothing about other traffic on the link ([`super::links`]).

use crate::engine::HOST_LINK;
use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::LinkKind;
use roofcast_cost::memory;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::clock::Ticks;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::units::{ByteRate, Picoseconds};

/// The deployments at both ends of a KV transfer, and the link between their accelerators.
#[derive(Debug, Clone)]
pub struct TransferPath {
    ends: [Deployment; 2],
    rate: ByteRate,
    /// Time from the sending of the last byte to its arrival.
    pub latency: Ticks,
}

/// Assumed latency in seconds of a copy through the host, if the catalog gives none: the catalog's latency of PCIe
/// links.
const HOST_LATENCY_S: f64 = 10e-6;

impl TransferPath {
    /// The KV transfer path over a link that the accelerators of both ends have.
    ///
    /// # Errors
    /// The accelerators of one end do not have the link, or the KV caches of both ends differ in format.
    pub fn new(from: &Deployment, to: &Deployment, link: LinkKind, place: &str) -> Result<TransferPath> {
        if from.kv != to.kv {
            let formats =
                format!("{} where prompts are computed, {} where others decode", from.kv.name, to.kv.name);
            return Err(Error::field(place, "precision.kv", formats, "a format that both pools have"));
        }
        let ends = [&*from.accelerator, &*to.accelerator];
        let (rate, latency) = shared(ends, link).ok_or_else(|| {
            let named = [LinkKind::Nvlink, LinkKind::Network, LinkKind::Pcie];
            let there = named.into_iter().filter(|l| shared(ends, *l).is_some());
            let there: Vec<&str> = there.map(LinkKind::name).collect();
            let [from, to] = ends.map(|end| end.id.as_str());
            let has = if from == to { format!("{from} has") } else { format!("{from} and {to} have both") };
            let accepted = format!("{}, which {has}", there.join(" or "));
            Error::field(place, "fleet.link", link.name(), accepted)
        })?;
        let latency = Ticks::from(Picoseconds::from_seconds(latency));
        Ok(TransferPath { ends: [from.clone(), to.clone()], rate, latency })
    }

    /// Time to transfer the KV cache of `tokens` tokens over the link.
    pub fn time(&self, tokens: u64) -> Ticks {
        let stages = |end: &Deployment| {
            (0..end.stages.len()).map(|stage| memory::sequence_bytes(end, stage, tokens)).max()
        };
        let largest_share = self.ends.iter().filter_map(stages).max().unwrap_or_default();
        Picoseconds::moving(largest_share, self.rate).into()
    }
}

/// Rate and latency of a link between two accelerators, each of the slower end; `None` if the link cannot join them.
/// NVLink joins accelerators of one kind only.
fn shared([from, to]: [&Accelerator; 2], link: LinkKind) -> Option<(ByteRate, f64)> {
    if link == LinkKind::Nvlink && from.id != to.id {
        return None;
    }
    let [(one, first), (other, second)] = [figures(from, link)?, figures(to, link)?];
    Some((if other.0 < one.0 { other } else { one }, first.max(second)))
}

/// Rate and latency of a link, if the accelerator has it.
fn figures(accelerator: &Accelerator, link: LinkKind) -> Option<(ByteRate, f64)> {
    let within = accelerator.link.as_ref();
    match link {
        LinkKind::Nvlink => within.filter(|l| !l.topology.is_pcie()).map(|l| (l.bytes_per_s, l.latency_s)),
        LinkKind::Network => accelerator.network.as_ref().map(|n| (n.bytes_per_s, n.latency_s)),
        LinkKind::Pcie => Some(
            within
                .filter(|l| l.topology.is_pcie())
                .map_or((HOST_LINK, HOST_LATENCY_S), |l| (l.bytes_per_s, l.latency_s)),
        ),
    }
}
