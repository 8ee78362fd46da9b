//! Times of messages between ranks that share the cached tokens of sequences.
//!
//! Knows: a gather or a scatter takes half of a measured all-reduce of as many bytes among as many ranks, since an
//! all-reduce is one of each; without a measurement, a start and its bytes at a fraction of the link's rate. Knows nothing
//! about which messages there are.

use crate::kernel_time::Kernels;
use crate::operator::collective::Links;
use crate::operator::shared_sequences::SharedSequences;
use crate::profile::Curve;
use crate::step::Pass;

/// Times of the messages of ranks that share sequences; all zero if none do.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct SharedTimes {
    messages: Vec<SharedSequences>,
    /// Measured seconds of an all-reduce over its bytes.
    measured: Option<Curve>,
    /// Fixed seconds of a message without a measurement.
    start: f64,
    /// Seconds per decode, and per cached token before a prompt, by bytes.
    bytes: [f64; 2],
}

impl SharedTimes {
    /// Times at the links' bandwidth alone.
    pub(super) fn limit(links: &Links) -> SharedTimes {
        SharedTimes { bytes: links.shared_sequences, ..SharedTimes::default() }
    }

    /// Times of `messages` among `ranks` ranks; without a measurement each starts with `start` seconds and moves its bytes
    /// `slower` times as long as at the links' bandwidth.
    pub(super) fn of(
        messages: Vec<SharedSequences>,
        kernels: &Kernels,
        links: &Links,
        ranks: u64,
        [start, slower, factor]: [f64; 3],
    ) -> SharedTimes {
        if messages.is_empty() {
            return SharedTimes::default();
        }
        let measured = kernels.all_reduce(ranks).map(|(curve, _)| curve.map(|_, seconds| seconds * factor));
        let slower = if measured.is_some() { 1.0 } else { slower };
        SharedTimes { messages, measured, start, bytes: links.shared_sequences.map(|bytes| bytes * slower) }
    }

    /// Seconds of the messages of a pass.
    #[inline(always)]
    pub(super) fn seconds(&self, pass: &Pass) -> f64 {
        if self.bytes == [0.0; 2] {
            return 0.0;
        }
        let [decodes, cached] = pass.shared();
        let [of_decode, of_cached] = self.bytes;
        let by_bytes = of_decode * decodes + of_cached * cached;
        let message = |bytes: f64| match &self.measured {
            _ if bytes <= 0.0 => 0.0,
            Some(curve) => curve.at(bytes) / 2.0,
            None => self.start,
        };
        let of_layers = |m: &SharedSequences| {
            let decode: f64 = m.decode.iter().map(|bytes| message(bytes * decodes)).sum();
            m.layers * (decode + message(m.cached * cached))
        };
        let messages: f64 = self.messages.iter().map(of_layers).sum();
        // A measured message includes its bytes; a start does not.
        if self.measured.is_some() { messages.max(by_bytes) } else { messages + by_bytes }
    }
}
