//! The cluster's own certificate authority, and the certificate that a listener serves with.
//!
//! The authority is made once per cluster: with a data directory it stays the same over restarts, so that a
//! kubeconfig does, too. Serving certificates are made anew for each listener and never leave memory.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::{Timestamp, ToSpan, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{RootCertStore, ServerConfig};

/// Longer than any one machine's cluster lives; nobody is there to renew it.
const YEARS: i64 = 10;

/// The names under which pods and people reach the API, besides the address it listens on.
const NAMES: [&str; 8] = [
    "localhost",
    "127.0.0.1",
    "::1",
    // The first address of the Services' range: what pods are told.
    "10.96.0.1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// It could not be made.
    #[error("can't make a certificate")]
    Make(#[from] rcgen::Error),
    /// It could not be used.
    #[error("can't serve with the certificate")]
    Serve(#[from] rustls::Error),
}

/// Signs serving certificates.
pub(crate) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// An authority that is gone with the process.
    pub(crate) fn in_memory(now: Timestamp) -> Result<Authority, CertificateError> {
        let key = KeyPair::generate()?;
        let params = params(now)?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Authority { pem, issuer: Issuer::new(params, key) })
    }

    /// The authority of a certificate, unless that is none of this key.
    pub(crate) fn of(
        pem: String,
        key: KeyPair,
        now: Timestamp,
    ) -> Result<Option<Authority>, CertificateError> {
        let mut trusted = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok();
        let read = certificate.is_some_and(|certificate| trusted.add(certificate).is_ok());
        // What stands in the certificate is the key without the head that says how long it is.
        let public = key.subject_public_key_info();
        if !read || !trusted.roots.iter().all(|root| public.ends_with(&root.subject_public_key_info)) {
            return Ok(None);
        }
        // The issuer is told by name and key alone, and the name is always the same.
        Ok(Some(Authority { pem, issuer: Issuer::new(params(now)?, key) }))
    }

    /// What it signs with.
    pub(crate) fn key(&self) -> &KeyPair {
        self.issuer.key()
    }

    /// What clients trust.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// How to serve TLS on these addresses: HTTP/2 where the client knows it, HTTP/1.1 otherwise and for upgrades.
    pub(crate) fn server(
        &self,
        addresses: &[IpAddr],
        now: Timestamp,
    ) -> Result<ServerConfig, CertificateError> {
        let mut names: Vec<String> = NAMES.map(String::from).into();
        let others = addresses.iter().filter(|address| !address.is_unspecified()).map(ToString::to_string);
        names.extend(others.filter(|address| !NAMES.contains(&address.as_str())));
        let mut params = CertificateParams::new(names)?;
        valid(&mut params, now);
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        // Named, not taken from the process: another crate may have chosen another one there.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn params(now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    valid(&mut params, now);
    params.distinguished_name.push(DnType::CommonName, "drydock-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

/// From yesterday on: clocks of the two ends may differ a little.
fn valid(params: &mut CertificateParams, now: Timestamp) {
    let today = now.to_zoned(TimeZone::UTC).date();
    let day = |date: jiff::civil::Date| {
        // Months and days are small and positive.
        rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = day(today.saturating_sub(1.day()));
    params.not_after = day(today.saturating_add(YEARS.years()));
}
