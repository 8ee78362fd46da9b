//! Web addresses of models, as copied from a browser, and the repositories that they lead to.
//!
//! Knows: hosts of models and the position of the repository in their paths. Knows nothing about which repositories
//! exist.

use crate::error::{Error, Result};
use std::borrow::Cow;

/// Accepted URL schemes.
const SCHEMES: [&str; 2] = ["https://", "http://"];

/// Hosts of models, each with the path prefix before the repository.
const HOSTS: [(&str, &str); 6] = [
    ("huggingface.co/", ""),
    ("hf.co/", ""),
    ("hf-mirror.com/", ""),
    ("modelscope.cn/", "models/"),
    ("modelscope.ai/", "models/"),
    ("ollama.com/", "library/"),
];

/// First path segments at Hugging Face that do not lead to a model.
const OTHERS: [&str; 9] =
    ["datasets", "spaces", "collections", "papers", "docs", "blog", "models", "buckets", "learn"];

/// Repository `ORG/NAME` that a web address leads to; a name that is no address is returned unchanged.
pub fn repository(name: &str) -> Result<Cow<'_, str>> {
    let name = name.trim();
    if let Some(repository) = name.strip_prefix("hf://") {
        return of_path(name, repository, true);
    }
    let lower = name.to_ascii_lowercase();
    let scheme = SCHEMES.iter().find(|scheme| lower.starts_with(**scheme));
    let rest = &name[scheme.map_or(0, |scheme| scheme.len())..];
    let rest = rest.strip_prefix("www.").unwrap_or(rest);
    let host = HOSTS
        .iter()
        .find(|(host, _)| rest.get(..host.len()).is_some_and(|start| start.eq_ignore_ascii_case(host)));
    match (host, scheme) {
        (Some((host, before)), _) => {
            let path = &rest[host.len()..];
            of_path(name, path.strip_prefix(before).unwrap_or(path), *before != "library/")
        }
        (None, Some(_)) => Err(refused(name)),
        (None, None) => Ok(Cow::Borrowed(name)),
    }
}

/// The repository at the beginning of a path; branch, folder and query are ignored.
fn of_path<'a>(name: &str, path: &'a str, of_organisation: bool) -> Result<Cow<'a, str>> {
    let path = path.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    if path.to_ascii_lowercase().ends_with(".gguf") {
        let accepted = "the file once it is here, or its repository with the format, as ORG/NAME-GGUF:Q4_K_M";
        return Err(Error::field("model", "name", format!("{name:?}, a file elsewhere"), accepted));
    }
    let mut parts = path.split('/');
    match (parts.next(), parts.next()) {
        (Some(model), None) if !of_organisation && !model.is_empty() => Ok(Cow::Borrowed(model)),
        (Some(first), Some(model))
            if of_organisation && !first.is_empty() && !model.is_empty() && !OTHERS.contains(&first) =>
        {
            Ok(Cow::Owned(format!("{first}/{model}")))
        }
        _ => Err(refused(name)),
    }
}

fn refused(name: &str) -> Error {
    let shown: String = name.chars().take(200).collect();
    let accepted =
        "a model's page, as https://huggingface.co/ORG/NAME; its id; or a config.json on this machine";
    Error::field("model", "name", format!("the address {shown:?}"), accepted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_to_their_repository() {
        for (address, name) in [
            ("https://huggingface.co/Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
            ("https://huggingface.co/Qwen/Qwen3-8B/", "Qwen/Qwen3-8B"),
            ("http://www.huggingface.co/Qwen/Qwen3-8B/tree/main", "Qwen/Qwen3-8B"),
            ("https://HuggingFace.co/Qwen/Qwen3-8B/blob/main/config.json", "Qwen/Qwen3-8B"),
            ("https://huggingface.co/Qwen/Qwen3-8B?library=vllm", "Qwen/Qwen3-8B"),
            ("https://hf.co/Qwen/Qwen3-8B#usage", "Qwen/Qwen3-8B"),
            ("huggingface.co/Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
            ("hf.co/unsloth/Qwen3-8B-GGUF:Q4_K_M", "unsloth/Qwen3-8B-GGUF:Q4_K_M"),
            ("hf://Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
            ("https://www.modelscope.cn/models/Qwen/Qwen3-8B/summary", "Qwen/Qwen3-8B"),
            ("https://ollama.com/library/llama3.1:8b", "llama3.1:8b"),
            (" Qwen/Qwen3-8B ", "Qwen/Qwen3-8B"),
            ("llama3.1:8b", "llama3.1:8b"),
            ("é", "é"),
        ] {
            assert_eq!(repository(address).unwrap(), name, "{address}");
        }
    }

    #[test]
    fn other_addresses_are_refused() {
        for address in [
            "https://huggingface.co/Qwen",
            "https://huggingface.co/",
            "https://huggingface.co/datasets/org/name",
            "https://example.com/Qwen/Qwen3-8B",
            "https://",
            "https://huggingface.co/org/name/resolve/main/x-Q4_K_M.gguf",
        ] {
            let message = repository(address).unwrap_err().to_string();
            assert!(message.contains(address) && message.contains("accepted: "), "{message}");
        }
    }
}
