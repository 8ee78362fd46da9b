//! Rates of reading and copying memory, with small pages and with huge ones.
//!
//! Knows: buffers that exceed all caches, divided evenly over the threads, and their checksums. Does not know the
//! repetition of measurements ([`super::steady`]) or cache sizes ([`super::machine`]).

use super::{Pace, Spread, steady};
use anyhow::{Context, Result, ensure};
use memmap2::MmapMut;
use roofcast::units::Bytes;
use serde::Serialize;

/// Bytes of a turn: long enough for the clock, short enough that all threads end together.
const BLOCK: usize = 1 << 20;
const WORD: usize = size_of::<u64>();

/// Memory operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    /// Every word is read once and summed.
    Read,
    /// One half of the buffer is copied to the other; bytes read and bytes written both count.
    Copy,
}

/// Page size of the buffer's mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pages {
    /// The system's base pages, 4 KiB on x86.
    Small,
    /// Transparent huge pages, 2 MiB on x86.
    Huge,
}

/// Bytes of the buffer: eight times the caches (two for a quick run) and at least 256 MiB (64), at most a quarter of
/// the free memory.
pub(crate) fn size(cache: Bytes, free: Bytes, quick: bool) -> Bytes {
    let (times, least) = if quick { (2, 64 << 20) } else { (8, 256 << 20) };
    Bytes((cache * times).0.max(least).min(free.0 / 4))
}

/// A buffer filled with a known pattern.
pub(crate) struct Buffer {
    map: MmapMut,
    /// Fraction in huge pages, if the system reports it.
    pub(crate) huge_share: Option<f64>,
}

impl Buffer {
    /// Creates a buffer of `size`, rounded to whole blocks for each of `threads`; `None` if the system lacks such
    /// pages. Each part is filled by its own thread, which on most systems places it near that thread.
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

    /// Bytes per second, on as many threads as the buffer was made for.
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

/// Requests `pages`; true if the system supports them.
#[cfg(target_os = "linux")]
fn advise(map: &MmapMut, pages: Pages) -> bool {
    let advice = match pages {
        Pages::Small => memmap2::Advice::NoHugePage,
        Pages::Huge => memmap2::Advice::HugePage,
    };
    // A kernel without huge pages refuses either advice, and has small pages anyway.
    map.advise(advice).is_ok() || pages == Pages::Small
}

#[cfg(not(target_os = "linux"))]
fn advise(_: &MmapMut, pages: Pages) -> bool {
    pages == Pages::Small
}

/// Word `i` of a part is `i`.
fn fill(part: &mut [u8]) {
    for (i, word) in (0_u64..).zip(part.chunks_exact_mut(WORD)) {
        word.copy_from_slice(&i.to_ne_bytes());
    }
}

/// The sum of a block's words, modulo 2^64.
fn sum(block: &[u8]) -> u64 {
    block.as_chunks::<WORD>().0.iter().fold(0, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)))
}

/// `first + (first + 1) + …`, of `count` words.
fn expected(first: u64, count: u64) -> u64 {
    first.wrapping_mul(count).wrapping_add(count * (count - 1) / 2)
}

/// Turns that each read a block of `part` in rotation, and compare its sum with the pattern's.
fn reader(part: &[u8]) -> impl FnMut() -> Result<u64> + Send {
    let mut blocks = (0_u64..).zip(part.chunks_exact(BLOCK)).cycle();
    move || {
        let (index, block) = blocks.next().context("a part without a block")?;
        let words = (BLOCK / WORD) as u64;
        let (found, right) = (sum(block), expected(index * words, words));
        ensure!(found == right, "memory was read wrong: the sum is {found}, not {right}");
        Ok(BLOCK as u64)
    }
}

/// A part, its upper half to be overwritten by its lower.
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

    /// Copies a block; both of its sides count.
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
        // 8 · 64 MiB = 512 MiB; 8 · 1 MiB is below the least of 256 MiB; 8 · 1 GiB is above a quarter of 4 GiB.
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
        // A block is read and written: 2 MiB.
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
                // A copy leaves its pattern in place, which the next reading would not expect.
            }
        }
    }
}
