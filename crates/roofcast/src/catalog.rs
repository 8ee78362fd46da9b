//! The embedded catalog of accelerators and models, and a user's own TOML beside it.
//!
//! Knows: where entries stand and how names find them. What an entry means is [`crate::accelerator`]'s and
//! [`crate::model::config`]'s.

use crate::accelerator::Accelerator;
use crate::error::{Error, Result};
use crate::workload::preset::Preset;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// Words of a device's name that may be one accelerator's: `RTX PRO 6000 Blackwell Max-Q Workstation Edition` has eight.
const MOST_WORDS: usize = 10;

/// Every embedded file, by its path in `catalog/`. A test holds the list complete.
const FILES: &[(&str, &str)] = &[
    ("accelerators/amd.toml", include_str!("../catalog/accelerators/amd.toml")),
    ("accelerators/apple.toml", include_str!("../catalog/accelerators/apple.toml")),
    ("accelerators/aws.toml", include_str!("../catalog/accelerators/aws.toml")),
    ("accelerators/cpu.toml", include_str!("../catalog/accelerators/cpu.toml")),
    ("accelerators/geforce-laptop.toml", include_str!("../catalog/accelerators/geforce-laptop.toml")),
    ("accelerators/geforce.toml", include_str!("../catalog/accelerators/geforce.toml")),
    ("accelerators/google.toml", include_str!("../catalog/accelerators/google.toml")),
    ("accelerators/intel.toml", include_str!("../catalog/accelerators/intel.toml")),
    ("accelerators/jetson.toml", include_str!("../catalog/accelerators/jetson.toml")),
    ("accelerators/nvidia.toml", include_str!("../catalog/accelerators/nvidia.toml")),
    ("accelerators/radeon.toml", include_str!("../catalog/accelerators/radeon.toml")),
    ("accelerators/rtx-pro.toml", include_str!("../catalog/accelerators/rtx-pro.toml")),
    ("models/ai21.toml", include_str!("../catalog/models/ai21.toml")),
    ("models/allenai.toml", include_str!("../catalog/models/allenai.toml")),
    ("models/baidu.toml", include_str!("../catalog/models/baidu.toml")),
    ("models/bytedance.toml", include_str!("../catalog/models/bytedance.toml")),
    ("models/classic.toml", include_str!("../catalog/models/classic.toml")),
    ("models/cohere.toml", include_str!("../catalog/models/cohere.toml")),
    ("models/deepseek.toml", include_str!("../catalog/models/deepseek.toml")),
    ("models/gemma4.toml", include_str!("../catalog/models/gemma4.toml")),
    ("models/google.toml", include_str!("../catalog/models/google.toml")),
    ("models/ibm.toml", include_str!("../catalog/models/ibm.toml")),
    ("models/lg.toml", include_str!("../catalog/models/lg.toml")),
    ("models/liquid.toml", include_str!("../catalog/models/liquid.toml")),
    ("models/llama.toml", include_str!("../catalog/models/llama.toml")),
    ("models/meta.toml", include_str!("../catalog/models/meta.toml")),
    ("models/microsoft.toml", include_str!("../catalog/models/microsoft.toml")),
    ("models/minimax.toml", include_str!("../catalog/models/minimax.toml")),
    ("models/mistral.toml", include_str!("../catalog/models/mistral.toml")),
    ("models/mistral3.toml", include_str!("../catalog/models/mistral3.toml")),
    ("models/moonshot.toml", include_str!("../catalog/models/moonshot.toml")),
    ("models/nvidia.toml", include_str!("../catalog/models/nvidia.toml")),
    ("models/openai.toml", include_str!("../catalog/models/openai.toml")),
    ("models/others.toml", include_str!("../catalog/models/others.toml")),
    ("models/poolside.toml", include_str!("../catalog/models/poolside.toml")),
    ("models/qwen.toml", include_str!("../catalog/models/qwen.toml")),
    ("models/qwen3_5.toml", include_str!("../catalog/models/qwen3_5.toml")),
    ("models/small.toml", include_str!("../catalog/models/small.toml")),
    ("models/smol.toml", include_str!("../catalog/models/smol.toml")),
    ("models/stepfun.toml", include_str!("../catalog/models/stepfun.toml")),
    ("models/tencent.toml", include_str!("../catalog/models/tencent.toml")),
    ("models/tii.toml", include_str!("../catalog/models/tii.toml")),
    ("models/zai.toml", include_str!("../catalog/models/zai.toml")),
    ("workloads/chat.toml", include_str!("../catalog/workloads/chat.toml")),
    ("workloads/mlperf.toml", include_str!("../catalog/workloads/mlperf.toml")),
    ("workloads/production.toml", include_str!("../catalog/workloads/production.toml")),
];

