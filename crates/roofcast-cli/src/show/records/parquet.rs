//! Records as Parquet: the columns of the CSV, typed; absent values are null, and the gaps between chunks are a list.

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use roofcast::record::Record;
use roofcast::units::Picoseconds;
use std::io::Write;
use std::sync::Arc;

const SCHEMA: &str = "message record {
    required int64 id;
    required binary outcome (UTF8);
    required int64 input_len;
    required int64 output_len;
    required double scheduled_ms;
    required double sent_ms;
    optional double first_token_ms;
    required double finished_ms;
    repeated double itl_ms;
    required int64 cached_tokens;
    required int64 preemptions;
    required int64 replica;
    optional binary error (UTF8);
    optional double ttft_ms;
    optional double tpot_ms;
    optional double e2el_ms;
}";

/// Number of records in a row group.
const GROUP: usize = 1 << 17;

/// Values of a column in a row group, in the order of the schema.
enum Column {
    Counts(Vec<i64>),
    Times(Vec<f64>),
    Maybe(Vec<Option<f64>>),
    /// Values, definition levels and repetition levels of a list; an empty list has one pair of levels and no value.
    Lists(Vec<f64>, Vec<i16>, Vec<i16>),
    Words(Vec<ByteArray>),
    Notes(Vec<Option<ByteArray>>),
}

pub(super) fn write(out: impl Write + Send, records: &[Record]) -> std::io::Result<()> {
    into(out, records).map_err(std::io::Error::other)
}

fn into(out: impl Write + Send, records: &[Record]) -> Result<(), ParquetError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = WriterProperties::builder().set_compression(Compression::UNCOMPRESSED).build();
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    for records in records.chunks(GROUP) {
        let mut group = writer.next_row_group()?;
        for column in columns(records) {
            if let Some(writer) = group.next_column()? {
                column.write(writer)?;
            }
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

fn columns(records: &[Record]) -> [Column; 16] {
    let counts = |of: fn(&Record) -> u64| Column::Counts(records.iter().map(|r| of(r) as i64).collect());
    let times = |of: fn(&Record) -> Picoseconds| Column::Times(records.iter().map(|r| of(r).ms()).collect());
    let maybe = |of: fn(&Record) -> Option<Picoseconds>| {
        Column::Maybe(records.iter().map(|r| of(r).map(Picoseconds::ms)).collect())
    };
    let outcomes = records.iter().map(|r| r.outcome.name().into()).collect();
    let errors = records.iter().map(|r| r.error.as_deref().map(ByteArray::from)).collect();
    [
        counts(|r| r.id),
        Column::Words(outcomes),
        counts(|r| r.input_len),
        counts(|r| r.output_len),
        times(|r| r.scheduled),
        times(|r| r.sent),
        maybe(|r| r.first_token),
        times(|r| r.finished),
        gaps(records),
        counts(|r| r.cached_tokens),
        counts(|r| r.preemptions),
        counts(|r| r.replica),
        Column::Notes(errors),
        maybe(Record::ttft),
        maybe(Record::tpot),
        maybe(|r| r.first_token.map(|_| r.e2el())),
    ]
}

/// The column of gaps. The first value of a list starts a record (repetition level 0); an empty list has no value
/// (definition level 0).
fn gaps(records: &[Record]) -> Column {
    let mut values = Vec::new();
    let mut defined = Vec::new();
    let mut repeated = Vec::new();
    for record in records {
        values.extend(record.itl.iter().map(|t| t.ms()));
        let levels = record.itl.len().max(1);
        defined.extend(std::iter::repeat_n(i16::from(!record.itl.is_empty()), levels));
        repeated.extend((0..levels).map(|i| i16::from(i > 0)));
    }
    Column::Lists(values, defined, repeated)
}

/// The values that are present, and a definition level for each value or null.
fn present<T: Clone>(all: &[Option<T>]) -> (Vec<T>, Vec<i16>) {
    (all.iter().flatten().cloned().collect(), all.iter().map(|v| i16::from(v.is_some())).collect())
}

impl Column {
    fn write(self, mut to: SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        match self {
            Column::Counts(values) => to.typed::<Int64Type>().write_batch(&values, None, None)?,
            Column::Times(values) => to.typed::<DoubleType>().write_batch(&values, None, None)?,
            Column::Words(values) => to.typed::<ByteArrayType>().write_batch(&values, None, None)?,
            Column::Lists(values, defined, repeated) => {
                to.typed::<DoubleType>().write_batch(&values, Some(&defined), Some(&repeated))?
            }
            Column::Maybe(all) => {
                let (values, defined) = present(&all);
                to.typed::<DoubleType>().write_batch(&values, Some(&defined), None)?
            }
            Column::Notes(all) => {
                let (values, defined) = present(&all);
                to.typed::<ByteArrayType>().write_batch(&values, Some(&defined), None)?
            }
        };
        to.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use roofcast::record::csv::COLUMNS;

    /// First record: TTFT 5, TPOT (7 − 5)/(2 − 1), E2EL 7. The second record has no tokens: no times except its own,
    /// and no list.
    #[test]
    fn what_is_written_is_read_back() {
        let lines = [
            r#"{"id":0,"outcome":"completed","input_len":10,"output_len":2,"scheduled_ms":0,"sent_ms":0,"first_token_ms":5,"finished_ms":7,"itl_ms":[0.5,1.5]}"#,
            r#"{"id":1,"outcome":"timeout","input_len":10,"output_len":0,"scheduled_ms":0,"sent_ms":0,"finished_ms":9,"error":"late"}"#,
        ];
        let records = lines.map(|line| Record::from_line("x", line).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.parquet");
        write(std::fs::File::create(&path).unwrap(), &records).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap()).collect();
        let shown = |row: usize| -> Vec<(String, String)> {
            rows[row].get_column_iter().map(|(name, field)| (name.clone(), field.to_string())).collect()
        };
        assert!(shown(0).iter().map(|(name, _)| name.as_str()).eq(COLUMNS));
        let has = |row: usize, name: &str, text: &str| {
            assert!(
                shown(row).contains(&(name.to_owned(), text.to_owned())),
                "{name} {text}: {:?}",
                shown(row)
            );
        };
        has(0, "itl_ms", "[0.5, 1.5]");
        has(0, "ttft_ms", "5.0");
        has(0, "tpot_ms", "2.0");
        has(0, "e2el_ms", "7.0");
        has(1, "outcome", "\"timeout\"");
        has(1, "error", "\"late\"");
        has(1, "itl_ms", "[]");
        has(1, "e2el_ms", "null");
    }
}
