//! Texts of answers: words drawn from the prompt, generated before the first token is sent.
//!
//! Knows: an answer's length, the stop string that ends it, each token's text, and the parts of an answer: thinking, text
//! and calls of tools, whichever API asks. An answer is a function of prompt and seed. Knows nothing about when tokens
//! are sent.

mod parts;

use super::ask::{Ask, Endpoint};
#[cfg(feature = "tokenizers")]
use super::tokenizer::Vocabulary;
use super::tokenizer::{Rule, Tokenizer};
use super::tools::{Calls, Choice, Tool};
pub(crate) use parts::{Part, PartKind};
#[cfg(feature = "tokenizers")]
use roofcast::Result;
use roofcast::workload::words;
use std::sync::Arc;

/// The generated answer of one choice.
#[derive(Debug, Clone)]
pub(crate) struct Completion {
    pub(crate) tokens: Arc<[u32]>,
    /// Text of the whole answer.
    pub(crate) text: String,
    /// End of each token's text, in bytes of `text`. A character of several tokens belongs to the token that completes
    /// it.
    ends: Vec<u32>,
    /// True if the answer ends by itself or by a stop string, rather than at its token limit.
    pub(crate) stops: bool,
    /// The stop string that ended the answer.
    pub(crate) stop_reason: Option<String>,
    /// Number of tokens of thinking, with which the answer begins.
    thoughts: usize,
    /// Calls of tools; after the thinking, `text` then consists of their arguments, one after the other.
    calls: Vec<Said>,
    /// True if the engine aborted the answer before its end.
    pub(crate) aborted: bool,
}

/// A tool call within an answer.
#[derive(Debug, Clone)]
struct Said {
    name: String,
    /// Index of the token at which the call's arguments begin.
    first: usize,
}

impl Completion {
    /// True if the answer calls tools instead of giving a text.
    pub(crate) fn calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Number of the call to which token `index` belongs, and the tool's name if the call begins with this token.
    pub(crate) fn call_of(&self, index: usize) -> (usize, Option<&str>) {
        let number = self.calls.iter().rposition(|call| call.first <= index).unwrap_or(0);
        let begun = self.calls.get(number).filter(|call| call.first == index);
        (number, begun.map(|call| call.name.as_str()))
    }

    /// The text of token `index`.
    pub(crate) fn token_text(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]) as usize;
        self.text.get(start..self.ends[index] as usize).unwrap_or_default()
    }

    /// The text of the tokens from `from` up to, not including, `to`.
    pub(crate) fn span(&self, from: usize, to: usize) -> &str {
        let end = |before: usize| before.checked_sub(1).map_or(0, |last| self.ends[last]) as usize;
        self.text.get(end(from)..end(to)).unwrap_or_default()
    }

    /// End of the text of token `index`, in bytes.
    pub(crate) fn end(&self, index: usize) -> u32 {
        self.ends[index]
    }

    /// The text up to and including token `index`.
    pub(crate) fn text_until(&self, index: usize) -> &str {
        self.text.get(..self.ends[index] as usize).unwrap_or_default()
    }

    /// Cuts the answer after `tokens` tokens, because the engine aborted it there.
    pub(crate) fn cut(&mut self, tokens: usize) {
        self.tokens = self.tokens[..tokens].into();
        self.calls.retain(|call| call.first < tokens);
        self.thoughts = self.thoughts.min(tokens);
        self.ends.truncate(tokens);
        self.text.truncate(self.ends.last().map_or(0, |end| *end as usize));
        (self.aborted, self.stops, self.stop_reason) = (true, false, None);
    }
}

/// Resolution with which random fractions are drawn.
const MILLION: usize = 1_000_000;

/// Generator of answers.
#[derive(Debug, Clone)]
pub struct Author {
    tokenizer: Arc<dyn Tokenizer>,
    words: Vec<Word>,
    lengths: Lengths,
    calling: Calling,
}

/// Lengths in tokens of answers that end by themselves; one is drawn for each answer.
#[derive(Debug, Clone, Default)]
pub struct Lengths {
    /// Lengths of all such answers; empty if none are stated.
    pub stated: Vec<u64>,
    /// Lengths of answers to requests without a bound, if none are stated.
    pub usual: Vec<u64>,
}

/// Settings of tool calls in answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calling {
    /// Fraction of answers that call tools if the client leaves the choice to the model.
    pub share: f64,
    /// Most tool calls in an answer.
    pub most: usize,
}

