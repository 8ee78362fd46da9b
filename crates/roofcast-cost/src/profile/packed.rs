//! Shapes and their columns as bytes.
//!
//! Knows: an axis is written in groups of seven bits, the lowest first, and all bytes but the last have the eighth
//! bit set (LEB128). A column is one byte: 0 means not measured; 1 to 254 mean the code of the shape's last measured
//! column plus this byte minus 64; 255 means that the code follows as u16, little-endian. If starts and slopes
//! alternate, each refers to the last of its kind. Code c means 2^(c/128) picoseconds, in steps of 0.54 %. Knows
//! nothing about sections.

use super::KernelTable;

/// Number of codes per factor of two.
const OCTAVE: f64 = 128.0;
/// Byte of a column whose code follows as u16.
const FOLLOWS: u8 = 255;
/// Byte of a column whose code equals the previous code.
const UNCHANGED: i32 = 64;

/// Shapes with the codes of their columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Packed {
    axes: Vec<u32>,
    /// Codes of the columns; 0 if not measured.
    codes: Vec<u16>,
}

/// Converts seconds to a code; 0 if there is no time.
fn code(seconds: Option<f64>) -> u16 {
    let code = |s: f64| (libm::log2(s * 1e12) * OCTAVE).round().clamp(1.0, f64::from(u16::MAX)) as u16;
    seconds.filter(|s| *s > 0.0).map_or(0, code)
}

/// Converts a code to seconds.
fn seconds(code: u16) -> Option<f64> {
    (code > 0).then(|| libm::exp2(f64::from(code) / OCTAVE) * 1e-12)
}

impl Packed {
    /// Adds a shape with its columns.
    pub(super) fn push(&mut self, axes: &[u32], seconds: &[Option<f64>]) {
        self.axes.extend(axes);
        self.codes.extend(seconds.iter().map(|value| code(*value)));
    }

    /// Number of shapes.
    pub(super) fn len(&self, table: KernelTable) -> usize {
        self.axes.len() / table.axes().len()
    }

    /// Axes of each shape.
    pub(super) fn axes(&self, table: KernelTable) -> impl Iterator<Item = &[u32]> {
        self.axes.chunks_exact(table.axes().len())
    }

    /// Columns of the shape at `index`, in seconds; empty if there is no such shape.
    pub(super) fn seconds(&self, table: KernelTable, index: usize) -> impl Iterator<Item = Option<f64>> {
        let columns = table.columns();
        let codes = self.codes.chunks_exact(columns).nth(index).unwrap_or_default();
        codes.iter().map(|code| seconds(*code))
    }

    /// Least of all times, in seconds.
    pub(super) fn least(&self) -> Option<f64> {
        self.codes.iter().filter(|code| **code > 0).min().and_then(|code| seconds(*code))
    }

    /// Returns the bytes of all shapes.
    pub(super) fn to_bytes(&self, table: KernelTable) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (axes, codes) in self.axes(table).zip(self.codes.chunks_exact(table.columns())) {
            axes.iter().for_each(|axis| write_number(*axis, &mut bytes));
            write_codes(codes, table.has_slopes(), &mut bytes);
        }
        bytes
    }

    /// Reads `shapes` shapes, which must use all of `bytes`; `None` if the bytes are invalid.
    pub(super) fn read(table: KernelTable, shapes: usize, mut bytes: &[u8]) -> Option<Packed> {
        let mut packed = Packed::default();
        for _ in 0..shapes {
            for _ in table.axes() {
                packed.axes.push(read_number(&mut bytes)?);
            }
            let mut last: [u16; 2] = [0; 2];
            for column in 0..table.columns() {
                let last = &mut last[if table.has_slopes() { column % 2 } else { 0 }];
                let code = read_code(*last, &mut bytes)?;
                packed.codes.push(code);
                if code > 0 {
                    *last = code;
                }
            }
        }
        bytes.is_empty().then_some(packed)
    }
}

