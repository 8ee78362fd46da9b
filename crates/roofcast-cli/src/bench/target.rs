//! Target of a measurement: an address, an endpoint, and the headers of every request.
//!
//! Knows: URLs, headers and the source of the key, which is never shown. Knows nothing about connections.

use super::proxy::{self, Proxy};
use anyhow::{Context, Result};
use clap::ValueEnum;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Uri};
use roofcast::Error;
use std::net::{SocketAddr, ToSocketAddrs};

/// The endpoint to which requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
    /// `/v1/responses`.
    Responses,
    /// Anthropic's `/v1/messages`.
    Messages,
    /// SGLang's `/generate`.
    Generate,
    /// `/v1/embeddings`, whose answers have no output tokens.
    Embeddings,
}

impl Endpoint {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Endpoint::Chat => "/v1/chat/completions",
            Endpoint::Completions => "/v1/completions",
            Endpoint::Responses => "/v1/responses",
            Endpoint::Messages => "/v1/messages",
            Endpoint::Generate => "/generate",
            Endpoint::Embeddings => "/v1/embeddings",
        }
    }

    /// True if answers have output tokens.
    pub(crate) fn generates(self) -> bool {
        self != Endpoint::Embeddings
    }

    /// True if the endpoint accepts messages, which a chat template turns into a prompt.
    pub(super) fn takes_messages(self) -> bool {
        matches!(self, Endpoint::Chat | Endpoint::Responses | Endpoint::Messages)
    }

    /// The endpoint whose path is the end of a URL's `path`.
    pub(crate) fn of_path(path: &str) -> Option<Endpoint> {
        let path = path.trim_end_matches('/');
        Endpoint::value_variants().iter().copied().find(|endpoint| path.ends_with(endpoint.path()))
    }

    /// Name of the endpoint in vLLM's client.
    pub(crate) fn vllm_name(self) -> &'static str {
        match self {
            Endpoint::Chat => "openai-chat",
            Endpoint::Completions => "openai",
            Endpoint::Responses => "openai-responses",
            Endpoint::Messages => "anthropic",
            Endpoint::Generate => "sglang",
            Endpoint::Embeddings => "openai-embeddings",
        }
    }
}

/// A server, resolved.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// URL without a path, as in `http://host:8000`.
    pub(crate) url: String,
    pub(super) tls: bool,
    pub(super) host: String,
    /// Resolved addresses of the server; empty if a proxy resolves its name.
    pub(super) addresses: Vec<SocketAddr>,
    /// Host and port, as in `host:8000`.
    pub(super) authority: String,
    pub(super) proxy: Option<Proxy>,
    /// True if any certificate is accepted.
    pub(crate) insecure: bool,
    /// Path before `/v1`, as in `/api` of `http://host/api/v1`.
    pub(super) base: String,
    pub(super) headers: HeaderMap,
}

/// Version of Anthropic's API: the only one that its documents name (https://docs.anthropic.com/en/api/versioning).
const ANTHROPIC_VERSION: &str = "2023-06-01";

const ACCEPTED: &str = "http://HOST[:PORT] or https://HOST[:PORT], with a path before /v1 if there is one, and an endpoint's after it";

