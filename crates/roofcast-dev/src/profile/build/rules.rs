//! Reasons for leaving out rows, points and shapes of tables, with counts.
//!
//! Knows: the names of the rules. Knows nothing about how they are applied.

use serde::Serialize;
use std::collections::BTreeMap;

/// Reason for leaving out rows, points or shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ExclusionReason {
    /// Rows of a build without a version number, which has no order.
    Unversioned,
    /// Rows of a format that this project does not know.
    UnknownFormat,
    /// Rows of a format for whose dtype the chip has no peak rate.
    NoPeak,
    /// Rows of work that is not modelled: prompts in batches or with cached tokens, verified drafts, and other
    /// collectives.
    OtherWork,
    /// Rows of experts with another distribution of tokens than the power law of 1.01, if the power law was also
    /// measured; behind an exchange, than an even one.
    OtherDistribution,
    /// Shapes of experts that are split both by tensor and by expert.
    MixedSplit,
    /// Rows of versions whose times include host overhead.
    HostBound,
    /// Points that a newer version has measured.
    Older,
    /// Points more than 5 % faster than the chip's limit, whose data stayed in caches.
    FasterThanLimit,
    /// Shapes with too few points for a curve.
    TooFew,
    /// Shapes whose times neighbouring shapes predict.
    Predicted,
}

impl ExclusionReason {
    /// All rules, in the order of their application.
    pub const ALL: [ExclusionReason; 11] = [
        ExclusionReason::Unversioned,
        ExclusionReason::UnknownFormat,
        ExclusionReason::NoPeak,
        ExclusionReason::OtherWork,
        ExclusionReason::OtherDistribution,
        ExclusionReason::MixedSplit,
        ExclusionReason::HostBound,
        ExclusionReason::Older,
        ExclusionReason::FasterThanLimit,
        ExclusionReason::TooFew,
        ExclusionReason::Predicted,
    ];

    /// Description of the rule in reports.
    pub fn words(self) -> &'static str {
        match self {
            ExclusionReason::Unversioned => "rows of builds without a version number",
            ExclusionReason::UnknownFormat => "rows of formats that are not known",
            ExclusionReason::NoPeak => "rows of formats without a peak rate on the chip",
            ExclusionReason::OtherWork => {
                "rows of other work: prompts in batches or with cached tokens, drafts, other collectives"
            }
            ExclusionReason::OtherDistribution => {
                "rows of experts with another distribution than power law 1.01, behind an exchange than an even one"
            }
            ExclusionReason::MixedSplit => "shapes of experts split by tensor and by expert",
            ExclusionReason::HostBound => "rows timed with the host in them",
            ExclusionReason::Older => "points that a newer version measured",
            ExclusionReason::FasterThanLimit => "points faster than the limit by more than 5 %",
            ExclusionReason::TooFew => "shapes with too few points",
            ExclusionReason::Predicted => "shapes that others predict",
        }
    }
}

/// Number of rows, points or shapes that each rule left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Dropped(pub BTreeMap<ExclusionReason, u64>);

impl Dropped {
    /// Adds `count` to the count of `rule`.
    pub(super) fn add(&mut self, rule: ExclusionReason, count: usize) {
        if count > 0 {
            *self.0.entry(rule).or_default() += count as u64;
        }
    }

    /// Adds the counts of `other`.
    pub(super) fn merge(&mut self, other: &Dropped) {
        other.0.iter().for_each(|(rule, count)| *self.0.entry(*rule).or_default() += count);
    }

    /// Count of one rule.
    pub fn of(&self, rule: ExclusionReason) -> u64 {
        self.0.get(&rule).copied().unwrap_or(0)
    }
}
