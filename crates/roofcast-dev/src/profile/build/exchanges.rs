//! Tables of exchanges: each row times the dispatch and the combination of a number of tokens by DeepEP.
//!
//! Knows: the columns of such tables; the numbers of multiprocessors that normal mode was timed with, of which the
//! default is kept. Dispatch is in FP8 with a scale for every 128 values, combination in BF16. Knows nothing about
//! links.

use super::columns::Columns;
use super::exchange_mode::ExchangeMode;
use super::reading::{MeasuredTime, ShapeMeasurements, TableContents, medians};
use super::rules::{Dropped, ExclusionReason};
use super::source::TableSource;
use roofcast_cost::profile::KernelTable;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::error::Result;
use std::collections::BTreeMap;

/// Multiprocessors of normal mode: the default of DeepEP (`Buffer.num_sms`) and of vLLM (`DeepEPHTAll2AllManager`).
const MULTIPROCESSORS: u32 = 20;
/// Accelerators of one host, where a fabric joins several hosts into one node: a tray of a GB200 NVL72 has four.
const OF_A_TRAY: u64 = 4;

impl TableSource<'_> {
    /// Reads both times of each row.
    pub(super) fn exchanges(&self, columns: &Columns, mode: ExchangeMode) -> Result<TableContents> {
        let shape = columns.numbers(["hidden_size", "num_topk", "num_experts", "node_num", "num_token"])?;
        let rows = shape[0].0.len();
        let mut dropped = Dropped::default();
        let mut shapes: BTreeMap<(KernelTable, Vec<u32>), Vec<MeasuredTime>> = BTreeMap::new();
        let times: [[&str; 2]; 2] = match mode {
            ExchangeMode::LowLatency => [["dispatch_avg_t_us"; 2], ["combine_avg_t_us"; 2]],
            ExchangeMode::Normal => {
                [["dispatch_transmit_us", "dispatch_notify_us"], ["combine_transmit_us", "combine_notify_us"]]
            }
        };
        let [dispatch_sms, combine_sms] =
            ["dispatch_sms", "combine_sms"].map(|name| columns.numbers_if_any(name));
        let standard =
            |row| [dispatch_sms, combine_sms].iter().all(|sms| [0, MULTIPROCESSORS].contains(&sms.at(row)));
        for (table, [transmit, notify]) in
            [KernelTable::Dispatch, KernelTable::Combine].into_iter().zip(times)
        {
            let [transmit_us, notify_us] = columns.numbers([transmit, notify])?;
            for row in 0..rows {
                let value = |column: &[f64]| column.get(row).copied().unwrap_or(0.0);
                let more = if transmit == notify { 0.0 } else { value(notify_us.0) };
                let seconds = (value(transmit_us.0) + more) * 1e-6;
                if !(standard(row) && seconds > 0.0 && seconds.is_finite()) {
                    dropped.add(ExclusionReason::OtherWork, 1);
                    continue;
                }
                let [hidden, top_k, experts, nodes, tokens] = shape.map(|axis| axis.at(row));
                let axes = vec![hidden, top_k, experts, nodes * of_a_host(self.chip)];
                shapes.entry((table, axes)).or_default().push(MeasuredTime {
                    size: tokens,
                    context: 0,
                    seconds,
                });
            }
        }
        let groups = shapes.into_iter().map(|((table, shape), points)| {
            let format = if table == KernelTable::Dispatch { "fp8" } else { "bf16" };
            let kernel = mode.kernel().to_owned();
            let place = self.place(table, &kernel, format);
            ShapeMeasurements { place, kernel, shape, points: medians(points) }
        });
        let groups = if self.version.is_some() { groups.collect() } else { Vec::new() };
        Ok(TableContents { file: self.path.clone(), version: self.version.clone(), rows, groups, dropped })
    }
}

/// Number of accelerators of one host.
fn of_a_host(chip: &Accelerator) -> u32 {
    (if chip.node_size > 8 { OF_A_TRAY } else { chip.node_size }) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_facts::catalog::Catalog;

    fn columns(rows: &[(&str, f64)]) -> Columns {
        let mut columns = Columns::new("table");
        rows.iter().for_each(|(name, value)| columns.add_numbers(name, vec![*value]));
        columns
    }

    /// Two nodes of eight H200 are 16 ranks. Normal mode adds the notification, 61.4 + 30.9 µs, and leaves out rows with
    /// another number of multiprocessors than 20.
    #[test]
    fn a_row_has_two_times() {
        let catalog = Catalog::embedded().unwrap();
        let read = |name: &str, more: &[(&str, f64)]| {
            let path = format!("h200_sxm/comm/sglang/0.5.6/{name}_perf.parquet");
            let source = TableSource::of(&path, catalog).unwrap().unwrap();
            let shape = [("hidden_size", 7168.0), ("num_topk", 8.0), ("num_experts", 256.0)];
            let size = [("node_num", 2.0), ("num_token", 128.0)];
            source.read(&columns(&[&shape[..], &size[..], more].concat())).unwrap()
        };
        let low = read("wideep_deepep_ll", &[("dispatch_avg_t_us", 102.1), ("combine_avg_t_us", 186.2)]);
        let rows: Vec<_> = low
            .groups
            .iter()
            .map(|g| (g.shape.clone(), g.points[0].size, (g.points[0].seconds * 1e9).round()))
            .collect();
        assert_eq!(rows, [102_100.0, 186_200.0].map(|ns| (vec![7168, 8, 256, 16], 128, ns)));
        let normal = |sms: f64| {
            let times = [
                ("dispatch_transmit_us", 61.4),
                ("dispatch_notify_us", 30.9),
                ("combine_transmit_us", 142.4),
            ];
            let rest = [("combine_notify_us", 31.2), ("dispatch_sms", sms), ("combine_sms", sms)];
            read("wideep_deepep_normal", &[&times[..], &rest[..]].concat())
        };
        assert!((normal(20.0).groups[0].points[0].seconds - 92.3e-6).abs() < 1e-12);
        assert!(normal(24.0).groups.is_empty() && normal(24.0).dropped.of(ExclusionReason::OtherWork) == 2);
    }
}
