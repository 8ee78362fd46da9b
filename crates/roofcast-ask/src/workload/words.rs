//! Words of generated texts: prompts of a load, answers of an emulated server.
//!
//! Knows: common English words. Knows no tokenizer.

/// Words that the tokenizers in use have as one token, together with the space before the word.
const WORDS: &str = "the of and to in is that for it was on are as with his they at be this from have or by one had \
    not but what all were when we there can an your which their said if do will each about how up out them then she \
    many some so these would other into has more her two like him see time could no make than first been its who now \
    people my made over did down only way find use may water long little very after words called just where most know \
    get through back much before go good new write our used me man too any day same right look think also around \
    another came come work three word must because does part";

/// Common English words of which generated texts consist, in a fixed order; most tokenizers have each as one token.
pub fn words() -> impl Iterator<Item = &'static str> {
    WORDS.split_whitespace()
}
