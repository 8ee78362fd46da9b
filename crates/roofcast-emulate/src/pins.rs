//! Gauges of `/metrics` that are pinned on demand: to a value, a ramp, or a square wave.
//!
//! Knows: the value of a pin at a time on the wall clock. Knows nothing about single metrics.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Value that replaces a gauge's own.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Pin {
    /// Constant value.
    Value(f64),
    /// Ramp between two values, which stays at the second.
    Ramp { from: f64, to: f64, seconds: f64 },
    /// Square wave: one value for half a period, the other for the other half.
    Square { low: f64, high: f64, period_seconds: f64 },
}

impl Pin {
    /// Value of the pin, `seconds` seconds after it was set.
    fn at(self, seconds: f64) -> f64 {
        match self {
            Pin::Value(value) => value,
            Pin::Ramp { from, to, seconds: whole } if seconds < whole => from + (to - from) * seconds / whole,
            Pin::Ramp { to, .. } => to,
            Pin::Square { low, high, period_seconds } => {
                if seconds % period_seconds < period_seconds / 2.0 {
                    low
                } else {
                    high
                }
            }
        }
    }

    fn is_valid(self) -> bool {
        match self {
            Pin::Value(_) => true,
            Pin::Ramp { seconds: span, .. } | Pin::Square { period_seconds: span, .. } => span > 0.0,
        }
    }
}

/// The pins of one server, by gauge, with the time at which each was set.
#[derive(Debug, Default)]
pub(crate) struct Pins(Mutex<BTreeMap<String, (Pin, Instant)>>);

impl Pins {
    fn pins(&self) -> MutexGuard<'_, BTreeMap<String, (Pin, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the pins in a JSON object to the existing ones; `is_gauge` is true for known names. The error names the
    /// accepted forms.
    pub(crate) fn set(&self, text: &[u8], is_gauge: impl Fn(&str) -> bool) -> Result<(), String> {
        let accepted = "gauges of /metrics as {\"vllm:num_requests_waiting\": {\"value\": 12}}, {\"ramp\": {\"from\": 0, \
                        \"to\": 1, \"seconds\": 60}} or {\"square\": {\"low\": 0, \"high\": 1, \"period_seconds\": 20}}";
        let pins: BTreeMap<String, Pin> =
            serde_json::from_slice(text).map_err(|e| format!("{e}; accepted: {accepted}"))?;
        if let Some((name, _)) = pins.iter().find(|(name, pin)| !is_gauge(name) || !pin.is_valid()) {
            return Err(format!("{name} is no gauge, or its span not above 0; accepted: {accepted}"));
        }
        let now = Instant::now();
        self.pins().extend(pins.into_iter().map(|(name, pin)| (name, (pin, now))));
        Ok(())
    }

    /// Removes all pins.
    pub(crate) fn clear(&self) {
        self.pins().clear();
    }

    /// All pins, by the name of their gauge.
    pub(crate) fn all(&self) -> BTreeMap<String, Pin> {
        self.pins().iter().map(|(name, (pin, _))| (name.clone(), *pin)).collect()
    }

    /// Current values of the pinned gauges.
    pub(crate) fn values(&self) -> BTreeMap<String, f64> {
        let value = |(name, (pin, since)): (&String, &(Pin, Instant))| {
            (name.clone(), pin.at(since.elapsed().as_secs_f64()))
        };
        self.pins().iter().map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_say_what_they_are_asked_to() {
        assert_eq!(Pin::Value(3.0).at(1e6), 3.0);
        // From 10 to 20 in 4 seconds: a quarter of the way after one second.
        let ramp = Pin::Ramp { from: 10.0, to: 20.0, seconds: 4.0 };
        assert_eq!([0.0, 1.0, 4.0, 99.0].map(|s| ramp.at(s)), [10.0, 12.5, 20.0, 20.0]);
        let square = Pin::Square { low: 0.0, high: 1.0, period_seconds: 10.0 };
        assert_eq!([0.0, 4.9, 5.0, 9.9, 10.0].map(|s| square.at(s)), [0.0, 0.0, 1.0, 1.0, 0.0]);
    }

    #[test]
    fn what_is_no_pin_says_what_is() {
        let pins = Pins::default();
        let gauge = |name: &str| name == "g";
        for wrong in [
            "",
            "[]",
            "{\"g\": 3}",
            "{\"h\": {\"value\": 1}}",
            "{\"g\": {\"square\": {\"low\": 0, \"high\": 1, \"period_seconds\": 0}}}",
        ] {
            assert!(pins.set(wrong.as_bytes(), gauge).unwrap_err().contains("accepted"), "{wrong}");
        }
        pins.set(b"{\"g\": {\"value\": 7}}", gauge).unwrap();
        assert_eq!(pins.values()["g"], 7.0);
        pins.clear();
        assert!(pins.all().is_empty());
    }
}
