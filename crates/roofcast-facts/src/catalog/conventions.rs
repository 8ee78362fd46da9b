//! Conventions in the ids of published checkpoints: words for a format of weights and KV cache, words that change no
//! dimension, and families that are not modelled. The rules are data: `catalog/conventions.toml`.
//!
//! Knows: the rules and the positions of their words in a name. Knows nothing about entries.

use super::names::{canonical, short, words};
use crate::error::{Error, Result};
use crate::model::quantization::Quantization;
use crate::precision::{Dtype, KvFormat, WeightFormat};
use serde::Deserialize;
use std::sync::OnceLock;

const PLACE: &str = "catalog/conventions.toml";
const TEXT: &str = include_str!("../../catalog/conventions.toml");
/// Longest accepted id, longer than any real one.
const LONGEST: usize = 300;

/// The rules of `conventions.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Conventions {
    /// Words without meaning in a name that contains a format, at any position after the first.
    beside: Vec<String>,
    /// Words without meaning directly after a format.
    after: Vec<String>,
    /// Suffixes that API services append to a model's name after a colon.
    services: Vec<String>,
    /// Words that change no dimension of a model.
    idle: Vec<String>,
    /// Words that occur in names of models with another shape than the model named by the other words.
    other_shapes: Vec<String>,
    /// Rules in order of precedence: the first rule whose words occur in an id applies.
    #[serde(rename = "format")]
    formats: Vec<ConventionRule>,
    /// Modules that publishers leave in 16 bits.
    kept: Vec<Kept>,
    /// Families that are not in the catalog, each with the reason.
    refused: Vec<Refused>,
}

/// Modules that publishers leave in 16 bits when they quantize models of a family.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kept {
    /// Organisations that publish the checkpoints.
    organisations: Vec<String>,
    /// Weight formats, in the spelling of `--weights`.
    weights: Vec<String>,
    /// Beginnings of the models' names, without organisation.
    models: Vec<String>,
    /// True if the list is of a model with experts, false if of one without; `None` if it holds for both.
    #[serde(default)]
    experts: Option<bool>,
    /// Names and patterns of the modules.
    #[serde(default)]
    modules: Vec<String>,
    /// Names and patterns of modules in 8-bit floats.
    #[serde(default)]
    fp8: Vec<String>,
    /// Checkpoint or recipe whose list of modules is taken.
    pub(super) like: String,
    /// Web address of the list.
    source: String,
}

impl Kept {
    /// Sentence for reports.
    pub(super) fn said(&self) -> String {
        let names = |modules: &[String]| {
            modules.iter().map(|m| m.trim_matches(['*', '.'])).collect::<Vec<_>>().join(", ")
        };
        let lists = [(&self.modules, "16 bits"), (&self.fp8, "fp8")];
        let lists = lists.into_iter().filter(|(modules, _)| !modules.is_empty());
        let lists: Vec<String> =
            lists.map(|(modules, format)| format!("{} in {format}", names(modules))).collect();
        format!("{}, as in {}", lists.join(", "), self.like)
    }

    /// `quantization` with the modules of the list in their own formats.
    pub(super) fn of(&self, quantization: Quantization) -> Result<Quantization> {
        let kept = quantization.keeping(&self.modules);
        match "fp8".parse()? {
            WeightFormat::Uniform(fp8) if !self.fp8.is_empty() => Ok(kept.with(&self.fp8, fp8)),
            _ => Ok(kept),
        }
    }
}

/// Families whose architecture is not modelled.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    /// Beginnings of the family's names, without organisation.
    names: Vec<String>,
    /// The feature that is not modelled.
    why: String,
}

/// Words of ids and the format that they stand for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConventionRule {
    /// Phrases, any of which selects the rule; each is a sequence of words.
    #[serde(default)]
    words: Vec<String>,
    /// Organisations whose ids the rule applies to; all if empty.
    #[serde(default)]
    organisations: Vec<String>,
    /// Beginnings of names of models of which their maker, one of `organisations`, publishes a checkpoint under the name and
    /// the rule's first words, and to which the rule is limited; of base models without instructions none is published.
    #[serde(default)]
    publishes: Vec<String>,
    /// True if the rule applies to a name `name:tag`, as Ollama writes it, that has no words of another rule.
    #[serde(default)]
    tagged: bool,
    /// Weight format, in the spelling of `--weights`.
    pub(super) weights: String,
    /// Dtype of computation, if it is not the weight format's own.
    #[serde(default)]
    pub(super) activations: Option<Dtype>,
    /// KV-cache format, if the checkpoint sets one.
    #[serde(default)]
    pub(super) kv: Option<String>,
    /// Note for reports, if the format stands in for one that is not modelled.
    #[serde(default)]
    pub(super) note: String,
    /// Web address that states the convention.
    source: String,
}

