//! Numbers of tokens: JSON has one kind of number, and some gateways write counts as floats, or as null.

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use std::fmt;

/// Reads a whole number of tokens, as 12 or 12.0; null is none.
pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    deserializer.deserialize_any(Count)
}

/// Most tokens that a server may count for a request, far above any context; sums over requests do not overflow.
const MOST_TOKENS: u64 = 1_000_000_000;

struct Count;

impl Visitor<'_> for Count {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "a number of tokens up to {MOST_TOKENS}, or null")
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<Option<u64>, E> {
        if n <= MOST_TOKENS { Ok(Some(n)) } else { Err(E::invalid_value(Unexpected::Unsigned(n), &self)) }
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<Option<u64>, E> {
        u64::try_from(n).map(Some).map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))
    }

    fn visit_f64<E: Error>(self, n: f64) -> Result<Option<u64>, E> {
        let whole = (0.0..=MOST_TOKENS as f64).contains(&n) && n.fract() == 0.0;
        if whole { Ok(Some(n as u64)) } else { Err(E::invalid_value(Unexpected::Float(n), &self)) }
    }

    fn visit_unit<E: Error>(self) -> Result<Option<u64>, E> {
        Ok(None)
    }
}
