//! One entry of the catalog with derived figures and sources; models, accelerators and workloads have one form.

use crate::show::number::{count, grouped, significant};
use crate::show::{self, table};
use roofcast::accelerator::{Accelerator, Topology};
use roofcast::catalog::ModelEntry;
use roofcast::model::{Model, Parameters, config};
use roofcast::preset::{Preset, RateProfile};
use roofcast::units::Bytes;
use roofcast::{Catalog, Error};
use serde::Serialize;

/// A model's entry and the figures derived from it.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "ModelFacts"))]
pub(super) struct Facts<'a> {
    #[serde(skip)]
    pub(super) entry: &'a ModelEntry,
    /// Hugging Face id.
    id: &'a str,
    /// Other names of the entry.
    aliases: &'a [String],
    /// URL of the config.
    source: &'a str,
    /// `model_type` of the config.
    pub(super) family: String,
    /// Parameter counts.
    pub(super) parameters: Option<Parameters>,
    /// Formats of the weights as published.
    pub(super) weights: String,
    /// Size of the weights as published.
    pub(super) weight_bytes: Option<Bytes>,
    /// Largest context that the model allows, in tokens.
    max_context: Option<u64>,
    /// Format of the checkpoint's KV cache.
    kv: Option<&'static str>,
    /// Size of the KV cache of one token in that format at 4,096 tokens.
    kv_bytes_per_token: Option<Bytes>,
}

impl<'a> Facts<'a> {
    pub(super) fn of(entry: &'a ModelEntry) -> Facts<'a> {
        let model = config::read(&entry.id, "catalog", &entry.config).ok();
        let kv = model.as_ref().map(Model::kv_format);
        Facts {
            entry,
            id: &entry.id,
            aliases: &entry.aliases,
            source: &entry.source,
            family: model.as_ref().map_or_else(String::new, |m| m.architecture.clone()),
            parameters: model.as_ref().map(Model::parameters),
            weights: model.as_ref().map_or_else(String::new, |m| m.weight_formats().join("+")),
            weight_bytes: model.as_ref().map(Model::weight_bytes),
            max_context: model.as_ref().and_then(|m| m.max_context),
            kv: kv.map(|kv| kv.name),
            kv_bytes_per_token: model.as_ref().zip(kv).map(|(m, kv)| m.kv_bytes_per_token(kv, context(m))),
        }
    }
}

/// Context length in tokens for which figures are given: the default, or the model's maximum if that is shorter.
fn context(model: &Model) -> u64 {
    crate::input::DEFAULT_CONTEXT.min(model.max_context.unwrap_or(u64::MAX))
}

/// A model's entry as a JSON document.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Model"))]
pub(crate) struct Alone<'a> {
    #[serde(flatten)]
    facts: Facts<'a>,
    /// Exact total that the maker publishes.
    published_parameters: Option<u64>,
    /// Total as the maker prints it, as in `122B`.
    published_total: Option<&'a str>,
    /// Active parameters as the maker prints them, as in `10B`.
    published_active: Option<&'a str>,
    /// Interpretation of a name that differs from the entry's id; `null` if the names are equal.
    read_as: Option<&'a str>,
    /// Config by Hugging Face's keys.
    config: &'a serde_json::Value,
}

/// Prints the workload, accelerator or model that `name` means.
pub(super) fn show(catalog: &Catalog, name: &str, json: bool) -> anyhow::Result<()> {
    if let Ok(found) = catalog.workload(name) {
        return if json { show::json("roofcast/workload/1", found) } else { show::text(&workload(found)) };
    }
    if let Ok(Some(chip)) = catalog.find_accelerator(name) {
        return if json {
            show::json("roofcast/accelerator/1", chip)
        } else {
            show::text(&accelerator(chip))
        };
    }
    let named = match catalog.named(name) {
        Ok(named) => named,
        // The kind of entry with similar names is most likely the one that was meant, so its error is shown.
        Err(model) => match catalog.accelerator(name) {
            Err(chip) if !suggests(&model) && suggests(&chip) => return Err(chip.into()),
            _ => return Err(model.into()),
        },
    };
    let alone = Alone {
        facts: Facts::of(named.entry),
        published_parameters: named.entry.published_parameters,
        published_total: named.entry.published_total.as_deref(),
        published_active: named.entry.published_active.as_deref(),
        read_as: named.assumption.as_deref(),
        config: &named.entry.config,
    };
    if json { show::json("roofcast/model/1", &alone) } else { show::text(&model(&alone)?) }
}

/// True if an error suggests other names.
fn suggests(error: &Error) -> bool {
    matches!(error, Error::Unknown { hint, .. } if !hint.starts_with('`'))
}

