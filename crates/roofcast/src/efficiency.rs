//! What machines and engines reach of their limits, operator by operator, and what they add to them.
//!
//! Knows: the time of an operator is `max(FLOPs/(e_c peak), bytes/(e_m BW)) + t0` in each layer; a step adds what its
//! host, its sequences, its tokens and its messages cost. Knows nothing about which figures hold where: that is
//! [`crate::calibration`]'s.

use crate::calibration::Band;
use crate::operator::collective::Communication;
use crate::operator::{Family, Work};
use crate::units::{ByteRate, FlopRate, Picoseconds};
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
    /// Of a layer: launches, norms and what else is there once.
    Layer,
    /// Of a layer's routing, on top.
    ExpertLayer,
    /// Of a layer with latent or linear attention, on top.
    MixerLayer,
    /// Of an all-reduce, beside its bytes, over links of 2 µs; in proportion to the latency elsewhere.
    AllReduce,
    /// Of a step.
    Step,
    /// Of a step that computes prompts, on top.
    PrefillStep,
    /// Of a sequence in a step.
    Sequence,
    /// Of a request before its first token, outside the steps.
    Request,
    /// Steps that a request waits before the engine looks at it: overlapped scheduling, polling; a count.
    RequestSteps,
    /// How often a token's hidden state crosses the bus in a layer; a count.
    Activation,
}

impl Figure {
    /// All, in order.
    pub const ALL: [Figure; 17] = [
        Figure::GemmMemory,
        Figure::GemmCompute,
        Figure::ExpertMemory,
        Figure::ExpertCompute,
        Figure::KvMemory,
        Figure::AttentionCompute,
        Figure::Link,
        Figure::Layer,
        Figure::ExpertLayer,
        Figure::MixerLayer,
        Figure::AllReduce,
        Figure::Step,
        Figure::PrefillStep,
        Figure::Sequence,
        Figure::Request,
        Figure::RequestSteps,
        Figure::Activation,
    ];

    /// Whether it is a share of a rate, at most 1.
    pub fn is_share(self) -> bool {
        self <= Figure::Link
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
    /// Beside it, in each layer.
    pub call: Picoseconds,
}

/// A forecast with its band.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// The median.
    pub time: Picoseconds,
    /// 10th to 90th percentile.
    pub band: [Picoseconds; 2],
}

/// What a step costs beside its operators.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overhead {
    /// Of any step.
    pub step: Picoseconds,
    /// More where it computes prompts.
    pub prefill: Picoseconds,
    /// Of each sequence.
    pub sequence: Picoseconds,
    /// Of each token, in seconds: too short for whole picoseconds.
    pub token: f64,
}

impl Efficiency {
    /// What `work` reaches.
    pub fn reach(&self, work: &Work) -> Reach {
        use Figure as F;
        // Heads, routers and embeddings are seldom quantized.
        let plain = ["lm_head", "router", "embedding", "norms"].contains(&work.name);
        let figures = if plain { &self.plain } else { &self.figures };
        let of = |compute, memory, call| Reach {
            compute: figures.get(compute),
            memory: figures.get(memory),
            call,
        };
        let layer = figures.time(F::Layer);
        match work.family {
            Family::Moe => of(F::ExpertCompute, F::ExpertMemory, figures.time(F::ExpertLayer)),
            Family::Attention if work.name == "linear_attention" => {
                of(F::AttentionCompute, F::KvMemory, layer + figures.time(F::MixerLayer))
            }
            Family::Attention => of(F::AttentionCompute, F::KvMemory, layer),
            Family::Indexer => of(F::AttentionCompute, F::KvMemory, Picoseconds::ZERO),
            _ if work.name == "kv_b_proj" => of(F::GemmCompute, F::GemmMemory, figures.time(F::MixerLayer)),
            _ => of(F::GemmCompute, F::GemmMemory, Picoseconds::ZERO),
        }
    }

    /// What steps cost beside their operators: `all_reduces` messages a step over links of `latency` seconds, `width` bytes of hidden state a token in
    /// all layers together.
    pub fn overhead(&self, all_reduces: u64, latency: f64, width: f64, bandwidth: ByteRate) -> Overhead {
        let f = &self.figures;
        let message = f.get(Figure::AllReduce) * latency / LATENCY;
        Overhead {
            step: f.time(Figure::Step) + Picoseconds::from_seconds(message) * all_reduces,
            prefill: f.time(Figure::PrefillStep),
            sequence: f.time(Figure::Sequence),
            token: f.get(Figure::Activation) * width / bandwidth.0,
        }
    }

    /// The time of `work` in all its layers.
    pub fn time(&self, work: &Work, bandwidth: ByteRate) -> Picoseconds {
        let reach = self.reach(work);
        let computing = Picoseconds::computing(work.flops, FlopRate(work.rate.0 * reach.compute));
        let moving =
            Picoseconds::moving(work.weight_bytes + work.kv_bytes, ByteRate(bandwidth.0 * reach.memory));
        (computing.max(moving) + reach.call) * work.layers
    }

    /// The time on the links.
    pub fn linked(&self, communication: &Communication) -> Picoseconds {
        Picoseconds::from_seconds(communication.total().seconds() / self.figures.get(Figure::Link))
    }
}
