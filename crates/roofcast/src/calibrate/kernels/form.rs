//! What a kernel takes, as a formula with parameters: t = max(c, m) + x min(c, m) + t0 + n passed, with c = compute/e_c and
//! m = memory/e_m.
//!
//! * In a product, whole waves of tiles make both longer: w/h times where w is above h (see [`crate::coefficients::waves`]);
//!   what it takes crosses as often as its kernel quantizes it in passes, and its sums of k values take k times a constant.
//! * In attention of prompts, c grows by a part of what all multiprocessors could compute beside the last tile.
//! * In decodes' attention m = memory (tiles + start)/context, each byte of an 8-bit cache so many times as long, times
//!   1 + x (g − 1) for groups of g heads and p/(n h) where n sequences have fewer than p KV heads h, and c is hidden.
//! * Experts read m + n s, with s for each of the n that some token passes, and copies of all tokens cross the bus, too.
//! * An all-reduce of n ranks takes m + 2 √(fill m (n - 1)) + t0, with e_m f^(3 - log2 n) for e_m; over PCIe m + t0.
//! * A module is its projections, as above, and its attention after them: the longer of its c and m.
//!
//! Knows: which parameters a part has, where they start and between what they lie. Knows nothing about rows that do not
//! tell them.

use crate::coefficients::{halvings, hops};
use crate::kernel::{Kernel, Part};

/// Logarithms of a kernel's parameters, by the constants below.
pub(super) type Parameters = [f64; COUNT];
const COUNT: usize = 9;

/// Share of the peak.
pub(super) const COMPUTE: usize = 0;
/// Share of the bandwidth.
pub(super) const MEMORY: usize = 1;
/// Share of the shorter of both that shows; in decodes what each further head of a group adds.
pub(super) const EXPOSED: usize = 2;
/// What a launch takes.
pub(super) const LAUNCH: usize = 3;
/// How often what is passed crosses the bus.
pub(super) const CROSSINGS: usize = 4;
/// The others are of one part each. Of a product: times that its waves may be longer before its computing is, and before
/// its reading is.
pub(super) const COMPUTE_SPREAD: usize = 5;
pub(super) const MEMORY_SPREAD: usize = 6;
/// Of decodes: what a byte of an 8-bit cache takes of one of 16 bits, and the tokens that starting one is worth.
pub(super) const NARROW: usize = 5;
pub(super) const START: usize = 6;
/// And the sequences times KV heads from which on they draw the share of the bandwidth.
pub(super) const PAIRS: usize = 7;
/// Of modules: the shares of peak and bandwidth in attention.
pub(super) const ATTENTION_COMPUTE: usize = 5;
pub(super) const ATTENTION_MEMORY: usize = 6;
/// Of a product, too: how often what it takes crosses the bus, and what each value of a sum takes.
pub(super) const INPUTS: usize = 7;
pub(super) const DEPTH: usize = 8;
/// Of attention of prompts: the part of the multiprocessors that waits for the last tile.
pub(super) const TAIL: usize = 5;
/// Of experts: how often the copies of all tokens cross the bus, and what an expert that some token passes takes.
pub(super) const COPIES: usize = 5;
pub(super) const TOUCHED: usize = 6;

/// Of all-reduces: what filling the pipeline takes, and times of the share for each time that ranks are halved.
pub(super) const FILL: usize = 5;
pub(super) const FEWER: usize = 6;

/// Share of the bandwidth at which the search starts, and which attention of prompts is taken to have.
pub(super) const READING: f64 = 0.85;
/// An exposed share, or one that a head adds, this small is none.
const LEAST_EXPOSED: f64 = 0.01;
const LEAST_HEAD: f64 = 0.001;

/// Where a parameter starts, and between what it lies; a fixed one between nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) start: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Bounds {
    fn between(least: f64, start: f64, most: f64) -> Bounds {
        Bounds { start: start.ln(), least: least.ln(), most: most.ln() }
    }

    fn fixed(value: f64) -> Bounds {
        Bounds::between(value, value, value)
    }

    pub(super) fn is_free(&self) -> bool {
        self.least < self.most
    }
}

