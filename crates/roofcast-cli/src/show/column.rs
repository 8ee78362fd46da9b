//! Columns of a table, each declared once: its title for people, its key in CSV, and its figure.
//!
//! Knows: how a figure is written for people and in CSV. Knows nothing about answers.

use super::number::{grouped, percent, significant};
use roofcast::units::Bytes;
use serde::Serialize;

/// A value of a cell.
pub(crate) enum Figure {
    /// A number with at least three significant digits for people, and all digits in CSV.
    Number(f64),
    /// A number per second, for people without a fraction.
    Rate(f64),
    /// A fraction, for people in percents.
    Share(f64),
    Count(u64),
    Size(Bytes),
    Flag(bool),
    Word(String),
    /// No value: a dash for people, nothing in CSV.
    Absent,
}

impl Figure {
    /// A number if there is one.
    pub(crate) fn known(number: Option<f64>) -> Figure {
        number.map_or(Figure::Absent, Figure::Number)
    }

    fn shown(&self) -> String {
        match self {
            Figure::Number(number) => significant(*number),
            Figure::Rate(rate) => grouped(*rate as u64),
            Figure::Share(share) => percent(*share),
            Figure::Count(count) => grouped(*count),
            Figure::Size(bytes) => bytes.gb(),
            Figure::Flag(flag) => if *flag { "yes" } else { "no" }.to_owned(),
            Figure::Word(word) => word.clone(),
            Figure::Absent => "–".to_owned(),
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Figure::Number(number) | Figure::Rate(number) | Figure::Share(number) => Some(*number),
            Figure::Count(count) => Some(*count as f64),
            Figure::Size(bytes) => Some(bytes.0 as f64),
            Figure::Flag(_) | Figure::Word(_) | Figure::Absent => None,
        }
    }

    fn plain(&self) -> String {
        match self {
            Figure::Number(number) | Figure::Rate(number) | Figure::Share(number) => number.to_string(),
            Figure::Count(count) => count.to_string(),
            Figure::Size(bytes) => bytes.0.to_string(),
            Figure::Flag(flag) => flag.to_string(),
            Figure::Word(word) => word.clone(),
            Figure::Absent => String::new(),
        }
    }
}

/// A table for the page: titles of columns, and rows of cells.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Tabled {
    names: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

/// A cell for the page: its text, and its value by which rows are sorted.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Cell {
    shown: String,
    number: Option<f64>,
}

/// A column about values of type `T`.
pub(crate) struct Column<T> {
    /// Title for people; `None` for a column of CSV alone.
    title: Option<&'static str>,
    /// Key in CSV; `None` for a column for people alone.
    key: Option<&'static str>,
    figure: fn(&T) -> Figure,
    /// True if the column says something about a value; it is left out if it does about none.
    is: fn(&T) -> bool,
}

impl<T> Column<T> {
    /// A column for people and in CSV.
    pub(crate) const fn new(title: &'static str, key: &'static str, figure: fn(&T) -> Figure) -> Column<T> {
        Column { title: Some(title), key: Some(key), figure, is: |_| true }
    }

    /// A column for people alone.
    pub(crate) const fn shown(title: &'static str, figure: fn(&T) -> Figure) -> Column<T> {
        Column { title: Some(title), key: None, figure, is: |_| true }
    }

    /// A column of CSV alone.
    pub(crate) const fn csv(key: &'static str, figure: fn(&T) -> Figure) -> Column<T> {
        Column { title: None, key: Some(key), figure, is: |_| true }
    }

    /// Returns the column, left out if `is` is true of no value.
    pub(crate) const fn only(self, is: fn(&T) -> bool) -> Column<T> {
        Column { is, ..self }
    }

    /// Title for people, or key in CSV.
    pub(crate) fn name(&self, csv: bool) -> Option<&'static str> {
        if csv { self.key } else { self.title }
    }

    /// The cell of a value.
    pub(crate) fn cell(&self, value: &T, csv: bool) -> String {
        let figure = (self.figure)(value);
        if csv { figure.plain() } else { figure.shown() }
    }
}

/// The columns of a table of `values`.
pub(crate) struct Columns<T: 'static> {
    csv: bool,
    columns: Vec<&'static Column<T>>,
}

impl<T> Columns<T> {
    /// The columns of `all` that say something about one of `values`, for people or in CSV.
    pub(crate) fn of<'a>(
        all: &'static [Column<T>],
        values: impl Iterator<Item = &'a T> + Clone,
        csv: bool,
    ) -> Columns<T> {
        let says = |column: &&Column<T>| column.name(csv).is_some() && values.clone().any(column.is);
        Columns { csv, columns: all.iter().filter(says).collect() }
    }

    /// Names of the columns.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().filter_map(|column| column.name(self.csv))
    }

    /// The cells of a value.
    pub(crate) fn row(&self, value: &T) -> impl Iterator<Item = String> {
        self.columns.iter().map(move |column| column.cell(value, self.csv))
    }

    /// The table of `values` for the page.
    pub(crate) fn table<'a>(&self, values: impl Iterator<Item = &'a T>) -> Tabled {
        let cell = |figure: Figure| Cell { shown: figure.shown(), number: figure.number() };
        let row = |value: &T| self.columns.iter().map(|column| cell((column.figure)(value))).collect();
        Tabled { names: distinct(&self.names().collect::<Vec<_>>()), rows: values.map(row).collect() }
    }
}

/// Titles of which none occurs twice: a repeated title has the quantity of the column before it, as in `TTFT p99` after
/// `TTFT p50`.
fn distinct(titles: &[&str]) -> Vec<String> {
    let repeated = |title: &str| titles.iter().filter(|other| **other == title).count() > 1;
    let before = |index: usize| titles[..index].last().and_then(|title| title.split(' ').next());
    let name = |(index, title): (usize, &&str)| match before(index).filter(|_| repeated(title)) {
        Some(quantity) => format!("{quantity} {title}"),
        None => (*title).to_owned(),
    };
    titles.iter().enumerate().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_columns_of_the_text() {
        const ALL: &[Column<f64>] = &[
            Column::new("TTFT p50", "p50", |v| Figure::Number(*v)),
            Column::shown("p99", |v| Figure::Share(*v)),
            Column::csv("key", |_| Figure::Absent),
            Column::shown("TPOT p50", |_| Figure::Word("none".to_owned())),
            Column::shown("p99", |_| Figure::Absent),
        ];
        let values = [0.5];
        let table = Columns::of(ALL, values.iter(), false).table(values.iter());
        assert_eq!(table.names, ["TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99"]);
        let row: Vec<(&str, Option<f64>)> =
            table.rows[0].iter().map(|cell| (cell.shown.as_str(), cell.number)).collect();
        assert_eq!(row[1..], [("50 %", Some(0.5)), ("none", None), ("–", None)]);
        assert_eq!(row[0].1, Some(0.5));
    }
}
