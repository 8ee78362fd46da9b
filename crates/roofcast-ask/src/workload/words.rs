//! Words of generated texts: prompts of a load, answers of an emulated server.
//!
//! Knows: common English words, and the mean bytes of a token. Knows no tokenizer.

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

/// First character of the scripts that are written with thousands of signs or with syllables: Chinese, Japanese, Korean.
const EAST_ASIAN: char = '\u{2e80}';

/// Number of tokens of `text`, estimated: 3.0 bytes of Chinese a token, 4.7 bytes of other text. Mistral's tokenizer of
/// 131,072 tokens (tekken_240911) has 4.5 bytes of English wrapped into lines a token, 4.9 unwrapped, 4.8 of Python, and 3.0
/// of Chinese.
pub fn estimated_tokens(text: &str) -> u64 {
    let asian: usize = text.chars().filter(|c| *c >= EAST_ASIAN).map(char::len_utf8).sum();
    let other = text.len() - asian;
    (10 * other * 3 + 47 * asian).div_ceil(47 * 3) as u64
}

#[cfg(test)]
mod tests {
    use super::estimated_tokens;

    /// 47 bytes of ASCII are 10 tokens; 9 Chinese signs of 3 bytes are 9; 470 and 27 bytes together 109.
    #[test]
    fn scripts_have_their_own_rate() {
        let english = "a".repeat(470);
        let chinese = "模型推理的吞吐与延迟".chars().take(9).collect::<String>();
        assert_eq!([estimated_tokens(&english), estimated_tokens(&chinese)], [100, 9]);
        assert_eq!([estimated_tokens(&format!("{english}{chinese}")), estimated_tokens("")], [109, 0]);
    }
}
