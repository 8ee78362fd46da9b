//! `roofcast catalog`: lists the embedded entries, shows one with its sources, or makes a new one.

mod add;
pub(crate) mod entry;
mod filter;

use crate::args::{CatalogArgs, CatalogVerb};
use crate::input;
use crate::show::number::{count, dollars, significant};
use crate::show::{self, table};
use anyhow::bail;
use entry::Facts;
use filter::Filter;
use roofcast::Catalog;
use roofcast::accelerator::Accelerator;
use roofcast::catalog::{EntryKind, EntryLine, ListedEntry};
use roofcast::preset::Preset;
use serde::Serialize;
use std::process::ExitCode;

/// Columns of the CSV.
const HEADER: [&str; 8] =
    ["kind", "id", "family", "parameters", "active", "memory_bytes", "formats", "usd_per_hour"];

/// The entries that pass the filters, as in the JSON document.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "CatalogList"))]
pub(crate) struct Entries<'a> {
    /// Accelerators that pass the filters.
    accelerators: Vec<&'a Accelerator>,
    /// Models that pass the filters.
    models: Vec<Facts<'a>>,
    /// Workloads that pass the filters.
    workloads: Vec<&'a Preset>,
}

/// The entries that pass the filters, by kind.
struct Listing<'a> {
    entries: Vec<ListedEntry<'a>>,
    workloads: Vec<&'a Preset>,
}

pub(crate) fn run(args: &CatalogArgs) -> anyhow::Result<ExitCode> {
    if let Some(CatalogVerb::Add(add)) = &args.verb {
        return add::run(add);
    }
    let catalog = input::catalog(&args.catalog)?;
    if let Some(name) = &args.name {
        if args.output.csv {
            bail!("--csv lists entries; accepted with a name: --json");
        }
        entry::show(&catalog, name, args.output.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let listing = listing(&catalog, &Filter::new(&args.filter)?)?;
    if args.output.json {
        show::json("roofcast/catalog/1", &listing.parsed(&catalog)?)?;
    } else if args.output.csv {
        show::csv(&HEADER, &listing.rows())?;
    } else {
        show::text(&listing.people())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The entries that pass the filters, in catalog order; entries whose id matches come before the others.
fn listing<'a>(catalog: &'a Catalog, filter: &Filter) -> anyhow::Result<Listing<'a>> {
    let mut entries: Vec<_> = catalog.listing()?.into_iter().filter(|listed| filter.entry(listed)).collect();
    entries.sort_by_key(|listed| !filter.by_id(&listed.line.id));
    let workloads = catalog.workloads()?.into_iter().filter(|workload| filter.workload(workload));
    Ok(Listing { entries, workloads: workloads.collect() })
}

impl<'a> Listing<'a> {
    fn lines(&self, kind: EntryKind) -> impl Iterator<Item = &EntryLine> {
        self.entries.iter().map(|e| e.line.as_ref()).filter(move |line| line.kind == kind)
    }

    fn parsed(&self, catalog: &'a Catalog) -> anyhow::Result<Entries<'a>> {
        let chips = self.lines(EntryKind::Accelerator).map(|line| catalog.accelerator(&line.id));
        let models = self.lines(EntryKind::Model).map(|line| catalog.model(&line.id).map(Facts::of));
        Ok(Entries {
            accelerators: chips.collect::<Result<_, _>>()?,
            models: models.collect::<Result<_, _>>()?,
            workloads: self.workloads.clone(),
        })
    }

    fn people(&self) -> String {
        let (chips, models): (Vec<_>, Vec<_>) =
            (self.lines(EntryKind::Accelerator).collect(), self.lines(EntryKind::Model).collect());
        let mut text = String::new();
        if !chips.is_empty() {
            text.push_str(&accelerators(&chips));
        }
        if !models.is_empty() {
            text.push_str(&models_table(&models));
        }
        if !self.workloads.is_empty() {
            text.push_str(&workloads(&self.workloads));
        }
        if text.is_empty() {
            text.push_str("nothing in the catalog passes\n");
        }
        text
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let number = |n: Option<u64>| n.map_or_else(String::new, |n| n.to_string());
        let entry = |line: &EntryLine| {
            let kind = match line.kind {
                EntryKind::Accelerator => "accelerator",
                EntryKind::Model => "model",
            };
            vec![
                kind.to_owned(),
                line.id.clone(),
                line.family.clone(),
                number(line.parameters),
                number(line.active),
                line.bytes.to_string(),
                line.formats.clone(),
                line.usd_per_hour.map_or_else(String::new, |p| p.to_string()),
            ]
        };
        let workload = |w: &&Preset| {
            let mut row = vec!["workload".to_owned(), w.id.clone()];
            row.resize(HEADER.len(), String::new());
            row
        };
        let entries = self.entries.iter().map(|e| entry(&e.line));
        entries.chain(self.workloads.iter().map(workload)).collect()
    }
}

fn accelerators(chips: &[&EntryLine]) -> String {
    let header = ["accelerator", "memory", "bandwidth", "16-bit", "8-bit", "4-bit", "link", "node", "$/h"];
    let giga = |rate: f64| format!("{} GB/s", significant(rate / 1e9));
    let tera = |rate: Option<f64>| rate.map_or("–".into(), |r| format!("{} T", significant(r / 1e12)));
    let row = |line: &&EntryLine| {
        let link = line.link.as_ref().zip(line.link_bytes_per_s);
        vec![
            line.id.clone(),
            line.size().gib(),
            line.bandwidth_bytes_per_s.map_or("–".into(), giga),
            tera(line.sixteen_bit),
            tera(line.eight_bit),
            tera(line.four_bit),
            link.map_or("–".into(), |(kind, rate)| format!("{kind} {}", giga(rate))),
            line.node_size.map_or("–".into(), |n| n.to_string()),
            dollars(line.usd_per_hour),
        ]
    };
    table::table(&header, &chips.iter().map(row).collect::<Vec<_>>(), 1)
}

fn models_table(models: &[&EntryLine]) -> String {
    let row = |line: &&EntryLine| {
        let shown_count = |n: Option<u64>| n.map_or("–".into(), count);
        let total = shown_count(line.parameters);
        let active = shown_count(line.active);
        vec![line.id.clone(), line.family.clone(), line.formats.clone(), total, active, line.size().gib()]
    };
    let header = ["model", "family", "weights", "parameters", "active", "size"];
    // Names are whole: where they leave no room, the family is what an id says already.
    table::fitted(&header, &models.iter().map(row).collect::<Vec<_>>(), 3, &[1])
}

/// Table of workload presets, with their mean lengths and the kind of their requests.
fn workloads(presets: &[&Preset]) -> String {
    let row = |w: &&Preset| {
        let answer = w.output_mean.map_or("–".to_owned(), |mean| format!("{mean:.0}"));
        vec![w.id.clone(), w.request.clone(), format!("{:.0}", w.input_mean), answer]
    };
    let rows: Vec<_> = presets.iter().map(row).collect();
    table::table(&["workload", "a request", "prompt", "answer"], &rows, 2)
}