/// A model of the catalog: the keys of its `config.json` that decide parameters, memory and work.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelEntry {
    /// Hugging Face id.
    pub id: String,
    /// Ids of models with the same dimensions.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Where the dimensions were read.
    pub source: String,
    /// Exact total that the maker publishes, to check ours against.
    #[serde(default)]
    pub published_parameters: Option<u64>,
    /// All parameters as the maker prints them, rounded: `122B`.
    #[serde(default)]
    pub published_total: Option<String>,
    /// Parameters that a token uses, as the maker prints them: `10B`.
    #[serde(default)]
    pub published_active: Option<String>,
    /// Keys as in `config.json`.
    pub config: serde_json::Value,
}

/// Accelerators, models and workloads by name.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct Catalog {
    #[serde(default, rename = "accelerator")]
    accelerators: Vec<Accelerator>,
    #[serde(default, rename = "model")]
    models: Vec<ModelEntry>,
    #[serde(default, rename = "workload")]
    workloads: Vec<Preset>,
}

impl Catalog {
    /// The embedded catalog. It is parsed once; the text is part of the program, so a failure is a defect that the
    /// tests catch, and shows here as an error like any other.
    pub fn embedded() -> Result<&'static Catalog> {
        static CATALOG: OnceLock<Result<Catalog>> = OnceLock::new();
        let parse = || {
            let mut all = Catalog::default();
            for (path, text) in FILES {
                all.extend(Catalog::parse(&format!("catalog/{path}"), text)?);
            }
            Ok(all)
        };
        CATALOG.get_or_init(parse).as_ref().map_err(Clone::clone)
    }

    /// Reads entries from TOML; `place` names the file in errors.
    pub fn parse(place: &str, text: &str) -> Result<Catalog> {
        let mut catalog: Catalog = toml::from_str(text).map_err(|e| Error::toml(place, text, "", &e))?;
        let entries = std::mem::take(&mut catalog.accelerators);
        catalog.accelerators = entries.into_iter().flat_map(Accelerator::expanded).collect();
        catalog.accelerators.iter().try_for_each(|a| a.check(place))?;
        catalog.workloads.iter().try_for_each(|w| w.check(place))?;
        Ok(catalog)
    }

    /// Adds the entries of `other`; where names meet, the later entry wins.
    pub fn extend(&mut self, other: Catalog) {
        self.accelerators.extend(other.accelerators);
        self.models.extend(other.models);
        self.workloads.extend(other.workloads);
    }

    /// Adds a model, which wins over one of the same name.
    pub fn add_model(&mut self, entry: ModelEntry) {
        self.models.push(entry);
    }

    /// All accelerators in catalog order.
    pub fn accelerators(&self) -> &[Accelerator] {
        &self.accelerators
    }

    /// All models in catalog order.
    pub fn models(&self) -> &[ModelEntry] {
        &self.models
    }

    /// All workloads in catalog order.
    pub fn workloads(&self) -> &[Preset] {
        &self.workloads
    }

    /// The workload with this id, whatever the case.
    pub fn workload(&self, name: &str) -> Result<&Preset> {
        let wanted = name.trim().to_lowercase();
        let found = self.workloads.iter().rev().find(|w| w.id == wanted);
        found.ok_or_else(|| unknown("workload", name, &wanted, self.workloads.iter().map(|w| w.id.as_str())))
    }

    /// The accelerator whose id or alias stands in `text` as whole words, as in a device's own name; the longest first. How
    /// words are joined does not matter: `RTX 4090` is `rtx4090`, but `Tesla M40` is no Apple M4.
    pub fn device(&self, text: &str) -> Option<&Accelerator> {
        let lower = text.to_lowercase();
        let words: Vec<&str> =
            lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).collect();
        let runs: BTreeSet<String> = (0..words.len())
            .flat_map(|from| (from + 1..=words.len().min(from + MOST_WORDS)).map(move |to| (from, to)))
            .map(|(from, to)| words[from..to].concat())
            .collect();
        let bare = |name: &str| name.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
        let names = self.accelerators.iter().flat_map(|a| {
            std::iter::once(&a.id).chain(&a.aliases).map(move |n| (bare(n), a)).collect::<Vec<_>>()
        });
        names.filter(|(name, _)| runs.contains(name)).max_by_key(|(name, _)| name.len()).map(|(_, a)| a)
    }

    /// The accelerator with this id or alias, whatever the case.
    pub fn accelerator(&self, name: &str) -> Result<&Accelerator> {
        let wanted = name.trim().to_lowercase();
        let found = self.accelerators.iter().rev().find(|a| a.id == wanted || a.aliases.contains(&wanted));
        found.ok_or_else(|| {
            unknown("accelerator", name, &wanted, self.accelerators.iter().map(|a| a.id.as_str()))
        })
    }

    /// The model with this id: the exact name first, then the name without organisation and suffixes.
    pub fn model(&self, name: &str) -> Result<&ModelEntry> {
        let wanted = name.trim();
        let names =
            |m: &'_ ModelEntry| std::iter::once(m.id.clone()).chain(m.aliases.clone()).collect::<Vec<_>>();
        let exact =
            self.models.iter().rev().find(|m| names(m).iter().any(|n| n.eq_ignore_ascii_case(wanted)));
        let key = canonical(wanted);
        let found =
            exact.or_else(|| self.models.iter().rev().find(|m| names(m).iter().any(|n| canonical(n) == key)));
        found.ok_or_else(|| unknown("model", name, &key, self.models.iter().map(|m| m.id.as_str())))
    }
}

