//! A replica over several nodes: the command of its engine on each node.
//!
//! Knows: how vLLM, SGLang and TensorRT-LLM find the other nodes; the catalog gives the number of accelerators per
//! node. Knows nothing about performance. Sources: vLLM, docs/serving/parallelism_scaling.md (`--nnodes`) and
//! data_parallel_deployment.md; SGLang, docs/references/multi_node_deployment; TensorRT-LLM, docs `trtllm-serve`,
//! "Multi-node Serving with Slurm".

use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::EngineKind;

/// Port at which data-parallel ranks connect, as in vLLM's documentation.
const RPC_PORT: u64 = 13_345;
/// Port at which SGLang's nodes connect.
const INIT_PORT: u64 = 20_000;

/// Placeholders: the first node's address, and the number of another node from 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    pub(super) leader: &'static str,
    pub(super) rank: &'static str,
}

/// The command for the first node, and the command for each other node; `None` with one node.
pub(super) type Commands = (Vec<String>, Option<Vec<String>>);

/// Number of nodes of one replica.
pub(super) fn count(d: &Deployment) -> u64 {
    ranks(d).div_ceil(d.accelerator.node_size)
}

/// Number of accelerators of one replica.
pub(super) fn ranks(d: &Deployment) -> u64 {
    d.parallelism.count() / d.parallelism.replicas
}

/// Converts `words`, which start a replica of `engine` on one node, to commands for all of its nodes.
///
/// # Errors
/// The reason why the replica cannot be spread over its nodes.
pub(super) fn spread(
    d: &Deployment,
    engine: EngineKind,
    words: Vec<String>,
    at: Names,
) -> Result<Commands, String> {
    let nodes = count(d);
    if nodes == 1 {
        return Ok((words, None));
    }
    let with = |more: &[(&str, String)]| {
        let more = more.iter().flat_map(|(flag, value)| [(*flag).to_owned(), value.clone()]);
        words.iter().cloned().chain(more.filter(|word| !word.is_empty())).collect::<Vec<String>>()
    };
    let dp = d.parallelism.attention_dp;
    match engine {
        EngineKind::Vllm if dp == 1 => {
            let flags = |rank: &str| {
                let address = at.leader.to_owned();
                [
                    ("--nnodes", nodes.to_string()),
                    ("--node-rank", rank.to_owned()),
                    ("--master-addr", address),
                ]
            };
            let others = [&flags(at.rank)[..], &[("--headless", String::new())]].concat();
            Ok((with(&flags("0")), Some(with(&others))))
        }
        EngineKind::Vllm if !dp.is_multiple_of(nodes) => Err(format!(
            "vLLM starts whole data-parallel ranks on a node, and {dp} are not shared by {nodes} nodes"
        )),
        EngineKind::Vllm => {
            let local = dp / nodes;
            let flags = [
                ("--data-parallel-size-local", local.to_string()),
                ("--data-parallel-address", at.leader.to_owned()),
                ("--data-parallel-rpc-port", RPC_PORT.to_string()),
            ];
            let from = if local == 1 { at.rank.to_owned() } else { format!("{local}*{}", at.rank) };
            let others = [&flags[..], &[("--data-parallel-start-rank", from), ("--headless", String::new())]];
            Ok((with(&flags), Some(with(&others.concat()))))
        }
        EngineKind::Sglang => {
            let flags = |rank: &str| {
                let address = format!("{}:{INIT_PORT}", at.leader);
                [
                    ("--nnodes", nodes.to_string()),
                    ("--node-rank", rank.to_owned()),
                    ("--dist-init-addr", address),
                ]
            };
            Ok((with(&flags("0")), Some(with(&flags(at.rank)))))
        }
        EngineKind::TensorrtLlm => {
            let ranks = ranks(d);
            let each = ranks.div_ceil(nodes).to_string();
            let nodes = nodes.to_string();
            let ranks = ranks.to_string();
            let srun = ["srun", "-N", &nodes, "--ntasks", &ranks, "--ntasks-per-node", &each, "--mpi=pmix"];
            let all = srun.into_iter().chain(["trtllm-llmapi-launch"]).map(str::to_owned);
            Ok((all.chain(words).collect(), None))
        }
        other => Err(format!("{} has no replica over {nodes} nodes", other.name())),
    }
}
