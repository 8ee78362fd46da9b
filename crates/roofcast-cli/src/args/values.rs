//! What the values of flags may be.
//!
//! Knows: the range of each kind of value and how errors name it. Knows nothing about flags.

/// A count from 1 to 2^30.
pub(super) fn positive() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=1 << 30)
}

pub(super) fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=1024).contains(&n) => Ok(n),
        _ => Err("accepted: 1 to 1024".into()),
    }
}

pub(super) fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v > 0.0 && v <= 1.0 => Ok(v),
        _ => Err("accepted: a number above 0, at most 1".into()),
    }
}

pub(super) fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if (0.01..=1000.0).contains(&v) => Ok(v),
        _ => Err("accepted: 0.01 to 1000".into()),
    }
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if (1e-6..=1e6).contains(&v) => Ok(v),
        _ => Err("accepted: requests a second from 0.000001 to 10^6".into()),
    }
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if (0.001..=1e6).contains(&v) => Ok(v),
        _ => Err("accepted: seconds from 0.001 to 10^6".into()),
    }
}

pub(super) fn milliseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v > 0.0 && v <= 1e9 => Ok(v),
        _ => Err("accepted: milliseconds above 0".into()),
    }
}

pub(super) fn dtype(text: &str) -> Result<roofcast::precision::Dtype, String> {
    serde_json::from_value(text.to_lowercase().into())
        .map_err(|_| "accepted: bf16, fp16, fp8, int8, fp4, int4".to_owned())
}
