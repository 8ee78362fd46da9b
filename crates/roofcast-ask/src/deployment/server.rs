//! The HTTP server in front of a replica: its processes, and the tokens that each streams.
//!
//! Knows: the number of processes by the command and the engine's version, and the interval between messages. Knows nothing
//! about times.

use super::Deployment;
use crate::spec::EngineKind;

/// First version of vLLM that starts a process of its server for each data-parallel rank: 0.15.1 logs it (`ServeSubcommand.cmd`
/// in `entrypoints/cli/serve.py`).
const PROCESSES_BY_RANK: &str = "0.15.0 (2026-01)";

impl Deployment {
    /// Number of processes of a replica's server: as asked for, else one, or one for each data-parallel rank of a newer vLLM.
    pub fn server_processes(&self) -> u64 {
        let Some(vllm) = self.engine.vllm() else { return 1 };
        let by_rank = self.engine.is_since(PROCESSES_BY_RANK);
        let usual = if by_rank { self.parallelism.attention_dp } else { 1 };
        vllm.api_server_count.unwrap_or(usual).max(1)
    }

    /// Messages that one process of the server sends for each sequence of a data-parallel rank's step, on average. The first
    /// token of a request is sent at once, later ones every `stream_interval` tokens (vLLM 0.33, `v1/engine/output_processor.py`;
    /// SGLang 0.5.23, `managers/scheduler_output_processor_mixin.py`). SGLang's ranks are taken to have a process each, as its
    /// published wide deployments stream more than one process can.
    pub fn streams(&self) -> f64 {
        let shared = match self.engine.kind() {
            EngineKind::Sglang => 1.0,
            _ => self.parallelism.attention_dp as f64 / self.server_processes() as f64,
        };
        shared / self.engine.stream_interval as f64
    }

    /// The flag that divides a server's messages by at least `ratio`: more processes of vLLM's, or longer intervals between
    /// messages; `None` for an engine without such a flag.
    pub fn lifts_server(&self, ratio: f64) -> Option<String> {
        let times = |usual: u64| (usual as f64 * ratio.clamp(1.0, 64.0)).ceil() as u64;
        match self.engine.kind() {
            EngineKind::Vllm => Some(format!("--api-server-count {}", times(self.server_processes()))),
            EngineKind::Sglang => Some(format!("--stream-interval {}", times(self.engine.stream_interval))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::deployment::{Deployment, DeploymentOptions};
    use std::sync::Arc;

    fn served(change: &dyn Fn(&mut DeploymentOptions)) -> Deployment {
        let catalog = roofcast_facts::Catalog::embedded().unwrap();
        let model = Arc::new(catalog.named("meta-llama/Llama-3.1-8B-Instruct").unwrap().model().unwrap());
        let chip = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let mut options = DeploymentOptions::default();
        change(&mut options);
        Deployment::resolve(model, chip, &options).unwrap()
    }

    /// Two data-parallel ranks have two processes from vLLM 0.15 on, unless the command says one.
    #[test]
    fn data_parallel_ranks_have_a_process_each() {
        for (version, asked, count) in [("0.14.0", None, 1), ("0.15.1", None, 2), ("0.15.1", Some(1), 1)] {
            let deployment = served(&|options| {
                options.engine.version = Some(version.to_owned());
                options.engine.vllm.api_server_count = asked;
                options.parallelism.tp = Some(1);
                options.parallelism.attention_dp = Some(2);
            });
            assert_eq!(deployment.server_processes(), count, "{version} {asked:?}");
            assert_eq!(deployment.streams(), 2.0 / count as f64);
        }
    }

    /// A server that takes 3.2 times as long as the device needs four processes, or of two processes seven; SGLang, which has
    /// one for each rank, sends every fourth token.
    #[test]
    fn a_flag_divides_the_messages() {
        let flag = |name: &str, count| {
            let deployment = served(&|options| {
                options.engine.name = Some(name.to_owned());
                options.engine.vllm.api_server_count = count;
            });
            deployment.lifts_server(3.2).unwrap_or_default()
        };
        assert_eq!(flag("vllm", None), "--api-server-count 4");
        assert_eq!(flag("vllm", Some(2)), "--api-server-count 7");
        assert_eq!(flag("sglang", None), "--stream-interval 4");
        assert_eq!(flag("llama.cpp", None), "");
    }

    /// Four processes with a message every 20 tokens: each sends a message for one of 80 tokens.
    #[test]
    fn processes_and_intervals_divide_the_messages() {
        let deployment = served(&|options| {
            options.engine.vllm.api_server_count = Some(4);
            options.engine.stream_interval = Some(20);
        });
        assert_eq!(deployment.streams(), 1.0 / 80.0);
    }
}
