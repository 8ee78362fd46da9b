//! `roofcast`: forecasts how large language models are served.
//!
//! Knows: arguments, files and output. The arithmetic is the library's.

mod args;
mod bench;
mod emulate;
mod exit;
mod http;
mod input;
mod measure;
mod page;
mod serve;
mod show;
mod verbs;

use args::{Cli, HardwareArgs, HardwareVerb, Verb};
use clap::{Command, CommandFactory, FromArgMatches};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut command = signed(Cli::command());
    match command.try_get_matches_from_mut(std::env::args_os()) {
        Ok(found) => match Cli::from_arg_matches(&found) {
            Ok(cli) => run(cli).unwrap_or_else(|error| exit::fail(&error)),
            Err(error) => exit::misused(&error.format(&mut command)),
        },
        Err(error) => exit::misused(&error),
    }
}

/// The command in which `-1` behind a flag is its value, so that the refusal says what the flag takes.
fn signed(command: Command) -> Command {
    command.allow_negative_numbers(true).mut_subcommands(signed)
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    show::table::set_wide(cli.wide);
    match cli.verb {
        Verb::Limits(args) => verbs::limits::run(&args),
        Verb::Capacity(args) => verbs::capacity::run(&args),
        Verb::Plan(args) => verbs::plan::run(&args),
        Verb::Simulate(args) => verbs::simulate::run(&args),
        Verb::Bench(args) => verbs::bench::run(&args),
        Verb::Emulate(args) => verbs::emulate::run(&args),
        Verb::Serve(args) => verbs::serve::run(&args),
        Verb::Seeds(args) => verbs::seeds::run(&args),
        Verb::Catalog(args) => verbs::catalog::run(&args),
        Verb::Conformance(args) => verbs::conformance::run(&args),
        Verb::Hardware(HardwareArgs { verb: HardwareVerb::Measure(args) }) => verbs::hardware::run(&args),
        Verb::Calibrate(args) => verbs::calibrate::run(&args),
        Verb::Validate(args) => verbs::validate::run(&args),
        Verb::Init(args) => verbs::init::run(&args),
        Verb::Completions(args) => verbs::completions::run(&args),
    }
}
