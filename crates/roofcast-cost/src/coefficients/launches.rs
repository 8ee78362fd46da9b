//! Cost of launching a layer's kernels one by one, for specs whose `fuse_layers` determines the number of kernels.
//!
//! Knows: kernels of a layer, counted in engines' code, and the time of a launch. [`crate::step`] knows which engines
//! capture graphs.

use roofcast_ask::spec::EngineKind;

/// Kernels of a decoder layer with separate projections, as transformers 4.40 runs Qwen2: two norms of 8 kernels
/// each, three projections with their biases, rotations of queries and keys in 10 and two look-ups of angles, two
/// concatenations of keys and values with the cache, attention and its output projection, two residual additions, and
/// the MLP's gate, up, activation, product and down.
const SEPARATE: f64 = 45.0;
/// Kernels of a fused layer, as in AutoAWQ 0.2: two norms of one kernel each, one projection and its bias, rotation
/// with cache write and attention in one, the output projection, two residual additions, and the five kernels of the
/// MLP.
const FUSED: f64 = 13.0;
/// Host seconds of a kernel that PyTorch launches by itself: the least of the 5 to 25 µs of its dispatcher
/// (jiahuanglin.xyz, "From PyTorch op to kernel launch").
const LAUNCH: f64 = 5e-6;
/// Device seconds between two kernels of a captured graph: a kernel of 2.9 µs takes 3.4 µs ("Getting Started with
/// CUDA Graphs", NVIDIA 2019).
const GAP: f64 = 0.5e-6;

/// Launch times of a layer whose kernels are counted one by one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Launches {
    /// Host seconds per layer, overlapped with the device.
    pub(crate) host: f64,
    /// Device seconds per layer in addition to a fused, captured layer.
    pub(crate) device: f64,
}

impl Launches {
    /// Returns the launches that `fuse_layers` of the spec implies; `None` if the spec does not set it and the
    /// calibration's times apply.
    pub(crate) fn of(kind: EngineKind, fuse_layers: Option<bool>, enforce_eager: bool) -> Option<Launches> {
        let kernels = if fuse_layers? { FUSED } else { SEPARATE };
        let eager = kind == EngineKind::Transformers || enforce_eager;
        Some(if eager {
            Launches { host: kernels * LAUNCH, device: 0.0 }
        } else {
            Launches { host: 0.0, device: (kernels - FUSED) * GAP }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str, fused: Option<bool>, eager: bool) -> Option<Launches> {
        Launches::of(EngineKind::of(name), fused, eager)
    }

    /// 45 launches of 5 µs are 225 µs a layer, 13 launches are 65 µs; in a graph, the 32 additional gaps are 16 µs.
    #[test]
    fn launches_by_hand() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert_eq!(asked("vllm", None, true), None);
        assert!(near(asked("transformers", Some(false), false).unwrap().host, 225e-6));
        assert!(near(asked("vllm", Some(true), true).unwrap().host, 65e-6));
        let captured = asked("vllm", Some(false), false).unwrap();
        assert!(captured.host == 0.0 && near(captured.device, 16e-6));
    }
}
