//! Comparison of names in ever looser ways: equal without case, separators and words that change no dimension; the
//! beginning of exactly one name; otherwise suggestions.
//!
//! Knows: how names are compared. Words for formats in a model's id are known to [`super::conventions`].

use super::entries::{Entries, Entry, Slot};
use crate::error::{Error, Result, cut};

/// Words of ids that do not change dimensions, and makers' names, which users omit.
const NEUTRAL: [&str; 17] = [
    "c4ai", "meta", "instruct", "chat", "hf", "base", "it", "pt", "nvidia", "tesla", "geforce", "amd",
    "instinct", "radeon", "intel", "google", "apple",
];
/// Most suggestions in an error message.
const SUGGESTIONS: usize = 3;
const CANDIDATES: usize = 6;
/// Least likeness, from 0 to 1, of a name that is suggested.
const LIKE: f64 = 0.5;

/// The words of a name in lower case, letters and digits, split at any separator. A `p` between digits is a point, as
/// in `qwen2p5`, and `moe` after a digit is a word, as llama.cpp writes `qwen3moe`.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut all = Vec::new();
    for word in name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()) {
        let word = word.to_ascii_lowercase();
        let digit = |at: usize| word.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
        let point =
            word.match_indices('p').map(|(at, _)| at).find(|&at| at > 0 && digit(at - 1) && digit(at + 1));
        match (point, word.strip_suffix("moe")) {
            (Some(at), _) => all.extend([word[..at].to_owned(), word[at + 1..].to_owned()]),
            (_, Some(family)) if family.ends_with(|c: char| c.is_ascii_digit()) => {
                all.extend([family.to_owned(), "moe".to_owned()]);
            }
            _ => all.push(word),
        }
    }
    all
}

/// A name without its organisation.
pub(super) fn short(name: &str) -> &str {
    let name = name.trim().trim_end_matches('/');
    name.rsplit('/').next().unwrap_or(name)
}

/// Words of a name that distinguish shapes: all but the organisation and neutral words.
pub(super) fn telling(name: &str) -> Vec<String> {
    let all = words(short(name));
    let telling_words: Vec<_> = all.iter().filter(|w| !NEUTRAL.contains(&w.as_str())).cloned().collect();
    if telling_words.is_empty() { all } else { telling_words }
}

/// Joins words without separators, but with a point between two numbers: `opt-1.3b` is not `opt-13b`.
pub(super) fn joined(words: &[String]) -> String {
    let mut all = String::new();
    for word in words {
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        if digit(all.chars().next_back()) && digit(word.chars().next()) {
            all.push('.');
        }
        all.push_str(word);
    }
    all
}

/// Distinguishing words of a name, joined; equal for two names of one shape.
pub(super) fn canonical(name: &str) -> String {
    joined(&telling(name))
}

