//! Names of block contents in the scheduler: look-ups of prompts, changes of the prefix cache, and names without use.

use super::Scheduler;
use crate::kv_cache::paged::Change;
use crate::kv_cache::prefix::Tokens;
use crate::kv_cache::spans::Spans;
use roofcast_ask::workload::Prompt;

impl Scheduler {
    /// Number of tokens of `prompt` in the prefix cache of the first group of layers, in whole blocks.
    pub(crate) fn cached(&self, prompt: &Prompt) -> u64 {
        let names = self.names.known(&Tokens::of_prompt(prompt));
        let cached = names.ranges().flatten().take_while(|name| self.pool.find(*name, None).is_some());
        cached.count() as u64 * self.config.block_size
    }

    /// Starts to log changes of the prefix cache.
    pub(crate) fn watch(&mut self) {
        self.pool.watch();
        self.names.watch();
    }

    /// True if changes of the prefix cache are logged.
    pub(crate) fn is_watched(&mut self) -> bool {
        self.pool.changes().is_some()
    }

    /// Moves the log of changes of the prefix cache to `into`; the owner of a block is the request's id.
    pub(crate) fn take_changes(&mut self, into: &mut Vec<Change>) {
        let names = &self.names;
        let changes = self.pool.changes().into_iter().flat_map(|changes| changes.drain(..));
        into.extend(changes.map(|change| match change {
            Change::Stored { owner, first, contents } => {
                let contents = contents.into_iter().map(|name| names.content(name)).collect();
                Change::Stored { owner, first, contents }
            }
            Change::Removed { content } => Change::Removed { content: names.content(content) },
        }));
    }

    /// Frees the names of contents to which nothing refers, if there are many.
    pub(super) fn collect_names(&mut self) {
        if self.names.is_due() {
            let requests = self.requests.iter().flat_map(|r| &r.contents).flat_map(Spans::ranges);
            let tier = self.tier.iter().flat_map(|tier| tier.names());
            self.names.collect(requests.chain(self.pool.names()).chain(tier));
        }
    }
}
