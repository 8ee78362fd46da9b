//! Feed-forward parts of layers, which transform each token independently: a dense MLP, or experts of which each
//! token chooses some.
//!
//! Knows: tensors, and the number of experts that a batch of tokens chooses. Knows nothing about time.

use super::tensor::{OperatorKind, Split, Tensor, TensorRole};

/// Feed-forward part of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ffn {
    /// One dense MLP.
    Dense(Dense),
    /// Routed experts.
    Experts(Experts),
    /// No feed-forward part.
    None,
}

/// MLP: `down(act(gate(x)) * up(x))`, or `down(act(up(x)))` without a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dense {
    /// Inner width.
    pub intermediate: u64,
    /// True if there is a gate projection.
    pub gated: bool,
    /// True if all projections have biases.
    pub(crate) bias: bool,
}

/// Mixture of experts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Experts {
    /// Number of routed experts.
    pub count: u64,
    /// Number of experts that a token chooses.
    pub per_token: u64,
    /// Shape of one expert.
    pub expert: Dense,
    /// Shared expert, which computes every token.
    pub shared: Option<Dense>,
    /// True if the shared expert's output is gated (Qwen1.5-MoE).
    pub(crate) shared_gate: bool,
    /// Router elements in addition to its matrix: a bias, or correction terms.
    pub(crate) router_bias: u64,
    /// Width of the latent stream on which routed experts work, projected down before and up after them (Nemotron-3,
    /// Kimi K3).
    pub latent: Option<u64>,
    /// True if a norm precedes the projection up from the latent stream (Kimi K3).
    pub(crate) latent_norm: bool,
    /// Dense MLP in parallel with the experts, whose outputs are added (Gemma 4); the experts are then modules of the
    /// layer, not of `mlp`.
    pub beside: Option<Dense>,
}

impl Ffn {
    /// Lists the weight tensors for a residual stream of width `hidden`.
    pub fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        match self {
            Ffn::Dense(dense) => dense.tensors(hidden, &DENSE),
            Ffn::Experts(experts) => experts.tensors(hidden),
            Ffn::None => Vec::new(),
        }
    }
}

/// Module and operator names of one MLP's tensors.
struct Names {
    gate: &'static str,
    up: &'static str,
    down: &'static str,
    up_bias: &'static str,
    down_bias: &'static str,
    up_operator: OperatorKind,
    down_operator: OperatorKind,
}

const DENSE: Names = Names {
    gate: "mlp.gate_proj",
    up: "mlp.up_proj",
    down: "mlp.down_proj",
    up_bias: "mlp.up_proj.bias",
    down_bias: "mlp.down_proj.bias",
    up_operator: OperatorKind::GateUpProj,
    down_operator: OperatorKind::DownProj,
};
const SHARED: Names = Names {
    gate: "mlp.shared_experts.gate_proj",
    up: "mlp.shared_experts.up_proj",
    down: "mlp.shared_experts.down_proj",
    up_bias: "mlp.shared_experts.up_proj.bias",
    down_bias: "mlp.shared_experts.down_proj.bias",
    up_operator: OperatorKind::SharedExperts,
    down_operator: OperatorKind::SharedExperts,
};
/// Names of Gemma 4's experts, which run in parallel with the dense MLP.
const BESIDE: Names = Names {
    gate: "experts.0.gate_proj",
    up: "experts.0.up_proj",
    down: "experts.0.down_proj",
    up_bias: "experts.0.up_proj.bias",
    down_bias: "experts.0.down_proj.bias",
    up_operator: OperatorKind::Experts,
    down_operator: OperatorKind::Experts,
};
const ROUTED: Names = Names {
    gate: "mlp.experts.0.gate_proj",
    up: "mlp.experts.0.up_proj",
    down: "mlp.experts.0.down_proj",
    up_bias: "mlp.experts.0.up_proj.bias",
    down_bias: "mlp.experts.0.down_proj.bias",
    up_operator: OperatorKind::Experts,
    down_operator: OperatorKind::Experts,
};

