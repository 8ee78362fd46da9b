//! The engine that a cluster's manifest starts.
//!
//! Knows: the places of commands, images and variables in containers (Kubernetes, `kubectl get -o json`,
//! LeaderWorkerSet, llm-d's chart, Dynamo, compose), the number of replicas, and the node labels that name an accelerator.
//! [`roofcast::command`] interprets the command. Sources: Kubernetes `core/v1` Container; NVIDIA's
//! gpu-feature-discovery (`nvidia.com/gpu.product`) and GKE (`cloud.google.com/gke-accelerator`); the entrypoint of
//! vLLM's `docker/Dockerfile`.

use anyhow::Result;
use roofcast::Error;
use serde_json::{Map, Value};
use std::path::Path;

/// Node labels that name the node's accelerator.
const PRODUCTS: [&str; 2] = ["nvidia.com/gpu.product", "cloud.google.com/gke-accelerator"];
/// First words of engines' commands, with the command that each stands for; Dynamo's workers accept their engine's
/// flags.
const ENGINES: [(&[&str], &str); 9] = [
    (&["vllm", "serve"], "vllm serve"),
    (&["python3", "-m", "vllm.entrypoints.openai.api_server"], "vllm serve"),
    (&["python", "-m", "vllm.entrypoints.openai.api_server"], "vllm serve"),
    (&["sglang", "serve"], "sglang serve"),
    (&["python3", "-m", "sglang.launch_server"], "sglang serve"),
    (&["python", "-m", "sglang.launch_server"], "sglang serve"),
    (&["python3", "-m", "dynamo.vllm"], "vllm serve"),
    (&["python3", "-m", "dynamo.sglang"], "sglang serve"),
    (&["trtllm-serve"], "trtllm-serve"),
];

/// Annotation of pods that a plan's manifests write: the catalog id of the accelerator.
const ANNOTATION: &str = "roofcast/accelerator";

/// An engine that a manifest starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deployed {
    /// Command that starts a replica, in shell syntax.
    pub(crate) command: String,
    /// Number of replicas, if the manifest states it.
    pub(crate) replicas: Option<i64>,
    /// Accelerator of its nodes, as a node label names it.
    pub(crate) accelerator: Option<String>,
}

/// Reads the one engine of the manifest `text`; errors name it by `path`.
pub(crate) fn read(path: &Path, text: &str) -> Result<Deployed> {
    let place = path.display().to_string();
    let accepted = "YAML or JSON of a cluster: a Deployment, as Kubernetes has it";
    let parsed = serde_saphyr::from_multiple::<Value>(text).map_err(|error| {
        let line = error.location().map_or_else(String::new, |at| format!(":{}", at.line()));
        let message = error.without_snippet().to_string();
        let first = message.lines().next().unwrap_or_default();
        Error::Parse { place: format!("{place}{line}"), message: format!("{first}; accepted: {accepted}") }
    })?;
    let mut deployments = Vec::new();
    let around = Around::default();
    parsed.iter().for_each(|document| visit(document, &around, &mut deployments));
    deployments.dedup_by(|a, b| a.command == b.command);
    let accepted =
        "one engine, as a container whose command is vllm serve … or python -m sglang.launch_server …";
    match deployments.len() {
        1 => Ok(deployments.remove(0)),
        0 => Err(Error::field(place, "the manifest", "no engine that is known here", accepted).into()),
        n => {
            let accepted = format!(
                "{accepted}: each in a file of its own; a prefill and a decode pool together as [fleet.prefill] and [fleet.decode] of a spec, as in \
                 examples/fleet-pools.toml and in the best.toml that a plan's --launch-dir writes beside its manifest"
            );
            Err(Error::field(place, "the manifest", format!("{n} engines that differ"), accepted).into())
        }
    }
}

/// Settings of enclosing objects that apply to a container.
#[derive(Debug, Clone, Default)]
struct Around {
    replicas: Option<i64>,
    accelerator: Option<String>,
    /// Number of pods in a group.
    size: Option<i64>,
    /// Model of llm-d's chart, which the chart itself adds to the arguments.
    served: Option<String>,
    /// Flags of parallelism that llm-d's chart adds to the arguments.
    parallelism: Option<Vec<String>>,
}

/// vLLM's flags for the section `parallelism` of llm-d's chart.
fn chart_flags(section: &Value) -> Vec<String> {
    let flag = |(key, flag): (&str, &str)| {
        let count = section.get(key)?.as_i64().filter(|count| *count > 1)?;
        Some([flag.to_owned(), count.to_string()])
    };
    let flags = [("tensor", "--tensor-parallel-size"), ("data", "--data-parallel-size")];
    flags.into_iter().filter_map(flag).flatten().collect()
}

