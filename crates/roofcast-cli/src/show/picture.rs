//! Charts of the library for the page, drawn for places of several widths.

use serde::Serialize;

/// Widths of the charts in pixels, the widest first.
const WIDTHS: [f64; 3] = [1000.0, 640.0, 350.0];

/// A chart as SVG, in the colours of the page, with its width.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Picture {
    width: f64,
    svg: String,
}

/// The chart that `draw` writes at each width.
pub(crate) fn pictures(draw: impl Fn(f64) -> String) -> Vec<Picture> {
    WIDTHS.map(|width| Picture { width, svg: draw(width) }).into()
}
