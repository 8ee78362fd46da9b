//! An accelerator as its datasheet states it: peak rates, memory, links, power and price.
//!
//! Knows: one chip and the links to its neighbours. Knows nothing about models; `operator::collective`
//! computes the cost of collectives on a link.

mod check;
mod power;
mod torus;

use crate::error::{Error, Result};
use crate::precision::{Dtype, Format};
use crate::units::{ByteRate, Bytes, FlopRate};
pub use power::Watts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One accelerator of the catalog. Rates are dense (no sparsity) and per second; sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Accelerator {
    /// Lower-case id, as in `h100-sxm`.
    pub id: String,
    /// The maker's name.
    pub name: String,
    /// Further ids of the accelerator.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// `nvidia`, `amd`, `intel`, `google`, `aws`, `apple` or `cpu`.
    pub vendor: String,
    /// Generation, as in `hopper`.
    pub architecture: String,
    /// True if vLLM gives the chip its default batch for small memory regardless of the real memory size: the A100,
    /// by its name, and chips that share the host's memory, for which NVML reports none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub vllm_small_batches: bool,
    /// Nominal memory in bytes, as the maker counts it.
    pub memory_bytes: Bytes,
    /// Memory in bytes that the driver reports to a program; where CPU and GPU share memory, the part that the system
    /// grants to the GPU.
    pub usable_bytes: Bytes,
    /// Variants of the machine with other memory sizes. Present only in catalog files, because
    /// [`Accelerator::expanded`] turns each variant into an entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory_options: Vec<MemoryOption>,
    /// Memory bandwidth in bytes per second.
    pub bandwidth_bytes_per_s: ByteRate,
    /// Highest measured fraction of the bandwidth at which kernels read large arrays; `None` if nobody published it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sustained_bandwidth: Option<f64>,
    /// Number of accelerators that `link` joins into one node.
    pub node_size: u64,
    /// Single-thread speed of the usual host as a multiple of a DGX H100 host's speed.
    #[serde(default = "usual_host")]
    pub host_speed: f64,
    /// Number of streaming multiprocessors of a GPU, each of which needs at least one thread block to be busy; for
    /// Apple's chips, the number of GPU cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiprocessors: Option<u64>,
    /// Peak FLOP/s of 16-bit GEMMs that accumulate in 16 bits, if it differs from the peak with accumulation in 32
    /// bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp16_accumulate_flops: Option<FlopRate>,
    /// True if ECC bits are stored among the data (GDDR6 with ECC), where they occupy one byte of 16 of memory and
    /// bandwidth.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_band_ecc: bool,
    /// Board power in watts.
    #[serde(default)]
    pub power_w: Option<f64>,
    /// Power limit in watts, set by a spec; `None` for the board power.
    #[serde(skip)]
    pub power_limit_w: Option<f64>,
    /// Remarks on the figures, for readers of the catalog.
    #[serde(default)]
    pub notes: String,
    /// Dense peak FLOP/s per dtype.
    pub peak_flops: BTreeMap<Dtype, FlopRate>,
    /// FLOP/s per dtype of large GEMMs at the clock that the board power sustains, if it was measured; tables of
    /// kernels timed in short bursts, or on zeros, have higher rates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sustained_flops: BTreeMap<Dtype, FlopRate>,
    /// Link within a node.
    #[serde(default)]
    pub link: Option<Link>,
    /// Network between nodes.
    #[serde(default)]
    pub network: Option<Network>,
    /// Link to the host's memory, if it is another link than `link`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_link: Option<HostLink>,
    /// On-demand price.
    #[serde(default)]
    pub price: Option<HourlyPrice>,
    /// Sources of the figures.
    #[serde(default)]
    pub sources: Vec<Citation>,
}

/// Relative host speed of an entry that states none: that of a DGX H100.
fn usual_host() -> f64 {
    1.0
}

