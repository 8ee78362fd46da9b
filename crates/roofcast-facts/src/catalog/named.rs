//! Resolution of a model's name to a catalog entry, with the format that the name contains.
//!
//! Knows: the order of ever looser readings of a name, and the assumption to report if the name is not the entry's
//! own. [`super::names`] compares names; [`super::conventions`] knows the words for formats.

use super::conventions::{ConventionRule, Conventions, Kept, conventions};
use super::entries::Slot;
use super::names::{self, Match};
use super::{Catalog, ModelEntry};
use super::{address, pruned, shapes, towers, tunes};
use crate::error::{Error, Result};
use crate::model::{Checkpoint, Model, Quantization, config};
use crate::precision::{Dtype, WeightFormat};

/// Most entries that one name may match and that are compared with each other; more cannot be formats of one model.
const FORMATS_OF_ONE: usize = 8;

/// Entry that a name means, with further information from the name.
#[derive(Debug, Clone)]
pub struct NamedEntry<'a> {
    /// The entry.
    pub entry: &'a ModelEntry,
    name: String,
    /// Name without words for a format.
    base: String,
    /// Catalog entries of the model's checkpoints in other formats.
    published: Vec<&'a ModelEntry>,
    format: Option<&'static ConventionRule>,
    /// Experts per layer that remain, if the name says that some were removed.
    experts: Option<u64>,
    checkpoint: Checkpoint,
    /// Sentence for reports that states how the name was interpreted; `None` if it is an entry's own name.
    pub assumption: Option<String>,
}

impl NamedEntry<'_> {
    /// Returns the model, with the format in its name instead of the entry's own format.
    pub fn model(&self) -> Result<Model> {
        let place = format!("catalog entry {}", self.entry.id);
        let mut model = config::read(&self.name, &place, &self.entry.config)?;
        towers::add(&mut model, &[&self.base, &self.name, &self.entry.id])?;
        for entry in &self.published {
            let read = Quantization::read(&format!("catalog entry {}", entry.id), &entry.config)?;
            model.published.extend(read.map(|quantization| (entry.id.clone(), quantization)));
        }
        if model.quantization.is_none() {
            for (id, rule) in conventions()?.published(&self.entry.id) {
                let quantization = Quantization::named(rule.weight_format()?, rule.kv_format()?);
                if model.published.iter().all(|(known, _)| *known != id) {
                    model.published.push((id, quantization));
                }
            }
        }
        if let Some(rule) = self.format {
            match rule.weight_format()? {
                WeightFormat::Uniform(f) if f.width.as_f64() >= 16.0 => {
                    model.dtype = if f.name == "fp16" { Dtype::Fp16 } else { Dtype::Bf16 };
                    model.quantization = None;
                }
                weights => {
                    let known = model.published.iter().find(|(_, q)| q.format.name == weights.name());
                    let known = known.map(|(_, quantization)| quantization.clone());
                    let named = Quantization::named(weights, rule.kv_format()?);
                    let organisation = self.name.rsplit_once('/').map_or("", |(before, _)| before);
                    let exemption = conventions()?.kept(
                        Some(organisation),
                        &self.entry.id,
                        model.is_moe(),
                        weights.name(),
                    );
                    let unquantized = exemption.filter(|_| known.is_none());
                    model.assumptions.extend(unquantized.map(Kept::said));
                    let named = match unquantized {
                        Some(unquantized) => unquantized.of(named)?,
                        None => named,
                    };
                    model.quantization = Some(known.unwrap_or(named));
                }
            }
        }
        if self.format.is_none() && model.quantization.is_none() {
            self.add_kept(&mut model)?;
        }
        if let Some(count) = self.experts {
            model = pruned::keep(model, count);
        }
        model.checkpoint = self.checkpoint;
        model.assumptions.extend(self.assumption.clone());
        Ok(model)
    }

    /// Adds the checkpoint in NVFP4 as publishers of the family would make it, if none is in the catalog.
    fn add_kept(&self, model: &mut Model) -> Result<()> {
        let weights: WeightFormat = "nvfp4".parse()?;
        let known =
            model.published.iter().any(|(_, quantization)| quantization.format.name == weights.name());
        let unquantized = conventions()?.kept(None, &self.entry.id, model.is_moe(), weights.name());
        if let Some(unquantized) = unquantized.filter(|_| !known) {
            let quantization = unquantized.of(Quantization::named(weights, None))?;
            model.published.push((unquantized.like.clone(), quantization));
        }
        Ok(())
    }

    /// Name of the weight format that the model's name contains.
    pub fn weights(&self) -> Option<&str> {
        self.format.map(|rule| rule.weights.as_str())
    }

    /// Name of the KV-cache format that the model's name contains.
    pub fn kv(&self) -> Option<&str> {
        self.format.and_then(|rule| rule.kv.as_deref())
    }
}

