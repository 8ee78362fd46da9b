//! What machines and engines reach of their limits, operator by operator, and what they add to them.
//!
//! Knows: the time of an operator is `max(c, m) + x min(c, m) + t0` in each layer, with `c = FLOPs/(e_c peak)`,
//! `m = bytes/(e_m BW)` and the share x of the shorter that the longer does not hide; a step adds what its host, its
//! sequences, its tokens and its messages cost. Knows nothing about which figures hold where: that is
//! [`crate::calibration`]'s.

mod kernels;

use crate::calibration::Band;
use crate::model::{Mixer, Model};
use crate::operator::collective::Communication;
use crate::operator::{Family, Work};
use crate::units::{ByteRate, Bytes, Picoseconds};
use kernels::UNPACKING;
pub use kernels::{FewRows, busiest, mixed_tokens, tiled, waiting};
use serde::{Deserialize, Serialize};

/// Seconds of a message over the links that [`Figure::AllReduce`] counts for: NVLink's, as the catalog assumes it.
pub(crate) const LATENCY: f64 = 2e-6;

/// One figure of an efficiency. Shares are of the datasheet's rates, at most 1; times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Share of the bandwidth that matrix products stream their weights with.
    GemmMemory,
    /// Share of the peak in matrix products.
    GemmCompute,
    /// Share of the bandwidth in routed experts.
    ExpertMemory,
    /// Share of the peak in routed experts.
    ExpertCompute,
    /// Share of the bandwidth that attention reads its cache with.
    KvMemory,
    /// Share of the peak in attention.
    AttentionCompute,
    /// Share of the link's bandwidth in collectives.
    Link,
    /// Share of the bandwidth in norms and activation functions.
    Elementwise,
    /// Share of the shorter of computing and moving that the longer does not hide, in matrix products.
    GemmExposed,
    /// The same in routed experts.
    ExpertExposed,
    /// The same in attention.
    AttentionExposed,
    /// Of a layer: launches, norms and what else is there once.
    Layer,
    /// Of a layer's launches on the host, beside the device, where steps are not captured in graphs.
    EagerLayer,
    /// Of a layer's routing, on top.
    ExpertLayer,
    /// Of a layer with latent or linear attention, on top.
    MixerLayer,
    /// Of an all-reduce, beside its bytes, over links of 2 µs; in proportion to the latency elsewhere.
    AllReduce,
    /// Of a step.
    Step,
    /// Of a step in which prompts end, on top.
    PrefillStep,
    /// Of a sequence in a step.
    Sequence,
    /// Of a request before its first token, outside the steps.
    Request,
    /// Steps that a request waits before the engine looks at it: overlapped scheduling, polling; a count.
    RequestSteps,
    /// Rows of a large product that a row beyond the first costs in a product of few, itself among them; a count, at
    /// least 1. See [`FewRows`].
    FewRows,
    /// Rows' worth that few rows cost beyond their number at most; a count.
    SmallRows,
    /// How often the hidden state of a token crosses the bus for each expert that it passes; a count.
    ExpertActivation,
    /// Share of its time by which reading the cache takes longer for each further query head that reads the same keys.
    Group,
    /// Rows that a decode's attention computes where one kernel works on prompts and decodes; 1 where decodes have their own.
    MixedRows,
    /// Of a layer with latent attention in a step that computes prompts, on top.
    PrefillLatent,
    /// Of a layer with linear attention or another recurrence in a step that computes prompts, on top.
    PrefillLinear,
}

