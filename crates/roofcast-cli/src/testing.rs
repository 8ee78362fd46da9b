//! Entry points for fuzzers and the corpus test: the parser of an emulator's requests, and the writers of their
//! answers.
//!
//! Knows: results are dropped, because a fuzzer looks only for panics, hangs and excessive memory.

/// Parses `body` as a request to every endpoint, and writes a response to each valid one.
pub fn request(body: &[u8]) {
    crate::emulate::exercise(body);
}
