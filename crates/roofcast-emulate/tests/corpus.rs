//! Inputs that fuzzers found interesting in the parser of requests, parsed and answered again, whole and with pieces
//! missing.
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use proptest::prelude::*;
use std::path::Path;

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/request");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 8, "{} files", files.len());
    files.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// No input causes a panic.
#[test]
fn requests_of_the_corpus_are_read() {
    corpus().iter().for_each(|body| roofcast_emulate::testing::request(body));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn damaged_requests_are_read(file in 0..64_usize, at in any::<prop::sample::Index>(), with in any::<Vec<u8>>(), gone in 0..9_usize) {
        let corpus = corpus();
        let mut body = corpus[file % corpus.len()].clone();
        let start = at.index(body.len());
        body.splice(start..(start + gone).min(body.len()), with.into_iter().take(12));
        roofcast_emulate::testing::request(&body);
    }
}
