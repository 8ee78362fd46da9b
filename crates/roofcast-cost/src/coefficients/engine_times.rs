//! Times that an engine adds to its kernels, in at most ten numbers: small kernels, launches, host work of a step,
//! and its server.
//!
//! Knows: the numbers by name, each with its physical prior and bounds. [`crate::step`] knows the number of kernels
//! of a layer; `calibrate` fits the numbers.

use roofcast_ask::spec::Frontend;
use serde::{Deserialize, Serialize};

/// One number in microseconds, with its prior and bounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// Fitted value that forecasts use, in microseconds.
    pub us: f64,
    /// Published or separately measured value, in microseconds.
    pub prior: f64,
    /// Lower bound in microseconds.
    pub least: f64,
    /// Upper bound in microseconds.
    pub most: f64,
}

/// Declares an engine's numbers together with the list of their names.
macro_rules! engine_times {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// Times that an engine adds to its kernels, in seconds; all 0 at a limit.
        #[derive(Debug, Clone, Copy, PartialEq, Default)]
        pub struct EngineTimes { $($(#[$doc])* pub $name: f64),* }

        impl EngineTimes {
            /// Names of the numbers, in order of the fields.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Returns a reference to the number called `name`.
            pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut f64> {
                $(if name == stringify!($name) { return Some(&mut self.$name); })*
                None
            }

            /// Returns every number times `factor`.
            #[must_use]
            pub fn scaled(self, factor: f64) -> EngineTimes {
                EngineTimes { $($name: self.$name * factor),* }
            }
        }
    };
}

engine_times! {
    /// Device seconds of a small kernel (norm, rotary embedding, cache write, activation, router's top-k) of a decode
    /// step in a captured graph, including the gap before it.
    small_kernel
    /// Host seconds of a kernel that the engine launches by itself outside captured graphs, in Python if it is written in
    /// Python.
    launch
    /// Exposed host seconds per step: the device is idle meanwhile.
    step
    /// Exposed host seconds per sequence of a step.
    sequence
    /// Host seconds per step that overlap with the device.
    loop_step
    /// Seconds per token that the server's one thread streams, beside the device and the engine; where the engine's own loop
    /// answers, as TensorRT-LLM's, per sequence of a step.
    loop_sequence
    /// Exposed host seconds of a step that computes prompts, on top of `step`.
    prompt_step
    /// Seconds of a request outside the engine, in parallel with other requests.
    request
    /// Seconds of a request in the server's one thread, which serves one request after another.
    request_serial
    /// Seconds per prompt token in the server's one thread.
    prompt_token
}

/// Host time of a server in a step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ServerLoop {
    /// Seconds per step for which the device waits.
    pub(crate) step: f64,
    /// Seconds per sequence of a step for which the device waits.
    pub(crate) sequence: f64,
    /// Seconds per streamed token of one process of the server, which bound a step.
    pub(crate) token: f64,
    /// True if the engine's loop is a thread of the server's process, whose interpreter runs one thread at a time.
    pub(crate) holds_engine: bool,
}

impl ServerLoop {
    /// Returns the host time of a server that streams a token in `token` seconds behind `frontend`.
    /// gevent: from noooop's "LLM inference, limits and tests 2", the table's row of the smallest model, 0.5B; the
    /// other five rows validate it.
    pub(crate) fn of(frontend: Frontend, token: f64) -> ServerLoop {
        match frontend {
            Frontend::Asyncio | Frontend::Dynamo => ServerLoop { token, ..ServerLoop::default() },
            Frontend::Gevent => ServerLoop { step: 1.2e-3, sequence: 29e-6, token, holds_engine: true },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// gevent: 1.2 ms a step and 29 µs for each of 64 users.
    #[test]
    fn a_server_loop_by_hand() {
        let gevent = ServerLoop::of(Frontend::Gevent, 0.0);
        assert!((gevent.step + 64.0 * gevent.sequence - 3.056e-3).abs() < 1e-12);
    }

    #[test]
    fn numbers_are_found_by_name() {
        let mut times = EngineTimes::default();
        for (index, name) in EngineTimes::NAMES.iter().enumerate() {
            *times.get_mut(name).unwrap() = index as f64;
        }
        assert_eq!((times.small_kernel, times.prompt_token, EngineTimes::NAMES.len()), (0.0, 9.0, 10));
        assert_eq!(times.scaled(2.0).launch, 2.0);
        assert_eq!(times.get_mut("banana"), None);
    }
}
