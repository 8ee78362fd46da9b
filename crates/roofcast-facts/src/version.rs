//! Versions of engines, and their order.
//!
//! Knows: release numbers, pre-releases before and post-releases after them, as PEP 440 orders them. A version
//! without a number, or with a date instead of one, has no order. Knows nothing about which versions exist.

use std::cmp::Ordering;

/// A version that has an order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Numbers without trailing zeros: 1.0 is 1.
    release: Vec<u64>,
    stage: ReleaseStage,
    /// Number of the post-release plus one; 0 for a plain release.
    post: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ReleaseStage {
    Development,
    Candidate(u64),
    Final,
}

impl Version {
    /// Parses a version, such as `0.6.3.post1`, `v0.11.2`, `==0.11.2`, `1.2.0rc6.post2`, `~0.4.x`, `0.4.0 (2024-12)`
    /// as 0.4.0, or `build 7941-7948` as 7941; `None` for a text without an order, such as `nightly` or `2024-05/06`.
    pub fn parse(text: &str) -> Option<Version> {
        let text = text.trim().trim_start_matches("build ").trim_start_matches(['v', 'b', '~', '=']);
        let mut release = Vec::new();
        let mut rest = text;
        loop {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let Some(number) = rest.get(..digits).and_then(|d| d.parse().ok()) else { break };
            release.push(number);
            rest = &rest[digits..];
            match rest.strip_prefix('.') {
                Some(next) if next.starts_with(|c: char| c.is_ascii_digit()) => rest = next,
                _ => break,
            }
        }
        let year = (2000..=2100).contains(release.first()?);
        if year && rest.starts_with('-') {
            return None;
        }
        while release.len() > 1 && release.last() == Some(&0) {
            release.pop();
        }
        // Names of platforms and remarks follow a space or a hyphen.
        let tag = rest.split([' ', '-', '(', '+']).next().unwrap_or_default();
        let stage = match (tag.contains("dev"), number_after(tag, "rc")) {
            (true, _) => ReleaseStage::Development,
            (_, Some(number)) => ReleaseStage::Candidate(number),
            _ => ReleaseStage::Final,
        };
        let post = if stage == ReleaseStage::Development { None } else { number_after(tag, "post") };
        Some(Version { release, stage, post: post.map_or(0, |n| n + 1) })
    }

    /// Order of two versions as texts; `None` if one has no order.
    pub fn compare(a: &str, b: &str) -> Option<Ordering> {
        Some(Version::parse(a)?.cmp(&Version::parse(b)?))
    }
}

/// True if `version` is before `release`, which names its month, as in `0.14.0 (2026-01)`. A version without an order but with a
/// date, such as `nightly-dev-20260216`, is ordered by its month; any other text, such as `nightly`, is treated as new.
pub fn precedes(version: &str, release: &str) -> bool {
    if let Some(order) = Version::compare(version, release) {
        return order.is_lt();
    }
    month(version).zip(month(release)).is_some_and(|(asked, first)| asked < first)
}

/// Year and month of the first date in `text`, such as `2026-02`, `2024-05/06` or `20260216`; month 0 if it names the year alone.
fn month(text: &str) -> Option<[u32; 2]> {
    let mut runs = text.split_inclusive(|c: char| !c.is_ascii_digit()).peekable();
    while let Some(run) = runs.next() {
        let digits = run.trim_end_matches(|c: char| !c.is_ascii_digit());
        let number = |digits: Option<&str>| digits.and_then(|d| d.parse::<u32>().ok());
        let year = number(digits.get(..4)).filter(|year| (2000..=2100).contains(year));
        let is_month = |month: &u32| (1..=12).contains(month);
        match (year, digits.len()) {
            (Some(year), 8) => {
                if let Some(month) = number(digits.get(4..6)).filter(is_month) {
                    return Some([year, month]);
                }
            }
            (Some(year), 4) => {
                let next = runs.peek().map(|next| next.trim_end_matches(|c: char| !c.is_ascii_digit()));
                return Some([year, number(next).filter(is_month).unwrap_or(0)]);
            }
            _ => {}
        }
    }
    None
}

/// Number after `key` in `tag`; 0 if no number follows `key`.
fn number_after(tag: &str, key: &str) -> Option<u64> {
    let after = tag.split_once(key)?.1;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    Some(digits.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let ascending = [
            "~0.4.x/0.5.0",
            "0.4.0.post1",
            "0.5.6-cu129-amd64",
            "0.5.6.post2",
            "0.5.10.post1",
            "0.6.3.dev/post",
            "0.6.3",
            "0.6.3.post1",
            "0.6.6 (rocm/vllm-dev)",
            "0.10.1",
            "v0.19",
            "1.0.0rc3",
            "1.0 (PyTorch backend)",
            "1.1.0rc2.post2",
            "1.2.0rc6.post1",
            "1.2.0rc6.post2",
            "1.2.0",
            "5.x docs",
            "build 7941-7948",
        ];
        for pair in ascending.windows(2) {
            assert_eq!(Version::compare(pair[0], pair[1]), Some(Ordering::Less), "{pair:?}");
        }
        assert_eq!(Version::compare("0.4.0 (2024-12)", "0.4"), Some(Ordering::Equal));
    }

    /// Nightlies and branches are before a release by the month in their names; digits of a hash or of a model's name are no
    /// date, and a year alone is its begin.
    #[test]
    fn dates_are_ordered_by_months() {
        for early in [
            "nightly-dev-20260216-d3bae71e",
            "nightly-dev-cu13-20260321",
            "2024-05/06",
            "main 2026-07",
            "plugin (2026)",
        ] {
            assert!(precedes(early, "0.5.23 (2026-11)"), "{early}");
        }
        for late in [
            "nightly",
            "nightly-5b8c30d62b754b57",
            "glm5-hopper",
            "gemma4 branch",
            "2026-11",
            "nightly-20261201",
        ] {
            assert!(!precedes(late, "0.5.23 (2026-11)"), "{late}");
        }
        assert!(precedes("0.5.22", "0.5.23 (2026-11)") && !precedes("0.5.23", "0.5.23 (2026-11)"));
        assert!(!precedes("nightly-dev-20260216", "0.28.0"), "a release without a month");
        assert_eq!(month("nightly 2026-02 (0.16)"), Some([2026, 2]));
        assert_eq!(month("build 20269999"), None);
    }

    #[test]
    fn dates_and_names_have_no_order() {
        for text in ["", "nightly-dev-20260216-d3bae71e", "2024-05/06", "2026-04", "glm5-hopper", "x"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }
}
