//! `roofcast emulate` as clients meet it: tests that run real processes on loopback.

#[path = "emulate/answers.rs"]
mod answers;
#[path = "emulate/clients.rs"]
mod clients;
#[path = "emulate/control.rs"]
mod control;
#[path = "emulate/dialects.rs"]
mod dialects;
#[path = "emulate/faults.rs"]
mod faults;
#[path = "emulate/fleet.rs"]
mod fleet;
#[path = "emulate/forms.rs"]
mod forms;
#[path = "emulate/kv_events.rs"]
mod kv_events;
#[path = "emulate/protocol.rs"]
mod protocol;
#[path = "emulate/recorded.rs"]
mod recorded;
#[path = "emulate/rig.rs"]
mod rig;
#[path = "emulate/server.rs"]
mod server;
#[path = "emulate/slots.rs"]
mod slots;
#[cfg(feature = "tokenizers")]
#[path = "emulate/tokenizer.rs"]
mod tokenizer;
#[path = "emulate/tools.rs"]
mod tools;

use server::{HttpResponse, Server, TINY, accepted, begin, dechunked, read};
