//! Prompts of so many tokens, made of words that tokenizers know.
//!
//! Knows: which words there are, how tokens of a workload (a segment and a position in it) become words, and how many
//! tokens a server counts beside them. Equal tokens become equal words, so that prompts share exactly what the workload
//! says they share. Knows nothing about how a server is asked to count.

use roofcast::kv_cache::prefix::Run;
use roofcast::workload::{Prompt, Request, Traffic};
use std::future::Future;

/// Words that the tokenizers in use hold as one token with the space before them.
const WORDS: &str = "the of and to in is that for it was on are as with his they at be this from have or by one had \
    not but what all were when we there can an your which their said if do will each about how up out them then she \
    many some so these would other into has more her two like him see time could no make than first been its who now \
    people my made over did down only way find use may water long little very after words called just where most know \
    get through back much before go good new write our used me man too any day same right look think also around \
    another came come work three word must because does part";

/// Fewer words than this are too few to tell prompts apart.
const FEWEST_WORDS: usize = 16;

/// Makes prompts.
#[derive(Debug, Clone)]
pub(crate) struct Prompts {
    words: Vec<&'static str>,
    /// Tokens that a server counts beside the words: a start, a chat template.
    overhead: u64,
    tokens_per_word: f64,
    seed: u64,
}

impl Prompts {
    /// A token a word and nothing beside.
    pub(crate) fn assumed(seed: u64) -> Prompts {
        Prompts { words: WORDS.split_whitespace().collect(), overhead: 0, tokens_per_word: 1.0, seed }
    }

    /// Learns from a server what it counts: a probe of one word and one of all. Where they do not differ by a token a
    /// word, halves are probed until the words that take more are known. None where it does not count.
    pub(crate) async fn learnt<F, T>(seed: u64, count: F) -> Option<Prompts>
    where
        F: Fn(String) -> T,
        T: Future<Output = Option<u64>>,
    {
        let mut prompts = Prompts::assumed(seed);
        let one = count(prompts.words.first()?.to_string()).await?;
        let all = count(prompts.words.join(" ")).await?;
        let more = prompts.words.len() as u64 - 1;
        prompts.overhead = one.saturating_sub(1);
        if all == one + more {
            return Some(prompts);
        }
        let mut single = Vec::new();
        let mut parts = vec![prompts.words.clone()];
        while let Some(part) = parts.pop() {
            if count(part.join(" ")).await? == prompts.overhead + part.len() as u64 {
                single.extend(part);
            } else if part.len() > 1 {
                let (left, right) = part.split_at(part.len() / 2);
                parts.extend([right.to_vec(), left.to_vec()]);
            }
        }
        if single.len() >= FEWEST_WORDS {
            prompts.words = single;
        } else {
            // A tokenizer of another kind: as many words as its mean says.
            prompts.tokens_per_word = (all.saturating_sub(one) as f64 / more as f64).max(0.01);
        }
        Some(prompts)
    }

    /// What a request says, in turns. `answered` gives what a server said in an earlier one, which then counts for it.
    pub(crate) fn of(
        &self,
        request: &Request,
        id: u64,
        answered: impl Fn(u32) -> Option<String>,
    ) -> Vec<Turn> {
        let own = Traffic::OWN_SEGMENTS | id as u32;
        let whole = u64::from(request.input_len);
        let runs = match &request.prompt {
            Prompt::Own => vec![Run { segment: own, start: 0, length: whole }],
            Prompt::Shared { segment, length } => {
                let shared = u64::from(*length).min(whole);
                vec![
                    Run { segment: *segment, start: 0, length: shared },
                    Run { segment: own, start: 0, length: whole - shared },
                ]
            }
            Prompt::Runs(runs) => runs.to_vec(),
        };
        let mut overhead = self.overhead;
        let mut turns: Vec<Turn> = Vec::new();
        for run in runs {
            if let Some(text) = answered(run.segment) {
                turns.push(Turn { user: false, text });
                continue;
            }
            let tokens = run.length.saturating_sub(overhead);
            overhead = overhead.saturating_sub(run.length);
            let text = self.text(run.segment, run.start, tokens);
            match turns.last_mut() {
                Some(last) if last.user => {
                    last.text.push(' ');
                    last.text.push_str(&text);
                }
                _ => turns.push(Turn { user: true, text }),
            }
        }
        for turn in &mut turns {
            if turn.text.trim().is_empty() {
                // No endpoint takes an empty prompt.
                turn.text = self.text(own, 0, 1);
            }
        }
        turns
    }

    fn text(&self, segment: u32, start: u64, tokens: u64) -> String {
        let words = (tokens as f64 / self.tokens_per_word).round() as u64;
        let mut text = String::with_capacity(words as usize * 5);
        for position in start..start + words {
            if position > start {
                text.push(' ');
            }
            let drawn = mixed(self.seed ^ mixed(u64::from(segment) << 32 ^ position));
            text.push_str(self.words.get(drawn as usize % self.words.len()).copied().unwrap_or_default());
        }
        text
    }
}

/// What one side said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The user, else the server.
    pub(crate) user: bool,
    /// The words.
    pub(crate) text: String,
}

/// SplitMix64's output function (Steele, Lea and Flood, OOPSLA 2014).
fn mixed(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
