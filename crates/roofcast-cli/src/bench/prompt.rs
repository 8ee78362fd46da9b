//! Prompts of a given number of tokens, made of words that tokenizers know.
//!
//! Knows: the mapping from tokens of a workload (a segment and a position in it) to words, and the tokens that a server
//! counts in addition to the words. Equal tokens become equal words, so that prompts share exactly the tokens that the
//! workload shares. Knows nothing about how a server is asked to count.

use super::pixels;
use super::texts::Text;
use super::turn::Turn;
use super::vocabulary::{FEWEST_WORDS, Vocabulary};
use roofcast::workload::request::{OWN_SEGMENTS, Run};
use roofcast::workload::{Images, Prompt, Request, words};
use serde_json::{Map, Value};
use std::future::Future;
use std::task::Poll;

/// First word of every prompt, because a word at the start has no space before it and may be tokenized differently.
const FIRST: &str = "the";

/// Probes that are sent at one time, each with a part of the words.
const AT_ONCE: usize = 16;
/// Most times at which probes are sent.
const MOST_ROUNDS: usize = 4;
/// Words after which no further probes are sent.
const ENOUGH: usize = 32;

/// Generator of prompts.
#[derive(Debug, Clone)]
pub(crate) struct Prompts {
    words: Vec<&'static str>,
    /// Tokens that a server counts in addition to the words: a start token, a chat template.
    overhead: u64,
    tokens_per_word: f64,
    /// Seed from which words are drawn.
    pub(crate) seed: u64,
    /// Texts to send in turn; if there are any, no words are drawn.
    pub(crate) texts: Vec<Text>,
    /// Number of requests in earlier runs, so that the next run continues with the text after theirs.
    pub(super) said: u64,
    /// Seed of the words with which texts begin, so that none repeats; `None` to send them as they are.
    pub(super) busts: Option<u64>,
    /// Images that are made up for each request, before the words of its first turn.
    pub(super) images: Option<Images>,
}

/// Text of one request, with its lengths in tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) turns: Vec<Turn>,
    /// Keys of the request's body that the prompt's row has.
    pub(crate) keys: Map<String, Value>,
    /// Prompt tokens as planned; the server's count may differ.
    pub(crate) input_len: u64,
    pub(crate) output_len: u64,
}

impl Prompts {
    /// Creates prompts from the words of a vocabulary; without one, each word is assumed to be one token, with no
    /// overhead.
    pub(crate) fn new(seed: u64, vocabulary: Option<Vocabulary>) -> Prompts {
        let Vocabulary { words, around } =
            vocabulary.unwrap_or_else(|| Vocabulary { words: words().collect(), around: 0 });
        Prompts {
            words,
            overhead: around,
            tokens_per_word: 1.0,
            seed,
            texts: Vec::new(),
            said: 0,
            busts: None,
            images: None,
        }
    }

    /// Learns from a server's counts. Two probes are sent: the first word alone, and the first word with all words; the
    /// first word has no space before it and may be tokenized differently. If the counts do not differ by one token per
    /// word, `more` is called and parts of the list are probed at one time, to find words of one token each. `None` if the
    /// server does not count.
    pub(crate) async fn learnt<F, T>(&self, count: F, more: impl FnOnce()) -> Option<Prompts>
    where
        F: Fn(String) -> T,
        T: Future<Output = Option<u64>>,
    {
        let mut prompts = self.clone();
        let with = |part: &[&str]| count(format!("{FIRST} {}", part.join(" ")));
        let [first_count, all] = together([count(FIRST.to_owned()), with(&prompts.words)]).await;
        let first_count = first_count?;
        // A server that reports equal numbers for texts of any length does not count.
        let all = all.filter(|all| *all > first_count)?;
        prompts.overhead = first_count.saturating_sub(1);
        let words = prompts.words.len() as u64;
        if all == first_count + words {
            return Some(prompts);
        }
        more();
        let per_word = (all - first_count) as f64 / words as f64;
        let each = promising(per_word).min(prompts.words.len().div_ceil(AT_ONCE));
        let mut single = Vec::new();
        let parts: Vec<&[&str]> = prompts.words.chunks(each).collect();
        for (round, parts) in parts.chunks(AT_ONCE).take(MOST_ROUNDS).enumerate() {
            // Two rounds without such a word show that there are hardly any.
            if single.len() >= ENOUGH || round >= 2 && single.is_empty() {
                break;
            }
            let counts = together_all(parts.iter().map(|part| with(part)).collect()).await;
            for (part, counted) in parts.iter().zip(counts) {
                if counted? == first_count + part.len() as u64 {
                    single.extend_from_slice(part);
                }
            }
        }
        if single.len() >= FEWEST_WORDS && with(&single).await? == first_count + single.len() as u64 {
            prompts.words = single;
        } else {
            // If the words do not fit the tokenizer, as many words are sent as its mean number of tokens per word
            // suggests.
            prompts.tokens_per_word = per_word.max(0.01);
        }
        Some(prompts)
    }

