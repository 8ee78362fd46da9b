//! Seed 001, inference arithmetic, computed by hand.

use super::{Golden, NONE};

pub(super) const GOLDENS: &[Golden] = &[
    // == kv cache ==
    // 4·64·8192².
    ("KV FLOPs per token, 2·2·n_layers·d²", 17_179_869_184.0, 17_179_869_184.0),
    // 17.18e9 B/1.5e12; at 1.555e12.
    ("reading the KV weights, FLOPs / 2 × 2 B / 1.5e12", 11.4532, 11.0481),
    // 17.18e9/312e12.
    ("computing K and V of one token, FLOPs / 312e12", 0.0550637, 0.0550637),
    // 312/1.5; 312/1.555.
    ("tokens until compute-bound, 312/1.5", 208.0, 200.643),
    // 4/24.
    ("K and V as a share of a token's forward pass", 0.166667, 0.166667),
    // 2048/6.
    ("passes saved a step, n = 2048 cached tokens, n/6", 341.333, 341.333),
    // the ridge; at 201 tokens computing takes 201/200.6 = 1.0018 times reading, the first above 1.001.
    ("context up to which recomputing is free, batch 1", 208.0, 200.0),
    // 12·64·8192²; with 13·8192 biases and norms a layer and 2·50257·8192 of embeddings.
    ("parameters, 12·n_layers·d²", 51.5396, 52.3699),
    // 24·64·8192²/1.5e12; 2·(52.37e9 − 0.41e9)/1.555e12.
    ("a pass of 208 tokens, 12·2·n_layers·d²/1.5e12", 68.7195, 66.8272),
    // a quarter.
    ("the same on 4 A100, 69/4", 17.1799, 16.7068),
    // (137.43 + 0.58 + 0.53)/(68.72 + 0.28 + 0.53) ms: matrices, attention, lm_head.
    ("416 tokens over 208 tokens", 2.0, 1.9927),
    // (103.07 + 0.42 + 0.53)/69.53.
    ("312 tokens over 208 tokens, 312/208", 1.5, 1.49619),
    // == capacity ==
    // 104e12 B; 2·52.37e9 B.
    ("weights, 52e12 · 2 bytes", 104_000.0, 104.74),
    // 104/40 = 2.6, up; (104.74 + 4.29)/42.95 = 2.54, up.
    ("fewest A100 40 GB", 3.0, 3.0),
    // 128.85 − 104.74.
    ("free on 3, 120 − 104", 16.0, 24.1093),
    // 4·64·8192 B.
    ("KV per token, 2·2·n_layers·d", 0.00209715, 0.00209715),
    // 16/0.002; 24.11e9/2,097,152, down.
    ("tokens on 3, 16/0.002", 8000.0, 11_496.0),
    // 4·2048·2,097,152 B.
    ("4 requests of 2048 on 3", 17.1799, 17.1799),
    // 171.80 − 104.74.
    ("free on 4", 56.0, 67.059),
    // 56/0.002; 67.06e9/2,097,152, down.
    ("tokens on 4, 56/0.002", 28_000.0, 31_976.0),
    // == model parallelism: what a rank sends for one token ==
    // 600/2.
    ("A100 link, one direction", 300.0, 300.0),
    // 4·8192; 2·2·3/4·8192.
    ("tensor parallel: values a layer, N = 4", 32_768.0, 24_576.0),
    // d.
    ("pipeline: values a stage", 8192.0, 8192.0),
    // 208·(2·8192 + 2·32768/4) values of 2 B.
    ("intermediate values at 208 tokens", NONE, 0.0136315),
];
