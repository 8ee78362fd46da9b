//! The servers of a run, which receive requests in turn.

use super::client::Client;
use super::clock::Clock;
use super::target::Target;
use anyhow::Result;
use roofcast::units::Picoseconds;
use std::sync::Arc;

/// A client for each server.
pub(super) struct Servers {
    clients: Vec<Arc<Client>>,
    pub(super) clock: Clock,
}

impl Servers {
    /// Creates a client for each of `targets`, which must not be empty.
    pub(super) fn new(targets: Vec<Target>, clock: Clock) -> Result<Servers> {
        let clients = targets.into_iter().map(|target| Ok(Arc::new(Client::new(target, clock)?)));
        Ok(Servers { clients: clients.collect::<Result<_>>()?, clock })
    }

    pub(super) fn all(&self) -> &[Arc<Client>] {
        &self.clients
    }

    /// Index and client of the server that receives request `id`.
    pub(super) fn of(&self, id: u64) -> (u64, &Client) {
        let index = id as usize % self.clients.len();
        (index as u64, &self.clients[index])
    }

    /// Opens connections ahead of a run, divided evenly among the servers.
    pub(super) async fn open(&self, count: usize) {
        let servers = self.clients.len();
        for (index, client) in self.clients.iter().enumerate() {
            client.open((count + servers - 1 - index) / servers).await;
        }
    }

    /// Number of requests that were sent a second time since the last call.
    pub(super) fn take_resent(&self) -> u64 {
        self.clients.iter().map(|client| client.take_resent()).sum()
    }

    /// True if any byte was received after `at`.
    pub(super) fn was_read_since(&self, at: Picoseconds) -> bool {
        self.clients.iter().any(|client| client.was_read_since(at))
    }
}
