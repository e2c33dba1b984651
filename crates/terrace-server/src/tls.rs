//! TLS: a certificate and its key, which can be read again while the server runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use terrace_platform::input_file::{self, MAX_SETTINGS};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("{}: {reason}", path.display())]
    File {
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// The certificate and the key cannot be used together.
    #[error("{} with the key {}: {source}", certificate.display(), key.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
}

/// The certificate that the server shows, and how it was read.
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads a chain of certificates and the key of its first one, both as PEM.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn read(certificate: PathBuf, key: PathBuf) -> Result<Self, TlsError> {
        let config = RwLock::new(Arc::new(config(&certificate, &key)?));
        Ok(Self { certificate, key, config })
    }

    /// Reads the files again, for connections that begin from now on.
    ///
    /// # Errors
    /// A file cannot be used; the earlier ones stay in use.
    pub fn read_again(&self) -> Result<(), TlsError> {
        let config = Arc::new(config(&self.certificate, &self.key)?);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// The acceptor that secures the next connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner)).into()
    }
}

fn config(certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let wrong = |path: &Path, reason: String| TlsError::File { path: path.to_owned(), reason };
    let bytes =
        |path: &Path| input_file::read(path, MAX_SETTINGS).map_err(|error| wrong(path, error.to_string()));
    let chain = CertificateDer::pem_slice_iter(&bytes(certificate)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| wrong(certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(wrong(certificate, "no certificate in it (PEM)".into()));
    }
    let secret =
        PrivateKeyDer::from_pem_slice(&bytes(key)?).map_err(|error| wrong(key, error.to_string()))?;
    let pair = |source| TlsError::Pair { certificate: certificate.to_owned(), key: key.to_owned(), source };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
