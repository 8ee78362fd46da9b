//! The safetensors header: eight bytes of length, then JSON from tensor names to type, shape and offsets; and the
//! index of a sharded checkpoint.
//!
//! Source: the format section of Hugging Face safetensors' README (0.5), which also limits headers to 100 MB.

use super::{MOST_DIMENSIONS, MOST_TENSORS, Stored, elements};
use crate::error::{Error, Result};
use crate::units::Bytes;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Read;

/// Largest header in bytes that the format allows.
const MOST_HEADER: u64 = 100_000_000;

/// Reads a header from the start of a file of `length` bytes; `place` names the file in errors.
pub fn header(place: &str, length: u64, mut reader: impl Read) -> Result<Vec<Stored>> {
    let mut prefix = [0; 8];
    reader.read_exact(&mut prefix).map_err(|e| broken(place, format!("no header: {e}")))?;
    let size = u64::from_le_bytes(prefix);
    if size > MOST_HEADER || size > length.saturating_sub(8) {
        return Err(Error::field(
            place,
            "header length",
            size,
            format!("at most the file's {length} bytes and {MOST_HEADER}"),
        ));
    }
    let mut text = Vec::new();
    let read = reader.take(size).read_to_end(&mut text).map_err(|e| broken(place, e))?;
    if read as u64 != size {
        return Err(broken(place, format!("the header ends after {read} of {size} bytes")));
    }
    let value: Value = serde_json::from_slice(&text).map_err(|e| broken(place, format!("header: {e}")))?;
    let Value::Object(map) = value else { return Err(broken(place, "the header is not a JSON object")) };
    if map.len() as u64 > MOST_TENSORS {
        return Err(Error::field(place, "tensors", map.len(), format!("at most {MOST_TENSORS}")));
    }
    let data = length - 8 - size;
    map.iter()
        .filter(|(name, _)| *name != "__metadata__")
        .map(|(name, value)| tensor(place, name, value, data))
        .collect()
}

fn tensor(place: &str, name: &str, value: &Value, data: u64) -> Result<Stored> {
    let bad = |key: &str, accepted: &str| {
        Error::field(place, format!("{name}.{key}"), crate::model::brief(&value[key]), accepted)
    };
    let dtype = value["dtype"].as_str().ok_or_else(|| bad("dtype", "a type, as BF16"))?;
    let bits = bits(dtype).ok_or_else(|| {
        bad("dtype", "F64, F32, F16, BF16, F8_E4M3, F8_E5M2, F8_E8M0, F4, I64, I32, I16, I8, U8, BOOL")
    })?;
    let shape: Option<Vec<u64>> =
        value["shape"].as_array().and_then(|s| s.iter().map(Value::as_u64).collect());
    let shape = shape
        .filter(|s| s.len() <= MOST_DIMENSIONS)
        .ok_or_else(|| bad("shape", "up to eight whole numbers"))?;
    let elements = elements(&shape).ok_or_else(|| bad("shape", "dimensions of a real tensor"))?;
    let offsets: Option<Vec<u64>> =
        value["data_offsets"].as_array().and_then(|s| s.iter().map(Value::as_u64).collect());
    let Some([from, to]) = offsets.as_deref().and_then(|o| <[u64; 2]>::try_from(o).ok()) else {
        return Err(bad("data_offsets", "begin and end"));
    };
    let expected = (u128::from(elements) * u128::from(bits)).div_ceil(8);
    if from > to || to > data || u128::from(to - from) != expected {
        return Err(bad("data_offsets", &format!("{expected} bytes within the {data} of the file")));
    }
    Ok(Stored {
        name: name.to_owned(),
        dtype: dtype.to_lowercase(),
        shape,
        elements,
        bytes: Bytes(to - from),
    })
}

/// Bits per value of a dtype; `None` for an unknown dtype.
fn bits(dtype: &str) -> Option<u32> {
    Some(match dtype {
        "F64" | "I64" | "U64" | "C64" => 64,
        "F32" | "I32" | "U32" => 32,
        "F16" | "BF16" | "I16" | "U16" => 16,
        "F8_E4M3" | "F8_E5M2" | "F8_E8M0" | "I8" | "U8" | "BOOL" => 8,
        "F6_E2M3" | "F6_E3M2" => 6,
        "F4" => 4,
        _ => return None,
    })
}

/// Files that `model.safetensors.index.json` names, each once, sorted by name.
///
/// # Errors
/// Refuses any name but a plain `.safetensors` file name: the files are in the folder of the index, so a path that
/// leads elsewhere, or an index that names itself, is wrong.
pub fn shards(place: &str, text: &str) -> Result<Vec<String>> {
    let index: Value = serde_json::from_str(text).map_err(|e| broken(place, e))?;
    let map = index["weight_map"].as_object().ok_or_else(|| broken(place, "`weight_map` is missing"))?;
    let mut files = BTreeSet::new();
    for (name, file) in map {
        let plain = file
            .as_str()
            .filter(|f| f.ends_with(".safetensors") && !f.contains(['/', '\\']) && f.len() < 256);
        match plain {
            Some(file) => drop(files.insert(file.to_owned())),
            None => {
                return Err(Error::field(
                    place,
                    format!("weight_map.{name}"),
                    file,
                    "the name of a .safetensors file in the same folder",
                ));
            }
        }
        if files.len() > 4096 {
            return Err(Error::field(place, "weight_map", "over 4096 files", "at most 4096"));
        }
    }
    Ok(files.into_iter().collect())
}

fn broken(place: &str, message: impl std::fmt::Display) -> Error {
    Error::Parse { place: place.to_owned(), message: message.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(json: &str, data: usize) -> Vec<u8> {
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(json.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<Stored>> {
        header("m.safetensors", bytes.len() as u64, bytes)
    }

    #[test]
    fn names_shapes_and_sizes() {
        let bytes = file(
            r#"{"__metadata__":{"format":"pt"},"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}"#,
            12,
        );
        let tensors = read(&bytes).unwrap();
        assert_eq!((tensors.len(), tensors[0].elements, tensors[0].bytes), (1, 6, Bytes(12)));
    }

    #[test]
    fn hostile_headers_are_refused() {
        let cases = [
            (u64::MAX.to_le_bytes().to_vec(), "header length"),
            (vec![1, 2], "no header"),
            (file("[]", 0), "not a JSON object"),
            (file(r#"{"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,13]}}"#, 13), "12 bytes"),
            (file(r#"{"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}"#, 3), "within the 3"),
            (file(r#"{"w":{"dtype":"X","shape":[2],"data_offsets":[0,2]}}"#, 2), "w.dtype"),
            (
                file(r#"{"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,2]}}"#, 2),
                "w.shape",
            ),
        ];
        for (bytes, says) in cases {
            let message = read(&bytes).unwrap_err().to_string();
            assert!(message.starts_with("m.safetensors") && message.contains(says), "{message}");
        }
    }

    #[test]
    fn an_index_names_its_files_once_and_no_others() {
        let index = r#"{"weight_map":{"a":"2.safetensors","b":"1.safetensors","c":"2.safetensors"}}"#;
        assert_eq!(shards("i", index).unwrap(), ["1.safetensors", "2.safetensors"]);
        for wrong in ["model.safetensors.index.json", "../x.safetensors", "/etc/x.safetensors"] {
            let index = format!(r#"{{"weight_map":{{"a":"{wrong}"}}}}"#);
            assert!(shards("i", &index).unwrap_err().to_string().contains("weight_map.a"), "{wrong}");
        }
    }
}