fn write_number(mut number: u32, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read_number(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0;
    for shift in (0..35).step_by(7) {
        let byte = u64::from(next(bytes)?);
        number |= (byte & 0x7f) << shift;
        if byte < 0x80 {
            return u32::try_from(number).ok();
        }
    }
    None
}

/// Writes the columns of one shape.
fn write_codes(codes: &[u16], alternate: bool, bytes: &mut Vec<u8>) {
    let mut last: [Option<u16>; 2] = [None; 2];
    for (column, code) in codes.iter().enumerate() {
        let last = &mut last[if alternate { column % 2 } else { 0 }];
        if *code == 0 {
            bytes.push(0);
            continue;
        }
        let byte = last.map(|last| i32::from(*code) - i32::from(last) + UNCHANGED);
        match byte.filter(|byte| (1..i32::from(FOLLOWS)).contains(byte)) {
            Some(byte) => bytes.push(byte as u8),
            None => {
                bytes.push(FOLLOWS);
                bytes.extend(code.to_le_bytes());
            }
        }
        *last = Some(*code);
    }
}

fn read_code(last: u16, bytes: &mut &[u8]) -> Option<u16> {
    match next(bytes)? {
        0 => Some(0),
        FOLLOWS => Some(u16::from_le_bytes([next(bytes)?, next(bytes)?])),
        byte => u16::try_from(i32::from(last) + i32::from(byte) - UNCHANGED).ok(),
    }
}

fn next(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 µs is code 128 log2(10^7) = 2976.4, rounded 2976 (0xba0); 20 µs is 128 codes more, byte 192; 100 µs is code
    /// 3401.7, rounded 3402 (0xd4a), 298 more than the 3104 of 20 µs, which exceeds a byte. 300 heads are 44 + 2 ·
    /// 128.
    #[test]
    fn bytes_by_hand() {
        let mut packed = Packed::default();
        let mut columns = vec![None; KernelTable::Prefill.columns()];
        (columns[0], columns[2], columns[3]) = (Some(10e-6), Some(20e-6), Some(100e-6));
        packed.push(&[300, 8, 128, 0], &columns);
        let bytes = packed.to_bytes(KernelTable::Prefill);
        let axes = [0xac, 2, 8, 0x80, 1, 0];
        let codes = [255, 0xa0, 0x0b, 0, 192, 255, 0x4a, 0x0d, 0, 0, 0, 0, 0, 0];
        assert_eq!(bytes, [axes.as_slice(), &codes].concat());
        assert_eq!(Packed::read(KernelTable::Prefill, 1, &bytes), Some(packed));
    }

    /// Starts and slopes refer to the last of their kind: 1 ns is code 1275.6, rounded 1276 (0x4fc), and byte 64
    /// repeats it.
    #[test]
    fn starts_and_slopes_alternate() {
        let mut packed = Packed::default();
        let mut columns = vec![None; KernelTable::Decode.columns()];
        for (column, value) in [10e-6, 1e-9, 10e-6, 1e-9].into_iter().enumerate() {
            columns[column] = Some(value);
        }
        packed.push(&[1, 1, 1, 0], &columns);
        let bytes = packed.to_bytes(KernelTable::Decode);
        assert_eq!(bytes[4..12], [255, 0xa0, 0x0b, 255, 0xfc, 0x04, 64, 64]);
        assert_eq!(Packed::read(KernelTable::Decode, 1, &bytes), Some(packed));
    }

    #[test]
    fn other_bytes_are_no_shapes() {
        let none =
            |bytes: &[u8]| assert_eq!(Packed::read(KernelTable::AllReduce, 1, bytes), None, "{bytes:?}");
        none(&[]);
        none(&[0xff, 0xff, 0xff, 0xff, 0xff, 0]);
        // A code must not be below 0: byte 1 would subtract 63 from 0.
        none(&[[8, 1].as_slice(), &[0; 16]].concat());
        none(&[[8].as_slice(), &[0; 18]].concat());
    }
}
