//! Facts: chips, models, files, number formats and units, each with its source.
//!
//! Knows: what is true of hardware, models and published data, whoever asks. Knows nothing about questions: no engine,
//! no load, no time of a step.

pub mod accelerator;
pub mod batch;
pub mod catalog;
pub mod checkpoint;
pub mod clock;
pub mod encoder;
pub mod error;
pub mod model;
mod named;
pub mod precision;
pub mod preset;
pub mod record;
#[cfg(feature = "schema")]
pub mod schema;
pub mod shares;
pub mod slab;
pub mod slo;
pub mod table;
pub mod units;
pub mod version;

pub use catalog::Catalog;
pub use error::{Error, Result};
pub use model::Model;
