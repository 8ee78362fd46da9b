//! Tables for people: left-aligned names, right-aligned numbers, no frames.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A table with a header and rows; all columns but the first `names` are numbers.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>], names: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().copied());
    for row in rows {
        table.add_row(row);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index >= names {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    text.push('\n');
    text
}

/// A list of names with their values, one a line.
pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text: String = pairs.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect();
    text.push('\n');
    text
}