/// A word with the space before it, and its tokens.
#[derive(Debug, Clone)]
struct Word {
    tokens: Vec<u32>,
    /// Text that each token has at the beginning of an answer; the next field has the text after other tokens.
    begins: Vec<String>,
    follows: Vec<String>,
    text: &'static str,
}

impl Word {
    fn new(tokenizer: &dyn Tokenizer, tokens: Vec<u32>, text: &'static str) -> Word {
        let begins = tokenizer.pieces(&tokens);
        let follows = tokenizer.pieces(&tokens.repeat(2)).split_off(tokens.len());
        Word { tokens, begins, follows, text }
    }
}

/// Words that are one token each with the space before them; if the tokenizer has none, all words that it can encode.
fn vocabulary(tokenizer: &dyn Tokenizer) -> Vec<Word> {
    let encode = |text: &str| tokenizer.encode(text).unwrap_or_default();
    let whole = |text: &'static str| {
        let spaced = format!(" {text}");
        // Some vocabularies add the space before a text's first word themselves.
        let cut = [encode(&spaced), encode(text)].into_iter().filter(|tokens| tokens.len() == 1);
        cut.map(|tokens| Word::new(tokenizer, tokens, text)).find(|word| word.follows == [spaced.as_str()])
    };
    let vocabulary: Vec<Word> = words().filter_map(whole).collect();
    if !vocabulary.is_empty() {
        return vocabulary;
    }
    let cut = words().map(|text| Word::new(tokenizer, encode(&format!(" {text}")), text));
    cut.filter(|word| !word.tokens.is_empty()).collect()
}

impl Author {
    /// Creates an author of texts in the tokens of a rule that needs no vocabulary. Answers have these lengths in tokens
    /// unless clients set bounds.
    pub fn by_rule(lengths: Lengths, calling: Calling) -> Author {
        Author::new(Arc::new(Rule), lengths, calling)
    }

    /// Creates an author of texts in the tokens of a `tokenizer.json` of this text. Fails, with `place` as the name of the
    /// file, if the text is no tokenizer.
    #[cfg(feature = "tokenizers")]
    pub fn by_vocabulary(place: &str, text: &str, lengths: Lengths, calling: Calling) -> Result<Author> {
        Ok(Author::new(Arc::new(Vocabulary::parse(place, text)?), lengths, calling))
    }

    fn new(tokenizer: Arc<dyn Tokenizer>, lengths: Lengths, calling: Calling) -> Author {
        Author { words: vocabulary(&*tokenizer), tokenizer, lengths, calling }
    }

    /// The tokenizer of prompts and answers.
    pub(crate) fn tokenizer(&self) -> &Arc<dyn Tokenizer> {
        &self.tokenizer
    }

    /// Generates the answer to choice `choice` of a prompt, of at most `most` tokens.
    pub(crate) fn answer(&self, ask: &Ask, prompt: &[u32], choice: usize, most: u64) -> Completion {
        let mut draw = Draw::of(prompt, ask.seed ^ (choice as u64) << 32);
        // At least one token is left for the answer.
        let room = ask.thinking.min(most.saturating_sub(1));
        if room == 0 {
            return self.answer_alone(ask, &mut draw, most);
        }
        let thoughts = self.drawn(ask, &mut draw).map_or(room, |length| length.clamp(1, room));
        let thinking = self.words(&mut draw, thoughts as usize, |_, _, _| false);
        let answer = self.answer_alone(ask, &mut draw, most - thoughts);
        thinking.before(answer)
    }

    /// Generates an answer without thinking.
    fn answer_alone(&self, ask: &Ask, draw: &mut Draw, most: u64) -> Completion {
        if let Some(calls) = ask.calls.as_ref().filter(|calls| self.chooses(calls, draw)) {
            return self.calls(calls, draw, most);
        }
        if let Some(form) = &ask.form {
            let text = form.text(&mut |count| draw.below(count), &|index| self.word(index));
            return self.said(&[text], most);
        }
        let length = self.length(ask, draw, most) as usize;
        let mut answer = self.words(draw, length, |answer, tokens, new| {
            tokens >= ask.min_tokens && answer.stopped(&ask.stop, new)
        });
        answer.stops |= !ask.ignore_eos && (length as u64) < most;
        answer
    }