/// Result of looking a name up.
#[derive(Debug)]
pub(super) enum Match<'a, T> {
    /// The entry with this name, compared without case, separators and neutral words.
    One(&'a Slot<T>),
    /// The only entry with a name that begins with the given words.
    Beginning(&'a Slot<T>),
    /// Several entries that the name may mean.
    Several(Vec<&'a Slot<T>>),
    /// No entry matches.
    Nothing,
}

/// Removes the letter of versions from words, as in `llama-v3`; a name's first word is kept.
fn without_v(mut words: Vec<String>) -> Vec<String> {
    for word in words.iter_mut().skip(1) {
        if word.len() > 1 && word.starts_with('v') && word[1..].chars().all(|c| c.is_ascii_digit()) {
            word.remove(0);
        }
    }
    words
}

/// Writes versions with a fraction of zero as whole numbers: `granite-4.0-h` becomes `granite-4-h`.
fn without_zero(words: Vec<String>) -> Vec<String> {
    let number = |word: &String| word.ends_with(|c: char| c.is_ascii_digit());
    let zero = |at: usize| at > 0 && words[at] == "0" && number(&words[at - 1]);
    (0..words.len()).filter(|at| !zero(*at)).map(|at| words[at].clone()).collect()
}

/// Restores the decimal point of versions that lack it: `llama-31-8b`, `qwen35`.
fn pointed(words: Vec<String>) -> Vec<String> {
    let mut all = Vec::new();
    for word in words {
        let family = word.trim_end_matches(|c: char| c.is_ascii_digit());
        match &word.as_bytes()[family.len()..] {
            [_, b'1'..=b'9'] if family.chars().all(|c| c.is_ascii_alphabetic()) => {
                let (version, rest) = word.split_at(word.len() - 1);
                all.extend([version.to_owned(), rest.to_owned()]);
            }
            _ => all.push(word),
        }
    }
    all
}

/// Digits of a name, without zeros and without the neutral word that contains a digit (`c4ai`).
fn digits(name: &str) -> impl Iterator<Item = u8> + '_ {
    let all = name.as_bytes();
    let letter = |at: usize, c: u8| all.get(at).is_some_and(|b| b.eq_ignore_ascii_case(&c));
    let neutral = move |at: usize| all[at] == b'4' && at > 0 && letter(at - 1, b'c') && letter(at + 1, b'a');
    (0..all.len()).filter(move |&at| (b'1'..=b'9').contains(&all[at]) && !neutral(at)).map(|at| all[at])
}

/// Id in `names` that equals `asked` when organisation, case and separators are ignored.
pub(super) fn called<'a>(mut names: impl Iterator<Item = &'a str>, asked: &str) -> Option<&'a str> {
    let wanted = joined(&words(asked));
    names.find(|name| name.contains('/') && joined(&words(short(name))) == wanted)
}

/// Finds the entry whose id or alias is `name`, by ever looser comparison.
pub(super) fn find<'a, T: Entry>(entries: &'a Entries<T>, name: &str) -> Match<'a, T> {
    let name = name.trim();
    if let Some(slot) = entries.rev().find(|s| s.names().any(|n| n.eq_ignore_ascii_case(name))) {
        return Match::One(slot);
    }
    let ways: [fn(&str) -> String; 6] = [
        |n| joined(&words(n)),
        |n| joined(&words(short(n))),
        canonical,
        |n| joined(&without_v(telling(n))),
        |n| joined(&without_zero(without_v(telling(n)))),
        |n| joined(&pointed(without_zero(without_v(telling(n))))),
    ];
    let (whole, own): (Vec<u8>, Vec<u8>) = (digits(name).collect(), digits(short(name)).collect());
    // Splitting names into words is slow, so entries whose names have other digits are excluded first: comparisons
    // change no digits but zeros, and all comparisons except the first ignore the organisation.
    let like = |n: &str| digits(n).eq(whole.iter().copied()) || digits(short(n)).eq(own.iter().copied());
    let near: Vec<&Slot<T>> = entries.rev().filter(|s| s.names().any(like)).collect();
    for way in ways {
        let wanted = way(name);
        let exact = owners(near.iter().copied(), |n| !wanted.is_empty() && way(n) == wanted);
        match exact.as_slice() {
            [] => {}
            [one] => return Match::One(one),
            _ => return Match::Several(exact),
        }
    }
    let wanted = canonical(name);
    let begun = |n: &str| digits(short(n)).take(own.len()).eq(own.iter().copied());
    let begun_alike = owners(entries.rev(), |n| begun(n) && begins(&telling(n), &wanted));
    match begun_alike.as_slice() {
        [] => Match::Nothing,
        [one] => Match::Beginning(one),
        _ => Match::Several(begun_alike),
    }
}

/// Entries of `slots` (ordered from last to first) with a name that passes the test, in catalog order; of several
/// entries with one id, the last.
fn owners<'a, T: Entry>(
    slots: impl Iterator<Item = &'a Slot<T>>,
    passes: impl Fn(&str) -> bool,
) -> Vec<&'a Slot<T>> {
    let mut matches: Vec<&Slot<T>> = Vec::new();
    for slot in slots.filter(|s| s.names().any(&passes)) {
        if !matches.iter().any(|f| f.id == slot.id) {
            matches.push(slot);
        }
    }
    matches.reverse();
    matches
}

/// True if the first words of a name, joined, are `wanted` and further words follow. One letter tells nothing.
fn begins(name: &[String], wanted: &str) -> bool {
    wanted.len() > 1 && (1..name.len()).any(|count| joined(&name[..count]) == wanted)
}

