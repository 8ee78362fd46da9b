//! vLLM's metrics of its host tier.
//!
//! Source of names, labels and bounds: vLLM 0.33, `distributed/kv_transfer/kv_connector/v1/offloading/metrics.py` and
//! `v1/kv_offload/cpu`. vLLM has them only where a tier is configured. Each worker reports its own copies: times add up
//! over workers, and a copy is one size for each worker. Knows nothing about storage below the host.

use super::exposition::Exposition;
use super::histogram::Histogram;
use super::{Metrics, label};
use roofcast::engine::online::HostCopy;

/// Histogram bounds of a copy, in bytes.
const SIZES: [f64; 10] = [1e6, 5e6, 10e6, 20e6, 40e6, 60e6, 80e6, 100e6, 150e6, 200e6];
/// Histogram bounds of a store, in chunks.
const CHUNKS: [f64; 10] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0];
/// Histogram bounds of a lookup's own time, in seconds.
const LOOKUPS: [f64; 11] = [1e-5, 5e-5, 1e-4, 5e-4, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0];
/// Histogram bounds of a lookup that is answered later, in seconds.
const LATER: [f64; 11] = [1e-4, 5e-4, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];

/// The host tier of an engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostFacts {
    /// Number of blocks that the tier holds.
    pub(crate) chunks: u64,
    /// Bytes of KV per token, over all ranks.
    pub(crate) token_bytes: f64,
    /// Number of workers of the engine.
    pub(crate) workers: u64,
    /// True if the version reports the tier's settings.
    pub(crate) has_info: bool,
}

/// Copies in one direction.
#[derive(Debug, Clone)]
struct Copies {
    bytes: f64,
    seconds: f64,
    sizes: Histogram,
}

/// Copies to and from the host since the start.
#[derive(Debug, Clone)]
pub(super) struct HostCopies {
    /// Stores, then loads.
    directions: [Copies; 2],
    chunks: Histogram,
    /// Number of tokens that are being copied to the host, and back.
    copying: [u64; 2],
}

impl HostCopies {
    pub(super) fn new() -> HostCopies {
        let copies = Copies { bytes: 0.0, seconds: 0.0, sizes: Histogram::new(&SIZES) };
        HostCopies { directions: [copies.clone(), copies], chunks: Histogram::new(&CHUNKS), copying: [0, 0] }
    }
}

impl Metrics {
    /// Counts copies that have ended, and sets the number of tokens that are being copied.
    pub(crate) fn copied(&mut self, ended: &[HostCopy], copying: [u64; 2]) {
        let Some(host) = self.fixed.host else { return };
        self.host.copying = copying;
        for copy in ended {
            let bytes = copy.tokens as f64 * host.token_bytes;
            let direction = &mut self.host.directions[usize::from(copy.loads)];
            direction.bytes += bytes;
            direction.seconds += copy.time.seconds() * host.workers as f64;
            (0..host.workers).for_each(|_| direction.sizes.add(bytes / host.workers as f64));
            if !copy.loads {
                self.host.chunks.add(copy.tokens as f64 / self.fixed.block_size as f64);
            }
        }
    }

    /// Writes the metrics of the host tier, if there is one.
    pub(super) fn show_host(&self, text: &mut Exposition<'_>) {
        let Some(host) = self.fixed.host else { return };
        let [stores, loads] = &self.host.directions;
        let bytes = |copies: &Copies| [(String::new(), copies.bytes)];
        let seconds = |copies: &Copies| [(String::new(), copies.seconds)];
        text.amount(("vllm:kv_offload_load_bytes", "Bytes copied from the host."), &bytes(loads));
        let help = "Seconds of copies from the host, over all workers.";
        text.amount(("vllm:kv_offload_load_time", help), &seconds(loads));
        text.histogram(
            ("vllm:kv_offload_load_size", "Bytes of a worker's copy from the host."),
            &loads.sizes,
        );
        text.amount(("vllm:kv_offload_store_bytes", "Bytes copied to the host."), &bytes(stores));
        let help = "Seconds of copies to the host, over all workers.";
        text.amount(("vllm:kv_offload_store_time", help), &seconds(stores));
        text.histogram(
            ("vllm:kv_offload_store_size", "Bytes of a worker's copy to the host."),
            &stores.sizes,
        );
        let ways = [("CPU_to_GPU", loads), ("GPU_to_CPU", stores)];
        let ways = ways.map(|(way, copies)| (label("transfer_type", way), copies));
        let amounts =
            |value: fn(&Copies) -> f64| ways.each_ref().map(|(way, copies)| (way.clone(), value(copies)));
        let older = "Older name of the copies by direction.";
        text.amount(("vllm:kv_offload_total_bytes", older), &amounts(|copies| copies.bytes));
        text.amount(("vllm:kv_offload_total_time", older), &amounts(|copies| copies.seconds));
        let sizes = ways.each_ref().map(|(way, copies)| (way.clone(), &copies.sizes));
        text.histograms(("vllm:kv_offload_size", older), &sizes);
        self.show_room(text, host);
        let none = "Always empty here: the emulator looks up in no time.";
        text.histogram(("vllm:kv_offload_lookup_sync_delay_seconds", none), &Histogram::new(&LOOKUPS));
        text.histogram(("vllm:kv_offload_lookup_async_delay_seconds", none), &Histogram::new(&LATER));
    }

    /// Writes the room of the tier: what copies pin, and its settings.
    fn show_room(&self, text: &mut Exposition<'_>, host: HostFacts) {
        let block = self.fixed.block_size;
        let room = (host.chunks * block).max(1) as f64;
        let [writes, reads] = self.host.copying.map(|tokens| tokens as f64 / room);
        for (name, share) in [
            ("vllm:kv_offload_cpu_cache_usage_perc", writes + reads),
            ("vllm:kv_offload_cpu_cache_write_usage_perc", writes),
            ("vllm:kv_offload_cpu_cache_read_usage_perc", reads),
        ] {
            text.gauge((name, "Share of the host tier that copies in flight pin, 0 to 1."), share.min(1.0));
        }
        text.histogram(("vllm:kv_offload_cpu_allocation_size", "Blocks of a store."), &self.host.chunks);
        if host.has_info {
            let longest = self.fixed.max_model_len;
            let tokens = host.chunks * longest / longest.div_ceil(block).max(1);
            let bytes = (host.chunks * block) as f64 * host.token_bytes;
            let labels = [
                ("cpu_num_chunks", host.chunks.to_string()),
                ("cpu_blocks_per_chunk", "1".to_owned()),
                ("cpu_kv_cache_size_bytes", format!("{bytes:.0}")),
                ("cpu_kv_cache_size_tokens", tokens.to_string()),
            ];
            let labels: Vec<_> = labels.iter().map(|(name, value)| label(name, value)).collect();
            let help = "The host tier's settings.";
            text.gauges(("vllm:kv_offload_config_info", help), &[(labels.join(","), 1.0)]);
        }
        let stages = [("waiting_to_start", 0), ("in_progress", self.deferred), ("completed_waiting", 0)];
        let stages = stages.map(|(stage, count)| (label("stage", stage), count as f64));
        let help = "Waiting requests whose KV cache is loaded, by stage.";
        text.gauges(("vllm:num_requests_kv_fetch_by_stage", help), &stages);
    }
}
