//! Equal iterations taken at once.
