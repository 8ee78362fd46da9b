"""Types of the verbs' keywords: the flags of the program, with what each says.

`scripts/python-flags > crates/roofcast-py/python/roofcast/_flags.py` writes this file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypedDict


class Named(Protocol):
    """A model or an accelerator of the catalog."""

    @property
    def id(self) -> str: ...


Word = str | int | float | os.PathLike[str] | Named
Words = str | Sequence[Word]


class DeploymentFlags(TypedDict, total=False):
    """Flags of every verb about a deployment."""

    model: Word | None
    """Catalog id, or a path to a config.json, its folder, a .gguf or .safetensors"""
    hardware: Word | None
    """Accelerator, as in h100-sxm, or a TOML file with one"""
    count: int | None
    """Number of accelerators in total"""
    power_limit: float | None
    """Power limit of each accelerator in watts, as nvidia-smi -pl sets it [default: its board power]"""
    host_bandwidth: float | None
    """GB/s of the host's memory, from which its processor reads weights that lie there [default: the catalog's, else
    83.2, two channels of DDR5-5200]"""
    memory_used: float | None
    """GiB of each accelerator's memory that other processes hold when the engine starts [default: 0]"""
    grid_g_per_kwh: float | None
    """Grams of CO2 equivalent that the grid emits per kWh; results then have emissions beside dollars"""
    usd_per_kwh: float | None
    """Dollars per kWh: the accelerators are owned, and a run costs the electricity that they draw in place of a rent"""
    pue: float | None
    """Power usage effectiveness of the site, by which emissions are multiplied: energy of the site over energy of its
    machines [default: 1]"""
    ideal: bool | None
    """Nominal memory, perfect sharding and no reserved memory [default: false]"""
    convention: Word | None
    """Count as default does, or as the text seed-003: nominal bits on every weight with lm_head, no input embedding, no
    norms, GiB/s"""
    weights: Word | None
    """Weight format: bf16, fp16, fp8, nvfp4, w8, w4, gptq-int4, q4_k_m, … [default: the checkpoint's]"""
    activations: Word | None
    """Dtype of the arithmetic on quantized weights, for formats that are otherwise weight-only, as in int8"""
    kv: Word | None
    """KV-cache format: auto, 16, 8, fp8, int8, q8_0, … [default: auto]"""
    tp: int | None
    """Tensor-parallel degree [default: the widest that the count and the heads allow]"""
    pp: int | None
    """Number of pipeline stages [default: 1]"""
    ep: int | None
    """Number of expert-parallel ranks [default: 1]"""
    attention_dp: int | None
    """Number of data-parallel ranks of attention [default: 1]"""
    replicas: Word | None
    """Whole copies; as a flag also 3P1D: three that compute prompts, one that decodes [default: as many as the count
    holds]"""
    engine: Word | None
    """Engine whose calibration counts: vllm, sglang, tensorrt-llm, llama.cpp; it brings its scheduler, as a flag in
    place of the file's [default: vllm]"""
    engine_version: Word | None
    """Version of the engine, as in 0.11.2 [default: the newest that is calibrated]"""
    served: bool | None
    """Whether requests come through the engine's API server, not from a program that calls the engine in process
    [default: true]"""
    scheduler: Word | None
    """Scheduling policy: vllm, vllm-v0, sglang, tensorrt-llm, llama.cpp, lightllm, sarathi, splitfuse, orca, static, …
    [default: the engine's, else vllm]"""
    cost: Word | None
    """Price of a step: limit or forecast [default: forecast]"""
    max_num_seqs: int | None
    """Sequences that run at once [default: vLLM's for the chip]"""
    max_num_batched_tokens: int | None
    """Token budget of a step [default: vLLM's for the chip]"""
    block_size: int | None
    """Tokens of a KV block [default: the scheduler's]"""
    num_gpu_blocks: int | None
    """KV blocks [default: as many as fit]"""
    gpu_memory_utilization: float | None
    """Fraction of device memory for the engine; for tensorrt-llm, fraction of the memory left by weights and
    activations [default: the engine's, as 0.92 in vLLM 0.33]"""
    max_model_len: int | None
    """Longest sequence that is served, in tokens [default: the model's]"""
    enable_chunked_prefill: bool | None
    """Whether a prompt may be split over several steps (chunked prefill) [default: the scheduler's]"""
    enable_prefix_caching: bool | None
    """Whether cached blocks are found by their content (prefix caching) [default: where prompts have tokens in
    common]"""
    policy: Word | None
    """Order of the queue: fcfs, priority, sjf [default: fcfs]"""
    scheduler_reserve_full_isl: bool | None
    """Whether admission needs room for the whole known sequence [default: the scheduler's]"""
    watermark: float | None
    """Fraction of blocks kept free when admitting while others run [default: the scheduler's]"""
    mamba_ssm_dtype: Word | None
    """Dtype of recurrent states: float32, bfloat16, float16 [default: the model's]"""
    decode_context_parallel_size: int | None
    """Tensor-parallel ranks that share the cached tokens of a sequence, in place of copies of KV heads or latents
    [default: 1]"""
    language_model_only: bool | None
    """Whether no encoders for images and sound are loaded [default: false]"""
    kv_cache_memory_bytes: int | None
    """Bytes of KV cache on each accelerator, in place of the bytes that gpu_memory_utilization leaves"""
    enforce_eager: bool | None
    """Whether the host launches every kernel of a step without a CUDA graph [default: false]"""
    max_cudagraph_capture_size: int | None
    """Tokens of the largest step that a CUDA graph of vLLM captures; 0 for none with prompts, which is what other
    engines have [default: vLLM's, twice the tokens of max_num_seqs decodes up to 512, 1024 on data-centre Blackwell
    from 0.28 on]"""
    stream_interval: int | None
    """Tokens of a request from one of its messages to the next; the first is sent at once. A server process spends its
    time by messages, which bounds small models [default: 1]"""
    attention_backend: Word | None
    """Attention kernel of decodes: naive, flash-attention, flash-decoding [default: the kernels of the calibrated
    engines]"""
    quantization_kernel: Word | None
    """Kernel of quantized weights, such as marlin, awq, exllama-v2 [default: the engine version's choice]"""
    fuse_layers: bool | None
    """Whether projections with one input are one GEMM, and norms and rotations few launches [default: the engine's own
    choice]"""
    frontend: Word | None
    """HTTP server between the engine and its clients: asyncio, dynamo, gevent [default: asyncio]"""
    reservation: Word | None
    """What static and orca reserve for a request: max, pow2, oracle [default: max]"""
    kv_layout: Word | None
    """Layout of a request's KV cache in memory: paged, flashinfer, vattention, contiguous [default: the scheduler's,
    with the bytes of block tables not counted]"""
    num_speculative_tokens: int | None
    """Tokens drafted after each step of a sequence; 0 for none"""
    spec_method: Word | None
    """Method of drafting: ngram, whose drafts are copied from earlier text, at no cost, and accepted all together or
    not at all; mtp, by the checkpoint's own layers; eagle, eagle3, dflash, by a draft_model that reads the model's
    hidden states [default: that of a draft_model, or of a draft_cost]"""
    draft_share: float | None
    """Share, 0 to 1, of a sequence's steps that have drafts: drafts / (generated - accepted tokens) of the server's
    counters [default: 1; ngram has none]"""
    acceptance_rate: float | None
    """Probability, 0 to 1, that a draft is accepted if all earlier drafts of the step are; of ngram, accepted / drafted
    tokens"""
    acceptance_length: float | None
    """In place of acceptance_rate: mean tokens of a step with drafts of a sequence, the model's own included, 1 to
    num_speculative_tokens + 1, as vLLM's Mean acceptance length"""
    acceptance: Word | None
    """In place of acceptance_rate: published figures of the model's drafts, by published or the name of a data set, as
    in SPEED-Bench coding"""
    draft_model: Word | None
    """Catalog id or path of the model that drafts; or draft_cost"""
    draft_cost: float | None
    """Time to draft one token, as a fraction of the model's step time"""
    all2all_backend: Word | None
    """Exchange of tokens between ranks with different experts: allgather_reducescatter, deepep_high_throughput,
    deepep_low_latency, deepep_auto [default: each token once to each rank of its experts, at a fraction of the links'
    rate]"""
    enable_dbo: bool | None
    """Whether a step is two microbatches, of which one computes while the other exchanges tokens (dual-batch overlap)
    [default: false]"""
    dbo_decode_token_threshold: int | None
    """Tokens of a rank from which a step of decodes is split [default: 32]"""
    dbo_prefill_token_threshold: int | None
    """Tokens of a rank from which a step with prompts is split [default: 512]"""
    expert_imbalance: float | None
    """(max − mean)/mean of the tokens that ranks compute for their experts, without balancing [default: 0 of experts
    behind DeepEP, else the skew of the kernel times]"""
    enable_eplb: bool | None
    """Whether experts are placed on ranks by their load (expert-parallel load balancing) [default: false]"""
    num_redundant_experts: int | None
    """Second copies of the most loaded experts of a layer, over all ranks, with enable_eplb [default: 0]"""
    eplb_step_interval: int | None
    """Steps from one placement of experts to the next [default: 3000; of sglang 1000]"""
    max_num_active_seqs: int | None
    """VLLM's second bound on the sequences that run at one time"""
    max_num_queued_reqs: int | None
    """Requests of a replica, waiting or running, beyond which its server refuses new ones"""
    max_num_queued_tokens: int | None
    """Prompt tokens without a first token from which a replica's server refuses requests"""
    prefill_schedule_interval: int | None
    """Steps from one prefill to the next while requests decode; before vLLM 0.33 only in data-parallel engines"""
    long_prefill_token_threshold: int | None
    """Most tokens of one prompt in a step while others wait; 0 is no bound"""
    async_scheduling: bool | None
    """Whether two batches are in flight, vLLM's AsyncScheduler [default: from 0.14 on new requests wait as with it]"""
    api_server_count: int | None
    """Processes of vLLM's HTTP server, each of which reads its requests one after the other [default: one, from 0.15 on
    one for each data-parallel rank]"""
    kv_offloading_size: float | None
    """GiB of host memory, over all ranks of an engine, in which vLLM also keeps KV cache [default: 0]"""
    kv_offloading_backend: Word | None
    """VLLM's connector that keeps KV in host memory: native [default: native]"""
    kv_offloading_eviction_policy: Word | None
    """Order in which KV is evicted from the host, the connector's eviction_policy: lru, arc [default: lru]"""
    kv_offloading_store_threshold: int | None
    """Number of times that KV must be offered before it is stored, the connector's store_threshold; below 2 it is
    stored at once [default: 0]"""
    kv_offloading_prompt_only: bool | None
    """Whether only the KV of prompts is stored, the connector's offload_prompt_only [default: true]"""
    kv_storage_size: float | None
    """GiB of a disk or file server below vLLM's host tier, over all ranks of an engine [default: 0]"""
    kv_storage_read: float | None
    """GB/s at which an engine reads KV from it [default: 10]"""
    kv_storage_write: float | None
    """GB/s at which an engine writes KV to it [default: 10]"""
    kv_storage_latency: float | None
    """Milliseconds from the start of a copy to its first byte [default: 0.1]"""
    enable_lora: bool | None
    """Whether vLLM serves LoRA adapters, which workload.adapters, classes or a trace name [default: false]"""
    max_loras: int | None
    """LoRA adapters whose requests run at once, each with a buffer on the device [default: 1]"""
    max_lora_rank: int | None
    """Rank with which LoRA adapters are computed, whatever their own: 1, 8, 16, 32, 64, 128, 256, 320 or 512 [default:
    16]"""
    max_cpu_loras: int | None
    """LoRA adapters that the host keeps, from max_loras up; others are read from storage [default: max_loras]"""
    fully_sharded_loras: bool | None
    """Whether tensor-parallel ranks divide both matrices of a LoRA adapter [default: false]"""
    mm_encoder_tp_mode: Word | None
    """What tensor-parallel ranks divide of an encoder: weights, or data, whole images [default: weights]"""
    cpu_offload_gb: float | None
    """GiB of each rank's weights in host memory, which vLLM reads over the host's link in every step, and SGLang copies
    [default: 0]"""
    mm_processor_kwargs: Word | None
    """Bounds on images that the model's processor takes, as a JSON object: {'max_pixels': 1003520}"""
    preemption_mode: Word | None
    """Handling of a preempted request's KV cache: recompute, swap [default: recompute]"""
    swap_space: float | None
    """GiB of host memory per accelerator for swapped caches [default: 4]"""
    schedule_policy: Word | None
    """SGLang's order under policy fcfs: fcfs, lpm [default: fcfs]"""
    chunked_prefill_size: int | None
    """SGLang's token budget of a step with prompts, beyond which a prompt is chunked; -1 keeps prompts whole"""
    max_prefill_tokens: int | None
    """SGLang's most prompt tokens of a step; the first prompt may exceed this if prompts are whole"""
    enable_mixed_chunk: bool | None
    """Whether SGLang mixes decodes into prefill batches [default: false]"""
    schedule_conservativeness: float | None
    """Factor on SGLang's initial estimate of new tokens; larger values admit fewer requests [default: 1]"""
    prefill_max_requests: int | None
    """Most requests in a step with prompts, SGLang's [default: no bound]"""
    disable_radix_cache: bool | None
    """Whether SGLang keeps no prefix for other requests [default: false]"""
    max_mamba_cache_size: int | None
    """Number of recurrent states in SGLang's pool [default: as many as fit in memory]"""
    mamba_full_memory_ratio: float | None
    """Bytes of SGLang's pool of recurrent states over the bytes of its KV pool [default: 0.9]"""
    mamba_radix_cache_strategy: Word | None
    """Strategy by which SGLang's radix cache keeps recurrent states: no_buffer, extra_buffer, extra_buffer_lazy
    [default: auto]"""
    enable_hierarchical_cache: bool | None
    """Whether SGLang also keeps KV cache in host memory (HiCache) [default: false]"""
    hicache_ratio: float | None
    """Tokens of HiCache's host pool over tokens of the device pool [default: 2]"""
    hicache_size: float | None
    """GB of HiCache's host pool of each rank, in place of hicache_ratio"""
    hicache_write_policy: Word | None
    """Event at which HiCache copies KV to the host: write_through, write_through_selective, write_back [default:
    write_through]"""
    disable_overlap_schedule: bool | None
    """Whether SGLang schedules a step only after the results of the previous one [default: false]"""
    retraction_policy: Word | None
    """Order in which SGLang retracts requests: length, priority [default: length]"""
    enable_priority_scheduling: bool | None
    """Whether SGLang's queue is in order of priority"""
    schedule_low_priority_values_first: bool | None
    """Whether smaller values have higher priority, SGLang's"""
    disable_priority_preemption: bool | None
    """Whether a higher priority never preempts a running request, SGLang's [default: false]"""
    priority_scheduling_preemption_threshold: int | None
    """Difference in priority above which a request preempts another one, SGLang's [default: 10]"""
    scheduler_recv_interval: int | None
    """Number of decode steps from one poll of SGLang for new requests to the next [default: 1]"""
    batch_wait_timeout_iters: int | None
    """Most steps that TensorRT-LLM holds prompts until they fill a fraction of the token budget [default: 0]"""
    batch_wait_max_tokens_ratio: float | None
    """Fraction of max_num_batched_tokens that ends TensorRT-LLM's hold of prompts, 0 to 1"""
    disable_overlap_scheduler: bool | None
    """Whether TensorRT-LLM schedules a step only after the previous one, without overlap [default: false]"""
    attention_dp_enable_balance: bool | None
    """Whether TensorRT-LLM holds prompts until every data-parallel rank has one [default: false]"""
    attention_dp_time_out_iters: int | None
    """Most steps that attention_dp_enable_balance holds prompts [default: 50]"""
    ctx_size: int | None
    """Cells of llama.cpp's KV cache, which slots share or divide: -c [default: the model's context, or less if the
    memory is too small]"""
    kv_unified: bool | None
    """Whether llama.cpp's slots share one cache, instead of equal parts: -kvu [default: true unless max_num_seqs is
    set]"""
    ubatch_size: int | None
    """Llama.cpp's prompt tokens of a micro-batch: -ub [default: 512]"""
    swa_full: bool | None
    """Whether llama.cpp's layers with a sliding window keep the whole context: --swa-full [default: false]"""
    n_gpu_layers: int | None
    """Llama.cpp's layers on the accelerator, the last ones, lm_head counted as one: -ngl [default: all]"""
    n_cpu_moe: int | None
    """Llama.cpp's layers, the first ones, whose routed experts lie in host memory: --n-cpu-moe; 999 for all, --cpu-moe
    [default: 0]"""
    override_tensor: Word | None
    """Places of llama.cpp's tensors by their names, as in exps=CPU: patterns, separated by commas: -ot"""
    no_kv_offload: bool | None
    """Whether llama.cpp keeps the whole KV cache in host memory: -nkvo [default: false]"""
    cache_reuse: int | None
    """Least tokens of a piece of a kept prompt that llama.cpp reuses at another position: --cache-reuse; 0 for none
    [default: 0]"""
    cache_ram: int | None
    """MiB of prompts that llama.cpp keeps in host memory; 0 for none, -1 for no bound [default: 8192]"""
    ctx_checkpoints: int | None
    """Most checkpoints of a slot of llama.cpp, to which a model with windows or recurrent states goes back [default:
    32]"""
    slot_prompt_similarity: float | None
    """Share of a prompt, 0 to 1, from which on a request gets the slot of llama.cpp that has that part; 0 for the slot
    that is free longest [default: 0.1]"""
    from_command: Word | None
    """Read an engine's command line as a deployment: vllm serve …, python -m sglang.launch_server …"""
    from_manifest: Word | None
    """Read the command of the one engine in a cluster's manifest: a Deployment, a LeaderWorkerSet, kubectl get -o
    json"""
    set: Mapping[str, Any] | Words | None
    """Set any key of the spec, as in engine.watermark=0.01"""
    catalog: Words | None
    """A TOML file of accelerators and models, in addition to the embedded catalog; its entries win"""


