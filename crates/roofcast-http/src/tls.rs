//! TLS of a server: its certificates and key, as files in PEM.
//!
//! Knows: how to read the files. Knows nothing about trust in certificates.

use anyhow::{Result, anyhow};
use roofcast::Error;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The acceptor of TLS connections, from a file with the certificate followed by its intermediate certificates, and a
/// file with its key. An error names the flag `--ssl-certfile` or `--ssl-keyfile`, the file and the accepted content.
pub fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor> {
    let wrong = |flag: &str, path: &Path, why: String, accepted: &str| {
        anyhow!(Error::field("arguments", flag, format!("{:?}: {why}", path.display().to_string()), accepted))
    };
    let accepted = "a certificate in PEM";
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|e| wrong("--ssl-certfile", certificate, e.to_string(), accepted))?;
    if chain.is_empty() {
        return Err(wrong("--ssl-certfile", certificate, "no certificate".to_owned(), accepted));
    }
    let accepted = "the certificate's private key in PEM, without a password";
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|e| wrong("--ssl-keyfile", key, e.to_string(), accepted))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|e| wrong("--ssl-keyfile", key, e.to_string(), accepted))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
