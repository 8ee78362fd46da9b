//! The coefficients by name, and a value of each.
//!
//! Knows: what each counts, and whether it is a share, a time or a count. Knows nothing about operators.

use serde::{Deserialize, Serialize};

/// A coefficient. Shares are of the datasheet's rates, at most 1; times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coefficient {
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
    /// Of a request between its server and the engine, beside others.
    Request,
    /// The same on top where that server is a Python program, with the client that measures it.
    PythonRequest,
    /// Of a request in its server, which reads one after the other.
    Ingest,
    /// Of a prompt's token there.
    IngestToken,
    /// Rows of a large product that a row beyond the first costs in a product of few, itself among them; a count, at
    /// least 1. See [`SmallM`].
    SmallMRow,
    /// Rows' worth that few rows cost beyond their number at most; a count.
    SmallMMost,
    /// How often the hidden state of a token crosses the bus for each expert that it passes; a count.
    ExpertActivation,
    /// Share of its time by which reading the cache takes longer for each further query head that reads the same keys.
    Group,
    /// Rows that a decode's attention computes where one kernel works on prompts and decodes; 1 where decodes have their own.
    MixedRows,
    /// Times of the share that attention reaches of the peak with heads of 128 values which it reaches with heads of 64.
    Head64,
    /// The same with heads of 256.
    Head256,
    /// The same with heads of 512.
    Head512,
    /// How many times longer whole waves of tiles may be than a product's tiles before its computing is; a count, at least
    /// 1. See [`waves`](super::waves). Of matrices beyond caches alone, as is the next.
    GemmComputeSpread,
    /// The same of its reading: how many times its part of the bandwidth a multiprocessor can draw.
    GemmMemorySpread,
    /// How often what a product takes crosses the bus beside its work, as where its kernel quantizes it; a count.
    GemmInput,
    /// How often what it gives does; a count.
    GemmActivation,
    /// How often a prompt's queries and what comes of them do in attention; a count.
    AttentionActivation,
    /// Part of the multiprocessors that waits for the last tile of a prompt's queries in attention; a count.
    AttentionTail,
    /// Times that reading a byte of an 8-bit cache takes of a byte of a 16-bit one, in attention of decodes.
    NarrowCache,
    /// Tokens of context that a decode's attention is longer by than its own; a count.
    DecodeStart,
    /// Sequences times KV heads on a rank from which on decodes' attention reads at its share of the bandwidth. With fewer it
    /// reads at a share in proportion: kernels split a context into few parts, which leave multiprocessors idle. A count.
    DecodePairs,
    /// Times of the link's share in all-reduces for each time that ranks are halved from eight. See
    /// [`Messages`](super::Messages).
    LinkFewer,
    /// Of filling the pipeline of an all-reduce, for each rank beyond the first; as [`Coefficient::AllReduce`].
    AllReduceFill,
    /// How often the hidden state of a token crosses the bus on every rank for each expert that it passes on any: buffers that
    /// hold the copies of all tokens; a count.
    ExpertCopies,
    /// Of a layer's launches on the host, beside the device, in a step with prompts that no captured graph holds.
    PrefillLayer,
    /// Of a layer's routing there, on top.
    PrefillExpert,
    /// Of a layer with latent attention there, on top.
    PrefillLatent,
    /// Of a layer with linear attention or another recurrence there, on top.
    PrefillLinear,
}

impl Coefficient {
    /// All, in order.
    pub const ALL: [Coefficient; 47] = [
        Coefficient::GemmMemory,
        Coefficient::GemmCompute,
        Coefficient::ExpertMemory,
        Coefficient::ExpertCompute,
        Coefficient::KvMemory,
        Coefficient::AttentionCompute,
        Coefficient::Link,
        Coefficient::Elementwise,
        Coefficient::GemmExposed,
        Coefficient::ExpertExposed,
        Coefficient::AttentionExposed,
        Coefficient::Layer,
        Coefficient::EagerLayer,
        Coefficient::ExpertLayer,
        Coefficient::MixerLayer,
        Coefficient::AllReduce,
        Coefficient::Step,
        Coefficient::PrefillStep,
        Coefficient::Sequence,
        Coefficient::Request,
        Coefficient::PythonRequest,
        Coefficient::Ingest,
        Coefficient::IngestToken,
        Coefficient::SmallMRow,
        Coefficient::SmallMMost,
        Coefficient::ExpertActivation,
        Coefficient::Group,
        Coefficient::MixedRows,
        Coefficient::Head64,
        Coefficient::Head256,
        Coefficient::Head512,
        Coefficient::GemmComputeSpread,
        Coefficient::GemmMemorySpread,
        Coefficient::GemmInput,
        Coefficient::GemmActivation,
        Coefficient::AttentionActivation,
        Coefficient::AttentionTail,
        Coefficient::NarrowCache,
        Coefficient::DecodeStart,
        Coefficient::DecodePairs,
        Coefficient::LinkFewer,
        Coefficient::AllReduceFill,
        Coefficient::ExpertCopies,
        Coefficient::PrefillLayer,
        Coefficient::PrefillExpert,
        Coefficient::PrefillLatent,
        Coefficient::PrefillLinear,
    ];