/// The bounds of each parameter of a part, as far as `rows` can tell it.
pub(super) fn bounds(part: Part, rows: &[&Kernel]) -> [Bounds; COUNT] {
    let share = |start| Bounds::between(1e-3, start, 1.0);
    let crossings = |start| Bounds::between(0.01, start, 100.0);
    let launch = Bounds::between(1e-8, 5e-6, 1e-2);
    let (zero, one) = (Bounds::fixed(1e-12), Bounds::fixed(1.0));
    let exposed = Bounds::between(LEAST_EXPOSED, 0.2, 1.0);
    let (few, depth) = (Bounds::between(1e-4, 0.1, 100.0), Bounds::between(1e-12, 1e-10, 1e-8));
    let both = [share(0.7), share(READING), exposed, launch];
    let [c, m, x, t] = both;
    match part {
        Part::Gemm if rows.iter().any(|k| k.waves > 1.0) => {
            let spread = |least, start| Bounds::between(least, start, 50.0);
            [c, m, x, t, few, spread(1.0, 1.5), spread(2.0, 5.0), few, depth]
        }
        Part::Gemm => [c, m, x, t, few, one, one, few, depth],
        Part::Experts => {
            let copies = Bounds::between(1e-3, 0.1, 100.0);
            let touched = Bounds::between(1e-10, 1e-8, 1e-5);
            [c, m, x, t, Bounds::between(0.1, 5.0, 100.0), copies, touched, one, one]
        }
        // Prompts' attention reads its cache as decodes do, and tells nothing else of the bandwidth.
        Part::Prefill => {
            let tail = Bounds::between(0.01, 0.5, 10.0);
            [c, Bounds::fixed(READING), x, t, crossings(1.0), tail, one, one, one]
        }
        Part::Decode => {
            // Where all groups are alike, what their heads add is in the bandwidth, and so it is with caches.
            let differ = |of: &dyn Fn(&Kernel) -> f64| rows.iter().any(|k| of(k) != of(rows[0]));
            let group = Bounds::between(LEAST_HEAD, 0.2, 1.0);
            let group = if differ(&|k| k.group) { group } else { Bounds::fixed(LEAST_HEAD) };
            let narrow =
                if differ(&|k| f64::from(u8::from(k.narrow))) { Bounds::between(0.5, 1.1, 3.0) } else { one };
            let pairs = if differ(&|k| k.pairs) { Bounds::between(1.0, 2.0, 1000.0) } else { one };
            [c, m, group, t, zero, narrow, Bounds::between(1.0, 30.0, 1000.0), pairs, one]
        }
        // Tiles of prompts and of decodes come one after the other.
        Part::Mixed => [c, m, one, t, zero, one, one, one, one],
        Part::LatentPrefillModule | Part::LatentDecodeModule => {
            [c, m, x, t, crossings(1.0), share(0.5), share(0.7), one, one]
        }
        Part::AllReduce if rows[0].is_pipelined() => {
            let ranks = rows.iter().any(|k| k.ranks != rows[0].ranks);
            let fewer = if ranks { Bounds::between(0.5, 0.9, 2.0) } else { one };
            [c, m, zero, t, zero, Bounds::between(1e-9, 1e-6, 1e-3), fewer, one, one]
        }
        _ => [c, m, x, t, zero, one, one, one, one],
    }
}

/// Computing and reading, each by itself, a product's in whole waves.
pub(super) fn both(kernel: &Kernel, x: &Parameters, faster: f64) -> [f64; 2] {
    let longer = |spread: usize| {
        if kernel.part == Part::Gemm { (kernel.waves / x[spread].exp()).max(1.0) } else { 1.0 }
    };
    let (c, m) = (x[COMPUTE].exp() * faster, x[MEMORY].exp());
    let tail = if kernel.part == Part::Prefill { kernel.tail * x[TAIL].exp() } else { 0.0 };
    [(kernel.compute + tail) / c * longer(COMPUTE_SPREAD), kernel.memory / m * longer(MEMORY_SPREAD)]
}

/// What a kernel takes by `x`, at `faster` times the share of the peak.
pub(super) fn time(kernel: &Kernel, x: &Parameters, faster: f64) -> f64 {
    let [_, _, exposed, launch, crossings, sixth, seventh, eighth, depth] = x.map(f64::exp);
    let [computing, moving] = both(kernel, x, faster);
    let hidden = |a: f64, b: f64| a.max(b) + exposed * a.min(b);
    let work = match kernel.part {
        Part::Decode => {
            let narrow = if kernel.narrow { sixth } else { 1.0 };
            let read = keys(kernel) + if kernel.context > 0.0 { seventh / kernel.context } else { 0.0 };
            let few = if kernel.pairs > 0.0 { (eighth / kernel.pairs).max(1.0) } else { 1.0 };
            computing.max(moving * read * narrow * few * (1.0 + exposed * (kernel.group - 1.0)))
        }
        Part::LatentPrefillModule | Part::LatentDecodeModule => {
            let [computing_attention, moving_attention] = kernel.attention;
            hidden(computing, moving) + (computing_attention / sixth).max(moving_attention / seventh)
        }
        Part::AllReduce if kernel.is_pipelined() => {
            let moving = kernel.memory / (x[MEMORY] + halvings(kernel.ranks) * x[FEWER]).exp().min(1.0);
            moving + 2.0 * (sixth * hops(kernel.ranks) * moving).sqrt()
        }
        Part::Experts => hidden(computing, moving + kernel.touched * seventh) + kernel.copies * sixth,
        _ => hidden(computing, moving),
    };
    work + launch + kernel.passed * crossings + kernel.inputs * eighth + kernel.depth * depth
}

