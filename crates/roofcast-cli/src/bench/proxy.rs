//! A proxy between client and server, by curl's environment variables.
//!
//! Knows: the variable for a URL, the hosts that bypass the proxy, and the request that opens a tunnel. A server on the
//! loopback interface is never reached through a proxy.

use super::failure::Failure;
use anyhow::{Context as _, Result};
use hyper::Uri;
use roofcast::Error;
use roofcast::record::Outcome;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Most bytes of the head of a proxy's response.
const MOST_HEAD: usize = 8 << 10;

/// A proxy, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    pub(super) addresses: Vec<SocketAddr>,
}

/// The proxy for requests to `host`, if the environment names one; `get` returns environment variables.
pub(super) fn of(tls: bool, host: &str, get: impl Fn(&str) -> Option<String>) -> Result<Option<Proxy>> {
    let set = |name: &str| get(name).filter(|value| !value.trim().is_empty());
    if is_loopback(host) || set("no_proxy").or_else(|| set("NO_PROXY")).is_some_and(|no| spares(&no, host)) {
        return Ok(None);
    }
    // As in curl, HTTP_PROXY in capitals is ignored, because CGI sets it from a request's header.
    let names: &[&str] = if tls { &["https_proxy", "HTTPS_PROXY"] } else { &["http_proxy"] };
    let named = names.iter().chain(&["all_proxy", "ALL_PROXY"]).find_map(|name| Some((*name, set(name)?)));
    let Some((name, url)) = named else { return Ok(None) };
    let accepted = "http://HOST:PORT";
    let wrong = || Error::field("environment", name, format!("{url:?}"), accepted);
    let uri: Uri = url.trim().parse().map_err(|_| wrong())?;
    let authority = uri.authority().filter(|a| !a.as_str().contains('@')).ok_or_else(wrong)?;
    if uri.scheme_str().is_some_and(|scheme| scheme != "http") {
        return Err(wrong().into());
    }
    let host = authority.host().trim_matches(['[', ']']);
    let resolved = (host, authority.port_u16().unwrap_or(80)).to_socket_addrs();
    let addresses = resolved.with_context(|| format!("environment: `{name}` is {url:?}"))?.collect();
    Ok(Some(Proxy { addresses }))
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// True if `list`, of hosts and domains as in `example.com,.internal,10.0.0.1`, contains `host`.
fn spares(list: &str, host: &str) -> bool {
    let within = |domain: &str| {
        let domain = domain.trim().trim_start_matches('.');
        let rest = host.strip_suffix(domain).filter(|_| !domain.is_empty());
        domain == "*" || rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    list.split(',').any(within)
}

/// Opens a tunnel to `authority` through a proxy, for TLS.
pub(super) async fn tunnel<S>(stream: &mut S, authority: &str) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let failed = |e: std::io::Error| Failure::new(Outcome::Connect, format!("proxy: {e}"));
    let request = format!("CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < MOST_HEAD {
        // Byte by byte, since bytes after the head belong to the server.
        head.push(stream.read_u8().await.map_err(failed)?);
    }
    let status = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
    match status.split(' ').nth(1) {
        Some(code) if code.starts_with('2') => Ok(()),
        _ => Err(Failure::new(Outcome::Connect, format!("the proxy answers {status:?} to CONNECT"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The port of the proxy that `environment` gives for `host`.
    fn port(tls: bool, host: &str, environment: &[(&str, &str)]) -> Option<u16> {
        let get = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        of(tls, host, get).unwrap().map(|proxy| proxy.addresses[0].port())
    }

    #[test]
    fn which_proxy_counts() {
        let http = ("http_proxy", "http://127.0.0.1:1");
        let https = ("HTTPS_PROXY", "http://127.0.0.1:2");
        let all = ("all_proxy", "http://127.0.0.1:3");
        let shouted = ("HTTP_PROXY", "http://127.0.0.1:4");
        for (tls, host, environment, port_of_it) in [
            (false, "far.example", &[http, https][..], Some(1)),
            (true, "far.example", &[http, https], Some(2)),
            (true, "far.example", &[http, all], Some(3)),
            (false, "far.example", &[shouted], None),
            (false, "127.0.0.1", &[http], None),
            (false, "::1", &[http], None),
            (false, "localhost", &[http], None),
            (false, "a.far.example", &[http, ("NO_PROXY", "x, .far.example")], None),
            (false, "notfar.example", &[http, ("no_proxy", "far.example")], Some(1)),
            (false, "far.example", &[http, ("no_proxy", "*")], None),
            (false, "far.example", &[("http_proxy", " ")], None),
        ] {
            assert_eq!(port(tls, host, environment), port_of_it, "{host} {environment:?}");
        }
        let error = of(false, "far.example", |_| Some("socks5://127.0.0.1:1".into())).unwrap_err();
        // `no_proxy` is set and exempts no host here.
        assert!(error.to_string().contains("http_proxy"), "{error}");
    }
}
