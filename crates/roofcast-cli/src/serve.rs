//! The server behind the page: questions as JSON over POST, answered with the documents of the verbs.
//!
//! Knows: a request is admitted ([`Guard`]), routed ([`routes`]), read as a question that cannot read
//! files of this machine ([`question`]), and answered at once ([`api`]) or as lines that follow long work ([`work`]).
//! Knows nothing about the contents of an answer.

pub(crate) mod accuracy;
pub(crate) mod api;
mod listen;
pub(crate) mod measure;
mod models;
mod question;
mod routes;
mod work;

pub(crate) use api::Api;
pub(crate) use listen::run;
pub(crate) use roofcast_http::guard::Guard;
