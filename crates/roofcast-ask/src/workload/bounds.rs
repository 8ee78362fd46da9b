//! Bounds of the keys of arrivals.
//!
//! Knows: how a number outside its bounds is refused. Knows nothing about the kinds of arrivals.

use roofcast_facts::error::{Error, Result, shown};

/// Refuses a number of users that would need too much memory: all users are ready at the start, with one word each.
pub(super) fn check_concurrency(place: &str, users: u64) -> Result<()> {
    let sane = (1..=1_000_000).contains(&users);
    number(place, "concurrency", users as f64, sane, "a whole number from 1 to 10^6")
}

/// Refuses the value `found` of `field` unless it is `sane`.
pub(super) fn number(place: &str, field: &str, found: f64, sane: bool, accepted: &str) -> Result<()> {
    if sane {
        return Ok(());
    }
    Err(Error::field(place, format!("workload.arrivals.{field}"), shown(found), accepted))
}
