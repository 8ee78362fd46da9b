//! Times of attention and recurrences: decodes as lines over context, prompts over query-key pairs.
//!
//! Knows: the attention of a decode step lasts `start(n) + slope(n) · tokens of context` for n sequences. A prompt
//! chunk lasts as long as a whole prompt of x tokens with equally many query-key pairs: x² = 2 · pairs, or
//! x = (pairs + w²/2) / w with a window of w tokens. The time of a recurrence depends on the number of sequences, or
//! of prompt tokens. An attention kernel that takes more than [`KIN`] times as long as another of the chip, for the limit of its
//! work, gives way to the most similar plausible one. Knows nothing about schedules.

use super::choice::{MeasuredKernel, candidates, kin, substitutes};
use super::gate::KIN;
use super::scale::apart;
use super::{Basis, Kernels, MeasuredTimes};
use crate::coefficients::Evidence;
use crate::operator::{ContextForm, KernelShape, Operator};
use crate::profile::{Curve, KernelTable, Lines, Profiles};
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::batch::Sequences;
use roofcast_facts::precision::Dtype;

/// Seconds before an attention kernel reads at full rate: one launch and one empty tile.
const START: f64 = 4e-6;
/// Sequences of a step in which decodes read at full rate.
const MANY: f64 = 64.0;
/// Elements of DeepSeek-V3's latent and rotary key, the only MLA shape that was timed.
const LATENT: [f64; 2] = [512.0, 64.0];
const EXPANDED: f64 = 192.0 + 128.0;

/// Measured times of attention or of a recurrence in one layer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Context {
    decodes: Decodes,
    /// Seconds of a whole prompt, over its tokens.
    prompts: Curve,
    /// Window in tokens of the timed prompt kernel; `None` for full attention.
    window: Option<f64>,
    /// FLOPs of one query-key pair; `None` for a recurrence, whose work is proportional to tokens.
    pair: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
enum Decodes {
    /// Lines over context, by number of sequences.
    Attention(Lines),
    /// Times by number of sequences alone.
    Recurrence(Curve),
}

impl Context {
    /// Time of a step of `n` decodes as a start in seconds and a slope in seconds per token of context.
    #[inline]
    pub(crate) fn decodes(&self, n: f64) -> [f64; 2] {
        match &self.decodes {
            _ if n <= 0.0 => [0.0; 2],
            Decodes::Attention(lines) => lines.at(n),
            Decodes::Recurrence(curve) => [curve.at(n), 0.0],
        }
    }

    /// Seconds of the prompt chunks `chunks` in one kernel, whose start is counted once.
    pub(crate) fn prompts(&self, form: &ContextForm, chunks: &[Sequences]) -> f64 {
        let first = self.prompts.at(1.0);
        let beyond = |c: &Sequences| {
            let chunk_time = self.prompt(self.tokens(form, c)) - first;
            chunk_time.max(0.0) * c.count as f64
        };
        let pieces = chunks.iter().filter(|c| c.is_prompt() && c.count > 0);
        let (any, seconds) = pieces.fold((false, 0.0), |(_, s), c| (true, s + beyond(c)));
        if any { first + seconds } else { 0.0 }
    }

    /// The lesser of both times: of decodes by start and by slope, of prompts by tokens.
    #[must_use]
    pub(super) fn least(&self, other: &Context) -> Context {
        let decodes = match (&self.decodes, &other.decodes) {
            (Decodes::Attention(own), Decodes::Attention(other)) => Decodes::Attention(own.least(other)),
            (Decodes::Recurrence(own), Decodes::Recurrence(other)) => Decodes::Recurrence(own.least(other)),
            (own, _) => own.clone(),
        };
        let alike = self.window == other.window && self.pair == other.pair;
        let prompts = if alike { self.prompts.least(&other.prompts) } else { self.prompts.clone() };
        Context { decodes, prompts, ..self.clone() }
    }

    /// Seconds of a whole prompt of `tokens` tokens. Beyond the longest timed prompt, the time of full attention grows
    /// with the query-key pairs, the square of the tokens.
    fn prompt(&self, tokens: f64) -> f64 {
        let longest = self.prompts.last_size();
        if tokens <= longest || self.pair.is_none() || self.window.is_some() {
            return self.prompts.at(tokens);
        }
        self.prompts.at(longest) * (tokens / longest).powi(2)
    }

    /// Tokens of a whole prompt with as much work as `piece`.
    fn tokens(&self, form: &ContextForm, piece: &Sequences) -> f64 {
        let Some(pair) = self.pair else { return piece.new as f64 };
        let pairs = form.sequence.demand(piece.new, piece.context).flops / pair;
        let whole = (2.0 * pairs).sqrt();
        match self.window {
            Some(window) if whole > window => (pairs + window * window / 2.0) / window,
            _ => whole,
        }
    }
}

