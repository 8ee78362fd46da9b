//! The embedded catalog of accelerators and models, extended by a user's own TOML.
//!
//! Knows: the files of the entries and how names find entries; an entry is parsed only when it is requested.
//! [`crate::accelerator`] and [`crate::model::config`] define the meaning of an entry.

pub mod acceptance;
pub mod address;
mod conventions;
mod entries;
mod files;
mod listing;
mod machines;
mod named;
mod names;
mod pruned;
mod shapes;
mod towers;
mod tunes;
mod writing;

pub use acceptance::{acceptance, kept_at_length, usual_acceptance};
pub use listing::{EntryKind, EntryLine, ListedEntry};
pub use writing::{read_config, write_entry};

use crate::accelerator::Accelerator;
use crate::error::{Error, Result};
use crate::precision::Dtype;
use crate::preset::Preset;
use conventions::conventions;
use entries::{Entries, File};
use files::FILES;
use names::Match;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// Most words of a device's name that are compared with an accelerator's names: `RTX PRO 6000 Blackwell Max-Q
/// Workstation Edition` has eight.
const MOST_WORDS: usize = 10;

/// A model of the catalog: the keys of its `config.json` that decide parameters, memory and work.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelEntry {
    /// Hugging Face id.
    pub id: String,
    /// Ids of further models with identical dimensions.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Web address from which the dimensions were read.
    pub source: String,
    /// Ids of catalog entries for checkpoints with these weights in other formats, which show the tensors that a
    /// format keeps in 16 bits.
    #[serde(default)]
    pub checkpoints: Vec<String>,
    /// Exact total of parameters that the maker publishes, which a test compares with the computed one.
    #[serde(default)]
    pub published_parameters: Option<u64>,
    /// Total of parameters as the maker rounds it: `122B`.
    #[serde(default)]
    pub published_total: Option<String>,
    /// Active parameters per token as the maker rounds them: `10B`.
    #[serde(default)]
    pub published_active: Option<String>,
    /// Keys and values as in `config.json`.
    pub config: serde_json::Value,
}

/// Weight format that words of a checkpoint's id mean, and the compute dtype if the words set another: `FP8-dynamic`,
/// `quantized.w4a16`.
pub fn formats_of(words: &str) -> Option<(&'static str, Option<Dtype>)> {
    // Rules expect a model's name before the format.
    let rule = conventions().ok()?.read(&format!("model-{words}"))?.rule;
    Some((rule.weights.as_str(), rule.activations))
}

/// Accelerators, models and workload presets, found by name.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    accelerators: Entries<Accelerator>,
    models: Entries<ModelEntry>,
    workloads: Entries<Preset>,
}