impl Target {
    /// Reads a URL, and headers in the form `Name: value`. The API key, if there is one, is sent in `Authorization`.
    /// `get` returns environment variables, which may name a proxy.
    pub(crate) fn resolve(
        url: &str,
        headers: &[String],
        key: Option<&str>,
        get: impl Fn(&str) -> Option<String>,
    ) -> Result<Target> {
        let wrong = || Error::field("arguments", "--url", format!("{url:?}"), ACCEPTED);
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong().into()),
        };
        let authority = uri.authority().filter(|a| !a.as_str().contains('@')).ok_or_else(wrong)?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        // The URL parser treats a port above 65535 as absent, so the text is compared.
        let ends = authority.as_str().ends_with(authority.host());
        let port = authority.port_u16().or(ends.then_some(if tls { 443 } else { 80 })).ok_or_else(wrong)?;
        let proxy = proxy::of(tls, &host, get)?;
        let resolved = (host.as_str(), port).to_socket_addrs();
        let addresses: Vec<_> = match &proxy {
            Some(_) => Vec::new(),
            None => resolved.with_context(|| format!("arguments: `--url` is {url:?}"))?.collect(),
        };
        let base = uri.path().trim_end_matches('/');
        let endpoint = Endpoint::of_path(base);
        let base = endpoint.and_then(|endpoint| base.strip_suffix(endpoint.path())).unwrap_or(base);
        let base = base.strip_suffix("/v1").unwrap_or(base).to_owned();
        let mut map = HeaderMap::new();
        map.insert("host", HeaderValue::from_str(authority.as_str())?);
        map.insert("content-type", HeaderValue::from_static("application/json"));
        map.insert("accept", HeaderValue::from_static("text/event-stream, application/json"));
        if let Some(key) = key {
            let accepted = "visible ASCII, in the environment";
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.trim()))
                .map_err(|_| Error::field("environment", "the API key", "not a header's value", accepted))?;
            value.set_sensitive(true);
            map.insert("authorization", value);
        }
        for header in headers {
            let (name, value) = named(header)?;
            map.insert(name, value);
        }
        let scheme = if tls { "https" } else { "http" };
        Ok(Target {
            url: format!("{scheme}://{authority}{base}"),
            tls,
            authority: format!("{}:{port}", authority.host()),
            host,
            addresses,
            proxy,
            insecure: false,
            base,
            headers: map,
        })
    }

    /// Adds the headers that Anthropic's API requires, unless the user gives them.
    pub(crate) fn speak_anthropic(&mut self, key: Option<&str>) -> Result<()> {
        let version = HeaderValue::from_static(ANTHROPIC_VERSION);
        self.headers.entry("anthropic-version").or_insert(version);
        if let Some(key) = key {
            let mut value = HeaderValue::from_str(key.trim())?;
            value.set_sensitive(true);
            self.headers.entry("x-api-key").or_insert(value);
        }
        Ok(())
    }

    /// Prefix of a request's path: the server's URL if a proxy forwards the request without a tunnel, else empty.
    pub(super) fn through(&self) -> String {
        match &self.proxy {
            Some(_) if !self.tls => format!("http://{}", self.authority),
            _ => String::new(),
        }
    }
}

fn named(header: &str) -> Result<(HeaderName, HeaderValue)> {
    let wrong =
        || Error::field("arguments", "--header", format!("{header:?}"), "a header as in `Name: value`");
    let (name, value) = header.split_once(':').ok_or_else(wrong)?;
    let name = name.trim().parse().map_err(|_| wrong())?;
    let mut value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
    value.set_sensitive(true);
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_with_and_without_paths() {
        let target_of = |url: &str| Target::resolve(url, &[], Some("sk-secret"), |_| None).unwrap();
        for end in ["", "/", "/v1", "/v1/completions", "/v1/chat/completions/"] {
            let target = target_of(&format!("http://127.0.0.1:8000{end}"));
            assert_eq!((target.base.as_str(), target.url.as_str()), ("", "http://127.0.0.1:8000"));
        }
        let deep = target_of("http://127.0.0.1/openai/v1/");
        assert_eq!((deep.base.as_str(), deep.addresses[0].port()), ("/openai", 80));
        let proxied = |name: &str| (name == "all_proxy").then(|| "http://127.0.0.1:3128".to_owned());
        let far = Target::resolve("http://far.example/v1", &[], None, proxied).unwrap();
        assert_eq!((far.addresses.len(), far.through().as_str()), (0, "http://far.example:80"));
        assert_eq!(target_of("http://[::1]:9").addresses[0].port(), 9);
        assert!(!format!("{deep:?}").contains("sk-secret"));
        for wrong in
            ["127.0.0.1:8000", "http://127.0.0.1:99999", "ftp://x", "http://", "http://user:pw@127.0.0.1"]
        {
            let error = Target::resolve(wrong, &[], None, |_| None).unwrap_err().to_string();
            assert!(error.contains("--url"), "{wrong}: {error}");
        }
    }

    #[test]
    fn headers_are_added() {
        let with = |h: &str| Target::resolve("http://127.0.0.1", &[h.to_owned()], None, |_| None);
        assert_eq!(with("X-Team: a b").unwrap().headers["x-team"], "a b");
        assert!(with("nonsense").unwrap_err().to_string().contains("--header"));
    }
}
