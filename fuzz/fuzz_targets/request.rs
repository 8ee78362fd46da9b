//! Any bytes as the body of a request to an emulated server: answered, or refused; never a panic or much memory.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| roofcast_emulate::testing::request(data));
