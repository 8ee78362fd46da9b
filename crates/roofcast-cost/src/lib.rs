//! Cost of a step: FLOPs, bytes, memory, the limit and the forecast.
//!
//! Knows: operators, measured kernel times, the overhead of engines, and the memory of a deployment. Knows nothing about
//! traffic: a step is given.

pub mod bands;
pub mod calibration;
pub mod capacity;
pub mod coefficients;
pub mod cost;
mod evidence;
pub mod forecaster;
pub mod kernel_time;
pub mod limits;
pub mod memory;
pub mod operator;
pub mod profile;
pub mod startup;
pub mod step;
pub mod timing;

pub use forecaster::Forecaster;
