//! From a bearer token to an identity.
//!
//! Two kinds are known. A static token is a secret that the cluster's owner chose; only its SHA-256
//! is kept, and digests are compared in constant time. A ServiceAccount's token is a JWT that this
//! cluster signed; it holds as long as it has not expired and the ServiceAccount, with its uid, and
//! the object that the token is bound to are there.
//!
//! **Caveats:** a token stays good while its ServiceAccount or bound object is there at all;
//! Kubernetes also refuses it a minute after their deletion began.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde_json::{Value, json};

use crate::claims::{Claims, Kubernetes, Legacy};
use crate::jws::Compact;
use crate::{Identity, KeyError, ServiceAccountClaims, SigningKey};
use drydock_schema::words::{quoted, quoted_list};

/// The issuer, and the audience that stands for the API itself.
pub const ISSUER: &str = "https://kubernetes.default.svc";
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// How far the clocks of two machines may differ, in seconds.
const LEEWAY: i64 = 60;

/// How many tokens' signatures are remembered. Checking one takes longer than most requests, and
/// a client sends the same token with each.
const REMEMBERED: usize = 1024;

type Digest = [u8; SHA256_OUTPUT_LEN];

/// What is asked about the objects that a token mentions.
pub trait Lookup {
    /// The uid of a ServiceAccount.
    fn service_account_uid(&self, namespace: &str, name: &str) -> Option<String>;
    /// The uid of a Secret.
    fn secret_uid(&self, namespace: &str, name: &str) -> Option<String>;
    /// The uid of a Pod.
    fn pod_uid(&self, namespace: &str, name: &str) -> Option<String>;
    /// The uid of a Node.
    fn node_uid(&self, _name: &str) -> Option<String> {
        None
    }
    /// Whose token a pod may have and where it runs. Without an answer, a token for a pod is bound
    /// without these being checked.
    fn pod_placement(&self, _namespace: &str, _name: &str) -> Option<PodPlacement> {
        None
    }
    /// `data.token` of a secret of type `kubernetes.io/service-account-token`, decoded. Without an
    /// answer, such tokens are not accepted.
    fn secret_token(&self, _namespace: &str, _name: &str) -> Option<Vec<u8>> {
        None
    }
}

/// Whose pod, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodPlacement {
    /// `spec.serviceAccountName`.
    pub service_account: String,
    /// `spec.nodeName`, empty while it is not scheduled.
    pub node: String,
}

/// A token was ours but is not good. All are final: the client needs another token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It says that we made it, and we did not.
    #[error("invalid signature")]
    Signature,
    /// It names a key that we do not have.
    #[error("invalid signature, no keys found")]
    UnknownKey,
    /// Its time is over.
    #[error("service account token has expired")]
    Expired,
    /// Its time has not come.
    #[error("service account token is not valid yet")]
    NotYetValid,
    /// It was made later than now.
    #[error("service account token is issued in the future")]
    FromTheFuture,
    /// It is for someone else.
    #[error("token audiences {token} is invalid for the target audiences {target}")]
    Audience {
        /// Whom it is for.
        token: String,
        /// Who was asked for.
        target: String,
    },
    /// The ServiceAccount is gone.
    #[error("serviceaccounts {0} not found")]
    NoServiceAccount(String),
    /// An object that it mentions has been replaced by another of that name.
    #[error("{what} UID ({found}) does not match {claim} ({claimed})")]
    OtherUid {
        /// The kind of object.
        what: &'static str,
        /// How the claim is called.
        claim: &'static str,
        /// The uid that the object has.
        found: String,
        /// The uid that the token says.
        claimed: String,
    },
    /// The object that it was bound to is gone.
    #[error("service account token has been invalidated")]
    Invalidated,
    /// A claim that must be there is not.
    #[error("{0} claim is missing")]
    Incomplete(&'static str),
    /// The secret holds another token by now.
    #[error("Token does not match server's copy")]
    NotTheServersCopy,
}

/// Who a token speaks for, and to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticated {
    /// The user.
    pub identity: Identity,
    /// Those of the wanted audiences that the token is for.
    pub audiences: Vec<String>,
}

/// Knows all tokens.
#[derive(Debug)]
pub struct Tokens {
    key: SigningKey,
    audiences: Vec<String>,
    fixed: Vec<(Digest, Identity)>,
    /// Claims of tokens whose signature was found good; the claims themselves are checked each time.
    remembered: Mutex<HashMap<Digest, Arc<Claims>>>,
}

impl Tokens {
    /// Tokens signed by `key`, and no static ones.
    #[must_use]
    pub fn new(key: SigningKey) -> Self {
        Self { key, audiences: vec![ISSUER.to_owned()], fixed: Vec::new(), remembered: Mutex::default() }
    }

