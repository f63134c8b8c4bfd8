//! Who a request is from.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// A user as Kubernetes knows one: a name, groups, and what the authenticator adds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The name that bindings and messages use.
    pub username: String,
    /// Tells apart two users that bore the same name at different times. May be empty.
    pub uid: String,
    /// The groups, in the order in which they were learnt.
    pub groups: Vec<String>,
    /// Whatever else the authenticator knows, such as the id of the token.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// The group whose members may do anything, whatever the policy says.
    pub const MASTERS: &'static str = "system:masters";
    /// Everyone who proved who they are.
    pub const AUTHENTICATED: &'static str = "system:authenticated";
    /// Everyone who did not.
    pub const UNAUTHENTICATED: &'static str = "system:unauthenticated";
    /// All ServiceAccounts.
    pub const SERVICE_ACCOUNTS: &'static str = "system:serviceaccounts";
    /// The user who gave no credentials.
    pub const ANONYMOUS: &'static str = "system:anonymous";

    /// A user with groups, as an authenticator returns one: `system:authenticated` is added.
    pub fn user<G: Into<String>>(username: impl Into<String>, groups: impl IntoIterator<Item = G>) -> Self {
        let groups = groups.into_iter().map(Into::into).collect();
        Self { username: username.into(), groups, ..Self::default() }.authenticated()
    }

    /// A user who may do anything.
    #[must_use]
    pub fn admin(username: impl Into<String>) -> Self {
        Self::user(username, [Self::MASTERS])
    }

    /// The user who gave no credentials.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            username: Self::ANONYMOUS.to_owned(),
            groups: vec![Self::UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// A ServiceAccount, as its token makes it known.
    #[must_use]
    pub fn service_account(namespace: &str, name: &str, uid: impl Into<String>) -> Self {
        Self {
            username: Self::service_account_username(namespace, name),
            uid: uid.into(),
            groups: Self::service_account_groups(namespace),
            extra: BTreeMap::new(),
        }
        .authenticated()
    }

    /// `system:serviceaccount:NAMESPACE:NAME`.
    #[must_use]
    pub fn service_account_username(namespace: &str, name: &str) -> String {
        format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
    }

    pub(crate) fn service_account_groups(namespace: &str) -> Vec<String> {
        vec![Self::SERVICE_ACCOUNTS.to_owned(), format!("{}:{namespace}", Self::SERVICE_ACCOUNTS)]
    }

    /// The namespace and name in a ServiceAccount's username, when it is a well-formed one.
    #[must_use]
    pub fn split_service_account(username: &str) -> Option<(&str, &str)> {
        let (namespace, name) = username.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
        let subdomain = name.len() <= 253 && name.split('.').all(|label| is_label(label, 253));
        (is_label(namespace, 63) && subdomain).then_some((namespace, name))
    }

    /// Whether this user belongs to `group`.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// The same user with `system:authenticated`, unless the groups already say one way or the other.
    #[must_use]
    pub(crate) fn authenticated(mut self) -> Self {
        if !self.is_in(Self::AUTHENTICATED) && !self.is_in(Self::UNAUTHENTICATED) {
            self.groups.push(Self::AUTHENTICATED.to_owned());
        }
        self
    }

    /// `UserInfo` of `authentication.k8s.io/v1`; empty fields are left out.
    #[must_use]
    pub fn user_info(&self) -> Value {
        let mut info = Map::new();
        if !self.username.is_empty() {
            info.insert("username".into(), json!(self.username));
        }
        if !self.uid.is_empty() {
            info.insert("uid".into(), json!(self.uid));
        }
        if !self.groups.is_empty() {
            info.insert("groups".into(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            info.insert("extra".into(), json!(self.extra));
        }
        Value::Object(info)
    }
}

/// Lower-case letters, digits and inner dashes.
fn is_label(text: &str, longest: usize) -> bool {
    let bytes = text.as_bytes();
    let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    bytes.len() <= longest
        && bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
        && bytes.iter().all(|b| plain(b) || *b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_usernames_name_a_service_account() {
        for (username, expected) in [
            ("system:serviceaccount:default:robot", Some(("default", "robot"))),
            ("system:serviceaccount:default:a.b-c", Some(("default", "a.b-c"))),
            ("system:serviceaccount:default:robot:x", None),
            ("system:serviceaccount:Default:robot", None),
            ("system:serviceaccount:a.b:robot", None),
            ("system:serviceaccount::robot", None),
            ("system:serviceaccount:default:", None),
            ("system:serviceaccounts:default:robot", None),
            ("robot", None),
        ] {
            assert_eq!(Identity::split_service_account(username), expected, "{username}");
        }
    }

    #[test]
    fn user_info_leaves_out_what_is_empty() {
        assert_eq!(Identity::default().user_info(), json!({}));
        assert_eq!(
            Identity::service_account("ns", "robot", "1").user_info(),
            json!({
                "username": "system:serviceaccount:ns:robot",
                "uid": "1",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
            })
        );
    }
}
