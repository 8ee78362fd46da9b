//! Conversion between text and tokens by a rule that needs no vocabulary.
//!
//! Knows: a token is one character, or up to four ASCII characters of which only the first may be white space. This
//! gives about four characters a token, as real vocabularies do for English. A token's id encodes its text, so that
//! every emulator has equal counts, hashes and texts.

use super::{Encoded, Tokenizer};

/// First ids of tokens of one, two, three and four ASCII characters; an id below 128 is the character itself.
const OFFSETS: [u32; 4] = [0, 128, 128 + (1 << 14), 128 + (1 << 14) + (1 << 21)];
/// First id after the tokens of ASCII characters.
const ASCII_END: u32 = OFFSETS[3] + (1 << 28);
/// Id of code point 0 for characters beyond ASCII; the character's code point is added.
const CHARACTERS: u32 = 1 << 29;
/// Id of the special token at the start of a chat's turn.
const TURN_START: u32 = 1 << 30;
/// Id of the special token at the end of a chat's turn.
const TURN_END: u32 = TURN_START + 1;

/// The tokenizer by the built-in rule.
#[derive(Debug)]
pub(crate) struct Rule;

impl Tokenizer for Rule {
    fn encode(&self, text: &str) -> Encoded {
        let mut tokens = Vec::new();
        encode(text, &mut tokens);
        Ok(tokens)
    }

    /// Encodes each turn and its role between special tokens.
    fn chat(&self, turns: &[(String, String)], answers: bool) -> Encoded {
        let mut tokens = Vec::new();
        for (role, content) in turns {
            tokens.push(TURN_START);
            encode(role, &mut tokens);
            encode("\n", &mut tokens);
            encode(content, &mut tokens);
            tokens.push(TURN_END);
        }
        if answers {
            tokens.push(TURN_START);
            encode("assistant", &mut tokens);
            encode("\n", &mut tokens);
        }
        Ok(tokens)
    }

    /// An id that is not a token becomes the replacement character.
    fn text(&self, tokens: &[u32]) -> String {
        let mut text = String::with_capacity(tokens.len() * 4);
        for token in tokens {
            if !decode(*token, &mut text) {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        text
    }

    fn pieces(&self, tokens: &[u32]) -> Vec<String> {
        tokens.iter().map(|token| self.text(&[*token])).collect()
    }
}

/// Appends the tokens of a text.
fn encode(text: &str, into: &mut Vec<u32>) {
    let mut word = Held::default();
    for c in text.chars() {
        if !c.is_ascii() {
            word.end(into);
            into.push(CHARACTERS + c as u32);
            continue;
        }
        if c.is_ascii_whitespace() || word.length == OFFSETS.len() {
            word.end(into);
        }
        word.number = word.number << 7 | c as u32;
        word.length += 1;
    }
    word.end(into);
}

/// ASCII characters that are not a whole token yet.
#[derive(Default)]
struct Held {
    number: u32,
    length: usize,
}

impl Held {
    fn end(&mut self, into: &mut Vec<u32>) {
        if let Some(offset) = self.length.checked_sub(1).and_then(|at| OFFSETS.get(at)) {
            into.push(offset + self.number);
        }
        *self = Held::default();
    }
}

/// Appends the text of a token; the special tokens of turns have none. False if there is no such token.
fn decode(token: u32, into: &mut String) -> bool {
    if token == TURN_START || token == TURN_END {
        return true;
    }
    if token >= CHARACTERS {
        let character = char::from_u32(token - CHARACTERS).filter(|c| !c.is_ascii());
        into.extend(character);
        return character.is_some();
    }
    if token >= ASCII_END {
        return false;
    }
    let length = OFFSETS.iter().filter(|offset| token >= **offset).count();
    let number = token - OFFSETS[length - 1];
    into.extend((0..length).rev().map(|place| char::from((number >> (7 * place)) as u8 & 0x7f)));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(text: &str) -> Vec<u32> {
        Rule.encode(text).unwrap()
    }

    #[test]
    fn words_of_three_letters_are_a_token_with_their_space() {
        let cut = |t: &str| tokens(t).into_iter().map(|t| Rule.text(&[t])).collect::<Vec<_>>();
        assert_eq!(cut("the of and"), ["the", " of", " and"]);
        assert_eq!(cut("tokenizer é!\n\n"), ["toke", "nize", "r", " ", "é", "!", "\n", "\n"]);
        // The id of "a" is 97, of "ab" 128 + 97 · 128 + 98.
        assert_eq!(tokens("a ab"), [97, OFFSETS[2] + (32 << 14) + (97 << 7) + 98]);
        assert_eq!(tokens("ab"), [128 + 97 * 128 + 98]);
        // A turn has two special tokens, the role, a line feed and the text: 5 + 1. The answer's beginning has a
        // special token, "assi", "stan", "t" and a line feed.
        let turn = ("user".to_owned(), "hi".to_owned());
        assert_eq!(Rule.chat(&[turn], true).unwrap().len(), 5 + 5);
    }

    proptest! {
        #[test]
        fn texts_come_back(text in "\\PC*|[ -~\n\t]{0,80}", more in any::<u32>()) {
            prop_assert_eq!(Rule.text(&tokens(&text)), text.clone());
            prop_assert_eq!(Rule.pieces(&tokens(&text)).concat(), text);
            // Any id is either a token that encodes back to itself, or not a token.
            let mut decoded = String::new();
            if decode(more, &mut decoded) && !decoded.is_empty() {
                prop_assert!(decoded.len() <= 4);
            }
        }

        /// Appending to a text leaves all its tokens except the last unchanged, so that prefixes are shared.
        #[test]
        fn prefixes_share_tokens(text in "[ -~]{1,60}", more in "[ -~]{0,20}") {
            let whole = tokens(&format!("{text}{more}"));
            let part = tokens(&text);
            prop_assert_eq!(&whole[..part.len() - 1], &part[..part.len() - 1]);
        }
    }
}