/// A model name without what does not change its dimensions: organisation, case, and the words `Meta`, `Instruct`,
/// `Chat`, `hf`, `base`, `it`, `pt` wherever they stand (`Mistral-7B-Instruct-v0.1`).
fn canonical(name: &str) -> String {
    let lower = name.trim().trim_end_matches('/').to_lowercase();
    let short = lower.rsplit('/').next().unwrap_or(&lower);
    let kept = |word: &&str| !["meta", "instruct", "chat", "hf", "base", "it", "pt"].contains(word);
    short.split('-').filter(kept).collect::<Vec<_>>().join("-")
}

/// The error for a name that is not there, with the nearest names that are.
fn unknown<'a>(kind: &'static str, found: &str, wanted: &str, names: impl Iterator<Item = &'a str>) -> Error {
    let mut near: Vec<(usize, &str)> = names
        .filter_map(|name| {
            let shared = common_words(wanted, &name.to_lowercase());
            (shared > 0).then_some((shared, name))
        })
        .collect();
    near.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let near: Vec<_> = near.iter().take(4).map(|(_, name)| *name).collect();
    let hint = match near.as_slice() {
        [] => format!("`roofcast catalog` lists every {kind}"),
        _ => format!("near: {}; `roofcast catalog` lists all", near.join(", ")),
    };
    Error::Unknown { kind, found: found.chars().take(200).collect(), hint }
}

