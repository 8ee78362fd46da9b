//! The inner loop for any processor: arrays of sixteen bytes, which compilers turn into vectors.
//!
//! Knows: fused multiply-add is used if every processor of the compilation target has it. Knows nothing about single
//! instructions.

use super::{CHAINS, PANELS, STEPS, Turn, column, product};
use std::array::from_fn;
use std::hint::black_box;

/// True if `mul_add` compiles to one instruction; otherwise it would be a function call.
const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

fn add32(sum: f32, x: f32, y: f32) -> f32 {
    if FUSED { x.mul_add(y, sum) } else { x * y + sum }
}

fn add64(sum: f64, x: f64, y: f64) -> f64 {
    if FUSED { x.mul_add(y, sum) } else { x * y + sum }
}

product!(
    fp32,
    "portable",
    4,
    1,
    |v: u8| [f32::from(v); 4],
    [1.0_f32; 4],
    [0.0_f32; 4],
    |s: [f32; 4], x: [f32; 4], y: [f32; 4]| [0, 1, 2, 3].map(|i: usize| add32(s[i], x[i], y[i])),
    |s: [f32; 4]| s.iter().map(|v| f64::from(*v)).sum::<f64>()
);

product!(
    fp64,
    "portable",
    2,
    1,
    |v: u8| [f64::from(v); 2],
    [1.0_f64; 2],
    [0.0_f64; 2],
    |s: [f64; 2], x: [f64; 2], y: [f64; 2]| [0, 1].map(|i: usize| add64(s[i], x[i], y[i])),
    |s: [f64; 2]| s.iter().sum::<f64>()
);

product!(
    bf16,
    "portable, widened to fp32",
    4,
    1,
    |v: u8| [(f32::from(v).to_bits() >> 16) as u16; 4],
    [1.0_f32; 4],
    [0.0_f32; 4],
    |s: [f32; 4], x: [u16; 4], y: [f32; 4]| {
        [0, 1, 2, 3].map(|i: usize| add32(s[i], f32::from_bits(u32::from(x[i]) << 16), y[i]))
    },
    |s: [f32; 4]| s.iter().map(|v| f64::from(*v)).sum::<f64>()
);

product!(
    int8,
    "portable",
    16,
    12,
    |v: u8| [i8::from_ne_bytes([v]); 16],
    [1_i8; 16],
    [0_i32; 4],
    |s: [i32; 4], x: [i8; 16], y: [i8; 16]| {
        from_fn::<i32, 4, _>(|lane| {
            s[lane] + (0..4).map(|i| i32::from(x[4 * lane + i]) * i32::from(y[4 * lane + i])).sum::<i32>()
        })
    },
    |s: [i32; 4]| s.iter().map(|v| f64::from(*v)).sum::<f64>()
);
