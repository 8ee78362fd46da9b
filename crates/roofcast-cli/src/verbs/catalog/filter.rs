//! Filters for the entries of the catalog.

use crate::args::FilterArgs;
use crate::args::values::Range;
use roofcast::catalog::{EntryKind, ListedEntry};
use roofcast::precision::{Dtype, WeightFormat};
use roofcast::preset::Preset;

const GIB: f64 = (1_u64 << 30) as f64;

/// The filters of the flags, prepared for comparison.
pub(super) struct Filter {
    words: Vec<Text>,
    family: Option<String>,
    vendor: Option<String>,
    memory: Option<Range>,
    price: Option<Range>,
    format: Option<Wanted>,
}

/// A number format, and the dtype that the hardware computes with.
struct Wanted {
    name: String,
    dtype: Option<Dtype>,
}

impl Filter {
    /// Prepares the filters; refuses unknown formats.
    pub(super) fn new(args: &FilterArgs) -> anyhow::Result<Filter> {
        let lower = |text: &Option<String>| text.as_ref().map(|t| t.trim().to_lowercase());
        Ok(Filter {
            words: args.search.iter().flat_map(|t| t.split_whitespace()).map(Text::of).collect(),
            family: lower(&args.family),
            vendor: lower(&args.vendor),
            memory: args.memory,
            price: args.price,
            format: args.format.as_deref().map(Wanted::read).transpose()?,
        })
    }

    /// True if an accelerator or a model passes the filters.
    pub(super) fn entry(&self, listed: &ListedEntry) -> bool {
        let line = &listed.line;
        let names = [line.family.as_str(), line.vendor.as_str()];
        self.found(names.into_iter().chain(listed.names.iter().copied()))
            && begins(&self.family, &line.family)
            && is(&self.vendor, &line.vendor)
            && self.memory.is_none_or(|wanted| match (wanted.alone, line.kind) {
                // A model passes if its weights fit an accelerator of this memory.
                (Some(gib), EntryKind::Model) => line.size().as_f64() / GIB <= gib,
                _ => wanted.holds(line.size().as_f64() / GIB),
            })
            && self.price.is_none_or(|wanted| line.usd_per_hour.is_some_and(|p| wanted.holds(p)))
            && self.format.as_ref().is_none_or(|f| match line.kind {
                EntryKind::Accelerator => f.computed(&line.formats),
                EntryKind::Model => f.published(&line.formats),
            })
    }

    /// True if a workload passes the filters; it can be filtered by words only.
    pub(super) fn workload(&self, workload: &Preset) -> bool {
        self.found([workload.id.as_str(), workload.about.as_str()].into_iter())
            && self.family.is_none()
            && self.vendor.is_none()
            && self.memory.is_none()
            && self.price.is_none()
            && self.format.is_none()
    }

    /// True if every word is found in one of the names.
    fn found<'a>(&self, names: impl Iterator<Item = &'a str>) -> bool {
        let names: Vec<_> = names.filter(|_| !self.words.is_empty()).map(Text::of).collect();
        self.words.iter().all(|word| names.iter().any(|name| name.has(word)))
    }

    /// True if the words are found in the id, and not only in other names.
    pub(super) fn by_id(&self, id: &str) -> bool {
        self.found([id].into_iter())
    }
}

/// Text to search in: letters and digits in lower case, and decimal points. Numbers match whole: `3` is found neither
/// in `32` nor in `2.3`.
struct Text {
    all: Vec<char>,
    /// True for each character that follows a skipped character; the last value is for the end of the text.
    apart: Vec<bool>,
}

