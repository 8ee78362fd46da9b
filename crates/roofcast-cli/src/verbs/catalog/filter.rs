//! Which entries are listed.

use crate::args::FilterArgs;
use crate::args::values::Range;
use roofcast::catalog::{Kind, Listed};
use roofcast::precision::{Dtype, WeightFormat};
use roofcast::workload::Preset;

const GIB: f64 = (1_u64 << 30) as f64;

/// The filters as they compare.
pub(super) struct Filter {
    words: Vec<String>,
    family: Option<String>,
    vendor: Option<String>,
    memory: Option<Range>,
    price: Option<Range>,
    format: Option<Wanted>,
}

/// A format, and the dtype that computes it.
struct Wanted {
    name: String,
    dtype: Option<Dtype>,
}

impl Filter {
    /// Refuses formats that are not known.
    pub(super) fn new(args: &FilterArgs) -> anyhow::Result<Filter> {
        let lower = |text: &Option<String>| text.as_ref().map(|t| t.trim().to_lowercase());
        Ok(Filter {
            words: args.search.iter().flat_map(|t| t.split_whitespace()).map(bare).collect(),
            family: lower(&args.family),
            vendor: lower(&args.vendor),
            memory: args.memory,
            price: args.price,
            format: args.format.as_deref().map(Wanted::read).transpose()?,
        })
    }

    /// Whether an accelerator or a model passes.
    pub(super) fn entry(&self, listed: &Listed) -> bool {
        let line = &listed.line;
        let names = [line.family.as_str(), line.vendor.as_str()];
        self.found(names.into_iter().chain(listed.names.iter().copied()))
            && begins(&self.family, &line.family)
            && is(&self.vendor, &line.vendor)
            && self.memory.is_none_or(|wanted| wanted.holds(line.size().as_f64() / GIB))
            && self.price.is_none_or(|wanted| line.usd_per_hour.is_some_and(|p| wanted.holds(p)))
            && self.format.as_ref().is_none_or(|f| match line.kind {
                Kind::Accelerator => f.computed(&line.formats),
                Kind::Model => f.published(&line.formats),
            })
    }

    /// Whether a workload passes; it has names alone.
    pub(super) fn workload(&self, workload: &Preset) -> bool {
        self.found([workload.id.as_str(), workload.about.as_str()].into_iter())
            && self.family.is_none()
            && self.vendor.is_none()
            && self.memory.is_none()
            && self.price.is_none()
            && self.format.is_none()
    }

    /// Whether every word is in one of the names.
    fn found<'a>(&self, names: impl Iterator<Item = &'a str>) -> bool {
        let names: Vec<_> = names.filter(|_| !self.words.is_empty()).map(bare).collect();
        self.words.iter().all(|word| names.iter().any(|name| name.contains(word)))
    }
}

impl Wanted {
    fn read(name: &str) -> anyhow::Result<Wanted> {
        let name = name.trim().to_lowercase();
        if let Ok(dtype) = serde_json::from_value::<Dtype>(name.clone().into()) {
            return Ok(Wanted { name, dtype: Some(dtype) });
        }
        let dtype = match name.parse::<WeightFormat>()? {
            WeightFormat::Uniform(format) => format.compute,
            WeightFormat::Gguf(_) => None,
        };
        Ok(Wanted { name, dtype })
    }

    /// Whether a chip that computes in `a+b` has its dtype.
    fn computed(&self, formats: &str) -> bool {
        self.dtype.is_some_and(|dtype| formats.split('+').any(|f| f == dtype.name()))
    }

    /// Whether weights `a+b` have it: `fp8` is also `fp8-block`.
    fn published(&self, weights: &str) -> bool {
        weights
            .split('+')
            .any(|w| w.strip_prefix(&self.name).is_some_and(|r| r.is_empty() || r.starts_with('-')))
    }
}

/// Letters and digits, lower case.
fn bare(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn begins(wanted: &Option<String>, found: &str) -> bool {
    wanted.as_ref().is_none_or(|w| found.to_lowercase().starts_with(w))
}

fn is(wanted: &Option<String>, found: &str) -> bool {
    wanted.as_ref().is_none_or(|w| found.to_lowercase() == *w)
}
