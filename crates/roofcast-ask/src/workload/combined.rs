//! Combinations of a workload's keys that are refused, and keys that a mode does not have.
//!
//! Knows: images and prefixes have places in a prompt, adapters compute prefixes anew. Knows nothing about the bounds of
//! single keys.

use super::{Prompt, Request, Workload, adapters};
use roofcast_facts::error::{Error, Result};

/// Most prefixes over all adapters: half of the segments of traffic.
const MOST_SEGMENTS: u64 = 1 << 30;

impl Workload {
    /// Refuses images outside their bounds, and images whose place in a prompt differs between requests.
    pub(super) fn check_images(&self, place: &str) -> Result<()> {
        let Some(images) = &self.images else { return Ok(()) };
        images.check(place)?;
        let accepted = if self.is_replayed() {
            "omitted where requests are replayed as recorded"
        } else if self.prefix.is_some_and(|prefix| prefix.share < 1.0) {
            "omitted, or a prefix that all requests have, behind which they stand"
        } else {
            return Ok(());
        };
        Err(Error::field(place, "workload.images", "set", accepted))
    }

    /// Refuses adapters that are drawn for recorded requests which name some, or which share tokens: what an adapter computes
    /// is not another's.
    pub(super) fn check_adapters(&self, place: &str) -> Result<()> {
        if self.adapters.is_none() || !self.is_replayed() {
            return Ok(());
        }
        let is_free = |request: &Request| request.adapter == 0 && request.prompt == Prompt::Own;
        match &self.recorded {
            Some(trace) if trace.requests.iter().all(is_free) => Ok(()),
            _ => {
                let accepted =
                    "omitted over sessions, and over a trace whose requests name adapters or share tokens";
                Err(Error::field(place, "workload.adapters", "set", accepted))
            }
        }
    }

    /// Refuses more prefixes than segments can number: each adapter computes a prefix anew, as its own segment.
    pub(super) fn check_segments(&self, place: &str) -> Result<()> {
        let prefixes = self.prefix.map_or(0, |prefix| prefix.count);
        let adapters = adapters::count(self.adapters.as_ref(), &self.classes);
        if prefixes.saturating_mul(adapters + 1) <= MOST_SEGMENTS {
            return Ok(());
        }
        let accepted = format!("at most {MOST_SEGMENTS} prefixes times adapters");
        Err(Error::field(
            place,
            "workload.prefix.count",
            format!("{prefixes} of {adapters} adapters"),
            accepted,
        ))
    }

    /// Refuses images in a mode that does not price them; `accepted` says what does.
    pub fn without_images(&self, place: &str, accepted: &str) -> Result<()> {
        match self.images {
            None => Ok(()),
            Some(_) => Err(Error::field(place, "workload.images", "set", accepted)),
        }
    }

    /// Refuses LoRA adapters in a mode that does not serve them; `accepted` is the end of the message.
    pub fn without_adapters(&self, place: &str, accepted: &str) -> Result<()> {
        match self.adapter_count() {
            0 => Ok(()),
            n => Err(Error::field(place, "workload.adapters", format!("{n} adapters"), accepted)),
        }
    }

    /// Refuses classes in a mode without results by class; `accepted` is the end of the message.
    pub fn without_classes(&self, place: &str, accepted: &str) -> Result<()> {
        match self.classes.len() {
            0 => Ok(()),
            n => Err(Error::field(place, "workload.classes", format!("{n} classes"), accepted)),
        }
    }
}
