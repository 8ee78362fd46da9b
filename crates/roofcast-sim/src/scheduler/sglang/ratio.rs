//! The fraction of their bounds that running requests are expected to generate, SGLang's `new_token_ratio`.
//!
//! Knows: the ratio starts high, falls with every decode, is corrected by a retraction and is reset when the scheduler
//! is idle. Knows nothing about memory. Source: SGLang 0.5.23, `scheduler_components/new_token_ratio_tracker.py` and
//! the defaults in `environ.py`.

const INIT: f64 = 0.7;
const MIN_FACTOR: f64 = 0.14;
const DECAY_STEPS: f64 = 600.0;
/// Number of tokens per remaining row for which a retraction makes room.
pub(super) const RETRACT_DECODE_STEPS: u64 = 20;

/// The new-token ratio.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ratio {
    init: f64,
    min: f64,
    decay: f64,
    pub(super) current: f64,
}

impl Ratio {
    /// The initial ratio for the setting `schedule_conservativeness`.
    pub(super) fn new(conservativeness: f64) -> Ratio {
        let init = (INIT * conservativeness).min(1.0);
        let min = (init * MIN_FACTOR).min(1.0);
        Ratio { init, min, decay: (init - min) / DECAY_STEPS, current: init }
    }

    /// Lowers the ratio by `steps` decodes, with the rounding errors of single steps.
    pub(super) fn decay(&mut self, steps: u64) {
        for _ in 0..steps {
            if self.current == self.min {
                return;
            }
            self.current = (self.current - self.decay).max(self.min);
        }
    }

    /// Resets the ratio to its initial value.
    pub(super) fn reset(&mut self) {
        self.current = self.init;
    }

    /// Sets the ratio after a retraction that leaves `rows` rows, which have generated `generated` of `bound` tokens in
    /// total.
    pub(super) fn retracted(&mut self, rows: u64, generated: u64, bound: u64) {
        let expected = (generated + RETRACT_DECODE_STEPS * rows) as f64 / (bound + 1) as f64;
        self.current = expected.min(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ratio falls from 0.7 to 0.098 in 600 steps of 0.602/600; after a retraction that leaves two rows with 30 of
    /// 299 tokens generated it is (30 + 40)/300.
    #[test]
    fn it_falls_is_put_right_and_starts_anew() {
        let mut ratio = Ratio::new(1.0);
        assert!((ratio.init, (ratio.min - 0.098).abs() < 1e-15) == (0.7, true));
        let mut stepped = ratio.clone();
        (0..599).for_each(|_| stepped.decay(1));
        ratio.decay(599);
        assert_eq!(ratio, stepped);
        assert!(ratio.current > ratio.min);
        ratio.decay(5);
        assert_eq!(ratio.current, ratio.min);
        ratio.retracted(2, 30, 299);
        assert_eq!(ratio.current, 70.0 / 300.0);
        ratio.reset();
        assert_eq!((ratio.current, Ratio::new(2.0).current), (0.7, 1.0));
    }
}
