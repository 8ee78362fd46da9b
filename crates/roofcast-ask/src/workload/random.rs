//! Seeded random numbers that are identical on every machine.
//!
//! Knows: ChaCha8, one stream per purpose, and draws from the basic distributions. Logarithms and powers come from
//! `elementary` and `libm`, in Rust, and never from the platform's library, whose last bit may differ. Knows nothing
//! about the values that are drawn.

use super::elementary::log;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Purpose of a stream. Streams of one seed are independent: a change in the draws from one leaves the others
/// unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Times of arrival.
    Arrivals = 1,
    /// Prompt lengths.
    Input,
    /// Output lengths.
    Output,
    /// Think times of users.
    Think,
    /// Errors of predicted output lengths.
    Guess,
    /// Choices of a shared prefix.
    Prefix,
    /// Priorities.
    Priority,
    /// Turns of a session.
    Turns,
    /// Acceptance of drafts.
    Acceptance,
    /// Classes of requests.
    Class,
    /// Failures of replicas.
    Failures,
    /// Choices of an adapter.
    Adapter,
    /// Positions in recorded sessions at which a run begins.
    Snapshot,
}

/// One stream of random numbers.
#[derive(Debug, Clone)]
pub struct Stream {
    rng: ChaCha8Rng,
    /// The second normal of the last pair; `None` if it is used.
    spare: Option<f64>,
}

impl Stream {
    /// Stream of `purpose` under a seed.
    pub fn new(seed: u64, purpose: Purpose) -> Stream {
        Stream::part(seed, purpose, 0)
    }

    /// Stream number `part` of a purpose; part 0 is [`Stream::new`].
    pub fn part(seed: u64, purpose: Purpose, part: u64) -> Stream {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(purpose as u64 | part << 32);
        Stream { rng, spare: None }
    }

    /// The uniform draws from position `place` of the stream on, independent of earlier draws.
    pub fn units_at<const COUNT: usize>(&mut self, place: u128) -> [f64; COUNT] {
        // A draw uses two words of 32 bits.
        self.rng.set_word_pos(2 * place);
        std::array::from_fn(|_| self.unit())
    }

    /// Uniform in (0, 1): (k + ½)/2^53 for a whole k below 2^53.
    #[inline]
    pub(super) fn unit(&mut self) -> f64 {
        // Convert from a signed integer, which is one instruction on every machine.
        ((self.rng.next_u64() >> 11) as i64 as f64 + 0.5) * (1.0 / (1_u64 << 53) as f64)
    }

    /// Uniform over 0..count, by multiplication; for counts below 2^27 no value is favoured by more than 2^-37.
    pub(super) fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * u128::from(count)) >> 64) as u64
    }

    /// A draw from the exponential distribution with mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -log(self.unit())
    }

    /// Draws from the exponential distribution with mean 1, equal to single draws.
    pub(super) fn exponentials(&mut self) -> [f64; AHEAD] {
        let mut made = [0.0; AHEAD];
        made.iter_mut().for_each(|unit| *unit = self.unit());
        made.iter_mut().for_each(|draw| *draw = -log(*draw));
        made
    }

    /// A draw from the standard normal distribution, by Marsaglia's polar method (SIAM Review 6(3), 1964).
    pub(super) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let (x, y, square) = self.in_circle();
        let scale = (-2.0 * log(square) / square).sqrt();
        self.spare = Some(y * scale);
        x * scale
    }

    /// Draws from the standard normal distribution, equal to single draws.
    pub(super) fn normals(&mut self) -> [f64; AHEAD] {
        let mut made = [0.0; AHEAD];
        let mut scales = [0.0; AHEAD / 2];
        for (pair, square) in made.chunks_exact_mut(2).zip(&mut scales) {
            let (x, y, sum) = self.in_circle();
            pair.copy_from_slice(&[x, y]);
            *square = sum;
        }
        scales.iter_mut().for_each(|scale| *scale = (-2.0 * log(*scale) / *scale).sqrt());
        for (pair, scale) in made.chunks_exact_mut(2).zip(scales) {
            pair[0] *= scale;
            pair[1] *= scale;
        }
        made
    }

    /// A uniform point in the unit circle, and the square of its distance from the centre.
    #[inline(always)]
    fn in_circle(&mut self) -> (f64, f64, f64) {
        loop {
            let x = 2.0 * self.unit() - 1.0;
            let y = 2.0 * self.unit() - 1.0;
            let square = x * x + y * y;
            if square < 1.0 && square > 0.0 {
                return (x, y, square);
            }
        }
    }

    /// A draw from the gamma distribution with this shape and mean `shape`, by Marsaglia and Tsang (ACM TOMS 26(3),
    /// 2000).
    pub(super) fn gamma(&mut self, shape: f64) -> f64 {
        // For a shape below 1, draw with shape + 1 and multiply by u^(1/shape).
        let raised = if shape < 1.0 { shape + 1.0 } else { shape };
        let d = raised - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        let drawn = loop {
            let x = self.normal();
            let root = 1.0 + c * x;
            let v = root * root * root;
            if v > 0.0 && log(self.unit()) < 0.5 * x * x + d - d * v + d * log(v) {
                break d * v;
            }
        };
        if shape < 1.0 { drawn * libm::pow(self.unit(), 1.0 / shape) } else { drawn }
    }
}