impl Figure {
    /// All, in order.
    pub const ALL: [Figure; 28] = [
        Figure::GemmMemory,
        Figure::GemmCompute,
        Figure::ExpertMemory,
        Figure::ExpertCompute,
        Figure::KvMemory,
        Figure::AttentionCompute,
        Figure::Link,
        Figure::Elementwise,
        Figure::GemmExposed,
        Figure::ExpertExposed,
        Figure::AttentionExposed,
        Figure::Layer,
        Figure::EagerLayer,
        Figure::ExpertLayer,
        Figure::MixerLayer,
        Figure::AllReduce,
        Figure::Step,
        Figure::PrefillStep,
        Figure::Sequence,
        Figure::Request,
        Figure::RequestSteps,
        Figure::FewRows,
        Figure::SmallRows,
        Figure::ExpertActivation,
        Figure::Group,
        Figure::MixedRows,
        Figure::PrefillLatent,
        Figure::PrefillLinear,
    ];

    /// Whether it is a share of a rate, at most 1.
    pub fn is_share(self) -> bool {
        self <= Figure::AttentionExposed
    }

    /// As in TOML.
    pub fn name(self) -> String {
        format!("{self:?}").chars().fold(String::new(), |mut name, c| {
            if c.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(c.to_ascii_lowercase());
            name
        })
    }
}

/// One value a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures(pub [f64; Figure::ALL.len()]);

impl Figures {
    /// The figure's value; shares are at most 1.
    pub fn get(&self, figure: Figure) -> f64 {
        let value = self.0[figure as usize];
        if figure.is_share() { value.min(1.0) } else { value }
    }

    fn time(&self, figure: Figure) -> Picoseconds {
        Picoseconds::from_seconds(self.get(figure))
    }
}

/// Figures for one deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct Efficiency {
    /// What it is called in reports.
    pub name: String,
    /// Its figures.
    pub figures: Figures,
    /// The same for what is not quantized.
    pub plain: Figures,
    /// Rows from which on products unpack their weights first and multiply in 16 bits; none where they never do.
    pub dequantizes_from: Option<u64>,
    /// The bands of what it forecasts; none where it was never judged.
    pub band: Option<Band>,
}

/// What one operator reaches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reach {
    /// Share of its peak.
    pub compute: f64,
    /// Share of the bandwidth.
    pub memory: f64,
    /// Share of the shorter of computing and moving that the longer does not hide.
    pub exposed: f64,
    /// What it computes more where rows are few.
    pub few: FewRows,
    /// Rows that a decode's attention computes beside prompts.
    pub mixed_rows: f64,
    /// Whether its weights are unpacked first.
    pub dequantizes: bool,
    /// Beside it, in each layer.
    pub call: Picoseconds,
}

impl Reach {
    /// The limit itself.
    pub const LIMIT: Reach = Reach {
        compute: 1.0,
        memory: 1.0,
        exposed: 0.0,
        few: FewRows::NONE,
        mixed_rows: 1.0,
        dequantizes: false,
        call: Picoseconds::ZERO,
    };
}

/// A forecast with its band.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// The median.
    pub time: Picoseconds,
    /// 10th to 90th percentile.
    pub band: [Picoseconds; 2],
}

/// Layers that mix tokens otherwise than by plain attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mixers {
    /// By latent attention.
    pub latent: u64,
    /// By linear attention, or another recurrence.
    pub linear: u64,
}

impl Mixers {
    /// Those of a model.
    pub fn of(model: &Model) -> Mixers {
        let mut mixers = Mixers::default();
        for layer in &model.layers {
            match layer.mixer {
                Mixer::Attention(_) | Mixer::None => {}
                Mixer::Latent(_) | Mixer::Compressed(_) => mixers.latent += 1,
                _ => mixers.linear += 1,
            }
        }
        mixers
    }
}

/// What of a deployment decides what its steps cost beside their operators.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Circumstances {
    /// Messages of a step.
    pub all_reduces: u64,
    /// Seconds of a link.
    pub latency: f64,
    /// What norms and activation functions move for a token in all layers together.
    pub elementwise_bytes: f64,
    /// What a token's hidden state is on its way through its experts, in all layers together.
    pub expert_bytes: f64,
    /// The chip's.
    pub bandwidth: ByteRate,
    /// Layers that mix otherwise than by attention.
    pub mixers: Mixers,
    /// Layers that the host launches one by one.
    pub eager_layers: u64,
    /// Of one thread of the host; that of a DGX H100 is 1.
    pub host_speed: f64,
}

