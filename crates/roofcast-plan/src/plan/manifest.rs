//! Files that start the planned deployment on a cluster: a Kubernetes manifest, values of llm-d's chart, a graph of
//! NVIDIA Dynamo.
//!
//! Knows: how a pool is mapped to pods, and the cases that one of the three file formats cannot express.
//! [`super::launch`] gives the engine's arguments. Knows nothing about performance. Sources: Kubernetes `apps/v1`
//! Deployment; docs.vllm.ai "LWS" (`$(LWS_LEADER_ADDRESS)`, `$(LWS_WORKER_INDEX)`); llm-d-incubation/llm-d-modelservice
//! `charts/llm-d-modelservice/values.yaml` and `templates/_helpers.tpl`; ai-dynamo/dynamo
//! `components/backends/vllm/deploy/disagg-multinode.yaml` (0.6.1).

use super::image::{self, Image};
use super::launch::{ReplicaRole, Words, commands, vllm};
use super::nodes::{self, Names};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::EngineKind;
use serde::Serialize;

/// Dynamo's container image with a vLLM of its own, which is also used for its frontend.
const DYNAMO_IMAGE: &str = "nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.6.1";

/// Annotation of pods with the catalog id of their accelerator, from which the deployment can be read back.
const ACCELERATOR: &str = "roofcast/accelerator";

/// One file for a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Manifest {
    /// Name of the cluster software: `kubernetes`, `llm-d` or `dynamo`.
    pub kind: &'static str,
    /// Text of the file in YAML; `None` if this software cannot start the deployment.
    pub text: Option<String>,
    /// The reason why there is no file.
    pub(crate) note: Option<String>,
}

/// Replicas of a deployment in one role, with the checkpoint that they serve.
#[derive(Debug, Clone, Copy)]
pub(super) struct Served<'a> {
    pub(super) deployment: &'a Deployment,
    pub(super) model: &'a str,
    pub(super) role: ReplicaRole,
    pub(super) replicas: u64,
}

impl Served<'_> {
    /// Number of accelerators of a replica.
    fn ranks(&self) -> u64 {
        nodes::ranks(self.deployment)
    }

    /// Number of nodes of a replica.
    fn nodes(&self) -> u64 {
        nodes::count(self.deployment)
    }

    fn role(&self) -> &'static str {
        match self.role {
            ReplicaRole::Replica => "replica",
            ReplicaRole::Prefill => "prefill",
            ReplicaRole::Decode => "decode",
            ReplicaRole::Beside => "beside",
        }
    }

    /// vLLM's arguments after the model, without the ones that a chart sets itself.
    fn arguments(&self, without: &[&str]) -> Words {
        let words = vllm(self.deployment, self.model, self.role)?;
        let mut arguments = Vec::new();
        let mut words = words.into_iter().skip(3).peekable();
        while let Some(word) = words.next() {
            if !without.contains(&word.as_str()) {
                arguments.push(word);
            } else {
                words.next_if(|value| !value.starts_with("--"));
            }
        }
        Ok(arguments)
    }
}

/// Kubernetes' resource name for the chips of a vendor.
fn resource(vendor: &str) -> Result<&'static str, String> {
    match vendor {
        "nvidia" => Ok("nvidia.com/gpu"),
        "amd" => Ok("amd.com/gpu"),
        "google" => Ok("google.com/tpu"),
        "intel" => Ok("gpu.intel.com/xe"),
        other => Err(format!("Kubernetes has no usual name for accelerators of {other}")),
    }
}

/// A comment with the accelerator of a pool, if the pools differ. A node selector is not written, because the labels of
/// a cluster's nodes are unknown.
fn place(pools: &[Served], pool: &Served) -> String {
    let id = &pool.deployment.accelerator.id;
    let alike = pools.iter().all(|other| other.deployment.accelerator.id == *id);
    if alike {
        String::new()
    } else {
        format!("# {}: on nodes with {id}, by your own nodeSelector\n", pool.role())
    }
}

