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

    #[test]
    fn dates_and_names_have_no_order() {
        for text in ["", "nightly-dev-20260216-d3bae71e", "2024-05/06", "2026-04", "glm5-hopper", "x"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }
}
