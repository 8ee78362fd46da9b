//! Tensors that lie in the host's memory.
//!
//! Knows: the places of llama.cpp's tensors by layer (`-ngl`), by kind (`--n-cpu-moe`) and by name (`-ot`), and the
//! parameters that vLLM and SGLang leave on the host, in the order of the layers until they have the requested bytes
//! (`--cpu-offload-gb`); the bandwidth of the host's memory. A model on a processor has all tensors there, so that
//! nothing moves. Knows nothing about times.
//!
//! Sources: llama.cpp b11549, `src/llama-model.cpp` (`load_tensors`: the first of the last n layers is
//! `n_layer + 1 - n_gpu_layers`, and the output counts as the last) and `common/common.h` (`LLM_FFN_EXPS_REGEX`); vLLM
//! 0.33, `model_executor/offloader/uva.py` (before 0.16 `maybe_offload_to_cpu` of `model_executor/models/utils.py`); SGLang's
//! `python/sglang/srt/offloader.py` (`_ModuleOffloader`).

use super::{Deployment, DeploymentOptions, PipelineStage};
use crate::spec::{EngineKind, EngineSpec};
use regex_lite::{Regex, RegexBuilder};
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::checkpoint::gguf;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::{Model, Split, Tensor, TensorRole};
use roofcast_facts::units::{ByteRate, Bytes};

/// Bandwidth of two channels of DDR5-5200, the memory of a Ryzen 9 7950X
/// (www.amd.com/en/products/processors/desktops/ryzen/7000-series/amd-ryzen-9-7950x.html).
const DESKTOP: ByteRate = ByteRate(83.2e9);

/// Places of a model's tensors: on the accelerator unless a rule puts them into the host's memory.
#[derive(Debug, Clone)]
pub(super) enum Places {
    /// Every tensor is on the accelerator.
    Accelerator,
    /// llama.cpp's rules.
    LlamaCpp(LayerPlaces),
    /// The first parameters of each rank, until they have `most` bytes; `taken` bytes have been found.
    First { most: Bytes, taken: Bytes },
}

/// Places of llama.cpp's tensors.
#[derive(Debug, Clone)]
pub(super) struct LayerPlaces {
    /// Number of layers on the host, the first ones.
    layers: usize,
    /// True if lm_head is on the host.
    head: bool,
    /// Number of layers whose routed experts are on the host, the first ones.
    experts: usize,
    /// Patterns of names, each with true for the host; the first that matches decides.
    named: Vec<(Regex, bool)>,
    /// True if every layer's cache is on the host.
    caches: bool,
}

impl Places {
    /// Resolves the keys of `options` for `model` on `accelerator`.
    pub(super) fn of(
        options: &DeploymentOptions,
        model: &Model,
        accelerator: &Accelerator,
    ) -> Result<Places> {
        let spec = options.engine.own();
        let places = match spec.kind() {
            EngineKind::LlamaCpp => llama_cpp(&spec, model)?,
            _ => first_parameters(&spec)?,
        };
        if options.ideal && !matches!(places, Places::Accelerator) {
            let conflict = "with weights on the host";
            return Err(Error::field(
                "hardware",
                "ideal",
                conflict,
                "false, or all weights on the accelerator",
            ));
        }
        Ok(if accelerator.vendor == "cpu" { Places::Accelerator } else { places })
    }

    /// True if `tensor` of layer `layer`, of which a rank holds `bytes`, lies on the host. Tensors are asked for in order.
    pub(super) fn are_on_host(
        &mut self,
        model: &Model,
        tensor: &Tensor,
        layer: Option<usize>,
        bytes: Bytes,
    ) -> bool {
        match self {
            Places::Accelerator => false,
            Places::LlamaCpp(places) => places.are_on_host(model, tensor, layer),
            Places::First { most, taken } => {
                let on_host = layer.is_some() && *taken < *most;
                *taken += if on_host { bytes } else { Bytes::ZERO };
                on_host
            }
        }
    }

