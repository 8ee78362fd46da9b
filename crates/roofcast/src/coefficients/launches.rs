//! Cost of launching a layer's kernels one by one, for specs whose `fuse_layers` determines their number.
//!
//! Knows: kernels of a layer, counted in engines' code, and the time of a launch. [`crate::step`] knows which engines
//! capture graphs.

use crate::spec::EngineKind;

/// Kernels of a decoder layer with separate projections, as transformers 4.40 runs Qwen2: two norms of 8, three projections
/// and their biases, rotations of queries and keys in 10 and two look-ups of angles, keys and values joined to the cache,
/// attention and its output, two residuals, and gate, up, activation, product and down.
const SEPARATE: f64 = 45.0;
/// Kernels of a fused layer, as in AutoAWQ 0.2: two norms of 1, one projection and its bias, rotation, cache and
/// attention in one, its output, two residuals, and the five of the MLP.
const FUSED: f64 = 13.0;
/// Seconds of the host for a kernel that PyTorch launches on its own: the least of the 5 to 25 µs of its dispatcher
/// (jiahuanglin.xyz, "From PyTorch op to kernel launch").
const LAUNCH: f64 = 5e-6;
/// Seconds between two kernels of a captured graph: 3.4 µs for one of 2.9 ("Getting Started with CUDA Graphs", NVIDIA 2019).
const GAP: f64 = 0.5e-6;

/// A layer's launches, kernel by kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Launches {
    /// Seconds of the host, overlapped with the device.
    pub host: f64,
    /// Seconds of the device in addition to a fused, captured layer.
    pub device: f64,
}

impl Launches {
    /// Launches by the `fuse_layers` of `engine`; `None` if the spec leaves them to the calibration.
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

    /// 45 launches of 5 µs are 225 µs a layer, 13 are 65; in a graph 32 gaps more are 16 µs.
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
