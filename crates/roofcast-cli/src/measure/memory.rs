//! Rates of reading and copying memory, with small pages and with huge ones.
//!
//! Knows: buffers larger than all caches, divided evenly over the threads, and their checksums. Knows nothing about the
//! repetition of measurements ([`super::steady`]) or cache sizes ([`super::machine`]).

use super::{Pace, Spread, steady};
use anyhow::{Context, Result, ensure};
use memmap2::MmapMut;
use roofcast::units::Bytes;
use serde::Serialize;

/// Bytes of a turn: many enough for the clock's resolution, few enough that all threads end nearly together.
const BLOCK: usize = 1 << 20;
const WORD: usize = size_of::<u64>();

/// Memory operation to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    /// Reading every word once into a sum.
    Read,
    /// Copying one half of the buffer to the other; both the bytes read and the bytes written count.
    Copy,
}

/// Page size of the buffer's mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pages {
    /// The system's base pages, 4 KiB on x86.
    Small,
    /// Transparent huge pages, 2 MiB on x86.
    Huge,
}

/// Bytes of a buffer: eight times the caches (twice if `quick`), at least 256 MiB (64 MiB if `quick`), at most a
/// quarter of the free memory.
pub(crate) fn size(cache: Bytes, free: Bytes, quick: bool) -> Bytes {
    let (times, least) = if quick { (2, 64 << 20) } else { (8, 256 << 20) };
    Bytes((cache * times).0.max(least).min(free.0 / 4))
}

/// A buffer filled with a known pattern.
pub(crate) struct Buffer {
    map: MmapMut,
    /// Fraction of the buffer in huge pages, if the system reports it.
    pub(crate) huge_share: Option<f64>,
}

impl Buffer {
    /// Creates a buffer of `size`, rounded to whole blocks for each of `threads`; `None` if the system has no pages of
    /// that kind. Each thread fills the part that it will use, so that most systems place the part in the memory
    /// nearest to that thread.
    pub(crate) fn new(size: Bytes, pages: Pages, threads: usize) -> Result<Option<Buffer>> {
        let unit = 2 * BLOCK * threads;
        let length = (usize::try_from(size.0)? / unit).max(1) * unit;
        let mut map = MmapMut::map_anon(length).with_context(|| format!("no {} of memory", size.gib()))?;
        if !advise(&map, pages) {
            return Ok(None);
        }
        let before = super::machine::huge_bytes();
        std::thread::scope(|scope| {
            for part in map.chunks_mut(length / threads) {
                scope.spawn(move || fill(part));
            }
        });
        let huge_share = match (before, super::machine::huge_bytes()) {
            (Some(before), Some(now)) => Some(now.saturating_sub(before).as_f64() / length as f64),
            _ => None,
        };
        Ok(Some(Buffer { map, huge_share }))
    }

    /// Measures bytes per second on `threads` threads, which must be the number that the buffer was created for.
    pub(crate) fn measure(&mut self, operation: Operation, threads: usize, pace: Pace) -> Result<Spread> {
        let part = self.map.len() / threads;
        let parts = self.map.chunks_mut(part);
        match operation {
            Operation::Read => steady(&mut parts.map(|p| reader(p)).collect::<Vec<_>>(), pace),
            Operation::Copy => {
                let mut copies: Vec<_> = parts.map(Copy::new).collect();
                let mut turns: Vec<_> = copies.iter_mut().map(|c| || Ok(c.turn())).collect();
                let spread = steady(&mut turns, pace)?;
                copies.iter().try_for_each(Copy::check)?;
                Ok(spread)
            }
        }
    }
}

/// Asks the system to use `pages` for a mapping; true if the system supports them.
#[cfg(target_os = "linux")]
fn advise(map: &MmapMut, pages: Pages) -> bool {
    let advice = match pages {
        Pages::Small => memmap2::Advice::NoHugePage,
        Pages::Huge => memmap2::Advice::HugePage,
    };
    // A kernel without huge pages refuses either advice; its pages are small anyway.
    map.advise(advice).is_ok() || pages == Pages::Small
}

#[cfg(not(target_os = "linux"))]
fn advise(_: &MmapMut, pages: Pages) -> bool {
    pages == Pages::Small
}

/// Fills a part with the known pattern: word `i` of a part is `i`.
fn fill(part: &mut [u8]) {
    for (i, word) in (0_u64..).zip(part.chunks_exact_mut(WORD)) {
        word.copy_from_slice(&i.to_ne_bytes());
    }
}