/// Result of reading a name.
enum Found<'a> {
    /// One entry, with a note for reports on how the name was read.
    Entry(&'a Slot<ModelEntry>, &'static str),
    /// One entry, with the number of experts per layer that remain of it.
    Pruned(&'a Slot<ModelEntry>, u64),
    Several(Vec<&'a Slot<ModelEntry>>),
    Nothing,
}

impl Catalog {
    /// The entry that [`Catalog::named`] finds.
    pub fn model(&self, name: &str) -> Result<&ModelEntry> {
        self.named(name).map(|named| named.entry)
    }

    /// Returns the model that `name` means. Ever looser readings are tried: an id or alias without regard to case,
    /// separators and words like `Instruct`; a fine-tune of a known shape; either with a format appended, as
    /// checkpoints are named; the beginning of exactly one name; the whole name of an entry among words that change
    /// no dimension; the web address of a repository.
    pub fn named(&self, name: &str) -> Result<NamedEntry<'_>> {
        let name = &*address::repository(name)?;
        names::one("model", "model", name)?;
        if let Some(named) = self.entrys_own(name.trim())? {
            return Ok(named);
        }
        let rules = conventions()?;
        let plain_name = rules.without_service(name.trim());
        if plain_name != name.trim()
            && let Some(named) = self.entrys_own(plain_name)?
        {
            return Ok(named);
        }
        let tagged = plain_name.contains(':');
        let reading = rules.read(plain_name);
        let base = reading.as_ref().map_or(plain_name, |r| r.base.as_str());
        let (slot, more, experts) = match self.read(rules, base, tagged)? {
            Found::Entry(slot, more) => (slot, more.to_owned(), None),
            Found::Pruned(slot, kept) => {
                let more = format!("{kept} of the experts a layer, by the size in its name, of ");
                (slot, more, Some(kept))
            }
            Found::Several(slots) => {
                let ids: Vec<_> = slots.iter().map(|s| s.id.as_ref()).collect();
                return Err(names::several("model", name, &ids));
            }
            Found::Nothing => {
                let unknown = || names::unknown("model", name, base, &self.models);
                return Err(rules
                    .refusal(base)
                    .map_or_else(unknown, |why| names::refused("model", name, why)));
            }
        };
        let entry = slot.get()?;
        let rule = reading.as_ref().map(|reading| match plain_name.contains('/') {
            true => reading.rule,
            false => rules.of_maker(&slot.id, plain_name).unwrap_or(reading.rule),
        });
        let format = rule.filter(|rule| !rule.leaves(&entry.config, plain_name));
        let suffix = format.map_or(String::new(), |rule| format!(" with {}", rule.said()));
        let assumption = Some(format!("{}: {more}{}{suffix}", name.trim(), slot.id));
        let is_entrys = || Ok::<bool, Error>(self.entrys_own(base)?.is_some());
        // A full id of the Hub means its own checkpoint.
        let (name, checkpoint) = match &format {
            _ if plain_name.contains('/') => (plain_name.to_owned(), Checkpoint::Named),
            None if is_entrys()? => (shown(base, slot), Checkpoint::Named),
            Some(_) if is_entrys()? => (shown(base, slot), Checkpoint::Unquantized),
            _ => (shown(plain_name, slot), Checkpoint::OfItsShape),
        };
        let published = self.published(entry)?;
        let base = base.to_owned();
        Ok(NamedEntry { entry, name, base, published, format, experts, checkpoint, assumption })
    }

    /// Entry with `asked` as one of its own names, found without the rules for formats.
    fn entrys_own(&self, asked: &str) -> Result<Option<NamedEntry<'_>>> {
        let Match::One(slot) = names::find(&self.models, asked) else { return Ok(None) };
        if asked.contains(':') && !slot.names().any(|n| n.eq_ignore_ascii_case(asked)) {
            return Ok(None);
        }
        let entry = slot.get()?;
        let name = shown(asked, slot);
        let published = self.published(entry)?;
        let checkpoint = Checkpoint::Named;
        Ok(Some(NamedEntry {
            entry,
            name,
            base: slot.id.to_string(),
            published,
            format: None,
            experts: None,
            checkpoint,
            assumption: None,
        }))
    }

    /// Catalog entries that an entry lists as its checkpoints.
    fn published(&self, entry: &ModelEntry) -> Result<Vec<&ModelEntry>> {
        let checkpoint = |id: &String| match self.models.iter().find(|slot| *slot.id == **id) {
            Some(slot) => slot.get(),
            None => {
                let place = format!("catalog entry {}", entry.id);
                Err(Error::field(&place, "checkpoints", id, "ids of models in the catalog"))
            }
        };
        entry.checkpoints.iter().map(checkpoint).collect()
    }

    /// Entry that a name without a format means.
    fn read(&self, rules: &'static Conventions, base: &str, tagged: bool) -> Result<Found<'_>> {
        let shape = shapes::shape(base, tagged)?.map(|id| names::find(&self.models, id));
        if let Some(Match::One(slot)) = shape {
            return Ok(Found::Entry(slot, ""));
        }
        match self.settled(names::find(&self.models, base))? {
            Found::Nothing => {}
            found => return Ok(found),
        }
        let bare = rules.without_idle(base);
        if bare != base {
            match self.settled(names::find(&self.models, &bare))? {
                Found::Nothing => {}
                found => return Ok(found),
            }
        }
        if let Some(slot) = tunes::within(&self.models, rules, base)? {
            return Ok(Found::Entry(slot, "the shape of "));
        }
        Ok(match self.pruned(base)? {
            Some((slot, experts)) => Found::Pruned(slot, experts),
            None => Found::Nothing,
        })
    }

    /// Base model of a checkpoint with experts removed, and the number of experts per layer that remain.
    fn pruned(&self, base: &str) -> Result<Option<(&Slot<ModelEntry>, u64)>> {
        let Some(parts) = pruned::read(base) else { return Ok(None) };
        match names::find(&self.models, &parts.base) {
            Match::One(slot) | Match::Beginning(slot) => parts.among(&[slot]),
            Match::Several(slots) => parts.among(&slots),
            Match::Nothing => Ok(None),
        }
    }

    /// Converts a match to one entry: among several entries that are formats of one shape, the unquantized one.
    fn settled<'a>(&self, found: Match<'a, ModelEntry>) -> Result<Found<'a>> {
        Ok(match found {
            Match::One(slot) | Match::Beginning(slot) => Found::Entry(slot, ""),
            Match::Several(slots) => match one_shape(&slots)? {
                Some(slot) => Found::Entry(slot, ""),
                None => Found::Several(slots),
            },
            Match::Nothing => Found::Nothing,
        })
    }
}

