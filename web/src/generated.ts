// Written by `UPDATE_TYPES=1 cargo test -p roofcast-cli --lib schemas` from the structs that answer; do not edit.

export interface CatalogAnswer {
  version: string;
  models: EntryLine[];
  accelerators: EntryLine[];
  workloads: Recorded[];
  flags: Record<string, Record<string, string>>;
}

export interface LimitsAnswer {
  report: LimitsDocument;
  capacity: CapacityDocument;
  accelerator: Accelerator;
  start: Start;
  refusal: string | null;
  economy: Picture[];
}

export interface LimitsSweepAnswer {
  report: LimitsSweepDocument;
  pictures: Picture[];
  table: Tabled;
}

export interface CapacityAnswer {
  report: CapacityDocument;
  accelerator: Accelerator;
  start: Start;
  refusal: string | null;
  lengths: Length[];
  pictures: Picture[];
}

export interface RunAnswer {
  report: SimulationDocument;
  question: string;
  slo: Slo;
  distributions: Distribution[];
  series: SeriesPoint[][];
  timelines: Timeline[];
}

export interface RunSweepAnswer {
  report: SweepDocument;
  pictures: Picture[];
  table: Tabled;
}

export interface PlanAnswer {
  report: PlanDocument;
  question: string;
  ttft_p99_ms: number | null;
  tpot_p99_ms: number | null;
  e2el_p99_ms: number | null;
  input_mean: number | null;
  output_mean: number | null;
}

export interface CurvesAnswer {
  report: CurvesDocument;
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
  report: ErrorReportDocument;
  rows: Row[];
}

