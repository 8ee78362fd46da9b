//! The text of a command for a shell.

/// Text of a command, with words quoted for a shell.
pub(super) fn quoted(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,*".contains(c);
    let word = |w: &String| if w.chars().all(plain) { w.clone() } else { format!("'{w}'") };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}
