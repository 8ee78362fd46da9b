//! An operator, flattened: what it takes for so many FLOPs and bytes.
//!
//! Knows: what of the shorter of computing and moving comes on top of the longer. Does not know where its figures come from.

use crate::efficiency::FewRows;
use crate::model::Experts;
use crate::model::mixer::Attention;

#[derive(Debug, Clone)]
pub(super) struct Op {
    pub(super) layers: f64,
    /// Ticks per FLOP and per byte.
    pub(super) compute: f64,
    pub(super) memory: f64,
    /// Share of the shorter of both that the longer does not hide.
    pub(super) exposed: f64,
    pub(super) few: FewRows,
    /// Rows that a decode's attention computes beside prompts.
    pub(super) mixed_rows: f64,
    /// Ticks of each layer's call.
    pub(super) call: f64,
    /// Bytes whatever the batch.
    pub(super) bytes: f64,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// FLOPs and bytes a row; lm_head's rows are the sampled ones.
    Rows { flops: f64, bytes: f64, sampled: bool },
    /// FLOPs per token of the replica; bytes of all the experts here, of which the distinct ones are read.
    Experts { flops: f64, bytes: f64, experts: Box<Experts> },
    /// FLOPs and bytes of a decode: so much, and so much per token seen within each reach.
    Attend { fixed: [f64; 2], terms: Vec<[f64; 2]>, closed: Option<Box<Closed>>, index: usize },
}

/// Attention whose pairs and tokens seen have closed forms.
#[derive(Debug, Clone)]
pub(super) struct Closed {
    pub(super) attention: Attention,
    pub(super) flops_per_pair: f64,
    pub(super) bytes_per_token: f64,
}

impl Op {
    pub(super) fn attends(&self) -> bool {
        matches!(self.kind, Kind::Attend { .. })
    }

    /// What a layer takes for so many FLOPs and bytes: the longer of computing and moving, and what it does not hide of the shorter.
    pub(super) fn time(&self, flops: f64, bytes: f64) -> [f64; 2] {
        let (computing, moving) = (flops * self.compute, bytes * self.memory);
        if computing > moving {
            [computing, moving * self.exposed]
        } else {
            [computing * self.exposed, moving]
        }
    }

    /// What a layer takes for the attention of decodes in a kernel that works on prompts, too: so many FLOPs and bytes, and
    /// `more` FLOPs to start.
    pub(super) fn time_beside(&self, flops: f64, bytes: f64, more: f64) -> [f64; 2] {
        let tiles = (flops + more) * self.mixed_rows * self.compute;
        let moving = bytes * self.memory;
        if tiles > moving { [tiles, 0.0] } else { [0.0, moving] }
    }
}