/// Reading of an id as a model and a format.
#[derive(Debug)]
pub(super) struct IdReading {
    /// The name without the format.
    pub(super) base: String,
    /// The rule that gives the format.
    pub(super) rule: &'static ConventionRule,
}

/// The rules, parsed once.
pub(super) fn conventions() -> Result<&'static Conventions> {
    static RULES: OnceLock<Result<Conventions>> = OnceLock::new();
    let parse = || {
        let rules: Conventions = toml::from_str(TEXT).map_err(|e| Error::toml(PLACE, TEXT, "", &e))?;
        rules.formats.iter().try_for_each(ConventionRule::check)?;
        if let Some(kept) = rules.kept.iter().find(|kept| kept.source.is_empty()) {
            return Err(Error::field(PLACE, "kept", &kept.like, "modules with a source"));
        }
        Ok(rules)
    };
    RULES.get_or_init(parse).as_ref().map_err(Clone::clone)
}

impl Conventions {
    /// Reason why models of this name are not in the catalog, if it is known.
    pub(super) fn refusal(&self, name: &str) -> Option<&str> {
        let wanted = canonical(name);
        let named = |r: &&Refused| r.names.iter().any(|n| wanted.starts_with(&canonical(n)));
        self.refused.iter().find(named).map(|r| r.why.as_str())
    }

    /// Modules that `organisation`, or any of the publishers if it is `None`, leaves in 16 bits in checkpoints of the
    /// model `id`, with or without `experts`, in the format `weights`.
    pub(super) fn kept(
        &self,
        organisation: Option<&str>,
        id: &str,
        experts: bool,
        weights: &str,
    ) -> Option<&Kept> {
        let name = short(id).to_ascii_lowercase();
        self.kept.iter().filter(|kept| kept.experts.is_none_or(|has| has == experts)).find(|kept| {
            let publishes = |asked: &str| kept.organisations.iter().any(|o| o.eq_ignore_ascii_case(asked));
            organisation.is_none_or(publishes)
                && kept.weights.iter().any(|w| w == weights)
                && kept.models.iter().any(|start| name.starts_with(&start.to_ascii_lowercase()))
        })
    }

