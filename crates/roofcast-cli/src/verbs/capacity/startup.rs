//! Time of a replica's start, for people.

use crate::show::number::significant;
use roofcast::startup::{StartPart, Startup};

/// The time of a start in words.
pub(super) fn told(start: &Startup) -> String {
    let part = |part: &StartPart| format!("{} {} s", part.part, significant(part.seconds));
    let parts = start.parts.iter().map(part).collect::<Vec<_>>().join(", ");
    let first = match start.first_s {
        0.0 => String::new(),
        seconds => format!("; {} s more where kernels are not compiled yet", significant(seconds)),
    };
    let measured = if start.parts.len() > 1 { "" } else { "; nobody published the engine's own time" };
    format!(
        "{} s at {} GB/s from a network volume: {parts}{first}{measured}",
        significant(start.seconds),
        significant(start.bytes_per_s / 1e9)
    )
}