fn visit(value: &Value, around: &Around, found: &mut Vec<Deployed>) {
    match value {
        Value::Array(all) => all.iter().for_each(|one| visit(one, around, found)),
        Value::Object(map) => {
            let whole = |key: &str| map.get(key).and_then(Value::as_i64);
            let labels = map.get("nodeSelector").and_then(Value::as_object);
            let product = labels.and_then(|all| PRODUCTS.iter().find_map(|key| all.get(*key)?.as_str()));
            let group = map.contains_key("workerTemplate").then(|| whole("size")).flatten();
            let annotated =
                map.get("metadata").and_then(|meta| meta.get("annotations")?.get(ANNOTATION)?.as_str());
            let named = product.or(annotated).map(str::to_owned);
            let served = map.get("modelArtifacts").and_then(|artifacts| artifacts.get("name")?.as_str());
            let inside = Around {
                replicas: whole("replicas").or(around.replicas),
                accelerator: named.or_else(|| around.accelerator.clone()),
                size: group.or(around.size),
                served: served.map(str::to_owned).or_else(|| around.served.clone()),
                parallelism: map.get("parallelism").map(chart_flags).or_else(|| around.parallelism.clone()),
            };
            if map.get("create").and_then(Value::as_bool) == Some(false) {
                return;
            }
            if let Some(command) = started(map, &inside) {
                let Around { replicas, accelerator, .. } = inside;
                return found.push(Deployed { command, replicas, accelerator });
            }
            // Workers of a group run their leader's command, so only the leader counts.
            let leads = map.get("leaderTemplate").is_some_and(|leader| !leader.is_null());
            let inner = map.iter().filter(|(key, _)| !(leads && *key == "workerTemplate"));
            inner.for_each(|(_, value)| visit(value, &inside, found));
        }
        _ => {}
    }
}

/// The command by which a container starts an engine, if it does.
fn started(container: &Map<String, Value>, around: &Around) -> Option<String> {
    let [command, arguments] =
        ["command", "args"].map(|key| container.get(key).map(words).unwrap_or_default());
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    if container.get("modelCommand").and_then(Value::as_str) == Some("vllmServe") {
        let model = around.served.clone()?;
        let flags = around.parallelism.clone().unwrap_or_default();
        let all =
            std::iter::once(model).chain(flags).chain(arguments).map(|word| filled(word, container, around));
        let all = all.map(|word| quoted(&word));
        return Some(std::iter::once("vllm serve".to_owned()).chain(all).collect::<Vec<_>>().join(" "));
    }
    // In a compose file `command` corresponds to `args` of Kubernetes.
    let is_arguments_alone = command.first().is_none_or(|word| word.starts_with('-'));
    let all: Vec<String> =
        command.into_iter().chain(arguments).map(|w| filled(w, container, around)).collect();
    let shell =
        all.first().is_some_and(|w| ["sh", "bash"].contains(&w.rsplit('/').next().unwrap_or_default()));
    if shell {
        return all.iter().find_map(|script| of_script(script));
    }
    let begins = |(words, _): &&(&[&str], &str)| {
        all.len() > words.len() && all.iter().zip(*words).all(|(a, b)| a == b)
    };
    let (engine, rest) = match ENGINES.iter().find(begins) {
        Some((words, engine)) => (*engine, &all[words.len()..]),
        None if is_arguments_alone && name.starts_with("vllm-openai") && !all.is_empty() => {
            ("vllm serve", &all[..])
        }
        None => return None,
    };
    let rest = rest.iter().map(|word| quoted(word));
    Some(std::iter::once(engine.to_owned()).chain(rest).collect::<Vec<_>>().join(" "))
}