/// The files for `pools`, one for each cluster software.
pub(super) fn manifests(pools: &[Served]) -> Vec<Manifest> {
    let all = [("kubernetes", kubernetes(pools)), ("llm-d", llm_d(pools)), ("dynamo", dynamo(pools))];
    let manifest = |(kind, text): (&'static str, Result<String, String>)| match text {
        Ok(text) => Manifest { kind, text: Some(text), note: None },
        Err(reason) => Manifest { kind, text: None, note: Some(format!("none: {reason}")) },
    };
    all.into_iter().map(manifest).collect()
}

/// A YAML list of words, each quoted as JSON, which is valid YAML.
fn list(words: &[String], indent: usize) -> String {
    let pad = " ".repeat(indent);
    let item = |word: &String| format!("{pad}- {}\n", serde_json::Value::from(word.as_str()));
    words.iter().map(item).collect()
}

/// A Deployment and a Service for each pool, with the planned engine; for replicas over several nodes a LeaderWorkerSet
/// in place of the Deployment.
fn kubernetes(pools: &[Served]) -> Result<String, String> {
    let mut text = String::new();
    for pool in pools {
        let d = pool.deployment;
        let engine = d.engine.kind();
        let image = image::of(d)?;
        let mut words = commands(d, pool.model, pool.role)
            .into_iter()
            .find_map(|(name, words)| (name == engine).then_some(words))
            .unwrap_or_else(|| Err(format!("{} has no command", engine.name())))?;
        if engine != EngineKind::Vllm {
            words.extend(["--host", "0.0.0.0"].map(str::to_owned));
        }
        let name = format!("roofcast-{}", pool.role());
        text += &place(pools, pool);
        text += &match pool.nodes() {
            1 => deployment(pool, &name, &container(pool, &image, true, &words)?),
            _ => group(pool, &name, &image, words)?,
        };
        text += &format!(
            "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  selector:\n    app: \
             {name}\n  ports:\n    - port: {}\n---\n",
            image.port
        );
    }
    Ok(text + &cache(pools))
}

/// The volume that keeps checkpoints and compiled kernels when a pod is replaced. It holds the weights of every pool one and a
/// half times, and 20 GiB of kernels and caches.
fn cache(pools: &[Served]) -> String {
    let weights: f64 = pools.iter().map(|pool| pool.deployment.weight_bytes.as_f64()).fold(0.0, f64::max);
    let gib = (1.5 * weights / f64::from(1 << 30)).ceil() as u64 + 20;
    let single = pools.iter().map(|pool| pool.replicas * pool.nodes()).sum::<u64>() == 1;
    let mode = if single { "ReadWriteOnce" } else { "ReadWriteMany" };
    format!(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: roofcast-cache\nspec:\n  accessModes:\n    - \
         {mode}\n  resources:\n    requests:\n      storage: {gib}Gi\n---\n"
    )
}

/// Seconds between two probes of a server that starts.
const PROBE_S: f64 = 10.0;

/// Number of probes after which a start has failed: the checkpoint arrives at 1 Gbit/s, a slow network, and ten minutes
/// remain to load it, to compile and to capture graphs.
fn start_probes(pool: &Served) -> u64 {
    let download_s = pool.deployment.weight_bytes.as_f64() / 125e6;
    ((download_s + 600.0) / PROBE_S).ceil() as u64
}

