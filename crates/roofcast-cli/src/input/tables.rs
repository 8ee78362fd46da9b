//! Tables of kernel times as Parquet: files, or folders of files, in the layout of AIConfigurator's database.

use anyhow::{Context, Result, bail};
use roofcast::Catalog;
use roofcast::profile::build::TableContents;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Deepest level of nested folders that is searched.
const DEEPEST: usize = 16;

/// Contents of the tables, and the names of files that are not used with the number of each.
#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) readings: Vec<TableContents>,
    pub(crate) unused: BTreeMap<String, usize>,
}

/// Reads the tables of the files and folders `paths`.
pub(crate) fn read(paths: &[PathBuf], catalog: &Catalog) -> Result<Tables> {
    let mut files = Vec::new();
    for path in paths {
        let before = files.len();
        find(path, DEEPEST, &mut files)?;
        if files.len() == before {
            bail!("{}: no tables; accepted: a .parquet file or a folder with such files", path.display());
        }
    }
    let mut tables = Tables::default();
    for read in parquet::read(&files, catalog)? {
        match read {
            Ok(reading) => tables.readings.push(reading),
            Err(unused) => *tables.unused.entry(unused).or_default() += 1,
        }
    }
    Ok(tables)
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
    use super::{Catalog, PathBuf, Result, TableContents, bail};

    pub(super) fn read(_: &[PathBuf], _: &Catalog) -> Result<Vec<Result<TableContents, String>>> {
        bail!("--kernels: this build reads no Parquet; accepted: a build with the feature `parquet`")
    }
}

#[cfg(feature = "parquet")]
mod parquet {
    use super::{Catalog, Context, Path, PathBuf, Result, TableContents, bail};
    use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
    use parquet::data_type::{ByteArray, DataType};
    use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
    use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
    use roofcast::profile::build::{Columns, TableSource};
    use std::fs::File;

    /// The table of each file, or the name of a file that is not used.
    pub(super) fn read(files: &[PathBuf], catalog: &Catalog) -> Result<Vec<Result<TableContents, String>>> {
        files.par_iter().map(|file| table(file, catalog)).collect()
    }

    fn table(file: &Path, catalog: &Catalog) -> Result<Result<TableContents, String>> {
        let place = file.display().to_string();
        let slashed = file.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/");
        let source = match TableSource::of(&slashed, catalog)? {
            Ok(source) => source,
            Err(unused) => return Ok(Err(unused)),
        };
        let reader = File::open(file).with_context(|| place.clone())?;
        let reader = SerializedFileReader::new(reader).with_context(|| place.clone())?;
        let columns = columns(&place, &source, &reader).with_context(|| place.clone())?;
        Ok(Ok(source.read(&columns)?))
    }

    /// Reads the columns that `source` asks for, if the file has them.
    fn columns(
        place: &str,
        source: &TableSource<'_>,
        reader: &SerializedFileReader<File>,
    ) -> Result<Columns> {
        let groups = (0..reader.num_row_groups()).map(|at| reader.get_row_group(at));
        let groups = groups.collect::<Result<Vec<_>, _>>()?;
        let schema = reader.metadata().file_metadata().schema_descr();
        let at = |name: &str| schema.columns().iter().position(|c| c.path().parts() == [name]);
        let mut columns = Columns::new(place);
        for name in source.words() {
            let Some(at) = at(name) else { continue };
            let mut words = Vec::new();
            for group in &groups {
                words.extend(read_words(name, group.as_ref(), at)?);
            }
            let texts = words.iter().map(|word| word.as_utf8()).collect::<Result<Vec<_>, _>>()?;
            columns.add_words(name, texts);
        }
        for name in source.numbers() {
            let Some(at) = at(name) else { continue };
            let mut numbers = Vec::new();
            for group in &groups {
                numbers.extend(read_numbers(name, group.as_ref(), at)?);
            }
            columns.add_numbers(name, numbers);
        }
        Ok(columns)
    }

    fn read_words(name: &str, group: &dyn RowGroupReader, at: usize) -> Result<Vec<ByteArray>> {
        match group.get_column_reader(at)? {
            ColumnReader::ByteArrayColumnReader(reader) => all(reader, group, |v| v.clone(), || "".into()),
            _ => bail!("column `{name}` is not of words"),
        }
    }

    fn read_numbers(name: &str, group: &dyn RowGroupReader, at: usize) -> Result<Vec<f64>> {
        let none = || f64::NAN;
        match group.get_column_reader(at)? {
            ColumnReader::Int32ColumnReader(reader) => all(reader, group, |v| f64::from(*v), none),
            ColumnReader::Int64ColumnReader(reader) => all(reader, group, |v| *v as f64, none),
            ColumnReader::FloatColumnReader(reader) => all(reader, group, |v| f64::from(*v), none),
            ColumnReader::DoubleColumnReader(reader) => all(reader, group, |v| *v, none),
            _ => bail!("column `{name}` is not of numbers"),
        }
    }

    /// Reads every row of a column without repetition; null becomes `none`.
    fn all<T: DataType, V>(
        mut reader: ColumnReaderImpl<T>,
        group: &dyn RowGroupReader,
        value: impl Fn(&T::T) -> V,
        none: impl Fn() -> V,
    ) -> Result<Vec<V>> {
        let rows = usize::try_from(group.metadata().num_rows())?;
        let mut values = Vec::new();
        let mut levels = Vec::new();
        let mut read = 0;
        while read < rows {
            let (records, _, _) = reader.read_records(rows - read, Some(&mut levels), None, &mut values)?;
            if records == 0 {
                bail!("{read} rows in a column; accepted: {rows}, as its row group says");
            }
            read += records;
        }
        // A column that cannot be null has no definition levels.
        if levels.is_empty() {
            return Ok(values.iter().map(value).collect());
        }
        let mut present = values.iter();
        let row = |level: &i16| if *level > 0 { present.next().map(&value) } else { None };
        Ok(levels.iter().map(row).map(|v| v.unwrap_or_else(&none)).collect())
    }
}