    /// Text of a request. `answered` returns a server's earlier answer in a conversation, which then replaces the drawn
    /// words.
    pub(crate) fn of(&self, request: &Request, id: u64, answered: impl Fn(u32) -> Option<String>) -> Said {
        let output_len = request.output_len.into();
        match self.texts.get((self.said + id) as usize % self.texts.len().max(1)) {
            Some(text) => {
                let words: usize = text.turns.iter().map(|t| t.text.split_whitespace().count()).sum();
                let mut turns = text.turns.clone();
                if let (Some(seed), Some(first)) = (self.busts, turns.first_mut()) {
                    first.begin(&format!("{:08x} ", mixed(seed ^ (self.said + id)) as u32));
                }
                Said {
                    turns,
                    keys: text.keys.clone(),
                    input_len: words as u64,
                    output_len: text.output_len.unwrap_or(output_len),
                }
            }
            None => {
                let mut turns = self.turns(request, id, answered);
                if let (Some(images), Some(first)) = (&self.images, turns.first_mut()) {
                    let seed = mixed(self.seed ^ mixed(u64::from(first_of(request, id)) | 1 << 32));
                    let mut drawn = 0;
                    let urls = pixels::urls(images, || {
                        drawn += 1;
                        mixed(seed ^ mixed(drawn))
                    });
                    *first = Turn::pictured(&urls, std::mem::take(&mut first.text));
                }
                Said { turns, keys: Map::new(), input_len: request.input_len.into(), output_len }
            }
        }
    }

    /// Number of prompts of a run of `requests` that were sent before; prompts of drawn words never repeat.
    pub(super) fn repeated(&self, requests: u64) -> u64 {
        if self.texts.is_empty() || self.busts.is_some() {
            return 0;
        }
        requests.saturating_sub((self.texts.len() as u64).saturating_sub(self.said))
    }

    /// True if request `id` belongs to the randomly drawn fraction `share`.
    pub(super) fn draws(&self, id: u64, share: f64) -> bool {
        let drawn = mixed(self.seed ^ mixed(u64::MAX ^ id)) as f64 / u64::MAX as f64;
        drawn < share
    }

    fn turns(&self, request: &Request, id: u64, answered: impl Fn(u32) -> Option<String>) -> Vec<Turn> {
        let own_segment = OWN_SEGMENTS | id as u32;
        let whole = u64::from(request.input_len);
        let runs = match &request.prompt {
            Prompt::Own => vec![Run { segment: own_segment, start: 0, length: whole }],
            Prompt::Shared { segment, length } => {
                let shared = u64::from(*length).min(whole);
                vec![
                    Run { segment: *segment, start: 0, length: shared },
                    Run { segment: own_segment, start: 0, length: whole - shared },
                ]
            }
            Prompt::Runs(runs) => runs.to_vec(),
        };
        let mut overhead = self.overhead;
        let mut turns: Vec<Turn> = Vec::new();
        for run in runs {
            if let Some(text) = answered(run.segment) {
                turns.push(Turn::assistant(text));
                continue;
            }
            let tokens = run.length.saturating_sub(overhead);
            overhead = overhead.saturating_sub(run.length);
            let begins = turns.is_empty();
            let text = self.text(run.segment, run.start, tokens, begins);
            match turns.last_mut() {
                Some(last) if !last.is_answer() => {
                    last.text.push(' ');
                    last.text.push_str(&text);
                }
                _ => turns.push(Turn::user(text)),
            }
        }
        for turn in &mut turns {
            if turn.text.trim().is_empty() {
                // No endpoint accepts an empty prompt.
                turn.text = FIRST.to_owned();
            }
        }
        turns
    }

    /// Words for `tokens` tokens of a segment; `begins` is true at the start of a prompt, after the first word.
    fn text(&self, segment: u32, start: u64, tokens: u64, begins: bool) -> String {
        let words = (tokens as f64 / self.tokens_per_word).round() as u64;
        let mut text = String::with_capacity(words as usize * 5);
        for position in start..start + words {
            if position > start {
                text.push(' ');
            } else if begins {
                text.push_str(FIRST);
                continue;
            }
            let drawn = mixed(self.seed ^ mixed(u64::from(segment) << 32 ^ position));
            text.push_str(self.words.get(drawn as usize % self.words.len()).copied().unwrap_or_default());
        }
        text
    }
}