impl Catalog {
    /// Returns the embedded catalog. Its files are scanned once for names. The text is part of the program, so an
    /// invalid file is a defect that the tests find; at run time it is reported as an ordinary error.
    pub fn embedded() -> Result<&'static Catalog> {
        static CATALOG: OnceLock<Result<Catalog>> = OnceLock::new();
        let scan = || {
            let mut all = Catalog::default();
            for (path, text) in FILES {
                match path.split('/').next() {
                    Some("accelerators") => all.accelerators.scan(path, text)?,
                    Some("models") => all.models.scan(path, text)?,
                    _ => all.workloads.scan(path, text)?,
                }
            }
            Ok(all)
        };
        CATALOG.get_or_init(scan).as_ref().map_err(Clone::clone)
    }

    /// Reads entries from TOML; `place` names the file in errors.
    pub fn parse(place: &str, text: &str) -> Result<Catalog> {
        let file = File::parse(place, text)?;
        let mut catalog = Catalog::default();
        file.accelerators.into_iter().for_each(|a| catalog.accelerators.add(a));
        file.models.into_iter().for_each(|m| catalog.models.add(m));
        file.workloads.into_iter().for_each(|w| catalog.workloads.add(w));
        Ok(catalog)
    }

    /// Adds the entries of `other`; an entry with an existing name replaces the earlier one.
    pub fn extend(&mut self, other: Catalog) {
        self.accelerators.extend(other.accelerators);
        self.models.extend(other.models);
        self.workloads.extend(other.workloads);
    }

    /// Adds a model, which replaces a model of equal name.
    pub fn add_model(&mut self, entry: ModelEntry) {
        self.models.add(entry);
    }

    /// All accelerators in catalog order.
    pub fn accelerators(&self) -> Result<Vec<&Accelerator>> {
        self.accelerators.all()
    }

    /// All models in catalog order.
    pub fn models(&self) -> Result<Vec<&ModelEntry>> {
        self.models.all()
    }

    /// All workloads in catalog order.
    pub fn workloads(&self) -> Result<Vec<&Preset>> {
        self.workloads.all()
    }

    /// Ids and aliases of all accelerators.
    pub fn accelerator_names(&self) -> impl Iterator<Item = &str> {
        self.accelerators.iter().flat_map(|slot| slot.names())
    }

    /// Ids and aliases of all models.
    pub fn model_names(&self) -> impl Iterator<Item = &str> {
        self.models.iter().flat_map(|slot| slot.names())
    }

    /// Returns the workload with this id, compared without case.
    pub fn workload(&self, name: &str) -> Result<&Preset> {
        let wanted = name.trim();
        let entry = self.workloads.rev().find(|slot| slot.id.eq_ignore_ascii_case(wanted));
        entry.ok_or_else(|| names::unknown("workload", name, name, &self.workloads))?.get()
    }

    /// Finds the accelerator with a name that occurs in `text` as whole words, as in a device name from a driver; the
    /// longest match wins. Separators may differ: `RTX 4090` matches `rtx4090`, but `Tesla M40` is no Apple M4.
    pub fn device(&self, text: &str) -> Option<&Accelerator> {
        let words = names::words(text);
        let runs: BTreeSet<String> = (0..words.len())
            .flat_map(|from| (from + 1..=words.len().min(from + MOST_WORDS)).map(move |to| (from, to)))
            .map(|(from, to)| words[from..to].concat())
            .collect();
        let known = self.accelerators.iter();
        let known = known.flat_map(|slot| slot.names().map(move |n| (names::words(n).concat(), slot)));
        let longest = known.filter(|(name, _)| runs.contains(name)).max_by_key(|(name, _)| name.len());
        longest.and_then(|(_, slot)| slot.get().ok())
    }

    /// Finds the accelerator of this name, compared without case and separators, else by its words in any order.
    pub fn accelerator(&self, name: &str) -> Result<&Accelerator> {
        self.find_accelerator(name)?.ok_or_else(|| self.no_accelerator(name))
    }

    /// Finds an accelerator like [`Catalog::accelerator`], but returns `None` for an unknown name and saves the time
    /// of computing suggestions.
    pub fn find_accelerator(&self, name: &str) -> Result<Option<&Accelerator>> {
        if machines::is_generic(name) {
            let hint = "accepted: a name such as h100-sxm; `roofcast catalog` lists them".to_owned();
            return Err(Error::Unknown { kind: "accelerator", found: name.to_owned(), hint });
        }
        let candidates = match names::find(&self.accelerators, name) {
            Match::One(slot) | Match::Beginning(slot) => return slot.get().map(Some),
            Match::Several(slots) => slots,
            Match::Nothing => Vec::new(),
        };
        let worded = machines::find(&self.accelerators, name);
        match (worded.as_slice(), candidates.as_slice()) {
            ([one], _) => one.get().map(Some),
            ([], []) => Ok(None),
            ([], several) | (several, _) => {
                let ids: Vec<_> = several.iter().map(|s| s.id.as_ref()).collect();
                Err(names::several("accelerator", name, &ids))
            }
        }
    }

    /// The error for an unknown accelerator; for a name like `8xH100`, with a hint that it joins a count and a name.
    fn no_accelerator(&self, name: &str) -> Error {
        if let Err(several) = names::one("accelerator", "hardware", name) {
            return several;
        }
        if let Some((count, rest)) = machines::counted(name)
            && let Ok(one) = self.accelerator(rest)
        {
            let hint = format!("did you mean {}? how many there are is hardware.count = {count}", one.id);
            return Error::Unknown { kind: "accelerator", found: name.to_owned(), hint };
        }
        names::unknown("accelerator", name, name, &self.accelerators)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> String {
        match Catalog::embedded().unwrap().named(name) {
            Ok(n) => format!("{} {} {}", n.entry.id, n.weights().unwrap_or("-"), n.kv().unwrap_or("-")),
            Err(error) => error.to_string(),
        }
    }

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

    /// The line scan finds exactly the entries that a TOML parser finds.
    #[test]
    fn every_entry_is_found_by_its_lines() {
        let catalog = Catalog::embedded().unwrap();
        let mut entries = 0;
        for (path, text) in FILES {
            let whole = Catalog::parse(path, text).unwrap();
            entries += whole.models.iter().count() + whole.accelerators.iter().count();
            for model in whole.models().unwrap() {
                let slot = catalog.models.iter().find(|s| s.id == model.id).unwrap();
                assert_eq!(slot.get().unwrap(), model);
                assert!(slot.aliases.iter().eq(model.aliases.iter()), "{}", model.id);
            }
            for chip in whole.accelerators().unwrap() {
                let slot = catalog.accelerators.iter().find(|s| s.id == chip.id).unwrap();
                assert_eq!(slot.get().unwrap(), chip);
                assert!(slot.aliases.iter().eq(chip.aliases.iter().chain([&chip.name])), "{}", chip.id);
            }
            for preset in whole.workloads().unwrap() {
                assert_eq!(catalog.workload(&preset.id).unwrap(), preset);
            }
        }
        assert_eq!(catalog.models.iter().count() + catalog.accelerators.iter().count(), entries);
    }

    #[test]
    fn names_and_aliases_are_unique() {
        let catalog = Catalog::embedded().unwrap();
        let mut all: Vec<_> =
            catalog.accelerator_names().chain(catalog.model_names()).map(str::to_lowercase).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    /// No two models share a name, but a base and its instructed model whose lengths differ.
    #[test]
    fn every_name_finds_its_own_entry() {
        let catalog = Catalog::embedded().unwrap();
        let mut owners = std::collections::BTreeMap::new();
        for entry in catalog.models().unwrap() {
            for name in std::iter::once(&entry.id).chain(&entry.aliases) {
                assert_eq!(catalog.model(name).unwrap().id, entry.id);
                let owner = owners.entry(names::canonical(name)).or_insert(&entry.id);
                let shape = |id: &str| id.replace("-Instruct", "").replace("-Reasoning", "");
                assert_eq!(shape(owner), shape(&entry.id), "{name}");
            }
        }
        for chip in catalog.accelerators().unwrap() {
            for name in chip.aliases.iter().chain([&chip.id, &chip.name]) {
                assert_eq!(catalog.accelerator(name).unwrap().id, chip.id, "{name}");
            }
        }
    }

    #[test]
    fn names_as_people_write_them() {
        for (name, found) in [
            ("llama3-8b", "meta-llama/Meta-Llama-3-8B - -"),
            ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B - -"),
            ("mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1 - -"),
            ("Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-32B fp8-block -"),
            ("amd/Llama-3.1-70B-Instruct-FP8-KV", "meta-llama/Llama-3.1-70B fp8 fp8"),
            ("RedHatAI/Mixtral-8x7B-Instruct-v0.1-FP8-dynamic", "mistralai/Mixtral-8x7B-v0.1 fp8-dynamic -"),
            ("llama3.1:8b-instruct-q4_K_M", "meta-llama/Llama-3.1-8B q4_k_m -"),
            ("qwen3:32b", "Qwen/Qwen3-32B q4_k_m -"),
            ("gemma3:27b", "google/gemma-3-27b-it q4_k_m -"),
            ("deepseek-r1:70b", "meta-llama/Llama-3.3-70B-Instruct q4_k_m -"),
            ("gpt-oss:20b", "openai/gpt-oss-20b - -"),
            ("unsloth/DeepSeek-R1-Distill-Qwen-32B-GGUF", "Qwen/Qwen2.5-32B q4_k_m -"),
            ("NousResearch/Hermes-4-70B-FP8", "meta-llama/Llama-3.1-70B fp8 -"),
            ("nvidia/Qwen3-235B-A22B-NVFP4", "nvidia/Qwen3-235B-A22B-NVFP4 - -"),
        ] {
            assert_eq!(named(name), found, "{name}");
        }
        let chip = |name: &str| match Catalog::embedded().unwrap().accelerator(name) {
            Ok(chip) => chip.id.clone(),
            Err(error) => error.to_string(),
        };
        for (name, found) in [
            ("h100sxm", "h100-sxm"),
            ("H100 SXM", "h100-sxm"),
            ("tpuv5e", "tpu-v5e"),
            ("RTX4090", "rtx-4090"),
        ] {
            assert_eq!(chip(name), found, "{name}");
        }
        assert!(chip("mi300").contains("mi300x"), "{}", chip("mi300"));
    }

    #[test]
    fn an_unknown_name_shows_near_ones() {
        assert!(
            named("lama-3.1-8b").contains("did you mean meta-llama/Llama-3.1-8B"),
            "{}",
            named("lama-3.1-8b")
        );
        let several = named("mistral-7b");
        assert!(several.contains("it may mean") && several.contains("Mistral-7B-v0.3"), "{several}");
        let format = named("someone/lama-3.1-8b-FP8");
        assert!(format.contains("meta-llama/Llama-3.1-8B"), "{format}");
        let message = Catalog::embedded().unwrap().accelerator("h100-foo").unwrap_err().to_string();
        assert!(message.contains("h100-foo") && message.contains("h100-sxm"), "{message}");
        // Long, empty and odd names give the usual error.
        for name in ["", " ", "/", "::::", "🦙", &"a-".repeat(50_000)] {
            assert!(named(name).starts_with("no model named"), "{name}");
        }
    }

    #[test]
    fn a_checkpoint_that_is_not_there_is_named_with_its_entry() {
        let mut catalog = Catalog::embedded().unwrap().clone();
        let entry = catalog.model("meta-llama/Llama-3.1-8B").unwrap().clone();
        let checkpoints = vec!["no/such".to_owned()];
        catalog.add_model(ModelEntry { id: "a/b".to_owned(), aliases: vec![], checkpoints, ..entry });
        let message = catalog.named("a/b").unwrap_err().to_string();
        assert!(["a/b", "checkpoints", "no/such"].iter().all(|part| message.contains(part)), "{message}");
    }

    #[test]
    fn a_format_of_the_id_replaces_the_checkpoints_own() {
        let catalog = Catalog::embedded().unwrap();
        let read = |name: &str| catalog.named(name).unwrap().model().unwrap();
        let model = read("amd/Llama-3.1-70B-Instruct-FP8-KV");
        let quantization = model.quantization.unwrap();
        assert_eq!((quantization.format.name, quantization.kv.unwrap().name), ("fp8", "fp8"));
        let assumption =
            "amd/Llama-3.1-70B-Instruct-FP8-KV: meta-llama/Llama-3.1-70B with weights fp8, KV fp8";
        assert_eq!(model.assumptions.last().map(String::as_str), Some(assumption));
        assert_eq!(model.name, "amd/Llama-3.1-70B-Instruct-FP8-KV");
        let model = read("x/Llama-3.1-8B-F16");
        assert_eq!((model.dtype, model.quantization), (Dtype::Fp16, None));
    }

    #[test]
    fn a_device_is_found_by_whole_words() {
        let catalog = Catalog::embedded().unwrap();
        let device = |text: &str| catalog.device(text).map(|a| a.id.as_str());
        assert_eq!(device("NVIDIA GeForce RTX 4090"), Some("rtx-4090"));
        assert_eq!(device("NVIDIA_GeForce_RTX_4070_Ti_SUPER"), Some("rtx-4070-ti-super"));
        assert_eq!(device("NVIDIA GeForce RTX 4070 Laptop GPU"), Some("rtx-4070-laptop"));
        assert_eq!(device("NVIDIA RTX 6000 Ada Generation"), Some("rtx-6000-ada"));
        assert_eq!(device("NVIDIA H100 80GB HBM3"), Some("h100-sxm"));
        assert_eq!(device("NVIDIA A100-SXM4-80GB"), Some("a100-sxm-80gb"));
        assert_eq!(device("AMD Instinct MI300X OAM"), Some("mi300x"));
        assert_eq!(device("Apple M4 Max"), Some("m4-max"));
        for other in ["Tesla M40", "Quadro M1000", "Intel(R) Core(TM) 5 120U", "Quadro T400", "NVIDIA L2"] {
            assert_eq!(device(other), None, "{other}");
        }
    }

    #[test]
    fn a_users_entry_overrides_ours() {
        let mut mine = Catalog::embedded().unwrap().clone();
        let mut changed = mine.accelerator("rtx-4090").unwrap().clone();
        changed.node_size = 3;
        mine.accelerators.add(changed);
        assert_eq!(mine.accelerator("rtx-4090").unwrap().node_size, 3);
    }
}
