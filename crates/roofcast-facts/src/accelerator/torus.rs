//! Slices of a torus.
//!
//! Knows: the shape of a slice, and which of its axes are closed to a ring. Knows nothing about messages.

use super::{Accelerator, Topology};

/// Number of axes from which a slice is wired in whole cubes: either all of its axes are closed to rings, or none.
const CUBES: u32 = 3;

impl Accelerator {
    /// The shape of a torus slice of `count` chips, nearest to a cube: 16 on two axes is 4×4, 8 is 2×4.
    pub fn torus_shape(&self, count: u64) -> Option<Vec<u64>> {
        let axes = self.link.as_ref().filter(|l| l.topology == Topology::Torus)?.axes?;
        let mut shape = vec![1_u64; axes as usize];
        let mut left = count.max(1);
        while left > 1 {
            let factor = (2..=left).find(|f| left.is_multiple_of(*f)).unwrap_or(left);
            // Grow the shortest axis.
            if let Some(shortest) = shape.iter_mut().min() {
                *shortest *= factor;
            }
            left /= factor;
        }
        shape.sort_unstable();
        Some(shape)
    }

    /// Number of directions in which a chip sends along each axis of a slice of this shape: 2 around a ring, 1 along
    /// a line, whose ends lack a neighbour. An axis is a ring if its length is a multiple of `link.wraps`; with three
    /// axes, only if all three lengths are.
    pub fn axis_links(&self, shape: &[u64]) -> Vec<f64> {
        let Some(link) = &self.link else { return vec![1.0; shape.len()] };
        let closed = |n: &u64| link.wraps.is_none_or(|wraps| n.is_multiple_of(wraps));
        let cubes = link.axes.is_some_and(|axes| axes >= CUBES);
        let ring = |n: &u64| if cubes { shape.iter().all(closed) } else { closed(n) };
        shape.iter().map(|n| if ring(n) { 2.0 } else { 1.0 }).collect()
    }
}
