//! Start-up verdict of the engine that the question is about.
//!
//! Knows: the longest request with which an engine starts if its command has no number for it. The library computes the
//! memory.

use super::scenario::{Bound, Scenario};
use anyhow::Result;
use roofcast::memory::{Memory, Start};
use roofcast::units::Bytes;
use roofcast::{Deployment, Error};

impl Scenario {
    /// The engine's start-up report, if its longest request is known: the spec states it, or a command does. A command
    /// without a number serves up to the model's maximum, as does an engine that shares its accelerator with other
    /// processes.
    pub(crate) fn start(&self, deployment: &Deployment) -> Option<Start> {
        let longest = deployment.engine.longest();
        let shares = deployment.memory_used > Bytes::ZERO;
        let longest = longest.or_else(|| deployment.longest().filter(|_| self.runs.is_some() || shares))?;
        let start = Memory::of(deployment).start(longest);
        match &start.refusal {
            Some(refusal) if self.runs == Some(Bound::Memory) && refusal.longest > 0 => {
                let mut shorter = deployment.clone();
                shorter.engine.max_model_len = Some(refusal.longest);
                Some(Memory::of(&shorter).start(refusal.longest))
            }
            _ => Some(start),
        }
    }

    /// The refusal of `start` as a sentence; `None` if the engine starts. Ollama starts with some layers on the processor
    /// (`-ngl auto` of its llama-server), which a forecast counts if it is asked to.
    pub(crate) fn refusal(&self, deployment: &Deployment, start: &Start) -> Option<String> {
        let (refusal, engine) = (start.refusal.as_ref()?, deployment.engine.name());
        if !self.by_ollama {
            return Some(refusal.told(engine, start.max_model_len));
        }
        Some(format!(
            "not all of the model fits the accelerators: {}; Ollama then puts layers on the processor by itself, which is \
             slower: --n-gpu-layers N forecasts it with N layers on the accelerators",
            refusal.lacks(engine, start.max_model_len)
        ))
    }

    /// Refuses a command with which the engine would not start.
    pub(crate) fn starts(&self, deployment: &Deployment) -> Result<()> {
        let refused = self.start(deployment).filter(|_| self.runs.is_some());
        match refused.and_then(|start| self.refusal(deployment, &start)) {
            Some(refusal) => Err(Error::WillNotStart(refusal).into()),
            None => Ok(()),
        }
    }
}