impl Dense {
    /// Number of weights of one MLP.
    pub(crate) fn elements(&self, hidden: u64) -> u128 {
        self.tensors(hidden, &DENSE).iter().map(Tensor::elements).sum()
    }

    fn tensors(&self, hidden: u64, names: &Names) -> Vec<Tensor> {
        let inner = self.intermediate;
        let mut tensors = Vec::new();
        if self.gated {
            tensors.push(Tensor::linear(names.gate, names.up_operator, inner, hidden, Split::Even));
        }
        tensors.push(Tensor::linear(names.up, names.up_operator, inner, hidden, Split::Even));
        tensors.push(Tensor::linear(names.down, names.down_operator, hidden, inner, Split::Even));
        if self.bias {
            let ups = if self.gated { 2 * inner } else { inner };
            tensors.push(Tensor::vector(names.up_bias, names.up_operator, ups, Split::Even));
            tensors.push(Tensor::vector(names.down_bias, names.down_operator, hidden, Split::Replicated));
        }
        tensors
    }
}

impl Experts {
    /// Width of the input of routed experts: of the latent stream if there is one, else of the residual stream.
    pub fn width(&self, hidden: u64) -> u64 {
        self.latent.unwrap_or(hidden)
    }

    /// These experts with `redundant` second copies of some, among which tokens choose as among experts.
    #[must_use]
    pub fn with_copies(&self, redundant: u64) -> Experts {
        Experts { count: self.count + redundant, ..self.clone() }
    }

    /// Number of weights in the experts that one token does not choose.
    pub(crate) fn idle_elements(&self, hidden: u64) -> u128 {
        u128::from(self.count.saturating_sub(self.per_token)) * self.expert.elements(self.width(hidden))
    }

    /// Expected number of distinct experts of E that T tokens choose, each choosing k at random: E(1 − (1 − k/E)^T).
    pub fn distinct(&self, tokens: u64) -> f64 {
        if self.per_token >= self.count {
            return if tokens > 0 { self.count as f64 } else { 0.0 };
        }
        let share = self.per_token as f64 / self.count as f64;
        let missed = (tokens as f64 * (-share).ln_1p()).exp();
        self.count as f64 * (1.0 - missed)
    }

    /// Expert imbalance for `tokens` tokens: distinct experts on the busiest of `ranks` ranks over the mean of all
    /// ranks.
    pub fn imbalance(&self, tokens: u64, ranks: u64) -> f64 {
        imbalance(self.count as f64, self.distinct(tokens), ranks)
    }

    fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let whole = Split::Replicated;
        let router = Tensor::linear("mlp.gate", OperatorKind::Router, self.count, hidden, whole);
        let mut tensors = vec![router.with_role(TensorRole::Router)];
        if self.router_bias > 0 {
            tensors.push(Tensor::vector("mlp.gate.bias", OperatorKind::Router, self.router_bias, whole));
        }
        let width = self.width(hidden);
        let names = if self.beside.is_some() { &BESIDE } else { &ROUTED };
        tensors.extend(self.expert.tensors(width, names).into_iter().map(|t| {
            let role = if t.role == TensorRole::Linear { TensorRole::Expert } else { t.role };
            Tensor { role, split: Split::Experts, ..t.times(self.count) }
        }));
        if let Some(latent) = self.latent {
            tensors.push(Tensor::linear(
                "mlp.fc1_latent_proj",
                OperatorKind::LatentProj,
                latent,
                hidden,
                whole,
            ));
            tensors.push(Tensor::linear(
                "mlp.fc2_latent_proj",
                OperatorKind::LatentProj,
                hidden,
                latent,
                whole,
            ));
            if self.latent_norm {
                tensors.push(Tensor::vector("mlp.latent_norm", OperatorKind::Norms, latent, whole));
            }
        }
        if let Some(shared) = &self.shared {
            tensors.extend(shared.tensors(hidden, &SHARED));
        }
        if self.shared_gate {
            tensors.push(Tensor::vector(
                "mlp.shared_expert_gate",
                OperatorKind::SharedExperts,
                hidden,
                whole,
            ));
        }
        if let Some(dense) = &self.beside {
            tensors.extend(dense.tensors(hidden, &DENSE));
        }
        tensors
    }
}

