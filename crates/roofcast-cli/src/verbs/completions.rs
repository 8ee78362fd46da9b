//! `roofcast completions SHELL`.

use crate::args::{Cli, CompletionsArgs};
use clap::CommandFactory;
use std::process::ExitCode;

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "roofcast", &mut script);
    crate::show::text(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