    /// Whether it is a share of a rate, at most 1.
    pub fn is_share(self) -> bool {
        self <= Coefficient::AttentionExposed
    }

    /// Whether it is of matrix products' kernels.
    pub fn is_of_products(self) -> bool {
        matches!(self, Coefficient::GemmMemory | Coefficient::GemmCompute | Coefficient::GemmExposed)
            || (Coefficient::GemmComputeSpread..=Coefficient::GemmActivation).contains(&self)
    }

    /// Whether it is of what small-M GEMMs cost beyond their share of large ones.
    pub fn is_of_small_m(self) -> bool {
        matches!(self, Coefficient::SmallMRow | Coefficient::SmallMMost)
    }

    /// Whether only times of kernels tell it, and whole steps do not.
    pub fn is_of_kernels_alone(self) -> bool {
        (Coefficient::Head64..=Coefficient::ExpertCopies).contains(&self)
    }

    /// Whether it is a share of a rate, which what it counts takes longer for in proportion.
    fn is_rate(self) -> bool {
        self <= Coefficient::Elementwise
    }

    /// Whether it is a time.
    pub(crate) fn is_time(self) -> bool {
        (Coefficient::Layer..=Coefficient::IngestToken).contains(&self)
            || self == Coefficient::AllReduceFill
            || self >= Coefficient::PrefillLayer
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

/// A value of each coefficient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Values(pub [f64; Coefficient::ALL.len()]);

impl Values {
    /// The coefficient's value; shares are at most 1.
    pub fn get(&self, coefficient: Coefficient) -> f64 {
        let value = self.0[coefficient as usize];
        if coefficient.is_share() { value.min(1.0) } else { value }
    }
}

impl Values {
    /// Times of the share of the peak with heads of 128 values that attention reaches with heads of `head_dim`: between
    /// the sizes that were timed, a straight line of the logarithms. 0 is no grouped attention.
    pub(super) fn of_heads(&self, head_dim: u64) -> f64 {
        let log = |coefficient| self.get(coefficient).ln();
        let timed = [log(Coefficient::Head64), 0.0, log(Coefficient::Head256), log(Coefficient::Head512)];
        if head_dim == 0 {
            return 1.0;
        }
        let place = ((head_dim as f64).log2() - 6.0).clamp(0.0, 3.0);
        let below = (place as usize).min(timed.len() - 2);
        (timed[below] + (place - below as f64) * (timed[below + 1] - timed[below])).exp()
    }

    /// Those of a machine that takes `factor` times as long: its rates are lower and its times longer.
    pub(super) fn slowed(self, factor: f64) -> Values {
        let of = |coefficient: Coefficient| {
            let value = self.get(coefficient);
            if coefficient.is_rate() {
                return (value / factor).min(1.0);
            }
            if coefficient.is_time() { value * factor } else { value }
        };
        Values(Coefficient::ALL.map(of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half the share at 64, 1.2 times at 256, 0.6 at 512: at 96 a little above half way in logarithms (log2 1.5 = 0.585),
    /// at 192 so far from 128 to 256, beyond both ends as there.
    #[test]
    fn heads_between_those_timed_are_on_a_line() {
        let mut values = Values([1.0; Coefficient::ALL.len()]);
        let timed = [(Coefficient::Head64, 0.5), (Coefficient::Head256, 1.2), (Coefficient::Head512, 0.6)];
        timed.iter().for_each(|(c, value)| values.0[*c as usize] = *value);
        let near =
            |head_dim, expected: f64| assert!((values.of_heads(head_dim) / expected - 1.0).abs() < 1e-12);
        [(0, 1.0), (32, 0.5), (64, 0.5), (128, 1.0), (256, 1.2), (512, 0.6), (576, 0.6)]
            .iter()
            .for_each(|(head_dim, expected)| near(*head_dim, *expected));
        let part = 1.5_f64.log2();
        near(96, 0.5_f64.powf(1.0 - part));
        near(192, 1.2_f64.powf(part));
    }
}
