// Written by `UPDATE_TYPES=1 cargo test -p roofcast-cli types_of_the_page` from the structs that answer; do not edit.

export interface CatalogAnswer {
  version: string;
  models: EntryLine[];
  accelerators: EntryLine[];
  workloads: Traffic[];
}

export interface LimitsAnswer {
  report: {
    schema: string;
    model: string;
    hardware: string;
    count: number;
    parallelism: Parallelism;
    weights: string;
    kv: string;
    activations: string;
    engine: EngineSettings;
    convention: string;
    ideal: boolean;
    assumptions: string[];
    batch: number;
    context: number;
    prompt: number;
    mfu_limit: number;
    mbu_limit: number;
    fits: boolean;
    decode: Cost;
    decode_tokens_per_s: number;
    prefill: Cost;
    prefill_tokens_per_s: number;
    ridge: Ridge[];
    critical_batch: CriticalBatch[];
    all_reduce: AllReduce[];
    tensor_parallel: TensorParallel;
    experts: ExpertsTouched | null;
    kv_cache: KvCache;
  };
  capacity: {
    schema: string;
    model: string;
    hardware: string;
    count: number;
    parallelism: Parallelism;
    weights: string;
    kv: string;
    activations: string;
    engine: EngineSettings;
    convention: string;
    ideal: boolean;
    assumptions: string[];
    context: number;
    batch: number;
    oversubscription: number;
    fits: boolean;
    short_by_bytes: number;
    parameters: Parameters;
    weight_bytes: number;
    kv_bytes_per_token: number;
    kv_bytes_per_sequence: number;
    compute_bytes_per_token: number;
    kv_tokens: number;
    max_batch: number;
    longest_context: number;
    users: number;
    deployments_for_users: unknown;
    min_accelerators: number | null;
    smallest_topology: SmallestTopology | null;
    in_stages: unknown;
    ranks: Rank[];
  };
  accelerator: Accelerator;
  start: Start;
  refusal: string | null;
}

export interface LimitsSweepAnswer {
  report: {
    schema: string;
    model: string;
    hardware: string;
    count: number;
    parallelism: Parallelism;
    weights: string;
    kv: string;
    activations: string;
    engine: EngineSettings;
    convention: string;
    ideal: boolean;
    assumptions: string[];
    sweep: string[];
    points: Point[];
    interrupted: boolean;
  };
  pictures: Picture[];
}

export interface CapacityAnswer {
  report: {
    schema: string;
    model: string;
    hardware: string;
    count: number;
    parallelism: Parallelism;
    weights: string;
    kv: string;
    activations: string;
    engine: EngineSettings;
    convention: string;
    ideal: boolean;
    assumptions: string[];
    context: number;
    batch: number;
    oversubscription: number;
    fits: boolean;
    short_by_bytes: number;
    parameters: Parameters;
    weight_bytes: number;
    kv_bytes_per_token: number;
    kv_bytes_per_sequence: number;
    compute_bytes_per_token: number;
    kv_tokens: number;
    max_batch: number;
    longest_context: number;
    users: number;
    deployments_for_users: number | null;
    min_accelerators: number | null;
    smallest_topology: SmallestTopology | null;
    in_stages: SmallestTopology | null;
    ranks: Rank[];
    host_kv_tokens?: number | null;
  };
  accelerator: Accelerator;
  start: Start;
  refusal: string | null;
  lengths: Length[];
  pictures: Picture[];
}

