//! Descriptions of the sections of a spec.

/// Description of a section; `None` if it has no description.
pub(crate) fn about_section(path: &str) -> Option<&'static str> {
    SECTIONS.iter().find(|(name, _)| *name == path).map(|(_, about)| *about)
}

const SECTIONS: [(&str, &str); 35] = [
    ("model", "What is served."),
    ("hardware", "On what."),
    ("precision", "In which formats."),
    ("parallelism", "How it is shared."),
    ("engine", "The engine's settings, by vLLM's names where vLLM has them."),
    ("engine.speculative", "Drafts that the model verifies."),
    ("engine.experts", "Experts of a layer on several ranks."),
    ("engine.vllm", "Keys that only vLLM has; other engines ignore them."),
    ("engine.sglang", "Keys that only SGLang has; other engines ignore them."),
    ("engine.tensorrt-llm", "Keys that only TensorRT-LLM has; other engines ignore them."),
    (
        "engine.llama-cpp",
        "Keys that only llama.cpp has, by the flags of llama-server; other engines ignore them.",
    ),
    ("engine.length_prediction", "How well policy \"sjf\" knows an output's length."),
    ("workload", "The traffic; lengths are tokens."),
    ("workload.arrivals", "When requests come."),
    ("workload.prefix", "What prompts have in common."),
    ("workload.images", "Images of every request."),
    ("workload.adapters", "LoRA adapters that requests name."),
    ("fleet", "Replicas and how requests are routed to them."),
    ("fleet.prefill", "Replicas for prefill."),
    ("fleet.decode", "Replicas for decode."),
    ("fleet.beside", "Further replicas, on other accelerators."),
    ("fleet.autoscale", "Replicas that start and stop with the load."),
    ("fleet.autoscale.hpa", "Kubernetes' HorizontalPodAutoscaler; KEDA creates one."),
    ("fleet.autoscale.hpa.scale_up", "Bounds on starts: behavior.scaleUp."),
    ("fleet.autoscale.hpa.scale_down", "Bounds on stops: behavior.scaleDown."),
    ("fleet.autoscale.keda", "KEDA's ScaledObject."),
    ("fleet.autoscale.ray-serve", "Ray Serve's AutoscalingConfig."),
    ("fleet.autoscale.dynamo", "NVIDIA Dynamo's planner."),
    ("fleet.schedule", "Replicas that start and stop at planned times."),
    ("fleet.failures", "Replicas that fail and restart."),
    ("fleet.rate_limit", "Requests and tokens that a gateway admits."),
    ("fleet.slow", "Replicas that are slower than the others."),
    ("fleet.routing", "Weights and thresholds of the routers that weigh caches."),
    ("slo", "What requests must get."),
    ("search", "What a plan chooses from."),
];
