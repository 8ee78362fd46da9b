use super::*;
use crate::deployment::Deployment;

fn read(text: &str) -> Result<Kernels> {
    super::read("k.csv", text, Catalog::embedded().unwrap())
}

/// 2·1·8192·8192 = 134 MFLOP at 989.4 TFLOP/s are 136 ns; 134 MB at 3.35 TB/s are 40.1 µs.
#[test]
fn a_matrix_product_by_hand() {
    let text = "system,backend,version,dtype,m,n,k,latency_ms,kernel_source\nh100_sxm,trtllm,1,bfloat16,1,8192,8192,0.05,x\nh100_sxm,trtllm,1,bfloat16,1,512,512,0.003,x\n";
    let kernels = read(text).unwrap();
    let one = &kernels.all[0];
    assert!((one.memory - 134_217_728.0 / 3.35e12).abs() < 1e-9, "{one:?}");
    assert!((one.compute / one.memory - 134_217_728.0 / 989.4e12 / one.memory).abs() < 1e-3);
    // Half a megabyte of weights stays in the cache.
    assert_eq!((one.measured, kernels.all.len(), kernels.skipped), (5e-5, 1, 1));
}

/// 64 sequences of 4096 tokens, 8 heads of 128, two bytes, keys and values: 64·4096·8·128·4 = 1.07 GB.
#[test]
fn a_decode_by_hand() {
    let text = "system,attn_dtype,kv_cache_dtype,batch_size,kv_len,nq,nkv,head_dim,latency_ms\nh100_sxm,bfloat16,bfloat16,64,4096,32,8,128,0.4\n";
    let one = &read(text).unwrap().all[0];
    assert!((one.memory - 1_073_741_824.0 / 3.35e12).abs() < 1e-12);
    assert_eq!((one.part, one.pairs), (Part::Decode, 512.0));
    // 7 · 4096 · 8 · 128 · 4 = 117 MB fit into an L2; 100 keys are fewer than counts, 4096 sequences of them 1.7 GB.
    for (few, sequences, keys) in [(true, 7, 4096), (true, 4096, 100), (false, 8, 4096), (false, 4096, 128)] {
        let text = text.replace("64,4096", &format!("{sequences},{keys}"));
        assert_eq!(read(&text).unwrap().all.is_empty(), few, "{text}");
    }
}

/// 4096 tokens, 8 of 128 experts each: by a power law from 1 to 3276.8 the squared deviation of an expert's tokens is
/// 8.0946/2 · 3277.8/3275.8 − 1 = 3.0498, so the busiest of 4 ranks has 1 + √(3.0498 · 4/128) · 0.61 · 2^0.75 = 1.3167 times
/// 8192 copies. Each passes 3·4096·1536 weights, and its 4096 values in two bytes cross the bus. All experts are read, 32
/// of them here.
#[test]
fn experts_by_hand() {
    let text = "system,backend,version,moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,distribution,latency_ms\nh100_sxm,trtllm,1,fp8,4096,4096,1536,8,128,1,4,power_law_1.01,0.9\n";
    let one = &read(text).unwrap().all[0];
    let (copies, expert) = (8192.0 * 1.3167, 3.0 * 4096.0 * 1536.0);
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-4;
    assert!(near(one.passed, copies * 8192.0 / 3.35e12) && one.touched == 32.0, "{one:?}");
    assert!(near(one.copies, 32_768.0 * 8192.0 / 3.35e12), "{one:?}");
    assert!(near(one.memory, 32.0 * expert / 3.35e12), "{one:?}");
    assert!((one.compute / (2.0 * copies * expert / 1978.9e12) - 1.0).abs() < 1e-3, "{one:?}");
    // Eight tokens touch 128 (1 − (15/16)^8) = 51.62, 12.905 a rank with a variance of 12.905 · 0.75 · 76.38/127 = 5.821: the
    // busiest of four reads 1 + 0.61 · 2^0.75 · √5.821/12.905 = 1.1918 times its share.
    let few = &read(&text.replace("1,fp8,4096,", "1,fp8,8,")).unwrap().all[0];
    assert!((few.memory / (1.1918 * 12.905 * expert / 3.35e12) - 1.0).abs() < 1e-3, "{few:?}");
    // 64 tokens have 512 copies, 1 to 51.2 an expert before they are scaled: L = 3.9357, and what rounds to none lies below
    // 128 · 50.2/(2 · 3.9357 · 512) = 1.5944. 128 (1 − ln 1.5944/L) = 112.83 are touched, 28.207 a rank with a variance of
    // 28.207 · 0.75 · 15.17/127 = 2.527: 1 + 1.0259 · √2.527/28.207 = 1.0578 times on the busiest.
    let more = &read(&text.replace("1,fp8,4096,", "1,fp8,64,")).unwrap().all[0];
    assert!((more.touched / (1.0578 * 28.207) - 1.0).abs() < 1e-3, "{more:?}");
}

/// A layer of Llama-3.1-8B has two norms: 100 + 2·10 µs for 2048 tokens of 4·4096 and 3·14,336 values. A piece of 512
/// tokens has 512·513/2 pairs, two decodes of 100 have 2·100 and 2·(100 + 0.2·512) to start; a pair is 4·4096 FLOP.
#[test]
fn a_profile_by_hand() {
    let catalog = Catalog::embedded().unwrap();
    let entry = catalog.model("meta-llama/Llama-3.1-8B-Instruct").unwrap();
    let model = crate::model::config::read(&entry.id, "catalog", &entry.config).unwrap();
    let chip = catalog.accelerator("h100-sxm").unwrap().clone();
    let deployment = Deployment::resolve(model.into(), chip.into(), &Default::default()).unwrap();
    let dense = "layer,tokens,time_us\nact_fn,2048,100\nlayernorm,2048,10\nact_fn,1,1\n";
    let attention = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n512,0,2,100,60\n";
    let kernels = profile("p", dense, attention, &deployment).unwrap();
    // A single token's values stay in caches.
    let [norms, mixed] = &kernels.all[..] else { panic!("{kernels:?}") };
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-3;
    assert!(near(norms.measured, 120e-6) && norms.part == Part::Elementwise, "{norms:?}");
    assert!(near(norms.memory, 2048.0 * (16_384.0 + 43_008.0) * 2.0 / 3.35e12), "{norms:?}");
    let pairs = 4.0 * 4096.0 / 989.4e12;
    assert!(mixed.part == Part::Mixed && near(mixed.compute, 512.0 * 513.0 / 2.0 * pairs), "{mixed:?}");
    assert!(near(mixed.memory, 2.0 * (100.0 + 100.0 + 102.4) * pairs), "{mixed:?}");
    assert_eq!(kernels.skipped, 1);
}

#[test]
fn wrong_tables_name_line_and_column() {
    for (text, says) in [
        ("system,latency_ms\n", "columns"),
        ("system,dtype,m,n,k,latency_ms\nh100_sxm,fp8,1,512,many,0.1\n", "k.csv:2"),
        ("system,dtype,m,n,k,latency_ms\nh100_sxm,fp8,1,512,512,-1\n", "latency_ms"),
        ("system,dtype,m,n,k,latency_ms\nabacus,fp8,1,512,512,1\n", "abacus"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