export interface RunAnswer {
  report: {
    schema: string;
    model: string;
    hardware: string;
    count: number;
    parallelism: Parallelism;
    weights: string;
    kv: string;
    activations: string;
    engine: EngineSettings;
    convention: string;
    ideal: boolean;
    assumptions: unknown[];
    cost: string;
    interrupted: boolean;
    requests: number;
    refused: number;
    rejected: number;
    duration: number;
    completed: number;
    failed: number;
    total_input_tokens: number;
    total_output_tokens: number;
    request_throughput: number;
    request_goodput: number | null;
    output_throughput: number;
    total_token_throughput: number;
    mean_ttft_ms: number | null;
    median_ttft_ms: number | null;
    std_ttft_ms: number | null;
    p50_ttft_ms: number | null;
    p90_ttft_ms: number | null;
    p95_ttft_ms: number | null;
    p99_ttft_ms: number | null;
    p999_ttft_ms: number | null;
    mean_tpot_ms: number | null;
    median_tpot_ms: number | null;
    std_tpot_ms: number | null;
    p50_tpot_ms: number | null;
    p90_tpot_ms: number | null;
    p95_tpot_ms: number | null;
    p99_tpot_ms: number | null;
    p999_tpot_ms: number | null;
    mean_itl_ms: number | null;
    median_itl_ms: number | null;
    std_itl_ms: number | null;
    p50_itl_ms: number | null;
    p90_itl_ms: number | null;
    p95_itl_ms: number | null;
    p99_itl_ms: number | null;
    p999_itl_ms: number | null;
    mean_e2el_ms: number | null;
    median_e2el_ms: number | null;
    std_e2el_ms: number | null;
    p50_e2el_ms: number | null;
    p90_e2el_ms: number | null;
    p95_e2el_ms: number | null;
    p99_e2el_ms: number | null;
    p999_e2el_ms: number | null;
    settings: ReportedSettings;
    activity: Activity;
    kv_cache: CacheUse;
    time: TimeShares;
    limit_tpot_ms: number;
    expense: Expense;
    fleet: FleetUse;
    load: OfferedLoad;
    sessions: unknown;
    bands: Bands | null;
  };
  question: string;
  slo: Slo;
  distributions: Distribution[];
  series: SeriesPoint[][];
  timelines: Timeline[];
}

export interface RunSweepAnswer {
  report: {
    schema: string;
    sweep: string[];
    interrupted: boolean;
    points: {
      values: (string | number)[];
      model: string;
      hardware: string;
      count: number;
      parallelism: Parallelism;
      weights: string;
      kv: string;
      activations: string;
      engine: EngineSettings;
      convention: string;
      ideal: boolean;
      assumptions: unknown[];
      cost: string;
      interrupted: boolean;
      requests: number;
      refused: number;
      rejected: number;
      duration: number;
      completed: number;
      failed: number;
      total_input_tokens: number;
      total_output_tokens: number;
      request_throughput: number;
      request_goodput: number | null;
      output_throughput: number;
      total_token_throughput: number;
      mean_ttft_ms: number | null;
      median_ttft_ms: number | null;
      std_ttft_ms: number | null;
      p50_ttft_ms: number | null;
      p90_ttft_ms: number | null;
      p95_ttft_ms: number | null;
      p99_ttft_ms: number | null;
      p999_ttft_ms: number | null;
      mean_tpot_ms: number | null;
      median_tpot_ms: number | null;
      std_tpot_ms: number | null;
      p50_tpot_ms: number | null;
      p90_tpot_ms: number | null;
      p95_tpot_ms: number | null;
      p99_tpot_ms: number | null;
      p999_tpot_ms: number | null;
      mean_itl_ms: number | null;
      median_itl_ms: number | null;
      std_itl_ms: number | null;
      p50_itl_ms: number | null;
      p90_itl_ms: number | null;
      p95_itl_ms: number | null;
      p99_itl_ms: number | null;
      p999_itl_ms: number | null;
      mean_e2el_ms: number | null;
      median_e2el_ms: number | null;
      std_e2el_ms: number | null;
      p50_e2el_ms: number | null;
      p90_e2el_ms: number | null;
      p95_e2el_ms: number | null;
      p99_e2el_ms: number | null;
      p999_e2el_ms: number | null;
      settings: ReportedSettings;
      activity: Activity;
      kv_cache: CacheUse;
      time: TimeShares;
      limit_tpot_ms: number;
      expense: Expense;
      fleet: FleetUse;
      load: OfferedLoad;
      sessions: unknown;
      bands: Bands | null;
    }[];
  };
  pictures: Picture[];
}

export interface PlanAnswer {
  report: {
    schema: string;
    model: string;
    cost: string;
    minimise: string;
    considered: number;
    pruned: Pruned;
    simulated: number;
    dearer: number;
    feasible: number;
    requests: number;
    confidence: number;
    confident: boolean;
    interrupted: boolean;
    at_least: unknown;
    unjudged: number;
    assumptions: unknown[];
    best: Choice | null;
    cheaper: unknown[];
    pareto: Choice[];
    pareto_throughput: Choice[];
    by_accelerator: Choice[];
    ranked: Choice[];
    nearest: Near[];
    not_searched: string[];
    left_out: LeftOut[];
    not_apart: string[];
    smallest: SmallestCount[];
    what_if: WhatIf[];
    over_time?: OverTime | null;
    why: Near[];
    launch: Launch[];
    manifests: Manifest[];
    quality: Quality[];
    flops_per_dollar: FlopsPerDollar[];
    spec: string | null;
    bench: string | null;
  };
  question: string;
  ttft_p99_ms: number | null;
  tpot_p99_ms: number | null;
  e2el_p99_ms: number | null;
  input_mean: number | null;
  output_mean: number | null;
}