    /// Generates words of `length` tokens, fewer if `stops` says so of the text so far, its tokens and its last bytes.
    fn words(
        &self,
        draw: &mut Draw,
        length: usize,
        stops: impl Fn(&mut Completion, u64, usize) -> bool,
    ) -> Completion {
        let mut answer = Completion::with_room(length);
        let mut tokens = Vec::with_capacity(length);
        'said: while let Some(word) = self.words.get(draw.below(self.words.len())) {
            let pieces = if tokens.is_empty() { &word.begins } else { &word.follows };
            for (token, piece) in word.tokens.iter().zip(pieces) {
                tokens.push(*token);
                answer.say(piece);
                if stops(&mut answer, tokens.len() as u64, piece.len()) || tokens.len() == length {
                    break 'said;
                }
            }
        }
        answer.tokens = tokens.into();
        answer
    }

    /// The word of index `index`, modulo their number.
    fn word(&self, index: usize) -> String {
        self.words.get(index % self.words.len().max(1)).map_or("", |word| word.text).to_owned()
    }

    /// Decides if an answer calls tools.
    fn chooses(&self, calls: &Calls, draw: &mut Draw) -> bool {
        calls.choice != Choice::Auto || (draw.below(MILLION) as f64) < self.calling.share * MILLION as f64
    }

    /// Generates an answer that calls the tools in turn, in the client's order.
    fn calls(&self, calls: &Calls, draw: &mut Draw, most: u64) -> Completion {
        let count = if calls.parallel { 1 + draw.below(self.calling.most) } else { 1 };
        let called: Vec<&Tool> = calls.tools.iter().cycle().take(count).collect();
        let arguments = |tool: &&Tool| {
            tool.arguments(&mut |count| draw.below(count), &|index| self.word(index)).to_string()
        };
        let texts: Vec<String> = called.iter().map(arguments).collect();
        let mut answer = self.said(&texts, most);
        let lengths = texts.iter().map(|text| self.tokenizer.encode(text).unwrap_or_default().len());
        let firsts = lengths.scan(0, |from, length| Some(std::mem::replace(from, *from + length)));
        let begun = firsts.zip(called).filter(|(first, _)| *first < answer.tokens.len());
        answer.calls = begun.map(|(first, tool)| Said { name: tool.name.clone(), first }).collect();
        answer
    }

    /// An answer that consists of `texts`, cut off at `most` tokens.
    fn said(&self, texts: &[String], most: u64) -> Completion {
        let encoded = texts.iter().map(|text| self.tokenizer.encode(text).unwrap_or_default());
        let mut encoded: Vec<Vec<u32>> = encoded.collect();
        if encoded.iter().all(Vec::is_empty) {
            // An answer has at least one token, even if its text is empty.
            encoded
                .push(self.words.first().and_then(|word| word.tokens.first()).copied().into_iter().collect());
        }
        let mut tokens = encoded.concat();
        let stops = tokens.len() as u64 <= most;
        tokens.truncate(most.max(1) as usize);
        let mut answer = Completion::with_room(tokens.len());
        let pieces = encoded.iter().flat_map(|tokens| self.tokenizer.pieces(tokens));
        pieces.take(tokens.len()).for_each(|piece| answer.say(&piece));
        Completion { tokens: tokens.into(), stops, ..answer }
    }

    /// A drawn length of an answer that ends by itself; `None` if it is the client's bound that decides. The bound that
    /// Anthropic's API requires decides nothing, and OpenAI's default for completions does.
    fn drawn(&self, ask: &Ask, draw: &mut Draw) -> Option<u64> {
        let free = match ask.endpoint {
            Endpoint::Messages => true,
            Endpoint::Completions | Endpoint::Embeddings => false,
            _ => ask.max_tokens.is_none(),
        };
        let lengths = match self.lengths.stated.as_slice() {
            [] if free => &self.lengths.usual,
            stated => stated,
        };
        lengths.get(draw.below(lengths.len())).copied()
    }

    /// Length of an answer in tokens before stop strings: the allowed maximum if the client asks to ignore the end of
    /// the answer, else a drawn length.
    fn length(&self, ask: &Ask, draw: &mut Draw, most: u64) -> u64 {
        let free = self.drawn(ask, draw).filter(|_| !ask.ignore_eos).unwrap_or(most);
        free.max(ask.min_tokens).clamp(1, most.max(1))
    }
}

impl Completion {
    /// An empty answer with capacity for `length` tokens.
    fn with_room(length: usize) -> Completion {
        Completion {
            tokens: Arc::from([]),
            text: String::with_capacity(length * 4),
            ends: Vec::with_capacity(length),
            stops: false,
            stop_reason: None,
            thoughts: 0,
            calls: Vec::new(),
            aborted: false,
        }
    }