/// Variant of a catalog entry with another memory size; all other figures are the entry's.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MemoryOption {
    /// Lower-case id, as in `m4-max-64gb`.
    pub(crate) id: String,
    /// The maker's name.
    pub(crate) name: String,
    /// Further ids of the variant.
    #[serde(default)]
    pub(crate) aliases: Vec<String>,
    /// Nominal memory in bytes, as the maker counts it.
    pub(crate) memory_bytes: Bytes,
    /// Memory in bytes that the driver reports to a program.
    pub(crate) usable_bytes: Bytes,
}

/// Link between an accelerator and the memory of its host.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HostLink {
    /// Kind of link, as in `pcie5`, `nvlink-c2c`.
    pub(crate) kind: String,
    /// Bytes per second in one direction.
    pub bytes_per_s: ByteRate,
    /// One accelerator's part of the bandwidth of the host's memory in bytes per second, reads and writes together;
    /// unbounded if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_per_s: Option<ByteRate>,
}

/// Link between the accelerators of a node.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Kind of link, as in `nvlink4`, `pcie4`, `ici`.
    pub kind: String,
    /// Topology of the link.
    pub topology: Topology,
    /// Bytes per second in one direction, per accelerator; on a torus per link.
    pub bytes_per_s: ByteRate,
    /// Latency of an empty message, in seconds.
    pub latency_s: f64,
    /// Number of axes of a torus.
    #[serde(default)]
    pub axes: Option<u32>,
    /// Chips along an axis of a torus at which the axis closes to a ring; if absent, every axis is a ring.
    #[serde(default)]
    pub(crate) wraps: Option<u64>,
}

/// Shape of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// Switch: any accelerator reaches any other at full rate.
    Switch,
    /// Ring: each accelerator reaches its two neighbours only.
    Ring,
    /// Mesh: a separate cable between each pair of accelerators.
    Mesh,
    /// Torus: rings along several axes (TPU).
    Torus,
    /// PCIe, from card to card.
    Pcie,
    /// PCIe through the host's memory, for cards that cannot reach each other directly.
    Host,
}

impl Topology {
    /// True if messages use PCIe.
    pub fn is_pcie(self) -> bool {
        matches!(self, Topology::Pcie | Topology::Host)
    }

    /// True if messages pass through the host's memory.
    pub fn is_through_host(self) -> bool {
        self == Topology::Host
    }
}

/// Network between nodes.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Kind of network, as in `infiniband-ndr`.
    pub kind: String,
    /// Bytes per second in one direction, per accelerator.
    pub bytes_per_s: ByteRate,
    /// Latency of an empty message, in seconds.
    pub latency_s: f64,
}

/// Price of one accelerator for one hour.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HourlyPrice {
    /// Dollars per accelerator and hour, on demand.
    pub usd_per_hour: f64,
    /// Month of the price, `YYYY-MM`.
    pub date: String,
    /// Web address of the price.
    pub source: String,
}

/// Public document that supports figures of an entry.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Citation {
    /// Keys of the entry that the document supports.
    pub of: String,
    /// Web address of the document.
    pub url: String,
}

impl Accelerator {
    /// Rate and latency of the slowest link among `ranks` accelerators: the node's link, or the network if they span
    /// several nodes.
    pub fn slowest_link(&self, ranks: u64) -> (ByteRate, f64) {
        let within = self.link.as_ref().map(|l| (l.bytes_per_s, l.latency_s));
        let between = self.network.as_ref().map(|n| (n.bytes_per_s, n.latency_s));
        // If no link is known, the host's PCIe 3.0 x16 is assumed, the slowest in use.
        const PCIE3: (ByteRate, f64) = (ByteRate(15.75e9), 10e-6);
        if ranks <= self.node_size {
            within.or(between).unwrap_or(PCIE3)
        } else {
            between.or(within).unwrap_or(PCIE3)
        }
    }

    /// Bytes per second available to kernels: the datasheet's bandwidth minus in-band ECC.
    pub fn kernel_bandwidth(&self) -> f64 {
        self.bandwidth_bytes_per_s.0 * if self.in_band_ecc { 15.0 / 16.0 } else { 1.0 }
    }

