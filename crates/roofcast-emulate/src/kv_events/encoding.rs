//! Events in MessagePack, in the format of vLLM's `kv_events`.
//!
//! Knows: a batch is an array of time, events and rank; an event is a map with its `type`, or, as before vLLM 0.20
//! and for readers that still expect it, an array that begins with its type. Source: `vllm/distributed/kv_events.py`.

use clap::ValueEnum;
use rmp::encode::{write_array_len, write_f64, write_map_len, write_nil, write_str, write_uint};

/// Format of an encoded event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Encoding {
    /// Map of field names to values.
    Map,
    /// Array of values in the order of the fields.
    Array,
}

/// An event, as it is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    /// Blocks that can be found in the cache from now on.
    Stored {
        hashes: Vec<u64>,
        parent: Option<u64>,
        tokens: Vec<u32>,
        block_size: u64,
        /// Number and name of the LoRA adapter.
        lora: Option<(u64, String)>,
    },
    /// Blocks that were removed from the cache.
    Removed { hashes: Vec<u64> },
    /// All blocks were removed from the cache.
    Cleared,
}

/// Memory in which the blocks are, as events name it.
const MEDIUM: &str = "GPU";

/// Encodes a batch of events of rank `rank` at `time` seconds since 1970. Writing to a vector cannot fail.
pub(super) fn batch(time: f64, events: &[Told], rank: u64, encoding: Encoding) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    _ = write_array_len(&mut bytes, 3);
    _ = write_f64(&mut bytes, time);
    _ = write_array_len(&mut bytes, events.len() as u32);
    for told in events {
        match encoding {
            Encoding::Map => map(&mut bytes, told),
            Encoding::Array => array(&mut bytes, told),
        }
    }
    _ = write_uint(&mut bytes, rank);
    bytes
}

fn map(bytes: &mut Vec<u8>, told: &Told) {
    let key = |bytes: &mut Vec<u8>, name: &str| _ = write_str(bytes, name);
    match told {
        Told::Stored { hashes, parent, tokens, block_size, lora } => {
            _ = write_map_len(bytes, 8);
            key(bytes, "type");
            text(bytes, Some("BlockStored"));
            key(bytes, "block_hashes");
            numbers(bytes, hashes.iter().copied());
            key(bytes, "parent_block_hash");
            number(bytes, *parent);
            key(bytes, "token_ids");
            numbers(bytes, tokens.iter().map(|t| u64::from(*t)));
            key(bytes, "block_size");
            number(bytes, Some(*block_size));
            key(bytes, "lora_id");
            number(bytes, lora.as_ref().map(|(number, _)| *number));
            key(bytes, "medium");
            text(bytes, Some(MEDIUM));
            key(bytes, "lora_name");
            text(bytes, lora.as_ref().map(|(_, name)| name.as_str()));
        }
        Told::Removed { hashes } => {
            _ = write_map_len(bytes, 3);
            key(bytes, "type");
            text(bytes, Some("BlockRemoved"));
            key(bytes, "block_hashes");
            numbers(bytes, hashes.iter().copied());
            key(bytes, "medium");
            text(bytes, Some(MEDIUM));
        }
        Told::Cleared => {
            _ = write_map_len(bytes, 1);
            key(bytes, "type");
            text(bytes, Some("AllBlocksCleared"));
        }
    }
}

fn array(bytes: &mut Vec<u8>, told: &Told) {
    match told {
        Told::Stored { hashes, parent, tokens, block_size, lora } => {
            _ = write_array_len(bytes, 8);
            text(bytes, Some("BlockStored"));
            numbers(bytes, hashes.iter().copied());
            number(bytes, *parent);
            numbers(bytes, tokens.iter().map(|t| u64::from(*t)));
            number(bytes, Some(*block_size));
            number(bytes, lora.as_ref().map(|(number, _)| *number));
            text(bytes, Some(MEDIUM));
            text(bytes, lora.as_ref().map(|(_, name)| name.as_str()));
        }
        Told::Removed { hashes } => {
            _ = write_array_len(bytes, 3);
            text(bytes, Some("BlockRemoved"));
            numbers(bytes, hashes.iter().copied());
            text(bytes, Some(MEDIUM));
        }
        Told::Cleared => {
            _ = write_array_len(bytes, 1);
            text(bytes, Some("AllBlocksCleared"));
        }
    }
}

fn text(bytes: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => _ = write_str(bytes, text),
        None => _ = write_nil(bytes),
    }
}

fn number(bytes: &mut Vec<u8>, number: Option<u64>) {
    match number {
        Some(number) => _ = write_uint(bytes, number),
        None => _ = write_nil(bytes),
    }
}

fn numbers(bytes: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = u64>) {
    _ = write_array_len(bytes, numbers.len() as u32);
    numbers.for_each(|number| _ = write_uint(bytes, number));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encoded by hand, from the MessagePack specification: 0x93 an array of three, 0xcb a float of 8 bytes (2.0 is
    /// 0x4000…), 0xa3 a text of three bytes, 0x83 a map of three.
    #[test]
    fn a_batch_by_hand() {
        let removed = [Told::Removed { hashes: vec![5, 300] }];
        let head = [0x93, 0xcb, 0x40, 0, 0, 0, 0, 0, 0, 0, 0x91];
        let hashes = [0x92, 5, 0xcd, 1, 44];
        let gpu = b"\xa3GPU";
        let name = b"\xacBlockRemoved";
        let expected: Vec<u8> = [&head[..], &[0x93], name, &hashes, gpu, &[1]].concat();
        assert_eq!(batch(2.0, &removed, 1, Encoding::Array), expected);
        let fields: [&[u8]; 7] = [b"\xa4type", name, b"\xacblock_hashes", &hashes, b"\xa6medium", gpu, &[1]];
        let expected = [&head[..], &[0x83], &fields.concat()].concat();
        assert_eq!(batch(2.0, &removed, 1, Encoding::Map), expected);
    }
}
