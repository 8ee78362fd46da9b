//! Any text as what calibrating and validating read; never a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        roofcast::testing::measured(text);
    }
});