/// Name of the model in reports: a full id is kept as given, because `-Instruct` and its base share an entry;
/// otherwise the id that equals the name except for the organisation, else the entry's id.
fn shown(asked: &str, slot: &Slot<ModelEntry>) -> String {
    if asked.contains('/') {
        return asked.to_owned();
    }
    names::called(slot.names(), asked).unwrap_or(&slot.id).to_owned()
}

/// Returns the unquantized entry if the entries differ only in format and context length, or the first if all are
/// quantized; `None` if they differ in shape or are more than [`FORMATS_OF_ONE`].
fn one_shape<'a>(slots: &[&'a Slot<ModelEntry>]) -> Result<Option<&'a Slot<ModelEntry>>> {
    if slots.len() > FORMATS_OF_ONE {
        return Ok(None);
    }
    let read = |slot: &&Slot<ModelEntry>| config::read("", "catalog", &slot.get()?.config);
    let models = slots.iter().map(read).collect::<Result<Vec<Model>>>()?;
    let plain = models.iter().position(|m| m.quantization.is_none()).unwrap_or(0);
    let mut shapes = models.into_iter().map(shape);
    let first = shapes.next();
    Ok(if shapes.all(|s| Some(s) == first) { Some(slots[plain]) } else { None })
}

/// Removes from a model the properties in which models of one shape may differ.
fn shape(model: Model) -> Model {
    Model {
        architecture: String::new(),
        max_context: None,
        dtype: Dtype::Bf16,
        quantization: None,
        published: Vec::new(),
        checkpoint: Checkpoint::default(),
        tower: None,
        ahead: 0,
        assumptions: Vec::new(),
        ..model
    }
}
