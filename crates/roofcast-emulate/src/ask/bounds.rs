//! Bounds of request values, refused with vLLM's messages.
//!
//! Knows: the message and the parameter that it names. Source: `sampling_params.py`,
//! `entrypoints/generate/base/protocol.py` and the `protocol.py` of `entrypoints/openai/completion` and
//! `chat_completion` of vLLM 0.32. A message ends with the parameter if vLLM's does. Knows nothing about prompts.

use super::super::fields::Fields;
use super::super::refusal::Refusal;
use super::Endpoint;
use serde_json::Value;

/// Most choices of one prompt: vLLM's VLLM_MAX_N_SEQUENCES.
const MOST_CHOICES: i64 = 16_384;
/// Most stop strings of one request: vLLM's VLLM_MAX_STOP_STRINGS.
const MOST_STOPS: usize = 4;
/// Most stop strings of one request, for servers that document no bound.
const MANY_STOPS: usize = 64;
/// Most log probabilities of a token: vLLM's default of `--max-logprobs`.
const MOST_LOGPROBS: i64 = 20;

/// Checks the sampling parameters, although nothing is sampled here; `n` is the number of choices of each prompt.
pub(super) fn sampling(fields: &Fields, n: usize) -> Result<(), Refusal> {
    let beyond = |value: f64, what: &str| Err(Refusal::bad(format!("{what}, got {value:?}.")));
    let beyond_named = |field: &str, value: f64, what: &str| {
        Err(Refusal::value(field, &value.into(), &format!("{what}, got {value:?}.")))
    };
    for field in ["presence_penalty", "frequency_penalty"] {
        if let Some(found) = fields.number(field)?.filter(|found| !(-2.0..=2.0).contains(found)) {
            return beyond(found, &format!("{field} must be in [-2, 2]"));
        }
    }
    if let Some(found) = fields.number("repetition_penalty")?.filter(|found| *found <= 0.0) {
        return beyond(found, "repetition_penalty must be greater than zero");
    }
    let temperature = fields.number("temperature")?.unwrap_or(1.0);
    if temperature < 0.0 {
        return beyond_named("temperature", temperature, "temperature must be non-negative");
    }
    if temperature > 2.0 {
        return beyond_named("temperature", temperature, "temperature must be in [0, 2]");
    }
    if let Some(found) = fields.number("top_p")?.filter(|found| *found <= 0.0 || *found > 1.0) {
        return beyond_named("top_p", found, "top_p must be in (0, 1]");
    }
    if let Some(found) = fields.integer("top_k")?.filter(|found| *found < -1) {
        return Err(Refusal::bad(format!("top_k must be 0 (disable), or at least 1, got {found}.")));
    }
    // -1 is no bound (vLLM 0.33, `validate_thinking_token_budget` of `sampling_params.py`).
    if let Some(found) = fields.integer("thinking_token_budget")?.filter(|found| *found < -1) {
        let reason = "`thinking_token_budget` must be a non-negative integer or -1 for unlimited.";
        return Err(Refusal::value("thinking_token_budget", &found.into(), reason));
    }
    if let Some(found) = fields.number("min_p")?.filter(|found| !(0.0..=1.0).contains(found)) {
        return beyond(found, "min_p must be in [0, 1]");
    }
    if temperature <= 0.0 && n > 1 {
        return Err(Refusal::bad(format!("n must be 1 when using greedy sampling, got {n}.")));
    }
    Ok(())
}

/// Reads the number of choices of each prompt.
pub(super) fn choices(fields: &Fields) -> Result<usize, Refusal> {
    match fields.integer("n")?.unwrap_or(1) {
        n if n < 1 => Err(Refusal::bad(format!("n must be at least 1, got {n}."))),
        n if n > MOST_CHOICES => Err(Refusal::bad(format!(
            "n must be at most {MOST_CHOICES}, got {n}. To increase this limit, set the VLLM_MAX_N_SEQUENCES environment \
             variable."
        ))),
        n => Ok(n as usize),
    }
}

/// Reads a count of at least `least`, if the client gives one.
pub(super) fn at_least(fields: &Fields, field: &str, least: i64) -> Result<Option<u64>, Refusal> {
    match fields.integer(field)? {
        Some(found) if found < least => {
            let message = format!("{field} must be at least {least}, got {found}.");
            Err(Refusal::value(field, &found.into(), &message))
        }
        found => Ok(found.map(|count| count as u64)),
    }
}

/// Reads the most tokens of an answer, if the client gives a bound.
pub(super) fn max_tokens(endpoint: Endpoint, fields: &Fields) -> Result<Option<u64>, Refusal> {
    let newer = match endpoint {
        Endpoint::Chat => at_least(fields, "max_completion_tokens", 1)?,
        _ => None,
    };
    Ok(newer.or(at_least(fields, "max_tokens", 1)?))
}

