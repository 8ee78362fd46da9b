//! `roofcast init`: writes a spec to begin with.

use super::simulate::DEFAULT;
use crate::args::InitArgs;
use crate::show;
use crate::show::target::Target;
use anyhow::Result;
use roofcast::{Error, Spec, resolved};
use std::process::ExitCode;

pub(crate) fn run(args: &InitArgs) -> Result<ExitCode> {
    let (place, text) = DEFAULT;
    let spec = Spec::parse(place, text)?;
    let table = text.parse().map_err(|e| Error::field(place, "spec", e, "TOML"))?;
    let mut out =
        "# roofcast simulate, or limits, capacity and plan: each reads the sections that it needs.\n\
                   # Keys behind # are not set; their defaults are in brackets.\n\n"
            .to_owned();
    out += &resolved::starter(&table, &spec);
    let Some(file) = &args.file else {
        show::text(&out)?;
        return Ok(ExitCode::SUCCESS);
    };
    if file.symlink_metadata().is_ok() {
        let shown_path = format!("{:?}, which is there already", file.display().to_string());
        return Err(Error::field("arguments", "SPEC.toml", shown_path, "the name of a new file").into());
    }
    Target::of("SPEC.toml", file)?.text(&out)?;
    Ok(ExitCode::SUCCESS)
}
