//! Any text as bounds on images of every tower: read, or refused; never a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        roofcast::testing::processor(text);
    }
});