class LoadFlags(DeploymentFlags, total=False):
    """Flags of simulations, one or many."""

    workload: Word | None
    """Published traffic, as in azure-conv-2023 or sharegpt; as a flag also a trace file"""
    requests: int | None
    """Requests of a run [default: 1000 in a file, 10000 in the load of simulate, all of a trace; of bench 10 a user, at
    least 100]"""
    seed: int | None
    """Seed of every draw [default: 0]"""
    rate: float | None
    """Requests per second, of sessions new ones; over a trace its recorded times scaled to it"""
    concurrency: int | None
    """Users, each with one request in flight; of sessions how many go on at once; over a trace who send its requests in
    their order"""
    burstiness: float | None
    """Shape of gamma gaps: below 1 burstier than Poisson"""
    turns: int | None
    """Turns of a conversation: each prompt is all that was said, and input_len new tokens"""
    think_s: float | None
    """Mean seconds between an answer and the user's next request [default: 0]"""
    ramp_s: float | None
    """Seconds over which users begin, one after another; requests sent until then are not judged [default: 0, all at
    once; of plan and --find the time of a request at its slowest within the SLO]"""
    turn_round_s: float | None
    """Seconds from a request's last step until the same user's next request is at the server, thinking aside [default:
    0.001]"""
    input_len: int | None
    """Prompt tokens; 8k is 8,000 and 8K is 8,192"""
    output_len: int | None
    """Tokens of an answer"""
    prefix_len: int | None
    """Length of a prefix that prompts have in common in tokens, in addition to input_len"""
    prefix_count: int | None
    """Number of different prefixes [default: 1]"""
    prefix_share: float | None
    """Fraction of the requests, or of the sessions if there are any, that have a prefix [default: 1]"""
    adapters: int | None
    """Number of LoRA adapters that requests name"""
    adapter_share: float | None
    """Fraction of the requests, or of the sessions if there are any, that name an adapter [default: 1]"""
    adapter_skew: float | None
    """Zipf's exponent: the k-th adapter is drawn with weight 1/k^skew [default: 0]"""
    images: int | None
    """Number of images of a request, at the beginning of its prompt [default: 1]"""
    image_width: int | None
    """Width of an image in pixels, with height"""
    image_height: int | None
    """Height of an image in pixels"""
    video_frames: int | None
    """Number of frames of a video in place of an image, as sampled: 2 a second in Qwen's processors, 32 a video in vLLM
    by default"""
    image_tokens: int | None
    """Tokens of an image, in place of width and height"""
    max_concurrency: int | None
    """Requests that the client has in flight at most, whatever the rate"""
    router: Word | None
    """Router policy that chooses a replica for each request: round_robin, least_loaded, power_of_two, prefix_aware,
    session_sticky, dynamo_kv, llm_d, cache_aware, kvaware, vllm_cache_aware, kv_aware, lmetric [default:
    round_robin]"""
    transfer_link: Word | None
    """Link of KV transfers from prefill to decode: nvlink, network, pcie [default: network with --replicas 3P1D]"""
    ttft_p99: float | None
    """Time to first token, 99th percentile, ms"""
    ttft_p999: float | None
    """Time to first token, 99.9th percentile, ms"""
    ttft_p95: float | None
    """Time to first token, 95th percentile, ms"""
    ttft_p90: float | None
    """Time to first token, 90th percentile, ms"""
    ttft_p50: float | None
    """Time to first token, median, ms"""
    tpot_p99: float | None
    """Time per output token, 99th percentile, ms"""
    tpot_p999: float | None
    """Time per output token, 99.9th percentile, ms"""
    tpot_p95: float | None
    """Time per output token, 95th percentile, ms"""
    tpot_p90: float | None
    """Time per output token, 90th percentile, ms"""
    tpot_p50: float | None
    """Time per output token, median, ms"""
    tokens_per_s_user: float | None
    """Tokens per second that 99 of 100 users get at least: 1000 over TPOT p99 in ms"""
    itl_p99: float | None
    """Gap between tokens of an answer, 99th percentile, ms"""
    itl_p999: float | None
    """Gap between tokens of an answer, 99.9th percentile, ms"""
    itl_p95: float | None
    """Gap between tokens of an answer, 95th percentile, ms"""
    itl_p90: float | None
    """Gap between tokens of an answer, 90th percentile, ms"""
    itl_p50: float | None
    """Gap between tokens of an answer, median, ms"""
    e2el_p99: float | None
    """End-to-end latency, 99th percentile, ms"""
    e2el_p999: float | None
    """End-to-end latency, 99.9th percentile, ms"""
    e2el_p95: float | None
    """End-to-end latency, 95th percentile, ms"""
    e2el_p90: float | None
    """End-to-end latency, 90th percentile, ms"""
    e2el_p50: float | None
    """End-to-end latency, median, ms"""
    goodput: float | None
    """Share of the requests that must keep every bound, of a plan [default: each bound at the 99th percentile]"""
    no_leap: bool | None
    """Simulate every step one by one: equal results, slower"""
    oracle: bool | None
    """Say how many prompt tokens the best router and eviction could find in the caches: Belady's bound"""
    html: Word | None
    """Write the answer as one self-contained HTML file"""
    merge: bool | None
    """Run nothing: print the sweep from the runs in --cells, byte for byte as one machine would have printed it, as
    JSON or CSV"""
    missing: bool | None
    """With --merge: print the numbers of the missing runs, from 0, as JSON"""
    partial: bool | None
    """With --merge: print the runs found, though some are missing"""


