//! One axis: its range, its scale and the ticks for which there is room.
//!
//! Knows: linear, logarithmic and named scales, SI prefixes. Knows nothing about SVG.

use super::text;

/// Unit of an axis, with the form of its tick labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::report) enum Unit {
    /// Counts and rates: 20, 3k, 5M.
    Plain,
    /// Milliseconds: 20 µs, 5 ms, 1.5 s.
    Milliseconds,
    /// Seconds: 5 ms, 1.5 s.
    Seconds,
    /// Fractions of one, shown in percent: 50 %.
    Share,
}

#[derive(Debug, Clone, PartialEq)]
enum Scale {
    Linear,
    Log,
    /// One position for each name.
    Names(Vec<String>),
}

/// One axis.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::report) struct Axis {
    pub(super) title: String,
    pub(super) from: f64,
    pub(super) to: f64,
    scale: Scale,
    unit: Unit,
}

/// Ratio of the largest to the smallest value from which a scale is logarithmic.
const DECADE: f64 = 10.0;

impl Axis {
    /// An axis that covers `values`: logarithmic if all are positive and they span a decade, else linear from zero.
    pub(in crate::report) fn around(title: &str, unit: Unit, values: impl Iterator<Item = f64>) -> Axis {
        let (least, most) = ends(values);
        if least > 0.0 && most / least >= DECADE {
            return Axis::log(title, unit, [least, most].into_iter());
        }
        let to = if most > 0.0 { most * 1.08 } else { 1.0 };
        Axis { title: title.to_owned(), from: 0.0, to, scale: Scale::Linear, unit }
    }

    /// A logarithmic axis that covers the positive ones of `values`.
    pub(in crate::report) fn log(title: &str, unit: Unit, values: impl Iterator<Item = f64>) -> Axis {
        let (least, most) = ends(values.filter(|v| *v > 0.0));
        let (least, most) = if least > 0.0 { (least, most) } else { (1.0, DECADE) };
        let room = (most / least).powf(0.05).max(1.1);
        Axis { title: title.to_owned(), from: least / room, to: most * room, scale: Scale::Log, unit }
    }

    /// A linear axis from zero to `to`.
    pub(in crate::report) fn to(title: &str, unit: Unit, to: f64) -> Axis {
        let to = if to > 0.0 { to } else { 1.0 };
        Axis { title: title.to_owned(), from: 0.0, to, scale: Scale::Linear, unit }
    }

    /// An axis of names; the first name is at 0, the next at 1.
    pub(in crate::report) fn names(title: &str, names: Vec<String>) -> Axis {
        let to = names.len() as f64 - 0.5;
        Axis { title: title.to_owned(), from: -0.5, to, scale: Scale::Names(names), unit: Unit::Plain }
    }

    /// Value at the lower end of the axis.
    pub(in crate::report) fn least(&self) -> f64 {
        self.from
    }

    /// Value at the upper end of the axis.
    pub(in crate::report) fn most(&self) -> f64 {
        self.to
    }

    /// Position of `value` along the axis: 0 at the lower end, 1 at the upper end.
    pub(super) fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Log => (value.max(self.from).ln() - self.from.ln()) / (self.to.ln() - self.from.ln()),
            _ => (value - self.from) / (self.to - self.from),
        }
    }

    /// Text of `value` with its unit.
    pub(in crate::report) fn shown(&self, value: f64) -> String {
        shown(value, self.unit)
    }

    /// The densest set of ticks whose texts fit: `room` returns the pixels that a text needs on an axis of `length`
    /// pixels.
    pub(super) fn ticks(&self, length: f64, room: impl Fn(&str) -> f64) -> Vec<(f64, String)> {
        if let Scale::Names(names) = &self.scale {
            return names.iter().enumerate().map(|(i, name)| (i as f64, name.clone())).collect();
        }
        let fits = |ticks: &Vec<(f64, String)>| {
            ticks.windows(2).all(|pair| {
                let apart = (self.place(pair[1].0) - self.place(pair[0].0)) * length;
                apart >= (room(&pair[0].1) + room(&pair[1].1)) / 2.0
            })
        };
        let sets = if self.scale == Scale::Log { self.log_sets() } else { self.linear_sets() };
        let named =
            |set: Vec<f64>| -> Vec<(f64, String)> { set.into_iter().map(|v| (v, self.shown(v))).collect() };
        sets.into_iter().map(named).find(fits).unwrap_or_default()
    }

    /// Minor grid lines between ticks, on a logarithmic scale of few decades.
    pub(super) fn minor(&self) -> Vec<f64> {
        if self.scale != Scale::Log || self.to / self.from > 1e5 {
            return Vec::new();
        }
        self.log_ticks(&[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], 1)
    }

    /// Candidate sets of ticks, dense sets first.
    fn log_sets(&self) -> Vec<Vec<f64>> {
        let near = self.to / self.from < 4.0;
        let dense: &[f64] = if near { &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0] } else { &[1.0, 2.0, 5.0] };
        let mut sets = vec![self.log_ticks(dense, 1)];
        sets.extend([1, 2, 3, 4, 6].map(|every| self.log_ticks(&[1.0], every)));
        // An axis without a power of ten between its ends keeps the dense set only.
        sets.retain(|set| set.len() > 1);
        sets
    }

    fn log_ticks(&self, within: &[f64], every: usize) -> Vec<f64> {
        let first = (self.from.log10() + 1e-9).floor() as i32;
        let last = (self.to.log10() + 1e-9).floor() as i32;
        let decades = (first..=last).filter(|d| d.rem_euclid(every as i32) == 0);
        let ticks = decades.flat_map(|d| within.iter().map(move |w| w * 10_f64.powi(d)));
        ticks.filter(|t| (self.from * 0.999..=self.to * 1.001).contains(t)).collect()
    }

    fn linear_sets(&self) -> Vec<Vec<f64>> {
        let span = self.to - self.from;
        let decade = 10_f64.powf((span / 10.0).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0].map(|s| s * decade);
        let set = |step: f64| -> Vec<f64> {
            let first = (self.from / step - 1e-9).ceil() as i64;
            let all = (first..=first + 16).map(|i| i as f64 * step);
            all.take_while(|t| *t <= self.to * (1.0 + 1e-9)).collect()
        };
        steps.into_iter().filter(|step| span / step <= 8.0).map(set).collect()
    }
}