    /// This thinking, followed by an answer.
    fn before(mut self, answer: Completion) -> Completion {
        let thoughts = self.tokens.len();
        let bytes = self.text.len() as u32;
        self.text.push_str(&answer.text);
        self.ends.extend(answer.ends.iter().map(|end| end + bytes));
        let calls = answer.calls.into_iter();
        Completion {
            tokens: self.tokens.iter().chain(&*answer.tokens).copied().collect(),
            text: self.text,
            ends: self.ends,
            thoughts,
            calls: calls.map(|call| Said { first: call.first + thoughts, ..call }).collect(),
            ..answer
        }
    }

    /// Appends a token with its text.
    fn say(&mut self, piece: &str) {
        self.text.push_str(piece);
        self.ends.push(self.text.len() as u32);
    }

    /// True if the last `new` bytes completed one of `stops`; the text is then cut before the stop string.
    fn stopped(&mut self, stops: &[String], new: usize) -> bool {
        let occurrence = |stop: &String| {
            let from = self.text.len().saturating_sub(new + stop.len());
            let from = (from..=self.text.len()).find(|at| self.text.is_char_boundary(*at)).unwrap_or(0);
            self.text[from..].find(stop.as_str()).map(|at| (from + at, stop.clone()))
        };
        let Some((at, stop)) = stops.iter().filter_map(occurrence).min() else { return false };
        self.text.truncate(at);
        self.ends.iter_mut().for_each(|end| *end = (*end).min(at as u32));
        self.stops = true;
        self.stop_reason = Some(stop);
        true
    }
}

/// Random numbers seeded by a prompt: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Draw(u64);

impl Draw {
    fn of(prompt: &[u32], seed: u64) -> Draw {
        let hash = prompt.iter().fold(seed, |hash, token| {
            (hash.rotate_left(5) ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        Draw(hash)
    }

    /// A random number below `count`; 0 if `count` is 0.
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * count as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ask(body: Value) -> Ask {
        Ask::parse(Endpoint::Completions, body.to_string().as_bytes(), &Rule).unwrap()
    }

    fn author() -> Author {
        Author::by_rule(Lengths { stated: vec![5, 9], usual: Vec::new() }, Calling { share: 0.0, most: 1 })
    }

    #[test]
    fn answers_are_as_long_as_asked() {
        let answer_to = |body: Value| author().answer(&ask(body), &[1, 2, 3], 0, 7);
        let bound = answer_to(json!({"prompt": "a", "ignore_eos": true}));
        assert_eq!((bound.tokens.len(), bound.stops), (7, false));
        let free = answer_to(json!({"prompt": "a", "min_tokens": 6}));
        assert!((free.tokens.len() == 6 && free.stops) || (free.tokens.len() == 7 && !free.stops));
        let lengths: Vec<usize> = (0..20)
            .map(|p| author().answer(&ask(json!({"prompt": "a"})), &[p], 0, 100).tokens.len())
            .collect();
        assert!(lengths.contains(&5) && lengths.contains(&9) && lengths.iter().all(|n| [5, 9].contains(n)));
    }

    #[test]
    fn the_tokens_are_those_of_the_text() {
        let answer = author().answer(&ask(json!({"prompt": "a", "ignore_eos": true})), &[9], 1, 50);
        assert_eq!(Rule.text(&answer.tokens), answer.text);
        assert_eq!((0..50).map(|i| answer.token_text(i)).collect::<String>(), answer.text);
        let again = author().answer(&ask(json!({"prompt": "a", "ignore_eos": true})), &[9], 1, 50);
        let other = author().answer(&ask(json!({"prompt": "a", "ignore_eos": true})), &[9], 2, 50);
        assert!(again.text == answer.text && other.text != answer.text);
    }

    #[test]
    fn a_stop_string_ends_the_text_before_it() {
        let whole = author().answer(&ask(json!({"prompt": "a", "ignore_eos": true})), &[4], 0, 50);
        // This stop string begins within the fourth word and ends in the fifth.
        let stop = format!("{}{}", &whole.token_text(3)[1..], whole.token_text(4));
        let body = json!({"prompt": "a", "ignore_eos": true, "stop": [stop.clone(), "nowhere at all"]});
        let cut = author().answer(&ask(body), &[4], 0, 50);
        assert!(cut.stops && cut.stop_reason.as_ref() == Some(&stop) && cut.tokens.len() <= 5);
        assert!(whole.text.starts_with(&cut.text) && !cut.text.contains(&stop));
        assert_eq!((0..cut.tokens.len()).map(|i| cut.token_text(i)).collect::<String>(), cut.text);
    }
}