    /// Removes an API service's suffix after the colon: `llama-3.3-70b-instruct:free`.
    pub(super) fn without_service<'a>(&self, name: &'a str) -> &'a str {
        match name.rsplit_once(':') {
            Some((model, tag)) if self.services.iter().any(|s| s.eq_ignore_ascii_case(tag)) => model,
            _ => name,
        }
    }

    /// Removes the words that change no dimension; the first word is always kept.
    pub(super) fn without_idle(&self, name: &str) -> String {
        let (organisation, own) = name.rsplit_once('/').map_or(("", name), |(o, own)| (o, own));
        let all = words(own);
        let words_left: Vec<_> =
            all.iter().enumerate().filter(|(i, w)| *i == 0 || !self.is_idle(w)).collect();
        if words_left.len() == all.len() {
            return name.to_owned();
        }
        let shortened = words_left.into_iter().map(|(_, w)| w.as_str()).collect::<Vec<_>>().join("-");
        if organisation.is_empty() { shortened } else { format!("{organisation}/{shortened}") }
    }

    /// True for a word that changes no dimension: a tuning such as `chat`, or a month of release (`2507`, `250324`).
    pub(super) fn is_idle(&self, word: &str) -> bool {
        self.idle.iter().any(|w| w == word) || is_date(word)
    }

    /// True for a word that may indicate another shape or an unknown format.
    pub(super) fn tells_shape(&self, word: &str) -> bool {
        const FORMATS: [&str; 12] = ["int", "fp", "bf", "mx", "nv", "nf", "w", "q", "iq", "tq", "exl", "hqq"];
        let numbered = |prefix: &&str| {
            word.strip_prefix(*prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        self.other_shapes.iter().any(|w| w == word)
            || FORMATS.iter().any(numbered)
            || ["bit", "bits", "bpw"].iter().any(|unit| word.ends_with(unit))
    }

    /// Splits `name` into model and format; `None` if the name contains no format.
    pub(super) fn read(&'static self, name: &str) -> Option<IdReading> {
        if name.len() > LONGEST {
            return None;
        }
        let organisation = name.rsplit_once('/').map(|(before, _)| short(before).to_ascii_lowercase());
        let name_words = words(short(name));
        let applies = |rule: &&ConventionRule| {
            let is_organisation = |o: &String| organisation.as_deref() == Some(o.as_str());
            (rule.organisations.is_empty() || rule.organisations.iter().any(is_organisation))
                && (rule.publishes.is_empty() || rule.covers(short(name)))
        };
        let hit = self.formats.iter().filter(applies).find_map(|rule| Some((rule, rule.at(&name_words)?)));
        let (rule, base) = match hit {
            Some((rule, (at, length))) => (rule, self.rest(&name_words, at, length)),
            None if name.contains(':') => (self.formats.iter().find(|r| r.tagged)?, name_words),
            None => return None,
        };
        let base = base.join("-");
        let base = organisation.map_or(base.clone(), |o| format!("{o}/{base}"));
        Some(IdReading { base, rule })
    }

    /// Rule for the format in `name`, which has no organisation, if the maker of the model `id` publishes that checkpoint.
    pub(super) fn of_maker(&'static self, id: &str, name: &str) -> Option<&'static ConventionRule> {
        let organisation = id.rsplit_once('/').map(|(before, _)| before)?;
        let rule = self.read(&format!("{organisation}/{name}"))?.rule;
        self.published(id).any(|(_, published)| std::ptr::eq(published, rule)).then_some(rule)
    }

    /// Ids and rules of the checkpoints that the maker of the model `id` publishes in other formats.
    pub(super) fn published(
        &'static self,
        id: &str,
    ) -> impl Iterator<Item = (String, &'static ConventionRule)> {
        let organisation = id.rsplit_once('/').map_or("", |(before, _)| before).to_ascii_lowercase();
        let name = short(id).to_owned();
        let publishes = move |rule: &&ConventionRule| {
            rule.organisations.contains(&organisation) && rule.covers(&name) && !name.ends_with("-Base")
        };
        let id = id.to_owned();
        self.formats.iter().filter(publishes).map(move |rule| {
            let words = rule.words.first().map_or(String::new(), |words| words.to_ascii_uppercase());
            (format!("{id}-{words}"), rule)
        })
    }

    /// Words that remain when the `length` words of the format at `at` are removed, together with words that carry no
    /// meaning next to a format.
    fn rest(&self, found: &[String], at: usize, length: usize) -> Vec<String> {
        let is_kept = |index: usize, word: &String| {
            let format = (at..at + length).contains(&index);
            let idle = index > 0 && self.beside.contains(word) || index > at && self.after.contains(word);
            !format && !idle
        };
        found.iter().enumerate().filter(|(i, w)| is_kept(*i, w)).map(|(_, w)| w.clone()).collect()
    }
}

/// True for a date as releases write it: `2507`, `0528`, `250324`, `20250324`.
fn is_date(word: &str) -> bool {
    if !matches!(word.len(), 4 | 6 | 8) || !word.chars().all(|c| c.is_ascii_digit()) {
        return false;
    }
    let part = |from: usize| word[from..from + 2].parse::<u32>().unwrap_or(0);
    let month = |m: u32| (1..=12).contains(&m);
    let day = |d: u32| (1..=31).contains(&d);
    let year = |y: u32| (22..=30).contains(&y);
    match word.len() {
        4 => year(part(0)) && month(part(2)) || month(part(0)) && day(part(2)) && part(0) < 13,
        6 => year(part(0)) && month(part(2)) && day(part(4)),
        _ => part(0) == 20 && year(part(2)) && month(part(4)) && day(part(6)),
    }
}

impl ConventionRule {
    /// True if the rule's makers publish such a checkpoint of the model `name`.
    fn covers(&self, name: &str) -> bool {
        let begins = |start: &String| name.to_ascii_lowercase().starts_with(&start.to_ascii_lowercase());
        self.publishes.iter().any(begins)
    }

    /// Position of the rule's first word in a name and number of its words; never at the beginning of the name.
    fn at(&self, found: &[String]) -> Option<(usize, usize)> {
        self.words.iter().find_map(|phrase| {
            let phrase = words(phrase);
            let at = found.windows(phrase.len().max(1)).skip(1).position(|w| w == phrase)?;
            Some((at + 1, phrase.len()))
        })
    }

    /// Refuses rules without a source or with unknown formats.
    fn check(&self) -> Result<()> {
        self.weight_format()?;
        self.kv_format()?;
        if self.source.is_empty() || self.words.is_empty() != self.tagged {
            return Err(Error::field(PLACE, "format", format!("{:?}", self.words), "words with a source"));
        }
        Ok(())
    }

    /// True if the rule does not change the formats of `config`: llama.cpp keeps a maker's 4-bit floats in all of its
    /// files, whose names give the format of the other tensors only.
    pub(super) fn leaves(&self, config: &serde_json::Value, name: &str) -> bool {
        let llama_cpp = self.tagged
            || matches!(self.weight_format(), Ok(WeightFormat::Gguf(_)))
            || words(name).iter().any(|w| w == "gguf");
        llama_cpp && config["quantization_config"]["quant_method"] == "mxfp4"
    }

    /// Weight format of the rule.
    pub(super) fn weight_format(&self) -> Result<WeightFormat> {
        let format = self.weights.parse()?;
        Ok(match (format, self.activations) {
            (WeightFormat::Uniform(f), Some(Dtype::Bf16 | Dtype::Fp16)) => {
                WeightFormat::Uniform(f.weight_only())
            }
            (WeightFormat::Uniform(f), Some(dtype)) => WeightFormat::Uniform(f.computing_in(dtype)),
            (format, _) => format,
        })
    }

    /// KV format of the rule.
    pub(super) fn kv_format(&self) -> Result<Option<KvFormat>> {
        self.kv.as_deref().map(str::parse).transpose()
    }

    /// The formats as reports print them, as in `weights fp8, KV fp8`.
    pub(super) fn said(&self) -> String {
        let activations = self.activations.map_or(String::new(), |a| format!(", activations {a}"));
        let kv = self.kv.as_ref().map_or(String::new(), |kv| format!(", KV {kv}"));
        let note = if self.note.is_empty() { String::new() } else { format!(" ({})", self.note) };
        format!("weights {}{activations}{kv}{note}", self.weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> (String, String) {
        let reading = conventions().unwrap().read(name).unwrap_or_else(|| panic!("{name}"));
        (reading.base, reading.rule.said())
    }

    /// A publisher's rule holds for its own checkpoints of the family, in its format.
    #[test]
    fn publishers_keep_modules_in_sixteen_bits() {
        let modules = |organisation, id, weights| {
            let kept = conventions().unwrap().kept(organisation, id, true, weights);
            kept.map(|kept| kept.modules.join(" "))
        };
        let hybrid = Some("*.self_attn* *.linear_attn* *.shared_expert*".to_owned());
        assert_eq!(modules(Some("nvidia"), "Qwen/Qwen3.8-2.4T-A95B", "nvfp4"), hybrid);
        assert_eq!(modules(None, "Qwen/Qwen3.8-2.4T-A95B", "nvfp4"), hybrid);
        assert_eq!(
            modules(Some("RedHatAI"), "Qwen/Qwen3-Next-80B-A3B-Instruct", "fp8-dynamic"),
            Some("*.linear_attn*".to_owned())
        );
        assert_eq!(modules(Some("someone"), "Qwen/Qwen3.8-2.4T-A95B", "nvfp4"), None);
        assert_eq!(modules(Some("nvidia"), "Qwen/Qwen3-32B", "nvfp4"), None);
        assert_eq!(modules(Some("nvidia"), "Qwen/Qwen3.8-2.4T-A95B", "fp8"), None);
        let dense = conventions().unwrap().kept(None, "Qwen/Qwen3.5-27B", false, "nvfp4").unwrap();
        assert_eq!(dense.said(), "self_attn, linear_attn in fp8, as in nvidia/Qwen3.6-27B-NVFP4");
    }

    #[test]
    fn formats_stand_apart_from_the_model() {
        for (name, base, said) in [
            ("amd/Llama-3.1-70B-Instruct-FP8-KV", "amd/llama-3-1-70b-instruct", "weights fp8, KV fp8"),
            ("RedHatAI/Qwen3-32B-FP8-dynamic", "redhatai/qwen3-32b", "weights fp8-dynamic"),
            ("RedHatAI/Qwen3-32B-FP8-block", "redhatai/qwen3-32b", "weights fp8-block"),
            ("Qwen/Qwen3-32B-FP8", "qwen/qwen3-32b", "weights fp8-block"),
            ("zai-org/GLM-4.6-FP8", "zai-org/glm-4-6", "weights fp8-dynamic"),
            ("zai-org/GLM-5-FP8", "zai-org/glm-5", "weights fp8-block"),
            (
                "RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16",
                "redhatai/llama-3-3-70b-instruct",
                "weights w4a16",
            ),
            ("x/Foo-7B-quantized.w8a8", "x/foo-7b", "weights int8, activations int8"),
            ("x/Foo-7B-quantized.w8a16", "x/foo-7b", "weights int8"),
            ("x/Foo-7B-W4A16-G128", "x/foo-7b", "weights w4a16"),
            ("nvidia/Foo-7B-NVFP4-v2", "nvidia/foo-7b", "weights nvfp4, KV fp8"),
            ("nvidia/Foo-7B-FP4", "nvidia/foo-7b", "weights nvfp4, KV fp8"),
            ("RedHatAI/Foo-7B-NVFP4A16", "redhatai/foo-7b", "weights nvfp4, activations bf16"),
            ("amd/Foo-7B-MXFP4-Preview", "amd/foo-7b", "weights mxfp4, activations fp4"),
            ("unsloth/Foo-7B-unsloth-bnb-4bit", "unsloth/foo-7b", "weights bnb-4bit"),
            ("TheBloke/Foo-7B-v0.2-AWQ", "thebloke/foo-7b-v0-2", "weights awq-int4"),
            ("hugging-quants/Foo-7B-AWQ-INT4", "hugging-quants/foo-7b", "weights awq-int4"),
            ("Qwen/Foo-7B-GPTQ-Int4", "qwen/foo-7b", "weights gptq-int4"),
            ("Qwen/Foo-7B-GPTQ-Int8", "qwen/foo-7b", "weights gptq-int8"),
            ("mlx-community/Foo-7B-4bit", "mlx-community/foo-7b", "weights mlx-4bit"),
            ("lmstudio-community/Foo-7B-MLX-8bit", "lmstudio-community/foo-7b", "weights mlx-8bit"),
            ("bartowski/Foo-7B-GGUF:Q4_K_M", "bartowski/foo-7b", "weights q4_k_m"),
            ("bartowski/Foo-7B-GGUF:Q8_0", "bartowski/foo-7b", "weights q8_0"),
            (
                "hf.co/unsloth/Foo-7B-GGUF",
                "unsloth/foo-7b",
                "weights q4_k_m (what llama.cpp takes where none is named)",
            ),
            ("llama3.1:8b-instruct-q4_K_M", "llama3-1-8b-instruct", "weights q4_k_m"),
            ("llama3.1:8b-instruct-fp16", "llama3-1-8b-instruct", "weights fp16"),
            ("qwen3:32b", "qwen3-32b", "weights q4_k_m (Ollama's default)"),
        ] {
            assert_eq!(read(name), (base.to_owned(), said.to_owned()), "{name}");
        }
    }

    /// A size such as `8b` is not a format, and a format alone is not a model.
    #[test]
    fn names_without_a_format() {
        for name in ["Qwen/Qwen3-4B", "meta-llama/Llama-3.1-8B-Instruct", "FP8", "awq", "", "/", "fp8/"] {
            assert!(conventions().unwrap().read(name).is_none(), "{name}");
        }
    }
}