/// How many keys a decode reads in whole tiles for each one it has.
fn keys(kernel: &Kernel) -> f64 {
    if kernel.context > 0.0 {
        (kernel.context / kernel.tile).ceil() * kernel.tile / kernel.context
    } else {
        1.0
    }
}

/// What it takes at the datasheet's rates and no less.
pub(super) fn limit(kernel: &Kernel) -> f64 {
    let [computing, moving] = kernel.attention;
    (kernel.compute + computing).max(kernel.memory + moving)
}

/// The parameters of least mean logarithmic error: a pattern search along each of them and each pair, by steps that halve.
/// All but shares of a rate move four times as far: the others' errors pass for them.
pub(super) fn search(rows: &[&Kernel]) -> Parameters {
    let Some(part) = rows.first().map(|k| k.part) else { return [0.0; COUNT] };
    let bounds = bounds(part, rows);
    let is_module = matches!(part, Part::LatentPrefillModule | Part::LatentDecodeModule);
    let pace = |index| if index <= MEMORY || index >= ATTENTION_COMPUTE && is_module { 1.0 } else { 4.0 };
    let cost = |x: &Parameters| rows.iter().map(|k| (time(k, x, 1.0) / k.measured).ln().abs()).sum::<f64>();
    let directions = directions(&bounds);
    let mut x = bounds.map(|b| b.start);
    let mut best = cost(&x);
    let mut step = STEPS[0];
    while step > STEPS[1] {
        let mut moved = false;
        for direction in &directions {
            let mut next = x;
            for &(index, way) in direction {
                next[index] =
                    (x[index] + way * step * pace(index)).clamp(bounds[index].least, bounds[index].most);
            }
            let worth = cost(&next);
            if worth < best {
                (x, best, moved) = (next, worth, true);
            }
        }
        if !moved {
            step /= 2.0;
        }
    }
    x
}

/// The first and the last step of the search, in logarithms.
const STEPS: [f64; 2] = [0.5, 0.002];