/// Reads the least tokens of an answer, which may not exceed `max_tokens`.
pub(super) fn min_tokens(fields: &Fields, max_tokens: Option<u64>) -> Result<u64, Refusal> {
    let given = fields.integer("min_tokens")?.unwrap_or(0);
    let min_tokens = u64::try_from(given)
        .map_err(|_| Refusal::bad(format!("min_tokens must be greater than or equal to 0, got {given}.")))?;
    match max_tokens.filter(|most| min_tokens > *most) {
        Some(most) => {
            let message =
                format!("min_tokens must be less than or equal to max_tokens={most}, got {min_tokens}.");
            Err(Refusal::bad(message))
        }
        None => Ok(min_tokens),
    }
}

/// Reads stop strings, at most as many as vLLM accepts.
pub(super) fn stops(fields: &Fields) -> Result<Vec<String>, Refusal> {
    match fields.get("stop").and_then(Value::as_array) {
        Some(all) if all.len() > MOST_STOPS => Err(Refusal::long_list("stop", all, MOST_STOPS)),
        _ => many_stops(fields, "stop"),
    }
}

/// Reads stop strings for a server that documents no bound.
pub(super) fn many_stops(fields: &Fields, field: &str) -> Result<Vec<String>, Refusal> {
    let stop = fields.strings(field)?;
    if stop.iter().any(String::is_empty) {
        return Err(Refusal::bad("stop cannot contain an empty string."));
    }
    if stop.len() > MANY_STOPS {
        return Err(Refusal::bad(format!("{field} cannot contain more than {MANY_STOPS} strings.")));
    }
    Ok(stop)
}

