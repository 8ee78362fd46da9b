//! The inner loop on x86: AVX2 and AVX-512, with their dot products of bf16 and int8.
//!
//! Knows: the instructions of one step. The caller checks that the processor has them.

use super::{CHAINS, PANELS, STEPS, Turn, column, product};
use std::arch::x86_64::*;
use std::hint::black_box;

product!(
    #[target_feature(enable = "avx512f")]
    fp64_avx512,
    "AVX-512",
    8,
    1,
    |v: u8| _mm512_set1_pd(v.into()),
    _mm512_set1_pd(1.0),
    _mm512_setzero_pd(),
    |s, x, y| _mm512_fmadd_pd(x, y, s),
    |s| _mm512_reduce_add_pd(s)
);

product!(
    #[target_feature(enable = "avx2,fma")]
    fp64_avx2,
    "AVX2",
    4,
    1,
    |v: u8| _mm256_set1_pd(v.into()),
    _mm256_set1_pd(1.0),
    _mm256_setzero_pd(),
    |s, x, y| _mm256_fmadd_pd(x, y, s),
    // All 4 lanes of the accumulator are equal.
    |s| {
        let halves = _mm_add_pd(_mm256_castpd256_pd128(s), _mm256_extractf128_pd::<1>(s));
        _mm_cvtsd_f64(_mm_hadd_pd(halves, halves))
    }
);

product!(
    #[target_feature(enable = "avx512f")]
    fp32_avx512,
    "AVX-512",
    16,
    1,
    |v: u8| _mm512_set1_ps(v.into()),
    _mm512_set1_ps(1.0),
    _mm512_setzero_ps(),
    |s, x, y| _mm512_fmadd_ps(x, y, s),
    |s| f64::from(_mm512_reduce_add_ps(s))
);

product!(
    #[target_feature(enable = "avx2,fma")]
    fp32_avx2,
    "AVX2",
    8,
    1,
    |v: u8| _mm256_set1_ps(v.into()),
    _mm256_set1_ps(1.0),
    _mm256_setzero_ps(),
    |s, x, y| _mm256_fmadd_ps(x, y, s),
    |s| total32(s)
);

product!(
    #[target_feature(enable = "avx512f")]
    fp16_avx512,
    "AVX-512, widened to fp32",
    16,
    1,
    |v: u8| _mm512_cvtps_ph::<0>(_mm512_set1_ps(v.into())),
    _mm512_set1_ps(1.0),
    _mm512_setzero_ps(),
    |s, x, y| _mm512_fmadd_ps(_mm512_cvtph_ps(x), y, s),
    |s| f64::from(_mm512_reduce_add_ps(s))
);

product!(
    #[target_feature(enable = "avx2,f16c,fma")]
    fp16_avx2,
    "AVX2 and F16C, widened to fp32",
    8,
    1,
    |v: u8| _mm256_cvtps_ph::<0>(_mm256_set1_ps(v.into())),
    _mm256_set1_ps(1.0),
    _mm256_setzero_ps(),
    |s, x, y| _mm256_fmadd_ps(_mm256_cvtph_ps(x), y, s),
    |s| total32(s)
);

product!(
    #[target_feature(enable = "avx512bf16,avx512f")]
    bf16_native,
    "AVX-512 BF16",
    32,
    1,
    |v: u8| _mm512_cvtne2ps_pbh(_mm512_set1_ps(v.into()), _mm512_set1_ps(v.into())),
    _mm512_cvtne2ps_pbh(_mm512_set1_ps(1.0), _mm512_set1_ps(1.0)),
    _mm512_setzero_ps(),
    |s, x, y| _mm512_dpbf16_ps(s, x, y),
    |s| f64::from(_mm512_reduce_add_ps(s))
);

product!(
    #[target_feature(enable = "avx512f")]
    bf16_avx512,
    "AVX-512, widened to fp32",
    16,
    1,
    |v: u8| _mm256_set1_epi16(bf16(v)),
    _mm512_set1_ps(1.0),
    _mm512_setzero_ps(),
    |s, x, y| _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(x))), y, s),
    |s| f64::from(_mm512_reduce_add_ps(s))
);

