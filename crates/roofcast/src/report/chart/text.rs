//! Text in a picture: its width, its line breaks and its escaping.
//!
//! Knows: approximate widths of a common sans-serif face. Knows nothing about charts.

/// Font size in pixels of the text of a chart.
pub(super) const SIZE: f64 = 12.5;
/// Width of bold text over that of regular text, in the widest of the common faces.
pub(super) const BOLD: f64 = 1.15;

/// Width of `text` in pixels at font size `size`, estimated rather too large than too small.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let em = |c: char| match c {
        'i' | 'l' | 'j' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.30,
        't' | 'f' | 'r' | ' ' | '(' | ')' | '-' | '/' | '[' | ']' => 0.38,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.92,
        'A'..='Z' | '×' | '–' | '≤' | '→' => 0.70,
        _ => 0.57,
    };
    text.chars().map(em).sum::<f64>() * size
}

/// `text` broken at spaces into lines that are at most `most` pixels wide.
pub(super) fn lines(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(word, size) + 0.38 * size <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Text of `value` with three significant digits, without trailing zeros.
pub(super) fn digits(value: f64) -> String {
    let places = (2.0 - value.abs().max(1e-12).log10().floor()).clamp(0.0, 12.0) as usize;
    let text = format!("{value:.places$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `text` escaped for use between tags or in an attribute.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        assert_eq!([989.4, 12.5, 1.0, 0.123_45, 2000.0].map(digits), ["989", "12.5", "1", "0.123", "2000"]);
    }

    #[test]
    fn lines_keep_the_width() {
        // Each letter is 5.7 pixels wide at size 10, a space 3.8.
        assert_eq!(lines("aa bb cc", 10.0, 30.0), ["aa bb", "cc"]);
        // Two letters, 11.4, and a space and two letters more, 15.2, are 30.6 in bold.
        assert_eq!(lines("aa bb cc", 10.0 * BOLD, 30.0), ["aa", "bb", "cc"]);
    }
}