/// Expected value of the largest of `n` standard normal deviates: 0.61 log2(n)^0.75, within 8 % up to 64.
pub fn largest_deviate(n: u64) -> f64 {
    0.61 * (n.max(1) as f64).log2().powf(0.75)
}

/// Expert imbalance: chosen experts on the busiest of `ranks` ranks over the mean of all ranks, if `touched` of
/// `count` experts are chosen. The number on one rank is hypergeometric.
pub(crate) fn imbalance(count: f64, touched: f64, ranks: u64) -> f64 {
    if ranks < 2 || touched <= 0.0 || count <= 1.0 {
        return 1.0;
    }
    let n = ranks as f64;
    let mean = touched / n;
    let variance = mean * (1.0 - 1.0 / n) * (count - touched) / (count - 1.0);
    1.0 + largest_deviate(ranks) * variance.max(0.0).sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(count: u64, per_token: u64, expert: Dense) -> Experts {
        Experts {
            count,
            per_token,
            expert,
            shared: None,
            shared_gate: false,
            router_bias: 0,
            latent: None,
            latent_norm: false,
            beside: None,
        }
    }

    #[test]
    fn latent_experts_by_hand() {
        // 4 ungated experts of width 3 on a latent stream of 2: 4·2·(3·2) = 48; projections down and up 2·(2·8) = 32;
        // router 4·8 = 32.
        let mlp = Dense { intermediate: 3, gated: false, bias: false };
        let experts = Experts { latent: Some(2), ..plain(4, 1, mlp) };
        let count: u128 = experts.tensors(8).iter().map(Tensor::elements).sum();
        assert_eq!(count, 48 + 32 + 32);
        assert_eq!(experts.idle_elements(8), 3 * 12);
        // A dense gated MLP of width 5 in parallel adds 3·5·8 = 120.
        let dense = Dense { intermediate: 5, gated: true, bias: false };
        let both = Experts { beside: Some(dense), ..experts };
        assert_eq!(both.tensors(8).iter().map(Tensor::elements).sum::<u128>(), count + 120);
    }

    #[test]
    fn distinct_experts_by_hand() {
        let mlp = Dense { intermediate: 1, gated: true, bias: false };
        let experts = plain(8, 2, mlp);
        // One token chooses its two experts; two tokens choose 8 (1 − 0.75²) = 3.5 distinct ones.
        assert!((experts.distinct(1) - 2.0).abs() < 1e-12);
        assert!((experts.distinct(2) - 3.5).abs() < 1e-12);
        assert!(experts.distinct(1_000_000) <= 8.0);
    }

    /// Two tokens choose 3.5 of 8 experts. Each of two ranks has 1.75 chosen experts on average, with a variance of
    /// 1.75 (1 − 1/2) (8 − 3.5)/7 = 0.5625: the busier rank has 1.75 + 0.61 √0.5625 = 2.2075, 1.2614 times the mean.
    /// On each of four ranks the mean is 0.875 and the variance 0.4219: 1 + 0.61 2^0.75 0.6495/0.875.
    #[test]
    fn the_busiest_rank_by_hand() {
        let mlp = Dense { intermediate: 1, gated: true, bias: false };
        let experts = plain(8, 2, mlp);
        assert!((experts.imbalance(2, 2) - 1.2614).abs() < 1e-4, "{}", experts.imbalance(2, 2));
        assert!((experts.imbalance(2, 4) - 1.7615).abs() < 1e-4, "{}", experts.imbalance(2, 4));
        // A single rank has all experts; without tokens there is no imbalance.
        assert_eq!([experts.imbalance(2, 1), experts.imbalance(0, 2)], [1.0, 1.0]);
        assert!(experts.imbalance(1_000_000, 8) < 1.001);
    }
}
