//! Acting as someone else.
//!
//! Each thing that the `Impersonate-*` headers ask for is a permission of its own: the user (or
//! ServiceAccount), each group, the uid, each extra value. When all are allowed, the request goes
//! on as the other identity and nothing of the caller's remains.

use std::collections::BTreeMap;

use crate::{Attributes, Identity, Policy, Refusal};

const GROUP: &str = "authentication.k8s.io";
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// What the headers ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impersonation {
    wanted: Vec<Wanted>,
    identity: Identity,
}

/// One thing to be allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    User(String),
    ServiceAccount { namespace: String, name: String },
    Group(String),
    Extra { key: String, value: String },
    Uid(String),
}

impl Impersonation {
    /// Reads the headers, names in any case. `None` when there are none of these.
    ///
    /// # Errors
    /// Groups, a uid or extra values without a user.
    pub fn from_headers<'a>(
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Option<Self>, Refusal> {
        let mut user: Option<&str> = None;
        let mut uid: Option<&str> = None;
        let mut groups = Vec::new();
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (header, value) in headers {
            let header = header.to_ascii_lowercase();
            match header.as_str() {
                "impersonate-user" => _ = user.get_or_insert(value),
                "impersonate-uid" => _ = uid.get_or_insert(value),
                "impersonate-group" => groups.push(value.to_owned()),
                _ => {
                    if let Some(key) = header.strip_prefix(EXTRA_PREFIX) {
                        extra.entry(unescaped(key)).or_default().push(value.to_owned());
                    }
                }
            }
        }
        let user = user.filter(|user| !user.is_empty());
        let uid = uid.filter(|uid| !uid.is_empty());

        let mut wanted = Vec::new();
        let account = user.and_then(Identity::split_service_account);
        match (account, user) {
            (Some((namespace, name)), _) => {
                wanted
                    .push(Wanted::ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() });
            }
            (None, Some(user)) => wanted.push(Wanted::User(user.to_owned())),
            (None, None) => {}
        }
        wanted.extend(groups.iter().cloned().map(Wanted::Group));
        for (key, values) in &extra {
            wanted
                .extend(values.iter().map(|value| Wanted::Extra { key: key.clone(), value: value.clone() }));
        }
        wanted.extend(uid.map(|uid| Wanted::Uid(uid.to_owned())));
        if wanted.is_empty() {
            return Ok(None);
        }
        let Some(user) = user else {
            let list: Vec<String> = wanted.iter().map(Wanted::reference).collect();
            return Err(Refusal::Internal(format!(
                "requested [{}] without impersonating a user",
                list.join(" ")
            )));
        };

        if let (true, Some((namespace, _))) = (groups.is_empty(), account) {
            groups = Identity::service_account_groups(namespace);
        }
        let identity = Identity {
            username: user.to_owned(),
            uid: uid.unwrap_or_default().to_owned(),
            groups: with_authentication(user, groups),
            extra,
        };
        Ok(Some(Self { wanted, identity }))
    }

    /// What `requestor` must be allowed, one by one and in this order.
    #[must_use]
    pub fn checks<'a>(&'a self, requestor: &'a Identity) -> Vec<Attributes<'a>> {
        self.wanted.iter().map(|wanted| wanted.attributes(requestor)).collect()
    }

    /// Who the request is from when everything is allowed.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The identity to go on with.
    ///
    /// # Errors
    /// The 403 for the first thing that `requestor` is not allowed.
    pub fn authorize(self, policy: &Policy, requestor: &Identity) -> Result<Identity, Refusal> {
        for check in self.checks(requestor) {
            let decision = policy.authorize(&check);
            if !decision.is_allowed() {
                return Err(check.refusal(decision.reason()));
            }
        }
        Ok(self.identity)
    }
}

impl Wanted {
    fn attributes<'a>(&'a self, requestor: &'a Identity) -> Attributes<'a> {
        let core = |resource| Attributes {
            version: "v1",
            ..Attributes::resource(requestor, "impersonate", "", resource)
        };
        let authentication = |resource| Attributes { group: GROUP, ..core(resource) };
        match self {
            Self::User(name) => core("users").named(name),
            Self::ServiceAccount { namespace, name } => core("serviceaccounts").within(namespace).named(name),
            Self::Group(name) => core("groups").named(name),
            Self::Extra { key, value } => authentication("userextras").subresource(key).named(value),
            Self::Uid(uid) => authentication("uids").named(uid),
        }
    }

    /// An object reference as Go prints one: kind, namespace, name, uid, version, resource version, path.
    fn reference(&self) -> String {
        match self {
            Self::User(name) => format!("{{User  {name}    }}"),
            Self::ServiceAccount { namespace, name } => format!("{{ServiceAccount {namespace} {name}    }}"),
            Self::Group(name) => format!("{{Group  {name}    }}"),
            Self::Extra { key, value } => format!("{{UserExtra  {value}  {GROUP}/v1  {key}}}"),
            Self::Uid(uid) => format!("{{UID  {uid}  {GROUP}/v1  }}"),
        }
    }
}

/// Adds the group that says whether the user is known, where the headers do not.
fn with_authentication(user: &str, mut groups: Vec<String>) -> Vec<String> {
    let has = |group: &str| groups.iter().any(|own| own == group);
    let missing = if user == Identity::ANONYMOUS {
        (!has(Identity::UNAUTHENTICATED)).then_some(Identity::UNAUTHENTICATED)
    } else {
        let said = has(Identity::AUTHENTICATED) || has(Identity::UNAUTHENTICATED);
        (!said).then_some(Identity::AUTHENTICATED)
    };
    groups.extend(missing.map(str::to_owned));
    groups
}

/// Percent-decoded; as it is when it is not well-formed.
fn unescaped(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let hex = |b: &u8| char::from(*b).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match tail {
            [high, low, tail @ ..] => match (hex(high), hex(low)) {
                (Some(high), Some(low)) => {
                    bytes.push(high * 16 + low);
                    rest = tail;
                }
                _ => return key.to_owned(),
            },
            _ => return key.to_owned(),
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}
