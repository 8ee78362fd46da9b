//! Amounts of a pass: rows of its products, and what its messages depend on.
//!
//! Knows: tokens that cross links. Knows nothing about bytes.

use super::Pass;
use crate::operator::Rows;
use roofcast_facts::units::number;

impl Pass<'_> {
    /// Decodes of the rank, and cached tokens before its prompts: what ranks exchange that share the tokens of a sequence.
    pub(crate) fn shared(&self) -> [f64; 2] {
        let prompts = self.chunks.iter().filter(|chunk| chunk.is_prompt());
        let cached: u64 = prompts.map(|c| c.count * c.context.saturating_sub(c.new)).sum();
        [number(self.decodes), number(cached)]
    }

    /// Rows of a product.
    #[inline]
    pub(crate) fn rows_of(&self, rows: Rows) -> u64 {
        match rows {
            Rows::Computed => self.rows,
            Rows::Sampled => self.sampled,
        }
    }

    /// True if the pass computes prompts.
    pub(crate) fn has_prompts(&self) -> bool {
        self.longest > 0
    }

    /// Tokens that cross a rank's link where data-parallel ranks gather tokens: a rank receives the tokens of all other
    /// ranks, and sends its own tokens at least once.
    pub(crate) fn gathered(&self) -> u64 {
        self.rows.max(self.tokens.saturating_sub(self.rows))
    }
}
