//! Hashes of KV blocks as vLLM computes them with `--prefix-caching-hash-algo sha256_cbor`.
//!
//! Knows: SHA-256 over the canonical CBOR (RFC 8949) of the previous block's hash, the block's tokens and any extra
//! keys; the first block follows the hash of a seed. Source: `vllm/v1/core/kv_cache_utils.py` (`init_none_hash`,
//! `hash_block_tokens`, `maybe_convert_block_hash`).

use ciborium::Value;
use sha2::{Digest as _, Sha256};

/// SHA-256 hash of a block.
pub(super) type Digest = [u8; 32];

/// Seed that vLLM uses if `PYTHONHASHSEED` is not set.
pub(crate) const SEED: &str = "vllm-none-hash";

/// The hash that stands for the predecessor of a first block.
pub(super) fn root(seed: &str) -> Digest {
    of(&Value::Text(seed.to_owned()))
}

/// Extra key for blocks of a LoRA adapter, which distinguishes them from blocks with equal tokens
/// (`_gen_lora_extra_hash_keys`).
pub(super) fn adapter(name: &str, path: &str) -> Value {
    Value::Array(["lora", name, path].map(|text| Value::Text(text.to_owned())).into())
}

/// The hash of a block that follows `parent`; `extra` distinguishes it from blocks with equal tokens.
pub(super) fn block(parent: &Digest, tokens: impl Iterator<Item = u32>, extra: Option<&Value>) -> Digest {
    let parent = Value::Bytes(parent.to_vec());
    let tokens = Value::Array(tokens.map(|token| Value::Integer(token.into())).collect());
    let extra = extra.map_or(Value::Null, |extra| Value::Array(vec![extra.clone()]));
    of(&Value::Array(vec![parent, tokens, extra]))
}

fn of(value: &Value) -> Digest {
    let mut bytes = Vec::with_capacity(128);
    // Writing to a vector cannot fail.
    _ = ciborium::into_writer(value, &mut bytes);
    Sha256::digest(&bytes).into()
}

/// The low 64 bits of a hash, which events contain.
pub(super) fn short(digest: &Digest) -> u64 {
    digest[24..].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(digest: &Digest) -> String {
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Results of vLLM's own `init_none_hash(sha256_cbor)`, `hash_block_tokens` and `maybe_convert_block_hash` (vLLM at
    /// 29bf597539) for blocks of 128 of the tokens (7919 i + 13) mod 152064. CBOR encodes these tokens in one to four
    /// bytes.
    #[test]
    fn hashes_are_vllms() {
        let first = root(SEED);
        assert_eq!(hex(&first), "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0");
        let tokens = |from: u32| (from..from + 128).map(|i| (i * 7919 + 13) % 152_064);
        let first_hash = block(&first, tokens(0), None);
        let two = block(&first_hash, tokens(128), None);
        assert_eq!(hex(&first_hash), "3c922374e6fe67f3c64e75b88a3b8bd6185b538f7019674b72aefbf8dd8754f8");
        assert_eq!(hex(&two), "2e69fa8c8aebe362593b51b8b212f1aeb45f9bb56c4258c0bf2a94f1e384e2a5");
        assert_eq!(
            (short(&first_hash), short(&two)),
            (8_263_819_412_558_533_880, 13_774_986_176_891_249_317)
        );
    }

    /// Results of vLLM's functions with the seed "0" for tokens 1000 to 1127, without and with a `cache_salt`.
    #[test]
    fn a_salt_tells_blocks_apart_as_in_vllm() {
        let first = root("0");
        assert_eq!(hex(&first), "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e");
        let plain = block(&first, 1000..1128, None);
        assert_eq!(hex(&plain), "199e2f20e73a6e2cc3e0e6fdf521eff7b636122d5e122320c22c380d95e5863e");
        let salted = block(&first, 1000..1128, Some(&Value::Text("my-salt".to_owned())));
        assert_eq!(hex(&salted), "84611d254438937d076c5739d973f17e1febd6a252387f535357a817319908b0");
    }
}
