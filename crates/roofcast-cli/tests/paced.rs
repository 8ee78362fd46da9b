//! Tests that measure the clock or need many of the machine's connections, run alone after the other tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests too
#![allow(dead_code)] // helpers of the other tests

#[path = "suite/emulate/agreement.rs"]
mod agreement;
#[path = "suite/emulate/endurance.rs"]
mod endurance;
#[path = "suite/emulate/server.rs"]
mod server;
#[path = "suite/emulate/soak.rs"]
mod soak;
#[path = "suite/support.rs"]
mod support;

use server::{Server, TINY, begin, read};