export interface AccuracyAnswer {
  bands: Band[];
  machines: Machine[];
  tables: string[];
  measured: ValidateAnswer | null;
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
  memory_options?: MemoryOption[];
  bandwidth_bytes_per_s: number;
  sustained_bandwidth?: number;
  node_size: number;
  host_speed: number;
  multiprocessors?: number;
  fp16_accumulate_flops?: number;
  in_band_ecc?: boolean;
  power_w: number | null;
  notes: string;
  peak_flops: Record<string, number>;
  sustained_flops?: Record<string, number>;
  link: Link | null;
  network: Network | null;
  host_link?: HostLink;
  price: HourlyPrice | null;
  sources: Citation[];
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

export interface AdapterCost {
  adapters: number;
  max_lora_rank: number;
  bytes: number;
  limit_ms: number;
  forecast_ms: number;
  load_ms: number;
}

export interface AdapterUse {
  adapters: number;
  max_loras: number;
  adapter_bytes: number;
  loads: number;
  reads: number;
  loading_s: number;
  computing_s: number;
  waits: number;
  mean_wait_s: number | null;
}

export interface AddedTimes {
  small_kernels_ms: number;
  launches_ms: number;
  host_ms: number;
  server_ms: number;
  links_ms: number;
}

export interface AgainstApi {
  input: number;
  output: number;
  cached: number | null;
  api_dollars_per_request: number;
  requests_per_s: number;
  beats: boolean;
  from_requests_per_s: number;
  reached: boolean | null;
}

export interface AllReduce {
  algorithm: string;
  bandwidth_ms: number;
  latency_ms: number;
}

export interface AtSpeed {
  tok_s: number;
  curve: string;
  point: CurvePoint;
}

export interface Band {
  evidence: "nothing" | "family" | "architecture" | "accelerator" | "engine";
  step: Widths;
  prompt: Widths;
  closed_loop: Widths;
  at_once: Widths;
  open_loop: Widths;
  disaggregated: Widths;
}

export interface Bands {
  evidence: "nothing" | "family" | "architecture" | "accelerator" | "engine";
  rests_on: string;
  load: "step" | "prompt" | "closed_loop" | "at_once" | "open_loop" | "disaggregated";
  ttft_ms: Span;
  tpot_ms: Span | null;
  e2el_ms: Span;
  output_tok_s: Span | null;
}

export interface Basis {
  evidence: "nothing" | "family" | "architecture" | "accelerator" | "engine";
  exact: boolean;
  kernel: string;
  in_place_of?: string;
}

export interface Bounded {
  metric: string;
  percentile: string;
  ms: number;
  most_ms: number;
  over_seeds: [number, number] | null;
  interval: [number, number] | null;
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
  host?: HostUse;
}

export interface CapacityDocument {
  schema: string;
  model: string;
  hardware: string;
  count: number;
  parallelism: Parallelism;
  weights: string;
  kv: string;
  activations: "fp32" | "tf32" | "fp16" | "bf16" | "fp8" | "int8" | "fp6" | "fp4" | "int4";
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
  host_kv_tokens?: number;
  storage_kv_tokens?: number;
  max_batch: number;
  longest_context: number;
  users: number;
  deployments_for_users: number | null;
  min_accelerators: number | null;
  smallest_topology: SmallestTopology | null;
  in_stages: SmallestTopology | null;
  ranks: Rank[];
  startup: Startup;
  start?: Start;
  measured?: MeasuredStart;
  tensors?: TensorRow[];
  checkpoint?: CheckpointFiles;
}

export interface Carbon {
  grams: number;
  grams_per_million_output_tokens: number | null;
  grid_g_per_kwh: number;
  pue: number;
}

export interface Cell {
  shown: string;
  number: number | null;
}

export interface ChangedDeployment {
  change: string;
  meets: boolean;
  because: string | null;
  ttft_p99_ms: number;
  tpot_p99_ms: number;
  e2el_ms: number;
  output_tok_s: number;
  gain: number;
}

export interface CheckpointFiles {
  bytes: number;
  types: CheckpointType[];
  differences: Difference[];
}

export interface CheckpointType {
  dtype: string;
  tensors: number;
  elements: number;
  bytes: number;
}

export interface Choice {
  accelerator: string;
  count: number;
  tp: number;
  pp: number;
  ep: number;
  attention_dp: number;
  replicas: number;
  prefill: PoolChoice | null;
  beside: PoolChoice | null;
  weights: string;
  kv: string;
  engine: string;
  router: string;
  enable_chunked_prefill: boolean;
  enable_prefix_caching: boolean;
  host_tier_gib?: number;
  num_speculative_tokens: number | null;
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
  lifted_by?: string;
  stage: "memory" | "limit" | "estimate" | "simulation";
  evidence: "nothing" | "family" | "architecture" | "accelerator" | "engine" | null;
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
  cost_per_request: number | null;
  classes?: ClassCost[];
  joules_per_token: number | null;
  grams_co2e_per_million_tokens?: number;
  prefill_per_decode: number;
  bands: Bands | null;
  spec: Record<string, unknown>;
}

export interface Citation {
  of: string;
  url: string;
}

export interface ClassCost {
  name: string;
  share: number;
  dollars_per_request: number | null;
}

export interface ClassExpense {
  share: number;
  dollars_per_hour: number | null;
  dollars_per_request: number | null;
  dollars_per_million_output_tokens: number | null;
}

export interface ClassResults {
  name: string;
  adapter?: string;
  requests: number;
  refused: number;
  rejected: number;
  slo: Slo;
  good: number | null;
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
  expense: ClassExpense;
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
  forecast_band_ms: [number, number];
  forecast_source: string;
  forecast_evidence: "nothing" | "family" | "architecture" | "accelerator" | "engine" | null;
  bound: "memory" | "compute" | "communication";
  forecast_bound: string;
  lifted_by?: string;
  terms: Terms;
  mfu: number;
  mbu: number;
  intensity: number;
  communication: Communication;
  operators: OperatorCost[];
  beside: AddedTimes;
  all_reduces_rest_on?: Basis;
}

export interface CriticalBatch {
  weight_bits: number;
  dtype: "fp32" | "tf32" | "fp16" | "bf16" | "fp8" | "int8" | "fp6" | "fp4" | "int4";
  batch: number;
}

export interface Current {
  count: number;
  accelerator: string;
  cost_per_hour: number | null;
  measured: Metrics;
  forecast: Metrics;
  limit: Metrics;
  slower: number;
  notes: string[];
  now: ChangedDeployment;
  changes: ChangedDeployment[];
}

export interface Curve {
  name: string;
  accelerator: string;
  usd_per_hour: number | null;
  points: CurvePoint[];
  best: CurvePoint | null;
}

export interface CurvePoint {
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
  grams_co2e_per_million_tokens?: number;
  bound: string;
  missed: string | null;
  evidence: "nothing" | "family" | "architecture" | "accelerator" | "engine" | null;
  kernels: Timed | null;
  bands: Bands | null;
}

export interface CurvesDocument {
  schema: string;
  model: string;
  cost: "limit" | "forecast";
  load: string;
  slo: string;
  curves: Curve[];
  at_speed: AtSpeed[];
  left_out: string[];
  simulated: number;
  interrupted: boolean;
}

export interface Degree {
  tp: number;
  limit_ms: number;
  communication_ms: number;
  bound: "memory" | "compute" | "communication";
}

export interface Difference {
  place: string;
  config: number;
  file: number;
  tensors: string[];
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
  kv_layout?: "paged" | "flashinfer" | "vattention" | "contiguous";
}

export interface EntryLine {
  kind: "accelerator" | "model";
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

export interface ErrorReportDocument {
  schema: string;
  rows: number;
  predicted: number;
  metrics: Record<string, Errors>;
  skipped: Skipped[];
  kinds: Record<string, ErrorStatistics>;
  sources: Record<string, ErrorStatistics>;
  engines: Record<string, ErrorStatistics>;
  hardware: Record<string, ErrorStatistics>;
  groups: GroupErrors[];
  drafts: string[];
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
  watts: number | null;
  joules_per_output_token: number | null;
  carbon?: Carbon;
}

export interface ExpertsTouched {
  count: number;
  per_token: number;
  distinct: number;
  least_ms: number;
}

export interface FailureUse {
  count: number;
  retried: number;
  lost: number;
  down_s: number;
  availability: number;
}

export interface FirstWave {
  completed: number;
  good: number | null;
  mean_ttft_ms: number;
}

export interface FleetUse {
  accelerators: number;
  prefill: PoolUse | null;
  serving: PoolUse;
  beside: PoolUse | null;
  transfers: TransferUse | null;
  autoscale: ScalingUse | null;
  failures?: FailureUse;
  prefixes: FoundPrefixes | null;
  oracle?: OracleHits;
}

export interface FlopsPerDollar {
  accelerator: string;
  usd_per_hour: number;
  flops_per_dollar: number;
}

export interface FoundPrefixes {
  prompt_tokens: number;
  found_tokens: number;
  most_tokens: number;
}

export interface GroupErrors {
  group: string;
  rows: number;
  predicted: number;
  metrics: Record<string, Errors>;
}

export interface Headroom {
  metric: string;
  percentile: string | null;
  share: number;
}

export interface HostLink {
  kind: string;
  bytes_per_s: number;
  memory_bytes_per_s?: number;
}

export interface HostUse {
  tokens: number;
  device_hit_rate: number;
  host_hit_rate: number;
  loaded_tokens: number;
  loaded_bytes: number;
  stored_tokens: number;
  stored_bytes: number;
  dropped_tokens?: number;
  loading_s: number;
  spared_s: number;
  storage?: StorageUse;
}

export interface HourlyPrice {
  usd_per_hour: number;
  date: string;
  source: string;
}

export interface ImageCost {
  tokens: number;
  patches: number;
  frame_pairs: number;
  weight_bytes: number;
  cache_bytes: number;
  limit_ms: number;
  forecast_ms: number;
}

export interface ImageUse {
  count: number;
  tokens: number;
  patches: number;
  encoder_ms: number;
}

export interface Job {
  requests: number;
  within_s: number;
}

export interface KvCache {
  cached_ms: number;
  recomputed_ms: number;
  kv_flops_share: number;
  break_even_context: number;
}

export interface Launch {
  role: "replica" | "prefill" | "decode" | "beside";
  replicas: number;
  engine: string;
  nodes: number;
  command: string | null;
  on_others: string | null;
  note: string | null;
  assumed?: string[];
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

export interface LimitsCompared {
  name: string;
  forecast_ms: number;
}

export interface LimitsDocument {
  schema: string;
  model: string;
  hardware: string;
  count: number;
  parallelism: Parallelism;
  weights: string;
  kv: string;
  activations: "fp32" | "tf32" | "fp16" | "bf16" | "fp8" | "int8" | "fp6" | "fp4" | "int4";
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
  decode_forecast_tokens_per_s: number;
  prefill: Cost;
  prefill_tokens_per_s: number;
  prefill_forecast_tokens_per_s: number;
  ridge: Ridge[];
  critical_batch: CriticalBatch[];
  all_reduce: AllReduce[];
  tensor_parallel: TensorParallel;
  experts: ExpertsTouched | null;
  kv_cache: KvCache;
  adapters?: AdapterCost;
  image?: ImageCost;
}

export interface LimitsPoint {
  values: (boolean | number | string)[];
  limit_ms: number;
  weights_ms: number;
  kv_ms: number;
  flops_ms: number;
  communication_ms: number;
  limit_with_communication_ms: number;
  forecast_ms: number;
  forecast_band_ms: [number, number];
  bound: "memory" | "compute" | "communication";
  tokens_per_s: number;
  forecast_tokens_per_s: number;
  mfu: number;
  mbu: number;
  tokens: number;
  fits: boolean;
  usd_per_million_tokens?: number;
  evicted_tokens_per_step?: number;
  compared?: LimitsCompared[];
}

export interface LimitsSweepDocument {
  schema: string;
  model?: string;
  hardware?: string;
  count?: number;
  parallelism?: Parallelism;
  weights?: string;
  kv?: string;
  activations?: "fp32" | "tf32" | "fp16" | "bf16" | "fp8" | "int8" | "fp6" | "fp4" | "int4";
  engine?: EngineSettings;
  convention?: string;
  ideal?: boolean;
  assumptions?: string[];
  sweep: string[];
  points: LimitsPoint[];
  interrupted: boolean;
  skipped?: string[];
}

export interface Link {
  kind: string;
  topology: "switch" | "ring" | "mesh" | "torus" | "pcie" | "host";
  bytes_per_s: number;
  latency_s: number;
  axes: number | null;
  wraps: number | null;
}

export interface Machine {
  accelerator: string;
  architecture: string;
  engines: MachineEvidence[];
}

export interface MachineEvidence {
  engine: string;
  evidence: "nothing" | "family" | "architecture" | "accelerator" | "engine";
}

export interface Manifest {
  kind: string;
  text: string | null;
  note: string | null;
}

export interface MeasuredStart {
  terms: TermComparison[];
  unexplained_bytes?: number;
}

export interface MemoryOption {
  id: string;
  name: string;
  aliases: string[];
  memory_bytes: number;
  usable_bytes: number;
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
  stage: "memory" | "limit" | "estimate" | "simulation" | null;
  reason: string;
  factor: number | null;
  meets_at_requests_per_s?: number;
  meets_at_users?: number;
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
  too_short_below: number | null;
}

export interface OperatorCost {
  name: string;
  family: "gemm" | "attention" | "indexer" | "moe" | "embedding" | "elementwise";
  on_host?: boolean;
  layers: number;
  dtype: "fp32" | "tf32" | "fp16" | "bf16" | "fp8" | "int8" | "fp6" | "fp4" | "int4";
  flops: number;
  weight_bytes: number;
  kv_bytes: number;
  intensity: number;
  bound: "memory" | "compute" | "communication";
  limit_ms: number;
  forecast_ms: number;
  share: number;
  rests_on?: Basis;
}

export interface OracleHits {
  capacity_tokens: number;
  prompt_tokens: number;
  found_tokens: number;
  most_tokens: number;
}

export interface OverTime {
  interval_s: number;
  startup_s: number;
  confidence: number;
  slower: number;
  accelerators_each: number;
  peak_accelerators: number;
  mean_accelerators: number;
  accelerator_hours: number;
  constant_accelerator_hours: number;
  dollars: number | null;
  meets: boolean;
  intervals: ScheduleInterval[];
}

export interface OversizedRequests {
  requests: number;
  smallest: number;
  burst: number;
  key: string;
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

export interface PlanDocument {
  schema: string;
  model: string;
  cost: "limit" | "forecast";
  considered: number;
  pruned: Pruned;
  simulated: number;
  dearer: number;
  feasible: number;
  missed: number;
  requests: number;
  confidence: number;
  confident: boolean;
  interrupted: boolean;
  at_least: number | null;
  unjudged: number;
  assumptions: string[];
  best: Choice | null;
  cheaper: Choice[];
  pareto: Choice[];
  pareto_throughput: Choice[];
  by_accelerator: Choice[];
  ranked: Choice[];
  nearest: Near[];
  not_searched: string[];
  minimise: "cost_per_hour" | "cost_per_million_tokens" | "accelerators" | "energy";
  unpriced: string[];
  left_out: LeftOut[];
  not_apart: string[];
  smallest: SmallestCount[];
  what_if: WhatIf[];
  over_time?: OverTime;
  against_api?: AgainstApi;
  without_pools?: Near;
  why: Near[];
  launch: Launch[];
  manifests: Manifest[];
  quality: Quality[];
  flops_per_dollar: FlopsPerDollar[];
  spec: string | null;
  bench: string | null;
  current?: Current;
  job?: Job;
  removed?: string[];
}

export interface Point {
  values: (boolean | number | string)[];
  model: string;
  hardware: string;
  count: number;
  parallelism: Parallelism;
  weights: string;
  kv: string;
  activations: "fp32" | "tf32" | "fp16" | "bf16" | "fp8" | "int8" | "fp6" | "fp4" | "int4";
  engine: EngineSettings;
  convention: string;
  ideal: boolean;
  assumptions: string[];
  cost: "limit" | "forecast";
  interrupted: boolean;
  requests: number;
  refused: number;
  rejected: number;
  oversized?: OversizedRequests;
  overflowed: number;
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
  bound: string;
  lifted_by?: string;
  preemption?: PreemptionCosts;
  limit_tpot_ms: number;
  expense: Expense;
  fleet: FleetUse;
  load: OfferedLoad;
  images?: ImageUse;
  adapters?: AdapterUse;
  first_wave?: FirstWave;
  classes?: ClassResults[];
  sessions: RecordedSessions | null;
  bands: Bands | null;
  sampling: SamplingErrors;
  measured?: TpotComparison;
}

export interface PoolChoice {
  accelerator: string;
  replicas: number;
  tp: number;
  pp: number;
  ep: number;
  attention_dp: number;
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

export interface PreemptionCosts {
  tokens: number;
  swap_ms: number;
  recompute_ms: number;
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
  adapter_bytes?: number;
  activation_bytes: number;
  runtime_bytes: number;
  state_bytes: number;
  host_bytes?: number;
  free_bytes: number;
  kv_bytes: number;
  short_by_bytes: number;
}

export interface Recorded {
  id: string;
  about: string;
  rate: number | null;
}

export interface RecordedSessions {
  completed: number;
  mean_task_s: number;
  median_task_s: number;
  p90_task_s: number;
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
  scheduler: "static" | "orca" | "vllm-v0" | "vllm" | "sarathi" | "splitfuse" | "lightllm" | "sglang" | "llama.cpp" | "tensorrt-llm" | "tensorrt-llm-max-utilization";
  policy: "fcfs" | "priority" | "sjf";
  max_num_seqs: number;
  max_num_batched_tokens: number;
  max_model_len: number;
  enable_chunked_prefill: boolean;
  enable_prefix_caching: boolean;
  leap: boolean;
}

export interface Ridge {
  dtype: "fp32" | "tf32" | "fp16" | "bf16" | "fp8" | "int8" | "fp6" | "fp4" | "int4";
  flops_per_byte: number;
}

export interface Row {
  id: string;
  source: string;
  kind: "decode_step" | "prefill" | "prefill_batch" | "static_batch_phases" | "offline_static_batch" | "closed_loop" | "open_loop" | "offline_max_throughput" | "burst_all_at_once" | "disaggregated";
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
  evidence: "nothing" | "family" | "architecture" | "accelerator" | "engine";
  bands: ([number, number] | null)[];
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
  evidence: "nothing" | "family" | "architecture" | "accelerator" | "engine";
  bands: ([number, number] | null)[];
  bound: "memory" | "compute" | "communication";
  terms: Terms;
  limit_share: number | null;
  advice: string;
  notes: string[];
}

export interface SamplingError {
  mean: number;
  p99_ms: [number, number];
  p99_open: boolean;
  requests_for_p99: number | null;
}

export interface SamplingErrors {
  ttft: SamplingError | null;
  tpot: SamplingError | null;
  e2el: SamplingError | null;
  unsettled: string[];
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
  to_s: number;
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

export interface SimulationDocument {
  schema: string;
  model: string;
  hardware: string;
  count: number;
  parallelism: Parallelism;
  weights: string;
  kv: string;
  activations: "fp32" | "tf32" | "fp16" | "bf16" | "fp8" | "int8" | "fp6" | "fp4" | "int4";
  engine: EngineSettings;
  convention: string;
  ideal: boolean;
  assumptions: string[];
  cost: "limit" | "forecast";
  interrupted: boolean;
  requests: number;
  refused: number;
  rejected: number;
  oversized?: OversizedRequests;
  overflowed: number;
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
  bound: string;
  lifted_by?: string;
  preemption?: PreemptionCosts;
  limit_tpot_ms: number;
  expense: Expense;
  fleet: FleetUse;
  load: OfferedLoad;
  images?: ImageUse;
  adapters?: AdapterUse;
  first_wave?: FirstWave;
  classes?: ClassResults[];
  sessions: RecordedSessions | null;
  bands: Bands | null;
  sampling: SamplingErrors;
  measured?: TpotComparison;
}

export interface Skipped {
  reason: string;
  rows: number;
}

export interface Slo {
  ttft_p50_ms?: number;
  ttft_p90_ms?: number;
  ttft_p95_ms?: number;
  ttft_p99_ms: number | null;
  ttft_p999_ms?: number;
  tpot_p50_ms?: number;
  tpot_p90_ms?: number;
  tpot_p95_ms?: number;
  tpot_p99_ms: number | null;
  tpot_p999_ms?: number;
  e2el_p50_ms?: number;
  e2el_p90_ms?: number;
  e2el_p95_ms?: number;
  e2el_p99_ms: number | null;
  e2el_p999_ms?: number;
  itl_p50_ms?: number;
  itl_p90_ms?: number;
  itl_p95_ms?: number;
  itl_p99_ms?: number;
  itl_p999_ms?: number;
  goodput: number | null;
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
  shape?: number[];
  decode_bound: "memory" | "compute" | "communication";
}

export interface Span {
  factors: [number, number];
  range: [number, number];
}

export interface Start {
  max_model_len: number;
  weight_bytes: number;
  kv_bytes: number;
  kv_tokens: number;
  max_concurrency: number;
  max_running_requests?: number;
  refusal: Refusal | null;
}

export interface StartPart {
  part: string;
  seconds: number;
  source: string;
}

export interface Startup {
  seconds: number;
  bytes: number;
  bytes_per_s: number;
  first_s: number;
  parts: StartPart[];
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

export interface StorageUse {
  tokens: number;
  hit_rate: number;
  loaded_tokens: number;
  loaded_bytes: number;
  stored_tokens: number;
  stored_bytes: number;
  loading_s: number;
}

export interface SweepDocument {
  schema: string;
  sweep: string[];
  interrupted: boolean;
  skipped?: string[];
  points: Point[];
}

export interface Tabled {
  names: string[];
  rows: Cell[][];
}

export interface Tables {
  layout: "paged" | "flashinfer" | "vattention" | "contiguous";
  read_bytes: number;
  sent_bytes: number;
}

export interface TensorParallel {
  compute_bound_width: number;
  memory_bound_width: number;
  degrees: Degree[];
  useful_tp: number;
}

export interface TensorRow {
  tensor: string;
  operator: string;
  layers: number;
  copies: number;
  shape: [number, number];
  format: string;
  bits: number;
  parameters: number;
  bytes: number;
  flops_per_token: number;
}

export interface TermComparison {
  term: "budget" | "weights" | "activations" | "runtime" | "graphs" | "kv" | "kv-tokens" | "concurrency";
  measured: number;
  forecast: number;
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
  server_s: number;
  overlapped_s: number;
  swap_s: number;
  idle_s: number;
  reading_s: number;
  arithmetic_s: number;
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

export interface TpotComparison {
  tpot_ms: number;
  forecast_ms: number;
  band_ms: [number, number] | null;
  limit_ms: number;
  over_forecast: number;
  over_limit: number;
  verdict: "below_limit" | "fast" | "as_forecast" | "slow";
}

export interface TransferUse {
  count: number;
  mean_ms: number;
  alone_ms: number;
}

export interface WhatIf {
  change: string;
  meets: boolean;
  because: string;
  chance: number | null;
  replicas: number | null;
}

export interface Widths {
  ttft: number;
  tpot: number;
  e2e: number;
  throughput: number;
}
