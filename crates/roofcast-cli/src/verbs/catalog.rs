//! `roofcast catalog`: what is embedded, filtered; one entry with its sources; a new entry.

mod add;
mod entry;
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
use roofcast::precision::Dtype;
use roofcast::workload::Preset;
use serde::Serialize;
use std::process::ExitCode;

/// Columns of `--csv`.
const HEADER: [&str; 8] =
    ["kind", "id", "family", "parameters", "active", "memory_bytes", "formats", "usd_per_hour"];

#[derive(Serialize)]
struct Listing<'a> {
    accelerators: Vec<&'a Accelerator>,
    models: Vec<Facts<'a>>,
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
        show::json("roofcast/catalog/1", &listing)?;
    } else if args.output.csv {
        show::csv(&HEADER, &listing.rows())?;
    } else {
        show::text(&listing.people())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The entries that pass; of two with one id the one that wins.
fn listing<'a>(catalog: &'a Catalog, filter: &Filter) -> anyhow::Result<Listing<'a>> {
    let chips = catalog.accelerators()?.into_iter().filter(|chip| filter.accelerator(chip));
    let models = catalog.models()?.into_iter().map(Facts::of).filter(|model| filter.model(model));
    let workloads = catalog.workloads()?.into_iter().filter(|workload| filter.workload(workload));
    Ok(Listing { accelerators: chips.collect(), models: models.collect(), workloads: workloads.collect() })
}

impl Listing<'_> {
    fn people(&self) -> String {
        let mut text = String::new();
        if !self.accelerators.is_empty() {
            text.push_str(&accelerators(&self.accelerators));
        }
        if !self.models.is_empty() {
            text.push_str(&models(&self.models));
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
        let chip = |a: &&Accelerator| {
            let formats = a.peak_flops.keys().map(|d| d.name()).collect::<Vec<_>>().join("+");
            let price = a.price.as_ref().map_or_else(String::new, |p| p.usd_per_hour.to_string());
            let (family, memory) = (a.architecture.clone(), a.memory_bytes.0.to_string());
            let none = String::new;
            vec!["accelerator".to_owned(), a.id.clone(), family, none(), none(), memory, formats, price]
        };
        let model = |m: &Facts| {
            let (total, active) = (m.parameters.map(|p| p.total), m.parameters.map(|p| p.active));
            vec![
                "model".to_owned(),
                m.entry.id.clone(),
                m.family.clone(),
                number(total),
                number(active),
                number(m.weight_bytes.map(|b| b.0)),
                m.weights.clone(),
                String::new(),
            ]
        };
        let workload = |w: &&Preset| {
            let mut row = vec!["workload".to_owned(), w.id.clone()];
            row.resize(HEADER.len(), String::new());
            row
        };
        let rows = self.accelerators.iter().map(chip).chain(self.models.iter().map(model));
        rows.chain(self.workloads.iter().map(workload)).collect()
    }
}

fn accelerators(chips: &[&Accelerator]) -> String {
    let header = ["accelerator", "memory", "bandwidth", "16-bit", "8-bit", "4-bit", "link", "node", "$/h"];
    let rate = |a: &Accelerator, dtypes: &[Dtype]| {
        let found = dtypes.iter().find_map(|d| a.peak_flops.get(d));
        found.map_or("–".into(), |r| format!("{} T", significant(r.0 / 1e12)))
    };
    let row = |a: &&Accelerator| {
        let link = a.link.as_ref();
        vec![
            a.id.clone(),
            a.memory_bytes.gib(),
            format!("{} GB/s", significant(a.bandwidth_bytes_per_s.0 / 1e9)),
            rate(a, &[Dtype::Bf16, Dtype::Fp16]),
            rate(a, &[Dtype::Fp8, Dtype::Int8]),
            rate(a, &[Dtype::Fp4, Dtype::Int4]),
            link.map_or("–".into(), |l| format!("{} {} GB/s", l.kind, significant(l.bytes_per_s.0 / 1e9))),
            a.node_size.to_string(),
            dollars(a.price.as_ref().map(|p| p.usd_per_hour)),
        ]
    };
    table::table(&header, &chips.iter().map(row).collect::<Vec<_>>(), 1)
}

fn models(models: &[Facts]) -> String {
    let row = |m: &Facts| {
        let of =
            |f: fn(roofcast::model::Parameters) -> u64| m.parameters.map_or("–".into(), |p| count(f(p)));
        let size = m.weight_bytes.map_or("–".into(), |b| b.gib());
        let (total, active) = (of(|p| p.total), of(|p| p.active));
        vec![m.entry.id.clone(), m.family.clone(), m.weights.clone(), total, active, size]
    };
    let header = ["model", "family", "weights", "parameters", "active", "size"];
    table::table(&header, &models.iter().map(row).collect::<Vec<_>>(), 3)
}

/// Presets of `[workload]`, with their means and what one request is.
fn workloads(presets: &[&Preset]) -> String {
    let row = |w: &&Preset| {
        let answer = w.output_mean.map_or("–".to_owned(), |mean| format!("{mean:.0}"));
        vec![w.id.clone(), w.request.clone(), format!("{:.0}", w.input_mean), answer]
    };
    let rows: Vec<_> = presets.iter().map(row).collect();
    table::table(&["workload", "a request", "prompt", "answer"], &rows, 2)
}