/// Query for a measured shape: the tables to search, the axes of the wanted shape in order, and the weight of a
/// difference along each axis.
struct ShapeQuery {
    decode: KernelTable,
    prefill: KernelTable,
    axes: Vec<f64>,
    weights: &'static [f64],
    /// Kind of recurrence.
    kind: &'static str,
}

impl ShapeQuery {
    fn of(shape: KernelShape) -> Option<ShapeQuery> {
        Some(match shape {
            KernelShape::Grouped { heads, group, head_dim, window } => ShapeQuery {
                decode: KernelTable::Decode,
                prefill: KernelTable::Prefill,
                axes: [heads, heads.div_ceil(group.max(1)), head_dim, window].map(|n| n as f64).to_vec(),
                weights: &[1.0, 1.0, 8.0, 2.0],
                kind: "",
            },
            KernelShape::Latent { heads } => ShapeQuery {
                decode: KernelTable::LatentDecode,
                prefill: KernelTable::LatentPrefill,
                axes: vec![heads as f64],
                weights: &[1.0],
                kind: "",
            },
            KernelShape::Recurrent { kind, key_heads, key_dim, value_heads, value_dim } => ShapeQuery {
                decode: KernelTable::RecurrentDecode,
                prefill: KernelTable::RecurrentPrefill,
                axes: [key_heads, key_dim, value_heads, value_dim].map(|n| n as f64).to_vec(),
                weights: &[1.0; 4],
                kind,
            },
            KernelShape::Other => return None,
        })
    }

    /// Distance of a measured shape to the wanted one; `None` if the kernel attends to other tokens.
    fn distance(&self, shape: &[u32]) -> Option<f64> {
        /// Distance added to a kernel without a window where the wanted one has a window, in squared octaves.
        const NO_WINDOW: f64 = 100.0;
        let axis_distance = |(i, weight): (usize, &f64)| match (self.axes[i] > 0.0, shape[i] > 0) {
            // A windowed kernel does not read all keys that full attention needs.
            (false, true) => None,
            (true, false) => Some(NO_WINDOW),
            (false, false) => Some(0.0),
            (true, true) => Some(weight * apart(self.axes[i], shape[i].into())),
        };
        self.weights.iter().enumerate().map(axis_distance).sum()
    }
}

/// Measured shape that is nearest to a query.
struct Found<'a> {
    candidate: MeasuredKernel<'a>,
    index: usize,
    shape: Vec<f64>,
    exact: bool,
    distance: f64,
    /// Name of the kernel in whose place this one stands because it is implausible.
    in_place_of: Option<String>,
}

/// Work of one token of context in a decode, or of one query-key pair, over all heads of a rank.
#[derive(Clone, Copy)]
struct Work {
    flops: f64,
    bytes: f64,
}

impl Work {
    /// Limit of the work on `chip`, in seconds.
    fn limit(self, chip: &Accelerator) -> f64 {
        let rate = |dtype| chip.peak_flops.get(&dtype).map(|rate| rate.0);
        let rate = rate(Dtype::Bf16).or(rate(Dtype::Fp16)).unwrap_or(f64::INFINITY);
        (self.flops / (rate * chip.held_back())).max(self.bytes / chip.kernel_bandwidth())
    }
}

impl Found<'_> {
    /// Work of one token of context in the measured decode.
    fn token(&self) -> Work {
        let bytes = if self.candidate.section.format == "fp8" { 1.0 } else { 2.0 };
        match *self.shape {
            [heads, kv_heads, head_dim, _] => {
                Work { flops: 4.0 * heads * head_dim, bytes: 2.0 * kv_heads * head_dim * bytes }
            }
            [heads] => Work {
                flops: 2.0 * heads * (2.0 * LATENT[0] + LATENT[1]),
                bytes: (LATENT[0] + LATENT[1]) * bytes,
            },
            _ => Work { flops: 0.0, bytes: 1.0 },
        }
    }

    /// FLOPs of one query-key pair in the measured prompt.
    fn pair(&self) -> f64 {
        match *self.shape {
            [heads, _, head_dim, _] => 4.0 * heads * head_dim,
            [heads] => 2.0 * heads * EXPANDED,
            _ => 1.0,
        }
    }

    /// Time of the attention kernel in multiples of the limit of its work, in decodes of many sequences or in its longest timed
    /// prompt.
    fn slowness(&self, query: &ShapeQuery, table: KernelTable) -> Option<f64> {
        let Found { candidate, index, .. } = self;
        if table == query.decode {
            let [_, slope] = candidate.section.lines(*index)?.at(MANY);
            return Some(slope / self.token().limit(candidate.chip));
        }
        let prompts = candidate.section.curve(*index)?;
        let tokens = prompts.last_size();
        let window = self.shape.get(3).copied().filter(|w| *w > 0.0 && *w < tokens);
        let pairs = window.map_or(tokens * tokens / 2.0, |w| w * (tokens - w / 2.0));
        let work = Work { flops: self.pair() * pairs, bytes: 0.0 };
        Some(prompts.at(tokens) / work.limit(candidate.chip))
    }

    /// Basis of the kernel's times.
    fn basis(&self) -> Basis {
        let basis = self.candidate.basis(self.exact);
        match &self.in_place_of {
            Some(kernel) => basis.in_place_of(kernel.clone()),
            None => basis,
        }
    }

    /// Elements of the state of a recurrence.
    fn state(shape: &[f64]) -> f64 {
        match *shape {
            [_, key_dim, value_heads, value_dim] => key_dim * value_heads * value_dim,
            _ => 1.0,
        }
    }
}

