//! What is measured: an address, an endpoint, and what every request to it carries.
//!
//! Knows: URLs, headers and where the key comes from; the key is never shown. Knows nothing about connections.

use anyhow::{Context, Result};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Uri};
use roofcast::Error;
use std::net::{SocketAddr, ToSocketAddrs};

/// The endpoint of OpenAI's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
}

impl Endpoint {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Endpoint::Chat => "/v1/chat/completions",
            Endpoint::Completions => "/v1/completions",
        }
    }

    /// What vLLM's client calls it.
    pub(crate) fn vllm_name(self) -> &'static str {
        match self {
            Endpoint::Chat => "openai-chat",
            Endpoint::Completions => "openai",
        }
    }
}

/// A server, resolved.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// As in `http://host:8000`, without a path.
    pub(crate) url: String,
    pub(super) tls: bool,
    pub(super) host: String,
    pub(super) addresses: Vec<SocketAddr>,
    /// What precedes `/v1` in every path.
    pub(super) base: String,
    pub(super) headers: HeaderMap,
}

const ACCEPTED: &str = "http://HOST[:PORT] or https://HOST[:PORT], with a path before /v1 if there is one";

impl Target {
    /// Reads a URL and headers as in `Name: value`. The key, if there is one, goes into `Authorization`.
    pub(crate) fn resolve(url: &str, headers: &[String], key: Option<&str>) -> Result<Target> {
        let wrong = || Error::field("arguments", "--url", format!("{url:?}"), ACCEPTED);
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong().into()),
        };
        let authority = uri.authority().filter(|a| !a.as_str().contains('@')).ok_or_else(wrong)?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        // A port that is no number up to 65535 would be read as none.
        let ends = authority.as_str().ends_with(authority.host());
        let port = authority.port_u16().or(ends.then_some(if tls { 443 } else { 80 })).ok_or_else(wrong)?;
        let found = (host.as_str(), port).to_socket_addrs();
        let addresses: Vec<_> = found.with_context(|| format!("arguments: `--url` is {url:?}"))?.collect();
        let base = uri.path().trim_end_matches('/');
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
        Ok(Target { url: format!("{scheme}://{authority}{base}"), tls, host, addresses, base, headers: map })
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
        let of = |url| Target::resolve(url, &[], Some("sk-secret")).unwrap();
        for url in ["http://127.0.0.1:8000", "http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1"] {
            assert_eq!((of(url).base.as_str(), of(url).url.as_str()), ("", "http://127.0.0.1:8000"));
        }
        let deep = of("http://127.0.0.1/openai/v1/");
        assert_eq!((deep.base.as_str(), deep.addresses[0].port()), ("/openai", 80));
        assert_eq!(of("http://[::1]:9").addresses[0].port(), 9);
        assert!(!format!("{deep:?}").contains("sk-secret"));
        for wrong in
            ["127.0.0.1:8000", "http://127.0.0.1:99999", "ftp://x", "http://", "http://user:pw@127.0.0.1"]
        {
            let error = Target::resolve(wrong, &[], None).unwrap_err().to_string();
            assert!(error.contains("--url"), "{wrong}: {error}");
        }
    }

    #[test]
    fn headers_are_added() {
        let with = |h: &str| Target::resolve("http://127.0.0.1", &[h.to_owned()], None);
        assert_eq!(with("X-Team: a b").unwrap().headers["x-team"], "a b");
        assert!(with("nonsense").unwrap_err().to_string().contains("--header"));
    }
}
