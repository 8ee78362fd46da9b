//! Files of kernel times.
//!
//! Knows: how they are built from tables. Reading is in [`roofcast_cost::profile`].

pub mod build;