/// The error for a name that several entries may mean.
pub(super) fn several(kind: &'static str, name: &str, ids: &[&str]) -> Error {
    let mut hint =
        format!("it may mean {}", ids.iter().take(CANDIDATES).copied().collect::<Vec<_>>().join(", "));
    if ids.len() > CANDIDATES {
        hint.push_str(&format!(" and {} more", ids.len() - CANDIDATES));
    }
    Error::Unknown { kind, found: name.to_owned(), hint }
}

/// The error for a name whose family is known but not modelled.
pub(super) fn refused(kind: &'static str, name: &str, why: &str) -> Error {
    Error::Unknown { kind, found: name.to_owned(), hint: format!("not modelled: {why}") }
}

/// The error for an unknown name, with the nearest known names.
pub(super) fn unknown<'a, T: Entry + 'a>(
    kind: &'static str,
    name: &str,
    base: &str,
    entries: &'a Entries<T>,
) -> Error {
    let wanted = telling(base);
    let whole: String = joined(&wanted).chars().take(200).collect();
    let mut near: Vec<(f64, &str)> = Vec::new();
    for slot in entries.rev().filter(|_| !whole.is_empty()) {
        let likeness = slot.names().map(|n| likeness(&wanted, &whole, n)).fold(0.0, f64::max);
        if likeness >= LIKE && !near.iter().any(|(_, id)| *id == slot.id) {
            near.push((likeness, &slot.id));
        }
    }
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.len().cmp(&b.1.len())).then(a.1.cmp(b.1)));
    let near: Vec<_> = near.iter().take(SUGGESTIONS).map(|(_, id)| *id).collect();
    let hint = match near.as_slice() {
        [] => format!("`roofcast catalog` lists every {kind}"),
        _ => format!("did you mean {}?", near.join(", ")),
    };
    Error::Unknown { kind, found: name.to_owned(), hint }
}

/// Likeness of two names from 0 to 1: by the edit distance of the whole names, by their shared words, or [`LIKE`] if
/// every requested word begins a word of the name.
fn likeness(wanted: &[String], whole: &str, name: &str) -> f64 {
    let theirs = telling(name);
    let edits = strsim::normalized_damerau_levenshtein(whole, &joined(&theirs));
    let shared: usize = wanted.iter().filter(|w| w.len() > 1 && theirs.contains(w)).map(String::len).sum();
    let longest = whole.len().max(theirs.iter().map(String::len).sum());
    let within =
        wanted.iter().all(|w| w.len() > 2 && theirs.iter().any(|their| their.starts_with(w.as_str())));
    let contained = if within && !wanted.is_empty() { LIKE } else { 0.0 };
    edits.max(0.9 * shared as f64 / longest.max(1) as f64).max(contained)
}

/// Refuses a comma-separated list of names where one name is expected.
pub(super) fn one(kind: &'static str, key: &str, name: &str) -> Result<()> {
    if !name.contains(',') {
        return Ok(());
    }
    let hint = format!("a name is one {kind}, several are a sweep of {key}={}", cut(name));
    Err(Error::Unknown { kind, found: name.to_owned(), hint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_separators_and_neutral_words_do_not_matter() {
        for name in ["meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b", "LLAMA_3_1-8B-chat-hf"] {
            assert_eq!(canonical(name), "llama3.1.8b");
        }
        assert_eq!(canonical("mistralai/Mistral-7B-Instruct-v0.1"), "mistral7bv0.1");
        assert_ne!(canonical("facebook/opt-1.3b"), canonical("facebook/opt-13b"));
        // A name that consists of neutral words only is kept whole.
        assert_eq!(canonical("Meta-Base"), "metabase");
    }

    #[test]
    fn a_beginning_ends_with_a_word() {
        let name = telling("mistralai/Mixtral-8x7B-v0.1");
        assert!(begins(&name, "mixtral8x7b") && begins(&name, "mixtral"));
        assert!(!begins(&name, "mixtral8x") && !begins(&name, "mixtral8x7bv0.1") && !begins(&name, ""));
        assert!(!begins(&telling("skt/A.X-K1"), "a"));
    }
}
