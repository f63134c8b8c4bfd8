use drydock_access::impersonation::Impersonation;
use drydock_access::{Identity, Policy};
use serde_json::json;

use crate::world::policy;

/// The user that comes out, as JSON text, or the message.
fn outcome(policy: &Policy, requestor: &Identity, headers: &[(&str, &str)]) -> String {
    let parsed = match Impersonation::from_headers(headers.iter().copied()) {
        Ok(None) => return "nobody".to_owned(),
        Ok(Some(parsed)) => parsed,
        Err(refusal) => return format!("{}: {refusal}", refusal.code()),
    };
    match parsed.authorize(policy, requestor) {
        Ok(identity) => identity.user_info().to_string(),
        Err(refusal) => format!("{}: {refusal}", refusal.code()),
    }
}

fn check(headers: &[(&str, &str)], expected: &str) {
    assert_eq!(outcome(&policy(&[]), &Identity::admin("root"), headers), expected);
}

#[test]
fn headers_make_the_other_identity() {
    check(&[("Authorization", "Bearer x")], "nobody");
    check(&[("Impersonate-User", "")], "nobody");
    check(&[("Impersonate-User", "jane")], r#"{"groups":["system:authenticated"],"username":"jane"}"#);
    check(
        &[("impersonate-user", "jane"), ("Impersonate-Group", "dev"), ("IMPERSONATE-GROUP", "ops")],
        r#"{"groups":["dev","ops","system:authenticated"],"username":"jane"}"#,
    );
    check(
        &[("Impersonate-User", "system:serviceaccount:ns:robot")],
        r#"{"groups":["system:serviceaccounts","system:serviceaccounts:ns","system:authenticated"],"username":"system:serviceaccount:ns:robot"}"#,
    );
    check(
        &[("Impersonate-User", "system:serviceaccount:ns:robot"), ("Impersonate-Group", "dev")],
        r#"{"groups":["dev","system:authenticated"],"username":"system:serviceaccount:ns:robot"}"#,
    );
    check(
        &[("Impersonate-User", "system:anonymous")],
        r#"{"groups":["system:unauthenticated"],"username":"system:anonymous"}"#,
    );
    check(
        &[("Impersonate-User", "jane"), ("Impersonate-Group", "system:unauthenticated")],
        r#"{"groups":["system:unauthenticated"],"username":"jane"}"#,
    );
    check(
        &[
            ("Impersonate-User", "jane"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Extra-Acme.com%2FProject", "a"),
            ("Impersonate-Extra-acme.com%2fproject", "b"),
            ("Impersonate-Extra-Broken%2", "c"),
        ],
        r#"{"extra":{"acme.com/project":["a","b"],"broken%2":["c"]},"groups":["system:authenticated"],"uid":"7","username":"jane"}"#,
    );
}

#[test]
fn nothing_is_taken_on_without_a_user() {
    check(
        &[("Impersonate-Group", "g1"), ("Impersonate-Extra-Foo%2Fbar", "v"), ("Impersonate-Uid", "u")],
        "500: requested [{Group  g1    } {UserExtra  v  authentication.k8s.io/v1  foo/bar} {UID  u  authentication.k8s.io/v1  }] without impersonating a user",
    );
}

#[test]
fn every_part_must_be_allowed() {
    let rules = json!([
        {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["jane"]},
        {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups"], "resourceNames": ["dev"]},
        {"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": ["userextras/project"]},
    ]);
    let objects = [
        json!({"kind": "ClusterRole", "metadata": {"name": "actor"}, "rules": rules}),
        json!({
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "actor"},
            "roleRef": {"kind": "ClusterRole", "name": "actor"},
            "subjects": [{"kind": "User", "name": "arthur"}],
        }),
    ];
    let policy = policy(&objects);
    let arthur = Identity::user("arthur", ["x"]);
    let jane = ("Impersonate-User", "jane");
    for (headers, expected) in [
        (
            vec![jane, ("Impersonate-Group", "dev"), ("Impersonate-Extra-Project", "p")],
            r#"{"extra":{"project":["p"]},"groups":["dev","system:authenticated"],"username":"jane"}"#,
        ),
        (
            vec![("Impersonate-User", "bob")],
            r#"403: users "bob" is forbidden: User "arthur" cannot impersonate resource "users" in API group "" at the cluster scope"#,
        ),
        (
            vec![jane, ("Impersonate-Group", "dev"), ("Impersonate-Group", "system:masters")],
            r#"403: groups "system:masters" is forbidden: User "arthur" cannot impersonate resource "groups" in API group "" at the cluster scope"#,
        ),
        (
            vec![("Impersonate-User", "system:serviceaccount:ns:robot")],
            r#"403: serviceaccounts "robot" is forbidden: User "arthur" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "ns""#,
        ),
        (
            vec![jane, ("Impersonate-Uid", "7")],
            r#"403: uids.authentication.k8s.io "7" is forbidden: User "arthur" cannot impersonate resource "uids" in API group "authentication.k8s.io" at the cluster scope"#,
        ),
        (
            vec![jane, ("Impersonate-Extra-Scopes", "all")],
            r#"403: userextras.authentication.k8s.io "all" is forbidden: User "arthur" cannot impersonate resource "userextras/scopes" in API group "authentication.k8s.io" at the cluster scope"#,
        ),
    ] {
        assert_eq!(outcome(&policy, &arthur, &headers), expected);
    }
}