class LimitsFlags(DeploymentFlags, total=False):
    """Flags of ``roofcast limits``."""

    batch: Word | None
    """Sequences that decode together, over the whole deployment [default: 1]"""
    context: Word | None
    """Tokens of each sequence [default: 4096, or the model's maximum]"""
    prefill: Word | None
    """Tokens of a prompt [default: the context]"""
    mfu: Word | None
    """Fraction of the peak FLOPs that the limit assumes"""
    mbu: Word | None
    """Fraction of the memory bandwidth that the limit assumes"""
    output_len: int | None
    """Mean output tokens: a sweep then counts KV tokens released per step; --context is the final length"""
    image: Word | None
    """Also the encoder's time for one image: WIDTHxHEIGHT in pixels, or a number of tokens"""
    video_frames: int | None
    """Frames of a video of --image's size in place of the image, as sampled"""
    html: Word | None
    """Write the answer as one self-contained HTML file"""


class IntensityFlags(DeploymentFlags, total=False):
    """Flags of ``roofcast limits``."""

    video_frames: int | None
    """Frames of a video of --image's size in place of the image, as sampled"""


class CapacityFlags(DeploymentFlags, total=False):
    """Flags of ``roofcast capacity``."""

    context: Word | None
    """Tokens of each sequence [default: 4096, or the model's maximum]"""
    batch: Word | None
    """Sequences that must fit"""
    oversubscription: Word | None
    """Over-subscription of the KV cache: 2 serves twice the users that fit at full context"""
    users: Word | None
    """Users to serve: prints how many such deployments are needed"""
    explain: bool | None
    """Show parameters, bytes and FLOPs tensor by tensor"""
    measured_log: Word | None
    """Compare the terms of an engine's start-up log with the forecast: vLLM, SGLang, TensorRT-LLM or llama.cpp"""