/// The containers and volumes of a pod, from the key `spec:` on; a container that answers requests gets probes. The token of
/// Hugging Face comes from the secret `hf-token`, if the cluster has it.
fn container(pool: &Served, image: &Image, answers: bool, words: &[String]) -> Result<String, String> {
    let resource = resource(&pool.deployment.accelerator.vendor)?;
    let each = pool.ranks().div_ceil(pool.nodes());
    let port = image.port;
    let health = format!("      httpGet:\n        path: /health\n        port: {port}\n");
    let probes = if answers {
        format!(
            "    ports:\n      - containerPort: {port}\n    startupProbe:\n{health}      periodSeconds: {PROBE_S}\n      \
             failureThreshold: {}\n    readinessProbe:\n{health}",
            start_probes(pool)
        )
    } else {
        String::new()
    };
    Ok(format!(
        "containers:\n  - name: engine\n    image: {}\n    command:\n{}    env:\n      - name: HF_TOKEN\n        \
         valueFrom:\n          secretKeyRef:\n            name: hf-token\n            key: HF_TOKEN\n            optional: \
         true\n{probes}    resources:\n      limits:\n        {resource}: \"{each}\"\n    volumeMounts:\n      - name: \
         shm\n        mountPath: /dev/shm\n      - name: cache\n        mountPath: /root/.cache\nvolumes:\n  - name: \
         shm\n    emptyDir:\n      medium: Memory\n  - name: cache\n    persistentVolumeClaim:\n      claimName: \
         roofcast-cache\n",
        image.name,
        list(words, 6)
    ))
}

/// `text` indented by `columns`.
fn indented(text: &str, columns: usize) -> String {
    let pad = " ".repeat(columns);
    text.lines().map(|line| format!("{pad}{line}\n")).collect()
}

fn deployment(pool: &Served, name: &str, pod: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\nspec:\n  replicas: {}\n  selector:\n    \
         matchLabels:\n      app: {name}\n  template:\n    metadata:\n      labels:\n        app: {name}\n      \
         annotations:\n        {ACCELERATOR}: {}\n    spec:\n{}",
        pool.replicas,
        pool.deployment.accelerator.id,
        indented(pod, 6)
    )
}

/// A LeaderWorkerSet: a replica is a group of pods, of which the first answers requests. Each pod gets the address of
/// the first pod and its own number.
fn group(pool: &Served, name: &str, image: &Image, words: Vec<String>) -> Result<String, String> {
    let d = pool.deployment;
    let engine = d.engine.kind();
    let nodes = pool.nodes();
    let computed = engine == EngineKind::Vllm && d.parallelism.attention_dp > nodes;
    if computed || ![EngineKind::Vllm, EngineKind::Sglang].contains(&engine) {
        return Err(format!("a replica spans {nodes} nodes: llm-d and Dynamo have those of vLLM"));
    }
    let at = Names { leader: "$(LWS_LEADER_ADDRESS)", rank: "$(LWS_WORKER_INDEX)" };
    let (first, others) = nodes::spread(d, engine, words, at)?;
    let leader = container(pool, image, true, &first)?;
    let worker = container(pool, image, false, &others.unwrap_or(first))?;
    Ok(format!(
        "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata:\n  name: {name}\nspec:\n  replicas: \
         {}\n  leaderWorkerTemplate:\n    size: {nodes}\n    restartPolicy: RecreateGroupOnPodRestart\n    leaderTemplate:\n      metadata:\n        labels:\n          \
         app: {name}\n        annotations:\n          {ACCELERATOR}: {}\n      spec:\n{}    workerTemplate:\n      spec:\n{}",
        pool.replicas,
        d.accelerator.id,
        indented(&leader, 8),
        indented(&worker, 8)
    ))
}

/// Refuses a plan for another engine than vLLM: its settings are proven for that engine alone.
fn of_vllm(pool: &Served) -> Result<(), String> {
    match pool.deployment.engine.kind() {
        EngineKind::Vllm => Ok(()),
        _ => Err(format!(
            "it is written for vLLM alone, and the plan is for {}",
            pool.deployment.engine.name()
        )),
    }
}

