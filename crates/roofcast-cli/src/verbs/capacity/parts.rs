//! Memory of each accelerator by its parts, for people.

use crate::show::number::grouped;
use crate::show::table;
use roofcast::Deployment;
use roofcast::capacity::{Capacity, CapacityQuestion, SmallestTopology};
use roofcast::memory::{Rank, shares_what_is_free};
use roofcast::units::Bytes;

/// Table of the fullest rank of each stage.
pub(super) fn of_ranks(deployment: &Deployment, c: &Capacity) -> String {
    let rule = if deployment.ideal {
        "nominal"
    } else if shares_what_is_free(deployment) {
        "free memory × fraction"
    } else {
        "usable × utilization"
    };
    let pooled = c.ranks.iter().any(|rank| rank.state_bytes > Bytes::ZERO);
    let adapted = c.ranks.iter().any(|rank| rank.adapter_bytes.is_some());
    let mut header = vec!["memory per accelerator", rule, "weights"];
    header.extend(adapted.then_some("adapters"));
    header.extend(["activations", "runtime"]);
    header.extend(pooled.then_some("states"));
    let shared = deployment.memory_used > Bytes::ZERO;
    let starts = c.ranks.iter().all(|rank| rank.budget_bytes <= rank.free_bytes);
    header.push(if shared && !starts { "KV if it started" } else { "KV" });
    let hosted = c.ranks.iter().any(|rank| rank.host_bytes.is_some());
    header.extend(hosted.then_some("on the host"));
    header.extend(shared.then_some("free at start"));
    let row = |(stage, r): (usize, &Rank)| {
        let mut sizes = vec![r.budget_bytes, r.weight_bytes];
        sizes.extend(r.adapter_bytes);
        sizes.extend([r.activation_bytes, r.runtime_bytes]);
        sizes.extend(pooled.then_some(r.state_bytes));
        sizes.push(r.kv_bytes);
        sizes.extend(hosted.then_some(r.host_bytes.unwrap_or_default()));
        sizes.extend(shared.then_some(r.free_bytes));
        std::iter::once(format!("stage {}", stage + 1)).chain(sizes.iter().map(|b| b.gb())).collect()
    };
    table::table(&header, &c.ranks.iter().enumerate().map(row).collect::<Vec<Vec<String>>>(), 1)
}

/// Text on the difference between the bytes of weights on an accelerator with all layers and the bytes of the model, without a
/// drafter; empty if the bytes are equal or divided.
pub(super) fn held_elsewhere(deployment: &Deployment, c: &Capacity) -> String {
    let [rank] = c.ranks.as_slice() else { return String::new() };
    let p = deployment.parallelism;
    if p.stage_ranks() * p.pp > 1 {
        return String::new();
    }
    let drafter = deployment.draft.iter().flat_map(|draft| &draft.stages).map(|stage| stage.weight_bytes);
    let on_host = deployment.stages.iter().map(|stage| stage.host_bytes);
    let loaded = (rank.weight_bytes + on_host.sum()).saturating_sub(drafter.sum());
    if loaded > c.weight_bytes {
        let causes = causes(deployment, loaded.saturating_sub(c.weight_bytes)).join(" and ");
        return format!(", {} as loaded, with {causes}", loaded.gb());
    }
    let embedding = c.weight_bytes.saturating_sub(loaded);
    match embedding {
        Bytes::ZERO => String::new(),
        some => format!(", of which the input embedding, {}, stays on the host", some.gb()),
    }
}

/// Text for a batch above the largest that fits.
pub(super) fn crowded(question: &CapacityQuestion, short_by_bytes: Bytes) -> String {
    let batch = format!("{} of {} tokens", grouped(question.batch), grouped(question.context));
    match short_by_bytes {
        Bytes::ZERO => batch,
        short => format!("{batch}: {} short on the fullest accelerator", short.gb()),
    }
}

/// A topology in words.
pub(super) fn topology(s: &SmallestTopology) -> String {
    let shape = s.shape.as_ref().map_or(String::new(), |s| {
        format!(" as {}", s.iter().map(u64::to_string).collect::<Vec<_>>().join("×"))
    });
    let bound = s.decode_bound.name();
    format!("{}{shape}, tp {}, pp {}; decode is {bound}-bound", s.count, s.tp, s.pp)
}

/// Reason why an accelerator holds `excess` bytes of weights more than the model has.
fn causes(deployment: &Deployment, excess: Bytes) -> Vec<&'static str> {
    let tower = deployment.tower_bytes();
    let copies = deployment.absorbed_bytes();
    let parts = [
        (tower, "its vision tower"),
        (copies, "second copies of up-projections"),
        (excess.saturating_sub(tower + copies), "padding"),
    ];
    parts.into_iter().filter(|(bytes, _)| *bytes > Bytes::ZERO).map(|(_, name)| name).collect()
}
