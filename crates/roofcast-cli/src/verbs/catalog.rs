//! `roofcast catalog`: what is embedded, or one entry with its sources.

use crate::args::CatalogArgs;
use crate::input;
use crate::show::number::{count, significant};
use crate::show::{self, table};
use roofcast::Catalog;
use roofcast::accelerator::Accelerator;
use roofcast::precision::Dtype;
use roofcast::workload::Preset;
use serde::Serialize;
use std::process::ExitCode;

#[derive(Serialize)]
struct Listing<'a> {
    accelerators: &'a [Accelerator],
    models: Vec<Entry>,
    workloads: &'a [Preset],
}

#[derive(Serialize)]
struct Entry {
    id: String,
    aliases: Vec<String>,
    source: String,
    parameters: Option<roofcast::model::Parameters>,
}

pub(crate) fn run(args: &CatalogArgs) -> anyhow::Result<ExitCode> {
    let catalog = input::catalog(&args.catalog)?;
    if let Some(name) = &args.name {
        one(&catalog, name, args.output.json)?;
    } else if args.output.json {
        show::json(
            "roofcast/catalog/1",
            &Listing {
                accelerators: catalog.accelerators(),
                models: models(&catalog),
                workloads: catalog.workloads(),
            },
        )?;
    } else if args.output.csv {
        let rows: Vec<_> = models(&catalog).into_iter().map(|m| vec!["model".into(), m.id]).collect();
        let chips = catalog.accelerators().iter().map(|a| vec!["accelerator".to_owned(), a.id.clone()]);
        let workloads = catalog.workloads().iter().map(|w| vec!["workload".to_owned(), w.id.clone()]);
        show::csv(&["kind", "id"], &chips.chain(rows).chain(workloads).collect::<Vec<_>>())?;
    } else {
        show::text(&(accelerators(&catalog) + &model_table(&catalog) + &workloads(&catalog)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn one(catalog: &Catalog, name: &str, json: bool) -> anyhow::Result<()> {
    if let Ok(chip) = catalog.accelerator(name) {
        return if json {
            show::json("roofcast/accelerator/1", chip)
        } else {
            show::text(&toml::to_string_pretty(chip)?)
        };
    }
    if let Some(workload) = catalog.workloads().iter().find(|w| w.id == name) {
        return if json {
            show::json("roofcast/workload/1", workload)
        } else {
            show::text(&toml::to_string_pretty(workload)?)
        };
    }
    let entry = catalog.model(name)?;
    let shown = serde_json::json!({
        "id": entry.id, "aliases": entry.aliases, "source": entry.source,
        "published_parameters": entry.published_parameters, "published_total": entry.published_total,
        "published_active": entry.published_active, "config": entry.config,
    });
    show::json("roofcast/model/1", &shown)
}

fn models(catalog: &Catalog) -> Vec<Entry> {
    let entry = |m: &roofcast::catalog::ModelEntry| Entry {
        id: m.id.clone(),
        aliases: m.aliases.clone(),
        source: m.source.clone(),
        parameters: roofcast::model::config::read(&m.id, "catalog", &m.config).ok().map(|m| m.parameters()),
    };
    catalog.models().iter().map(entry).collect()
}

fn accelerators(catalog: &Catalog) -> String {
    let header = ["accelerator", "memory", "bandwidth", "16-bit", "8-bit", "link", "node", "$/h"];
    let rate = |a: &Accelerator, dtypes: &[Dtype]| {
        dtypes
            .iter()
            .find_map(|d| a.peak_flops.get(d))
            .map_or("–".into(), |r| format!("{} T", significant(r.0 / 1e12)))
    };
    let row = |a: &Accelerator| {
        vec![
            a.id.clone(),
            a.memory_bytes.gib(),
            format!("{} GB/s", significant(a.bandwidth_bytes_per_s.0 / 1e9)),
            rate(a, &[Dtype::Bf16, Dtype::Fp16]),
            rate(a, &[Dtype::Fp8, Dtype::Int8]),
            a.link
                .as_ref()
                .map_or("–".into(), |l| format!("{} {} GB/s", l.kind, significant(l.bytes_per_s.0 / 1e9))),
            a.node_size.to_string(),
            show::number::dollars(a.price.as_ref().map(|p| p.usd_per_hour)),
        ]
    };
    table::table(&header, &catalog.accelerators().iter().map(row).collect::<Vec<_>>(), 1)
}

fn model_table(catalog: &Catalog) -> String {
    let row = |m: Entry| {
        let p = m.parameters;
        let of = |f: fn(roofcast::model::Parameters) -> u64| p.map_or("–".into(), |p| count(f(p)));
        vec![m.id, of(|p| p.total), of(|p| p.active)]
    };
    table::table(
        &["model", "parameters", "active"],
        &models(catalog).into_iter().map(row).collect::<Vec<_>>(),
        1,
    )
}

/// Presets of `[workload]`, with their means and what one request is.
fn workloads(catalog: &Catalog) -> String {
    let row = |w: &Preset| {
        let answer = w.output_mean.map_or("–".to_owned(), |mean| format!("{mean:.0}"));
        vec![w.id.clone(), w.request.clone(), format!("{:.0}", w.input_mean), answer]
    };
    let rows: Vec<_> = catalog.workloads().iter().map(row).collect();
    table::table(&["workload", "a request", "prompt", "answer"], &rows, 2)
}