/// Values of llm-d's modelservice chart, which itself sets model, port, tensor and data parallelism.
fn llm_d(pools: &[Served]) -> Result<String, String> {
    let Some(first) = pools.first() else { return Err("there is no pool".to_owned()) };
    of_vllm(first)?;
    let accelerator = match first.deployment.accelerator.vendor.as_str() {
        "intel" => "intel-xe",
        vendor @ ("nvidia" | "amd" | "google") => vendor,
        other => return Err(format!("its chart has no accelerators of {other}")),
    };
    if pools.iter().any(|pool| pool.deployment.accelerator.vendor != first.deployment.accelerator.vendor) {
        return Err("its chart has accelerators of one vendor".to_owned());
    }
    let model = first.model;
    let several = pools.iter().any(|pool| pool.nodes() > 1);
    if pools.iter().any(|pool| pool.role == ReplicaRole::Beside) {
        return Err("its chart has one kind of replicas that decode".to_owned());
    }
    let proxy = pools.len() > 1;
    let mut text = format!(
        "multinode: {several}\nmodelArtifacts:\n  name: {model}\n  uri: hf://{model}\n  authSecretName: \
         hf-token\naccelerator:\n  type: {accelerator}\nrouting:\n  servicePort: 8000\n  proxy:\n    enabled: {proxy}\n"
    );
    for pool in pools {
        let p = pool.deployment.parallelism;
        let nodes = pool.nodes();
        if nodes > 1 && p.pp > 1 {
            return Err("its chart has no pipeline stages".to_owned());
        }
        let local = p.attention_dp.div_ceil(nodes);
        text += &place(pools, pool);
        let section = if pool.role == ReplicaRole::Prefill { "prefill" } else { "decode" };
        let written = ["--tensor-parallel-size", "--data-parallel-size"];
        text += &format!(
            "{section}:\n  create: true\n  replicas: {}\n  parallelism:\n    tensor: {}\n    data: {}\n    dataLocal: \
             {local}\n    workers: {nodes}\n  containers:\n    - name: vllm\n      image: {}\n      \
             modelCommand: vllmServe\n      mountModelVolume: true\n      args:\n{}",
            pool.replicas,
            p.tp,
            p.attention_dp,
            image::vllm(pool.deployment)?.name,
            list(&pool.arguments(&written)?, 8)
        );
    }
    if !proxy {
        text += "prefill:\n  create: false\n";
    }
    Ok(text)
}

/// A DynamoGraphDeployment with a frontend and a worker for each pool; the connector is Dynamo's own.
fn dynamo(pools: &[Served]) -> Result<String, String> {
    let head = |name: &str, replicas: u64| {
        format!("    {name}:\n      dynamoNamespace: roofcast\n      replicas: {replicas}\n")
    };
    let container = |module: &str, words: &[String]| {
        format!(
            "      extraPodSpec:\n        mainContainer:\n          image: {DYNAMO_IMAGE}\n          command:\n            - \
             python3\n            - -m\n            - {module}\n          args:\n{}",
            list(words, 12)
        )
    };
    let mut text = "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nmetadata:\n  name: roofcast\nspec:\n  \
                    services:\n"
        .to_owned();
    let port = ["--http-port", "8000"].map(str::to_owned);
    text += &head("Frontend", 1);
    text += "      componentType: frontend\n";
    text += &container("dynamo.frontend", &port);
    for pool in pools {
        of_vllm(pool)?;
        if pool.deployment.accelerator.vendor != "nvidia" {
            return Err(format!("Dynamo does not run on {}", pool.deployment.accelerator.id));
        }
        let name = match pool.role {
            ReplicaRole::Prefill => "VllmPrefillWorker",
            ReplicaRole::Beside => "VllmBesideWorker",
            ReplicaRole::Replica | ReplicaRole::Decode => "VllmDecodeWorker",
        };
        text += &place(pools, pool);
        text += &head(name, pool.replicas);
        text += "      envFromSecret: hf-token-secret\n      componentType: worker\n";
        if pool.nodes() > 1 {
            text += &format!("      multinode:\n        nodeCount: {}\n", pool.nodes());
        }
        let each = pool.ranks().div_ceil(pool.nodes());
        text += &format!("      resources:\n        limits:\n          gpu: \"{each}\"\n");
        let mut words = vec!["--model".to_owned(), pool.model.to_owned()];
        words.extend(pool.arguments(&["--kv-transfer-config"])?);
        if pool.role == ReplicaRole::Prefill {
            words.push("--is-prefill-worker".to_owned());
        }
        text += &container("dynamo.vllm", &words);
    }
    Ok(text)
}
