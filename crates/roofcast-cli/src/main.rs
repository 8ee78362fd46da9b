//! `roofcast`: forecasts how large language models are served.
//!
//! Knows: arguments, files and output. The arithmetic is the library's.

mod args;
mod bench;
mod emulate;
mod exit;
mod input;
mod measure;
mod show;
mod verbs;

use args::{Cli, HardwareArgs, HardwareVerb, Verb};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => exit::fail(&error),
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.verb {
        Verb::Limits(args) => verbs::limits::run(&args),
        Verb::Capacity(args) => verbs::capacity::run(&args),
        Verb::Plan(args) => verbs::plan::run(&args),
        Verb::Simulate(args) => verbs::simulate::run(&args),
        Verb::Bench(args) => verbs::bench::run(&args),
        Verb::Emulate(args) => verbs::emulate::run(&args),
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