export interface CurvesAnswer {
  report: {
    schema: string;
    model: string;
    cost: string;
    load: string;
    slo: string;
    curves: Curve[];
    left_out: string[];
    simulated: number;
    interrupted: boolean;
  };
  pictures: Picture[];
}

export interface MeasureAnswer {
  file: string;
  model: string;
  hardware: string;
  engine: string;
  runs: Run[];
}

export interface ValidateAnswer {
  report: {
    schema: string;
    rows: number;
    predicted: number;
    metrics: Record<string, Errors>;
    skipped: Skipped[];
    kinds: Record<string, ErrorStatistics>;
    sources: Record<string, ErrorStatistics>;
    engines: Record<string, ErrorStatistics>;
    hardware: Record<string, ErrorStatistics>;
    groups: {
      group: string;
      rows: number;
      predicted: number;
      metrics: Record<string, Errors>;
    }[];
    drafts: unknown[];
  };
  rows: Row[];
}

export interface AccuracyAnswer {
  bands: Band[];
  machines: Machine[];
  tables: string[];
  measured: View | null;
}

export interface Accelerator {
  id: string;
  name: string;
  aliases: string[];
  vendor: string;
  architecture: string;
  vllm_small_batches?: boolean;
  memory_bytes: number;
  usable_bytes: number;
  bandwidth_bytes_per_s: number;
  node_size: number;
  host_speed: number;
  multiprocessors?: number | null;
  power_w: number | null;
  notes: string;
  peak_flops: Record<string, number>;
  link: Link | null;
  network: Network | null;
  host_link?: HostLink | null;
  price: HourlyPrice | null;
  sources: Citation[];
  in_band_ecc?: boolean;
  fp16_accumulate_flops?: number | null;
}

export interface Activity {
  steps: number;
  mean_running: number;
  max_running: number;
  max_waiting: number;
  preemptions: number;
  scheduled_tokens: number;
  recomputed_tokens: number;
  swapped_tokens: number;
  cached_tokens: number;
  idle_tokens: number;
  drafted_tokens: number;
  rejected_tokens: number;
}

export interface AddedTimes {
  small_kernels_ms: number;
  launches_ms: number;
  host_ms: number;
  links_ms: number;
}

export interface AllReduce {
  algorithm: string;
  bandwidth_ms: number;
  latency_ms: number;
}

export interface Band {
  evidence: string;
  ttft: number[];
  tpot: number[];
  e2e: number[];
  throughput: number[];
  step: Factors | null;
  open_loop?: Factors | null;
}

export interface Bands {
  evidence: string;
  rests_on: string;
  ttft_ms: Span;
  tpot_ms: Span;
  e2el_ms: Span;
  output_tok_s: Span | null;
}

export interface Basis {
  evidence: string;
  exact: boolean;
  kernel: string;
}

export interface Bounded {
  metric: string;
  percentile: string;
  ms: number;
  most_ms: number;
  over_seeds: number[] | null;
}

export interface CacheUse {
  blocks: number;
  block_size: number;
  groups: number;
  max_blocks: number;
  mean_usage: number;
  internal_fragmentation: number;
  external_fragmentation: number;
  scattered_refusals: number;
  scattered_fragmentation: number;
  tables: Tables | null;
}

export interface Choice {
  accelerator: string;
  count: number;
  tp: number;
  pp: number;
  ep: number;
  attention_dp: number;
  replicas: number;
  prefill: {
    accelerator: string;
    replicas: number;
    tp: number;
    pp: number;
    ep: number;
    attention_dp: number;
  } | null;
  beside: {
    accelerator: string;
    replicas: number;
    tp: number;
    pp: number;
    ep: number;
    attention_dp: number;
  } | null;
  weights: string;
  kv: string;
  engine: string;
  router: string;
  enable_chunked_prefill: boolean;
  enable_prefix_caching: boolean;
  num_speculative_tokens: unknown;
  max_num_batched_tokens: number;
  max_num_seqs: number;
  batch: number;
  max_batch: number;
  tpot_ms: number;
  tpot_p99_ms: number;
  ttft_ms: number;
  ttft_p99_ms: number;
  e2el_ms: number;
  e2el_p99_ms: number;
  itl_p99_ms: number;
  limit: Times;
  forecast: Times;
  bound: string;
  stage: string;
  evidence: string | null;
  kernels: Timed | null;
  bounds: Bounded[];
  headroom: Headroom | null;
  chance: number | null;
  max_requests_per_s: number | null;
  utilization: number | null;
  output_tok_s: number;
  output_tok_s_per_accelerator: number;
  interactivity_tok_s: number;
  cost_per_hour: number | null;
  cost_per_million_tokens: number | null;
  joules_per_token: number | null;
  prefill_per_decode: number;
  bands: Bands | null;
  spec: Record<string, Record<string, string | number | Record<string, string | number>>>;
}

