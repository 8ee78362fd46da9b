//! What the all-reduces of a step take.
//!
//! Knows: a message goes in pieces through a pipeline. With pieces of the best size that takes `(√fill + √m)²`, where m is
//! what its bytes take by themselves and `fill` what the pipeline takes until it is full (Thakur et al., "Optimization of
//! collective communication operations in MPICH", 2005, has the trade between start and bytes); `fill` itself is in the start.
//! Fewer ranks draw less of the link. Over PCIe a message is its start and its bytes: whether pieces go from card to card or
//! through the host is a matter of the board. Knows nothing about which messages there are.

use super::{Coefficient, LATENCY, Values};
use crate::operator::collective::Links;

/// All-reduces of a step: `start + row n + 2 √(fill row n)` for n rows, of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Messages {
    start: f64,
    row: f64,
    /// `4 · fill · row`, of all messages: what stands under the root.
    filling: f64,
}

/// Ranks that the link's share is told for.
const RANKS: f64 = 8.0;

/// How often `ranks` are halved from eight; never of more.
pub fn halvings(ranks: u64) -> f64 {
    (RANKS / ranks.max(1) as f64).log2().max(0.0)
}

/// Steps in which a piece has passed all `ranks`.
pub fn hops(ranks: u64) -> f64 {
    ranks.saturating_sub(1) as f64
}

impl Messages {
    /// The all-reduces of `links` among `ranks`, which draw `link · link_fewer^h` of the link at h halvings.
    pub(super) fn of(values: &Values, links: &Links, ranks: u64) -> Messages {
        use Coefficient as C;
        let count = links.all_reduces as f64;
        let (halved, hops) = if links.pipelined { (halvings(ranks), hops(ranks)) } else { (0.0, 0.0) };
        let share = values.get(C::Link) * values.get(C::LinkFewer).powf(halved);
        let seconds = |coefficient| values.get(coefficient) * links.latency / LATENCY * count;
        let row = count * links.seconds_per_row() / share.min(1.0);
        let fill = seconds(C::AllReduceFill) * hops;
        Messages { start: seconds(C::AllReduce), row, filling: 4.0 * fill * row }
    }

    /// Seconds of those of `rows`.
    #[inline(always)]
    pub fn time(&self, rows: f64) -> f64 {
        self.start + self.row * rows + (self.filling * rows).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalog;
    use crate::deployment::{Deployment, Options};
    use crate::model::config;
    use crate::parallelism::RequestedParallelism;
    use std::sync::Arc;

    /// Llama-3.1-8B on two H100 has 64 all-reduces of 8192 bytes a row, 18.2 ns at 450 GB/s. Two ranks draw 0.9 · 0.9² of that:
    /// 1000 rows take 24.97 µs, fill 0.5 µs and so 2 √(0.5 · 24.97) = 7.07 more, and start in 4: 64 · 36.04.
    #[test]
    fn all_reduces_of_a_step_by_hand() {
        let catalog = Catalog::embedded().unwrap();
        let entry = catalog.model("meta-llama/Llama-3.1-8B-Instruct").unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let chip = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let two = RequestedParallelism { tp: Some(2), ..Default::default() };
        let options = Options { parallelism: two, ..Options::default() };
        let mut links = Links::of(&Deployment::resolve(model, chip, &options).unwrap());
        assert_eq!((links.all_reduces, links.latency), (64, LATENCY));
        let mut values = Values([0.0; Coefficient::ALL.len()]);
        for (coefficient, value) in [
            (Coefficient::Link, 0.9),
            (Coefficient::LinkFewer, 0.9),
            (Coefficient::AllReduce, 4e-6),
            (Coefficient::AllReduceFill, 0.5e-6),
        ] {
            values.0[coefficient as usize] = value;
        }
        let bytes: f64 = 8192.0 * 1000.0 / 450e9 / 0.729;
        let one = bytes + 2.0 * (0.5e-6 * bytes).sqrt() + 4e-6;
        let found = Messages::of(&values, &links, 2).time(1000.0);
        assert!((found / (64.0 * one) - 1.0).abs() < 1e-9 && (found * 1e6 - 2306.0).abs() < 1.0, "{found}");
        // Over PCIe the whole share and no pipeline: 64 · (4 + 20.23) µs.
        links.pipelined = false;
        let through_the_host = Messages::of(&values, &links, 2).time(1000.0);
        assert!((through_the_host * 1e6 - 1550.5).abs() < 0.5, "{through_the_host}");
    }

    /// Eight ranks are halved no time, two twice, sixteen no time either.
    #[test]
    fn halvings_and_hops() {
        assert_eq!([1, 2, 4, 8, 16].map(halvings), [3.0, 2.0, 1.0, 0.0, 0.0]);
        assert_eq!([0, 1, 2, 8].map(hops), [0.0, 0.0, 1.0, 7.0]);
    }
}
