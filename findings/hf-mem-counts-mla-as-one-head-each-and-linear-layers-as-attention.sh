#!/usr/bin/env bash
# hf-mem: the KV cache of MLA models is counted as plain attention (25 to 43 times too much), that of linear-attention layers as full attention.
#
# Guessed: a tool that reads config.json and offers `--kv-cache-dtype fp8_ds_mla`, the format of DeepSeek's compressed cache,
#   counts that cache: kv_lora_rank + qk_rope_head_dim values a token and layer. Layers listed as linear_attention cost no
#   memory per token.
# Happens (hf-mem 0.5.6, its own compute_safetensors_kv_cache_size): kv_lora_rank is never read. DeepSeek-V3 gets
#   2 x 61 layers x 128 heads x 56 (hidden size / heads) = 874,496 values a token, 1,748,992 bytes in bf16, where 61 x 576 values,
#   70,272 bytes, are kept: 24.9 times. GLM-5.2 (78 layers, 64 heads, the key head_dim 192) gets 3,833,856 bytes for 89,856 (without its indexer's keys): 42.7 times.
#   In "layer_types" whatever is not attention by name counts as a sliding layer, and sliding layers beside full ones are
#   charged the whole context: Qwen3.5-397B-A17B, 15 layers of attention and 45 linear, gets 122,880 bytes a token for 30,720: 4 times.
#   Grouped-query models are right (Llama-3.1-8B: 131,072).
# Why it matters: with 32 users at 32k tokens DeepSeek-V3 "needs" 1.83 TB of cache where 74 GB do; nobody would then serve it on one node.
# Takes some seconds, 5 MB. The configs below hold the keys of the published config.json that the function reads.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check hf-mem==0.5.6
"$d/v/bin/python" - <<'PY'
import importlib.metadata
from hf_mem.safetensors.kv_cache import KV_CACHE_DTYPE_CHOICES, compute_safetensors_kv_cache_size
print("hf-mem", importlib.metadata.version("hf-mem"), "offers", [kind for kind in KV_CACHE_DTYPE_CHOICES if "mla" in kind])
mla = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
models = {
    "Llama-3.1-8B": ({"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32}, 2 * 32 * 8 * 128 * 2, 131072),
    "DeepSeek-V3": ({"hidden_size": 7168, "num_attention_heads": 128, "num_key_value_heads": 128, "num_hidden_layers": 61} | mla, 61 * 576 * 2, 1748992),
    "GLM-5.2": ({"hidden_size": 6144, "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 192, "num_hidden_layers": 78} | mla, 78 * 576 * 2, 3833856),
    "Qwen3.5-397B-A17B": ({"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 256, "num_hidden_layers": 60,
                           "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 15}, 2 * 15 * 2 * 256 * 2, 122880),
}
tokens = 1000
for name, (config, kept, stated) in models.items():
    answer = compute_safetensors_kv_cache_size(config, "BF16", tokens) // tokens
    print(f"{name:18} {answer:>9,} bytes a token; kept by engines {kept:>7,}; {answer / kept:.1f} x")
    assert answer == stated, (name, answer, stated)
print("as stated")
PY
