//! Tables of kernel times as Parquet: files, or folders of them, in the layout of AIConfigurator's database.

use anyhow::{Context, Result, bail};
use roofcast::Catalog;
use roofcast::kernel::Kernels;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Folders within each other that are looked into.
const DEEPEST: usize = 16;

/// Kernel times, and the names of what is not modelled, each once.
pub(crate) type Tables = (Kernels, BTreeSet<String>);

/// Reads the tables at `paths`, in the order of their names.
pub(crate) fn read(paths: &[PathBuf], catalog: &Catalog) -> Result<Tables> {
    let mut files = Vec::new();
    for path in paths {
        let before = files.len();
        find(path, DEEPEST, &mut files)?;
        if files.len() == before {
            bail!("{}: no tables; accepted: a .parquet file or a folder with such files", path.display());
        }
    }
    let mut all = (Kernels::default(), BTreeSet::new());
    for (kernels, unread) in parquet::read(&files, catalog)? {
        all.0.all.extend(kernels.all);
        all.0.skipped += kernels.skipped;
        all.1.extend(unread);
    }
    Ok(all)
}

/// Every `.parquet` file at or under `path`; links are not followed.
fn find(path: &Path, deep: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    let place = || path.display().to_string();
    if !path.is_dir() {
        if path.extension().is_none_or(|e| e != "parquet") {
            bail!("{}: not a table; accepted: a .parquet file or a folder with such files", place());
        }
        files.push(path.to_owned());
        return Ok(());
    }
    if deep == 0 {
        bail!("{}: more than {DEEPEST} folders within each other", place());
    }
    let mut entries =
        std::fs::read_dir(path).with_context(place)?.collect::<Result<Vec<_>, _>>().with_context(place)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type().with_context(place)?;
        let within = entry.path();
        if kind.is_dir() || kind.is_file() && within.extension().is_some_and(|e| e == "parquet") {
            find(&within, deep - 1, files)?;
        }
    }
    Ok(())
}

#[cfg(not(feature = "parquet"))]
mod parquet {
    use super::{Catalog, PathBuf, Result, Tables, bail};

    pub(super) fn read(_: &[PathBuf], _: &Catalog) -> Result<Vec<Tables>> {
        bail!("--kernels: this build reads no Parquet; accepted: a build with the feature `parquet`")
    }
}

#[cfg(feature = "parquet")]
mod parquet {
    use super::{BTreeSet, Catalog, Context, Kernels, Path, PathBuf, Result, Tables};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Field, Row};
    use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
    use roofcast::kernel::database::{Found, Row as Columns, Table, taken};
    use std::fs::File;

    /// A row by the names of its columns.
    struct Line<'a>(&'a Row);

    impl Columns for Line<'_> {
        fn text(&self, column: &str) -> Option<&str> {
            self.0.get_column_iter().find(|(name, _)| *name == column).and_then(|(_, field)| match field {
                Field::Str(text) => Some(text.as_str()),
                _ => None,
            })
        }

        fn number(&self, column: &str) -> Option<f64> {
            let (_, field) = self.0.get_column_iter().find(|(name, _)| *name == column)?;
            Some(match field {
                Field::Int(v) => f64::from(*v),
                Field::UInt(v) => f64::from(*v),
                Field::Long(v) => *v as f64,
                Field::ULong(v) => *v as f64,
                Field::Float(v) => f64::from(*v),
                Field::Double(v) => *v,
                _ => return None,
            })
        }
    }

    pub(super) fn read(files: &[PathBuf], catalog: &Catalog) -> Result<Vec<Tables>> {
        files.par_iter().map(|file| table(file, catalog)).collect()
    }

    /// One table, a row at a time.
    fn table(file: &Path, catalog: &Catalog) -> Result<Tables> {
        let place = file.display().to_string();
        let mut kernels = Kernels::default();
        let mut unread = BTreeSet::new();
        let slashed = file.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/");
        let table = match Table::of(&slashed, catalog)? {
            Found::Read(table) => table,
            Found::Skipped => return Ok((kernels, unread)),
            Found::Unread(name) => {
                unread.insert(name);
                return Ok((kernels, unread));
            }
        };
        let reader = SerializedFileReader::new(File::open(file).with_context(|| place.clone())?);
        let reader = reader.with_context(|| place.clone())?;
        let rows = reader.metadata().file_metadata().num_rows().max(0) as u64;
        for (index, row) in (0..).zip(reader.get_row_iter(None).with_context(|| place.clone())?) {
            let row = row.with_context(|| place.clone())?;
            if !taken(index, rows) {
                continue;
            }
            match table.row(index, &Line(&row))? {
                Found::Read(kernel) => kernels.all.push(kernel),
                Found::Skipped => kernels.skipped += 1,
                Found::Unread(name) => {
                    kernels.skipped += 1;
                    unread.insert(name);
                }
            }
        }
        Ok((kernels, unread))
    }
}