export interface Citation {
  of: string;
  url: string;
}

export interface Communication {
  all_reduces: number;
  message_bytes: number;
  all_reduce_ms: number;
  all_to_all_ms: number;
  pipeline_ms: number;
  latency_ms: number;
}

export interface Cost {
  limit_ms: number;
  limit_with_communication_ms: number;
  forecast_ms: number;
  forecast_band_ms: number[];
  forecast_source: string;
  bound: string;
  terms: Terms;
  mfu: number;
  mbu: number;
  intensity: number;
  communication: Communication;
  operators: OperatorCost[];
  beside: AddedTimes;
}

export interface CriticalBatch {
  weight_bits: number;
  dtype: string;
  batch: number;
}

export interface Curve {
  name: string;
  accelerator: string;
  usd_per_hour: number | null;
  points: {
    users: number;
    count: number;
    tp: number;
    pp: number;
    ep: number;
    attention_dp: number;
    weights: string;
    kv: string;
    engine: string;
    interactivity_tok_s: number;
    output_tok_s: number;
    output_tok_s_per_accelerator: number;
    tpot_ms: number;
    tpot_p99_ms: number;
    limit_tpot_ms: number;
    ttft_ms: number;
    ttft_p99_ms: number;
    e2el_ms: number;
    cost_per_million_tokens: number | null;
    joules_per_token: number | null;
    bound: string;
    missed: string | null;
    evidence: string | null;
    kernels: Timed | null;
    bands: Bands | null;
  }[];
  best: {
    users: number;
    count: number;
    tp: number;
    pp: number;
    ep: number;
    attention_dp: number;
    weights: string;
    kv: string;
    engine: string;
    interactivity_tok_s: number;
    output_tok_s: number;
    output_tok_s_per_accelerator: number;
    tpot_ms: number;
    tpot_p99_ms: number;
    limit_tpot_ms: number;
    ttft_ms: number;
    ttft_p99_ms: number;
    e2el_ms: number;
    cost_per_million_tokens: number | null;
    joules_per_token: number | null;
    bound: string;
    missed: unknown;
    evidence: string | null;
    kernels: Timed | null;
    bands: Bands | null;
  } | null;
}

export interface Degree {
  tp: number;
  limit_ms: number;
  communication_ms: number;
  bound: string;
}

export interface Distribution {
  metric: string;
  ms: number[];
  shares: number[];
}

export interface EngineSettings {
  max_num_seqs: number;
  max_num_batched_tokens: number;
  block_size: number;
  max_cudagraph_capture_size: number;
  gpu_memory_utilization: number;
  kv_layout?: string | null;
}

export interface EntryLine {
  kind: string;
  id: string;
  family: string;
  vendor: string;
  bytes: number;
  formats: string;
  parameters: number | null;
  active: number | null;
  usd_per_hour: number | null;
  bandwidth_bytes_per_s: number | null;
  sixteen_bit: number | null;
  eight_bit: number | null;
  four_bit: number | null;
  link: string | null;
  link_bytes_per_s: number | null;
  node_size: number | null;
}

export interface ErrorStatistics {
  rows: number;
  predicted: number;
  metrics: Record<string, Errors>;
}

export interface Errors {
  n: number;
  median_ape: number;
  p90_ape: number;
  bias: number;
  in_band: number;
  kept_at_80: number;
  kept_at_90: number;
  groups: number;
  group_median_ape: number;
  group_p90_ape: number;
}

export interface Expense {
  dollars_per_hour: number | null;
  dollars_per_million_output_tokens: number | null;
  joules: number | null;
  joules_per_output_token: number | null;
}

export interface ExpertsTouched {
  count: number;
  per_token: number;
  distinct: number;
}

export interface Factors {
  ttft: number[];
  tpot: number[];
  e2e: number[];
  throughput: number[];
}