/// Minimum and maximum of `values`; 1 and 10 if there are none.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut from = f64::INFINITY;
    let mut to = f64::NEG_INFINITY;
    for value in values.filter(|v| v.is_finite()) {
        (from, to) = (from.min(value), to.max(value));
    }
    if from > to { (1.0, DECADE) } else { (from, to) }
}

/// Unit prefixes by thousands, from 10^-9 on.
const PREFIXES: [&str; 10] = ["n", "µ", "m", "", "k", "M", "G", "T", "P", "E"];

/// Text of `value` with three digits, a prefix and its unit.
pub(in crate::report) fn shown(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Share => format!("{} %", text::digits(value * 100.0)),
        Unit::Milliseconds => prefixed(value / 1e3, " ", "s"),
        Unit::Seconds => prefixed(value, " ", "s"),
        // Small counts are written out, because prefixes such as milli are unusual for counts.
        Unit::Plain if value.abs() < 1.0 && value.abs() >= 1e-4 => text::digits(value),
        Unit::Plain => prefixed(value, "", ""),
    }
}

/// Text of `value` with three digits and a prefix before its unit, as in `989 TFLOP/s`.
pub(in crate::report) fn prefixed(value: f64, space: &str, unit: &str) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    // 999.96 is shown as 1000, which takes the next prefix.
    let thousands = ((value.abs() * 1.0005).log10() / 3.0).floor().clamp(-3.0, 6.0);
    let scaled = value / 1000_f64.powf(thousands);
    // Seconds take no prefix above one: 2000 s, not 2 ks.
    if unit == "s" && thousands > 0.0 {
        return format!("{}{space}{unit}", text::digits(value));
    }
    format!("{}{space}{}{unit}", text::digits(scaled), PREFIXES[(thousands + 3.0) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_prefixes() {
        let plain = [0.0, 0.25, 20.0, 1500.0, 9.9996e5, 989.4e12, 1e16].map(|v| shown(v, Unit::Plain));
        assert_eq!(plain, ["0", "0.25", "20", "1.5k", "1M", "989T", "10P"]);
        let times = [0.02, 0.5, 20.0, 1500.0, 2e6].map(|v| shown(v, Unit::Milliseconds));
        assert_eq!(times, ["20 µs", "500 µs", "20 ms", "1.5 s", "2000 s"]);
        assert_eq!(shown(0.125, Unit::Share), "12.5 %");
    }

    #[test]
    fn a_decade_makes_an_axis_logarithmic() {
        let axis = |values: [f64; 2]| Axis::around("", Unit::Plain, values.into_iter());
        assert_eq!(axis([1.0, 9.0]).scale, Scale::Linear);
        assert_eq!(axis([1.0, 10.0]).scale, Scale::Log);
        assert_eq!(axis([0.0, 10.0]).scale, Scale::Linear);
    }

    #[test]
    fn ticks_have_room() {
        let axis = Axis::log("", Unit::Plain, [1.0, 1e4].into_iter());
        let texts = |length: f64| -> Vec<String> {
            axis.ticks(length, |_| 30.0).into_iter().map(|(_, text)| text).collect()
        };
        // The range 1 to 2 is 0.3 of 4.4 decades: at least 30 pixels of 440.
        assert_eq!(texts(450.0).len(), 13);
        assert_eq!(texts(400.0), ["1", "10", "100", "1k", "10k"]);
        assert_eq!(texts(100.0), ["1", "100", "10k"]);
        let linear = Axis::to("", Unit::Plain, 70.0);
        let values: Vec<f64> = linear.ticks(500.0, |_| 30.0).into_iter().map(|(v, _)| v).collect();
        assert_eq!(values, [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]);
    }
}
