//! `roofcast man [VERB]`: the man page of the program or of a verb, from its arguments.

use crate::args::{Cli, ManArgs};
use crate::show;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use roofcast::Error;
use std::process::ExitCode;

pub(crate) fn run(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let mut program = Cli::command();
    program.build();
    let page = match &args.verb {
        None => program,
        Some(verb) => named(&program, verb)?,
    };
    let mut text = Vec::new();
    Man::new(page).render(&mut text)?;
    show::text(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// The verb `verb` as a command, under the name `roofcast VERB`.
fn named(program: &Command, verb: &str) -> Result<Command, Error> {
    let verbs: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
    let unknown = || Error::field("arguments", "VERB", format!("{verb:?}"), verbs.join(", "));
    let subcommand = program.find_subcommand(verb).ok_or_else(unknown)?;
    Ok(subcommand.clone().name(format!("roofcast-{verb}")))
}
