//! Times over a size: straight lines between measured sizes.
//!
//! Knows: between two sizes of a grid, time is linear; beyond the last size it continues the last line, but grows at
//! most in proportion to the size. Knows nothing about kernels.

/// Seconds as a function of size.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    sizes: Vec<f64>,
    seconds: Vec<f64>,
}

/// Lines over context, one for each number of sequences: seconds = start + slope · tokens of context of all
/// sequences. Between measured numbers of sequences, the start is interpolated linearly, and so is the time of one
/// more token in every sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    starts: Curve,
    /// Seconds that one more token in each of the sequences adds, over the number of sequences.
    tokens: Curve,
}

impl Curve {
    /// Creates a curve from times at ascending sizes; `None` if there are no sizes, or if a time is not above 0.
    pub(crate) fn new(points: impl IntoIterator<Item = (f64, f64)>) -> Option<Curve> {
        let (sizes, seconds): (Vec<f64>, Vec<f64>) = points.into_iter().unzip();
        let ascending = sizes.windows(2).all(|pair| pair[0] < pair[1]);
        let valid = seconds.iter().all(|s| s.is_finite() && *s > 0.0);
        (ascending && valid && !sizes.is_empty()).then_some(Curve { sizes, seconds })
    }

    /// Seconds at `size`.
    pub fn at(&self, size: f64) -> f64 {
        let last = self.sizes.len() - 1;
        if size <= self.sizes[0] {
            return self.seconds[0];
        }
        if size >= self.sizes[last] {
            return self.beyond(size);
        }
        let above = self.sizes.partition_point(|s| *s <= size);
        let x0 = self.sizes[above - 1];
        let x1 = self.sizes[above];
        let y0 = self.seconds[above - 1];
        let y1 = self.seconds[above];
        y0 + (y1 - y0) * ((size - x0) / (x1 - x0))
    }

    /// Sizes of the grid.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = f64> + '_ {
        self.sizes.iter().copied()
    }

    /// Returns the curve with points at the sizes of `grid` below its first size, where its time is constant.
    #[must_use]
    pub(crate) fn on_grid(&self, grid: &[u32]) -> Curve {
        let below = grid.iter().map(|size| f64::from(*size)).filter(|size| *size < self.sizes[0]);
        let sizes: Vec<f64> = below.chain(self.sizes.iter().copied()).collect();
        let seconds = sizes.iter().map(|size| self.at(*size)).collect();
        Curve { sizes, seconds }
    }

    /// The largest size of the grid.
    pub(crate) fn last_size(&self) -> f64 {
        self.sizes[self.sizes.len() - 1]
    }

    /// Seconds beyond the last size: continues the last line, but grows at most in proportion to the size.
    fn beyond(&self, size: f64) -> f64 {
        let last = self.sizes.len() - 1;
        let x1 = self.sizes[last];
        let y1 = self.seconds[last];
        let proportional = y1 / x1;
        let slope = match last {
            0 => proportional,
            _ => (y1 - self.seconds[last - 1]) / (x1 - self.sizes[last - 1]),
        };
        y1 + slope.clamp(0.0, proportional) * (size - x1)
    }

    /// Returns the curve with the points of `other` beyond its last size, none of them below its last time.
    #[must_use]
    pub(crate) fn continued(mut self, other: &Curve) -> Curve {
        let last_seconds = self.seconds[self.seconds.len() - 1];
        let last = self.last_size();
        let beyond = other.sizes.iter().zip(&other.seconds).filter(|(size, _)| **size > last);
        let (sizes, seconds): (Vec<f64>, Vec<f64>) =
            beyond.map(|(size, s)| (*size, s.max(last_seconds))).unzip();
        self.sizes.extend(sizes);
        self.seconds.extend(seconds);
        self
    }

    /// Returns the curve with `change` applied to every time; `change` receives the size and the seconds.
    #[must_use]
    pub(crate) fn map(&self, change: impl Fn(f64, f64) -> f64) -> Curve {
        let seconds = self.sizes.iter().zip(&self.seconds).map(|(size, s)| change(*size, *s)).collect();
        Curve { sizes: self.sizes.clone(), seconds }
    }

    /// Returns, at each size of this curve, the smaller of two curves' times.
    #[must_use]
    pub(crate) fn least(&self, other: &Curve) -> Curve {
        self.map(|size, seconds| seconds.min(other.at(size)))
    }
}

impl Lines {
    /// Creates lines from starts and slopes over the number of sequences.
    pub(crate) fn new(starts: Curve, slopes: &Curve) -> Lines {
        Lines { starts, tokens: slopes.map(|sequences, slope| sequences * slope) }
    }

    /// Start in seconds, and slope in seconds per token of context, at `sequences` sequences.
    pub(crate) fn at(&self, sequences: f64) -> [f64; 2] {
        [self.starts.at(sequences), self.tokens.at(sequences) / sequences]
    }

    /// The lesser start and the lesser slope of both.
    #[must_use]
    pub(crate) fn least(&self, other: &Lines) -> Lines {
        Lines { starts: self.starts.least(&other.starts), tokens: self.tokens.least(&other.tokens) }
    }

    /// Returns the lines with `start` applied to every start, and `slope` to every slope.
    #[must_use]
    pub(crate) fn map(&self, start: impl Fn(f64) -> f64, slope: impl Fn(f64) -> f64) -> Lines {
        Lines {
            starts: self.starts.map(|_, seconds| start(seconds)),
            tokens: self.tokens.map(|sequences, seconds| sequences * slope(seconds / sequences)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 µs at size 4 and 30 µs at 8 give 20 µs at 6. Below the first size the time is constant. Beyond the last, 5
    /// µs per row would exceed proportion, so that the slope is 30/8 = 3.75 µs.
    #[test]
    fn lines_between_sizes_by_hand() {
        let curve = Curve::new([(4.0, 10.0), (8.0, 30.0)]).unwrap();
        assert_eq!([1.0, 4.0, 6.0, 8.0, 10.0].map(|m| curve.at(m)), [10.0, 10.0, 20.0, 30.0, 37.5]);
        let flat = Curve::new([(4.0, 10.0), (8.0, 11.0)]).unwrap();
        assert_eq!(flat.at(16.0), 13.0);
    }

    #[test]
    fn what_is_no_curve_is_refused() {
        assert_eq!(Curve::new([]), None);
        assert_eq!(Curve::new([(2.0, 1.0), (1.0, 1.0)]), None);
        assert_eq!(Curve::new([(1.0, 0.0)]), None);
        assert_eq!(Curve::new([(1.0, f64::NAN)]), None);
    }
}
