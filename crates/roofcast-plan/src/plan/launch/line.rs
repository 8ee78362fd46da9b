//! The words of a command, and its text for a shell.
//!
//! Knows nothing about engines.

/// Text of a command, with words quoted for a shell.
pub(super) fn quoted(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,*".contains(c);
    let word = |w: &String| if w.chars().all(plain) { w.clone() } else { format!("'{w}'") };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// The words of a command while it is built.
pub(super) struct CommandLine(pub(super) Vec<String>);

impl CommandLine {
    /// A command that begins with `words`.
    pub(super) fn of(words: &[&str]) -> CommandLine {
        CommandLine(words.iter().map(|w| (*w).to_owned()).collect())
    }

    /// Adds a flag without a value.
    pub(super) fn flag(&mut self, flag: &str) {
        self.0.push(flag.to_owned());
    }

    /// Adds a flag with a value.
    pub(super) fn set(&mut self, flag: &str, value: impl ToString) {
        self.0.extend([flag.to_owned(), value.to_string()]);
    }

    /// Adds the flag unless the value is `own`, the engine's default.
    pub(super) fn beyond(&mut self, flag: &str, value: u64, own: u64) {
        if value != own {
            self.set(flag, value);
        }
    }
}
