//! Ids of measured points against the catalog: every format that an id says is the one that was measured.

use crate::support::{catalog, shared};
use proptest::prelude::*;
use roofcast::Catalog;
use roofcast::catalog::ModelEntry;
use std::collections::BTreeSet;

const FILES: [&str; 3] =
    ["validation/measurements.csv", "validation/measurements-2.csv", "validation/disaggregated.csv"];

/// `model`, `hardware` and `weights` of every row, each once.
fn rows() -> Option<BTreeSet<[String; 3]>> {
    let mut all = BTreeSet::new();
    for file in FILES {
        let text = std::fs::read_to_string(shared(file)?).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().unwrap().clone();
        let columns = ["model", "hardware", "weights"].map(|c| header.iter().position(|h| h == c).unwrap());
        for record in reader.records() {
            let record = record.unwrap();
            all.insert(columns.map(|c| record[c].to_owned()));
        }
    }
    Some(all)
}

/// The catalog with an entry, of some shape, for the model that `id` names without its last word.
fn with_base(id: &str) -> (Catalog, String) {
    let (base, _) = id.rsplit_once('-').unwrap();
    let entry = catalog().model("meta-llama/Llama-3.1-8B").unwrap();
    let mut mine = Catalog::default();
    mine.add_model(ModelEntry { id: base.to_owned(), aliases: vec![], ..entry.clone() });
    (mine, base.to_owned())
}

/// Whether or not the base is in the catalog yet.
#[test]
fn formats_of_measured_ids_are_what_was_measured() {
    let Some(rows) = rows() else { return };
    let mut checked = 0;
    for [id, _, weights] in &rows {
        let upper = id.to_uppercase();
        if !["-FP8", "-NVFP4", "-BF16"].iter().any(|format| upper.ends_with(format)) {
            continue;
        }
        let (mine, base) = with_base(id);
        let named = mine.named(id).unwrap();
        assert_eq!(named.entry.id, base);
        let said = named.weights().unwrap();
        assert!(said == weights || said == format!("{weights}-block"), "{id}: {said}, measured {weights}");
        checked += 1;
    }
    assert!(checked >= 8, "only {checked} ids say a format");
}

#[test]
fn formats_in_the_middle_of_measured_ids() {
    let named = catalog().named("amd/Llama-3.1-70B-Instruct-FP8-KV").unwrap();
    assert_eq!(
        (named.entry.id.as_str(), named.weights(), named.kv()),
        ("meta-llama/Llama-3.1-70B", Some("fp8"), Some("fp8"))
    );
    let named = catalog().named("neuralmagic/Llama-3.1-Nemotron-70B-Instruct-HF-FP8-dynamic").unwrap();
    assert_eq!(
        (named.entry.id.as_str(), named.weights(), named.kv()),
        ("meta-llama/Llama-3.1-70B", Some("fp8"), None)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any text is answered, by an entry or an error that shows it.
    #[test]
    fn any_name_is_answered(name in "(\\PC{0,20}|[a-z]{1,5}/)?(qwen|llama|-|\\.|:|[0-9]b|fp8|gguf|q4_k_m|\\PC){0,8}") {
        if let Err(error) = catalog().named(&name) {
            prop_assert!(error.to_string().starts_with("no model named"), "{error}");
        }
        if let Err(error) = catalog().accelerator(&name) {
            prop_assert!(error.to_string().starts_with("no accelerator named"), "{error}");
        }
    }
}

/// Names without formats stay those of their entries.
#[test]
fn ids_of_entries_say_nothing_more() {
    for entry in catalog().models().unwrap() {
        assert_eq!(catalog().named(&entry.id).unwrap().weights(), None, "{}", entry.id);
    }
}

/// Every model and accelerator that something was measured on is in the catalog, by itself or as a base with a format.
#[test]
fn every_measured_id_resolves() {
    let Some(rows) = rows() else { return };
    let mut missing = BTreeSet::new();
    for [model, hardware, _] in &rows {
        if let Err(error) = catalog().named(model).and_then(|named| named.model()) {
            missing.insert(error.to_string());
        }
        if let Err(error) = catalog().accelerator(hardware) {
            missing.insert(error.to_string());
        }
    }
    assert!(missing.is_empty(), "{} ids:\n{}", missing.len(), Vec::from_iter(missing).join("\n"));
}
