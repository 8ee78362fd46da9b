//! stub while the fit is rewritten
use crate::args::CalibrateArgs;
use std::process::ExitCode;
pub(crate) fn run(_: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not yet")
}