    /// Bytes per second that a kernel can read from the memory: the datasheet's bandwidth minus in-band ECC, or at most the
    /// measured fraction of it.
    pub fn readable_bandwidth(&self) -> f64 {
        let sustained = self.bandwidth_bytes_per_s.0 * self.sustained_bandwidth.unwrap_or(1.0);
        sustained.min(self.kernel_bandwidth())
    }

    /// Speed-up of tensor cores when they accumulate in 16 instead of 32 bits: 2 on GeForce cards, where accumulation
    /// in 32 bits runs at half the rate of a professional card with an equal die (NVIDIA Ada GPU architecture,
    /// appendix A), else 1. At the halved rate half of the cores' cycles are idle, so neither power nor operand
    /// delivery limits a kernel.
    pub fn held_back(&self) -> f64 {
        let usual = self.peak_flops.get(&Dtype::Fp16).or(self.peak_flops.get(&Dtype::Bf16));
        self.fp16_accumulate_flops.zip(usual).map_or(1.0, |(rate, usual)| (rate.0 / usual.0).max(1.0))
    }

    /// Returns the entry itself, followed by one entry per memory option.
    pub(crate) fn expanded(mut self) -> Vec<Accelerator> {
        let options = std::mem::take(&mut self.memory_options);
        let sized = |option: MemoryOption| Accelerator {
            id: option.id,
            name: option.name,
            aliases: option.aliases,
            memory_bytes: option.memory_bytes,
            usable_bytes: option.usable_bytes,
            ..self.clone()
        };
        let mut all: Vec<_> = options.into_iter().map(sized).collect();
        all.insert(0, self);
        all
    }

    /// Returns the dense peak FLOP/s for `dtype`, or an error that lists the chip's dtypes. A missing rate is never
    /// guessed.
    pub fn peak(&self, dtype: Dtype) -> Result<FlopRate> {
        self.peak_flops.get(&dtype).copied().ok_or_else(|| Error::NoRate {
            accelerator: self.id.clone(),
            dtype: dtype.to_string(),
            accepted: self.dtypes(),
            advice: match dtype {
                Dtype::Fp8 => "; weight-only 8-bit is `w8`".into(),
                Dtype::Fp4 => "; weight-only 4-bit is `w4`".into(),
                Dtype::Bf16 => "; use fp16".into(),
                _ => String::new(),
            },
        })
    }

    /// True if the chip computes in `dtype`.
    pub fn has(&self, dtype: Dtype) -> bool {
        self.peak_flops.contains_key(&dtype)
    }

    /// True if the chip computes in the dtype and with the scales of `format`. NVFP4's, an 8-bit float per 16 values, are NVIDIA's alone; the
    /// 4-bit floats of other makers are MXFP4 (AMD's CDNA 4, AWS's Trainium3), and vLLM emulates NVFP4 on AMD's
    /// (https://github.com/vllm-project/vllm/pull/35733).
    pub fn computes(&self, format: &Format) -> bool {
        let has_scales = format.name != Format::NVFP4.name || self.vendor == "nvidia";
        format.compute.is_none_or(|dtype| self.has(dtype) && has_scales)
    }

    /// Number of multiprocessors for FlashAttention, which has no Metal kernel; `None` if unknown.
    pub fn flash_multiprocessors(&self) -> Option<u64> {
        self.multiprocessors.filter(|_| self.vendor != "apple")
    }

    /// Multiprocessors times clock, in cycles per second, of an NVIDIA chip: the fp32 rate over 2 FLOPs per lane and
    /// cycle, with 64 lanes a multiprocessor up to compute capability 8.0 and 128 above (CUDA C++ Programming Guide,
    /// throughput of native arithmetic instructions). Capability 8.0 is recognized by tensor cores 8 times as fast as
    /// its lanes, which no other Ampere chip has. `None` if the fp32 or fp16 rate is unknown.
    pub fn multiprocessor_cycles(&self) -> Option<f64> {
        let rate = |dtype| self.peak_flops.get(&dtype).map(|rate| rate.0);
        let (fp32, fp16) = rate(Dtype::Fp32).zip(rate(Dtype::Fp16)).filter(|_| self.vendor == "nvidia")?;
        let old = matches!(self.architecture.as_str(), "volta" | "turing")
            || self.architecture == "ampere" && fp16 >= 8.0 * fp32;
        Some(fp32 / if old { 128.0 } else { 256.0 })
    }

