//! The server behind the page: questions as JSON over POST, answered with the documents of the verbs.
//!
//! Knows: a request is admitted ([`crate::http::guard`]), routed ([`routes`]), read as a question that cannot read
//! files of this machine ([`question`]), and answered at once ([`api`]) or as lines that follow long work ([`work`]).
//! Knows nothing about the contents of an answer.

mod accuracy;
mod api;
mod listen;
mod measure;
mod models;
mod question;
mod results;
mod routes;
#[cfg(test)]
mod types;
mod work;

pub(crate) use crate::http::guard::Guard;
pub(crate) use api::Api;
pub(crate) use listen::run;
