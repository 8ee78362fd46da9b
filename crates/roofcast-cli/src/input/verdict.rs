//! Whether what is asked would start, as its engine says when it does.
//!
//! Knows: for how long requests the engine of a command starts that has no number for it. What it needs for them is the
//! library's.

use super::scenario::{Bound, Scenario};
use anyhow::Result;
use roofcast::memory::{self, Start};
use roofcast::{Deployment, Error};

impl Scenario {
    /// What the engine says when it starts, where the longest request that it serves is said: by the spec, or by a command,
    /// which without it serves all that the model does.
    pub(crate) fn start(&self, deployment: &Deployment) -> Option<Start> {
        let longest = deployment.options.engine.max_model_len;
        let longest = longest.or_else(|| deployment.longest().filter(|_| self.runs.is_some()))?;
        let start = memory::start(deployment, longest);
        match &start.refusal {
            Some(refusal) if self.runs == Some(Bound::Memory) && refusal.longest > 0 => {
                let mut shorter = deployment.clone();
                shorter.options.engine.max_model_len = Some(refusal.longest);
                Some(memory::start(&shorter, refusal.longest))
            }
            _ => Some(start),
        }
    }

    /// Refuses a command whose engine would not start.
    pub(crate) fn starts(&self, deployment: &Deployment) -> Result<()> {
        let refused = self.start(deployment).filter(|_| self.runs.is_some());
        match refused.and_then(|start| Some((start.refusal?, start.max_model_len))) {
            Some((refusal, longest)) => {
                Err(Error::WillNotStart(refusal.told(deployment.options.engine.name(), longest)).into())
            }
            None => Ok(()),
        }
    }
}
