//! The accelerators of a search.
//!
//! Knows: the accelerators that the spec names, or else all that can be rented, and the spec's prices and powers, which
//! replace the catalog's. Knows nothing about how the accelerators are used.

use roofcast_ask::spec::SearchSpec;
use roofcast_facts::accelerator::{Accelerator, HourlyPrice};
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Largest price in dollars per hour, and largest power in watts, that a spec may set.
const MOST_OWN: f64 = 1e6;

/// Vendors whose accelerators are rented singly.
const RENTED: [&str; 3] = ["nvidia", "amd", "google"];

/// The accelerators of the search, with prices and powers of the spec applied.
pub(super) fn chips(
    search: &SearchSpec,
    catalog: &Catalog,
    named: Option<&str>,
) -> Result<Vec<Arc<Accelerator>>> {
    let [prices, powers] = [("search.prices", &search.prices), ("search.power_w", &search.power_w)]
        .map(|(key, own)| owned(key, own, catalog));
    let prices = prices?;
    let powers = powers?;
    let with_price = |chip: &Accelerator| {
        let mut chip = chip.clone();
        if let Some(usd_per_hour) = prices.get(&chip.id).copied() {
            let price = HourlyPrice { usd_per_hour, date: String::new(), source: "search.prices".to_owned() };
            chip.price = Some(price);
        }
        chip.power_w = powers.get(&chip.id).copied().or(chip.power_w);
        let owned = search.usd_per_kwh.filter(|_| !prices.contains_key(&chip.id));
        if let Some((per_kwh, watts)) = owned.zip(chip.power_w) {
            let source = "search.usd_per_kwh".to_owned();
            chip.price =
                Some(HourlyPrice { usd_per_hour: per_kwh * watts / 1e3, date: String::new(), source });
        }
        chip
    };
    let names: Vec<&str> = search.accelerators.iter().map(String::as_str).collect();
    let names = if names.is_empty() { named.into_iter().collect() } else { names };
    let mut chips: Vec<Accelerator> = if names.is_empty() {
        let rented = |a: &Accelerator| a.price.is_some() && RENTED.contains(&a.vendor.as_str());
        catalog.accelerators()?.into_iter().map(with_price).filter(rented).collect()
    } else {
        names.into_iter().map(|name| catalog.accelerator(name).map(with_price)).collect::<Result<_>>()?
    };
    // Two names of one chip count once.
    let mut seen = BTreeSet::new();
    chips.retain(|chip| seen.insert(chip.id.clone()));
    for (key, values) in [("search.prices", &prices), ("search.power_w", &powers)] {
        if let Some(id) = values.keys().find(|id| !chips.iter().any(|chip| chip.id == **id)) {
            let accepted = "accelerators that the search may choose from";
            return Err(Error::field("spec", key, id, accepted));
        }
    }
    Ok(chips.into_iter().map(Arc::new).collect())
}

/// Catalog ids of accelerators of rentable vendors that are not among `chips`: the ones with a price if the search has
/// a list (`listed`), else the ones without.
pub(super) fn not_searched(
    catalog: &Catalog,
    chips: &[Arc<Accelerator>],
    listed: bool,
) -> Result<Vec<String>> {
    let other = |a: &&Accelerator| {
        RENTED.contains(&a.vendor.as_str())
            && a.price.is_some() == listed
            && chips.iter().all(|chip| chip.id != a.id)
    };
    Ok(catalog.accelerators()?.into_iter().filter(other).map(|a| a.id.clone()).collect())
}

/// The spec's values by catalog id of the accelerator.
fn owned(key: &str, values: &BTreeMap<String, f64>, catalog: &Catalog) -> Result<BTreeMap<String, f64>> {
    let count_of = |(name, value): (&String, &f64)| match *value {
        value if value > 0.0 && value <= MOST_OWN => Ok((catalog.accelerator(name)?.id.clone(), value)),
        value => {
            let given = format!("{value} for {name}");
            Err(Error::field("spec", key, given, format!("above 0, at most {MOST_OWN}")))
        }
    };
    values.iter().map(count_of).collect()
}