/// How many characters the words that two names share have.
fn common_words(a: &str, b: &str) -> usize {
    let words = |s: &str| s.split(['-', '/', '_', '.']).map(str::to_owned).collect::<Vec<_>>();
    let other = words(b);
    words(a).iter().filter(|w| w.len() > 1 && other.contains(w)).map(String::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_catalog_is_embedded() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("catalog");
        let mut on_disk = Vec::new();
        for folder in ["accelerators", "models", "workloads"] {
            for entry in std::fs::read_dir(root.join(folder)).unwrap() {
                on_disk.push(format!("{folder}/{}", entry.unwrap().file_name().to_string_lossy()));
            }
        }
        on_disk.sort();
        let mut embedded: Vec<_> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        embedded.sort();
        assert_eq!(on_disk, embedded);
    }

    #[test]
    fn names_and_aliases_are_unique() {
        let catalog = Catalog::embedded().unwrap();
        let accelerators =
            catalog.accelerators().iter().flat_map(|a| std::iter::once(&a.id).chain(&a.aliases));
        let models = catalog.models().iter().flat_map(|m| std::iter::once(&m.id).chain(&m.aliases));
        let mut all: Vec<_> = accelerators.chain(models).map(|n| n.to_lowercase()).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn suffixes_and_organisations_do_not_matter() {
        for name in ["meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b", "LLAMA-3.1-8B-chat-hf"] {
            assert_eq!(canonical(name), "llama-3.1-8b");
        }
        assert_eq!(canonical("mistralai/Mistral-7B-Instruct-v0.1"), "mistral-7b-v0.1");
        // No two entries may become one.
        let mut owners = std::collections::BTreeMap::new();
        for entry in Catalog::embedded().unwrap().models() {
            for name in std::iter::once(&entry.id).chain(&entry.aliases) {
                let owner = owners.entry(canonical(name)).or_insert(&entry.id);
                assert_eq!(*owner, &entry.id, "{name}");
            }
        }
    }

    #[test]
    fn an_unknown_name_shows_near_ones() {
        let message = Catalog::embedded().unwrap().accelerator("h100").map(|a| a.id.clone());
        assert_eq!(message.unwrap(), "h100-sxm");
        let message = Catalog::embedded().unwrap().accelerator("h100-foo").unwrap_err().to_string();
        assert!(message.contains("h100-foo") && message.contains("h100-sxm"), "{message}");
    }

    #[test]
    fn a_device_is_found_by_whole_words() {
        let catalog = Catalog::embedded().unwrap();
        let found = |text: &str| catalog.device(text).map(|a| a.id.as_str());
        assert_eq!(found("NVIDIA GeForce RTX 4090"), Some("rtx-4090"));
        assert_eq!(found("NVIDIA_GeForce_RTX_4070_Ti_SUPER"), Some("rtx-4070-ti-super"));
        assert_eq!(found("NVIDIA GeForce RTX 4070 Laptop GPU"), Some("rtx-4070-laptop"));
        assert_eq!(found("NVIDIA RTX 6000 Ada Generation"), Some("rtx-6000-ada"));
        assert_eq!(found("NVIDIA H100 80GB HBM3"), Some("h100-sxm"));
        assert_eq!(found("NVIDIA A100-SXM4-80GB"), Some("a100-sxm-80gb"));
        assert_eq!(found("AMD Instinct MI300X OAM"), Some("mi300x"));
        assert_eq!(found("Apple M4 Max"), Some("m4-max"));
        for other in ["Tesla M40", "Quadro M1000", "Intel(R) Core(TM) 5 120U", "Quadro T400", "NVIDIA L2"] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn a_users_entry_overrides_ours() {
        let mut mine = Catalog::embedded().unwrap().clone();
        let mut changed = mine.accelerator("rtx-4090").unwrap().clone();
        changed.node_size = 3;
        mine.extend(Catalog { accelerators: vec![changed], ..Catalog::default() });
        assert_eq!(mine.accelerator("rtx-4090").unwrap().node_size, 3);
    }
}
