//! The text about images and LoRA adapters of a simulation.

use crate::show::number::{grouped, significant};
use roofcast::simulate::{AdapterUse, ImageUse};

/// Images of a request, and the time of their encoder.
pub(super) fn images(i: &ImageUse) -> String {
    format!(
        "{} per request, {} tokens of {} patches each; the encoder takes {} ms for each",
        grouped(i.count),
        grouped(i.tokens),
        grouped(i.patches),
        significant(i.encoder_ms)
    )
}

/// Loads of LoRA adapters, the time of their kernels, and the requests that waited for one.
pub(super) fn adapters(a: &AdapterUse) -> String {
    let wait = a.mean_wait_s.map_or(String::new(), |s| format!(", {} s each", significant(s)));
    format!(
        "{} adapters, {} at once, {} each; {} loads ({} from storage) took {} s, kernels {} s; {} requests waited{wait}",
        grouped(a.adapters),
        grouped(a.max_loras),
        a.adapter_bytes.gb(),
        grouped(a.loads),
        grouped(a.reads),
        significant(a.loading_s),
        significant(a.computing_s),
        grouped(a.waits)
    )
}