/// Up and down each free parameter, and each pair of them.
fn directions(bounds: &[Bounds; COUNT]) -> Vec<Vec<(usize, f64)>> {
    let free: Vec<usize> = (0..bounds.len()).filter(|index| bounds[*index].is_free()).collect();
    let ways = [1.0, -1.0];
    let mut all: Vec<_> = free.iter().flat_map(|a| ways.map(|way| vec![(*a, way)])).collect();
    for (place, a) in free.iter().enumerate() {
        for b in &free[place + 1..] {
            all.extend(ways.iter().flat_map(|to| ways.map(|way| vec![(*a, *to), (*b, way)])));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::kernels::tests::kernel;

    /// Half the peak, half the bandwidth, a tenth of the shorter shows, 4 µs, two crossings.
    fn parameters(sixth: f64, seventh: f64) -> Parameters {
        [0.5, 0.5, 0.1, 4e-6, 2.0, sixth, seventh, 3.0, 1e-9].map(f64::ln)
    }

    fn near(kernel: &Kernel, x: &Parameters, microseconds: f64) {
        let took = time(kernel, x, 1.0) * 1e6;
        assert!((took / microseconds - 1.0).abs() < 1e-9, "{took} against {microseconds}");
    }

    /// 10 µs at the peak and 20 at the bandwidth are 20 and 40 at half of them; waves three times as long as tiles make them
    /// 3/1.5 and 3/2 times as long, 40 and 60. 60 + 0.1 · 40 + 4 + 2 · 1 = 70.
    #[test]
    fn a_product_waits_for_waves() {
        let product = Kernel { waves: 3.0, passed: 1e-6, ..kernel(10e-6, 20e-6) };
        near(&product, &parameters(1.5, 2.0), 70.0);
        // Without them 40 + 0.1 · 20 + 4 + 2 = 48.
        let one = Kernel { waves: 1.0, ..product };
        near(&one, &parameters(1.5, 2.0), 48.0);
        // Three crossings of what it takes and 1000 values a sum of a nanosecond: 48 + 3 · 0.5 + 1.
        near(&Kernel { inputs: 5e-7, depth: 1000.0, ..one }, &parameters(1.5, 2.0), 50.5);
    }

    /// Ten experts of 0.5 µs beside 40 µs of reading are 45: 45 + 0.1 · 20 + 4, and 1.5 · 2 µs for all copies: 54.
    #[test]
    fn experts_take_time_each() {
        let experts = Kernel { part: Part::Experts, touched: 10.0, copies: 2e-6, ..kernel(10e-6, 20e-6) };
        near(&experts, &parameters(1.5, 5e-7), 54.0);
    }

    /// 0.4 of the 5 µs of all multiprocessors lengthen computing to (10 + 2)/0.5: 40 + 0.1 · 24 + 4 = 46.4.
    #[test]
    fn a_prompt_ends_with_its_last_tile() {
        let prompt = Kernel { part: Part::Prefill, tail: 5e-6, ..kernel(10e-6, 20e-6) };
        near(&prompt, &parameters(0.4, 1.0), 46.4);
    }

    /// 100 keys are two tiles of 64, and starting is worth 32 more: (128 + 32)/100 of 10 µs at half the bandwidth, each byte
    /// 1.5 times as long, and 1 + 0.1 · (6 − 1) times for groups of six: 20 · 1.6 · 1.5 · 1.5 + 4 = 76.
    #[test]
    fn a_decode_reads_tiles() {
        let part = Part::Decode;
        let decode = Kernel { part, context: 100.0, narrow: true, group: 6.0, ..kernel(0.0, 10e-6) };
        near(&decode, &parameters(1.5, 32.0), 76.0);
        near(&Kernel { narrow: false, ..decode.clone() }, &parameters(1.5, 32.0), 52.0);
        // Three pairs of a sequence and a KV head draw the half of the bandwidth; one and a half draw half of that.
        near(&Kernel { pairs: 1.5, ..decode.clone() }, &parameters(1.5, 32.0), 148.0);
        near(&Kernel { pairs: 6.0, ..decode }, &parameters(1.5, 32.0), 76.0);
    }

    /// Two ranks, halved twice from eight, draw 0.5 · 0.8² of the link: 10/0.32 = 31.25 µs, a fill of 2 µs makes them 2 √62.5
    /// longer, and 4 to start. Eight draw 0.5 of it, 20 µs, and fill for 14: 20 + 2 √280 + 4.
    #[test]
    fn an_all_reduce_fills_its_pipeline() {
        let two = Kernel { part: Part::AllReduce, ranks: 2, ..kernel(0.0, 10e-6) };
        near(&two, &parameters(2e-6, 0.8), 35.25 + 2.0 * 62.5_f64.sqrt());
        near(&Kernel { ranks: 8, ..two }, &parameters(2e-6, 0.8), 24.0 + 2.0 * 280.0_f64.sqrt());
    }

    /// Projections of 20 and 40 µs take 40 + 0.1 · 20, attention the longer of 3/0.5 and 8/0.8, then 4 and 2 · 1: 58.
    #[test]
    fn a_module_is_projections_and_then_attention() {
        let part = Part::LatentDecodeModule;
        let module = Kernel { part, attention: [3e-6, 8e-6], passed: 1e-6, ..kernel(10e-6, 20e-6) };
        near(&module, &parameters(0.5, 0.8), 58.0);
        assert!((limit(&module) - 28e-6).abs() < 1e-15);
    }

    /// What made decodes' times is found from them: 1.4 times for 8-bit caches, 50 tokens to start.
    #[test]
    fn what_made_the_times_is_found() {
        let made = [1.0, 0.8, 0.05, 8e-6, 1e-12, 1.4, 50.0, 1.0, 1.0].map(f64::ln);
        let row = |i: i32| {
            let (batch, context) = (f64::from(i % 8 + 1), f64::from(64 << (i / 8 % 8)) + 10.0);
            let group = if i % 5 < 2 { 1.0 } else { 8.0 };
            let memory = batch * context * 2e-7;
            let row = Kernel {
                part: Part::Decode,
                context,
                group,
                narrow: i % 3 == 0,
                ..kernel(0.0, memory * if i % 3 == 0 { 0.5 } else { 1.0 })
            };
            Kernel { measured: time(&row, &made, 1.0), ..row }
        };
        let rows: Vec<Kernel> = (0..960).map(row).collect();
        let x = search(&rows.iter().collect::<Vec<_>>()).map(f64::exp);
        assert!((x[NARROW] / 1.4 - 1.0).abs() < 0.02 && (x[START] / 50.0 - 1.0).abs() < 0.05, "{x:?}");
        assert!((x[MEMORY] / 0.8 - 1.0).abs() < 0.02 && (x[LAUNCH] / 8e-6 - 1.0).abs() < 0.05, "{x:?}");
    }
}
