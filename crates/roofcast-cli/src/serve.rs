//! The server behind the page: questions as JSON over POST, answered by what the verbs answer with.
//!
//! Knows: a request is admitted ([`crate::http::guard`]), routed ([`routes`]), read as a question that reaches no file of this machine
//! ([`question`]), and answered at once ([`api`]) or as lines that follow long work ([`work`]). What an answer holds is the
//! verbs' affair.

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
