//! What works on each token alone: a dense MLP, or experts of which each token chooses some.

use super::tensor::{Role, Split, Tensor};

/// A layer's feed-forward part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ffn {
    /// One MLP.
    Dense(Dense),
    /// Routed experts.
    Experts(Experts),
    /// None.
    None,
}

/// `down(act(gate(x)) * up(x))`, or without the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dense {
    /// Inner width.
    pub intermediate: u64,
    /// Whether there is a gate projection.
    pub gated: bool,
    /// Biases on all projections.
    pub bias: bool,
}

/// A mixture of experts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Experts {
    /// Routed experts.
    pub count: u64,
    /// How many a token chooses.
    pub per_token: u64,
    /// One expert.
    pub expert: Dense,
    /// The part that every token passes.
    pub shared: Option<Dense>,
    /// A gate on the shared part (Qwen1.5-MoE).
    pub shared_gate: bool,
    /// Whether the shared part is the layer's own MLP and the experts stand beside it (Gemma 4).
    pub beside: bool,
    /// Elements of the router besides its matrix: a bias, or correction terms.
    pub router_bias: u64,
    /// Width in which routed experts work, between a projection down and one up (Nemotron-3, Kimi K3).
    pub latent: Option<u64>,
}

impl Ffn {
    /// The weight tensors for a residual stream of `hidden`.
    pub fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        match self {
            Ffn::Dense(dense) => dense.tensors(hidden, &DENSE),
            Ffn::Experts(experts) => experts.tensors(hidden),
            Ffn::None => Vec::new(),
        }
    }
}

/// Module and operator names of an MLP at one place.
struct Names {
    gate: &'static str,
    up: &'static str,
    down: &'static str,
    up_bias: &'static str,
    down_bias: &'static str,
    up_operator: &'static str,
    down_operator: &'static str,
}

const DENSE: Names = Names {
    gate: "mlp.gate_proj",
    up: "mlp.up_proj",
    down: "mlp.down_proj",
    up_bias: "mlp.up_proj.bias",
    down_bias: "mlp.down_proj.bias",
    up_operator: "gate_up_proj",
    down_operator: "down_proj",
};
const SHARED: Names = Names {
    gate: "mlp.shared_experts.gate_proj",
    up: "mlp.shared_experts.up_proj",
    down: "mlp.shared_experts.down_proj",
    up_bias: "mlp.shared_experts.up_proj.bias",
    down_bias: "mlp.shared_experts.down_proj.bias",
    up_operator: "shared_experts",
    down_operator: "shared_experts",
};
const BESIDE: Names = Names {
    gate: "experts.0.gate_proj",
    up: "experts.0.up_proj",
    down: "experts.0.down_proj",
    up_bias: "experts.0.up_proj.bias",
    down_bias: "experts.0.down_proj.bias",
    up_operator: "experts",
    down_operator: "experts",
};
const ROUTED: Names = Names {
    gate: "mlp.experts.0.gate_proj",
    up: "mlp.experts.0.up_proj",
    down: "mlp.experts.0.down_proj",
    up_bias: "mlp.experts.0.up_proj.bias",
    down_bias: "mlp.experts.0.down_proj.bias",
    up_operator: "experts",
    down_operator: "experts",
};

impl Dense {
    /// Elements of one such MLP.
    pub fn elements(&self, hidden: u64) -> u128 {
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
    /// Elements of the experts that one token leaves aside.
    pub fn idle_elements(&self, hidden: u64) -> u128 {
        u128::from(self.count - self.per_token) * self.expert.elements(self.latent.unwrap_or(hidden))
    }

    /// Distinct experts of `count` that `tokens` tokens touch, each choosing `per_token` at random:
    /// E(1 − (1 − k/E)^T).
    pub fn distinct(&self, tokens: u64) -> f64 {
        if self.per_token >= self.count {
            return if tokens > 0 { self.count as f64 } else { 0.0 };
        }
        let share = self.per_token as f64 / self.count as f64;
        let missed = (tokens as f64 * (-share).ln_1p()).exp();
        self.count as f64 * (1.0 - missed)
    }

    fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let (routed, shared_names) = if self.beside { (&BESIDE, &DENSE) } else { (&ROUTED, &SHARED) };
        let router = Tensor::linear("mlp.gate", "router", self.count, hidden, Split::Replicated);
        let mut tensors = vec![router.with_role(Role::Router)];
        if self.router_bias > 0 {
            tensors.push(Tensor::vector("mlp.gate.bias", "router", self.router_bias, Split::Replicated));
        }
        if let Some(width) = self.latent {
            tensors.push(Tensor::linear(
                "mlp.latent_down_proj",
                "latent_proj",
                width,
                hidden,
                Split::Replicated,
            ));
            tensors.push(Tensor::linear(
                "mlp.latent_up_proj",
                "latent_proj",
                hidden,
                width,
                Split::Replicated,
            ));
        }
        tensors.extend(self.expert.tensors(self.latent.unwrap_or(hidden), routed).into_iter().map(|t| {
            let role = if t.role == Role::Linear { Role::Expert } else { t.role };
            Tensor { role, split: Split::Experts, ..t.times(self.count) }
        }));
        if let Some(shared) = &self.shared {
            tensors.extend(shared.tensors(hidden, shared_names));
        }
        if self.shared_gate {
            tensors.push(Tensor::vector(
                "mlp.shared_expert_gate",
                "shared_experts",
                hidden,
                Split::Replicated,
            ));
        }
        tensors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_experts_by_hand() {
        let mlp = Dense { intermediate: 1, gated: true, bias: false };
        let experts = Experts {
            count: 8,
            per_token: 2,
            expert: mlp,
            shared: None,
            shared_gate: false,
            router_bias: 0,
            latent: None,
            beside: false,
        };
        // One token touches its two; two tokens 8 (1 − 0.75²) = 3.5.
        assert!((experts.distinct(1) - 2.0).abs() < 1e-12);
        assert!((experts.distinct(2) - 3.5).abs() < 1e-12);
        assert!(experts.distinct(1_000_000) <= 8.0);
    }
}
