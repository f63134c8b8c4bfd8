use drydock_access::{Bound, ISSUER, Identity, Refusal, ServiceAccountClaims, SigningKey, Tokens, reviews};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::world::{Cluster, policy};

fn check(answer: Result<Value, Refusal>, expected: Result<Value, &str>) {
    match (answer, expected) {
        (Ok(review), Ok(status)) => assert_eq!(review["status"], status),
        (Err(refusal), Err(message)) => assert_eq!(format!("{} {refusal}", refusal.code()), message),
        (answer, expected) => panic!("{answer:?}, expected {expected:?}"),
    }
}

fn list_pods(namespace: &str) -> Value {
    json!({"verb": "list", "resource": "pods", "namespace": namespace})
}

fn viewers() -> Vec<Value> {
    vec![json!({
        "kind": "RoleBinding",
        "metadata": {"name": "v", "namespace": "default"},
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "vera"}, {"kind": "Group", "name": "dev"}],
    })]
}

#[test]
fn a_subject_access_review_is_about_the_user_it_names() {
    let policy = policy(&viewers());
    let reason = |subject: &str| {
        format!(r#"RBAC: allowed by RoleBinding "v/default" of ClusterRole "view" to {subject}"#)
    };
    for (spec, expected) in [
        (
            json!({"user": "vera", "resourceAttributes": list_pods("default")}),
            Ok(json!({"allowed": true, "reason": reason(r#"User "vera""#)})),
        ),
        (
            json!({"groups": ["dev"], "resourceAttributes": list_pods("default")}),
            Ok(json!({"allowed": true, "reason": reason(r#"Group "dev""#)})),
        ),
        (json!({"user": "vera", "resourceAttributes": list_pods("")}), Ok(json!({"allowed": false}))),
        (
            json!({"user": "root", "groups": ["system:masters"], "resourceAttributes": {}}),
            Ok(json!({"allowed": true})),
        ),
        (
            json!({"user": "x", "nonResourceAttributes": {"verb": "get", "path": "/healthz"}}),
            Ok(json!({"allowed": false})),
        ),
        (
            json!({}),
            Err(
                r#"422 .authorization.k8s.io "" is invalid: [spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: "": at least one of user or group must be specified]"#,
            ),
        ),
        (
            json!({"user": "x", "resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/a"}}),
            Err(
                r#"422 .authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/a","Verb":""}: cannot be specified in combination with resourceAttributes"#,
            ),
        ),
        (
            json!({"user": "x", "resourceAttributes": {"verb": "list", "labelSelector": {}}}),
            Err(
                r#"422 .authorization.k8s.io "" is invalid: spec.resourceAttributes.labelSelector.requirements: Required value: when spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required"#,
            ),
        ),
    ] {
        let review =
            json!({"kind": "SubjectAccessReview", "metadata": {"creationTimestamp": null}, "spec": spec});
        check(reviews::subject_access(&policy, &review), expected);
    }
    check(
        reviews::subject_access(
            &policy,
            &json!({"metadata": {"name": "a"}, "spec": {"user": "x", "resourceAttributes": list_pods("")}}),
        ),
        Err(
            r#"422 .authorization.k8s.io "" is invalid: metadata: Invalid value: {"name":"a"}: must be empty"#,
        ),
    );
}

#[test]
fn a_self_review_is_about_the_caller_whatever_it_says() {
    let policy = policy(&viewers());
    let spec = json!({"user": "vera", "resourceAttributes": list_pods("default")});
    let review = json!({"spec": spec});
    check(
        reviews::self_subject_access(&policy, &Identity::user("x", ["other"]), &review),
        Ok(json!({"allowed": false})),
    );
    check(
        reviews::self_subject_access(&policy, &Identity::admin("root"), &review),
        Ok(json!({"allowed": true})),
    );
    check(
        reviews::self_subject_access(&policy, &Identity::admin("root"), &json!({"spec": {}})),
        Err(
            r#"422 .authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"#,
        ),
    );
}

#[test]
fn a_local_review_stays_in_its_namespace() {
    let policy = policy(&viewers());
    let review = |spec: Value| json!({"spec": spec});
    let local = |spec: Value| reviews::local_subject_access(&policy, "default", &review(spec));
    check(
        local(json!({"user": "x", "resourceAttributes": list_pods("default")})),
        Ok(json!({"allowed": false})),
    );
    check(
        local(json!({"user": "x", "resourceAttributes": list_pods("other")})),
        Err(
            r#"422 .authorization.k8s.io "" is invalid: spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace"#,
        ),
    );
    check(
        local(json!({"user": "x", "nonResourceAttributes": {"path": "/a"}})),
        Err(
            r#"422 .authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/a","Verb":""}: disallowed on this kind of request"#,
        ),
    );
}

#[test]
fn the_rules_of_a_user_are_listed_for_a_namespace() {
    let objects = [
        json!({
            "kind": "ClusterRole",
            "metadata": {"name": "r"},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}],
        }),
        json!({
            "kind": "RoleBinding",
            "metadata": {"name": "b", "namespace": "default"},
            "roleRef": {"kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "User", "name": "x"}],
        }),
        json!({
            "kind": "RoleBinding",
            "metadata": {"name": "c", "namespace": "default"},
            "roleRef": {"kind": "Role", "name": "gone"},
            "subjects": [{"kind": "User", "name": "x"}],
        }),
    ];
    let policy = policy(&objects);
    let x = Identity {
        username: "x".into(),
        groups: vec!["system:unauthenticated".into()],
        ..Identity::default()
    };
    check(
        reviews::self_subject_rules(&policy, &x, &json!({"spec": {"namespace": "default"}})),
        Ok(json!({
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}],
            "nonResourceRules": [
                {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]},
            ],
            "incomplete": false,
            "evaluationError": r#"role.rbac.authorization.k8s.io "gone" not found"#,
        })),
    );
    check(reviews::self_subject_rules(&policy, &x, &json!({"spec": {}})), Err("400 no namespace on request"));
}

#[test]
fn whoami_tells_the_user() {
    let now: Timestamp = "2030-01-01T00:00:00.5Z".parse().unwrap();
    assert_eq!(
        reviews::self_subject(
            &Identity::admin("root"),
            &json!({"apiVersion": "authentication.k8s.io/v1"}),
            now
        ),
        json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "SelfSubjectReview",
            "metadata": {"creationTimestamp": "2030-01-01T00:00:00Z"},
            "status": {"userInfo": {"username": "root", "groups": ["system:masters", "system:authenticated"]}},
        })
    );
}

#[test]
fn a_token_review_tells_whose_token_it_is() {
    let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let tokens = Tokens::new(SigningKey::generate().unwrap()).with_static("abc", Identity::admin("root"));
    let cluster = Cluster { uids: [("sa ns/robot", "u1")].into(), ..Cluster::default() };
    let robot = tokens
        .issue(&ServiceAccountClaims {
            namespace: "ns".into(),
            name: "robot".into(),
            uid: "u1".into(),
            audiences: vec![ISSUER.into()],
            issued_at: now,
            expires_at: now + SignedDuration::from_hours(1),
            warn_after: None,
            bound: Bound::Nothing,
            id: "1".into(),
        })
        .unwrap();
    for (spec, expected) in [
        (json!({}), Err("400 token is required for TokenReview in authentication")),
        (json!({"token": "unknown"}), Ok(json!({"user": {}, "error": "invalid bearer token"}))),
        (
            json!({"token": "abc"}),
            Ok(json!({
                "authenticated": true,
                "user": {"username": "root", "groups": ["system:masters", "system:authenticated"]},
                "audiences": [ISSUER],
            })),
        ),
        (
            json!({"token": "abc", "audiences": ["foo"]}),
            Ok(json!({"user": {}, "error": "invalid bearer token"})),
        ),
        (
            json!({"token": robot, "audiences": ["foo"]}),
            Ok(json!({
                "user": {},
                "error": r#"[invalid bearer token, token audiences ["https://kubernetes.default.svc"] is invalid for the target audiences ["foo"]]"#,
            })),
        ),
        (
            json!({"token": robot}),
            Ok(json!({
                "authenticated": true,
                "user": {
                    "username": "system:serviceaccount:ns:robot",
                    "uid": "u1",
                    "groups": ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
                    "extra": {"authentication.kubernetes.io/credential-id": ["JTI=1"]},
                },
                "audiences": [ISSUER],
            })),
        ),
    ] {
        check(reviews::token(&tokens, &json!({"spec": spec}), now, &cluster), expected);
    }
}
