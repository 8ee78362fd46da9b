//! Comparison of the architectures that transformers, vLLM and SGLang register for text generation with the
//! architectures that the library reads. `docs/registered.md` is the table of `tests/registered.csv`, which
//! `scripts/registered-models` writes.

use roofcast::model::config::{Standing, standing};
use std::fmt::Write;

const REGISTERED: &str = include_str!("../registered.csv");

/// A row of the table: class, model_type and the registries that have it.
struct Registered {
    class: &'static str,
    model_type: &'static str,
    registries: [bool; 3],
}

fn rows() -> Vec<Registered> {
    let row = |line: &'static str| {
        let fields: Vec<&str> = line.split(',').collect();
        let [class, model_type, transformers, vllm, sglang] = fields[..] else { panic!("{line}") };
        Registered { class, model_type, registries: [transformers, vllm, sglang].map(|f| f == "yes") }
    };
    REGISTERED.lines().skip(2).map(row).collect()
}

/// The chapter, from the rows and the reader's result for each type.
fn chapter() -> String {
    let versions = REGISTERED.lines().next().unwrap().trim_start_matches("# ");
    let rows = rows();
    let count = |wanted: fn(Standing) -> bool| rows.iter().filter(|r| wanted(standing(r.model_type))).count();
    let mut text = String::from("# Registered architectures\n\n");
    writeln!(
        text,
        "Architectures for text generation that {versions} register, by their class, with the `model_type` of their \
         `config.json`. Of {} classes {} are read, {} are refused by name, and {} are not known here: their keys are read \
         as a Llama's, which the output says, or refused where a key says more than a Llama's. Models with images or \
         sound are read by their text part. `scripts/registered-models` reads the registries, a test writes this table.",
        rows.len(),
        count(|s| s == Standing::Read),
        count(|s| matches!(s, Standing::Refused(_))),
        count(|s| s == Standing::Unknown),
    )
    .unwrap();
    text.push_str(
        "\n| class | `model_type` | transformers | vLLM | SGLang | roofcast |\n|---|---|---|---|---|---|\n",
    );
    for row in &rows {
        let [transformers, vllm, sglang] = row.registries.map(|has| if has { "yes" } else { "" });
        let said = match standing(row.model_type) {
            Standing::Read => "read".to_owned(),
            Standing::Refused(why) => format!("refused: {why}"),
            Standing::Unknown => "not known".to_owned(),
        };
        let Registered { class, model_type, .. } = row;
        writeln!(text, "| {class} | {model_type} | {transformers} | {vllm} | {sglang} | {said} |").unwrap();
    }
    text
}

#[test]
fn the_table_of_registered_architectures() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/registered.md");
    let fresh = chapter();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &fresh).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap();
    let stale = fresh.lines().zip(kept.lines()).find(|(fresh, kept)| fresh != kept);
    assert!(kept == fresh, "docs/registered.md is stale, UPDATE_DOCS=1 writes it: {stale:?}");
}

/// Families that users ask for: the test fails if one is no longer read.
#[test]
fn types_that_all_three_register_are_mostly_read() {
    let everywhere: Vec<_> = rows().into_iter().filter(|r| r.registries == [true; 3]).collect();
    let unread: Vec<&str> =
        everywhere.iter().filter(|r| standing(r.model_type) != Standing::Read).map(|r| r.class).collect();
    assert!(
        everywhere.len() > 50 && unread.len() * 10 < everywhere.len(),
        "{unread:?} of {}",
        everywhere.len()
    );
}
