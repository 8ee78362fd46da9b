//! The exponential function and the logarithm for random draws.
//!
//! Knows: both functions without branches, as additions, multiplications and one division, which IEEE 754 rounds
//! equally on every machine. SSE2 executes each of these operations on two floats, so that a loop over draws computes
//! two at once. `libm`'s functions, whose operations form one chain of dependences, would take a seventh of a
//! simulation's time. Knows nothing about the values that are drawn.

use std::f64::consts::LOG2_E;

/// ln 2 in two parts. The first has 32 bits, so that its product with a whole number below 2^20 is exact.
const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];

/// e^x to 2 units in the last place; x is clamped to ±700.
///
/// x = k ln 2 + r with whole k and |r| ≤ ln 2 / 2. e^r is the series Σ rⁿ/n! to n = 13: the remainder is below
/// 0.3466¹⁴/14! = 4e-18.
#[inline(always)]
pub(super) fn exp(x: f64) -> f64 {
    /// 3 · 2^51: adding this to a float rounds it to a whole number, which is then in the sum's last bits.
    const WHOLE: f64 = 6_755_399_441_055_744.0;
    let x = x.clamp(-700.0, 700.0);
    let shifted = x * LOG2_E + WHOLE;
    let k = shifted - WHOLE;
    let r = (x - k * LN_2[0]) - k * LN_2[1];
    let r2 = r * r;
    let r4 = (r * r) * (r * r);
    let r8 = r4 * r4;
    let four = |a: f64, b: f64, c: f64, d: f64| (1.0 / a + r * (1.0 / b)) + r2 * (1.0 / c + r * (1.0 / d));
    // Terms 2 to 13 of the series, divided by r².
    let rest = four(2.0, 6.0, 24.0, 120.0)
        + r4 * four(720.0, 5_040.0, 40_320.0, 362_880.0)
        + r8 * four(3_628_800.0, 39_916_800.0, 479_001_600.0, 6_227_020_800.0);
    (1.0 + (r + r2 * rest)) * f64::from_bits((shifted.to_bits() << 52).wrapping_add(1.0_f64.to_bits()))
}

/// ln x to 2 units in the last place, for a normal float x above 0.
///
/// x = 2^k m with √½ ≤ m < √2. ln m = 2 Σ s^(2n+1)/(2n+1) for s = (m − 1)/(m + 1), to n = 10: |s| ≤ 0.1716, and the
/// remainder is below 0.1716²²/23 = 6e-19.
#[inline(always)]
pub(super) fn log(x: f64) -> f64 {
    /// Bits of 1 less bits of √½: adding this to the bits of x gives k + 1023 above the mantissa, without a sign.
    const FROM_ROOT: u64 = 1.0_f64.to_bits() - std::f64::consts::FRAC_1_SQRT_2.to_bits();
    /// 2^52: replacing its last bits by a whole number below 2^52 gives the float of their sum. SSE2 has no conversion
    /// from 64-bit integers.
    const WHOLE: f64 = 4_503_599_627_370_496.0;
    let bits = x.to_bits();
    let biased = bits.wrapping_add(FROM_ROOT) >> 52;
    let f = f64::from_bits(bits.wrapping_sub(biased << 52).wrapping_add(1.0_f64.to_bits())) - 1.0;
    let k = f64::from_bits(biased | WHOLE.to_bits()) - (WHOLE + 1023.0);
    let s = f / (2.0 + f);
    let z = s * s;
    let z2 = (s * s) * (s * s);
    let z4 = z2 * z2;
    let z8 = (z2 * z2) * (z2 * z2);
    let four = |a: f64, b: f64, c: f64, d: f64| (1.0 / a + z * (1.0 / b)) + z2 * (1.0 / c + z * (1.0 / d));
    // Terms 1 to 10 of the series, divided by s².
    let rest =
        four(3.0, 5.0, 7.0, 9.0) + z4 * four(11.0, 13.0, 15.0, 17.0) + z8 * (1.0 / 19.0 + z * (1.0 / 21.0));
    let twice = s + s;
    k * LN_2[0] + (twice + (twice * (z * rest) + k * LN_2[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of representable floats between two floats of one sign.
    fn apart(a: f64, b: f64) -> u64 {
        a.to_bits().abs_diff(b.to_bits())
    }

    #[test]
    fn both_are_within_two_units_of_the_library() {
        // Multiples of the golden ratio follow no pattern of the numbers.
        for n in 0..200_000 {
            let unit = (f64::from(n) * 0.618_033_988_749_894_9).fract();
            let x = 60.0 * unit - 30.0;
            assert!(apart(exp(x), libm::exp(x)) <= 2, "exp {x}: {} {}", exp(x), libm::exp(x));
            for x in [unit.max(1e-17), 1.0 - unit * 1e-6, 1.0 + 10.0 * unit] {
                assert!(apart(log(x), libm::log(x)) <= 2, "log {x}: {} {}", log(x), libm::log(x));
            }
        }
    }

    #[test]
    fn known_values() {
        assert_eq!((exp(0.0), log(1.0)), (1.0, 0.0));
        assert!(apart(exp(1.0), std::f64::consts::E) <= 1);
        assert!(apart(log(2.0), std::f64::consts::LN_2) <= 1);
        // The smallest and the largest uniform draw are ½ · 2^-53 = 2^-54 and 1 − 2^-54, which rounds to 1.
        assert!(apart(log(0.5_f64.powi(54)), -54.0 * std::f64::consts::LN_2) <= 1);
        assert!(exp(-1e9) > 0.0 && exp(1e9).is_finite());
    }
}