/// Segment of a request's first tokens that are its own, or its conversation's: later turns repeat the images of the first.
fn first_of(request: &Request, id: u64) -> u32 {
    let own_segment = OWN_SEGMENTS | id as u32;
    match &request.prompt {
        Prompt::Runs(runs) => runs.first().map_or(own_segment, |run| run.segment),
        Prompt::Own | Prompt::Shared { .. } => own_segment,
    }
}

/// Words of a probe that finds the most words of one token if words have `per_word` tokens in the mean, as words of one
/// and of two tokens: g words are all of one token with probability s^g, and g·s^g is largest at −1/ln s.
fn promising(per_word: f64) -> usize {
    let single = (2.0 - per_word).clamp(0.25, 0.999);
    (-1.0 / single.ln()).round().max(1.0) as usize
}

/// Results of two futures that run at one time.
async fn together<T: Future>(futures: [T; 2]) -> [T::Output; 2] {
    let [one, other] = futures;
    let (one, other) = tokio::join!(one, other);
    [one, other]
}

/// Results of futures that run at one time.
async fn together_all<T: Future>(futures: Vec<T>) -> Vec<T::Output> {
    let mut waiting: Vec<_> = futures.into_iter().map(Box::pin).map(Some).collect();
    let mut done: Vec<Option<T::Output>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (future, result) in waiting.iter_mut().zip(&mut done) {
            if let Some(Poll::Ready(output)) = future.as_mut().map(|future| future.as_mut().poll(cx)) {
                *result = Some(output);
                *future = None;
            }
        }
        if waiting.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// SplitMix64's output function (Steele, Lea and Flood, OOPSLA 2014).
fn mixed(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast::units::Picoseconds;
    use std::cell::Cell;

    fn assumed(seed: u64) -> Prompts {
        Prompts::new(seed, None)
    }

    fn request(input_len: u32, prompt: Prompt) -> Request {
        Request {
            at: Picoseconds::ZERO,
            input_len,
            output_len: 1,
            max_tokens: None,
            priority: 0,
            class: 0,
            adapter: 0,
            user: 0,
            prompt,
        }
    }

    fn said(prompts: &Prompts, id: u64, request: &Request) -> String {
        let turns = prompts.of(request, id, |_| None).turns;
        assert_eq!(turns.len(), 1);
        turns[0].text.clone()
    }

    /// Result of a future that is ready at its first poll.
    fn now<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn equal_tokens_are_equal_words() {
        let prompts = assumed(1);
        let shared = |id| said(&prompts, id, &request(30, Prompt::Shared { segment: 5, length: 20 }));
        let a = shared(0);
        let b = shared(1);
        let words = |t: &str| t.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!((words(&a).len(), words(&a)[..20] == words(&b)[..20], a == b), (30, true, false));
        // Equal tokens give equal words, in any prompt and from the middle of a segment, after the first word.
        let runs = [Run { segment: 5, start: 10, length: 10 }, Run { segment: 9, start: 0, length: 4 }];
        let runs = said(&prompts, 2, &request(14, Prompt::Runs(Box::new(runs))));
        assert_eq!((words(&runs)[0].as_str(), &words(&runs)[1..10]), (FIRST, &words(&a)[11..20]));
        // Unshared prompts differ from one another, and with the seed.
        let own_prompt = |prompts: &Prompts, id| said(prompts, id, &request(16, Prompt::Own));
        assert_ne!(own_prompt(&prompts, 0), own_prompt(&prompts, 1));
        assert_ne!(own_prompt(&prompts, 0), own_prompt(&assumed(2), 0));
    }

    /// Three texts and five requests: two repeat the first texts, and the next run begins with the third text.
    #[test]
    fn texts_are_said_in_turn_from_run_to_run() {
        let text = |word: &str| Text { turns: vec![Turn::user(word.to_owned())], ..Text::default() };
        let mut prompts = Prompts { texts: ["a", "b", "c"].map(text).to_vec(), ..assumed(0) };
        let first = |prompts: &Prompts| said(prompts, 0, &request(1, Prompt::Own));
        assert_eq!((first(&prompts), prompts.repeated(5), prompts.repeated(3)), ("a".to_owned(), 2, 0));
        prompts.said = 5;
        assert_eq!((first(&prompts), prompts.repeated(2)), ("c".to_owned(), 2));
        assert_eq!(assumed(0).repeated(9), 0);
    }

    /// Every prompt begins with another word, also where its text and its run are the same; the text follows.
    #[test]
    fn texts_begin_with_words_of_their_own() {
        let text = Text { turns: vec![Turn::user("tell me".to_owned())], ..Text::default() };
        let prompts = Prompts { texts: vec![text], busts: Some(7), ..assumed(0) };
        let texts: Vec<String> = (0..50).map(|id| said(&prompts, id, &request(1, Prompt::Own))).collect();
        assert!(
            texts.iter().all(|text| text.len() == 8 + " tell me".len() && text.ends_with(" tell me")),
            "{texts:?}"
        );
        let different: std::collections::BTreeSet<&String> = texts.iter().collect();
        assert_eq!((different.len(), prompts.repeated(50)), (50, 0));
    }

    /// Drawing a tenth of 1,000 gives 100 in the mean, with deviation √(1000 · 0.1 · 0.9) = 9.5.
    #[test]
    fn a_share_is_drawn() {
        let prompts = assumed(3);
        let drawn = (0..1000).filter(|id| prompts.draws(*id, 0.1)).count();
        assert!((60..=140).contains(&drawn), "{drawn}");
        assert!((0..1000).all(|id| !prompts.draws(id, 0.0)));
    }

    #[test]
    fn answers_stand_in_conversations() {
        let runs = [(7, 3), (1 << 31, 2), (7, 2)].map(|(segment, length)| Run { segment, start: 0, length });
        let talk = request(7, Prompt::Runs(Box::new(runs)));
        let conversation = assumed(0).of(&talk, 4, |s| (s == 1 << 31).then(|| "well then".to_owned()));
        let turns = conversation.turns;
        assert_eq!(turns.iter().map(Turn::is_answer).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(turns[1].text, "well then");
    }

    #[test]
    fn a_servers_count_is_learnt_and_met() {
        // The server counts seven tokens in addition: 50 tokens are 43 words; if there is no room, one word is sent.
        let questions = Cell::new(0);
        let count = |text: String| {
            questions.set(questions.get() + 1);
            std::future::ready(Some(7 + text.split(' ').count() as u64))
        };
        let prompts = now(assumed(0).learnt(count, || ())).unwrap();
        assert_eq!(questions.get(), 2);
        assert_eq!(said(&prompts, 0, &request(50, Prompt::Own)).split(' ').count(), 43);
        assert_eq!(said(&prompts, 0, &request(3, Prompt::Own)).split(' ').count(), 1);
        assert!(now(assumed(0).learnt(|_| std::future::ready(None), || ())).is_none());
    }

    #[test]
    fn words_of_several_tokens_are_left_out() {
        // Words of six or more letters take two tokens.
        let tokens = |text: &str| text.split(' ').map(|w| if w.len() > 5 { 2 } else { 1 }).sum::<u64>();
        let prompts = now(assumed(0).learnt(|text| std::future::ready(Some(tokens(&text))), || ())).unwrap();
        let text = said(&prompts, 0, &request(400, Prompt::Own));
        assert_eq!(tokens(&text), 400, "{text}");
    }

    #[test]
    fn a_server_is_not_asked_for_long() {
        // If every word takes two tokens, no half of the list does better.
        let questions = Cell::new(0);
        let twice = |text: String| {
            questions.set(questions.get() + 1);
            std::future::ready(Some(2 * text.split(' ').count() as u64))
        };
        let is_told = Cell::new(false);
        let prompts = now(assumed(0).learnt(twice, || is_told.set(true))).unwrap();
        // Two probes, and two rounds.
        assert!(is_told.get() && questions.get() == 2 + 2 * AT_ONCE, "{}", questions.get());
        assert_eq!(said(&prompts, 0, &request(50, Prompt::Own)).split(' ').count(), 25);
        // A server that reports seven for any text does not count.
        assert!(now(assumed(0).learnt(|_| std::future::ready(Some(7)), || ())).is_none());
    }

    #[test]
    fn tokens_of_letters_are_met_in_the_mean() {
        let prompts =
            now(assumed(0).learnt(|text| std::future::ready(Some(text.len() as u64)), || ())).unwrap();
        let letters = said(&prompts, 0, &request(4000, Prompt::Own)).len() as f64;
        assert!((letters / 4000.0 - 1.0).abs() < 0.1, "{letters}");
    }
}
