//! Errors of a spec, attributed to the settings that caused them.
//!
//! Knows: settings and their flags. Knows nothing about files.

use roofcast::Error;
use roofcast::spec::settings::Setting;

/// An error about a setting's value, with the flag that gave the value if there is one.
pub(super) fn by_flag(error: Error, settings: &[Setting]) -> Error {
    match error {
        Error::Field { place, field, found, accepted } => {
            let setting = settings.iter().find(|setting| setting.path == field);
            let field = setting.map_or(field, Setting::name);
            Error::Field { place, field, found, accepted }
        }
        other => other,
    }
}

/// Index of the setting to which an error refers.
pub(super) fn refused(error: &Error, settings: &[Setting]) -> Option<usize> {
    let Error::Parse { message, .. } = error else { return None };
    settings.iter().position(|setting| {
        let last = setting.path.rsplit('.').next().unwrap_or(&setting.path);
        message.starts_with(&format!("`{}`", setting.path))
            || message.contains(&format!("unknown field `{last}`"))
    })
}

/// The error for a setting that requires another setting, if that is why a section cannot be read.
pub(super) fn lacking(message: &str, settings: &[Setting]) -> Option<Error> {
    let needs = [
        (
            "workload.arrivals.think_s",
            "unknown field `think_s`",
            "it with --concurrency or --turns: users who think",
        ),
        ("workload.prefix.", "`workload.prefix.length` is missing", "it with --prefix-len"),
    ];
    let (path, _, accepted) = needs.into_iter().find(|(_, told, _)| message.contains(told))?;
    let setting = settings.iter().find(|setting| setting.path.starts_with(path))?;
    Some(Error::field("arguments", setting.name(), "given without the others", accepted))
}

/// Joins several errors of one question, a line each.
pub(super) fn together(errors: impl IntoIterator<Item = anyhow::Error>) -> anyhow::Error {
    let mut all: Vec<anyhow::Error> = errors.into_iter().collect();
    match all.len() {
        1 => all.remove(0),
        _ => anyhow::anyhow!(all.iter().map(|error| format!("{error:#}")).collect::<Vec<_>>().join("\n")),
    }
}
