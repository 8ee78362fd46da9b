//! Pipeline stages: how many microbatches they compute at one time, and how the parts of a batch follow each other.
//!
//! Knows: engines keep as many microbatches in flight as there are stages. llama.cpp computes one batch at a time, so
//! its stages take turns, and a second card makes no token faster; only the parts of `n_ubatch` tokens of a batch with
//! prompts follow each other from stage to stage (llama.cpp, docs/multi-gpu.md, and `n_copies` of ggml's scheduler).
//! Knows nothing about the work of a stage: stages are equal.

use roofcast_ask::deployment::{Deployment, PipelineStage};
use roofcast_ask::spec::EngineKind;
use roofcast_facts::units::Bytes;

/// Pipeline stages of a replica.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stages {
    count: u64,
    /// Number of microbatches that are computed at one time.
    pub microbatches: u64,
    /// Most tokens of a part of a batch, where the parts follow each other from stage to stage.
    ubatch: Option<u64>,
}

impl Stages {
    pub(super) fn of(deployment: &Deployment) -> Stages {
        let count = deployment.parallelism.pp;
        let in_turn = deployment.engine.kind() == EngineKind::LlamaCpp && !deployment.ideal;
        Stages {
            count,
            microbatches: if in_turn { 1 } else { count },
            ubatch: (in_turn && count > 1 && !uses_host(deployment))
                .then_some(deployment.engine.slots.n_ubatch),
        }
    }

    /// Part of the time of all stages, one after the other, that a batch of `rows` tokens takes: with S stages and k
    /// parts, (k + S − 1) / (k S), because every stage computes k parts, and the last begins S − 1 parts late. 1
    /// without `prompts`: decodes are one part.
    pub(super) fn part(&self, rows: u64, prompts: bool) -> f64 {
        match self.ubatch.filter(|_| prompts) {
            None => 1.0,
            Some(ubatch) => {
                let parts = rows.div_ceil(ubatch).max(1) as f64;
                let stages = self.count as f64;
                (parts + stages - 1.0) / (parts * stages)
            }
        }
    }
}

/// True if weights or a cache lie on the host, with which llama.cpp's parts do not follow each other
/// (`pipeline_parallel` of `src/llama-context.cpp`, b11549).
fn uses_host(deployment: &Deployment) -> bool {
    let on_host = |stage: &PipelineStage| {
        stage.host_bytes > Bytes::ZERO || stage.blocks.iter().any(|(block, _)| block.cache_on_host)
    };
    deployment.stages.iter().any(on_host)
}

#[cfg(test)]
mod tests {
    use super::super::tests::compiled_with;
    use roofcast_ask::deployment::DeploymentOptions;
    use roofcast_facts::batch::Batch;

    /// Two cards and no degree: layers under llama.cpp, so that four decodes are one pass of four rows, and a batch of
    /// 2,048 tokens, four parts of 512, takes (4 + 1) / (4 · 2) of one card's time; matrices under vLLM.
    #[test]
    fn stages_of_llama_cpp_take_turns() {
        let two = |engine: &str| {
            let mut options = DeploymentOptions::default();
            options.engine.name = Some(engine.to_owned());
            options.parallelism.count = Some(2);
            compiled_with("meta-llama/Llama-3.1-8B-Instruct", &options)
        };
        let layers = two("llama.cpp");
        assert_eq!((layers.parallelism.tp, layers.parallelism.pp), (1, 2));
        let decodes = layers.passes_of(&Batch::decode(4, 1000));
        assert_eq!(decodes.iter().map(|pass| pass.rows).collect::<Vec<_>>(), [4]);
        assert_eq!(layers.pipelined(&decodes[0]), 1.0);
        for (tokens, part) in [(512, 1.0), (2048, 0.625), (1000, 0.75)] {
            let prompts = layers.passes_of(&Batch::prefill(1, tokens));
            assert_eq!(layers.pipelined(&prompts[0]), part, "{tokens}");
        }
        let matrices = two("vllm");
        assert_eq!((matrices.parallelism.tp, matrices.parallelism.pp), (2, 1));
    }
}
