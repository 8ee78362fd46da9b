//! Check of requests: only requests that a page of this server can have sent are accepted.
//!
//! Knows: another site's page may reach this server under its own host name (DNS rebinding), which shows in `Host`, or
//! send requests to it (CSRF), which shows in `Origin` and `Sec-Fetch-Site`. Numeric addresses are accepted, because
//! only names can be rebound.

use hyper::header::{self, HeaderMap};
use std::net::IpAddr;

/// Accepted host names, in addition to addresses and `localhost`.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    names: Vec<String>,
}

impl Guard {
    /// A guard that accepts `names`, in upper or lower case, in addition to addresses and `localhost`.
    pub fn new(names: &[String]) -> Guard {
        Guard { names: names.iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    /// Reason to refuse a request with these headers; `None` if the request is accepted.
    pub fn refusal(&self, headers: &HeaderMap) -> Option<&'static str> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = match (hosts.next().and_then(|h| h.to_str().ok()), hosts.next()) {
            (Some(host), None) if self.knows(host) => host,
            _ => return Some("this server does not go by that Host; --allow-host adds a name"),
        };
        if text(header::ORIGIN).is_some_and(|origin| origin.strip_prefix("http://") != Some(host)) {
            return Some("the request comes from another Origin");
        }
        let site = text(header::HeaderName::from_static("sec-fetch-site"));
        match site {
            None | Some("same-origin" | "none") => None,
            Some(_) => Some("the request comes from another site"),
        }
    }

    fn knows(&self, host: &str) -> bool {
        let (name, port) = match host.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map_or(("", ""), |(name, port)| (name, port)),
            None => host.split_once(':').map_or((host, ""), |(name, _)| (name, &host[name.len()..])),
        };
        let port = port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.parse::<u16>().is_ok());
        let name = name.to_ascii_lowercase();
        port && (name == "localhost" || name.parse::<IpAddr>().is_ok() || self.names.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HeaderName, HeaderValue};

    fn refused(guard: &Guard, given: &[(&'static str, &str)]) -> bool {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        let mut headers = HeaderMap::new();
        for (name, value) in given.iter().map(pair) {
            headers.append(name, value);
        }
        guard.refusal(&headers).is_some()
    }

    #[test]
    fn addresses_and_localhost_are_known_and_other_names_are_not() {
        let guard = Guard::new(&["Bench.lan".to_owned()]);
        for host in
            ["127.0.0.1:7663", "localhost", "LOCALHOST:80", "[::1]:7663", "192.168.0.7:1", "bench.lan:7663"]
        {
            assert!(!refused(&guard, &[("host", host)]), "{host}");
        }
        for host in
            ["evil.example:7663", "127.0.0.1.evil.example", "", "localhost:x", "[::1", "127.0.0.1:7663:1"]
        {
            assert!(refused(&guard, &[("host", host)]), "{host}");
        }
        assert!(refused(&guard, &[]));
        assert!(refused(&guard, &[("host", "localhost"), ("host", "localhost")]));
    }

    #[test]
    fn other_origins_and_sites_are_refused() {
        let guard = Guard::default();
        let host = ("host", "localhost:7663");
        for (name, good, wrong) in [
            ("origin", "http://localhost:7663", "http://evil.example"),
            ("origin", "http://localhost:7663", "http://localhost:8000"),
            ("origin", "http://localhost:7663", "null"),
            ("sec-fetch-site", "same-origin", "cross-site"),
            ("sec-fetch-site", "none", "same-site"),
        ] {
            assert!(!refused(&guard, &[host, (name, good)]), "{good}");
            assert!(refused(&guard, &[host, (name, wrong)]), "{wrong}");
        }
    }
}
