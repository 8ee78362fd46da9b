//! Output of llama-bench outside JSON: CSV, the table for people, and SQL.
//!
//! Knows: the printers of `tools/llama-bench/llama-bench.cpp` (`csv_printer`, `markdown_printer`, `sql_printer`). The table
//! shows only the parameters that differ from their defaults, names no accelerator, and rounds. Knows nothing about the
//! meaning of fields.

use roofcast_facts::error::{Error, Result};
use roofcast_facts::table;
use serde_json::{Map, Value};

/// Fields of one test.
type Keys = Map<String, Value>;

/// Tests with their places.
type Tests = Vec<(String, Keys)>;

/// Columns of the table for people, and the fields that they show.
const COLUMNS: [(&str, &str); 12] = [
    ("model", "model_type"),
    ("backend", "backends"),
    ("ngl", "n_gpu_layers"),
    ("threads", "n_threads"),
    ("sm", "split_mode"),
    ("nkvo", "no_kv_offload"),
    ("fa", "flash_attn"),
    ("embd", "embeddings"),
    ("nopo", "no_op_offload"),
    ("dev", "devices"),
    ("ts", "tensor_split"),
    ("ot", "tensor_buft_overrides"),
];

/// A form of the output.
#[derive(Clone, Copy)]
enum Form {
    Csv,
    Markdown,
    Sql,
}

/// The form of `text`, by its first lines; `None` for JSON and foreign texts.
fn form(text: &str) -> Option<Form> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next()?;
    let has = |line: &str, words: [&str; 2]| words.iter().all(|word| line.contains(word));
    if text.contains("INSERT INTO llama_bench ") {
        return Some(Form::Sql);
    }
    if [first]
        .into_iter()
        .chain(lines)
        .any(|line| line.starts_with("| model ") && has(line, [" test ", " t/s "]))
    {
        return Some(Form::Markdown);
    }
    (!first.starts_with(['{', '[']) && has(first, ["n_prompt", "avg_ns"])).then_some(Form::Csv)
}

/// True if `text` is output of llama-bench outside JSON.
pub(in super::super) fn is_table(text: &str) -> bool {
    form(text).is_some()
}

/// Fields of each test of `text`.
pub(super) fn tests(place: &str, text: &str) -> Result<Tests> {
    match form(text) {
        Some(Form::Markdown) => markdown(place, text),
        Some(Form::Sql) => sql(place, text),
        _ => csv(place, text),
    }
}

fn cell(text: &str) -> Value {
    let number = text.parse::<f64>().ok().filter(|n| n.is_finite());
    number.map_or_else(|| Value::from(text), Value::from)
}

fn csv(place: &str, text: &str) -> Result<Tests> {
    let mut reader = table::reader(text);
    let broken = |e: csv::Error| table::broken(place, text, &e);
    let header = reader.headers().map_err(broken)?.clone();
    let test = |record: csv::Result<csv::StringRecord>| {
        let record = record.map_err(broken)?;
        let place = format!("{place}:{}", table::line(text, record.position()));
        let fields = header.iter().zip(record.iter());
        Ok((place, fields.map(|(key, text)| (key.to_owned(), cell(text))).collect()))
    };
    reader.records().map(test).collect()
}

/// Reads `INSERT INTO llama_bench (a, b) VALUES ('1', '2');`, a test a line.
fn sql(place: &str, text: &str) -> Result<Tests> {
    let mut tests = Tests::new();
    for (index, line) in text.lines().enumerate() {
        let Some(rest) = line.trim().strip_prefix("INSERT INTO llama_bench (") else { continue };
        let place = format!("{place}:{}", index + 1);
        let values = rest.split_once(") VALUES ('").and_then(|(names, values)| {
            let values = values.trim_end().strip_suffix("');")?;
            Some((names.split(", "), values.split("', '")))
        });
        let wrong = || Error::field(&place, "line", line, "INSERT INTO llama_bench (…) VALUES ('…');");
        let (names, values) = values.ok_or_else(wrong)?;
        tests.push((place, names.zip(values).map(|(key, text)| (key.to_owned(), cell(text))).collect()));
    }
    Ok(tests)
}

/// Reads the table for people: the time of a test is that of its tokens at the mean rate.
fn markdown(place: &str, text: &str) -> Result<Tests> {
    let build =
        text.lines().find_map(|line| line.strip_prefix("build: ")?.rsplit_once('(')?.1.strip_suffix(')'));
    let mut columns: Vec<&str> = Vec::new();
    let mut tests = Tests::new();
    for (index, line) in text.lines().enumerate() {
        let Some(row) = line.trim().strip_prefix('|').and_then(|row| row.strip_suffix('|')) else { continue };
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if cells.first() == Some(&"model") {
            columns = cells;
        } else if !columns.is_empty() && !cells.iter().all(|cell| cell.trim_matches([':', '-']).is_empty()) {
            let place = format!("{place}:{}", index + 1);
            let mut keys = row_of(&place, &columns, &cells)?;
            keys.extend(build.map(|build| ("build_number".to_owned(), cell(build))));
            tests.push((place, keys));
        }
    }
    Ok(tests)
}

fn row_of(place: &str, columns: &[&str], cells: &[&str]) -> Result<Keys> {
    let mut keys = Keys::new();
    let mut tokens_s = None;
    let mut test = "";
    for (column, text) in columns.iter().zip(cells) {
        match *column {
            "test" => test = text,
            "t/s" => tokens_s = text.split('±').next().and_then(|mean| mean.trim().parse::<f64>().ok()),
            "params" => {
                let scaled = text.split_once(' ').and_then(|(n, unit)| Some((n.parse::<f64>().ok()?, unit)));
                let parameters = scaled.map(|(n, unit)| n * if unit == "M" { 1e6 } else { 1e9 });
                keys.extend(parameters.map(|n| ("model_n_params".to_owned(), Value::from(n))));
            }
            "size" => {}
            other => {
                let field = COLUMNS.iter().find(|(name, _)| *name == other).map_or(other, |(_, field)| field);
                keys.insert(field.to_owned(), cell(text));
            }
        }
    }
    let wrong = |field: &str, found: &str, accepted: &str| Error::field(place, field, found, accepted);
    let counts =
        counts(test).ok_or_else(|| wrong("test", test, "pp512, tg128, pp512+tg128, or one @ d4096"))?;
    let rate = tokens_s.filter(|rate| *rate > 0.0).ok_or_else(|| wrong("t/s", "none", "a rate above 0"))?;
    if rate > super::MOST_TOKENS_S {
        return Err(wrong("t/s", &format!("{rate:e}"), "up to 10^9 tokens per second"));
    }
    for (field, count) in ["n_prompt", "n_gen", "n_depth"].into_iter().zip(counts) {
        keys.insert(field.to_owned(), Value::from(count));
    }
    keys.insert("avg_ns".to_owned(), Value::from((counts[0] + counts[1]) as f64 / rate * 1e9));
    Ok(keys)
}

/// Tokens of prompt, answer and context of a test's name, as `pp512+tg128 @ d4096`.
fn counts(test: &str) -> Option<[u64; 3]> {
    let (tokens, depth) = test.split_once(" @ d").unwrap_or((test, "0"));
    let mut counts = [0, 0, depth.parse().ok()?];
    for part in tokens.split('+') {
        match part.split_at_checked(2)? {
            ("pp", n) => counts[0] = n.parse().ok()?,
            ("tg", n) => counts[1] = n.parse().ok()?,
            _ => return None,
        }
    }
    Some(counts)
}