product!(
    #[target_feature(enable = "avx2,fma")]
    bf16_avx2,
    "AVX2, widened to fp32",
    8,
    1,
    |v: u8| _mm_set1_epi16(bf16(v)),
    _mm256_set1_ps(1.0),
    _mm256_setzero_ps(),
    |s, x, y| _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(x))), y, s),
    |s| total32(s)
);

product!(
    #[target_feature(enable = "avx512f,avx512vnni")]
    int8_vnni512,
    "AVX-512 VNNI",
    64,
    1,
    |v: u8| _mm512_set1_epi32(bytes(v)),
    _mm512_set1_epi32(bytes(1)),
    _mm512_setzero_si512(),
    |s, x, y| _mm512_dpbusd_epi32(s, x, y),
    |s| f64::from(_mm512_reduce_add_epi32(s))
);

product!(
    #[target_feature(enable = "avx2,avxvnni")]
    int8_vnni256,
    "AVX VNNI",
    32,
    1,
    |v: u8| _mm256_set1_epi32(bytes(v)),
    _mm256_set1_epi32(bytes(1)),
    _mm256_setzero_si256(),
    |s, x, y| _mm256_dpbusd_avx_epi32(s, x, y),
    |s| total8(s)
);

// Without a dot product of bytes: multiply-adds of pairs to 16 bits, of these pairs to 32 bits, and a sum. Each
// accumulator has its own vector of ones, because the compiler would otherwise compute the products once for all.
product!(
    #[target_feature(enable = "avx2")]
    int8_avx2,
    "AVX2",
    32,
    12,
    |v: u8| _mm256_set1_epi32(bytes(v)),
    _mm256_set1_epi32(bytes(1)),
    _mm256_setzero_si256(),
    |s, x, y| _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), _mm256_set1_epi16(1))),
    |s| total8(s)
);

/// A small whole number in bfloat16.
fn bf16(v: u8) -> i16 {
    i16::from_ne_bytes(((f32::from(v).to_bits() >> 16) as u16).to_ne_bytes())
}

/// Four bytes of this value, as one 32-bit lane.
fn bytes(v: u8) -> i32 {
    i32::from_ne_bytes([v; 4])
}

#[target_feature(enable = "avx2")]
fn total32(s: __m256) -> f64 {
    let four = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps::<1>(s));
    let two = _mm_hadd_ps(four, four);
    _mm_cvtss_f32(_mm_hadd_ps(two, two)).into()
}

#[target_feature(enable = "avx2")]
fn total8(s: __m256i) -> f64 {
    let four = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256::<1>(s));
    let two = _mm_hadd_epi32(four, four);
    _mm_cvtsi128_si32(_mm_hadd_epi32(two, two)).into()
}

#[cfg(test)]
mod tests {
    use super::super::match_target;
    use super::*;
    use multiversion::multiversion;

    /// Tests every set of instructions that this processor has, not only the fastest.
    #[multiversion(targets(
        "x86_64+avx2+avx512bf16+avx512f+avx512vnni+avxvnni+f16c+fma",
        "x86_64+avx2+avx512f+avx512vnni+f16c+fma",
        "x86_64+avx2+f16c+fma"
    ))]
    fn turns() -> Vec<Turn> {
        let wide = match_target! {
            "x86_64+avx512f+avx512vnni" => {
                vec![fp64_avx512(), fp32_avx512(), fp16_avx512(), bf16_avx512(), int8_vnni512()]
            }
            _ => vec![],
        };
        let dots = match_target! {
            "x86_64+avx2+avx512bf16+avx512f+avxvnni" => vec![bf16_native(), int8_vnni256()],
            _ => vec![],
        };
        let narrow = match_target! {
            "x86_64+avx2+f16c+fma" => vec![fp64_avx2(), fp32_avx2(), fp16_avx2(), bf16_avx2(), int8_avx2()],
            _ => vec![],
        };
        [wide, dots, narrow].concat()
    }

    #[test]
    fn all_paths_sum_right() {
        let turns = turns();
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("fma")
        {
            assert!(turns.len() >= 5, "only {turns:?}");
        }
        for turn in turns {
            turn.checked().unwrap();
        }
    }
}