    /// Dtype of 16-bit computation on this chip: `wanted` if the chip supports it, else the other 16-bit dtype, else
    /// fp32.
    pub fn sixteen_bit(&self, wanted: Dtype) -> Dtype {
        [wanted, Dtype::Bf16, Dtype::Fp16, Dtype::Fp32]
            .into_iter()
            .find(|d| self.has(*d))
            .unwrap_or(Dtype::Fp32)
    }

    fn dtypes(&self) -> String {
        self.peak_flops.keys().map(|d| d.name()).collect::<Vec<_>>().join(", ")
    }

    /// Numbers of accelerators in which this chip is deployed, up to `most`: powers of two within a node (slices of
    /// 1, 4, 8, 16, … chips on a torus), then whole nodes.
    pub fn sizes(&self, most: u64) -> Vec<u64> {
        let torus = self.link.as_ref().is_some_and(|l| l.topology == Topology::Torus);
        let mut sizes: Vec<u64> = (0..40)
            .map(|p| 1 << p)
            .take_while(|&n| n <= self.node_size.min(most))
            .filter(|&n| !(torus && n == 2))
            .collect();
        if self.network.is_some() {
            sizes.extend((2..=64).map(|nodes| nodes * self.node_size).take_while(|&n| n <= most));
        }
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Machine with round figures for arithmetic by hand: 100 TFLOP/s in bf16, 1 TB/s, 16 GB.
    pub(crate) fn round_machine() -> Accelerator {
        let text = r#"
            id = "round"
            name = "Round"
            vendor = "nvidia"
            architecture = "test"
            memory_bytes = 16_000_000_000
            usable_bytes = 15_000_000_000
            bandwidth_bytes_per_s = 1e12
            node_size = 8
            peak_flops = { bf16 = 100e12, fp8 = 200e12 }
            link = { kind = "test", topology = "switch", bytes_per_s = 100e9, latency_s = 1e-6 }
        "#;
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_missing_rate_says_what_there_is() {
        let message = round_machine().peak(Dtype::Fp4).unwrap_err().to_string();
        assert_eq!(message, "round has no fp4 rate; it computes in bf16, fp8; weight-only 4-bit is `w4`");
    }

    #[test]
    fn torus_slices_are_near_cubes_and_there_is_no_slice_of_two() {
        let mut tpu = round_machine();
        tpu.node_size = 256;
        tpu.link = Some(Link {
            kind: "ici".into(),
            topology: Topology::Torus,
            bytes_per_s: ByteRate(45e9),
            latency_s: 1e-6,
            axes: Some(2),
            wraps: Some(16),
        });
        assert_eq!(tpu.sizes(32), [1, 4, 8, 16, 32]);
        assert_eq!(tpu.torus_shape(16), Some(vec![4, 4]));
        assert_eq!(tpu.torus_shape(32), Some(vec![4, 8]));
        // A v5e closes an axis to a ring at 16 chips; three axes are closed in whole cubes of 4×4×4.
        assert_eq!((tpu.axis_links(&[4, 8]), tpu.axis_links(&[8, 16])), (vec![1.0, 1.0], vec![1.0, 2.0]));
        let link = tpu.link.as_mut().unwrap();
        (link.axes, link.wraps) = (Some(3), Some(4));
        assert_eq!(tpu.axis_links(&[4, 4, 8]), [2.0; 3]);
        assert_eq!(tpu.axis_links(&[2, 4, 4]), [1.0; 3]);
    }

    #[test]
    fn impossible_numbers_are_refused_by_name() {
        let mut bad = round_machine();
        bad.bandwidth_bytes_per_s = ByteRate(f64::NAN);
        let message = bad.check("my.toml").unwrap_err().to_string();
        assert!(
            message.starts_with("my.toml: accelerator \"round\": `bandwidth_bytes_per_s` is NaN"),
            "{message}"
        );
    }
}