/// Formats an entry: a heading, lines of a name and a value, and the sources.
fn page(title: &str, kind: &str, lines: Vec<(&'static str, String)>, sources: &[(String, String)]) -> String {
    let mut text = format!("{title} ({kind})\n\n");
    let filled: Vec<_> = lines.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    text.push_str(&table::pairs(&filled));
    text.push_str("sources\n");
    for (of, url) in sources {
        text.push_str(&format!("  {of}\n    {url}\n"));
    }
    text
}

fn model(alone: &Alone) -> anyhow::Result<String> {
    let entry = alone.facts.entry;
    let model = config::read(&entry.id, &format!("catalog entry {}", entry.id), &entry.config)?;
    let p = model.parameters();
    let kv = model.kv_format();
    let context = context(&model);
    let total = alone.published_parameters.map(grouped).or(alone.published_total.map(str::to_owned));
    let active = alone.published_active.map(|active| format!("active {active}"));
    let published: Vec<_> = total.into_iter().chain(active).collect();
    let published = match published.as_slice() {
        [] => String::new(),
        said => format!("; the maker publishes {}", said.join(", ")),
    };
    let lines = vec![
        ("read as", alone.read_as.unwrap_or_default().to_owned()),
        ("also", entry.aliases.join(", ")),
        ("family", model.architecture.clone()),
        (
            "parameters",
            format!("{} ({}), active {}{published}", count(p.total), grouped(p.total), count(p.active)),
        ),
        (
            "layers",
            format!("{} of width {}, vocabulary {}", model.layers.len(), model.hidden, grouped(model.vocab)),
        ),
        ("weights", format!("{}, {}", alone.facts.weights, model.weight_bytes().gib())),
        (
            "KV cache",
            format!(
                "{} B per token in {} at {} tokens; a sequence of them {}",
                grouped(model.kv_bytes_per_token(kv, context).0),
                kv.name,
                grouped(context),
                model.kv_bytes_per_sequence(kv, context).gib()
            ),
        ),
        (
            "context",
            model.max_context.map_or_else(|| "not limited".into(), |n| format!("{} tokens", grouped(n))),
        ),
        ("assumed", model.assumptions.join("; ")),
    ];
    Ok(page(&entry.id, "model", lines, &[("config".to_owned(), entry.source.clone())]))
}

/// The range of a recording's rate in words.
fn profile(profile: &RateProfile) -> String {
    let per_s = |count: Option<&u32>| significant(f64::from(*count.unwrap_or(&0)) / profile.interval_s);
    format!(
        "{} to {} requests/s in {} intervals of {} s",
        per_s(profile.counts.iter().min()),
        per_s(profile.counts.iter().max()),
        profile.counts.len(),
        significant(profile.interval_s)
    )
}

fn workload(preset: &Preset) -> String {
    let tokens = |mean: f64| format!("mean {} tokens", significant(mean));
    let rate = |rate: f64| format!("{} requests a second", significant(rate));
    let lines = vec![
        ("about", preset.about.clone()),
        ("a request", preset.request.clone()),
        ("prompt", tokens(preset.input_mean)),
        ("answer", preset.output_mean.map_or_else(String::new, tokens)),
        ("rate", preset.rate.map_or_else(String::new, rate)),
        ("arrivals", preset.profile.as_ref().map_or_else(String::new, profile)),
        ("computed of", format!("{} requests", grouped(preset.requests))),
    ];
    page(&preset.id, "workload", lines, &[("lengths".to_owned(), preset.source.clone())])
}

fn accelerator(chip: &Accelerator) -> String {
    let rates: Vec<_> = chip
        .peak_flops
        .iter()
        .map(|(dtype, rate)| format!("{dtype} {}", significant(rate.0 / 1e12)))
        .collect();
    let rate = |bytes_per_s: f64| format!("{} GB/s", significant(bytes_per_s / 1e9));
    let link = chip.link.as_ref().map_or_else(String::new, |l| {
        let shape = match l.topology {
            Topology::Switch => "any to any",
            Topology::Ring => "ring",
            Topology::Mesh => "a cable between each pair",
            Topology::Torus => "torus, of one link",
            Topology::Pcie => "from card to card",
            Topology::Host => "through the host",
        };
        format!("{}, {} one way, {shape}, {} in a node", l.kind, rate(l.bytes_per_s.0), chip.node_size)
    });
    let network = chip.network.as_ref();
    let price = chip.price.as_ref();
    let mut sources: Vec<_> = chip.sources.iter().map(|s| (s.of.clone(), s.url.clone())).collect();
    sources.extend(price.map(|p| ("price".to_owned(), p.source.clone())));
    let lines = vec![
        ("name", chip.name.clone()),
        ("also", chip.aliases.join(", ")),
        ("family", format!("{} ({})", chip.architecture, chip.vendor)),
        ("memory", format!("{}, usable {}", chip.memory_bytes.gib(), chip.usable_bytes.gib())),
        ("bandwidth", rate(chip.bandwidth_bytes_per_s.0)),
        ("TFLOP/s", format!("{} (dense)", rates.join(", "))),
        ("link", link),
        (
            "network",
            network.map_or_else(String::new, |n| format!("{}, {} one way", n.kind, rate(n.bytes_per_s.0))),
        ),
        ("power", chip.power_w.map_or_else(String::new, |w| format!("{} W", significant(w)))),
        ("price", price.map_or_else(String::new, |p| format!("{:.2} $/h ({})", p.usd_per_hour, p.date))),
        ("notes", chip.notes.clone()),
    ];
    page(&chip.id, "accelerator", lines, &sources)
}
