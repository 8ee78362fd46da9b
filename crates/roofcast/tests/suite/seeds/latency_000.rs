//! Seed 000, inference latency, computed by hand.

use super::{Golden, NONE};

pub(super) const GOLDENS: &[Golden] = &[
    // == 1.1 latency formulas (LLaMA-13B fp16 on 8 V100) ==
    // 2·13.016e9/(8·900e9); the same without 32000·5120 embedding weights.
    ("small batch: weights, 2P/(N·A_bm)", 3.61552, 3.57001),
    // 160·8 µs; 80 all-reduces of 10,240 B by tree: 2·3 hops of 2 µs + 20,480 B/150e9.
    ("small batch: comms, 4·n_layers·8 µs", 1.28, 0.970923),
    // 256·2·13.016e9/(8·125e12); without embedding and norms, with one key a query: 4·40·5120.
    ("batch 256: FLOPs, B·2P/(N·A_f)", 6.66412, 6.58023),
    // 256·8·40·5120/150e9; 80 rings of 2·7/8·256·10,240 B.
    ("batch 256: comms, B·8·n_layers·d_model/A_c", 2.7962, 2.44668),
    // == 1.2 arithmetic intensity ==
    // 1/(1 + 2·1/4096).
    ("4096×4096 layer, batch 1", 0.999512, 0.999512),
    // 16/(1 + 2·16/4096).
    ("4096×4096 layer, batch 16", 15.876, 15.876),
    // 64/(1 + 2·64/4096).
    ("4096×4096 layer, batch 64", 62.0606, 62.0606),
    // 128/(1 + 2·128/4096).
    ("4096×4096 layer, batch 128", 120.471, 120.471),
    // 256/(1 + 2·256/4096).
    ("4096×4096 layer, batch 256", 227.556, 227.556),
    // 1024/(1 + 2·1024/4096).
    ("4096×4096 layer, batch 1024", 682.667, 682.667),
    // ridge R = 312e12/1.555e12 = 200.64; R/(1 − 2R/4096) = 222.4, up.
    ("that layer is compute-bound on A100 40 GB from", 223.0, 223.0),
    // ridge R = 312e12/2.039e12 = 153.02; R/(1 − 2R/4096) = 165.4, up.
    ("that layer is compute-bound on A100 80 GB from", 166.0, 166.0),
    // 2 FLOPs over 2 bytes; with inputs and outputs 1/(1 + 2/4096).
    ("an fp16 decoder at batch 1", 1.0, 0.999512),
    // 125e12/900e9 = 138.9, times 8.
    ("tokens below which latency is flat on 8 V100", 1111.11, 138.889),
    // 138.9/8.
    ("prompts of 8 tokens with flat latency, 4 to 8 V100", NONE, 17.3611),
    // == 2 concurrency, LLaMA-13B on 8 V100 at 2048 tokens ==
    // 4·40·5120.
    ("KV per token, 4·n_layers·d_model", 819_200.0, 819_200.0),
    // 819,200/1e6.
    ("KV per token", 0.8192, 0.8192),
    // 819,200·2048/2^30.
    ("KV per request", 1.5625, 1.5625),
    // 2·13,015,864,320/2^30.
    ("fp16 weights", 24.2439, 24.2439),
    // 231.4/2; (256 − 24.244)/1.5625 = 148.3, down.
    ("largest batch, fp16: (32*8 − 24.6)/2", 115.7, 148.0),
    // 243.7/2; weights 12.688e9 + 2·0.328e9 B = 12.43 GiB: 155.9, down.
    ("largest batch, int8: (32*8 − 24.6/2)/2", 121.85, 155.0),
    // as above.
    ("batch that DeepSpeed reached", NONE, 148.0),
    // 10000/50.
    ("nodes for 10,000 users at 50 each", 200.0, 200.0),
    // 10000/115 = 86.96, up; 10000/148 = 67.6, up.
    ("nodes for 10,000 users at the largest batch", 87.0, 68.0),
    // (256 − 24.244)/0.78125 = 296.6, down, over 148.
    ("batch with int8 KV over batch with fp16 KV", 2.0, 2.0),
    // == 2 concurrency, LLaMA-65B on 8 V100 at 2048 tokens ==
    // 4·80·8192 B = 2,621,440 B.
    ("KV per token", 2.5, 2.5),
    // 2.5 MiB·2048.
    ("KV per request", 5.0, 5.0),
    // 2·65,285,660,672/2^30.
    ("fp16 weights", 121.604, 121.604),
    // 134.4/5; 26.879, down.
    ("largest batch, fp16: (32*8 − 121.6)/5", 26.88, 26.0),
    // 195.2/5; weights 64.76e9 + 2·0.526e9 B = 61.29 GiB: 38.94, down.
    ("largest batch, int8: (32*8 − 121.6/2)/5", 39.04, 38.0),
];
