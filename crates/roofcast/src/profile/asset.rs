//! The file of kernel times: sections of one table, chip, engine, kernel and format each.
//!
//! Knows: the bytes. All numbers are little-endian. A file is `RFK1`, the number of sections as u32, and for each section
//! its table as u8 and its chip, engine, version, kernel and format as texts (a length as u8, then UTF-8), the number of
//! shapes as u32; then the sections' values in the same order: for each shape its axes as u32, then its columns as u16.
//! A value v is 2^(v/1024) picoseconds, 0 is not measured: steps of 0.07 %. Knows nothing about what a kernel is.

use super::{Curve, Lines, Table};
use crate::error::{Error, Result};
use std::sync::OnceLock;

const MAGIC: &[u8; 4] = b"RFK1";
const EMBEDDED: &[u8] = include_bytes!("../../catalog/kernels/times.bin");
/// Codes of a factor of two.
const OCTAVE: f64 = 1024.0;
/// Shapes of a section at most.
const MOST_SHAPES: usize = 1 << 20;

/// Kernel times of one table, chip, engine, kernel and format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// What was timed.
    pub table: Table,
    /// Catalog id of the accelerator.
    pub chip: String,
    /// Whose kernel: an engine, or `nccl`.
    pub engine: String,
    /// The engine's newest version among the times.
    pub version: String,
    /// The kernel as the engine names it.
    pub kernel: String,
    /// Weight format of GEMM and experts (`bf16`, `fp8`, `fp8-block`, `nvfp4`, …), KV-cache format of attention.
    pub format: String,
    shapes: usize,
    values: Vec<u8>,
}

/// Measured kernel times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profiles {
    /// All sections, in the order of the file.
    pub sections: Vec<Section>,
}

/// A section that is being written: shapes with seconds, or nothing, in each column.
#[derive(Debug, Clone, Default)]
pub struct Writer {
    values: Vec<u8>,
    shapes: usize,
}

impl Writer {
    /// Adds a shape; `seconds` has [`Table::columns`] values.
    pub fn shape(&mut self, axes: &[u32], seconds: &[Option<f64>]) {
        axes.iter().for_each(|axis| self.values.extend(axis.to_le_bytes()));
        seconds.iter().for_each(|value| self.values.extend(code(*value).to_le_bytes()));
        self.shapes += 1;
    }

    /// The section with its shapes.
    pub fn section(self, table: Table, [chip, engine, version, kernel, format]: [&str; 5]) -> Section {
        Section {
            table,
            chip: chip.into(),
            engine: engine.into(),
            version: version.into(),
            kernel: kernel.into(),
            format: format.into(),
            shapes: self.shapes,
            values: self.values,
        }
    }
}

/// Seconds as a code; 0 where there is no time.
fn code(seconds: Option<f64>) -> u16 {
    let code = |s: f64| (libm::log2(s * 1e12) * OCTAVE).round().clamp(1.0, f64::from(u16::MAX)) as u16;
    seconds.filter(|s| *s > 0.0).map_or(0, code)
}

/// A code as seconds.
fn seconds(code: u16) -> Option<f64> {
    (code > 0).then(|| libm::exp2(f64::from(code) / OCTAVE) * 1e-12)
}

impl Section {
    /// Bytes of one shape.
    fn stride(&self) -> usize {
        4 * self.table.axes().len() + 2 * self.table.columns()
    }

    /// How many shapes were timed.
    pub fn len(&self) -> usize {
        self.shapes
    }

    /// Whether no shape was timed.
    pub fn is_empty(&self) -> bool {
        self.shapes == 0
    }

    /// The numbers of each shape, in order.
    pub fn shapes(&self) -> impl Iterator<Item = Vec<u32>> {
        let axes = self.table.axes().len();
        self.values.chunks_exact(self.stride()).map(move |shape| {
            shape[..4 * axes].chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        })
    }

    /// Values of the shape at `index`.
    fn columns(&self, index: usize) -> Vec<Option<f64>> {
        let start = index * self.stride() + 4 * self.table.axes().len();
        let bytes = self.values.get(start..start + 2 * self.table.columns()).unwrap_or_default();
        bytes.chunks_exact(2).map(|b| seconds(u16::from_le_bytes([b[0], b[1]]))).collect()
    }

    /// The shape with the least `distance`, of those that have one.
    pub fn nearest(&self, distance: impl Fn(&[u32]) -> Option<f64>) -> Option<(usize, Vec<u32>)> {
        let measured = self.shapes().enumerate().filter_map(|(i, shape)| Some((distance(&shape)?, i, shape)));
        let best = measured.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some((best.1, best.2))
    }

    /// Seconds of the shape at `index` over the grid.
    pub fn curve(&self, index: usize) -> Option<Curve> {
        curve(self.table.grid(), self.columns(index).into_iter())
    }

    /// Lines over context of the shape at `index`, of a table that has slopes.
    pub fn lines(&self, index: usize) -> Option<Lines> {
        let columns = self.columns(index);
        let part = |offset| curve(self.table.grid(), columns.iter().skip(offset).step_by(2).copied());
        Some(Lines::new(part(0)?, &part(1)?))
    }
}

