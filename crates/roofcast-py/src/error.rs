//! The exception `roofcast.Error`, which every question may raise.

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;

create_exception!(
    roofcast,
    Error,
    PyValueError,
    "A question that has no answer: names file, line or field, what was found and what is accepted."
);