    /// Adds a static token. `identity` gets the group `system:authenticated`.
    #[must_use]
    pub fn with_static(mut self, token: &str, identity: Identity) -> Self {
        self.fixed.push((sha256(token), identity.authenticated()));
        self
    }

    /// The key that signs.
    #[must_use]
    pub fn key(&self) -> &SigningKey {
        &self.key
    }

    /// The audiences that stand for the API.
    #[must_use]
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Makes a ServiceAccount's token.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn issue(&self, claims: &ServiceAccountClaims) -> Result<String, KeyError> {
        self.sign(&Claims::new(ISSUER, claims))
    }

    /// Makes the token that a secret of type `kubernetes.io/service-account-token` holds: it does
    /// not expire, and is good as long as the secret holds it.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn issue_for_secret(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        secret: &str,
    ) -> Result<String, KeyError> {
        self.sign(&Claims {
            iss: LEGACY_ISSUER.to_owned(),
            sub: Identity::service_account_username(namespace, name),
            legacy: Legacy {
                namespace: namespace.to_owned(),
                secret: secret.to_owned(),
                name: name.to_owned(),
                uid: uid.to_owned(),
            },
            ..Claims::default()
        })
    }

    fn sign(&self, claims: &Claims) -> Result<String, KeyError> {
        // Claims are strings, numbers and lists of them: they always have a JSON form.
        self.key.sign(&serde_json::to_vec(claims).unwrap_or_default())
    }

    /// Who sends a request with this token. `None` when it is no token that this cluster knows.
    ///
    /// # Errors
    /// The token is one of ours and not good.
    pub fn verify(
        &self,
        token: &str,
        now: Timestamp,
        lookup: &dyn Lookup,
    ) -> Result<Option<Identity>, TokenError> {
        let found = self.authenticate(token, &self.audiences, now, lookup)?;
        Ok(found.map(|authenticated| authenticated.identity))
    }

    /// As [`Tokens::verify`], for any audiences.
    ///
    /// # Errors
    /// The token is one of ours and not good.
    pub fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
        lookup: &dyn Lookup,
    ) -> Result<Option<Authenticated>, TokenError> {
        let digest = sha256(token);
        if let Some(identity) = self.fixed_identity(&digest) {
            // A static token is for the API, and says nothing to others.
            let audiences = common(&self.audiences, audiences);
            let authenticated = Authenticated { identity: identity.clone(), audiences };
            return Ok((!authenticated.audiences.is_empty()).then_some(authenticated));
        }
        let Some(claims) = self.signed_claims(token, digest)? else { return Ok(None) };

        let own = if claims.aud.is_empty() { &self.audiences } else { &claims.aud };
        let audiences = match common(own, audiences) {
            common if common.is_empty() => {
                let (token, target) = (quoted_list(own), quoted_list(audiences));
                return Err(TokenError::Audience { token, target });
            }
            common => common,
        };
        let identity = if claims.iss == LEGACY_ISSUER {
            legacy_identity(token, &claims, lookup)?
        } else {
            in_time(&claims, now)?;
            let kubernetes = claims.kubernetes.as_ref().ok_or(TokenError::Incomplete("kubernetes.io"))?;
            service_account_identity(kubernetes, &claims.jti, lookup)?
        };
        Ok(Some(Authenticated { identity, audiences }))
    }

    /// Looks at every static token, so that the time taken tells nothing.
    fn fixed_identity(&self, presented: &Digest) -> Option<&Identity> {
        let mut found = None;
        for (own, identity) in &self.fixed {
            let difference = own.iter().zip(presented).fold(0, |sum, (a, b)| sum | (a ^ b));
            if std::hint::black_box(difference) == 0 {
                found = Some(identity);
            }
        }
        found
    }

    /// The claims of a token that this cluster's key signed.
    fn signed_claims(&self, token: &str, digest: Digest) -> Result<Option<Arc<Claims>>, TokenError> {
        let remembered = || self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(claims) = remembered().get(&digest) {
            return Ok(Some(claims.clone()));
        }
        let Some(compact) = Compact::parse(token) else { return Ok(None) };
        let Ok(claims) = serde_json::from_slice::<Claims>(&compact.payload) else { return Ok(None) };
        if claims.iss != ISSUER && claims.iss != LEGACY_ISSUER {
            return Ok(None);
        }
        if !compact.key_id.is_empty() && compact.key_id != self.key.id() {
            return Err(TokenError::UnknownKey);
        }
        if !self.key.signed(&compact) {
            return Err(TokenError::Signature);
        }
        let claims = Arc::new(claims);
        let mut remembered = remembered();
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert(digest, claims.clone());
        Ok(Some(claims))
    }

    /// The key set at `/openid/v1/jwks`.
    #[must_use]
    pub fn jwks(&self) -> Value {
        json!({"keys": [self.key.jwk()]})
    }

    /// The document at `/.well-known/openid-configuration`; `address` is the API's host and port.
    #[must_use]
    pub fn openid_configuration(&self, address: &str) -> Value {
        json!({
            "issuer": ISSUER,
            "jwks_uri": format!("https://{address}/openid/v1/jwks"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }
}

fn sha256(text: &str) -> Digest {
    let mut out = [0; SHA256_OUTPUT_LEN];
    out.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    out
}

fn common(own: &[String], wanted: &[String]) -> Vec<String> {
    own.iter().filter(|audience| wanted.contains(audience)).cloned().collect()
}

fn in_time(claims: &Claims, now: Timestamp) -> Result<(), TokenError> {
    let now = now.as_second();
    if claims.nbf.is_some_and(|start| now + LEEWAY < start) {
        return Err(TokenError::NotYetValid);
    }
    if claims.exp.is_none_or(|end| now - LEEWAY > end) {
        return Err(TokenError::Expired);
    }
    if claims.iat.is_some_and(|made| now + LEEWAY < made) {
        return Err(TokenError::FromTheFuture);
    }
    Ok(())
}

fn same_uid(
    what: &'static str,
    claim: &'static str,
    found: Option<String>,
    claimed: &str,
    gone: TokenError,
) -> Result<(), TokenError> {
    let found = found.ok_or(gone)?;
    if found == claimed {
        return Ok(());
    }
    Err(TokenError::OtherUid { what, claim, found, claimed: claimed.to_owned() })
}

fn service_account_identity(
    claims: &Kubernetes,
    id: &str,
    lookup: &dyn Lookup,
) -> Result<Identity, TokenError> {
    let namespace = &claims.namespace;
    let account = &claims.serviceaccount;
    same_uid(
        "service account",
        "claim",
        lookup.service_account_uid(namespace, &account.name),
        &account.uid,
        TokenError::NoServiceAccount(quoted(&account.name)),
    )?;
    let mut extra = Vec::new();
    if let Some(secret) = &claims.secret {
        let found = lookup.secret_uid(namespace, &secret.name);
        same_uid("secret", "service account secret ref claim", found, &secret.uid, TokenError::Invalidated)?;
    }
    if let Some(pod) = &claims.pod {
        let found = lookup.pod_uid(namespace, &pod.name);
        same_uid("pod", "service account pod ref claim", found, &pod.uid, TokenError::Invalidated)?;
        extra.push(("pod-name", pod.name.clone()));
        extra.push(("pod-uid", pod.uid.clone()));
    }
    if let Some(node) = &claims.node {
        // Beside a pod the node only says where the pod was; alone it is what the token is bound to.
        if claims.pod.is_none() {
            let found = lookup.node_uid(&node.name);
            same_uid("node", "service account node ref claim", found, &node.uid, TokenError::Invalidated)?;
        }
        extra.push(("node-name", node.name.clone()));
        if !node.uid.is_empty() {
            extra.push(("node-uid", node.uid.clone()));
        }
    }
    if !id.is_empty() {
        extra.push(("credential-id", format!("JTI={id}")));
    }
    let mut identity = Identity::service_account(namespace, &account.name, &account.uid);
    let key = |name: &str| format!("authentication.kubernetes.io/{name}");
    identity.extra = extra.into_iter().map(|(name, value)| (key(name), vec![value])).collect();
    Ok(identity)
}

fn legacy_identity(token: &str, claims: &Claims, lookup: &dyn Lookup) -> Result<Identity, TokenError> {
    let Legacy { namespace, secret, name, uid } = &claims.legacy;
    for (claim, value) in [
        ("namespace", namespace),
        ("secretName", secret),
        ("serviceAccountName", name),
        ("serviceAccountUID", uid),
    ] {
        if value.is_empty() {
            return Err(TokenError::Incomplete(claim));
        }
    }
    let copy = lookup.secret_token(namespace, secret).ok_or(TokenError::Invalidated)?;
    // Both were signed by this cluster's key: how long the comparison takes tells nothing.
    if copy != token.as_bytes() {
        return Err(TokenError::NotTheServersCopy);
    }
    let found = lookup.service_account_uid(namespace, name);
    same_uid("ServiceAccount", "claim", found, uid, TokenError::NoServiceAccount(quoted(name)))?;
    Ok(Identity::service_account(namespace, name, uid))
}