/// Reads the number of most likely tokens to list with log probabilities.
pub(super) fn logprobs(endpoint: Endpoint, fields: &Fields) -> Result<Option<usize>, Refusal> {
    let field = if endpoint == Endpoint::Chat { "top_logprobs" } else { "logprobs" };
    // The type is checked first, because only JSON numbers are accepted here, not numbers in strings.
    if let Some(found) = fields.get(field).filter(|found| !found.is_number() && !found.is_boolean()) {
        return Err(Refusal::value(field, found, &format!("`{field}` must be an integer.")));
    }
    let requested = fields.integer(field)?;
    if let Some(found) = requested.filter(|found| *found < -1) {
        let message = format!("`{field}` must be a positive value or -1.");
        return Err(Refusal::value(field, &found.into(), &message));
    }
    if endpoint == Endpoint::Chat && !fields.flag("logprobs")?.unwrap_or(false) {
        return match requested.unwrap_or(0) {
            0 => Ok(None),
            _ => {
                let message = "when using `top_logprobs`, `logprobs` must be set to true.";
                Err(Refusal::param(field, message))
            }
        };
    }
    match requested.or((endpoint == Endpoint::Chat).then_some(0)) {
        Some(count) if !(0..=MOST_LOGPROBS).contains(&count) => {
            let message = format!(
                "Requested sample logprobs of {count}, which is greater than max allowed: {MOST_LOGPROBS}"
            );
            Err(Refusal::value("logprobs", &count.into(), &message))
        }
        count => Ok(count.map(|count| count as usize)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tokenizer::Rule;
    use super::super::Ask;
    use super::*;
    use serde_json::json;

    fn parse(endpoint: Endpoint, more: &Value) -> Result<Ask, Refusal> {
        let mut body = json!({"prompt": "a", "messages": [{"role": "user", "content": "a"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Ask::parse(endpoint, body.to_string().as_bytes(), &Rule)
    }

    /// The message and the `param` of a refusal.
    fn refused(endpoint: Endpoint, more: &Value) -> (String, String) {
        let refusal = parse(endpoint, more).unwrap_err();
        assert_eq!(refusal.status, 400);
        let error = &refusal.body["error"];
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        (text("message"), text("param"))
    }

    /// Refusals of a completion, one per line: the keys of the request; the message as in the source of vLLM 0.32;
    /// `param`.
    const COMPLETIONS: &str = r#"
{"temperature": -1} | temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0) | temperature
{"temperature": 2.5} | temperature must be in [0, 2], got 2.5. (parameter=temperature, value=2.5) | temperature
{"top_p": 0} | top_p must be in (0, 1], got 0.0. (parameter=top_p, value=0.0) | top_p
{"top_p": 1.5} | top_p must be in (0, 1], got 1.5. (parameter=top_p, value=1.5) | top_p
{"top_k": -2} | top_k must be 0 (disable), or at least 1, got -2. |
{"thinking_token_budget": -2} | `thinking_token_budget` must be a non-negative integer or -1 for unlimited. (parameter=thinking_token_budget, value=-2) | thinking_token_budget
{"min_p": 1.5} | min_p must be in [0, 1], got 1.5. |
{"presence_penalty": 2.5} | presence_penalty must be in [-2, 2], got 2.5. |
{"frequency_penalty": -3} | frequency_penalty must be in [-2, 2], got -3.0. |
{"repetition_penalty": 0} | repetition_penalty must be greater than zero, got 0.0. |
{"temperature": 0, "n": 2} | n must be 1 when using greedy sampling, got 2. |
{"n": 0} | n must be at least 1, got 0. |
{"n": 16385} | n must be at most 16384, got 16385. To increase this limit, set the VLLM_MAX_N_SEQUENCES environment variable. |
{"min_tokens": -1} | min_tokens must be greater than or equal to 0, got -1. |
{"max_tokens": 0} | max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0) | max_tokens
{"stop": [""]} | stop cannot contain an empty string. |
{"logprobs": -2} | `logprobs` must be a positive value or -1. (parameter=logprobs, value=-2) | logprobs
{"logprobs": "2"} | `logprobs` must be an integer. (parameter=logprobs, value=2) | logprobs
{"logprobs": 21} | Requested sample logprobs of 21, which is greater than max allowed: 20 (parameter=logprobs, value=21) | logprobs
{"stream_options": {"include_usage": true}} | Stream options can only be defined when `stream=True`. (parameter=stream_options) | stream_options
{"prompt": null} | Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt) | prompt
{"prompt": ""} | Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt) | prompt
"#;

    /// Refusals of a chat, one per line: the keys of the request; the message as in the source of vLLM 0.32; `param`.
    const CHATS: &str = r#"
{"top_logprobs": 2} | when using `top_logprobs`, `logprobs` must be set to true. (parameter=top_logprobs) | top_logprobs
{"tools": []} | `tools` must not be an empty array. Either provide at least one tool or omit the field entirely. (parameter=tools) | tools
{"tool_choice": "required"} | When using `tool_choice`, `tools` must be set. (parameter=tool_choice) | tool_choice
"#;

    #[test]
    fn values_out_of_bounds_are_refused() {
        for (endpoint, cases) in [(Endpoint::Completions, COMPLETIONS), (Endpoint::Chat, CHATS)] {
            for case in cases.trim().lines() {
                let [more, message, param] =
                    case.splitn(3, " |").map(str::trim).collect::<Vec<_>>().try_into().unwrap();
                let refusal = refused(endpoint, &serde_json::from_str(more).unwrap());
                assert_eq!((refusal.0.as_str(), refusal.1.as_str()), (message, param), "{case}");
            }
        }
    }

    /// The messages are pydantic 2's, because vLLM validates bodies with pydantic.
    #[test]
    fn values_of_another_kind_are_refused() {
        let wrong_kind = refused(Endpoint::Completions, &json!({"max_tokens": "four"}));
        let message = "1 validation error:\n  {'type': 'int_parsing', 'loc': 'body.max_tokens', 'msg': 'Input should be a \
                       valid integer, unable to parse string as an integer', 'input': 'four'}";
        assert_eq!((wrong_kind.0.as_str(), wrong_kind.1.as_str()), (message, "body.max_tokens"));
        let refusal = refused(Endpoint::Completions, &json!({"stop": ["a", "b", "c", "d", "e"]}));
        let message = "2 validation errors:\n  {'type': 'string_type', 'loc': 'body.stop', 'msg': 'Input should be a valid \
                       string', 'input': '<list of 5 items>'}\n  {'type': 'too_long', 'loc': 'body.stop', 'msg': 'List \
                       should have at most 4 items after validation, not 5', 'input': '<list of 5 items>', 'ctx': \
                       {'field_type': 'List', 'max_length': 4, 'actual_length': 5}}";
        assert_eq!((refusal.0.as_str(), refusal.1.as_str()), (message, "body.stop"));
    }

    /// Bounds are inclusive, and strings and numbers are converted as pydantic converts them.
    #[test]
    fn what_pydantic_takes_is_taken() {
        let read = |more: Value| parse(Endpoint::Completions, &more).unwrap();
        let lax = read(json!({"max_tokens": "4", "stream": 1, "echo": "yes", "n": 2.0, "top_p": "0.5"}));
        assert_eq!((lax.max_tokens, lax.stream, lax.echo, lax.n), (Some(4), true, true, 2));
        let bounds = read(
            json!({"temperature": 0, "top_p": 1, "top_k": -1, "presence_penalty": -2, "min_p": 1,
            "frequency_penalty": 2, "repetition_penalty": 0.1, "stop": ["a", "b", "c", "d"], "logprobs": 20}),
        );
        assert_eq!((bounds.stop.len(), bounds.logprobs), (4, Some(20)));
        assert_eq!(read(json!({"n": 16_384})).n, 16_384);
        let only = read(json!({"echo": true, "max_tokens": 0}));
        assert!(only.prompt_only && only.max_tokens == Some(1));
    }
}
