//! Entry points for fuzzers and the corpus test: the parser of an emulator's requests, and the writers of their
//! answers.
//!
//! Results are dropped: a fuzzer looks for panics, hangs and excessive memory.

/// Parses `body` as a request to every endpoint, and writes the answer if it is valid.
pub fn request(body: &[u8]) {
    crate::emulate::exercise(body);
}
