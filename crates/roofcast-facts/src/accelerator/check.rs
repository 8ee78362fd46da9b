//! Plausibility of a machine's figures.
//!
//! Knows: the range of each figure. Knows nothing about their sources.

use super::{Accelerator, Topology};
use crate::error::{Error, Result};

/// Most bytes per second of a link.
const FASTEST: f64 = 1e15;

fn positive(place: &str, field: &str, value: f64, most: f64) -> Result<()> {
    if value.is_finite() && value > 0.0 && value <= most {
        Ok(())
    } else {
        Err(Error::field(place, field, value, format!("a number above 0, at most {most:e}")))
    }
}

impl Accelerator {
    /// Refuses entries with impossible numbers; `place` names the entry's file in errors.
    pub fn check(&self, place: &str) -> Result<()> {
        let place = format!("{place}: accelerator {:?}", self.id);
        let positive = |field: &str, value: f64, most: f64| positive(&place, field, value, most);
        if self.id.is_empty() || self.id != self.id.to_lowercase() {
            return Err(Error::field(&place, "id", format!("{:?}", self.id), "a lower-case id"));
        }
        positive("memory_bytes", self.memory_bytes.as_f64(), 1e15)?;
        positive("usable_bytes", self.usable_bytes.as_f64(), self.memory_bytes.as_f64())?;
        positive("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s.0, 1e16)?;
        if let Some(share) = self.sustained_bandwidth {
            positive("sustained_bandwidth", share, 1.0)?;
        }
        positive("node_size", self.node_size as f64, 1e6)?;
        if let Some(rate) = self.fp16_accumulate_flops {
            positive("fp16_accumulate_flops", rate.0, 1e20)?;
        }
        if self.peak_flops.is_empty() {
            return Err(Error::field(
                &place,
                "peak_flops",
                "empty",
                "at least one dense rate, as in bf16 = 1e12",
            ));
        }
        for (dtype, rate) in &self.peak_flops {
            positive(&format!("peak_flops.{dtype}"), rate.0, 1e20)?;
        }
        for (dtype, rate) in &self.sustained_flops {
            let peak = self.peak_flops.get(dtype).map_or(0.0, |peak| peak.0);
            if !(rate.0 > 0.0 && rate.0 <= peak) {
                let accepted = format!("above 0, at most `peak_flops.{dtype}`");
                return Err(Error::field(&place, format!("sustained_flops.{dtype}"), rate.0, accepted));
            }
        }
        positive("host_speed", self.host_speed, 100.0)?;
        if let Some(multiprocessors) = self.multiprocessors {
            positive("multiprocessors", multiprocessors as f64, 1e5)?;
        }
        if let Some(power) = self.power_w {
            positive("power_w", power, 1e6)?;
        }
        if let Some(price) = &self.price {
            positive("price.usd_per_hour", price.usd_per_hour, 1e6)?;
        }
        self.check_links(&place)
    }

    fn check_links(&self, place: &str) -> Result<()> {
        let positive = |field: &str, value: f64| positive(place, field, value, FASTEST);
        if let Some(link) = &self.link {
            positive("link.bytes_per_s", link.bytes_per_s.0)?;
            self::positive(place, "link.latency_s", link.latency_s, 1.0)?;
            if (link.topology == Topology::Torus) != link.axes.is_some_and(|a| (1..=6).contains(&a)) {
                return Err(Error::field(
                    place,
                    "link.axes",
                    format!("{:?}", link.axes),
                    "1 to 6 on a torus, else none",
                ));
            }
        }
        if let Some(link) = &self.host_link {
            positive("host_link.bytes_per_s", link.bytes_per_s.0)?;
            let memory = link.memory_bytes_per_s.unwrap_or(link.bytes_per_s);
            positive("host_link.memory_bytes_per_s", memory.0)?;
        }
        if let Some(network) = &self.network {
            positive("network.bytes_per_s", network.bytes_per_s.0)?;
            self::positive(place, "network.latency_s", network.latency_s, 1.0)?;
        }
        Ok(())
    }
}
