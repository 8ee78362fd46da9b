//! The file of kernel times, in sections of one table, chip, engine, kernel and format each.
//!
//! Knows: the byte layout; integers of several bytes are little-endian. A file consists of:
//!
//! 1. `RFK1`, and the number of sections as u32;
//! 2. for each section its table as u8; its chip, engine, version, kernel and format as texts (a length as u8, then
//!    UTF-8); the number of its shapes and their total bytes as u32;
//! 3. the shapes of each section, in order of the sections, in the form of [`super::packed`].
//!
//! Knows nothing about kernels.

use super::packed::Packed;
use super::{Curve, KernelTable, Lines};
use roofcast_facts::error::{Error, Result};
use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

const MAGIC: &[u8; 4] = b"RFK1";
const EMBEDDED: &[u8] = include_bytes!("../../catalog/kernels/times.bin");

/// Kernel times of one table, chip, engine, kernel and format.
#[derive(Clone)]
pub struct Section {
    /// Table of kernel times that the section is part of.
    pub table: KernelTable,
    /// Catalog id of the accelerator.
    pub chip: String,
    /// Owner of the kernel: an engine's name, or `nccl`.
    pub engine: String,
    /// Newest version of the engine among the times.
    pub version: String,
    /// Name of the kernel, as the engine calls it.
    pub kernel: String,
    /// Format of the section: weight format of GEMM and experts (`bf16`, `fp8`, `fp8-block`, `nvfp4`, …), KV-cache
    /// format of attention.
    pub format: String,
    shapes: usize,
    bytes: Cow<'static, [u8]>,
    /// Unpacked shapes. They are unpacked at first use, because a run uses about a dozen of hundreds of sections.
    unpacked: OnceLock<Packed>,
    /// Least of all times, in seconds, once it was sought.
    least: OnceLock<f64>,
}

/// Measured kernel times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profiles {
    /// Sections in the order of the file.
    pub sections: Vec<Section>,
}

/// Writer of a section, which collects shapes with optional seconds in each column.
#[derive(Debug, Clone, Default)]
pub struct Writer {
    shapes: Packed,
}

impl Writer {
    /// Adds a shape; `seconds` has [`KernelTable::columns`] values.
    pub fn shape(&mut self, axes: &[u32], seconds: &[Option<f64>]) {
        self.shapes.push(axes, seconds);
    }

    /// Returns the section with the collected shapes.
    pub fn section(self, table: KernelTable, [chip, engine, version, kernel, format]: [&str; 5]) -> Section {
        Section {
            table,
            chip: chip.into(),
            engine: engine.into(),
            version: version.into(),
            kernel: kernel.into(),
            format: format.into(),
            shapes: self.shapes.len(table),
            bytes: self.shapes.to_bytes(table).into(),
            unpacked: OnceLock::from(self.shapes),
            least: OnceLock::new(),
        }
    }
}

/// Writes the head and a digest of the times. Unpacking the shapes does not change the text, because cache keys are
/// derived from it.
impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digest = DefaultHasher::new();
        self.bytes.hash(&mut digest);
        let Section { table, chip, engine, version, kernel, format, shapes, .. } = self;
        let head = (table, chip, engine, version, kernel, format, shapes);
        f.debug_struct("Section").field("head", &head).field("digest", &digest.finish()).finish()
    }
}

impl PartialEq for Section {
    fn eq(&self, other: &Section) -> bool {
        let head = |s: &Section| (s.table, s.shapes);
        let texts = |s: &Section| [&s.chip, &s.engine, &s.version, &s.kernel, &s.format].map(String::clone);
        head(self) == head(other) && texts(self) == texts(other) && self.bytes == other.bytes
    }
}

impl Eq for Section {}

impl Section {
    fn unpacked(&self) -> &Packed {
        // Reading cannot fail, because invalid bytes were refused with the file.
        let read = || Packed::read(self.table, self.shapes, &self.bytes).unwrap_or_default();
        self.unpacked.get_or_init(read)
    }

    /// Number of shapes.
    pub fn shape_count(&self) -> usize {
        self.shapes
    }

    /// Axes of each shape, in order of the file.
    pub fn shapes(&self) -> impl Iterator<Item = Vec<u32>> {
        self.unpacked().axes(self.table).map(<[u32]>::to_vec)
    }

    /// Shape with the smallest `distance`, among shapes for which a distance is defined.
    pub fn nearest(&self, distance: impl Fn(&[u32]) -> Option<f64>) -> Option<(usize, Vec<u32>)> {
        let axes = self.unpacked().axes(self.table).enumerate();
        let measured = axes.filter_map(|(i, shape)| Some((distance(shape)?, i, shape)));
        let best = measured.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some((best.1, best.2.to_vec()))
    }

    /// Least of the kernel's times, in seconds: its time with hardly any work.
    pub(crate) fn start(&self) -> f64 {
        *self.least.get_or_init(|| self.unpacked().least().unwrap_or_default())
    }

    /// Curve of seconds over the grid, for the shape at `index`.
    pub fn curve(&self, index: usize) -> Option<Curve> {
        curve(self.table.grid(), self.unpacked().seconds(self.table, index))
    }

    /// Lines over context, for the shape at `index` of a table that has slopes.
    pub fn lines(&self, index: usize) -> Option<Lines> {
        let part = |at| {
            let columns = self.unpacked().seconds(self.table, index);
            curve(self.table.grid(), columns.skip(at).step_by(2))
        };
        Some(Lines::new(part(0)?, &part(1)?))
    }
}