export interface FleetUse {
  accelerators: number;
  prefill: PoolUse | null;
  serving: PoolUse;
  beside: PoolUse | null;
  transfers: TransferUse | null;
  autoscale: ScalingUse | null;
  prefixes: unknown;
}

export interface FlopsPerDollar {
  accelerator: string;
  usd_per_hour: number;
  flops_per_dollar: number;
}

export interface Headroom {
  metric: string;
  percentile: string | null;
  share: number;
}

export interface HostLink {
  kind: string;
  bytes_per_s: number;
  memory_bytes_per_s: number | null;
}

export interface HourlyPrice {
  usd_per_hour: number;
  date: string;
  source: string;
}

export interface KvCache {
  cached_ms: number;
  recomputed_ms: number;
  kv_flops_share: number;
  break_even_context: number;
}

export interface Launch {
  role: string;
  replicas: number;
  engine: string;
  nodes: number;
  command: string | null;
  on_others: unknown;
  note: string | null;
}

export interface LeftOut {
  reason: string;
  count: number;
}

export interface Length {
  tokens: number;
  max_batch: number;
  kv_bytes_per_sequence: number;
}

export interface Life {
  number: number;
  input: number;
  output: number;
  phases: Stay[];
}

export interface Link {
  kind: string;
  topology: string;
  bytes_per_s: number;
  latency_s: number;
  axes: number | null;
  wraps: number | null;
}

export interface Machine {
  accelerator: string;
  architecture: string;
  engines: Measured[];
}

export interface Manifest {
  kind: string;
  text: string | null;
  note: unknown;
}

export interface Measured {
  engine: string;
  evidence: string;
}

export interface Metrics {
  ttft_ms: number | null;
  tpot_ms: number | null;
  e2e_ms: number | null;
  output_tok_s: number | null;
  total_tok_s: number | null;
}

export interface Near {
  deployment: string;
  count: number;
  cost_per_hour: number | null;
  stage: string | null;
  reason: string;
  factor: number | null;
}

export interface Network {
  kind: string;
  bytes_per_s: number;
  latency_s: number;
}

export interface OfferedLoad {
  offered_per_s: number | null;
  overloaded: boolean;
  stable_per_s: number | null;
  too_short_below: unknown;
}

export interface OperatorCost {
  name: string;
  family: string;
  layers: number;
  dtype: string;
  flops: number;
  weight_bytes: number;
  kv_bytes: number;
  intensity: number;
  bound: string;
  limit_ms: number;
  forecast_ms: number;
  share: number;
  rests_on: Basis | null;
}

export interface OverTime {
  interval_s: number;
  startup_s: number;
  accelerators_each: number;
  peak_accelerators: number;
  mean_accelerators: number;
  accelerator_hours: number;
  constant_accelerator_hours: number;
  dollars: number | null;
  meets: boolean;
  intervals: ScheduleInterval[];
}

export interface Parallelism {
  tp: number;
  pp: number;
  ep: number;
  attention_dp: number;
  replicas: number;
}

export interface Parameters {
  total: number;
  active: number;
  embedding: number;
  lm_head: number;
}

export interface Picture {
  width: number;
  svg: string;
}

export interface Point {
  values: (string | number)[];
  limit_ms: number;
  weights_ms: number;
  kv_ms: number;
  flops_ms: number;
  communication_ms: number;
  limit_with_communication_ms: number;
  forecast_ms: number;
  forecast_band_ms: number[];
  bound: string;
  tokens_per_s: number;
  forecast_tokens_per_s: number;
  mfu: number;
  mbu: number;
  fits: boolean;
  usd_per_million_tokens?: number | null;
}

export interface PoolUse {
  accelerator: string;
  replicas: number;
  accelerators_each: number;
  busy: number;
  blocks: number;
  dollars_per_hour: number | null;
  joules: number | null;
}

export interface Pruned {
  memory: number;
  limit: number;
  estimate: number;
}

export interface Quality {
  format: string;
  of: string;
  note: string;
  source: string | null;
  url: string | null;
}

export interface Rank {
  budget_bytes: number;
  weight_bytes: number;
  activation_bytes: number;
  runtime_bytes: number;
  state_bytes: number;
  free_bytes: number;
  kv_bytes: number;
  short_by_bytes: number;
}

export interface Refusal {
  needed_bytes: number;
  available_bytes: number;
  short_by_bytes: number;
  budget_bytes: number;
  free_bytes: number;
  longest: number;
  gpu_memory_utilization: number | null;
  max_num_seqs: number | null;
}