class SimulateFlags(LoadFlags, total=False):
    """Flags of ``roofcast simulate``."""

    measured_tpot: Word | None
    """Measured mean TPOT of this deployment under this load, to compare with the forecast"""
    series: Word | None
    """Write each replica's running and waiting requests, KV blocks, preemptions and tokens/s over time as CSV"""
    trace: Word | None
    """Write steps and requests as a Chrome trace, which Perfetto opens"""
    trace_limit: Word | None
    """Most events of the trace; later ones are dropped"""


class SweepFlags(LoadFlags, total=False):
    """Flags of ``roofcast simulate``."""

    threads: Word | None
    """Concurrent runs of a sweep; the answer does not depend on it [default: the number of cores]"""


class PlanFlags(TypedDict, total=False):
    """Flags of ``roofcast plan``."""

    model: Word | None
    """Catalog id, or a path to a config.json, its folder, a .gguf or .safetensors"""
    engine: Word | None
    """Engine whose calibration counts: vllm, sglang, tensorrt-llm, llama.cpp; it brings its scheduler, as a flag in
    place of the file's [default: vllm]"""
    engine_version: Word | None
    """Version of the engine, as in 0.11.2 [default: the newest that is calibrated]"""
    served: bool | None
    """Whether requests come through the engine's API server, not from a program that calls the engine in process
    [default: true]"""
    scheduler: Word | None
    """Scheduling policy: vllm, vllm-v0, sglang, tensorrt-llm, llama.cpp, lightllm, sarathi, splitfuse, orca, static, …
    [default: the engine's, else vllm]"""
    cost: Word | None
    """Price of a step: limit or forecast [default: forecast]"""
    max_num_seqs: int | None
    """Sequences that run at once [default: vLLM's for the chip]"""
    max_num_batched_tokens: int | None
    """Token budget of a step [default: vLLM's for the chip]"""
    block_size: int | None
    """Tokens of a KV block [default: the scheduler's]"""
    num_gpu_blocks: int | None
    """KV blocks [default: as many as fit]"""
    gpu_memory_utilization: float | None
    """Fraction of device memory for the engine; for tensorrt-llm, fraction of the memory left by weights and
    activations [default: the engine's, as 0.92 in vLLM 0.33]"""
    max_model_len: int | None
    """Longest sequence that is served, in tokens [default: the model's]"""
    enable_chunked_prefill: bool | None
    """Whether a prompt may be split over several steps (chunked prefill) [default: the scheduler's]"""
    enable_prefix_caching: bool | None
    """Whether cached blocks are found by their content (prefix caching) [default: where prompts have tokens in
    common]"""
    policy: Word | None
    """Order of the queue: fcfs, priority, sjf [default: fcfs]"""
    scheduler_reserve_full_isl: bool | None
    """Whether admission needs room for the whole known sequence [default: the scheduler's]"""
    watermark: float | None
    """Fraction of blocks kept free when admitting while others run [default: the scheduler's]"""
    mamba_ssm_dtype: Word | None
    """Dtype of recurrent states: float32, bfloat16, float16 [default: the model's]"""
    decode_context_parallel_size: int | None
    """Tensor-parallel ranks that share the cached tokens of a sequence, in place of copies of KV heads or latents
    [default: 1]"""
    language_model_only: bool | None
    """Whether no encoders for images and sound are loaded [default: false]"""
    kv_cache_memory_bytes: int | None
    """Bytes of KV cache on each accelerator, in place of the bytes that gpu_memory_utilization leaves"""
    enforce_eager: bool | None
    """Whether the host launches every kernel of a step without a CUDA graph [default: false]"""
    max_cudagraph_capture_size: int | None
    """Tokens of the largest step that a CUDA graph of vLLM captures; 0 for none with prompts, which is what other
    engines have [default: vLLM's, twice the tokens of max_num_seqs decodes up to 512, 1024 on data-centre Blackwell
    from 0.28 on]"""
    stream_interval: int | None
    """Tokens of a request from one of its messages to the next; the first is sent at once. A server process spends its
    time by messages, which bounds small models [default: 1]"""
    attention_backend: Word | None
    """Attention kernel of decodes: naive, flash-attention, flash-decoding [default: the kernels of the calibrated
    engines]"""
    quantization_kernel: Word | None
    """Kernel of quantized weights, such as marlin, awq, exllama-v2 [default: the engine version's choice]"""
    fuse_layers: bool | None
    """Whether projections with one input are one GEMM, and norms and rotations few launches [default: the engine's own
    choice]"""
    frontend: Word | None
    """HTTP server between the engine and its clients: asyncio, dynamo, gevent [default: asyncio]"""
    reservation: Word | None
    """What static and orca reserve for a request: max, pow2, oracle [default: max]"""
    kv_layout: Word | None
    """Layout of a request's KV cache in memory: paged, flashinfer, vattention, contiguous [default: the scheduler's,
    with the bytes of block tables not counted]"""
    num_speculative_tokens: int | None
    """Tokens drafted after each step of a sequence; 0 for none"""
    spec_method: Word | None
    """Method of drafting: ngram, whose drafts are copied from earlier text, at no cost, and accepted all together or
    not at all; mtp, by the checkpoint's own layers; eagle, eagle3, dflash, by a draft_model that reads the model's
    hidden states [default: that of a draft_model, or of a draft_cost]"""
    draft_share: float | None
    """Share, 0 to 1, of a sequence's steps that have drafts: drafts / (generated - accepted tokens) of the server's
    counters [default: 1; ngram has none]"""
    acceptance_rate: float | None
    """Probability, 0 to 1, that a draft is accepted if all earlier drafts of the step are; of ngram, accepted / drafted
    tokens"""
    acceptance_length: float | None
    """In place of acceptance_rate: mean tokens of a step with drafts of a sequence, the model's own included, 1 to
    num_speculative_tokens + 1, as vLLM's Mean acceptance length"""
    acceptance: Word | None
    """In place of acceptance_rate: published figures of the model's drafts, by published or the name of a data set, as
    in SPEED-Bench coding"""
    draft_model: Word | None
    """Catalog id or path of the model that drafts; or draft_cost"""
    draft_cost: float | None
    """Time to draft one token, as a fraction of the model's step time"""
    all2all_backend: Word | None
    """Exchange of tokens between ranks with different experts: allgather_reducescatter, deepep_high_throughput,
    deepep_low_latency, deepep_auto [default: each token once to each rank of its experts, at a fraction of the links'
    rate]"""
    enable_dbo: bool | None
    """Whether a step is two microbatches, of which one computes while the other exchanges tokens (dual-batch overlap)
    [default: false]"""
    dbo_decode_token_threshold: int | None
    """Tokens of a rank from which a step of decodes is split [default: 32]"""
    dbo_prefill_token_threshold: int | None
    """Tokens of a rank from which a step with prompts is split [default: 512]"""
    expert_imbalance: float | None
    """(max − mean)/mean of the tokens that ranks compute for their experts, without balancing [default: 0 of experts
    behind DeepEP, else the skew of the kernel times]"""
    enable_eplb: bool | None
    """Whether experts are placed on ranks by their load (expert-parallel load balancing) [default: false]"""
    num_redundant_experts: int | None
    """Second copies of the most loaded experts of a layer, over all ranks, with enable_eplb [default: 0]"""
    eplb_step_interval: int | None
    """Steps from one placement of experts to the next [default: 3000; of sglang 1000]"""
    max_num_active_seqs: int | None
    """VLLM's second bound on the sequences that run at one time"""
    max_num_queued_reqs: int | None
    """Requests of a replica, waiting or running, beyond which its server refuses new ones"""
    max_num_queued_tokens: int | None
    """Prompt tokens without a first token from which a replica's server refuses requests"""
    prefill_schedule_interval: int | None
    """Steps from one prefill to the next while requests decode; before vLLM 0.33 only in data-parallel engines"""
    long_prefill_token_threshold: int | None
    """Most tokens of one prompt in a step while others wait; 0 is no bound"""
    async_scheduling: bool | None
    """Whether two batches are in flight, vLLM's AsyncScheduler [default: from 0.14 on new requests wait as with it]"""
    api_server_count: int | None
    """Processes of vLLM's HTTP server, each of which reads its requests one after the other [default: one, from 0.15 on
    one for each data-parallel rank]"""
    kv_offloading_size: float | None
    """GiB of host memory, over all ranks of an engine, in which vLLM also keeps KV cache [default: 0]"""
    kv_offloading_backend: Word | None
    """VLLM's connector that keeps KV in host memory: native [default: native]"""
    kv_offloading_eviction_policy: Word | None
    """Order in which KV is evicted from the host, the connector's eviction_policy: lru, arc [default: lru]"""
    kv_offloading_store_threshold: int | None
    """Number of times that KV must be offered before it is stored, the connector's store_threshold; below 2 it is
    stored at once [default: 0]"""
    kv_offloading_prompt_only: bool | None
    """Whether only the KV of prompts is stored, the connector's offload_prompt_only [default: true]"""
    kv_storage_size: float | None
    """GiB of a disk or file server below vLLM's host tier, over all ranks of an engine [default: 0]"""
    kv_storage_read: float | None
    """GB/s at which an engine reads KV from it [default: 10]"""
    kv_storage_write: float | None
    """GB/s at which an engine writes KV to it [default: 10]"""
    kv_storage_latency: float | None
    """Milliseconds from the start of a copy to its first byte [default: 0.1]"""
    enable_lora: bool | None
    """Whether vLLM serves LoRA adapters, which workload.adapters, classes or a trace name [default: false]"""
    max_loras: int | None
    """LoRA adapters whose requests run at once, each with a buffer on the device [default: 1]"""
    max_lora_rank: int | None
    """Rank with which LoRA adapters are computed, whatever their own: 1, 8, 16, 32, 64, 128, 256, 320 or 512 [default:
    16]"""
    max_cpu_loras: int | None
    """LoRA adapters that the host keeps, from max_loras up; others are read from storage [default: max_loras]"""
    fully_sharded_loras: bool | None
    """Whether tensor-parallel ranks divide both matrices of a LoRA adapter [default: false]"""
    mm_encoder_tp_mode: Word | None
    """What tensor-parallel ranks divide of an encoder: weights, or data, whole images [default: weights]"""
    cpu_offload_gb: float | None
    """GiB of each rank's weights in host memory, which vLLM reads over the host's link in every step, and SGLang copies
    [default: 0]"""
    mm_processor_kwargs: Word | None
    """Bounds on images that the model's processor takes, as a JSON object: {'max_pixels': 1003520}"""
    preemption_mode: Word | None
    """Handling of a preempted request's KV cache: recompute, swap [default: recompute]"""
    swap_space: float | None
    """GiB of host memory per accelerator for swapped caches [default: 4]"""
    schedule_policy: Word | None
    """SGLang's order under policy fcfs: fcfs, lpm [default: fcfs]"""
    chunked_prefill_size: int | None
    """SGLang's token budget of a step with prompts, beyond which a prompt is chunked; -1 keeps prompts whole"""
    max_prefill_tokens: int | None
    """SGLang's most prompt tokens of a step; the first prompt may exceed this if prompts are whole"""
    enable_mixed_chunk: bool | None
    """Whether SGLang mixes decodes into prefill batches [default: false]"""
    schedule_conservativeness: float | None
    """Factor on SGLang's initial estimate of new tokens; larger values admit fewer requests [default: 1]"""
    prefill_max_requests: int | None
    """Most requests in a step with prompts, SGLang's [default: no bound]"""
    disable_radix_cache: bool | None
    """Whether SGLang keeps no prefix for other requests [default: false]"""
    max_mamba_cache_size: int | None
    """Number of recurrent states in SGLang's pool [default: as many as fit in memory]"""
    mamba_full_memory_ratio: float | None
    """Bytes of SGLang's pool of recurrent states over the bytes of its KV pool [default: 0.9]"""
    mamba_radix_cache_strategy: Word | None
    """Strategy by which SGLang's radix cache keeps recurrent states: no_buffer, extra_buffer, extra_buffer_lazy
    [default: auto]"""
    enable_hierarchical_cache: bool | None
    """Whether SGLang also keeps KV cache in host memory (HiCache) [default: false]"""
    hicache_ratio: float | None
    """Tokens of HiCache's host pool over tokens of the device pool [default: 2]"""
    hicache_size: float | None
    """GB of HiCache's host pool of each rank, in place of hicache_ratio"""
    hicache_write_policy: Word | None
    """Event at which HiCache copies KV to the host: write_through, write_through_selective, write_back [default:
    write_through]"""
    disable_overlap_schedule: bool | None
    """Whether SGLang schedules a step only after the results of the previous one [default: false]"""
    retraction_policy: Word | None
    """Order in which SGLang retracts requests: length, priority [default: length]"""
    enable_priority_scheduling: bool | None
    """Whether SGLang's queue is in order of priority"""
    schedule_low_priority_values_first: bool | None
    """Whether smaller values have higher priority, SGLang's"""
    disable_priority_preemption: bool | None
    """Whether a higher priority never preempts a running request, SGLang's [default: false]"""
    priority_scheduling_preemption_threshold: int | None
    """Difference in priority above which a request preempts another one, SGLang's [default: 10]"""
    scheduler_recv_interval: int | None
    """Number of decode steps from one poll of SGLang for new requests to the next [default: 1]"""
    batch_wait_timeout_iters: int | None
    """Most steps that TensorRT-LLM holds prompts until they fill a fraction of the token budget [default: 0]"""
    batch_wait_max_tokens_ratio: float | None
    """Fraction of max_num_batched_tokens that ends TensorRT-LLM's hold of prompts, 0 to 1"""
    disable_overlap_scheduler: bool | None
    """Whether TensorRT-LLM schedules a step only after the previous one, without overlap [default: false]"""
    attention_dp_enable_balance: bool | None
    """Whether TensorRT-LLM holds prompts until every data-parallel rank has one [default: false]"""
    attention_dp_time_out_iters: int | None
    """Most steps that attention_dp_enable_balance holds prompts [default: 50]"""
    ctx_size: int | None
    """Cells of llama.cpp's KV cache, which slots share or divide: -c [default: the model's context, or less if the
    memory is too small]"""
    kv_unified: bool | None
    """Whether llama.cpp's slots share one cache, instead of equal parts: -kvu [default: true unless max_num_seqs is
    set]"""
    ubatch_size: int | None
    """Llama.cpp's prompt tokens of a micro-batch: -ub [default: 512]"""
    swa_full: bool | None
    """Whether llama.cpp's layers with a sliding window keep the whole context: --swa-full [default: false]"""
    n_gpu_layers: int | None
    """Llama.cpp's layers on the accelerator, the last ones, lm_head counted as one: -ngl [default: all]"""
    n_cpu_moe: int | None
    """Llama.cpp's layers, the first ones, whose routed experts lie in host memory: --n-cpu-moe; 999 for all, --cpu-moe
    [default: 0]"""
    override_tensor: Word | None
    """Places of llama.cpp's tensors by their names, as in exps=CPU: patterns, separated by commas: -ot"""
    no_kv_offload: bool | None
    """Whether llama.cpp keeps the whole KV cache in host memory: -nkvo [default: false]"""
    cache_reuse: int | None
    """Least tokens of a piece of a kept prompt that llama.cpp reuses at another position: --cache-reuse; 0 for none
    [default: 0]"""
    cache_ram: int | None
    """MiB of prompts that llama.cpp keeps in host memory; 0 for none, -1 for no bound [default: 8192]"""
    ctx_checkpoints: int | None
    """Most checkpoints of a slot of llama.cpp, to which a model with windows or recurrent states goes back [default:
    32]"""
    slot_prompt_similarity: float | None
    """Share of a prompt, 0 to 1, from which on a request gets the slot of llama.cpp that has that part; 0 for the slot
    that is free longest [default: 0.1]"""
    workload: Word | None
    """Published traffic, as in azure-conv-2023 or sharegpt; as a flag also a trace file"""
    seed: int | None
    """Seed of every draw [default: 0]"""
    rate: float | None
    """Requests per second, of sessions new ones; over a trace its recorded times scaled to it"""
    concurrency: int | None
    """Users, each with one request in flight; of sessions how many go on at once; over a trace who send its requests in
    their order"""
    burstiness: float | None
    """Shape of gamma gaps: below 1 burstier than Poisson"""
    turns: int | None
    """Turns of a conversation: each prompt is all that was said, and input_len new tokens"""
    think_s: float | None
    """Mean seconds between an answer and the user's next request [default: 0]"""
    ramp_s: float | None
    """Seconds over which users begin, one after another; requests sent until then are not judged [default: 0, all at
    once; of plan and --find the time of a request at its slowest within the SLO]"""
    turn_round_s: float | None
    """Seconds from a request's last step until the same user's next request is at the server, thinking aside [default:
    0.001]"""
    input_len: int | None
    """Prompt tokens; 8k is 8,000 and 8K is 8,192"""
    output_len: int | None
    """Tokens of an answer"""
    prefix_len: int | None
    """Length of a prefix that prompts have in common in tokens, in addition to input_len"""
    prefix_count: int | None
    """Number of different prefixes [default: 1]"""
    prefix_share: float | None
    """Fraction of the requests, or of the sessions if there are any, that have a prefix [default: 1]"""
    adapters: int | None
    """Number of LoRA adapters that requests name"""
    adapter_share: float | None
    """Fraction of the requests, or of the sessions if there are any, that name an adapter [default: 1]"""
    adapter_skew: float | None
    """Zipf's exponent: the k-th adapter is drawn with weight 1/k^skew [default: 0]"""
    images: int | None
    """Number of images of a request, at the beginning of its prompt [default: 1]"""
    image_width: int | None
    """Width of an image in pixels, with height"""
    image_height: int | None
    """Height of an image in pixels"""
    video_frames: int | None
    """Number of frames of a video in place of an image, as sampled: 2 a second in Qwen's processors, 32 a video in vLLM
    by default"""
    image_tokens: int | None
    """Tokens of an image, in place of width and height"""
    max_concurrency: int | None
    """Requests that the client has in flight at most, whatever the rate"""
    ttft_p99: float | None
    """Time to first token, 99th percentile, ms"""
    ttft_p999: float | None
    """Time to first token, 99.9th percentile, ms"""
    ttft_p95: float | None
    """Time to first token, 95th percentile, ms"""
    ttft_p90: float | None
    """Time to first token, 90th percentile, ms"""
    ttft_p50: float | None
    """Time to first token, median, ms"""
    tpot_p99: float | None
    """Time per output token, 99th percentile, ms"""
    tpot_p999: float | None
    """Time per output token, 99.9th percentile, ms"""
    tpot_p95: float | None
    """Time per output token, 95th percentile, ms"""
    tpot_p90: float | None
    """Time per output token, 90th percentile, ms"""
    tpot_p50: float | None
    """Time per output token, median, ms"""
    tokens_per_s_user: float | None
    """Tokens per second that 99 of 100 users get at least: 1000 over TPOT p99 in ms"""
    itl_p99: float | None
    """Gap between tokens of an answer, 99th percentile, ms"""
    itl_p999: float | None
    """Gap between tokens of an answer, 99.9th percentile, ms"""
    itl_p95: float | None
    """Gap between tokens of an answer, 95th percentile, ms"""
    itl_p90: float | None
    """Gap between tokens of an answer, 90th percentile, ms"""
    itl_p50: float | None
    """Gap between tokens of an answer, median, ms"""
    e2el_p99: float | None
    """End-to-end latency, 99th percentile, ms"""
    e2el_p999: float | None
    """End-to-end latency, 99.9th percentile, ms"""
    e2el_p95: float | None
    """End-to-end latency, 95th percentile, ms"""
    e2el_p90: float | None
    """End-to-end latency, 90th percentile, ms"""
    e2el_p50: float | None
    """End-to-end latency, median, ms"""
    goodput: float | None
    """Share of the requests that must keep every bound, of a plan [default: each bound at the 99th percentile]"""
    hardware: Word | None
    """Accelerators, as in h200-sxm,h100-sxm, or TOML files with one each"""
    max_accelerators: int | None
    """Most accelerators in total [default: 16]"""
    weights: Word | None
    """Weight formats, as in fp8,bf16 [default: the checkpoint's]"""
    kv: Word | None
    """KV-cache formats [default: auto]"""
    tp: int | None
    """Tensor-parallel degrees [default: every valid degree]"""
    disaggregated: bool | None
    """Also search disaggregated fleets"""
    min_accelerators: int | None
    """Fewest accelerators in total [default: 1]"""
    requests: int | None
    """Requests of a simulation that proves a deployment [default: 10000, or those of the workload where they are
    more]"""
    over_time: float | None
    """Seconds of an interval: also say how many replicas of the best an ideal autoscaler runs in each"""
    startup: float | None
    """Seconds from the start of a replica until it takes requests, over time [default: as capacity says]"""
    confidence: float | None
    """Lowest chance with which the best plan meets the SLO, given the bands of forecasts; 0 accepts what meets it as
    forecast [default: 0.8]"""
    minimise: Word | None
    """Objective to minimise: cost_per_hour, cost_per_million_tokens, accelerators or energy [default: cost_per_hour]"""
    price: Word | None
    """Dollars per accelerator per hour, by catalog id, as in { h100-sxm = 2.1 } [default: the catalog's]"""
    against_api: Word | None
    """Prices of an API in dollars per million tokens, prompts and outputs, which the best is compared with: 0.28,0.42,
    or with cached prompts 0.28,0.42,0.028"""
    usd_per_kwh: float | None
    """Dollars per kWh: accelerators are owned and cost the electricity of their board power, unless search.prices has a
    price"""
    from_command: Word | None
    """Read an engine's command line as a deployment: vllm serve …, python -m sglang.launch_server …"""
    from_manifest: Word | None
    """Read the command of the one engine in a cluster's manifest: a Deployment, a LeaderWorkerSet, kubectl get -o
    json"""
    set: Mapping[str, Any] | Words | None
    """Set any key of the spec, as in engine.watermark=0.01"""
    catalog: Words | None
    """A TOML file of accelerators and models, in addition to the embedded catalog; its entries win"""
    exhaustive: bool | None
    """Simulate every deployment that fits, without pruning by limit and estimate: slower, and the best is equal"""
    why: Word | None
    """Print the result of one deployment, such as 'accelerator=h100-sxm tp=4 replicas=2 weights=fp8'"""
    measured: Word | None
    """A client's result (`vllm bench serve --save-result`, roofcast bench --json) against the deployment of --from-
    command or --from-manifest on hardware.accelerator; it calibrates the plan"""
    launch_dir: Word | None
    """Write commands, manifests, the spec and the line of roofcast bench for the best into this folder"""
    batch: Word | None
    """An offline job: this many requests, as 500k or 2M, to end --within a time; it bounds no latency by itself"""
    within: Word | None
    """The time that --batch has, as in 12h"""
    html: Word | None
    """Write the answer as one self-contained HTML file"""


