//! Flags for the keys of a spec, made from the library's list of keys.
//!
//! Knows: the command-line form of each kind of key. The library knows the meaning of keys and the valid values.

use super::foreign;
use super::help::{ENGINE, LOAD, MACHINE};
use super::values::lacks_unit;
use crate::swept;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use roofcast::spec::keys::{KEYS, SpecKey, ValueType};
use roofcast::spec::number::{self, Unit};
use roofcast::spec::settings::{NO_BOUND, Setting};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use toml::{Table, Value};

/// A group of a spec's sections whose keys are flags of a verb.
pub(crate) trait Sections {
    /// Names of the sections, each with the heading of its flags in the help.
    const ALL: &[(&str, &str)];
}

/// Group of the keys of model, hardware and engine.
#[derive(Debug)]
pub(crate) struct Machine;

impl Sections for Machine {
    const ALL: &[(&str, &str)] = &[
        ("model", MACHINE),
        ("hardware", MACHINE),
        ("precision", MACHINE),
        ("parallelism", MACHINE),
        ("engine", ENGINE),
    ];
}

/// Group of the keys of the workload, its routing, and the SLO.
#[derive(Debug)]
pub(crate) struct Traffic;

impl Sections for Traffic {
    const ALL: &[(&str, &str)] = &[("workload", LOAD), ("fleet", ENGINE), ("slo", LOAD)];
}

/// Group of the keys of the workload under which a server is measured.
#[cfg(feature = "network")]
#[derive(Debug)]
pub(crate) struct Load;

#[cfg(feature = "network")]
impl Sections for Load {
    const ALL: &[(&str, &str)] = &[("workload", LOAD)];
}

/// Group of the keys that route requests to replicas.
#[derive(Debug)]
pub(crate) struct Routed;

impl Sections for Routed {
    const ALL: &[(&str, &str)] = &[("fleet", ENGINE)];
}

/// Group of the keys of a plan's search.
#[derive(Debug)]
pub(crate) struct Planned;

impl Sections for Planned {
    const ALL: &[(&str, &str)] =
        &[("model", MACHINE), ("search", MACHINE), ("workload", LOAD), ("slo", LOAD), ("engine", ENGINE)];
}

/// Settings from the flags that were given, for the sections of group `S`.
#[derive(Debug)]
pub(crate) struct Flags<S> {
    pub(crate) settings: Vec<Setting>,
    sections: PhantomData<S>,
}

impl<S> Flags<S> {
    /// The value of the key at `path`, if its flag was given.
    pub(crate) fn get(&self, path: &str) -> Option<&Value> {
        self.settings.iter().find(|s| s.path == path).map(|s| &s.value)
    }
}

/// The keys of these sections that have flags, each with its flag and heading. If two keys have one flag, the key of
/// the section listed first wins.
fn keys<S: Sections>() -> impl Iterator<Item = (&'static SpecKey, &'static str, &'static str)> {
    let place = |key: &SpecKey| S::ALL.iter().position(|(section, _)| *section == key.section());
    KEYS.iter().filter_map(move |key| {
        let flag = key.flag?;
        let at = place(key)?;
        let taken =
            |other: &SpecKey| other.flag == Some(flag) && place(other).is_some_and(|other| other < at);
        (!KEYS.iter().any(taken)).then_some((key, flag, S::ALL[at].1))
    })
}

/// The flag of each key that has one in these sections, by the key's path.
pub(crate) fn by_path<S: Sections>() -> BTreeMap<&'static str, &'static str> {
    keys::<S>().map(|(key, flag, _)| (key.path, flag)).collect()
}

