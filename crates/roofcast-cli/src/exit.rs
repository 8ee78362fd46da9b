//! Exit codes: 0; 2 bad input; 3 invalid measurement; 4 a valid question without a feasible answer.

use std::io::Write;
use std::process::ExitCode;

/// A valid question without a feasible answer.
pub(crate) fn infeasible() -> ExitCode {
    ExitCode::from(4)
}

/// A measurement that is not to be believed.
pub(crate) fn invalid() -> ExitCode {
    ExitCode::from(3)
}

/// Prints one line on stderr; bad input ends with 2. A closed pipe is no error: the reader had enough.
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    let closed = error.chain().any(|e| {
        e.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    });
    if closed {
        return ExitCode::SUCCESS;
    }
    // Nothing is left to do where stderr is closed, too.
    drop(writeln!(std::io::stderr(), "roofcast: {error:#}"));
    ExitCode::from(2)
}