class ValidateFlags(TypedDict, total=False):
    """Flags of ``roofcast validate``."""

    model: Word | None
    """Catalog id of the model, or a config.json [default: as the file says]"""
    hardware: Word | None
    """Accelerator, as in h100-sxm, or its .toml [default: as the file says]"""
    count: int | None
    """Total accelerators [default: as many as --tp]"""
    tp: int | None
    """Tensor parallelism [default: as the file says, else 1]"""
    weights: Word | None
    """Weight format [default: the checkpoint's]"""
    kv: Word | None
    """KV-cache format"""
    engine: Word | None
    """vllm, sglang, tensorrt-llm, llama.cpp, … [default: as the file says, else vllm]"""
    engine_version: Word | None
    """The engine's version, as in 0.19.0"""
    concurrency: int | None
    """Requests in flight at all times, for .jsonl; with --rate, the most in flight"""
    rate: float | None
    """Requests per second, for .jsonl"""
    input_len: int | None
    """Prompt tokens of a request, for results that do not state them"""
    output_len: int | None
    """Output tokens of a request, for results that do not state them"""
    group: Word | None
    """Only rows whose source, group and kind contain all these words, as in 'splitwise 70b h100'"""
    split: Word | None
    """Only rows on this side: of public measurements a quarter of the groups may be looked at row by row, the others
    judge"""
    html: Word | None
    """Write the answer as one self-contained HTML file"""
    curves: Word | None
    """Draw measured times over batch, prompt or context as SVG, with their forecasts and limits"""
    per_row: Word | None
    """Write measured, forecast and limit of every row as CSV, with the parts of the forecast's time"""
    calibration: Word | None
    """A calibration that replaces the embedded one"""
    catalog: Words | None
    """A TOML file of accelerators and models, in addition to the embedded catalog; its entries win"""


