//! The binary `roofcast`: see the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    roofcast_cli::main()
}
