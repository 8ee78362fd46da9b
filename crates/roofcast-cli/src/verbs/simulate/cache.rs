//! Lines of a simulation's text on the KV cache: its use, fragmentation, tables of blocks, and the tiers below it.
//!
//! Knows: the words. Knows nothing about layout.

use crate::show::number::{grouped, percent, significant};
use roofcast::simulate::Simulation;
use roofcast::spec::SchedulerKind;
use roofcast::units::Bytes;

pub(super) fn cache(s: &Simulation) -> String {
    let k = &s.kv_cache;
    if s.settings.scheduler == SchedulerKind::LlamaCpp {
        return slots(s);
    }
    let groups = if k.groups > 1 { format!(" for {} groups of layers", k.groups) } else { String::new() };
    format!(
        "{} blocks of {}{groups}: mean use {}, at most {}; {} internal fragmentation",
        grouped(k.blocks),
        k.block_size,
        percent(k.mean_usage),
        percent(k.max_blocks as f64 / k.blocks as f64),
        percent(k.internal_fragmentation)
    )
}

/// Use of llama.cpp's cells. A request takes its slot's part whole, or as many cells as it has tokens if slots share them.
fn slots(s: &Simulation) -> String {
    let k = &s.kv_cache;
    let count = s.settings.max_num_seqs;
    let peak = k.max_blocks as f64 / k.blocks as f64;
    if u64::from(s.settings.max_model_len) * count > k.blocks {
        let cells = grouped(k.blocks);
        let mean = percent(k.mean_usage);
        return format!("{cells} cells that {count} slots share: mean use {mean}, at most {}", percent(peak));
    }
    format!(
        "{count} slots of {} cells: {} taken on average, at most {}; a taken one is {} full",
        grouped(k.blocks / count.max(1)),
        significant(k.mean_usage * count as f64),
        significant(peak * count as f64),
        percent(1.0 - k.internal_fragmentation)
    )
}

/// External fragmentation, if requests occupy contiguous pieces of memory.
pub(super) fn gaps(s: &Simulation) -> Option<(&'static str, String)> {
    let k = Some(&s.kv_cache).filter(|k| k.external_fragmentation > 0.0)?;
    let text = format!(
        "{} external fragmentation; {} admissions failed although enough memory was free in total",
        percent(k.external_fragmentation),
        grouped(k.scattered_refusals)
    );
    Some(("fragmentation", text))
}

/// Hit rates of the KV cache on the device and in the host tier, and the tokens moved between them; `None` without a
/// host tier.
pub(super) fn host(s: &Simulation) -> Option<(&'static str, String)> {
    let h = s.kv_cache.host?;
    let gb = |bytes: Bytes| significant(bytes.as_f64() / 1e9);
    let lost = h.dropped_tokens.map_or(String::new(), |tokens| format!(", {} dropped", grouped(tokens)));
    let text = format!(
        "hit rate {} on the device, {} on the host ({} tokens loaded, capacity {}, {} GB); {} tokens stored \
         ({} GB){lost}; loads took {} s and saved {} s of prefill",
        percent(h.device_hit_rate),
        percent(h.host_hit_rate),
        grouped(h.loaded_tokens),
        grouped(h.tokens),
        gb(h.loaded_bytes),
        grouped(h.stored_tokens),
        gb(h.stored_bytes),
        significant(h.loading_s),
        significant(h.spared_s)
    );
    Some(("KV tiers", text))
}

/// Hit rate of the storage below the host tier, and the tokens moved between them; `None` without storage.
pub(super) fn storage(s: &Simulation) -> Option<(&'static str, String)> {
    let below = s.kv_cache.host?.storage?;
    let gb = |bytes: Bytes| significant(bytes.as_f64() / 1e9);
    let text = format!(
        "hit rate {} ({} tokens read, capacity {}, {} GB); {} tokens written ({} GB); reads took {} s",
        percent(below.hit_rate),
        grouped(below.loaded_tokens),
        grouped(below.tokens),
        gb(below.loaded_bytes),
        grouped(below.stored_tokens),
        gb(below.stored_bytes),
        significant(below.loading_s)
    );
    Some(("KV storage", text))
}

/// HBM traffic and transfers of block tables, if the simulation counts them.
pub(super) fn tables(s: &Simulation) -> Option<(&'static str, String)> {
    let t = s.kv_cache.tables?;
    let [read, sent] = [t.read_bytes, t.sent_bytes].map(|bytes| grouped(bytes.round() as u64));
    Some(("tables", format!("{read} B read per layer and decode step, {sent} B sent to the device")))
}
