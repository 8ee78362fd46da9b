//! Tables for people: left-aligned names, right-aligned numbers, no frames, at most [`WIDTH`] characters wide.
//!
//! Knows: the columns that a table may drop, and where words wrap. `--wide` prints every column at its full width.
//! Knows nothing about the contents.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use std::sync::atomic::{AtomicBool, Ordering};

/// Most characters in a line.
pub(crate) const WIDTH: usize = 100;

/// Minimum width, in characters, of the lines of a wrapped column.
const NARROWEST: usize = 20;

/// Number of spaces between two columns.
const GAP: usize = 2;

/// True if `--wide` was given.
static WIDE: AtomicBool = AtomicBool::new(false);

/// Sets the width of all later output: unlimited if `wide`, else [`WIDTH`].
pub(crate) fn set_wide(wide: bool) {
    WIDE.store(wide, Ordering::Relaxed);
}

/// True if tables show all their columns and rows.
pub(crate) fn is_wide() -> bool {
    WIDE.load(Ordering::Relaxed)
}

/// Most characters in a line; `None` if lines are unlimited.
fn width() -> Option<usize> {
    (!is_wide()).then_some(WIDTH)
}

/// A table with a header and rows; all columns but the first `names` are numbers.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>], names: usize) -> String {
    fitted(header, rows, names, &[])
}

/// A table as [`table`] formats it, without as many columns of `spare`, in this order, as are needed to fit the width.
pub(crate) fn fitted(header: &[&str], rows: &[Vec<String>], names: usize, spare: &[usize]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|name| name.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut shown: Vec<usize> = (0..header.len()).collect();
    let total = |shown: &[usize]| shown.iter().map(|index| widths[*index] + GAP).sum::<usize>() - GAP;
    let fits = |shown: &[usize]| width().is_none_or(|most| total(shown) <= most);
    let mut left_out = Vec::new();
    for index in spare.iter().filter(|index| **index < header.len()) {
        if fits(&shown) {
            break;
        }
        shown.retain(|other| other != index);
        left_out.push(*index);
    }
    left_out.sort_unstable();
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if let Some(most) = width().filter(|_| !fits(&shown)) {
        // The gap after the last column is trimmed.
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width((most + GAP) as u16);
    }
    table.set_header(shown.iter().map(|index| header[*index]));
    for row in rows {
        table.add_row(shown.iter().map(|index| row[*index].as_str()));
    }
    for (column, index) in table.column_iter_mut().zip(&shown) {
        column.set_padding((0, GAP as u16));
        if widths[*index] <= NARROWEST {
            column.set_constraint(ColumnConstraint::ContentWidth);
        } else {
            // Names stay whole; only texts of several words wrap.
            let longest = longest_word(header[*index], rows.iter().map(|row| row[*index].as_str()));
            let width = longest.min(WIDTH / 2) + GAP;
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width as u16)));
        }
        if *index >= names {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    if !left_out.is_empty() {
        let names: Vec<&str> = left_out.iter().map(|index| header[*index]).collect();
        text += &line(&format!("further columns with --wide: {}", names.join(", ")));
    }
    text.push('\n');
    text
}

/// Characters of the longest word of a column.
fn longest_word<'a>(header: &'a str, cells: impl Iterator<Item = &'a str>) -> usize {
    let words = cells.chain([header]).flat_map(str::split_whitespace);
    words.map(|word| word.chars().count()).max().unwrap_or(0)
}

/// Names with their values, one pair per line.
pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let longest = pairs.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in pairs {
        let mut name = *name;
        let room = width().map_or(usize::MAX, |most| most.saturating_sub(longest + GAP).max(NARROWEST));
        for part in wrapped(value, room) {
            text += format!("{name:longest$}  {part}").trim_end();
            text.push('\n');
            name = "";
        }
    }
    text.push('\n');
    text
}

/// A sentence; text beyond the first line continues in further lines, indented by two spaces.
pub(crate) fn line(text: &str) -> String {
    let room = width().map_or(usize::MAX, |most| most - GAP);
    wrapped(text, room).join("\n  ") + "\n"
}

/// Breaks `text` at spaces into lines of at most `width` characters; longer words stay whole.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let room = lines.last().map_or(0, |line| width.saturating_sub(line.chars().count()));
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if word.chars().count() < room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wrap_and_long_ones_stay_whole() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("two  spaces stay", 20), ["two  spaces stay"]);
        assert_eq!(wrapped("a unbreakable b", 5), ["a", "unbreakable", "b"]);
        assert_eq!(wrapped("", 7), [""]);
    }

    /// Two names of 42 and 45 characters and a text of 60 do not fit in 100: the text wraps, the names stay whole.
    #[test]
    fn names_stay_whole() {
        let names = ["meta-llama/".to_owned() + &"a".repeat(31), "b".repeat(45)];
        let text = "twelve words of a text that is longer than there is any room".to_owned();
        let table = table(&["model", "text", "file"], &[vec![names[0].clone(), text, names[1].clone()]], 3);
        assert!(names.iter().all(|name| table.contains(name.as_str())), "{table}");
    }

    #[test]
    fn a_table_does_without_spare_columns_until_it_fits() {
        let header = ["name", "first", "second", "third"];
        let row = ["a".repeat(40), "1".repeat(20), "2".repeat(20), "3".repeat(20)];
        // Width 40 + 3 · (2 + 20) = 106 is above the limit; without the third column 84.
        let text = fitted(&header, &[row.to_vec()], 1, &[3, 2]);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("second") && text.contains("further columns with --wide: third"), "{text}");
        // No column may be dropped: names wrap, numbers do not.
        let long = "many words of a name that is longer than there is room in this line of the table for it";
        let text = table(&header, &[vec![long.to_owned(), "1".repeat(20), "2".repeat(20), "3".into()]], 1);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains(&"2".repeat(20)), "{text}");
    }
}