    /// True if the cache of layer `layer` lies on the host.
    pub(super) fn keeps_cache_on_host(&self, layer: usize) -> bool {
        match self {
            Places::LlamaCpp(places) => places.caches || layer < places.layers,
            _ => false,
        }
    }

    /// Number of whole layers on the host, the first ones.
    pub(super) fn layers_on_host(&self) -> usize {
        match self {
            Places::LlamaCpp(places) => places.layers,
            _ => 0,
        }
    }

    /// The places at the beginning of the next pipeline stage.
    pub(super) fn at_next_stage(&mut self) {
        if let Places::First { taken, .. } = self {
            *taken = Bytes::ZERO;
        }
    }
}

impl LayerPlaces {
    fn are_on_host(&self, model: &Model, tensor: &Tensor, layer: Option<usize>) -> bool {
        let name = gguf::tensor_name(tensor.name, layer);
        if let Some((_, on_host)) = self.named.iter().find(|(pattern, _)| pattern.is_match(&name)) {
            return *on_host;
        }
        match layer {
            Some(layer) => layer < self.layers || tensor.split == Split::Experts && layer < self.experts,
            // Another file counts the input embedding, unless lm_head shares its weights.
            None if tensor.role == TensorRole::Embedding => model.tied && self.head,
            None => self.head,
        }
    }
}

/// Places by llama.cpp's keys.
fn llama_cpp(spec: &EngineSpec, model: &Model) -> Result<Places> {
    let keys = &spec.llama_cpp;
    let layers = model.layers.len();
    let on_device = keys.n_gpu_layers.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let places = LayerPlaces {
        layers: (layers + 1).saturating_sub(on_device).min(layers),
        head: on_device == 0,
        experts: keys.n_cpu_moe.map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX)),
        named: named(keys.override_tensor.as_deref().unwrap_or_default())?,
        caches: keys.no_kv_offload == Some(true),
    };
    let moves = places.layers + places.experts + places.named.len() > 0 || places.caches;
    Ok(if moves { Places::LlamaCpp(places) } else { Places::Accelerator })
}

/// Most pairs of a pattern and a place: several for each of a hundred layers.
const MOST_PAIRS: usize = 512;
/// Most bytes of a compiled pattern.
const PATTERN_BYTES: usize = 1 << 15;
/// Buffer types of llama.cpp's backends on a device, each followed by the device's number.
const DEVICES: [&str; 8] = ["CANN", "CUDA", "Metal", "MTL", "MUSA", "ROCm", "SYCL", "Vulkan"];

/// True if `place`, a buffer type of llama.cpp, is on the host; `None` if it is neither there nor on a device.
fn on_host(place: &str) -> Option<bool> {
    let numbered = |device: &str| {
        place.strip_prefix(device).is_some_and(|number| number.chars().all(|c| c.is_ascii_digit()))
    };
    let is_host = place.starts_with("CPU") || place.ends_with("_Host");
    (is_host || DEVICES.into_iter().any(numbered)).then_some(is_host)
}

/// Reads `PATTERN=PLACE` pairs, separated by commas.
fn named(text: &str) -> Result<Vec<(Regex, bool)>> {
    let refused = |found: &str, accepted: &str| {
        let start: String = found.chars().take(100).collect();
        Err(Error::field("engine", "override_tensor", format!("{start:?}"), accepted))
    };
    let pairs = || text.split(',').filter(|pair| !pair.is_empty());
    if pairs().count() > MOST_PAIRS {
        return refused(text, &format!("at most {MOST_PAIRS} pairs"));
    }
    let mut all = Vec::new();
    for pair in pairs() {
        let Some((pattern, place)) = pair.rsplit_once('=') else {
            return refused(pair, "PATTERN=PLACE, as in exps=CPU; a comma ends a pair");
        };
        let Some(is_host) = on_host(place) else {
            return refused(pair, "a place such as CPU, CUDA0, ROCm0, Vulkan0 or Metal");
        };
        match RegexBuilder::new(pattern).size_limit(PATTERN_BYTES).build() {
            Ok(pattern) => all.push((pattern, is_host)),
            Err(error) => {
                return refused(pair, &format!("a pattern without look-around or references ({error})"));
            }
        }
    }
    Ok(all)
}

