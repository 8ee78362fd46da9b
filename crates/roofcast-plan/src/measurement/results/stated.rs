//! The deployment of a run, as its file states it.
//!
//! Knows: file and caller must agree; what only one of them states is taken. Knows nothing about a client's keys.

use super::super::benchmark::Subject;
use roofcast_ask::parallelism::RequestedParallelism;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::{Error, Result};

/// Largest relative difference of two parameter counts of one model: some files leave out embeddings or buffers.
const CLOSE: f64 = 0.03;

/// Statements of a file about the deployment; empty or absent where it has none.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Stated {
    /// Key of the model's name, and the name.
    pub(super) model: Option<(&'static str, String)>,
    /// Number of the model's parameters.
    pub(super) parameters: Option<f64>,
    /// Number of layers on the accelerator, if the host may have the others.
    pub(super) device_layers: Option<u64>,
    /// Name of the accelerator, as a driver or a benchmark writes it.
    pub(super) hardware: Option<String>,
    pub(super) engine: Option<&'static str>,
    pub(super) version: Option<String>,
    pub(super) weights: Option<String>,
    pub(super) kv: Option<String>,
    pub(super) tp: Option<u64>,
    pub(super) pp: Option<u64>,
    pub(super) ep: Option<u64>,
    /// Key and value that show speculative decoding.
    pub(super) drafts: Option<(String, String)>,
}

impl Stated {
    /// The deployment that file and caller describe together; `notes` receives what is only assumed.
    pub(super) fn with(
        &self,
        place: &str,
        given: &Subject,
        catalog: &Catalog,
        notes: &mut Vec<String>,
    ) -> Result<Subject> {
        let mut subject = given.clone();
        self.model(place, &mut subject, catalog, notes)?;
        self.hardware(place, &mut subject, catalog)?;
        let agreed = |field: &str, given: &str, stated: Option<&str>| match stated {
            Some(stated) if given.is_empty() || given == "auto" => Ok(stated.to_owned()),
            Some(stated) if stated != given => Err(Error::field(
                place,
                field,
                format!("{stated:?}"),
                format!("{given:?}, as the caller says"),
            )),
            _ => Ok(given.to_owned()),
        };
        subject.engine = agreed("engine", &given.engine, self.engine)?;
        if subject.engine.is_empty() {
            "vllm".clone_into(&mut subject.engine);
        }
        subject.weights = agreed("weights", &subject.weights, self.weights.as_deref())?;
        subject.kv = agreed("kv_cache", &given.kv, self.kv.as_deref())?;
        if subject.version.is_empty() {
            subject.version = self.version.clone().unwrap_or_default();
        }
        let same = |field: &str, given: Option<u64>, stated: Option<u64>| match (given, stated) {
            (Some(given), Some(stated)) if given != stated => {
                Err(Error::field(place, field, stated, format!("{given}, as the caller says")))
            }
            (given, stated) => Ok(given.or(stated)),
        };
        subject.parallelism = RequestedParallelism {
            tp: same("tp", given.parallelism.tp, self.tp)?.or(Some(1)),
            pp: same("pp", given.parallelism.pp, self.pp)?,
            ep: same("ep", given.parallelism.ep, self.ep)?,
            ..given.parallelism
        };
        match &self.drafts {
            Some((key, value)) if !given.drafts => {
                let accepted = "no speculative decoding: the deployment that is compared drafts no tokens";
                Err(Error::field(place, key, value, accepted))
            }
            _ => Ok(subject),
        }
    }

    /// Takes the file's model if the caller names none; refuses a file of another model.
    fn model(
        &self,
        place: &str,
        subject: &mut Subject,
        catalog: &Catalog,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        let known = self.model.as_ref().map(|(key, name)| (*key, name, catalog.named(name)));
        if subject.model.is_empty() {
            match known {
                Some((_, name, Ok(_))) => subject.model.clone_from(name),
                _ => {
                    let accepted = "a catalog id or a config.json: the run does not say what ran";
                    return Err(Error::field(place, "--model", "missing", accepted));
                }
            }
        } else if let Some((key, name, known)) = known {
            let given = catalog.named(&subject.model)?;
            match known {
                Ok(stated) => {
                    let parameters = [stated.model()?.parameters().total, given.model()?.parameters().total];
                    if parameters[0] != parameters[1] {
                        let accepted = format!("a run of {}, as the caller says", subject.model);
                        return Err(Error::field(place, key, name, accepted));
                    }
                    if let Some(format) = stated.weights().filter(|_| subject.weights.is_empty())
                        && given.weights().is_none()
                    {
                        notes.push(format!("weights are {format}, by the name of the run's model ({name})"));
                        format.clone_into(&mut subject.weights);
                    }
                }
                Err(_) => notes.push(format!(
                    "the file names the model {name}, which the catalog does not have: compared as {}",
                    subject.model
                )),
            }
        }
        if let Some(on_device) = self.device_layers {
            let layers = catalog.named(&subject.model)?.model()?.layers.len() as u64;
            if on_device < layers {
                let accepted = format!("{layers} or more: layers on the host are not forecast");
                return Err(Error::field(place, "n_gpu_layers", on_device, accepted));
            }
        }
        if let Some(stated) = self.parameters {
            let known = catalog.named(&subject.model)?.model()?.parameters().total as f64;
            if (stated / known - 1.0).abs() > CLOSE {
                let accepted = format!("about {known:.0}, the parameters of {}", subject.model);
                return Err(Error::field(place, "model_n_params", stated, accepted));
            }
        }
        Ok(())
    }

    /// Takes the file's accelerator if the caller names none; refuses a file of another one.
    fn hardware(&self, place: &str, subject: &mut Subject, catalog: &Catalog) -> Result<()> {
        let stated = self.hardware.as_deref().and_then(|text| {
            let named = || catalog.find_accelerator(text).ok().flatten();
            catalog.device(text).or_else(named).map(|chip| chip.id.as_str())
        });
        if subject.hardware.is_empty() {
            let accepted = "an accelerator, as h100-sxm: the run does not say";
            let missing = || Error::field(place, "--hardware", "missing", accepted);
            stated.ok_or_else(missing)?.clone_into(&mut subject.hardware);
        }
        let given = catalog.accelerator(&subject.hardware)?;
        if let Some(stated) = stated.filter(|stated| *stated != given.id)
            && self.hardware.as_ref().is_none_or(|text| !given.id.starts_with(&text.to_lowercase()))
        {
            return Err(Error::field(place, "hardware", stated, format!("{}, as the caller says", given.id)));
        }
        Ok(())
    }
}
