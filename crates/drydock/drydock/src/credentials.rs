//! What the cluster proves itself and others by: its certificate authority, the key that signs ServiceAccount
//! tokens, the administrator's token. With a data directory they stay the same over restarts.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drydock_access::{KeyError, SigningKey};
use jiff::Timestamp;

use crate::certificates::{Authority, CertificateError};
use crate::kubeconfig::random_token;
use crate::private::{self, FileError};

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
    /// What was kept is no key.
    #[error("{}: damaged: this is no private key", .0.display())]
    Damaged(PathBuf),
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

    /// Those in `directory`, each made when it isn't there.
    pub(crate) fn kept(directory: &Path, now: Timestamp) -> Result<Credentials, CredentialError> {
        let authority = Authority::kept(directory, now)?;
        let key_path = directory.join("service-accounts.key");
        let signing_key = match private::read(&key_path)? {
            Some(text) => {
                let der = STANDARD.decode(text.trim()).ok();
                let key = der.and_then(|der| SigningKey::from_pkcs8(&der).ok());
                key.ok_or(CredentialError::Damaged(key_path))?
            }
            None => {
                let key = SigningKey::generate()?;
                private::write(&key_path, STANDARD.encode(key.pkcs8()).as_bytes())?;
                key
            }
        };
        let token_path = directory.join("admin.token");
        let admin_token = match private::read(&token_path)?.map(|text| text.trim().to_owned()) {
            Some(token) if !token.is_empty() => token,
            _ => {
                let token = random_token()?;
                private::write(&token_path, token.as_bytes())?;
                token
            }
        };
        Ok(Credentials { authority, signing_key, admin_token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_credentials_are_the_same_the_next_time() {
        let directory = tempfile::tempdir().unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let kept = || Credentials::kept(directory.path(), now).unwrap();
        let (first, second) = (kept(), kept());
        assert_eq!(first.admin_token, second.admin_token);
        assert_eq!(first.authority.pem(), second.authority.pem());
        assert_eq!(first.signing_key.id(), second.signing_key.id());
        let other = Credentials::in_memory(now).unwrap();
        assert_ne!(first.admin_token, other.admin_token);
        assert_ne!(first.authority.pem(), other.authority.pem());
    }
}
