//! A verb's arguments, built only when the verb is called, so that each start does not build the arguments of all
//! verbs.
//!
//! Knows: `Command::defer`. A caller that lists the arguments of all verbs calls `Command::build` first.

use super::help::arranged;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use std::ops::Deref;

/// The arguments `A` of a verb, boxed.
#[derive(Debug)]
pub(crate) struct Later<A>(Box<A>);

impl<A> Deref for Later<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.0
    }
}

impl<A: Args> Args for Later<A> {
    fn augment_args(command: Command) -> Command {
        command.defer(|command| {
            // The verb's own description takes precedence over the description of its arguments.
            let about = command.get_about().cloned().unwrap_or_default();
            arranged(signed(A::augment_args(command).about(about)))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<A: FromArgMatches> FromArgMatches for Later<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Later(Box::new(A::from_arg_matches(matches)?)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// Allows negative numbers as values, so that the error for `-1` names the accepted values instead of an unknown flag.
pub(crate) fn signed(command: Command) -> Command {
    command.allow_negative_numbers(true).mut_subcommands(signed)
}