/// Curve through the measured points of a grid.
fn curve(grid: &[u32], values: impl Iterator<Item = Option<f64>>) -> Option<Curve> {
    let points = grid.iter().zip(values).filter_map(|(size, value)| Some((f64::from(*size), value?)));
    Curve::new(points.collect::<Vec<_>>())
}

impl Profiles {
    /// Returns the embedded kernel times.
    pub fn embedded() -> Result<&'static Profiles> {
        static READ: OnceLock<Result<Profiles>> = OnceLock::new();
        let read = || {
            let heads = Reader { place: "catalog/kernels/times.bin", bytes: EMBEDDED, at: 0 }.heads()?;
            let section = |(section, bytes)| Section { bytes: Cow::Borrowed(bytes), ..section };
            Ok(Profiles { sections: heads.into_iter().map(section).collect() })
        };
        READ.get_or_init(read).as_ref().map_err(Clone::clone)
    }

    /// Reads the bytes of a file; `place` names the file in errors.
    pub fn read(place: &str, bytes: &[u8]) -> Result<Profiles> {
        let mut at = 0;
        let section = |(section, bytes): (Section, &[u8])| {
            let number = at;
            at += 1;
            let unpacked = Packed::read(section.table, section.shapes, bytes);
            let unpacked = unpacked.ok_or_else(|| {
                let shown = format!("{} bytes that are not {} shapes", bytes.len(), section.shapes);
                Error::field(place, format!("section {number}"), shown, "shapes as the format has them")
            })?;
            Ok(Section { bytes: Cow::Owned(bytes.to_vec()), unpacked: OnceLock::from(unpacked), ..section })
        };
        let heads = Reader { place, bytes, at: 0 }.heads()?;
        Ok(Profiles { sections: heads.into_iter().map(section).collect::<Result<_>>()? })
    }

    /// Returns the bytes of a file that [`Profiles::read`] reads back.
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
            bytes.extend((section.bytes.len() as u32).to_le_bytes());
        }
        self.sections.iter().for_each(|section| bytes.extend(section.bytes.iter()));
        bytes
    }
}

/// Position in the bytes of a file, and the file's name for errors.
struct Reader<'a> {
    place: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads each section without its shapes, and the bytes of its shapes.
    fn heads(mut self) -> Result<Vec<(Section, &'a [u8])>> {
        if self.take(4)? != MAGIC {
            return Err(self.error("other bytes", "a file of kernel times, which begins with RFK1"));
        }
        let count = self.number()?;
        let mut heads = Vec::new();
        for _ in 0..count {
            heads.push(self.head()?);
        }
        let sections = heads.into_iter().map(|(section, length)| Ok((section, self.take(length)?)));
        let sections = sections.collect::<Result<Vec<_>>>()?;
        if self.at < self.bytes.len() {
            return Err(self.error("more bytes", "the end of the file"));
        }
        Ok(sections)
    }

    /// Reads a section without its shapes, and the number of bytes of its shapes.
    fn head(&mut self) -> Result<(Section, usize)> {
        let code = self.take(1)?[0];
        let table = KernelTable::ALL.get(usize::from(code)).copied();
        let table = table.ok_or_else(|| self.error(format!("table {code}"), "a table from 0 to 12"))?;
        let [chip, engine] = [self.text()?, self.text()?];
        let [version, kernel, format] = [self.text()?, self.text()?, self.text()?];
        let shapes = self.number()?;
        let length = self.number()?;
        let bytes = Cow::Borrowed([].as_slice());
        let unpacked = OnceLock::new();
        Ok((
            Section {
                table,
                chip,
                engine,
                version,
                kernel,
                format,
                shapes,
                bytes,
                unpacked,
                least: OnceLock::new(),
            },
            length,
        ))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
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
        let mut seconds = vec![None; KernelTable::Prefill.columns()];
        (seconds[1], seconds[2]) = (Some(10e-6), Some(30e-6));
        writer.shape(&[32, 8, 128, 0], &seconds);
        seconds[2] = Some(20e-6);
        writer.shape(&[4, 1, 128, 0], &seconds);
        let names = ["h100-sxm", "vllm", "0.25.0", "fa3", "bf16"];
        Profiles { sections: vec![writer.section(KernelTable::Prefill, names)] }
    }

    /// 64 tokens take 10 µs and 128 take 30 µs, so 96 take 20 µs, within half a step of the codes, 0.27 %. A section
    /// prints equally before and after its shapes are unpacked.
    #[test]
    fn it_prints_alike_before_and_after_use() {
        let profiles = Profiles::read("times.bin", EMBEDDED).unwrap();
        let before = format!("{:?}", profiles.sections[0]);
        assert!(profiles.sections[0].curve(0).is_some());
        assert_eq!(format!("{:?}", profiles.sections[0]), before);
        assert_ne!(format!("{:?}", profiles.sections[1]), before);
    }

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
        assert!((seconds / 20e-6 - 1.0).abs() < 2.8e-3, "{seconds}");
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

    /// Files with random changes are read or refused without a panic, and any file that is read can be queried.
    #[test]
    fn changed_bytes_are_read_or_refused() {
        let bytes = two_shapes().to_bytes();
        let mut state = 1_u64;
        let mut next = |below: usize| {
            // Pseudorandom numbers by Knuth's MMIX generator.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut read = 0;
        for _ in 0..20_000 {
            let mut changed = bytes.clone();
            for _ in 0..=next(3) {
                let at = next(changed.len());
                changed[at] = next(256) as u8;
            }
            let Ok(profiles) = Profiles::read("times.bin", &changed) else { continue };
            read += 1;
            for section in &profiles.sections {
                for index in 0..=section.shape_count() {
                    drop((section.curve(index), section.lines(index)));
                }
            }
        }
        assert!((1..20_000).contains(&read), "{read}");
    }
}