impl<S: Sections> Args for Flags<S> {
    fn augment_args(command: Command) -> Command {
        let flags = keys::<S>().flat_map(|(key, flag, heading)| argument(key, flag, heading));
        command.args(flags).next_help_heading(None)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Sections> FromArgMatches for Flags<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut settings = Vec::new();
        for (key, flag, _) in keys::<S>() {
            let off = || key.kind == ValueType::Switch && matches.get_flag(&negative(flag));
            let given = matches.get_one::<Value>(flag).cloned().or_else(|| off().then(|| false.into()));
            settings.extend(given.map(|value| Setting::new(&key.flat(), value)));
        }
        Ok(Flags { settings, sections: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn negative(flag: &str) -> String {
    format!("no-{flag}")
}

/// The clap argument of a key, and for a switch also its negation.
fn argument(key: &SpecKey, flag: &'static str, heading: &'static str) -> Vec<Arg> {
    let (first, rest) = key.about.split_at(key.about.chars().next().map_or(0, char::len_utf8));
    let about = first.to_uppercase() + rest;
    let arg = Arg::new(flag).long(flag).help(about).help_heading(heading).hide_short_help(key.rare);
    let key = *key;
    let arg = arg.allow_negative_numbers(true).value_parser(move |text: &str| value(&key, text));
    match key.kind {
        ValueType::Switch => {
            let no = negative(flag);
            let off = Arg::new(&no).long(&no).action(ArgAction::SetTrue).hide(true).overrides_with(flag);
            let on = arg.num_args(0..=1).require_equals(true).default_missing_value("true");
            vec![on.value_name("true|false"), off]
        }
        ValueType::Word => {
            vec![arg.value_name(if key.path == "parallelism.replicas" { "N" } else { "NAME" })]
        }
        ValueType::Whole => vec![arg.value_name("N")],
        ValueType::Real => vec![arg.value_name("NUMBER")],
        ValueType::Words => vec![arg.value_name("NAME,NAME")],
        ValueType::Wholes => vec![arg.value_name("N,N")],
        ValueType::Toml if key.path == "search.against_api" => vec![arg.value_name("INPUT,OUTPUT[,CACHED]")],
        ValueType::Toml => vec![arg.value_name("NAME=NUMBER,…")],
    }
    .into_iter()
    .map(|arg| arg.aliases(foreign::aliases(flag)))
    .map(|arg| match flag {
        "concurrency" => arg.visible_alias("users").conflicts_with("rate"),
        "tpot-p99" => arg.conflicts_with("tokens-per-s-user"),
        _ => arg,
    })
    .collect()
}

/// Parses the text of a flag as a value of its key.
pub(crate) fn value(key: &SpecKey, text: &str) -> Result<Value, String> {
    let accepted = |what: &str| format!("accepted: {what}");
    let whole = |text: &str| {
        number::whole(text).map(Value::from).ok_or_else(|| accepted("a whole number, as 4096 or 8k"))
    };
    let words = || text.split(',').map(str::trim);
    match (key.kind, Unit::of_key(key.path)) {
        (ValueType::Whole, _) => whole(text),
        (ValueType::Toml, _) if key.path == "search.against_api" => prices(text),
        (ValueType::Toml, _) => numbers_by_name(text),
        (ValueType::Wholes, _) if text.contains("..") => swept::settings(key.path, text).map(Value::from),
        (ValueType::Wholes, _) => Ok(words().map(whole).collect::<Result<Vec<_>, _>>()?.into()),
        (ValueType::Real, _) if key.section() == "slo" && text == NO_BOUND => Ok(text.into()),
        (ValueType::Real, None) => number::real(text).map(Value::from).ok_or_else(|| accepted("a number")),
        (ValueType::Real, Some(unit)) => {
            let time = number::time(text, unit).filter(|time| !lacks_unit(key.name(), text, *time));
            let time = time.map(Value::from);
            let none = if key.section() == "slo" { ", or none" } else { "" };
            let small = number::real(text).map_or("", |_| "; a time this short with its unit, as 1s or 1ms");
            time.ok_or_else(|| accepted(&format!("{}, or a time as 50ms or 2s{none}{small}", unit.name())))
        }
        (ValueType::Switch, _) => {
            text.parse::<bool>().map(Value::from).map_err(|_| accepted("true or false"))
        }
        (ValueType::Words, _) if words().any(str::is_empty) => {
            Err(accepted("names with commas between them"))
        }
        (ValueType::Words, _) => Ok(words().map(Value::from).collect::<Vec<_>>().into()),
        (ValueType::Word, _) if text.trim().is_empty() => Err(accepted("a name")),
        (ValueType::Word, _) => Ok(text.into()),
    }
}

/// An API's prices: those of prompts, outputs and, if there are three, cached prompts, by order or by name.
fn prices(text: &str) -> Result<Value, String> {
    const NAMES: [&str; 3] = ["input", "output", "cached"];
    let accepted = || {
        "accepted: dollars per million prompt and output tokens, as in 0.28,0.42 or input=0.28,output=0.42"
            .to_owned()
    };
    if text.contains('=') {
        return numbers_by_name(text).map_err(|_| accepted());
    }
    let numbers: Option<Vec<f64>> =
        text.split(',').map(|usd| number::real(usd.trim().trim_start_matches('$'))).collect();
    let numbers = numbers.filter(|all| (2..=3).contains(&all.len())).ok_or_else(accepted)?;
    let pairs = NAMES.iter().zip(numbers).map(|(name, usd)| ((*name).to_owned(), Value::from(usd)));
    Ok(Value::Table(pairs.collect()))
}

/// A table from names to numbers, as in `h100-sxm=2.1,mi355x=4`.
fn numbers_by_name(text: &str) -> Result<Value, String> {
    let pair = |pair: &str| {
        let (name, number) = pair.split_once('=')?;
        let number = number::real(number.trim().trim_start_matches('$'))?;
        (!name.trim().is_empty()).then(|| (name.trim().to_owned(), Value::from(number)))
    };
    let table: Option<Table> = text.split(',').map(pair).collect();
    table
        .map(Value::Table)
        .ok_or_else(|| "accepted: names with numbers, as in h100-sxm=2.1,mi355x=4".to_owned())
}
