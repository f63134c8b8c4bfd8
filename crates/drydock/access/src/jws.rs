//! Signing and checking: JWS in its compact form, ES256 only.
//!
//! A compact JWS is three base64url parts with dots between, and ring does the one algorithm that
//! is wanted. Doing it here in a page keeps out a general JWT library with its choice of
//! algorithms taken from the token, which is where such libraries have been broken.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use serde_json::{Value, json};

/// What stands before the 65 bytes of a P-256 point in a DER `SubjectPublicKeyInfo`.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// A key could not be made, read or used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The system has no randomness to give.
    #[error("no randomness for a signing key")]
    Random,
    /// The bytes are no P-256 key in PKCS#8.
    #[error("the signing key is not a P-256 key in PKCS#8 DER")]
    Malformed,
}

/// The key pair that signs ServiceAccount tokens.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    pkcs8: Vec<u8>,
    id: String,
    random: SystemRandom,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// A new key.
    ///
    /// # Errors
    /// [`KeyError::Random`].
    pub fn generate() -> Result<Self, KeyError> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map_err(|_| KeyError::Random)?;
        Self::from_pkcs8(document.as_ref())
    }

    /// The key that [`SigningKey::pkcs8`] gave.
    ///
    /// # Errors
    /// [`KeyError::Malformed`].
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random)
            .map_err(|_| KeyError::Malformed)?;
        let spki = [SPKI_PREFIX.as_slice(), pair.public_key().as_ref()].concat();
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, &spki));
        Ok(Self { pair, pkcs8: der.to_vec(), id, random })
    }

    /// The private key in PKCS#8 DER, to be kept where only its owner can read it.
    #[must_use]
    pub fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// The key's id, as Kubernetes derives it: the hash of the public key.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The public key as a JSON Web Key.
    #[must_use]
    pub fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        // An uncompressed point: 0x04, then x and y in 32 bytes each.
        let half = |from: usize| URL_SAFE_NO_PAD.encode(point.get(from..from + 32).unwrap_or_default());
        json!({
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": half(1), "y": half(33),
        })
    }

    /// `payload`, signed.
    ///
    /// # Errors
    /// [`KeyError::Random`]: each signature takes some.
    pub(crate) fn sign(&self, payload: &[u8]) -> Result<String, KeyError> {
        let header = json!({"alg": "ES256", "kid": self.id}).to_string();
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
        let signature = self.pair.sign(&self.random, signed.as_bytes()).map_err(|_| KeyError::Random)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())))
    }

    /// Whether this key signed `token`. Says nothing about what the token says.
    pub(crate) fn signed(&self, token: &Compact<'_>) -> bool {
        token.algorithm == "ES256"
            && UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref())
                .verify(token.signed.as_bytes(), &token.signature)
                .is_ok()
    }
}

/// A compact JWS taken apart, nothing of it verified.
pub(crate) struct Compact<'a> {
    algorithm: String,
    /// The id of the key that is said to have signed it.
    pub(crate) key_id: String,
    signed: &'a str,
    /// The claims.
    pub(crate) payload: Vec<u8>,
    signature: Vec<u8>,
}

impl<'a> Compact<'a> {
    /// `None` when `token` is not of this form at all, as a static token is not.
    pub(crate) fn parse(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        if payload.contains('.') {
            return None;
        }
        let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        let field = |name: &str| header.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
        Some(Self {
            algorithm: field("alg"),
            key_id: field("kid"),
            signed,
            payload: URL_SAFE_NO_PAD.decode(payload).ok()?,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_and_checks_what_it_signed() {
        let key = SigningKey::generate().unwrap();
        let token = key.sign(b"{}").unwrap();
        let again = SigningKey::from_pkcs8(key.pkcs8()).unwrap();
        assert_eq!(again.id(), key.id());
        assert!(again.signed(&Compact::parse(&token).unwrap()));
        assert!(!SigningKey::generate().unwrap().signed(&Compact::parse(&token).unwrap()));
        assert_eq!(SigningKey::from_pkcs8(b"no key").err(), Some(KeyError::Malformed));
    }

    #[test]
    fn a_changed_part_breaks_the_signature() {
        let key = SigningKey::generate().unwrap();
        let token = key.sign(br#"{"sub":"a"}"#).unwrap();
        let parts: Vec<&str> = token.split('.').collect();
        let [header, payload, signature] = parts[..] else { panic!("three parts") };
        let other = URL_SAFE_NO_PAD.encode(r#"{"sub":"b"}"#);
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        for forged in [
            format!("{header}.{other}.{signature}"),
            format!("{none}.{payload}.{signature}"),
            format!("{none}.{payload}."),
            format!("{header}.{payload}."),
        ] {
            assert!(!key.signed(&Compact::parse(&forged).unwrap()), "{forged}");
        }
    }

    #[test]
    fn what_has_no_three_parts_is_no_token_of_ours() {
        for text in ["", "abc", "a.b", "a.b.c.d", "....", "{}.{}.{}"] {
            assert!(Compact::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn the_public_key_is_published_as_a_point() {
        let key = SigningKey::generate().unwrap();
        let jwk = key.jwk();
        for coordinate in ["x", "y"] {
            let bytes = URL_SAFE_NO_PAD.decode(jwk[coordinate].as_str().unwrap()).unwrap();
            assert_eq!(bytes.len(), 32);
        }
        assert_eq!(jwk["kid"], key.id());
    }
}