/// Places by the key of vLLM and SGLang.
fn first_parameters(spec: &EngineSpec) -> Result<Places> {
    let gib = spec.cpu_offload_gb.unwrap_or(0.0);
    if !(0.0..=1e6).contains(&gib) {
        return Err(Error::field("engine", "cpu_offload_gb", gib, "0 to 1000000"));
    }
    let room = Bytes::from_f64(gib * f64::from(1 << 30));
    Ok(if gib > 0.0 { Places::First { most: room, taken: Bytes::ZERO } } else { Places::Accelerator })
}

/// Sentence about the bandwidth of the host's memory, if its processor computes and no key states it.
pub(super) fn assumption(deployment: &Deployment) -> Option<String> {
    let computes = |stage: &PipelineStage| {
        stage.host_bytes > Bytes::ZERO || stage.blocks.iter().any(|(block, _)| block.cache_on_host)
    };
    let is_given = deployment.asked.host_bandwidth_gb_s.is_some();
    let counts = deployment.engine.kind() == EngineKind::LlamaCpp && deployment.stages.iter().any(computes);
    let rate = deployment.host_bandwidth.0 / 1e9;
    (counts && !is_given)
        .then(|| format!("the host's memory has {rate:.1} GB/s (hardware.host_bandwidth_gb_s)"))
}

/// Bandwidth of the host's memory: as requested, else that of the catalog's node, else of a desktop. A chip that shares
/// the host's memory has its bandwidth.
pub(super) fn bandwidth(accelerator: &Accelerator, gb_s: Option<f64>) -> Result<ByteRate> {
    if let Some(rate) = gb_s {
        let sane = (1.0..=1e5).contains(&rate);
        let refused = || Error::field("hardware", "host_bandwidth_gb_s", rate, "1 to 100000 GB/s");
        return if sane { Ok(ByteRate(rate * 1e9)) } else { Err(refused()) };
    }
    if matches!(accelerator.vendor.as_str(), "apple" | "cpu") {
        return Ok(accelerator.bandwidth_bytes_per_s);
    }
    let part = accelerator.host_link.as_ref().and_then(|link| link.memory_bytes_per_s);
    Ok(part.map_or(DESKTOP, |part| ByteRate(part.0 * accelerator.node_size as f64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_places() {
        let places =
            |text: &str| named(text).map(|all| all.into_iter().map(|(_, host)| host).collect::<Vec<_>>());
        assert_eq!(places("exps=CPU,blk.1=CUDA0,a=CUDA_Host").unwrap(), [true, false, true]);
        for (text, says) in [
            ("exps", "PATTERN=PLACE"),
            ("a=", "CUDA0"),
            ("exps=cpu", "CUDA0"),
            ("blk.(?!1)=CPU", "look-around"),
        ]
        .into_iter()
        .chain([("((.*){900}x){9}=CPU", "size limit"), (&"a=CPU,".repeat(513), "512 pairs")])
        {
            let refused = places(text).unwrap_err().to_string();
            assert!(refused.contains(says) && refused.contains("override_tensor"), "{refused}");
        }
    }

    /// A DGX H100's 8 GPUs have 76.8 GB/s each of their host's memory, 614.4 together.
    #[test]
    fn the_host_has_the_bandwidth_of_its_node() {
        let catalog = roofcast_facts::Catalog::embedded().unwrap();
        let rate_of =
            |name: &str, asked| bandwidth(catalog.accelerator(name).unwrap(), asked).map(|rate| rate.0);
        assert!((rate_of("h100-sxm", None).unwrap() / 614.4e9 - 1.0).abs() < 1e-9);
        assert_eq!(rate_of("rtx-4090", None).unwrap(), DESKTOP.0);
        assert_eq!(rate_of("rtx-4090", Some(51.2)).unwrap(), 51.2e9);
        assert!(rate_of("rtx-4090", Some(0.0)).unwrap_err().to_string().contains("host_bandwidth_gb_s"));
    }
}
