//! Tables as Arrow: the columns of records, and of rows of a JSON document.
//!
//! Knows: Arrow's types and its C interface
//! (<https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>). Consumers read the columns without
//! a copy.

use crate::error::Error;
use arrow_array::builder::{ListBuilder, PrimitiveBuilder};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::Float64Type;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
    UInt64Array,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use roofcast::record::Record;
use roofcast::units::Picoseconds;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Columns of equal length. pandas, polars, pyarrow and DuckDB read a table through __arrow_c_stream__.
#[pyclass(frozen, module = "roofcast._native")]
pub(crate) struct Table {
    batch: RecordBatch,
}

#[pymethods]
impl Table {
    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("Table({} rows: {})", self.batch.num_rows(), self.column_names().join(", "))
    }

    /// The types of the columns, as an Arrow schema capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema().as_ref()).map_err(refused)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The columns, as an Arrow stream capsule. A requested schema is ignored, as the protocol allows: the consumer
    /// converts.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

fn refused(error: arrow_schema::ArrowError) -> PyErr {
    Error::new_err(error.to_string())
}

fn of_columns(columns: Vec<(String, ArrayRef)>) -> PyResult<Table> {
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    Ok(Table { batch: RecordBatch::try_from_iter_with_nullable(columns).map_err(refused)? })
}

impl Table {
    /// Creates a table of `records`, with the columns of their CSV and Parquet files.
    pub(crate) fn of_records(records: &[Record]) -> PyResult<Table> {
        let counts = |of: fn(&Record) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(records.iter().map(of)))
        };
        let times = |of: fn(&Record) -> Option<Picoseconds>| -> ArrayRef {
            Arc::new(Float64Array::from_iter(records.iter().map(|r| of(r).map(Picoseconds::ms))))
        };
        let mut gaps = ListBuilder::new(PrimitiveBuilder::<Float64Type>::new());
        for record in records {
            gaps.append_value(record.itl.iter().map(|t| Some(t.ms())));
        }
        let outcomes = StringArray::from_iter_values(records.iter().map(|r| r.outcome.name()));
        let errors = StringArray::from_iter(records.iter().map(|r| r.error.as_deref()));
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("id", counts(|r| r.id)),
            ("outcome", Arc::new(outcomes)),
            ("input_len", counts(|r| r.input_len)),
            ("output_len", counts(|r| r.output_len)),
            ("scheduled_ms", times(|r| Some(r.scheduled))),
            ("sent_ms", times(|r| Some(r.sent))),
            ("first_token_ms", times(|r| r.first_token)),
            ("finished_ms", times(|r| Some(r.finished))),
            ("itl_ms", Arc::new(gaps.finish())),
            ("cached_tokens", counts(|r| r.cached_tokens)),
            ("preemptions", counts(|r| r.preemptions)),
            ("replica", counts(|r| r.replica)),
            ("error", Arc::new(errors)),
            ("ttft_ms", times(Record::ttft)),
            ("tpot_ms", times(Record::tpot)),
            ("e2el_ms", times(|r| r.first_token.map(|_| r.e2el()))),
        ];
        of_columns(columns.into_iter().map(|(name, column)| (name.to_owned(), column)).collect())
    }
}

/// Creates a table of the rows of a JSON list. Keys of nested objects are joined by points; nested lists stay JSON.
#[pyfunction]
pub(crate) fn table(json: &str) -> PyResult<Table> {
    let rows: Vec<Map<String, Value>> = serde_json::from_str(json)
        .map_err(|e| Error::new_err(format!("table: {e}; accepted: a list of objects")))?;
    let flat: Vec<Map<String, Value>> = rows.into_iter().map(|row| flattened("", row)).collect();
    let mut names: Vec<String> = Vec::new();
    for name in flat.iter().flat_map(Map::keys) {
        // Most rows have equal keys in equal order, which the check for known names makes fast.
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let columns = names.into_iter().map(|name| {
        let values: Vec<&Value> = flat.iter().map(|row| row.get(&name).unwrap_or(&Value::Null)).collect();
        let column = column(&values);
        (name, column)
    });
    of_columns(columns.collect())
}

fn flattened(prefix: &str, row: Map<String, Value>) -> Map<String, Value> {
    let mut flat = Map::new();
    for (key, value) in row {
        let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        match value {
            Value::Object(inner) => flat.extend(flattened(&name, inner)),
            other => drop(flat.insert(name, other)),
        }
    }
    flat
}

/// Creates a column of the narrowest type that holds every value.
fn column(values: &[&Value]) -> ArrayRef {
    let all = |is: fn(&Value) -> bool| values.iter().all(|v| v.is_null() || is(v));
    if all(Value::is_boolean) {
        return Arc::new(BooleanArray::from_iter(values.iter().map(|v| v.as_bool())));
    }
    if all(Value::is_i64) {
        return Arc::new(Int64Array::from_iter(values.iter().map(|v| v.as_i64())));
    }
    if all(Value::is_number) {
        return Arc::new(Float64Array::from_iter(values.iter().map(|v| v.as_f64())));
    }
    let text = |v: &&Value| match v {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    Arc::new(StringArray::from_iter(values.iter().map(text)))
}