/// Words of a value that is a list of words, or one line of words.
fn words(value: &Value) -> Vec<String> {
    match value {
        Value::Array(all) => {
            all.iter().map(|w| w.as_str().map_or_else(|| w.to_string(), str::to_owned)).collect()
        }
        Value::String(line) => line.split_whitespace().map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// Replaces variables in `word` by the container's values.
fn filled(word: String, container: &Map<String, Value>, around: &Around) -> String {
    let listed = container.get("env").and_then(Value::as_array).into_iter().flatten();
    let pair =
        |one: &Value| Some((one.get("name")?.as_str()?.to_owned(), one.get("value")?.as_str()?.to_owned()));
    let listed_pairs = listed.filter_map(pair);
    let size = around.size.map(|n| ("LWS_GROUP_SIZE".to_owned(), n.to_string()));
    listed_pairs.chain(size).fold(word, |word, (name, value)| {
        word.replace(&format!("$({name})"), &value).replace(&format!("${{{name}}}"), &value)
    })
}

/// The first engine's command in a shell script, up to the end of the command.
fn of_script(script: &str) -> Option<String> {
    let joined = script.replace("\\\n", " ");
    let lines = joined.split(['\n', ';', '|', '&']).map(str::trim);
    lines.into_iter().find_map(|line| {
        let at = |(words, _): &(&[&str], &str)| line.find(&words.join(" "));
        ENGINES.iter().find_map(|engine| Some((at(engine)?, engine))).map(|(at, (words, engine))| {
            // The command ends at a redirection of its output.
            let arguments = line[at + words.join(" ").len()..].split_whitespace();
            let own_arguments = arguments.take_while(|word| !word.contains(['<', '>']));
            std::iter::once(*engine).chain(own_arguments).collect::<Vec<_>>().join(" ")
        })
    })
}

/// A word quoted for a shell.
fn quoted(word: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "-_./:=,".contains(c);
    if !word.is_empty() && word.chars().all(bare) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Result<Deployed> {
        read(Path::new("there.yaml"), text)
    }

    const POD: &str = "apiVersion: apps/v1\nkind: Deployment\nspec:\n  replicas: 3\n  template:\n    spec:\n      \
                       nodeSelector:\n        nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3\n      containers:\n        - \
                       name: engine\n          image: vllm/vllm-openai:v0.32.0\n";

    #[test]
    fn a_container_is_read_however_it_has_its_command() {
        let container = |lines: &str| of(&format!("{POD}{lines}")).unwrap();
        let serve = "vllm serve m --tensor-parallel-size 2";
        let words = "          command: [vllm, serve, m]\n          args: [--tensor-parallel-size, \"2\"]\n";
        let deployed = container(words);
        assert_eq!((deployed.command.as_str(), deployed.replicas), (serve, Some(3)));
        assert_eq!(deployed.accelerator.as_deref(), Some("NVIDIA-H100-80GB-HBM3"));
        let image = "          args:\n            - --model=m\n            - --tensor-parallel-size\n            - 2\n";
        assert_eq!(container(image).command, "vllm serve --model=m --tensor-parallel-size 2");
        let shell = "          env: [{name: TP, value: \"2\"}]\n          command: [/bin/sh, -c]\n          args:\n            \
                     - |\n              set -e; exec vllm serve m \\\n                --tensor-parallel-size ${TP} > log 2>&1\n";
        assert_eq!(container(shell).command, serve);
    }

    #[test]
    fn a_group_is_its_leader_and_a_file_has_one_engine() {
        let pod = |rank: &str| {
            let words = format!("[vllm, serve, m, --nnodes, $(LWS_GROUP_SIZE), --node-rank, {rank}]");
            format!("{{spec: {{containers: [{{command: {words}}}]}}}}")
        };
        let [first, others] = ["0", "1"].map(pod);
        let group = format!(
            "kind: LeaderWorkerSet\nspec:\n  replicas: 2\n  leaderWorkerTemplate:\n    size: 4\n    leaderTemplate: \
             {first}\n    workerTemplate: {others}\n"
        );
        let deployed = of(&group).unwrap();
        let command = "vllm serve m --nnodes 4 --node-rank 0";
        assert_eq!((deployed.command.as_str(), deployed.replicas), (command, Some(2)));
        let two = "a: {command: [vllm, serve, m]}\n---\nb: {command: [vllm, serve, n]}\n";
        assert!(of(two).unwrap_err().to_string().contains("2 engines that differ"));
        assert!(of("kind: Service\n").unwrap_err().to_string().contains("no engine"));
        let broken = of("a: [1\nb: }").unwrap_err().to_string();
        assert!(broken.starts_with("there.yaml:2: "), "{broken}");
    }

    proptest! {
        /// Any file gives an engine or an error, never a panic.
        #[test]
        fn any_text_is_read_or_refused(
            text in "[a-z0-9:\\-\\[\\]{}&*|>\"'#,$() \n]{0,200}",
            word in "(vllm serve|command: |args: |image: vllm-openai|env: |replicas: |sh -c |- ){0,6}",
        ) {
            for text in [text.clone(), word.clone(), format!("{word}{text}"), format!("a: {{command: [sh, -c, \"{text}\"]}}")] {
                drop(of(&text));
            }
        }
    }

    /// Ten levels of ten references each would expand to 10^10 values.
    #[test]
    fn references_to_references_are_refused() {
        let level = |n: u32| format!("l{n}: &l{n} [{}]\n", vec![format!("*l{}", n - 1); 10].join(", "));
        let bomb = (1..=10).fold("l0: &l0 [x]\n".to_owned(), |text, n| text + &level(n));
        assert!(of(&bomb).is_err());
    }
}