export interface ReportedSettings {
  scheduler: string;
  policy: string;
  max_num_seqs: number;
  max_num_batched_tokens: number;
  max_model_len: number;
  enable_chunked_prefill: boolean;
  enable_prefix_caching: boolean;
  leap: boolean;
}

export interface Ridge {
  dtype: string;
  flops_per_byte: number;
}

export interface Row {
  id: string;
  source: string;
  kind: string;
  model: string;
  hardware: string;
  topology: string;
  engine: string;
  engine_version: string;
  weights: string;
  kv: string;
  input_len: number | null;
  output_len: number | null;
  concurrency: number | null;
  request_rate: number | null;
  measured: Metrics;
  forecast: Metrics | null;
  limit: Metrics;
  left_out: string | null;
  evidence: string;
  bands: (number[] | null)[];
}

export interface Run {
  source: string;
  kind: string;
  concurrency: number | null;
  request_rate: number | null;
  input_len: number | null;
  output_len: number | null;
  measured: Metrics;
  forecast: Metrics | null;
  limit: Metrics;
  left_out: string | null;
  evidence: string;
  bands: (number[] | null)[];
  bound: string;
  terms: Terms;
  limit_share: number | null;
  advice: string;
}

export interface ScalingUse {
  replica_seconds: number;
  mean_replicas: number;
  max_replicas: number;
  started: number;
  stopped: number;
}

export interface ScheduleInterval {
  from_s: number;
  requests: number;
  alone: number | null;
  replicas: number;
  meets: boolean;
  bounds: Bounded[];
}

export interface SeriesPoint {
  start_ms: number;
  end_ms: number;
  running: number;
  waiting: number;
  blocks: number;
  preemptions: number;
  prefill_tokens_per_s: number;
  output_tokens_per_s: number;
}

export interface Skipped {
  reason: string;
  rows: number;
}

export interface Slo {
  ttft_p99_ms: number | null;
  tpot_p99_ms: number | null;
  e2el_p99_ms: number | null;
  goodput: number | null;
  tpot_p90_ms?: number | null;
}

export interface SmallestCount {
  accelerator: string;
  count: number;
  weights: string;
}

export interface SmallestTopology {
  count: number;
  tp: number;
  pp: number;
  decode_bound: string;
  shape?: number[] | null;
}

export interface Span {
  factors: number[];
  range: number[];
}

export interface Start {
  max_model_len: number;
  weight_bytes: number;
  kv_bytes: number;
  kv_tokens: number;
  max_concurrency: number;
  refusal: Refusal | null;
  max_running_requests?: number | null;
}

export interface Stay {
  phase: string;
  start_ms: number;
  end_ms: number;
}

export interface Step {
  start_ms: number;
  end_ms: number;
  steps: number;
  running: number;
  decodes: number;
  waiting: number;
  chunks: number;
  prefill_tokens: number;
  output_tokens: number;
  kv_blocks: number;
  bound: string;
}

export interface Tables {
  layout: string;
  read_bytes: number;
  sent_bytes: number;
}

export interface TensorParallel {
  compute_bound_width: number;
  memory_bound_width: number;
  degrees: Degree[];
  useful_tp: number;
}

export interface Terms {
  weights_ms: number;
  kv_ms: number;
  flops_ms: number;
  communication_ms: number;
}

export interface TimeShares {
  memory_s: number;
  compute_s: number;
  communication_s: number;
  host_s: number;
  swap_s: number;
  idle_s: number;
}

export interface Timed {
  engine: string;
  version: string;
  accelerator: string;
}

export interface Timeline {
  steps: Step[];
  requests: Life[];
  cut_at_ms: number | null;
}

export interface Times {
  tpot_ms: number;
  prefill_ms: number;
}

export interface Traffic {
  id: string;
  about: string;
  rate: number | null;
}

export interface TransferUse {
  count: number;
  mean_ms: number;
}

export interface View {
  report: {
    schema: string;
    rows: number;
    predicted: number;
    metrics: Record<string, Errors>;
    skipped: Skipped[];
    kinds: Record<string, ErrorStatistics>;
    sources: Record<string, ErrorStatistics>;
    engines: Record<string, ErrorStatistics>;
    hardware: Record<string, ErrorStatistics>;
    groups: {
      group: string;
      rows: number;
      predicted: number;
      metrics: Record<string, Errors>;
    }[];
    drafts: unknown[];
  };
  rows: Row[];
}

export interface WhatIf {
  change: string;
  meets: boolean;
  because: string;
  chance: number | null;
  replicas: unknown;
}
