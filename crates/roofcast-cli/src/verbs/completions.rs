//! `roofcast completions SHELL`: a completion script, which also completes ids of the embedded catalog, formats,
//! workloads and schedulers.

use crate::args::{Cli, CompletionsArgs};
use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory};
use roofcast::Catalog;
use roofcast::precision::{KvFormat, WeightFormat};
use roofcast::spec::SchedulerKind;
use std::process::ExitCode;

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let catalog = Catalog::embedded()?;
    // A vendor's name of a card contains spaces, and so cannot be completed as one shell word.
    let word = |name: &&str| !name.contains(char::is_whitespace);
    let models: Vec<&str> = catalog.model_names().filter(word).collect();
    let chips: Vec<&str> = catalog.accelerator_names().filter(word).collect();
    let values = [
        ("name", [models.as_slice(), &chips].concat()),
        ("model", models),
        ("hardware", chips),
        ("weights", WeightFormat::names()),
        ("format", WeightFormat::names()),
        ("kv", KvFormat::names()),
        ("workload", catalog.workloads()?.iter().map(|preset| preset.id.as_str()).collect()),
        ("scheduler", SchedulerKind::ALL.iter().map(|kind| kind.name()).collect()),
    ];
    let mut program = Cli::command();
    program.build();
    let mut command = completing(program, &values);
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "roofcast", &mut script);
    crate::show::text(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// The command with possible values for the named arguments, in every verb. Only for the script, because the program
/// accepts other values as well.
fn completing(command: Command, values: &[(&'static str, Vec<&'static str>)]) -> Command {
    let mut command = command;
    for (name, of) in values {
        if command.get_arguments().any(|a| a.get_id() == name) {
            command = command.mut_arg(name, |a| a.value_parser(PossibleValuesParser::new(of.clone())));
        }
    }
    command.mut_subcommands(|verb| completing(verb, values))
}