impl Text {
    fn of(text: &str) -> Text {
        let mut letters = Text { all: Vec::new(), apart: vec![true] };
        let chars: Vec<char> = text.chars().flat_map(char::to_lowercase).collect();
        let digit = |at: Option<usize>| at.and_then(|at| chars.get(at)).is_some_and(char::is_ascii_digit);
        for (at, c) in chars.iter().enumerate() {
            let point = *c == '.' && digit(at.checked_sub(1)) && digit(Some(at + 1));
            if c.is_alphanumeric() || point {
                letters.all.push(*c);
                letters.apart.push(false);
            } else if let Some(last) = letters.apart.last_mut() {
                *last = true;
            }
        }
        letters
    }

    fn has(&self, word: &Text) -> bool {
        let whole = |at: usize| {
            let digit = |c: Option<&char>| c.is_some_and(char::is_ascii_digit);
            let before = at.checked_sub(1).and_then(|at| self.all.get(at));
            let after = self.all.get(at);
            self.apart[at] || !digit(after) || !(digit(before) || before == Some(&'.'))
        };
        let joined = |from: usize| {
            let two = |at: usize| self.all[at - 1].is_ascii_digit() && self.all[at].is_ascii_digit();
            (from + 1..from + word.all.len()).all(|at| word.apart[at - from] || !self.apart[at] || !two(at))
        };
        let matches_at = |(from, window): (usize, &[char])| {
            window == word.all && whole(from) && whole(from + word.all.len()) && joined(from)
        };
        word.all.is_empty() || self.all.windows(word.all.len()).enumerate().any(matches_at)
    }
}

impl Wanted {
    fn read(name: &str) -> anyhow::Result<Wanted> {
        let name = name.trim().to_lowercase();
        if let Ok(dtype) = serde_json::from_value::<Dtype>(name.clone().into()) {
            return Ok(Wanted { name, dtype: Some(dtype) });
        }
        let dtype = match name.parse::<WeightFormat>()? {
            WeightFormat::Uniform(format) => format.compute,
            WeightFormat::Gguf(_) => None,
        };
        Ok(Wanted { name, dtype })
    }

    /// True if an accelerator that computes in the formats `a+b` has the wanted dtype.
    fn computed(&self, formats: &str) -> bool {
        self.dtype.is_some_and(|dtype| formats.split('+').any(|f| f == dtype.name()))
    }

    /// True if weights `a+b` include the wanted format: `fp8` also matches `fp8-block`.
    fn published(&self, weights: &str) -> bool {
        weights
            .split('+')
            .any(|w| w.strip_prefix(&self.name).is_some_and(|r| r.is_empty() || r.starts_with('-')))
    }
}

fn begins(wanted: &Option<String>, found: &str) -> bool {
    wanted.as_ref().is_none_or(|w| found.to_lowercase().starts_with(w))
}

fn is(wanted: &Option<String>, found: &str) -> bool {
    wanted.as_ref().is_none_or(|w| found.to_lowercase() == *w)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_with_their_numbers_whole() {
        for (name, word, is) in [
            ("Qwen/Qwen3-32B", "qwen3", true),
            ("Qwen/Qwen3-32B", "32b", true),
            ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "qwen3", false),
            ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "qwen32b", true),
            ("Qwen/Qwen3-32B", "qwen332b", false),
            ("h100-sxm", "h100sxm", true),
            ("h100-sxm", "H100_SXM", true),
            ("mi300x", "mi300", true),
            ("meta-llama/Llama-3.1-8B", "llama3.1", true),
            ("meta-llama/Llama-3.1-8B", "llama-3", true),
            ("meta-llama/Llama-3.1-8B", "llama31", false),
            ("google/gemma-3-12b-it", "3.1", false),
            ("google/gemma-3-12b-it", "312", false),
            ("google/gemma-3-12b-it", "3-12", true),
            ("EleutherAI/pythia-2.8b", "8b", false),
            ("mistralai/Mistral-Medium-3.5-128B", "8b", false),
            ("moonshotai/Kimi-Linear-48B-A3B-Instruct", "a3b", true),
        ] {
            assert_eq!(Text::of(name).has(&Text::of(word)), is, "{word} in {name}");
        }
    }
}