impl Kernels<'_> {
    pub(super) fn context(
        &self,
        profiles: &Profiles,
        operator: &Operator,
        form: &ContextForm,
    ) -> Option<(MeasuredTimes, Basis)> {
        let query = ShapeQuery::of(form.shape)?;
        let formats: &[&str] = if form.narrow { &["fp8", "bf16"] } else { &["bf16"] };
        let find = |table| {
            let all = candidates(&self.asking, profiles, table, formats);
            let alike = all.iter().filter(|c| query.kind.is_empty() || c.section.kernel.contains(query.kind));
            let near = alike.filter_map(|c| Found::of(*c, &query, self.chip));
            let slowness = |found: &Found| match query.kind.is_empty() {
                true => found.slowness(&query, table).unwrap_or(f64::INFINITY),
                false => 0.0,
            };
            let order = |a: &Found, b: &Found| {
                a.distance.total_cmp(&b.distance).then_with(|| slowness(a).total_cmp(&slowness(b)))
            };
            let chosen = near.min_by(order)?;
            Some(if query.kind.is_empty() {
                self.plausible_attention(profiles, &query, table, chosen)
            } else {
                chosen
            })
        };
        let decodes = find(query.decode)?;
        let prompts = find(query.prefill)?;
        let context = if query.kind.is_empty() {
            self.attention(operator, form, &decodes, &prompts)?
        } else {
            self.recurrence(&query, &decodes, &prompts)?
        };
        let basis = decodes.basis();
        let [of_decodes, of_prompts] = [&decodes, &prompts].map(|found| found.candidate.section);
        let alike = of_decodes.engine == of_prompts.engine && of_decodes.kernel == of_prompts.kernel;
        let kernel = match alike || !query.kind.is_empty() {
            true => basis.kernel,
            false => format!("{}; prompts: {}", basis.kernel, prompts.candidate.name()),
        };
        let in_place_of = basis.in_place_of.or(prompts.in_place_of);
        let basis = Basis { kernel, in_place_of, ..basis };
        // Kernels that read all keys stand for kernels that read chosen ones.
        let basis = match form.sequence.chooses() {
            true => Basis { exact: false, evidence: Evidence::Nothing, ..basis },
            false => basis,
        };
        Some((MeasuredTimes::Context(context), basis))
    }

    /// The kernel `chosen`, or the most similar plausible one of a shape as near, if another kernel of the chip of equal
    /// precision and a shape as near is [`KIN`] times as fast for the limit of its work: tables also hold kernels that an
    /// engine runs by default only where it has no other, and kernels whose work is not the operator's.
    fn plausible_attention<'a>(
        &self,
        profiles: &'a Profiles,
        query: &ShapeQuery,
        table: KernelTable,
        chosen: Found<'a>,
    ) -> Found<'a> {
        let timed = |kernel: &MeasuredKernel<'a>| {
            let found = Found::of(*kernel, query, self.chip).filter(|f| f.distance <= chosen.distance)?;
            let slowness = found.slowness(query, table)?;
            Some((slowness, found))
        };
        let alike = kin(profiles, table, &chosen.candidate);
        let fastest = alike.iter().filter_map(timed).map(|(slowness, _)| slowness).reduce(f64::min);
        let Some((fastest, slowness)) = fastest.zip(chosen.slowness(query, table)) else { return chosen };
        if slowness <= KIN * fastest {
            return chosen;
        }
        let others = substitutes(&self.asking, profiles, table, &chosen.candidate);
        let other = others.iter().filter_map(timed).find(|(slowness, _)| *slowness <= KIN * fastest);
        let in_place_of = Some(chosen.candidate.section.kernel.clone());
        other.map_or(chosen, |(_, found)| Found { in_place_of, ..found })
    }

    fn attention(
        &self,
        operator: &Operator,
        form: &ContextForm,
        decodes: &Found,
        prompts: &Found,
    ) -> Option<Context> {
        let factor = self.coefficients.factor;
        let token = form.decode.terms.iter().fold(Work { flops: 0.0, bytes: 0.0 }, |w, (_, term)| Work {
            flops: w.flops + term.flops,
            bytes: w.bytes + term.kv_bytes,
        });
        let token_limit = (token.flops / operator.rate.0).max(token.bytes / self.chip.readable_bandwidth());
        let longer = token.limit(self.chip) / decodes.token().limit(decodes.candidate.chip);
        let heads = (token.flops / decodes.token().flops.max(1.0)).max(f64::MIN_POSITIVE);
        let lines = decodes.candidate.section.lines(decodes.index)?;
        let [first, _] = lines.at(1.0);
        let start = |seconds: f64| factor * (first.min(seconds) + (seconds - first).max(0.0) * heads);
        let lines = lines.map(start, |slope| (factor * slope * longer).max(token_limit));
        // Length of a whole prompt, in which latent attention expands keys and values.
        const WHOLE: u64 = 1 << 12;
        let pair = match form.shape {
            KernelShape::Latent { .. } => {
                form.sequence.demand(WHOLE, WHOLE).flops / (WHOLE * (WHOLE + 1) / 2) as f64
            }
            _ => form.sequence.demand(1, 1).flops,
        };
        let work = |flops| Work { flops, bytes: 0.0 };
        let longer = work(pair).limit(self.chip) / work(prompts.pair()).limit(prompts.candidate.chip);
        let window = prompts.shape.get(3).copied().filter(|w| *w > 0.0);
        let limit_of = |tokens: f64| {
            let demand = form.sequence.demand(tokens as u64, tokens as u64);
            (demand.flops / operator.rate.0).max(demand.kv_bytes / self.chip.readable_bandwidth())
        };
        let curve = prompts.candidate.section.curve(prompts.index)?.map(|tokens, seconds| {
            let start = START.min(0.8 * seconds);
            (factor * (start + (seconds - start) * longer)).max(limit_of(tokens))
        });
        Some(Context { decodes: Decodes::Attention(lines), prompts: curve, window, pair: Some(pair) })
    }

    fn recurrence(&self, asked: &ShapeQuery, decodes: &Found, prompts: &Found) -> Option<Context> {
        let factor = self.coefficients.factor;
        let curve = |found: &Found| {
            let faster = found.candidate.chip.kernel_bandwidth() / self.chip.kernel_bandwidth();
            let longer = faster * Found::state(&asked.axes) / Found::state(&found.shape);
            let scaled = found.candidate.section.curve(found.index)?.map(|_, seconds| {
                let start = START.min(0.8 * seconds);
                factor * (start + (seconds - start) * longer)
            });
            Some(scaled)
        };
        let decodes = Decodes::Recurrence(curve(decodes)?);
        let prompts = curve(prompts)?;
        Some(Context { decodes, prompts, window: None, pair: None })
    }
}

