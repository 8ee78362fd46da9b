//! Any bytes as a GGUF, a safetensors file or an index: read, or refused; never a panic or much memory.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| roofcast::testing::checkpoint(data));
