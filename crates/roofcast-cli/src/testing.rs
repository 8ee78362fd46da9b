//! What fuzzers and the corpus test drive: the parser of an emulator's requests, and what writes their answers.
//!
//! Results are dropped: a fuzzer looks for panics, hangs and memory.

/// Reads `body` as the body of a request to every endpoint, and writes the answer where it is one.
pub fn request(body: &[u8]) {
    crate::emulate::exercise(body);
}
