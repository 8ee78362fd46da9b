//! Prometheus' text format.
//!
//! Knows: how a family of metrics is written, with the creation times that Python's client adds. Knows no metric.

use super::histogram::Histogram;
use std::fmt::Write;

/// A text under way; writing to a string cannot fail.
pub(super) struct Exposition {
    text: String,
    /// Labels of every sample but those that say otherwise.
    common: String,
    /// When counting began, in seconds since 1970.
    created: f64,
}

/// A metric's name and what it says.
pub(super) type Named = (&'static str, &'static str);

impl Exposition {
    pub(super) fn new(common: String, created: f64) -> Exposition {
        Exposition { text: String::with_capacity(32 << 10), common, created }
    }

    /// Other labels from here on.
    pub(super) fn relabel(&mut self, common: String) {
        self.common = common;
    }

    pub(super) fn text(self) -> String {
        self.text
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, label: &str, value: f64) {
        let comma = if label.is_empty() || self.common.is_empty() { "" } else { "," };
        _ = writeln!(self.text, "{name}{{{}{comma}{label}}} {}", self.common, number(value));
    }

    pub(super) fn gauge(&mut self, (name, help): Named, value: f64) {
        self.gauges((name, help), &[(String::new(), value)]);
    }

    /// A gauge with a value for each of some labels, as `reason="capacity"`.
    pub(super) fn gauges(&mut self, (name, help): Named, values: &[(String, f64)]) {
        self.head(name, help, "gauge");
        values.iter().for_each(|(label, value)| self.sample(name, label, *value));
    }

    pub(super) fn counter(&mut self, named: Named, value: u64) {
        self.counters(named, &[(String::new(), value)]);
    }

    /// A counter with a value for each of some labels.
    pub(super) fn counters(&mut self, (name, help): Named, values: &[(String, u64)]) {
        let total = format!("{name}_total");
        self.head(&total, help, "counter");
        values.iter().for_each(|(label, value)| self.sample(&total, label, *value as f64));
        let created = format!("{name}_created");
        self.head(&created, help, "gauge");
        values.iter().for_each(|(label, _)| self.sample(&created, label, self.created));
    }

    pub(super) fn histogram(&mut self, (name, help): Named, histogram: &Histogram) {
        self.head(name, help, "histogram");
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.cumulated() {
            let label = format!("le=\"{}\"", bound.map_or("+Inf".to_owned(), number));
            self.sample(&bucket, &label, count as f64);
        }
        self.sample(&format!("{name}_count"), "", histogram.count() as f64);
        self.sample(&format!("{name}_sum"), "", histogram.sum());
        let created = format!("{name}_created");
        self.head(&created, help, "gauge");
        self.sample(&created, "", self.created);
    }
}

/// As Python writes a float: whole numbers with a zero behind the point.
fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 { format!("{value:.1}") } else { format!("{value:?}") }
}

/// A label's value between quotes.
pub(super) fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
