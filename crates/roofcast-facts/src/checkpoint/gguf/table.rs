//! llama.cpp's tensor types and names of architectures, as `catalog/gguf.csv` lists them.
//!
//! Knows: the lines of the table, which `scripts/gguf-table` writes. Knows nothing about files.

use std::sync::LazyLock;

/// Storage of the values of a tensor.
pub(super) struct Type {
    code: u32,
    /// llama.cpp's name, in lower case.
    pub(super) name: &'static str,
    /// Values of a block.
    pub(super) values: u64,
    /// Bytes of a block.
    pub(super) bytes: u64,
}

/// Treatment of an architecture of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// Read with the keys of this `model_type`.
    As(&'static str),
    /// Refused, with the reason.
    Refused(&'static str),
}

struct Table {
    types: Vec<Type>,
    architectures: Vec<(&'static str, Named)>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table { types: Vec::new(), architectures: Vec::new() };
    for line in include_str!("../../../catalog/gguf.csv").lines() {
        match line.splitn(3, ',').collect::<Vec<_>>().as_slice() {
            ["type", code, rest] => table.types.extend(tensor_type(code, rest)),
            ["architecture", name, model_type] => table.architectures.push((name, Named::As(model_type))),
            ["refused", name, why] => table.architectures.push((name, Named::Refused(why))),
            _ => {}
        }
    }
    table
});

fn tensor_type(code: &str, rest: &'static str) -> Option<Type> {
    let mut fields = rest.split(',');
    let name = fields.next()?;
    let mut number = || fields.next()?.parse::<u64>().ok();
    Some(Type { code: code.parse().ok()?, name, values: number()?, bytes: number()? })
}

/// Type of a code in a file.
pub(super) fn by_code(code: u32) -> Option<&'static Type> {
    TABLE.types.iter().find(|kind| kind.code == code)
}

/// Type of a name.
pub(super) fn by_name(name: &str) -> Option<&'static Type> {
    TABLE.types.iter().find(|kind| kind.name == name)
}

/// Treatment of an architecture; `None` for a name that the table lacks.
pub(super) fn named(architecture: &str) -> Option<Named> {
    TABLE.architectures.iter().find(|(name, _)| *name == architecture).map(|(_, named)| *named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::{Standing, standing};

    /// NVFP4 holds 64 values of 4 bits and 4 scales of 8: 32 + 4 = 36 bytes. Q1_0 holds 128 bits and a scale of 16:
    /// 16 + 2 = 18.
    #[test]
    fn types_are_whole() {
        assert_eq!(TABLE.types.len(), 34);
        let size = |code| by_code(code).map(|kind| (kind.name, kind.values, kind.bytes));
        assert_eq!(size(40), Some(("nvfp4", 64, 36)));
        assert_eq!(size(41), Some(("q1_0", 128, 18)));
    }

    #[test]
    fn every_architecture_is_read_or_refused() {
        assert_eq!(TABLE.architectures.len(), 126);
        for (name, named) in &TABLE.architectures {
            if let Named::As(model_type) = named {
                assert_ne!(standing(model_type), Standing::Unknown, "{name}");
            }
        }
    }
}
