//! Finished cells of sweeps in a folder of Parquet files, so that runs on many machines, or after a restart, compute
//! each cell once.
//!
//! Knows: a cell's key and its answer, as text. A file's name is derived from its keys, and a file appears whole or not
//! at all, so that several processes may store cells in one folder. Knows nothing about the content of an answer or its
//! sweep.

use crate::show::target::Target;
use anyhow::{Context, Result, bail};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::Field;
use parquet::schema::parser::parse_message_type;
use roofcast::Error;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SCHEMA: &str = "message cell { required binary key (UTF8); required binary answer (UTF8); }";

/// Key of a cell: the SHA-256 hash of everything written to this value.
#[derive(Default)]
pub(crate) struct Key(Sha256);

impl fmt::Write for Key {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

impl Key {
    /// The hash in hexadecimal digits.
    pub(crate) fn text(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A folder of cells.
pub(crate) struct Cells {
    folder: PathBuf,
    known: BTreeMap<String, String>,
}

impl Cells {
    /// Opens `folder`, which is created if it is absent.
    pub(crate) fn open(folder: &Path) -> Result<Cells> {
        let place = || folder.display().to_string();
        if folder.exists() && !folder.is_dir() {
            let accepted = "a folder, which is made where it is absent";
            return Err(
                Error::field("arguments", "--cells", format!("{:?}, a file", place()), accepted).into()
            );
        }
        std::fs::create_dir_all(folder).with_context(place)?;
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).with_context(place)? {
            files.push(entry.with_context(place)?.path());
        }
        files.retain(|file| file.extension().is_some_and(|e| e == "parquet"));
        files.sort();
        let mut known = BTreeMap::new();
        for file in &files {
            read(file, &mut known).with_context(|| file.display().to_string())?;
        }
        Ok(Cells { folder: folder.to_owned(), known })
    }

    /// The stored answer of the cell `key`, if there is one.
    pub(crate) fn answer(&self, key: &str) -> Option<&str> {
        self.known.get(key).map(String::as_str)
    }

    /// All answers, by key.
    pub(crate) fn into_answers(self) -> BTreeMap<String, String> {
        self.known
    }

    /// Stores cells, each a key and its answer, in a new file.
    pub(crate) fn keep(&self, cells: &[(String, String)]) -> Result<()> {
        if cells.is_empty() {
            return Ok(());
        }
        let mut name = Key::default();
        cells.iter().try_for_each(|(key, _)| name.write_str(key))?;
        let file = self.folder.join(format!("{}.parquet", name.text()));
        Target::of("--cells", &file)?.write(|out| write(out, cells).map_err(std::io::Error::other))
    }
}

fn write(out: impl Write + Send, cells: &[(String, String)]) -> Result<(), ParquetError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?));
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties.build()))?;
    let mut group = writer.next_row_group()?;
    for of in [
        |(key, _): &(String, String)| key.as_str().into(),
        |(_, answer): &(String, String)| answer.as_str().into(),
    ] {
        let values: Vec<ByteArray> = cells.iter().map(of).collect();
        if let Some(mut column) = group.next_column()? {
            column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            column.close()?;
        }
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

fn read(file: &Path, known: &mut BTreeMap<String, String>) -> Result<()> {
    let reader = SerializedFileReader::new(File::open(file)?)?;
    for row in reader.get_row_iter(None)? {
        let row = row?;
        let mut fields = row.get_column_iter();
        match (fields.next(), fields.next()) {
            (Some((key, Field::Str(of))), Some((answer, Field::Str(text))))
                if key == "key" && answer == "answer" =>
            {
                known.insert(of.clone(), text.clone());
            }
            _ => bail!("no file of cells; accepted: columns `key` and `answer`"),
        }
    }
    Ok(())
}
/// Answers stored in `folder`, by key.
///
/// # Errors A message about a file that cannot be read, or that has no answers.
pub fn kept(folder: &Path) -> std::result::Result<BTreeMap<String, String>, String> {
    Cells::open(folder).map(Cells::into_answers).map_err(|e| format!("{e:#}"))
}

/// Stores answers in `folder`, each a key and a text, in a file that appears whole or not at all.
///
/// # Errors A message about a folder or file that cannot be written.
pub fn keep(folder: &Path, answers: &[(String, String)]) -> std::result::Result<(), String> {
    Cells::open(folder).and_then(|cells| cells.keep(answers)).map_err(|e| format!("{e:#}"))
}
