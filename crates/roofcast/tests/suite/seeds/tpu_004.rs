//! Seed 004, Llama-3-70B on TPUs, computed by hand.

use super::Golden;

pub(super) const GOLDENS: &[Golden] = &[
    // == hardware ==
    // 9.9e14·3600/10.8; 989.4e12·3600/3.99.
    ("h100-sxm: 9.9e14 FLOP/s at 10.8 $/h", 3.3e+17, 8.9269e+17),
    // 4.59e14·3600/4.2; 459e12·3600/4.2.
    ("tpu-v5p: 4.59e14 FLOP/s at 4.2 $/h", 3.9343e+17, 3.9343e+17),
    // 1.97e14·3600/1.2; 197e12·3600/1.2.
    ("tpu-v5e: 1.97e14 FLOP/s at 1.2 $/h", 5.91e+17, 5.91e+17),
    // == KV cache, int8 ==
    // 2·80·8·128 B.
    ("per token, 2·L·K·H", 163.84, 163.84),
    // 160e3·32768; 163,840·32768.
    ("per sequence of 32,768, 160 KB × 32768", 5.24288, 5.36871),
    // 5.3·240; 5.369·240.
    ("of 240 such sequences, 5.3 GB × 240", 1.272, 1.28849),
    // 70; 68.45 + 2·(2·1.0507 + 0.0013).
    ("parameters, int8", 70.0, 72.6564),
    // (1300 + 70)/16 = 85.6, up; (1288.5 + 72.66)/16 = 85.07, up.
    ("chips for both", 86.0, 86.0),
    // == smallest topology: batch 32 at 8192, int8 ==
    // 160e3·262,144; 163,840·262,144.
    ("KV, 160 KB × 8192 × 32", 41.943, 42.9497),
    // 41.94 + 70; 42.95 + 72.66.
    ("with 70 GB of parameters", 111.943, 115.606),
    // 111.94/16 = 6.996, up; 115.6/16 = 7.2, up.
    ("fewest chips, 112/16", 7.0, 8.0),
    // 4×2.
    ("topology that holds it", 8.0, 8.0),
    // 112e9/(8·8.1e11); (72.66 − 2.10 + 42.95)e9/(8·819e9).
    ("step on 4×2", 17.284, 17.3238),
    // 32 over the step.
    ("throughput on 4×2", 1851.43, 1847.17),
    // as above, over 8.
    ("throughput per chip on 4×2", 231.429, 230.897),
    // 112e9/(16·8.1e11); (72.66 − 2.10 + 42.95)e9/(16·819e9).
    ("step on 4×4", 8.64198, 8.66188),
    // as above, over 16.
    ("throughput per chip on 4×4", 231.429, 230.897),
    // == critical batch ==
    // 1.97e14/8.2e11; 197e12/819e9.
    ("bf16 weights, bf16 FLOPs", 240.244, 240.537),
    // half.
    ("int8 weights, bf16 FLOPs", 120.122, 120.269),
    // twice the FLOPs, half the bytes.
    ("int8 weights, int8 FLOPs", 240.244, 240.537),
    // == topologies by dtype, 8192 tokens ==
    // 70·2; 68.45·2 + 2·2.1027.
    ("bf16: parameters", 140.0, 141.107),
    // 163,840·2 B.
    ("bf16: KV per token", 327.68, 327.68),
    // 140/16 = 8.75, up; (141.11 + 2.68)/16 = 8.99, up.
    ("bf16: fewest chips", 9.0, 9.0),
    // the next power of two.
    ("bf16: topology", 16.0, 16.0),
    // 256 − 140; 256 − 141.11.
    ("bf16: free HBM", 116.0, 114.893),
    // over 2.684: 43.2 and 42.8, down.
    ("bf16: largest batch", 43.0, 42.0),
    // 70·1; 68.45·1 + 2·2.1027.
    ("int8: parameters", 70.0, 72.6564),
    // 163,840·1 B.
    ("int8: KV per token", 163.84, 163.84),
    // 70/16 = 4.38, up; (72.66 + 1.34)/16 = 4.62, up.
    ("int8: fewest chips", 5.0, 5.0),
    // the next power of two.
    ("int8: topology", 8.0, 8.0),
    // 128 − 70; 128 − 72.66.
    ("int8: free HBM", 58.0, 55.3436),
    // over 1.342: 43.2 and 41.2, down.
    ("int8: largest batch", 43.0, 41.0),
    // 70·0.5; 68.45·0.5 + 2·2.1027.
    ("int4: parameters", 35.0, 38.4309),
    // 163,840·0.5 B.
    ("int4: KV per token", 81.92, 81.92),
    // 35/16 = 2.19, up; (38.43 + 0.67)/16 = 2.44, up.
    ("int4: fewest chips", 3.0, 3.0),
    // the next power of two.
    ("int4: topology", 4.0, 4.0),
    // 64 − 35; 64 − 38.43.
    ("int4: free HBM", 29.0, 25.5691),
    // over 0.671: 43.2 and 38.1, down.
    ("int4: largest batch", 43.0, 38.0),
    // == latency floor ==
    // 16e9/8.2e11; 16e9/819e9.
    ("reading all of HBM, 16 GB / 8.2e11", 19.5122, 19.536),
    // 0.019·512; 16e9/819e9·512.
    ("a request of 512 tokens, 19 ms × 512", 9.728, 10.0024),
    // 35e9/(4·8.2e11); (38.43 − 2.10)e9/(4·819e9).
    ("int4 parameters alone on 2×2", 10.6707, 11.0896),
    // == QPS per chip, 512 tokens a request ==
    // 43/(0.019·512)/16; 42/(19.21 ms·512)/16.
    ("bf16 on 16 chips", 0.276264, 0.266867),
    // 43/(0.019·512)/8; 41/(19.17 ms·512)/8.
    ("int8 on 8 chips", 0.552529, 0.522228),
    // 43/(0.019·512)/4; 38/(18.87 ms·512)/4.
    ("int4 on 4 chips", 1.10506, 0.983078),
    // 372e9/2.684e9 = 138.6; 138.2, down.
    ("bf16 on 4×8: batch", 138.0, 138.0),
    // 138/(0.019·512)/32; 138/(19.44 ms·512)/32.
    ("bf16 on 4×8: QPS per chip", 0.443308, 0.433303),
    // 186e9/1.342e9 = 138.6; 136.6, down.
    ("int8 on 4×4: batch", 138.0, 136.0),
    // 138/(0.019·512)/16; 136/(20.00 ms·512)/16.
    ("int8 on 4×4: QPS per chip", 0.886616, 0.830183),
    // 93e9/0.671e9 = 138.6; 133.5, down.
    ("int4 on 2×4: batch", 138.0, 133.0),
    // 138/(0.019·512)/8; 133/(25.50 ms·512)/8.
    ("int4 on 2×4: QPS per chip", 1.77323, 1.2735),
    // == tensor parallelism and ICI, bf16 ==
    // 57,344/2200; 57,344·9e10/1.97e14.
    ("widest when compute-bound, F·M/2200, M = 2", 26.0655, 26.1978),
    // 28,672/512; 28,672·9e10/(64·819e9).
    ("widest at batch 64, F/(8·B)", 56.0, 49.2308),
    // (140 + 171.8)e9/(32·8.2e11); (139.0 + 171.8)e9/(32·819e9).
    ("4×8, batch 64 at 8192: HBM time", 11.8826, 11.8592),
    // 64·140e9/(32·1.97e14); 64·(139.0e9 + 4·80·8192·8192)/(32·1.97e14).
    ("4×8, batch 64 at 8192: FLOPs time", 1.42132, 1.62922),
    // 80·2·2·1,048,576 B/1.8e11; times 31/32 over one direction of each axis, 9e10.
    ("4×8, batch 64 at 8192: ICI time", 1.86414, 3.61176),
    // == prefill ==
    // 1.147e15/1.261e15; (1.1215e15 + 0.0880e15)/1.261e15.
    ("8192 tokens on 16 chips at 40 % MFU", 0.909645, 0.959451),
    // == continuous batching: B 32, P 8192, G 4096 ==
    // 32/4096.
    ("requests finished a step, B/G", 0.0078125, 0.0078125),
    // 4096/32.
    ("steps between two, G/B", 128.0, 128.0),
    // 8192 + 4096.
    ("KV of a finished request, P + G", 12_288.0, 12_288.0),
    // 32·12288/4096.
    ("KV evicted a step, B·(P + G)/G", 96.0, 96.0),
    // == prefill to generate servers ==
    // 32·0.9096/9.728; 32·0.959/(17.16 ms·512).
    ("at B = 32, 32·0.91/(0.019·512)", 2.99225, 3.49386),
    // 43·0.9096/9.728; 42·0.959/(19.21 ms·512).
    ("at B = 43, which costs 19 ms", 4.02084, 4.09673),
    // == the program: int8 on 16 chips at 8192 tokens ==
    // 186e9/1.342e9 = 138.6, down; (256 − 72.66)/1.342 = 136.6, down.
    ("max_bs", 138.0, 136.0),
    // max(2·70e9·B/(16·1.97e14), 70e9/(16·8.2e11)) + B·1.342e9/(16·8.2e11).
    ("latency at batch 1", 5.43767, 5.48666),
    // batch over latency over 16.
    ("throughput at batch 1", 0.0114939, 0.0113913),
    // as above.
    ("latency at batch 8", 6.15377, 6.20365),
    // batch over latency over 16.
    ("throughput at batch 8", 0.081251, 0.0805978),
    // as above.
    ("latency at batch 32", 8.60897, 8.66188),
    // batch over latency over 16.
    ("throughput at batch 32", 0.232316, 0.230897),
    // as above.
    ("latency at batch 64", 11.8826, 11.9395),
    // batch over latency over 16.
    ("throughput at batch 64", 0.336627, 0.335022),
    // as above.
    ("latency at batch 120", 17.6114, 17.6754),
    // batch over latency over 16.
    ("throughput at batch 120", 0.425861, 0.424319),
    // as above.
    ("latency at batch 138", 20.2469, 20.2892),
    // batch over latency over 16.
    ("throughput at batch 138", 0.425992, 0.425103),
    // == what the curves show, int8 on 16 chips ==
    // batch 153 at 10.71 ms against batch 1 at 5.36 ms; ours at 154.
    ("cost saved by twice the latency, 2048 tokens", 76.5944, 77.1914),
    // batch 54 at 10.86 ms against batch 1 at 5.44 ms; ours at 54.
    ("cost saved by twice the latency, 8192 tokens", 27.0392, 27.1436),
    // batch 15 at 11.47 ms against batch 1 at 5.74 ms; ours at 15.
    ("cost saved by twice the latency, 32768 tokens", 7.5103, 7.53781),
    // 2·8.40/16.80 ms.
    ("throughput at batch 240 over batch 120, 2048 tokens", 1.00064, 1.01099),
    // 186e9/5.369e9 = 34.6; 183.3e9/5.369e9 = 34.1, down.
    ("largest batch at 32,768 tokens, to reach 120", 34.0, 34.0),
    // 14.12/20.25 ms.
    ("share of KV in the step at batch 138, 8192 tokens", 0.697265, 0.696659),
    // == question 1: LLaMA-3-405B, one token ==
    // 2·405; 2·(405.85 − 2.10).
    ("FLOPs per token, 2P", 810.0, 807.504),
    // 810e9/1.97e14.
    ("FLOPs-bound, batch 1 on one chip", 4.11168, 4.09901),
    // 810e9/8.2e11; 2·403.75e9/819e9.
    ("bandwidth-bound on one chip, bf16", 987.805, 985.963),
    // 405e9/8.2e11; (401.65 + 2·2.10)e9/819e9.
    ("bandwidth-bound on one chip, int8", 493.902, 495.553),
    // == question 2: LLaMA-3-8B, int8, batch 240 at 8192 ==
    // 8; 6.98 + 2·1.05.
    ("parameters", 8.0, 9.0812),
    // 2·32·8·128·8192·240 B.
    ("KV cache", 128.849, 128.849),
    // 240·(2·4096 + 3·14336)·2 B; sampling: 240·128,256·22 B. 240 · (128,256 · 22 + 2 · 4096): sampling in addition
    // to the last layer's output.
    ("activations, B·(2·D + 3·F) in bf16", 0.024576, 0.679158),
    // 136.85/16 = 8.55; (9.08 + 128.85)/16 = 8.62, up.
    ("fewest chips", 9.0, 9.0),
    // the next power of two.
    ("topology", 16.0, 16.0),
    // == question 3: LLaMA-3-405B, int8 weights, bf16 FLOPs, 15 ms a token ==
    // 405/16 = 25.3, up; 410.06/16 = 25.6, up.
    ("chips for the weights", 26.0, 26.0),
    // 405e9/(32·8.2e11); 405.85e9/(32·819e9).
    ("least step on 32 chips", 15.4345, 15.486),
    // half.
    ("least step on 8×8", 7.71723, 7.74301),
    // 2·405e9·143/(64·1.97e14) + 143·2.114e9/(64·8.2e11) = 14.95 ms; 144: 15.05.
    ("largest batch within 15 ms on 8×8, 8192 tokens", 143.0, 143.0),
    // 405e9/(64 · 8.2e11) = 7.717 ms; KV 258,048 · 8192/(64 · 8.2e11) = 40.3 µs and links 90.3 µs a sequence: 7.283/0.1306 = 55.8.
    // Ours over one direction of each axis: 7.743, 40.3 and 180.6: 7.257/0.2210 = 32.8.
    ("the same with the time on ICI", 55.0, 32.0),
    // 0.015·64·1.97e14/810e9 = 233.5; /807.5e9 = 234.2, down.
    ("the same without KV", 233.0, 234.0),
];
