//! Container images of engines, by the vendor of the chips and the version that was forecast.
//!
//! Knows: names of published images. Knows nothing about commands. Sources: the tags of hub.docker.com/r/vllm/vllm-openai,
//! vllm/vllm-openai-rocm, vllm/vllm-tpu, intel/vllm and lmsysorg/sglang; catalog.ngc.nvidia.com TensorRT-LLM Release.

use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::{EngineKind, Release};

/// Container image of an engine, and the port on which its server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) name: String,
    pub(super) port: u16,
}

/// Image of the planned engine on the chips of `d`.
pub(super) fn of(d: &Deployment) -> Result<Image, String> {
    match d.engine.kind() {
        EngineKind::Vllm => vllm(d),
        EngineKind::Sglang => sglang(d),
        EngineKind::TensorrtLlm if d.accelerator.vendor == "nvidia" => {
            let version = version(d, EngineKind::TensorrtLlm)?;
            Ok(Image { name: format!("nvcr.io/nvidia/tensorrt-llm/release:{version}"), port: 8000 })
        }
        _ => Err(format!("no image of {} for {} is known here", d.engine.name(), d.accelerator.id)),
    }
}

/// Image of vLLM on the chips of `d`.
pub(super) fn vllm(d: &Deployment) -> Result<Image, String> {
    let version = version(d, EngineKind::Vllm)?;
    let name = match d.accelerator.vendor.as_str() {
        "nvidia" => format!("vllm/vllm-openai:v{version}"),
        "amd" => format!("vllm/vllm-openai-rocm:v{version}"),
        "google" => format!("vllm/vllm-tpu:v{version}"),
        "intel" => format!("intel/vllm:{version}-xpu"),
        _ => return Err(format!("no image of vLLM for {} is known here", d.accelerator.id)),
    };
    Ok(Image { name, port: 8000 })
}

/// Image of SGLang on the chips of `d`: those for AMD name the release of ROCm and the generation of the chip.
fn sglang(d: &Deployment) -> Result<Image, String> {
    let version = version(d, EngineKind::Sglang)?;
    let suffix = match (d.accelerator.vendor.as_str(), d.accelerator.architecture.as_str()) {
        ("nvidia", _) => "",
        ("amd", "cdna3") => "-rocm700-mi30x",
        ("amd", "cdna4") => "-rocm700-mi35x",
        _ => return Err(format!("no image of SGLang for {} is known here", d.accelerator.id)),
    };
    Ok(Image { name: format!("lmsysorg/sglang:v{version}{suffix}"), port: 30_000 })
}

/// Version of the image: the one that was forecast, or the newest known one.
fn version(d: &Deployment, engine: EngineKind) -> Result<String, String> {
    let release: &Release = &d.engine.release;
    let own_version = release.version.as_deref().filter(|_| release.kind == engine);
    let numbered = own_version
        .map(|own_version| own_version.trim_start_matches('v'))
        .filter(|own_version| own_version.starts_with(char::is_numeric));
    match (own_version, numbered, engine.newest()) {
        (_, Some(version), _) | (None, None, Some(version)) => Ok(version.to_owned()),
        (Some(own_version), ..) => Err(format!("{} {own_version} has no image with a number", engine.name())),
        (None, None, None) => Err(format!("no version of {} is known here", engine.name())),
    }
}
