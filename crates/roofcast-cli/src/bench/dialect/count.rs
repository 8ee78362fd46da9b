//! Numbers of tokens: JSON has one kind of number, and some gateways write counts as floats, or as null.

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use std::fmt;

/// Reads a whole number of tokens, as 12 or 12.0; null is none.
pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    deserializer.deserialize_any(Count)
}

struct Count;

impl Visitor<'_> for Count {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a number of tokens, or null")
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<Option<u64>, E> {
        Ok(Some(n))
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<Option<u64>, E> {
        u64::try_from(n).map(Some).map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))
    }

    fn visit_f64<E: Error>(self, n: f64) -> Result<Option<u64>, E> {
        let whole = (0.0..=1e15).contains(&n) && n.fract() == 0.0;
        if whole { Ok(Some(n as u64)) } else { Err(E::invalid_value(Unexpected::Float(n), &self)) }
    }

    fn visit_unit<E: Error>(self) -> Result<Option<u64>, E> {
        Ok(None)
    }
}
