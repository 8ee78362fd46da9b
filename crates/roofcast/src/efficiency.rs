//! What machines and engines reach of their limits, operator by operator, and what they add to them.
//!
//! Knows: the time of an operator is `max(c, m) + x min(c, m) + t0` in each layer, with `c = FLOPs/(e_c peak)`,
//! `m = bytes/(e_m BW)` and the share x of the shorter that the longer does not hide; a step adds what its host, its
//! sequences, its tokens and its messages cost. Knows nothing about which figures hold where: that is
//! [`crate::calibration`]'s.

use crate::calibration::Band;
use crate::model::{Mixer, Model};
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
    /// Share of the shorter of computing and moving that the longer does not hide, in matrix products.
    GemmExposed,
    /// The same in routed experts.
    ExpertExposed,
    /// The same in attention.
    AttentionExposed,
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
    /// Rows of a large product that a row beyond the first costs in a product of few, itself among them; a count, at
    /// least 1. See [`FewRows`].
    FewRows,
    /// Rows' worth that few rows cost beyond their number at most; a count.
    SmallRows,
    /// Share of its time by which reading the cache takes longer for each further query head that reads the same keys.
    Group,
    /// Of a layer with latent attention in a step that computes prompts, on top.
    PrefillLatent,
    /// Of a layer with linear attention or another recurrence in a step that computes prompts, on top.
    PrefillLinear,
}

impl Figure {
    /// All, in order.
    pub const ALL: [Figure; 25] = [
        Figure::GemmMemory,
        Figure::GemmCompute,
        Figure::ExpertMemory,
        Figure::ExpertCompute,
        Figure::KvMemory,
        Figure::AttentionCompute,
        Figure::Link,
        Figure::GemmExposed,
        Figure::ExpertExposed,
        Figure::AttentionExposed,
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
        Figure::FewRows,
        Figure::SmallRows,
        Figure::Group,
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
    /// The bands of what it forecasts; none where it was never judged.
    pub band: Option<Band>,
}

/// What products of few rows cost more than their share of large ones: tiles that they do not fill, kernels that trade
/// arithmetic for streaming weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FewRows {
    /// Rows of a large product that each row beyond the first costs on top of itself.
    pub each: f64,
    /// Rows' worth that this comes to at most.
    pub most: f64,
}

impl FewRows {
    /// Every row costs the same.
    pub const NONE: FewRows = FewRows { each: 0.0, most: 0.0 };

    /// How many rows of a large product take as long to compute as `rows` alone. A single row has a kernel of its own.
    pub fn worth(self, rows: f64) -> f64 {
        rows + (self.each * (rows - 1.0)).clamp(0.0, self.most)
    }
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
    /// Beside it, in each layer.
    pub call: Picoseconds,
}

impl Reach {
    /// The limit itself.
    pub const LIMIT: Reach =
        Reach { compute: 1.0, memory: 1.0, exposed: 0.0, few: FewRows::NONE, call: Picoseconds::ZERO };
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
        let few = match work.family {
            // Expanded for cached tokens, too, whose rows are many.
            Family::Gemm if work.name != "kv_b_proj" => {
                FewRows { each: (figures.get(F::FewRows) - 1.0).max(0.0), most: figures.get(F::SmallRows) }
            }
            _ => FewRows::NONE,
        };
        let [compute, memory, exposed] = [compute, memory, exposed].map(|f| figures.get(f));
        let memory = memory / (1.0 + figures.get(F::Group) * (work.group - 1) as f64);
        Reach { compute, memory, exposed, few, call }
    }

    /// What steps cost beside their operators: `all_reduces` messages a step over links of `latency` seconds, `width` bytes of
    /// hidden state a token in all layers together, and the layers that mix otherwise than by attention.
    pub fn overhead(
        &self,
        all_reduces: u64,
        latency: f64,
        width: f64,
        bandwidth: ByteRate,
        mixers: Mixers,
    ) -> Overhead {
        let f = &self.figures;
        let message = f.get(Figure::AllReduce) * latency / LATENCY;
        Overhead {
            step: f.time(Figure::Step) + Picoseconds::from_seconds(message) * all_reduces,
            prefill: f.time(Figure::PrefillStep)
                + f.time(Figure::PrefillLatent) * mixers.latent
                + f.time(Figure::PrefillLinear) * mixers.linear,
            sequence: f.time(Figure::Sequence),
            token: f.get(Figure::Activation) * width / bandwidth.0,
        }
    }

    /// The time of `work` in all its layers.
    pub fn time(&self, work: &Work, bandwidth: ByteRate) -> Picoseconds {
        let reach = self.reach(work);
        let rows = (work.rows as f64).max(1.0);
        let rate = work.rate.0 * reach.compute * rows / reach.few.worth(rows);
        let computing = Picoseconds::computing(work.flops, FlopRate(rate));
        let moving =
            Picoseconds::moving(work.weight_bytes + work.kv_bytes, ByteRate(bandwidth.0 * reach.memory));
        let exposed = Picoseconds::from_seconds(computing.min(moving).seconds() * reach.exposed);
        (computing.max(moving) + exposed + reach.call) * work.layers
    }

    /// The time on the links.
    pub fn linked(&self, communication: &Communication) -> Picoseconds {
        Picoseconds::from_seconds(communication.total().seconds() / self.figures.get(Figure::Link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row beyond the first costs 3 more, 10 at most: 1, 2 + 3, 4 + 9, 8 + 10.
    #[test]
    fn few_rows_cost_more_than_their_share() {
        let few = FewRows { each: 3.0, most: 10.0 };
        assert_eq!([1.0, 2.0, 4.0, 8.0, 512.0].map(|rows| few.worth(rows)), [1.0, 5.0, 13.0, 18.0, 522.0]);
        assert_eq!(FewRows::NONE.worth(7.0), 7.0);
    }
}
