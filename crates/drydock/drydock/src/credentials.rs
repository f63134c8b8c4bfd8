//! What the cluster proves itself and others by: its certificate authority, the key that signs ServiceAccount
//! tokens, the administrator's token. With a data directory they stay the same over restarts.
//!
//! They are one set: made together, so that after a crash all of them are there or none. Of a set that is there, none
//! is made anew because it is gone or damaged: what was signed with the old one would be refused, and nobody told why.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drydock_access::{KeyError, SigningKey};
use jiff::Timestamp;
use rcgen::KeyPair;

use crate::certificates::{Authority, CertificateError};
use crate::kubeconfig::{is_token, random_token};
use crate::private::{self, FileError};

const CERTIFICATE: &str = "ca.crt";
const CERTIFICATE_KEY: &str = "ca.key";
const SIGNING_KEY: &str = "service-accounts.key";
const ADMIN_TOKEN: &str = "admin.token";

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// No certificate authority.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// No key for ServiceAccount tokens.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No randomness.
    #[error("the system has no randomness to give")]
    Random(#[from] getrandom::Error),
    /// One was kept, and is not there while others are.
    #[error("{}: it is gone, and other keys of this cluster are not", .0.display())]
    Gone(PathBuf),
    /// What was kept is not what it has to be.
    #[error("{}: damaged: this is no {what}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What it has to be.
        what: &'static str,
    },
    /// Not readable, or not writable.
    #[error(transparent)]
    File(#[from] FileError),
}

pub(crate) struct Credentials {
    pub(crate) authority: Authority,
    pub(crate) signing_key: SigningKey,
    pub(crate) admin_token: String,
}

impl Credentials {
    /// Made anew.
    pub(crate) fn in_memory(now: Timestamp) -> Result<Credentials, CredentialError> {
        Ok(Credentials {
            authority: Authority::in_memory(now)?,
            signing_key: SigningKey::generate()?,
            admin_token: random_token()?,
        })
    }

    /// Those in `directory`; `None` where there are none at all.
    pub(crate) fn kept(directory: &Path, now: Timestamp) -> Result<Option<Credentials>, CredentialError> {
        let gone = |name| Err(CredentialError::Gone(directory.join(name)));
        let read = |name| private::read(&directory.join(name));
        let (certificate, key, signing_key, token) =
            match [read(CERTIFICATE)?, read(CERTIFICATE_KEY)?, read(SIGNING_KEY)?, read(ADMIN_TOKEN)?] {
                [None, None, None, None] => return Ok(None),
                [Some(certificate), Some(key), Some(signing_key), Some(token)] => {
                    (certificate, key, signing_key, token)
                }
                [None, ..] => return gone(CERTIFICATE),
                [_, None, ..] => return gone(CERTIFICATE_KEY),
                [_, _, None, _] => return gone(SIGNING_KEY),
                [.., None] => return gone(ADMIN_TOKEN),
            };
        let damaged = |name, what| CredentialError::Damaged { path: directory.join(name), what };
        let key = KeyPair::from_pem(&key).map_err(|_| damaged(CERTIFICATE_KEY, "private key"))?;
        let authority = Authority::of(certificate, key, now)?;
        let der = STANDARD.decode(signing_key.trim()).ok();
        let signing_key = der.and_then(|der| SigningKey::from_pkcs8(&der).ok());
        Ok(Some(Credentials {
            authority: authority
                .ok_or_else(|| damaged(CERTIFICATE, "certificate of the key that is beside it"))?,
            signing_key: signing_key.ok_or_else(|| damaged(SIGNING_KEY, "private key"))?,
            admin_token: Some(token.trim().to_owned())
                .filter(|token| is_token(token))
                .ok_or_else(|| damaged(ADMIN_TOKEN, "token"))?,
        }))
    }

    /// New ones, kept in `directory`.
    pub(crate) fn make(directory: &Path, now: Timestamp) -> Result<Credentials, CredentialError> {
        let made = Credentials::in_memory(now)?;
        let files = [
            (CERTIFICATE, made.authority.pem().to_owned()),
            (CERTIFICATE_KEY, made.authority.key().serialize_pem()),
            (SIGNING_KEY, STANDARD.encode(made.signing_key.pkcs8())),
            (ADMIN_TOKEN, made.admin_token.clone()),
        ];
        private::write_all(directory, &files)?;
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;
    const NAMES: [&str; 4] = [ADMIN_TOKEN, CERTIFICATE, CERTIFICATE_KEY, SIGNING_KEY];

    #[test]
    fn kept_credentials_are_the_same_the_next_time() {
        let place = tempfile::tempdir().unwrap();
        let keys = place.path().join("keys");
        assert!(Credentials::kept(&keys, NOW).unwrap().is_none(), "there are none yet");
        // As a crash leaves it: begun, and nothing of it in use.
        fs::create_dir(place.path().join("keys.new")).unwrap();
        fs::write(place.path().join("keys.new/ca.crt"), "half of").unwrap();
        let first = Credentials::make(&keys, NOW).unwrap();
        let second = Credentials::kept(&keys, NOW).unwrap().unwrap();
        assert_eq!(first.admin_token, second.admin_token);
        assert_eq!(first.authority.pem(), second.authority.pem());
        assert_eq!(first.signing_key.id(), second.signing_key.id());
        let other = Credentials::in_memory(NOW).unwrap();
        assert_ne!(first.admin_token, other.admin_token);
        assert_ne!(first.authority.pem(), other.authority.pem());
        let there = |place: &Path| {
            let mut names: Vec<_> =
                fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(there(place.path()), ["keys"]);
        assert_eq!(there(&keys), NAMES);
    }

    #[test]
    fn of_a_set_none_is_made_anew() {
        let place = tempfile::tempdir().unwrap();
        let (keys, others) = (place.path().join("keys"), place.path().join("others"));
        Credentials::make(&keys, NOW).unwrap();
        Credentials::make(&others, NOW).unwrap();
        for name in NAMES {
            let path = keys.join(name);
            let whole = fs::read(&path).unwrap();
            let mut unreadable = whole.clone();
            unreadable[whole.len() / 2] = 0xff;
            for damage in [&[][..], &whole[..whole.len() / 2], &unreadable, b"something else"] {
                fs::write(&path, damage).unwrap();
                let error = Credentials::kept(&keys, NOW).err().unwrap();
                let CredentialError::Damaged { path: place, .. } = &error else { panic!("{name}: {error}") };
                assert_eq!(*place, path, "{error}");
            }
            fs::remove_file(&path).unwrap();
            let error = Credentials::kept(&keys, NOW).err().unwrap();
            assert!(matches!(&error, CredentialError::Gone(place) if *place == path), "{error}");
            assert!(!path.exists());
            fs::write(&path, whole).unwrap();
        }
        // A pair is one, and any token is.
        for (name, fits) in
            [(CERTIFICATE, false), (CERTIFICATE_KEY, false), (SIGNING_KEY, true), (ADMIN_TOKEN, true)]
        {
            let whole = fs::read(keys.join(name)).unwrap();
            fs::copy(others.join(name), keys.join(name)).unwrap();
            assert_eq!(Credentials::kept(&keys, NOW).is_ok(), fits, "{name} of another cluster");
            fs::write(keys.join(name), whole).unwrap();
        }
        assert!(Credentials::kept(&keys, NOW).unwrap().is_some());
    }
}