/// Sum of a block's words, modulo 2^64.
fn sum(block: &[u8]) -> u64 {
    block.as_chunks::<WORD>().0.iter().fold(0, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)))
}

/// Sum of `count` consecutive numbers from `first` on, modulo 2^64.
fn expected(first: u64, count: u64) -> u64 {
    first.wrapping_mul(count).wrapping_add(count * (count - 1) / 2)
}

/// A worker whose turns read the blocks of `part` in rotation and compare each sum with the pattern's.
fn reader(part: &[u8]) -> impl FnMut() -> Result<u64> + Send {
    let mut blocks = (0_u64..).zip(part.chunks_exact(BLOCK)).cycle();
    move || {
        let (index, block) = blocks.next().context("a part without a block")?;
        let words = (BLOCK / WORD) as u64;
        let total = sum(block);
        let right = expected(index * words, words);
        ensure!(total == right, "memory was read wrong: the sum is {total}, not {right}");
        Ok(BLOCK as u64)
    }
}

/// A part whose lower half is copied over its upper half.
struct Copy<'a> {
    from: &'a [u8],
    to: &'a mut [u8],
    next: usize,
    round: bool,
}

impl<'a> Copy<'a> {
    fn new(part: &'a mut [u8]) -> Copy<'a> {
        let half = part.len() / 2;
        let (from, to) = part.split_at_mut(half);
        to.fill(0);
        Copy { from, to, next: 0, round: false }
    }

    /// Copies one block; returns the bytes read plus the bytes written.
    fn turn(&mut self) -> u64 {
        let end = (self.next + BLOCK).min(self.from.len());
        self.to[self.next..end].copy_from_slice(&self.from[self.next..end]);
        let moved = 2 * (end - self.next) as u64;
        self.round |= end == self.from.len();
        self.next = if end == self.from.len() { 0 } else { end };
        moved
    }

    /// Checks that the copy equals the source.
    fn check(&self) -> Result<()> {
        let done = if self.round { self.from.len() } else { self.next };
        ensure!(self.to[..done] == self.from[..done], "memory was copied wrong");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_buffer_outgrows_the_caches_but_not_the_memory() {
        let gib = Bytes(1 << 30);
        // 8 · 64 MiB = 512 MiB; 8 · 1 MiB is below the minimum of 256 MiB; 8 · 1 GiB is above a quarter of 4 GiB.
        assert_eq!(size(Bytes(64 * MIB), gib * 64, false), Bytes(512 * MIB));
        assert_eq!(size(Bytes(MIB), gib * 64, false), Bytes(256 * MIB));
        assert_eq!(size(gib, gib * 4, false), gib);
        assert_eq!(size(Bytes(MIB), gib * 64, true), Bytes(64 * MIB));
    }

    #[test]
    fn sums_by_hand() {
        // 3 + 4 + 5 + 6 = 18.
        assert_eq!(expected(3, 4), 18);
        let mut part = [0; 4 * WORD];
        fill(&mut part);
        assert_eq!(sum(&part), 1 + 2 + 3);
    }

    #[test]
    fn a_flipped_bit_is_found() {
        let mut part = vec![0; BLOCK];
        fill(&mut part);
        assert_eq!(reader(&part)().unwrap(), MIB);
        part[77] ^= 1;
        assert!(reader(&part)().unwrap_err().to_string().starts_with("memory was read wrong"));
    }

    #[test]
    fn copies_go_round_and_are_compared() {
        let mut part = vec![0; 4 * BLOCK];
        fill(&mut part);
        let mut copy = Copy::new(&mut part);
        // A block of 1 MiB is read and written: 2 MiB.
        assert_eq!([copy.turn(), copy.turn(), copy.turn()], [2 * MIB; 3]);
        copy.check().unwrap();
        copy.to[2 * BLOCK - 1] ^= 1;
        assert_eq!(copy.check().unwrap_err().to_string(), "memory was copied wrong");
    }

    #[test]
    fn both_pages_and_operations_measure() {
        let pace = Pace { warm_up: Duration::ZERO, span: Duration::from_millis(1), repeats: 1 };
        for pages in [Pages::Small, Pages::Huge] {
            let Some(mut buffer) = Buffer::new(Bytes(8 * MIB), pages, 2).unwrap() else { continue };
            for operation in [Operation::Read, Operation::Copy] {
                assert!(buffer.measure(operation, 2, pace).unwrap().median > 0.0);
                // Copying leaves another pattern than reading expects, so each operation gets a fresh buffer.
            }
        }
    }
}
