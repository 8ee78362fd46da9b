//! Prometheus' text format.
//!
//! Knows: each family of metrics is written once, with the samples of every engine, in the format of Python's client or
//! of llama.cpp. Knows nothing about single metrics.

use super::histogram::Histogram;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Program whose format is imitated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Python's client in one process, with creation times of counters and histograms.
    Python,
    /// Python's client with several processes, without creation times.
    PythonShared,
    /// llama.cpp: whole numbers without a decimal point.
    Cpp,
}

/// Text of metrics while it is written; writing to a string cannot fail.
pub(super) struct Exposition<'a> {
    families: Vec<Family>,
    /// Index of each family in the text, by name.
    places: BTreeMap<String, usize>,
    current: usize,
    style: Style,
    /// Labels of every sample, unless a sample has others.
    common: String,
    /// Time at which counting began, in seconds since 1970.
    created: f64,
    /// Values that replace a gauge's own, by the gauge's name.
    pinned: &'a BTreeMap<String, f64>,
}

/// Number and sum of values.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Summary {
    count: u64,
    sum: f64,
}

impl Summary {
    pub(super) fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
    }
}

struct Family {
    head: String,
    samples: String,
}

/// A metric's name and its help text.
pub(super) type Named = (&'static str, &'static str);

impl<'a> Exposition<'a> {
    pub(super) fn new(style: Style, pinned: &'a BTreeMap<String, f64>) -> Exposition<'a> {
        Exposition {
            families: Vec::new(),
            places: BTreeMap::new(),
            current: 0,
            style,
            common: String::new(),
            created: 0.0,
            pinned,
        }
    }

    /// Sets the common labels of the following samples.
    pub(super) fn relabel(&mut self, common: String) {
        self.common = common;
    }

    /// Begins the samples of another engine, which has counted since `created`.
    pub(super) fn next(&mut self, common: String, created: f64) {
        self.common = common;
        self.created = created;
    }

    pub(super) fn text(self) -> String {
        self.families.into_iter().map(|family| family.head + &family.samples).collect()
    }

    /// Selects the family of metrics for the following samples, and begins it if it is new.
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let next = self.families.len();
        self.current = *self.places.entry(name.to_owned()).or_insert(next);
        if self.current == next {
            let head = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
            self.families.push(Family { head, samples: String::new() });
        }
    }

    fn sample(&mut self, name: &str, label: &str, value: f64) {
        let comma = if label.is_empty() || self.common.is_empty() { "" } else { "," };
        let labels = format!("{}{comma}{label}", self.common);
        let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        let value = if self.style == Style::Cpp { value.to_string() } else { number(value) };
        if let Some(family) = self.families.get_mut(self.current) {
            _ = writeln!(family.samples, "{name}{labels} {value}");
        }
    }

    pub(super) fn gauge(&mut self, named: Named, value: f64) {
        self.gauges(named, &[(String::new(), value)]);
    }

    /// Writes a gauge with one value per label, as in `reason="capacity"`.
    pub(super) fn gauges(&mut self, (name, help): Named, values: &[(String, f64)]) {
        self.head(name, help, "gauge");
        let pinned = self.pinned.get(name).copied();
        values.iter().for_each(|(label, value)| self.sample(name, label, pinned.unwrap_or(*value)));
    }

    pub(super) fn counter(&mut self, named: Named, value: u64) {
        self.counters(named, &[(String::new(), value)]);
    }

    /// Writes a counter with one value per label; `_total` is appended to its name.
    pub(super) fn counters(&mut self, named: Named, values: &[(String, u64)]) {
        let values: Vec<_> = values.iter().map(|(label, value)| (label.clone(), *value as f64)).collect();
        self.amount(named, &values);
    }

    /// Writes a counter of bytes or seconds with one value per label; `_total` is appended to its name.
    pub(super) fn amount(&mut self, (name, help): Named, values: &[(String, f64)]) {
        let total = format!("{name}_total");
        self.head(&total, help, "counter");
        values.iter().for_each(|(label, value)| self.sample(&total, label, *value));
        if self.style == Style::Python {
            let created = format!("{name}_created");
            self.head(&created, help, "gauge");
            values.iter().for_each(|(label, _)| self.sample(&created, label, self.created));
        }
    }

    /// Writes a counter under exactly this name.
    pub(super) fn total(&mut self, (name, help): Named, value: f64) {
        self.head(name, help, "counter");
        self.sample(name, "", value);
    }

    /// Writes a summary without quantiles for each label.
    pub(super) fn summaries(&mut self, (name, help): Named, all: &[(String, Summary)]) {
        self.head(name, help, "summary");
        for (label, Summary { count, sum }) in all {
            self.sample(&format!("{name}_count"), label, *count as f64);
            self.sample(&format!("{name}_sum"), label, *sum);
        }
        if self.style == Style::Python {
            let created = format!("{name}_created");
            self.head(&created, help, "gauge");
            all.iter().for_each(|(label, _)| self.sample(&created, label, self.created));
        }
    }

    pub(super) fn histogram(&mut self, named: Named, histogram: &Histogram) {
        self.histograms(named, &[(String::new(), histogram)]);
    }

    /// Writes a histogram for each label.
    pub(super) fn histograms(&mut self, (name, help): Named, all: &[(String, &Histogram)]) {
        for (label, histogram) in all {
            self.head(name, help, "histogram");
            let bucket = format!("{name}_bucket");
            let comma = if label.is_empty() { "" } else { "," };
            for (bound, count) in histogram.cumulated() {
                let bound = format!("{label}{comma}le=\"{}\"", bound.map_or("+Inf".to_owned(), number));
                self.sample(&bucket, &bound, count as f64);
            }
            self.sample(&format!("{name}_count"), label, histogram.count() as f64);
            self.sample(&format!("{name}_sum"), label, histogram.sum());
            if self.style == Style::Python {
                let created = format!("{name}_created");
                self.head(&created, help, "gauge");
                self.sample(&created, label, self.created);
            }
        }
    }
}

/// Formats a float as Python does: whole numbers have a zero after the point.
fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 { format!("{value:.1}") } else { format!("{value:?}") }
}

/// Escapes a label's value and puts it between quotes.
pub(super) fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
