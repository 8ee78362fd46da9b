//! Kernel times: the folder of an engine's profile, and the table of fits.

use crate::input;
use crate::show::number::significant;
use anyhow::{Context, bail};
use roofcast::calibrate::kernels::Fitted;
use roofcast::deployment::Options;
use roofcast::kernel::{self, Kernels};
use roofcast::parallelism::RequestedParallelism;
use roofcast::{Catalog, Deployment};
use std::path::Path;
use std::sync::Arc;

/// The widest tensor parallelism that is looked for.
const WIDEST: u64 = 64;

/// Reads `meta.yaml` (gpu, model) and each `tpN/` with `dense.csv` and `attention.csv`.
pub(super) fn profile(folder: &Path, catalog: &Catalog) -> anyhow::Result<Kernels> {
    let place = folder.join("meta.yaml").display().to_string();
    let meta = input::text(&folder.join("meta.yaml"))?;
    let key = |name: &str| {
        let line = meta.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
        line.map(|v| v.trim().to_owned()).with_context(|| format!("{place}: no `{name}:`"))
    };
    let (gpu, name) = (key("gpu")?, key("model")?);
    let Some(chip) = catalog.device(&gpu) else {
        bail!("{place}: gpu is {gpu:?}; accepted: a name that holds the id of an accelerator in the catalog")
    };
    let model = catalog.named(&name)?.model()?;
    let mut all = Kernels::default();
    for tp in (1..=WIDEST).filter(|tp| folder.join(format!("tp{tp}")).is_dir()) {
        let within = folder.join(format!("tp{tp}"));
        let parallelism =
            RequestedParallelism { count: Some(tp), tp: Some(tp), ..RequestedParallelism::default() };
        let options = Options { parallelism, ..Options::default() };
        let deployment = Deployment::resolve(Arc::new(model.clone()), Arc::new(chip.clone()), &options)?;
        let [dense, attention] = ["dense.csv", "attention.csv"].map(|file| input::text(&within.join(file)));
        let kernels = kernel::profile(&within.display().to_string(), &dense?, &attention?, &deployment)?;
        all.skipped += kernels.skipped;
        all.all.extend(kernels.all);
    }
    if all.all.is_empty() {
        bail!(
            "{}: no kernel times; accepted: a profile with tp1/dense.csv and tp1/attention.csv",
            folder.display()
        )
    }
    Ok(all)
}

/// Columns of the fits.
pub(super) const HEADER: [&str; 16] = [
    "chip",
    "kernel",
    "of",
    "weights",
    "rows",
    "faster",
    "peak",
    "bandwidth",
    "exposed",
    "a head",
    "crossings",
    "mixed rows",
    "+ us",
    "median %",
    "p90 %",
    "limit %",
];

/// Columns that a narrow page does without first.
const SPARE: [usize; 7] = [11, 10, 9, 5, 8, 12, 4];

/// The fits, a line each.
pub(super) fn table(fits: &[Fitted], skipped: u64) -> String {
    let skipped = format!("{skipped} rows are not modelled, stay in caches or are launches alone\n");
    let table = crate::show::table::fitted(&HEADER, &rows(fits), 4, &SPARE);
    format!("\nkernels, judged on the half that was not fitted\n\n{table}{skipped}")
}

/// The fits as cells.
pub(super) fn rows(fits: &[Fitted]) -> Vec<Vec<String>> {
    let share = |s: Option<f64>| s.map_or_else(|| "–".to_owned(), |s| format!("{s:.3}"));
    let percent = |s: f64| format!("{:.1}", s * 100.0);
    let some = |v: Option<f64>| v.map_or_else(|| "–".to_owned(), significant);
    let row = |f: &Fitted| {
        vec![
            f.accelerator.clone(),
            f.part.name().to_owned(),
            [Some(&f.backend), f.version.as_ref(), f.source.as_ref()]
                .into_iter()
                .flatten()
                .cloned()
                .collect::<Vec<_>>()
                .join(" "),
            f.weights.clone().unwrap_or_else(|| "–".to_owned()),
            f.rows.to_string(),
            f.faster.to_string(),
            share(f.compute),
            share(f.memory),
            share(f.exposed),
            share(f.group),
            some(f.crossings),
            some(f.mixed_rows),
            significant(f.launch_us),
            percent(f.median_error),
            percent(f.p90_error),
            percent(f.limit_median_error),
        ]
    };
    fits.iter().map(row).collect()
}