class CalibrateFlags(TypedDict, total=False):
    """Flags of ``roofcast calibrate``."""

    model: Word | None
    """Catalog id of the model, or a config.json [default: as the file says]"""
    hardware: Word | None
    """Accelerator, as in h100-sxm, or its .toml [default: as the file says]"""
    count: int | None
    """Total accelerators [default: as many as --tp]"""
    tp: int | None
    """Tensor parallelism [default: as the file says, else 1]"""
    weights: Word | None
    """Weight format [default: the checkpoint's]"""
    kv: Word | None
    """KV-cache format"""
    engine: Word | None
    """vllm, sglang, tensorrt-llm, llama.cpp, … [default: as the file says, else vllm]"""
    engine_version: Word | None
    """The engine's version, as in 0.19.0"""
    concurrency: int | None
    """Requests in flight at all times, for .jsonl; with --rate, the most in flight"""
    rate: float | None
    """Requests per second, for .jsonl"""
    input_len: int | None
    """Prompt tokens of a request, for results that do not state them"""
    output_len: int | None
    """Output tokens of a request, for results that do not state them"""
    output: Word | None
    """Write the calibration as TOML, or with --kernels the file of times"""
    teaching: bool | None
    """Fit the embedded calibration again: from published priors, and only to rows that the hash of their deployment
    lets a fit see (all of `validate --split look`, half of the others). Without it the embedded numbers are the
    priors"""
    source: Word | None
    """The calibration's statement of its data [default: the files' names]"""
    catalog: Words | None
    """A TOML file of accelerators and models, in addition to the embedded catalog; its entries win"""