/// The measured points of a grid.
fn curve(grid: &[u32], values: impl Iterator<Item = Option<f64>>) -> Option<Curve> {
    let points = grid.iter().zip(values).filter_map(|(size, value)| Some((f64::from(*size), value?)));
    Curve::new(points.collect::<Vec<_>>())
}

impl Profiles {
    /// The embedded times.
    pub fn embedded() -> Result<&'static Profiles> {
        static READ: OnceLock<Result<Profiles>> = OnceLock::new();
        READ.get_or_init(|| Profiles::read("catalog/kernels/times.bin", EMBEDDED))
            .as_ref()
            .map_err(Clone::clone)
    }

    /// Reads the bytes of a file.
    pub fn read(place: &str, bytes: &[u8]) -> Result<Profiles> {
        Reader { place, bytes, at: 0 }.profiles()
    }

    /// The bytes of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((self.sections.len() as u32).to_le_bytes());
        for section in &self.sections {
            bytes.push(section.table as u8);
            for text in [&section.chip, &section.engine, &section.version, &section.kernel, &section.format] {
                let end = (0..=text.len().min(255)).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
                bytes.push(end as u8);
                bytes.extend(&text.as_bytes()[..end]);
            }
            bytes.extend((section.shapes as u32).to_le_bytes());
        }
        self.sections.iter().for_each(|section| bytes.extend(&section.values));
        bytes
    }
}

/// A file as it is read.
struct Reader<'a> {
    place: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn profiles(mut self) -> Result<Profiles> {
        if self.take(4)? != MAGIC {
            return Err(self.error("other bytes", "a file of kernel times, which begins with RFK1"));
        }
        let count = self.number()?;
        let mut sections = Vec::new();
        for _ in 0..count {
            sections.push(self.head()?);
        }
        for section in &mut sections {
            section.values = self.take(section.shapes * section.stride())?.to_vec();
        }
        if self.at < self.bytes.len() {
            return Err(self.error("more bytes", "the end of the file"));
        }
        Ok(Profiles { sections })
    }

    fn head(&mut self) -> Result<Section> {
        let code = self.take(1)?[0];
        let table = Table::ALL.get(usize::from(code)).copied();
        let table = table.ok_or_else(|| self.error(format!("table {code}"), "a table from 0 to 8"))?;
        let [chip, engine] = [self.text()?, self.text()?];
        let [version, kernel, format] = [self.text()?, self.text()?, self.text()?];
        let shapes = self.number()?;
        if shapes > MOST_SHAPES {
            return Err(self.error(format!("{shapes} shapes"), format!("at most {MOST_SHAPES}")));
        }
        Ok(Section { table, chip, engine, version, kernel, format, shapes, values: Vec::new() })
    }

    fn take(&mut self, count: usize) -> Result<&[u8]> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            return Err(self.error("the end of the file", format!("{count} more bytes")));
        };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn number(&mut self) -> Result<usize> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    }

    fn text(&mut self) -> Result<String> {
        let length = usize::from(self.take(1)?[0]);
        let bytes = self.take(length)?.to_vec();
        String::from_utf8(bytes).map_err(|_| self.error("a text that is not UTF-8", "UTF-8"))
    }

    fn error(&self, found: impl Into<String>, accepted: impl Into<String>) -> Error {
        Error::field(self.place, format!("byte {}", self.at), found.into(), accepted.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_shapes() -> Profiles {
        let mut writer = Writer::default();
        let mut seconds = vec![None; Table::Prefill.columns()];
        (seconds[1], seconds[2]) = (Some(10e-6), Some(30e-6));
        writer.shape(&[32, 8, 128, 0], &seconds);
        seconds[2] = Some(20e-6);
        writer.shape(&[4, 1, 128, 0], &seconds);
        let names = ["h100-sxm", "vllm", "0.25.0", "fa3", "bf16"];
        Profiles { sections: vec![writer.section(Table::Prefill, names)] }
    }

    /// 64 tokens take 10 µs and 128 take 30: 96 take 20, within a step of 0.07 %.
    #[test]
    fn a_file_is_read_as_it_was_written() {
        let profiles = two_shapes();
        let bytes = profiles.to_bytes();
        let read = Profiles::read("times.bin", &bytes).unwrap();
        assert_eq!(read, profiles);
        let section = &read.sections[0];
        let heads = |asked: f64| section.nearest(|s| Some((f64::from(s[0]) / asked).ln().abs())).unwrap();
        assert_eq!(heads(28.0), (0, vec![32, 8, 128, 0]));
        assert_eq!(heads(3.0).0, 1);
        let seconds = section.curve(0).unwrap().at(96.0);
        assert!((seconds / 20e-6 - 1.0).abs() < 7e-4, "{seconds}");
    }

    #[test]
    fn a_broken_file_says_where() {
        let bytes = two_shapes().to_bytes();
        for cut in 0..bytes.len() {
            let error = Profiles::read("times.bin", &bytes[..cut]).unwrap_err().to_string();
            assert!(error.contains("times.bin") && error.contains("byte"), "{error}");
        }
        let longer = [bytes, vec![0]].concat();
        assert!(
            Profiles::read("times.bin", &longer).unwrap_err().to_string().contains("the end of the file")
        );
    }
}
