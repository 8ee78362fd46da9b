//! `roofcast`: forecasts how large language models are served.
//!
//! Knows: arguments, files and output. The library `roofcast` has the arithmetic. The binary calls [`main`]; a
//! program that calls the verbs itself, as the Python package does, calls [`ask::answer`].
// Without the network feature some helpers of servers and load generators have no caller.
#![cfg_attr(not(feature = "network"), allow(dead_code, unused_imports))]

mod args;
pub mod ask;
#[cfg(feature = "network")]
mod bench;
#[cfg(feature = "parquet")]
pub mod cells;
mod exit;
pub mod host;
mod input;
mod measure;
mod page;
#[cfg(feature = "schema")]
mod schemas;
#[cfg(feature = "network")]
mod serve;
mod show;
mod swept;
mod verbs;

use args::{Cli, Files, HardwareArgs, HardwareVerb, Verb, grouped, signed};
use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::LazyLock;

/// The version with the build's features, which determine the available verbs and file formats.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let features = [
        ("network", cfg!(feature = "network")),
        ("parquet", cfg!(feature = "parquet")),
        ("schema", cfg!(feature = "schema")),
        ("tokenizers", cfg!(feature = "tokenizers")),
        ("page", page::PAGE.is_some()),
    ];
    let with: Vec<&str> = features.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    let with = if with.is_empty() { "no features".to_owned() } else { with.join(", ") };
    format!("{} ({with})", env!("CARGO_PKG_VERSION"))
});

/// The program: arguments of the process, output on its streams.
pub fn main() -> ExitCode {
    // With a handler, exceeding `ulimit -f` is an error of the write, whose writer removes the partial file, rather
    // than the end of the process. If the handler cannot be installed, the signal ends the process as by default.
    #[cfg(unix)]
    drop(signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default()));
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(refused) = exit::overlong(&arguments) {
        return refused;
    }
    match parsed(arguments.iter().cloned()) {
        Ok((cli, files)) => run(cli, &files).unwrap_or_else(|error| exit::fail(&error)),
        Err(error) => exit::misused(&error, arguments, |rest| parsed(rest.into_iter()).err()),
    }
}

/// Parses the arguments; returns them with the files that they name.
fn parsed(arguments: impl Iterator<Item = impl Into<OsString> + Clone>) -> Result<(Cli, Files), clap::Error> {
    let mut command = grouped(signed(Cli::command().version(VERSION.as_str())));
    let matches = command.try_get_matches_from_mut(arguments)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    Ok((cli, Files::of(&matches)))
}

fn run(cli: Cli, files: &Files) -> anyhow::Result<ExitCode> {
    files.check()?;
    show::table::set_wide(cli.wide);
    match cli.verb {
        Verb::Limits(args) => verbs::limits::run(&args),
        Verb::Capacity(args) => verbs::capacity::run(&args),
        Verb::Plan(args) => verbs::plan::run(&args),
        Verb::Simulate(args) => verbs::simulate::run(&args),
        #[cfg(feature = "network")]
        Verb::Bench(args) => verbs::bench::run(&args),
        #[cfg(feature = "network")]
        Verb::Emulate(args) => verbs::emulate::run(&args),
        #[cfg(feature = "network")]
        Verb::Serve(args) => serve::run(&args),
        Verb::Seeds(args) => verbs::seeds::run(&args),
        Verb::Catalog(args) => verbs::catalog::run(&args),
        Verb::Conformance(args) => verbs::conformance::run(&args),
        Verb::Hardware(HardwareArgs { verb: HardwareVerb::Measure(args) }) => verbs::hardware::run(&args),
        Verb::Calibrate(args) => verbs::calibrate::run(&args),
        Verb::Validate(args) => verbs::validate::run(&args),
        Verb::Keys(args) => verbs::keys::run(&args),
        #[cfg(feature = "schema")]
        Verb::Schema(args) => verbs::schema::run(&args),
        Verb::Init(args) => verbs::init::run(&args),
        Verb::Completions(args) => verbs::completions::run(&args),
        Verb::Man(args) => verbs::man::run(&args),
    }
}