/// What a step costs beside its operators.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Overhead {
    /// Of any step.
    pub step: Picoseconds,
    /// More where it computes prompts.
    pub prefill: Picoseconds,
    /// More where prompts end.
    pub ending: Picoseconds,
    /// Of each sequence.
    pub sequence: Picoseconds,
    /// Of each token of a rank, in seconds: too short for whole picoseconds.
    pub token: f64,
    /// Of each token of a replica, which all meet at the experts; in seconds.
    pub routed: f64,
    /// Of the host's launches, which everything but attention hides: that grows with the context, and is counted on top.
    pub launches: Picoseconds,
}

impl Efficiency {
    /// What `work` reaches.
    pub fn reach(&self, work: &Work) -> Reach {
        use Figure as F;
        // Heads, routers and embeddings are seldom quantized.
        let plain = ["lm_head", "router", "embedding", "norms"].contains(&work.name);
        let dequantizes =
            !plain && work.is_product() && self.dequantizes_from.is_some_and(|from| work.rows >= from);
        let figures = if plain || dequantizes { &self.plain } else { &self.figures };
        let layer = figures.time(F::Layer);
        let ([compute, memory, exposed], call) = match work.family {
            Family::Moe => {
                ([F::ExpertCompute, F::ExpertMemory, F::ExpertExposed], figures.time(F::ExpertLayer))
            }
            Family::Attention | Family::Indexer => {
                let call = match work.name {
                    "linear_attention" => layer + figures.time(F::MixerLayer),
                    _ if work.family == Family::Indexer => Picoseconds::ZERO,
                    _ => layer,
                };
                ([F::AttentionCompute, F::KvMemory, F::AttentionExposed], call)
            }
            _ => {
                let latent =
                    if work.name == "kv_b_proj" { figures.time(F::MixerLayer) } else { Picoseconds::ZERO };
                ([F::GemmCompute, F::GemmMemory, F::GemmExposed], latent)
            }
        };
        let each = (figures.get(F::FewRows) - 1.0).max(0.0);
        let few =
            if work.is_product() { FewRows { each, most: figures.get(F::SmallRows) } } else { FewRows::NONE };
        let [compute, memory, exposed] = [compute, memory, exposed].map(|f| figures.get(f));
        let compute = compute / busiest(work.ranks);
        let memory = memory / (1.0 + figures.get(F::Group) * (work.group - 1) as f64);
        let mixed_rows = if work.name == "attention" { figures.get(F::MixedRows).max(1.0) } else { 1.0 };
        Reach { compute, memory, exposed, few, mixed_rows, dequantizes, call }
    }

    /// What steps cost beside their operators.
    pub fn overhead(&self, at: &Circumstances) -> Overhead {
        let f = &self.figures;
        let message = f.get(Figure::AllReduce) * at.latency / LATENCY;
        let host = |figure| Picoseconds::from_seconds(f.get(figure) / at.host_speed);
        Overhead {
            step: host(Figure::Step) + Picoseconds::from_seconds(message) * at.all_reduces,
            ending: host(Figure::PrefillStep),
            prefill: f.time(Figure::PrefillLatent) * at.mixers.latent
                + f.time(Figure::PrefillLinear) * at.mixers.linear,
            sequence: host(Figure::Sequence),
            token: at.elementwise_bytes / (at.bandwidth.0 * f.get(Figure::Elementwise)),
            routed: at.expert_bytes * f.get(Figure::ExpertActivation) / at.bandwidth.0,
            launches: host(Figure::EagerLayer) * at.eager_layers,
        }
    }

    /// What calling `work` takes in all its layers.
    pub fn calls(&self, work: &Work) -> Picoseconds {
        self.reach(work).call * work.layers
    }