impl<'a> Found<'a> {
    /// Timed shape of `candidate` that is nearest to the one `asked` for on `chip`; `None` if it attends to other tokens.
    fn of(candidate: MeasuredKernel<'a>, asked: &ShapeQuery, chip: &Accelerator) -> Option<Self> {
        let (index, shape) = candidate.section.nearest(|shape| asked.distance(shape))?;
        let distance = asked.distance(&shape)?;
        let shape: Vec<f64> = shape.iter().map(|n| f64::from(*n)).collect();
        let exact = shape == asked.axes && candidate.chip.id == chip.id;
        Some(Found { candidate, index, shape, exact, distance, in_place_of: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timed prompt of 1000 tokens takes 1 ms: one of 2000 has four times its query-key pairs and takes 4 ms; within
    /// a window, work is proportional to tokens.
    #[test]
    fn prompts_beyond_the_table_grow_with_their_pairs() {
        let prompts = Curve::new([(500.0, 0.25e-3), (1000.0, 1e-3)]).unwrap();
        let decodes = Decodes::Recurrence(prompts.clone());
        let full = Context { decodes, prompts, window: None, pair: Some(1.0) };
        assert!((full.prompt(2000.0) / 4e-3 - 1.0).abs() < 1e-12);
        assert_eq!(full.prompt(1000.0), 1e-3);
        let windowed = Context { window: Some(100.0), ..full };
        assert!((windowed.prompt(2000.0) / 2e-3 - 1.0).abs() < 1e-12);
    }
}
