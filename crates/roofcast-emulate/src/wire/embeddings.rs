//! `/v1/embeddings`: a vector of length one for each prompt, equal for equal tokens.
//!
//! Knows: the format of vectors, as numbers or in base64. The vectors have no meaning: their numbers are drawn from the
//! prompt.

use super::Reply;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

impl Reply {
    /// The body of the response.
    pub(super) fn embeddings(&self) -> Value {
        let count = self.ask.vectors.dimensions.unwrap_or(self.width) as usize;
        let data: Vec<Value> = self
            .ask
            .prompts
            .iter()
            .enumerate()
            .map(|(index, prompt)| {
                let numbers = vector(prompt, count);
                let embedding = match self.ask.vectors.base64 {
                    true => json!(
                        BASE64_STANDARD
                            .encode(numbers.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())
                    ),
                    false => json!(numbers),
                };
                json!({"index": index, "object": "embedding", "embedding": embedding})
            })
            .collect();
        let prompt_tokens: u64 = self.ask.prompts.iter().map(|p| p.len() as u64).sum();
        json!({"id": self.id, "object": "list", "created": self.created, "model": self.model, "data": data,
            "usage": {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens, "completion_tokens": 0,
                "prompt_tokens_details": null}})
    }
}

/// Numbers drawn from a prompt (SplitMix64's output function), scaled to length one.
fn vector(prompt: &[u32], count: usize) -> Vec<f32> {
    let seed = prompt.iter().fold(1_u64, |hash, token| {
        (hash.rotate_left(5) ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    let drawn = |index: usize| {
        let z = seed.wrapping_add((index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) as f64 / u64::MAX as f64 - 0.5) as f32
    };
    let mut numbers: Vec<f32> = (0..count).map(drawn).collect();
    let length = numbers.iter().map(|v| v * v).sum::<f32>().sqrt();
    numbers.iter_mut().for_each(|v| *v /= length.max(f32::MIN_POSITIVE));
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_length_one_and_tell_prompts_apart() {
        let embedding = vector(&[1, 2, 3], 64);
        let length: f32 = embedding.iter().map(|v| v * v).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
        assert!(embedding == vector(&[1, 2, 3], 64) && embedding != vector(&[1, 2, 4], 64));
    }
}