    /// The time of `work` in all its layers, without its calls.
    pub fn time(&self, work: &Work, bandwidth: ByteRate) -> Picoseconds {
        let reach = self.reach(work);
        let [computing, moving] = times(work, &reach, bandwidth);
        let exposed = computing.min(moving) * reach.exposed;
        Picoseconds::from_seconds(computing.max(moving) + exposed) * work.layers
            + self.unpacking(work, bandwidth)
    }

    /// What unpacking the weights of `work` takes before it, in all its layers.
    pub fn unpacking(&self, work: &Work, bandwidth: ByteRate) -> Picoseconds {
        if !self.reach(work).dequantizes {
            return Picoseconds::ZERO;
        }
        let moved = work.weight_bytes + unpacked_bytes(work);
        Picoseconds::moving(moved, ByteRate(bandwidth.0 * UNPACKING)) * work.layers
    }

    /// The same of attention where one kernel works on decodes and prompts: `first` is what the decodes'
    /// first tokens of context come to.
    pub fn time_mixed(
        &self,
        [decodes, prompts, first]: [&Work; 3],
        longest_chunk: u64,
        bandwidth: ByteRate,
    ) -> Picoseconds {
        let reach = self.reach(decodes);
        let [computing, moving] = times(decodes, &reach, bandwidth);
        let more = times(first, &reach, bandwidth)[0] * mixed_tokens(longest_chunk);
        let tiles = (computing + more) * reach.mixed_rows;
        Picoseconds::from_seconds(tiles.max(moving)) * decodes.layers + self.time(prompts, bandwidth)
    }

    /// The time on the links.
    pub fn linked(&self, communication: &Communication) -> Picoseconds {
        Picoseconds::from_seconds(communication.total().seconds() / self.figures.get(Figure::Link))
    }
}

/// A product's weights in 16 bits: as many bytes as it has FLOPs a row.
pub fn unpacked_bytes(work: &Work) -> Bytes {
    Bytes((work.flops.as_f64() / (work.rows as f64).max(1.0)) as u64)
}

/// Seconds to compute and seconds to move one layer's work: some are too short for whole picoseconds.
fn times(work: &Work, reach: &Reach, bandwidth: ByteRate) -> [f64; 2] {
    let rows = (work.rows as f64).max(1.0);
    let worth = if work.is_product() { reach.few.worth(tiled(rows)) } else { rows };
    let rate = work.rate.0 * reach.compute * rows / worth;
    let weights = if reach.dequantizes { unpacked_bytes(work) } else { work.weight_bytes };
    let moved = weights.as_f64() * work.crowded + work.kv_bytes.as_f64();
    [work.flops.as_f64() / rate, moved / (bandwidth.0 * reach.memory)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precision::Dtype;
    use crate::units::{FlopRate, Flops};

    /// 256 rows of a product of 10⁶ weights in 4.16 bits, 520 kB: 2 MB in 16 bits. 2.52 MB at 41 % of 1 TB/s are 6.146 µs, in
    /// each of two layers.
    #[test]
    fn unpacking_by_hand() {
        let work = Work {
            name: "o_proj",
            family: Family::Gemm,
            flops: Flops(2 * 256 * 1_000_000),
            weight_bytes: Bytes(520_000),
            kv_bytes: Bytes::ZERO,
            dtype: Dtype::Fp16,
            rate: FlopRate(1e14),
            rows: 256,
            group: 1,
            ranks: 1,
            crowded: 1.0,
            layers: 2,
        };
        let figures = Figures([1.0; Figure::ALL.len()]);
        let from = |rows| Efficiency {
            name: String::new(),
            figures,
            plain: figures,
            dequantizes_from: rows,
            band: None,
        };
        let bandwidth = ByteRate(1e12);
        let took = from(Some(256)).unpacking(&work, bandwidth).seconds();
        assert!((took - 2.0 * 2.52e6 / 0.41e12).abs() < 1e-11, "{took}");
        for never in [None, Some(257)] {
            assert_eq!(from(never).unpacking(&work, bandwidth), Picoseconds::ZERO);
        }
    }
}
