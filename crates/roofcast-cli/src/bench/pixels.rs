//! Images that are made up for prompts, of the width and height that a workload states.
//!
//! Knows: PNG files of one bit a pixel, drawn at random, so that no two requests have the same image and a server's cache of
//! images finds none. A server decodes them to the stated size; their content has no meaning. Knows nothing about models.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use roofcast::workload::Images;
use roofcast::{Error, Result};
use std::io::Write as _;

/// Most pixels of an image: a file of two MiB.
const MOST_PIXELS: u64 = 1 << 24;

/// Refuses images of which no file can be made.
pub(crate) fn check(place: &str, images: &Images) -> Result<()> {
    let refuse = |field: &str, found: String, accepted: &str| {
        Err(Error::field(place, format!("workload.images.{field}"), found, accepted))
    };
    let (Some(width), Some(height)) = (images.width, images.height) else {
        return refuse(
            "tokens",
            "without a size".to_owned(),
            "width and height: an image is made for each request",
        );
    };
    if images.frames.is_some() {
        return refuse("frames", "set".to_owned(), "none: only still images are made up");
    }
    if width * height > MOST_PIXELS {
        let accepted = format!("at most {MOST_PIXELS} pixels of an image");
        return refuse("width", format!("{width} × {height}"), &accepted);
    }
    Ok(())
}

/// URLs of the images of a request, with the data in them; `draw` returns random bits.
pub(super) fn urls(images: &Images, mut draw: impl FnMut() -> u64) -> Vec<String> {
    let size = [images.width.unwrap_or(1) as u32, images.height.unwrap_or(1) as u32];
    let url = |_| format!("data:image/png;base64,{}", BASE64_STANDARD.encode(png(size, &mut draw)));
    (0..images.count).map(url).collect()
}

/// A PNG file of one bit a pixel (ISO/IEC 15948).
fn png([width, height]: [u32; 2], draw: &mut impl FnMut() -> u64) -> Vec<u8> {
    let row = width.div_ceil(8) as usize;
    // Each row begins with its filter: none.
    let mut pixels = vec![0; (row + 1) * height as usize];
    for line in pixels.chunks_exact_mut(row + 1) {
        for part in line[1..].chunks_mut(8) {
            let bytes = draw().to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        }
    }
    // Bit depth 1, grey, and the only methods of compression, filters and interlacing that are meant here.
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[1, 0, 0, 0, 0]].concat();
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (name, data) in [(b"IHDR", header), (b"IDAT", packed(&pixels)), (b"IEND", Vec::new())] {
        let named = [&name[..], &data].concat();
        let mut sum = flate2::Crc::new();
        sum.update(&named);
        file.extend_from_slice(&(data.len() as u32).to_be_bytes());
        file.extend_from_slice(&named);
        file.extend_from_slice(&sum.sum().to_be_bytes());
    }
    file
}

/// Bytes in zlib's format, without compression: random bits have none.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::none());
    // Writing to memory does not fail.
    drop(zlib.write_all(bytes));
    zlib.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 × 3 pixels are two bytes a row after its filter: 9 bytes, which zlib stores with 2 of head, 5 of a block and 4 of a
    /// checksum. The checksum of IEND is constant.
    #[test]
    fn an_image_is_a_png_of_its_size() {
        let file = png([10, 3], &mut || u64::MAX);
        assert_eq!(file[..8], *b"\x89PNG\r\n\x1a\n");
        assert_eq!(file[8..29], *b"\0\0\0\rIHDR\0\0\0\x0a\0\0\0\x03\x01\0\0\0\0");
        assert_eq!(file[33..41], *b"\0\0\0\x14IDAT");
        assert_eq!(file[file.len() - 12..], *b"\0\0\0\0IEND\xae\x42\x60\x82");
        let images = Images { count: 2, width: Some(10), height: Some(3), frames: None, tokens: None };
        let mut next = 0;
        let urls = urls(&images, || {
            next += 1;
            next
        });
        assert!(urls.len() == 2 && urls[0] != urls[1] && urls[0].starts_with("data:image/png;base64,iVBOR"));
    }

    #[test]
    fn images_that_cannot_be_made_are_refused() {
        let images = Images { count: 1, width: Some(512), height: Some(512), frames: None, tokens: None };
        assert!(check("s", &images).is_ok());
        for wrong in [
            Images { width: None, height: None, tokens: Some(7), ..images },
            Images { frames: Some(8), ..images },
            Images { width: Some(100_000), ..images },
        ] {
            assert!(check("s", &wrong).unwrap_err().to_string().contains("workload.images"), "{wrong:?}");
        }
    }
}