/// Buffer of draws of one kind, made ahead: each draw is a chain of operations, and the chains of several draws
/// overlap. Requires a separate stream, because it draws ahead.
#[derive(Debug, Clone)]
pub(super) struct Ahead<T> {
    made: Box<[T; AHEAD]>,
    taken: usize,
}

/// Number of draws made at once; even, because normals come in pairs.
const AHEAD: usize = 32;

impl<T: Copy + Default> Ahead<T> {
    pub(super) fn new() -> Ahead<T> {
        Ahead { made: Box::new([T::default(); AHEAD]), taken: AHEAD }
    }

    /// The next draw; calls `make` to refill an empty buffer.
    #[inline(always)]
    pub(super) fn next(&mut self, make: impl FnOnce() -> [T; AHEAD]) -> T {
        if self.taken >= AHEAD {
            *self.made = make();
            self.taken = 0;
        }
        self.taken += 1;
        self.made[self.taken - 1]
    }
}

/// A random choice among few alternatives, by weight.
#[derive(Debug, Clone)]
pub(super) struct Weighted {
    /// For each alternative, the sum of the weights up to it.
    cumulative: Vec<f64>,
}

impl Weighted {
    pub(super) fn new(weights: impl Iterator<Item = f64>) -> Weighted {
        let sum = |total: &mut f64, weight| {
            *total += weight;
            Some(*total)
        };
        Weighted { cumulative: weights.scan(0.0, sum).collect() }
    }

    /// Index of the drawn alternative, from 0.
    pub(super) fn draw(&self, stream: &mut Stream) -> u32 {
        let at = stream.unit() * self.cumulative.last().copied().unwrap_or_default();
        let rank = self.cumulative.partition_point(|sum| *sum <= at);
        rank.min(self.cumulative.len().saturating_sub(1)) as u32
    }
}

/// The cumulative distribution function of the standard normal.
pub(super) fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = 100_000;

    /// The sample mean is within 5 standard errors, (true variance / n)^½ each, of the true mean.
    fn near(mean: f64, variance: f64, mut draw: impl FnMut() -> f64) {
        let sum: f64 = (0..N).map(|_| draw()).sum();
        let error = (variance / N as f64).sqrt();
        assert!((sum / N as f64 - mean).abs() < 5.0 * error, "{} for {mean} ± {error}", sum / N as f64);
    }

    #[test]
    fn moments_are_the_closed_forms() {
        for seed in 0..3 {
            let mut s = Stream::new(seed, Purpose::Input);
            near(0.5, 1.0 / 12.0, || s.unit());
            near(1.0, 1.0, || s.exponential());
            // E x² = 2 for the exponential, with variance 24 − 4.
            near(2.0, 20.0, || s.exponential().powi(2));
            near(0.0, 1.0, || s.normal());
            // The square of a normal is chi-squared: mean 1, variance 2; the fourth moment is 3, with variance 105 − 9.
            near(1.0, 2.0, || s.normal().powi(2));
            near(3.0, 96.0, || s.normal().powi(4));
            for shape in [0.3, 1.0, 4.5] {
                near(shape, shape, || s.gamma(shape));
                // E x² = k(k + 1); E x⁴ = k(k+1)(k+2)(k+3).
                let second = shape * (shape + 1.0);
                let fourth = second * (shape + 2.0) * (shape + 3.0);
                near(second, fourth - second * second, || s.gamma(shape).powi(2));
            }
            // Uniform over 0..10: mean 4.5, variance 99/12.
            near(4.5, 99.0 / 12.0, || s.below(10) as f64);
        }
    }

    #[test]
    fn draws_made_ahead_are_those_drawn_one_by_one() {
        let stream = |purpose| Stream::new(3, purpose);
        let mut single = stream(Purpose::Output);
        let mut many = stream(Purpose::Output);
        let mut ahead = Ahead::new();
        let mut unit = stream(Purpose::Arrivals);
        let mut units = stream(Purpose::Arrivals);
        let mut gaps = Ahead::new();
        for _ in 0..3 * AHEAD + 1 {
            assert_eq!(single.normal(), ahead.next(|| many.normals()));
            assert_eq!(unit.exponential(), gaps.next(|| units.exponentials()));
        }
    }

    #[test]
    fn the_normal_has_its_quantiles() {
        // Φ(1.281552) = 0.9; the fraction of draws below has the variance p(1 − p).
        let mut s = Stream::new(7, Purpose::Output);
        near(0.9, 0.09, || f64::from(u8::from(s.normal() < 1.281_551_565_5)));
        assert!((normal_cdf(1.281_551_565_544_6) - 0.9).abs() < 1e-12);
        assert_eq!((normal_cdf(0.0), normal_cdf(f64::INFINITY)), (0.5, 1.0));
    }

    #[test]
    fn seeds_and_purposes_give_different_streams_and_repeat() {
        let first = |seed, purpose| {
            let mut s = Stream::new(seed, purpose);
            [s.unit(), s.normal(), s.gamma(0.5)]
        };
        assert_eq!(first(1, Purpose::Input), first(1, Purpose::Input));
        assert_ne!(first(1, Purpose::Input), first(2, Purpose::Input));
        assert_ne!(first(1, Purpose::Input), first(1, Purpose::Output));
    }
}
