//! LoRA adapters of vLLM's engine: buffers on the device, copies on the host, and the loads for which a step waits.
//!
//! Knows: the adapters of a step are made present before the step runs. An adapter without a buffer replaces the one
//! that was used longest ago, and is copied over the host's link; one that is not on the host either is first read from
//! storage. Source: `LRUCacheWorkerLoRAManager` (`vllm/lora/worker_manager.py`). Knows nothing about the scheduler,
//! which bounds the adapters of a step.

use crate::scheduler::vllm::AdapterSet;
use roofcast_ask::deployment::Deployment;
use roofcast_ask::engine_settings::{LoraSettings, STORAGE_GB_S};
use roofcast_cost::memory;
use roofcast_cost::operator::Adapter;
use roofcast_facts::clock::Ticks;
use roofcast_facts::units::Picoseconds;
use std::collections::VecDeque;

/// Adapters on the device and on the host.
#[derive(Debug, Clone)]
pub(crate) struct Adapters {
    device: Recent,
    host: Recent,
    /// Time to copy an adapter's part of one rank from the host to the device.
    copy: Ticks,
    /// Time to read an adapter from storage to the host.
    read: Ticks,
}

/// Loads for one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Loads {
    /// Number of adapters copied to the device.
    pub(super) copies: u64,
    /// Number of adapters read from storage.
    pub(super) reads: u64,
    /// Time of all copies and reads, one after another.
    pub(super) time: Ticks,
}

impl Adapters {
    /// Room for the adapters that `deployment` serves; `None` if it serves none.
    pub(crate) fn served(deployment: &Deployment) -> Option<Adapters> {
        deployment.engine.lora.as_ref().map(|settings| Adapters::of(deployment, settings))
    }

    fn of(deployment: &Deployment, settings: &LoraSettings) -> Adapters {
        let whole = Adapter::whole(deployment, settings).bytes().as_f64();
        let part = Adapter::of(deployment, settings).bytes().as_f64() / deployment.parallelism.pp as f64;
        let ticks = |seconds| Ticks::from(Picoseconds::from_seconds(seconds));
        Adapters {
            device: Recent::new(settings.max_loras),
            host: Recent::new(settings.max_cpu_loras),
            copy: ticks(part / memory::load_rate(deployment).0),
            read: ticks(whole / (STORAGE_GB_S * 1e9)),
        }
    }

    /// Most adapters of a step.
    pub(super) fn most(&self) -> usize {
        self.device.most
    }

    /// The same sizes without adapters.
    pub(super) fn emptied(&self) -> Adapters {
        let empty = |recent: &Recent| Recent { held: VecDeque::new(), ..*recent };
        Adapters { device: empty(&self.device), host: empty(&self.host), ..*self }
    }

    /// Makes `adapters` present on the device: first the ones that are there, so that no load replaces them.
    pub(super) fn load(&mut self, adapters: &AdapterSet) -> Loads {
        let absent: Vec<u32> = adapters.iter().filter(|adapter| !self.touch(*adapter)).collect();
        let mut loads = Loads::default();
        for adapter in absent {
            if !self.host.touch(adapter) {
                loads.reads += 1;
                // A copy on the device does not outlive the one on the host.
                if let Some(gone) = self.host.add(adapter) {
                    self.device.held.retain(|held| *held != gone);
                }
            }
            loads.copies += 1;
            self.device.add(adapter);
        }
        let times = |time: Ticks, count: u64| Ticks(time.0 * u128::from(count));
        loads.time = times(self.copy, loads.copies) + times(self.read, loads.reads);
        loads
    }

    /// Notes the use of an adapter that is on the device; false if it is not.
    fn touch(&mut self, adapter: u32) -> bool {
        self.device.touch(adapter) && self.host.touch(adapter)
    }
}

/// At most `most` adapters, the one used longest ago first.
#[derive(Debug, Clone)]
struct Recent {
    most: usize,
    held: VecDeque<u32>,
}

impl Recent {
    fn new(most: u64) -> Recent {
        Recent { most: most as usize, held: VecDeque::new() }
    }

    /// Moves an adapter to the end; false if it is not held.
    fn touch(&mut self, adapter: u32) -> bool {
        let Some(at) = self.held.iter().position(|held| *held == adapter) else { return false };
        self.held.remove(at);
        self.held.push_back(adapter);
        true
    }

    /// Adds an adapter; returns the one that it replaces.
    fn add(&mut self, adapter: u32) -> Option<u32> {
        let gone = if self.held.len() == self.most { self.held.pop_front() } else { None };
        self.held.push_back(adapter);
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two buffers on the device and three copies on the host. A fourth adapter replaces the one used longest ago in
    /// both places; adapter 1, still on the host, is copied alone.
    #[test]
    fn the_least_recent_is_replaced() {
        let copy = Ticks(10);
        let read = Ticks(100);
        let mut adapters = Adapters { device: Recent::new(2), host: Recent::new(3), copy, read };
        let mut load = |wanted: &[u32]| {
            let Loads { copies, reads, time } = adapters.load(&wanted.iter().copied().collect());
            (copies, reads, time.0)
        };
        assert_eq!(load(&[1, 2]), (2, 2, 220));
        assert_eq!(load(&[2]), (0, 0, 0));
        // 3 replaces 1 on the device.
        assert_eq!(load(&[3]), (1, 1, 110));
        assert_eq!(load(&[1]), (1, 0, 10));
        // On the host the order is now 2, 3, 1: 4 replaces 2; on the device 3, which is older than 1.
        assert_eq!(load(&[1, 4]), (1, 1, 110));
        assert_eq!(load(&[3]), (1, 0, 10));
        assert_eq!(load(&[2]), (1, 1, 110));
    }
}
