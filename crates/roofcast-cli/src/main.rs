//! The binary `roofcast`; see the library of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    roofcast_cli::main()
}
