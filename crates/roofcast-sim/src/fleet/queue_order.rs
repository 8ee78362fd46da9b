//! The order of queues: by arrival, by priority, or by predicted output length.
//!
//! Knows: the sort key of each request. Knows nothing about queues.

use roofcast_ask::engine_settings::EngineSettings;
use roofcast_ask::spec::QueuePolicy;
use roofcast_ask::workload::Request;
use roofcast_ask::workload::prediction::Guesses;

/// Sort order of a queue of waiting requests.
#[derive(Debug, Clone)]
pub enum QueueOrder {
    /// Order of arrival.
    Arrival,
    /// Priority of the requests.
    Priority,
    /// Predicted output length, shortest first.
    Length(Box<Guesses>),
}

impl QueueOrder {
    /// The queue order of a spec; `seed` draws the errors of the predictions.
    pub fn new(settings: &EngineSettings, seed: u64) -> QueueOrder {
        match settings.policy {
            QueuePolicy::Fcfs if settings.sglang().is_some_and(|own| own.enable_priority_scheduling) => {
                QueueOrder::Priority
            }
            QueuePolicy::Fcfs => QueueOrder::Arrival,
            QueuePolicy::Priority => QueueOrder::Priority,
            QueuePolicy::Sjf => QueueOrder::Length(Box::new(Guesses::new(settings.length_prediction, seed))),
        }
    }

    pub(super) fn key(&mut self, request: &Request) -> i64 {
        match self {
            QueueOrder::Arrival => 0,
            QueueOrder::Priority => i64::from(request.priority),
            QueueOrder::Length(guesses) => guesses.next(request.output_len),
        }
    }
}
