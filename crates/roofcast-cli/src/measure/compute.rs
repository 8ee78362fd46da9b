//! Rate at which the processor multiplies and adds, by number format.
//!
//! Knows: the inner loop of a GEMM in registers, and the instructions for it. Every turn's sum is checked, which shows
//! that the compiler removed no work. Knows nothing about memory: a turn's operands stay in the first-level cache.
//!
//! Matrix units that are separate from the vector units (AMX, SME) are not used; on processors that have them the
//! measured rate is below the peak.

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::{Pace, Spread, steady};
use anyhow::{Result, ensure};
use multiversion::multiversion;
use multiversion::target::match_target;
use roofcast::precision::Dtype;

/// Number of vectors in a panel, the operand that the inner loop of a GEMM reads.
const STEPS: usize = 64;
/// Accumulators that do not depend on one another. Twelve keep two units busy whose additions take up to six cycles.
const CHAINS: usize = 12;
/// Panels of a turn: few enough for sums that the format holds exactly, many enough for the clock's resolution.
const PANELS: u64 = 1024;

/// Result of one turn.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Turn {
    instructions: &'static str,
    /// Number of multiply-adds.
    products: u64,
    sum: f64,
}

impl Turn {
    /// Creates the result of a turn whose vectors have `width` multiply-adds each.
    fn of(instructions: &'static str, width: u64, sum: f64) -> Turn {
        Turn { instructions, products: PANELS * STEPS as u64 * CHAINS as u64 * width, sum }
    }

    /// Checks the sum: panels hold 0, 1, 2, 3, 0, … and are multiplied by ones, which gives exactly 1.5 per
    /// multiply-add on average.
    fn checked(self) -> Result<Turn> {
        let expected = 1.5 * self.products as f64;
        ensure!(self.sum == expected, "{}: the sum is {}, not {expected}", self.instructions, self.sum);
        Ok(self)
    }
}

/// Index of the vector of ones by which an accumulator's products are computed.
#[inline]
fn column<const COLUMNS: usize>(chain: usize) -> usize {
    chain % COLUMNS
}

/// Multiplies every vector of a panel by `$columns` vectors of ones and adds the products to [`CHAINS`] accumulators.
macro_rules! product {
    ($(#[$feature:meta])? $name:ident, $shown:literal, $width:literal, $columns:literal,
     $splat:expr, $ones:expr, $zero:expr, $step:expr, $total:expr) => {
        $(#[$feature])?
        pub(super) fn $name() -> Turn {
            let splat = $splat;
            let step = $step;
            let total = $total;
            let mut panel = [splat(0_u8); STEPS];
            for (vector, value) in panel.iter_mut().zip([0_u8, 1, 2, 3].into_iter().cycle()) {
                *vector = splat(value);
            }
            // Each vector goes through a black box by itself: a black box around the array would keep the accumulators
            // in memory, at a third of the rate.
            let ones = [(); $columns].map(|()| black_box($ones));
            let mut sums = [black_box($zero); CHAINS];
            for _ in 0..PANELS {
                for vector in black_box(&panel) {
                    for (chain, sum) in sums.iter_mut().enumerate() {
                        *sum = step(*sum, *vector, ones[column::<$columns>(chain)]);
                    }
                }
            }
            Turn::of($shown, $width, sums.iter().map(|sum| total(*sum)).sum())
        }
    };
}
use product;

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn fp64() -> Turn {
    match_target! {
        "x86_64+avx512f" => x86::fp64_avx512(),
        "x86_64+avx2+fma" => x86::fp64_avx2(),
        _ => portable::fp64(),
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn fp32() -> Turn {
    match_target! {
        "x86_64+avx512f" => x86::fp32_avx512(),
        "x86_64+avx2+fma" => x86::fp32_avx2(),
        _ => portable::fp32(),
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+f16c+fma"))]
fn fp16() -> Option<Turn> {
    match_target! {
        "x86_64+avx512f" => Some(x86::fp16_avx512()),
        "x86_64+avx2+f16c+fma" => Some(x86::fp16_avx2()),
        _ => None,
    }
}

#[multiversion(targets("x86_64+avx512bf16+avx512f", "x86_64+avx512f", "x86_64+avx2+fma"))]
fn bf16() -> Turn {
    match_target! {
        "x86_64+avx512bf16+avx512f" => x86::bf16_native(),
        "x86_64+avx512f" => x86::bf16_avx512(),
        "x86_64+avx2+fma" => x86::bf16_avx2(),
        _ => portable::bf16(),
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vnni", "x86_64+avx2+avxvnni", "x86_64+avx2"))]
fn int8() -> Turn {
    match_target! {
        "x86_64+avx512f+avx512vnni" => x86::int8_vnni512(),
        "x86_64+avx2+avxvnni" => x86::int8_vnni256(),
        "x86_64+avx2" => x86::int8_avx2(),
        _ => portable::int8(),
    }
}

/// A number format and its kernel on this machine; the kernel returns `None` if the processor lacks the instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernel {
    /// Name of the format as in the catalog; the catalog has none for double precision, which is measured too.
    pub(crate) name: &'static str,
    /// Dtype of the catalog, if the format has one.
    pub(crate) dtype: Option<Dtype>,
    turn: fn() -> Option<Turn>,
}

/// Every format that is measured.
pub(crate) const KERNELS: [Kernel; 5] = [
    Kernel { name: "fp64", dtype: None, turn: || Some(fp64()) },
    Kernel { name: "fp32", dtype: Some(Dtype::Fp32), turn: || Some(fp32()) },
    Kernel { name: "fp16", dtype: Some(Dtype::Fp16), turn: fp16 },
    Kernel { name: "bf16", dtype: Some(Dtype::Bf16), turn: || Some(bf16()) },
    Kernel { name: "int8", dtype: Some(Dtype::Int8), turn: || Some(int8()) },
];

/// Operations per second on `threads` threads, and the names of the instructions; a multiply-add counts as two
/// operations.
pub(crate) fn measure(kernel: Kernel, threads: usize, pace: Pace) -> Result<Option<(&'static str, Spread)>> {
    let Some(first) = (kernel.turn)() else { return Ok(None) };
    let turn = move || match (kernel.turn)() {
        Some(turn) => Ok(2 * turn.checked()?.products),
        None => Ok(0),
    };
    let mut workers = vec![turn; threads];
    Ok(Some((first.checked()?.instructions, steady(&mut workers, pace)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_counted_by_hand() {
        // 1024 panels · 64 vectors · 12 accumulators = 786,432 vectors of 16 products = 12,582,912.
        assert_eq!(Turn::of("x", 16, 0.0).products, 12_582_912);
    }

    #[test]
    fn every_kernel_of_this_processor_sums_right() {
        for kernel in KERNELS {
            if let Some(turn) = (kernel.turn)() {
                turn.checked().unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
            }
        }
    }

    /// Tests the code for older processors, which this processor would not choose.
    #[test]
    fn portable_kernels_sum_right() {
        for turn in [portable::fp64(), portable::fp32(), portable::bf16(), portable::int8()] {
            turn.checked().unwrap();
        }
    }

    #[test]
    fn a_wrong_sum_is_an_error() {
        let message = Turn::of("AVX2", 1, 7.0).checked().unwrap_err().to_string();
        assert_eq!(message, "AVX2: the sum is 7, not 1179648");
    }
}
