use drydock_access::token_request::{TokenRequest, answer};
use drydock_access::{Bound, ISSUER, Identity, ObjectRef, ServiceAccountClaims, SigningKey, Tokens};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::world::Cluster;

fn now() -> Timestamp {
    "2030-01-01T00:00:00Z".parse().unwrap()
}

fn later(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

fn cluster() -> Cluster {
    Cluster {
        uids: [("sa ns/robot", "u1"), ("pod ns/p", "p1"), ("secret ns/s", "s1"), ("node /n", "n1")].into(),
        placements: [("ns/p", ("robot", "n"))].into(),
        ..Cluster::default()
    }
}

fn tokens() -> Tokens {
    Tokens::new(SigningKey::generate().unwrap()).with_static("secret-admin", Identity::admin("root"))
}

fn claims(bound: Bound) -> ServiceAccountClaims {
    ServiceAccountClaims {
        namespace: "ns".into(),
        name: "robot".into(),
        uid: "u1".into(),
        audiences: vec![ISSUER.into()],
        issued_at: now(),
        expires_at: later(3600),
        warn_after: None,
        bound,
        id: "id-1".into(),
    }
}

fn object(name: &str, uid: &str) -> ObjectRef {
    ObjectRef { name: name.into(), uid: uid.into() }
}

/// The username, `nobody`, or the message.
fn verified(tokens: &Tokens, token: &str, at: Timestamp, cluster: &Cluster) -> String {
    match tokens.verify(token, at, cluster) {
        Ok(Some(identity)) => identity.username,
        Ok(None) => "nobody".to_owned(),
        Err(error) => error.to_string(),
    }
}

const ROBOT: &str = "system:serviceaccount:ns:robot";

#[test]
fn a_static_token_is_known_by_its_whole_text() {
    let tokens = tokens().with_static("other", Identity::user("bob", ["dev"]));
    for (token, expected) in [
        ("secret-admin", "root"),
        ("other", "bob"),
        ("secret-admi", "nobody"),
        ("secret-adminn", "nobody"),
        ("", "nobody"),
    ] {
        assert_eq!(verified(&tokens, token, now(), &cluster()), expected, "{token}");
    }
    let bob = tokens.verify("other", now(), &cluster()).unwrap().unwrap();
    assert_eq!(bob.groups, ["dev", "system:authenticated"]);
    assert!(!format!("{tokens:?}").contains("secret-admin"), "debug output keeps secrets");
}

#[test]
fn a_token_says_what_kubernetes_tokens_say() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let tokens = tokens();
    let bound = Bound::Pod(object("p", "p1"), Some(object("n", "n1")));
    let token = tokens.issue(&claims(bound)).unwrap();
    let parts: Vec<Value> = token
        .split('.')
        .take(2)
        .map(|part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap())
        .collect();
    assert_eq!(parts[0], json!({"alg": "ES256", "kid": tokens.key().id()}));
    assert_eq!(
        parts[1],
        json!({
            "aud": [ISSUER], "exp": 1_893_459_600, "iat": 1_893_456_000, "nbf": 1_893_456_000,
            "iss": ISSUER, "jti": "id-1", "sub": ROBOT,
            "kubernetes.io": {
                "namespace": "ns",
                "serviceaccount": {"name": "robot", "uid": "u1"},
                "pod": {"name": "p", "uid": "p1"},
                "node": {"name": "n", "uid": "n1"},
            },
        })
    );
    let identity = tokens.verify(&token, now(), &cluster()).unwrap().unwrap();
    assert_eq!(
        identity.user_info(),
        json!({
            "username": ROBOT,
            "uid": "u1",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
            "extra": {
                "authentication.kubernetes.io/credential-id": ["JTI=id-1"],
                "authentication.kubernetes.io/pod-name": ["p"],
                "authentication.kubernetes.io/pod-uid": ["p1"],
                "authentication.kubernetes.io/node-name": ["n"],
                "authentication.kubernetes.io/node-uid": ["n1"],
            },
        })
    );
}

#[test]
fn a_token_is_good_in_its_time_give_or_take_a_minute() {
    let tokens = tokens();
    let token = tokens.issue(&claims(Bound::Nothing)).unwrap();
    for (seconds, expected) in [
        (0, ROBOT),
        (-60, ROBOT),
        (-61, "service account token is not valid yet"),
        (3660, ROBOT),
        (3661, "service account token has expired"),
    ] {
        assert_eq!(verified(&tokens, &token, later(seconds), &cluster()), expected, "{seconds}");
    }
}

#[test]
fn a_token_dies_with_what_it_is_bound_to() {
    let tokens = tokens();
    let gone = "service account token has been invalidated";
    let cases = [
        (
            Bound::Nothing,
            "sa ns/robot",
            r#"serviceaccounts "robot" not found"#,
            "service account UID (x) does not match claim (u1)",
        ),
        (
            Bound::Pod(object("p", "p1"), Some(object("n", "n1"))),
            "pod ns/p",
            gone,
            "pod UID (x) does not match service account pod ref claim (p1)",
        ),
        (
            Bound::Secret(object("s", "s1")),
            "secret ns/s",
            gone,
            "secret UID (x) does not match service account secret ref claim (s1)",
        ),
        (
            Bound::Node(object("n", "n1")),
            "node /n",
            gone,
            "node UID (x) does not match service account node ref claim (n1)",
        ),
    ];
    for (bound, key, when_gone, when_replaced) in cases {
        let token = tokens.issue(&claims(bound)).unwrap();
        let mut cluster = cluster();
        assert_eq!(verified(&tokens, &token, now(), &cluster), ROBOT);
        cluster.uids.insert(key, "x");
        assert_eq!(verified(&tokens, &token, now(), &cluster), when_replaced);
        cluster.uids.remove(key);
        assert_eq!(verified(&tokens, &token, now(), &cluster), when_gone);
    }
}

#[test]
fn a_token_of_another_cluster_or_a_forged_one_is_refused() {
    let tokens = tokens();
    let other = Tokens::new(SigningKey::generate().unwrap());
    let foreign = other.issue(&claims(Bound::Nothing)).unwrap();
    assert_eq!(verified(&tokens, &foreign, now(), &cluster()), "invalid signature, no keys found");
    let good = tokens.issue(&claims(Bound::Nothing)).unwrap();
    assert_eq!(verified(&tokens, &good, now(), &cluster()), ROBOT);
    let (signed, _) = good.rsplit_once('.').unwrap();
    let (_, signature) = foreign.rsplit_once('.').unwrap();
    assert_eq!(verified(&tokens, &format!("{signed}.{signature}"), now(), &cluster()), "invalid signature");
    assert_eq!(verified(&tokens, &format!("{signed}."), now(), &cluster()), "invalid signature");
    assert_eq!(
        verified(&tokens, &good, now(), &cluster()),
        ROBOT,
        "a forgery is not remembered in its place"
    );
}

#[test]
fn a_token_for_others_is_not_for_the_api() {
    let tokens = tokens();
    let token = tokens
        .issue(&ServiceAccountClaims { audiences: vec!["vault".into()], ..claims(Bound::Nothing) })
        .unwrap();
    assert_eq!(
        verified(&tokens, &token, now(), &cluster()),
        r#"token audiences ["vault"] is invalid for the target audiences ["https://kubernetes.default.svc"]"#
    );
    let wanted = ["vault".to_owned(), "other".to_owned()];
    let found = tokens.authenticate(&token, &wanted, now(), &cluster()).unwrap().unwrap();
    assert_eq!(found.audiences, ["vault"]);
}

#[test]
fn a_token_in_a_secret_is_good_as_long_as_the_secret_holds_it() {
    let tokens = tokens();
    let token = tokens.issue_for_secret("ns", "robot", "u1", "s").unwrap();
    let mut cluster = cluster();
    assert_eq!(verified(&tokens, &token, now(), &cluster), "service account token has been invalidated");
    cluster.secret_tokens.insert("ns/s", token.clone());
    assert_eq!(verified(&tokens, &token, later(1 << 33), &cluster), ROBOT);
    cluster.secret_tokens.insert("ns/s", "another".into());
    assert_eq!(verified(&tokens, &token, now(), &cluster), "Token does not match server's copy");
}

#[test]
fn the_public_key_can_be_discovered() {
    let tokens = tokens();
    assert_eq!(tokens.jwks()["keys"][0]["kid"], tokens.key().id());
    let document = tokens.openid_configuration("127.0.0.1:6443");
    assert_eq!(document["jwks_uri"], "https://127.0.0.1:6443/openid/v1/jwks");
    assert_eq!(document["issuer"], ISSUER);
}

/// The answer to a request with this body: the object or the code and message.
fn requested(tokens: &Tokens, body: &Value) -> Result<Value, String> {
    let request = TokenRequest { namespace: "ns", name: "robot", body, id: "id-1" };
    answer(tokens, &request, now(), &cluster()).map_err(|refusal| format!("{} {refusal}", refusal.code()))
}

#[test]
fn a_request_is_answered_with_a_token_that_works() {
    let tokens = tokens();
    let mut answer = requested(&tokens, &json!({"spec": {}})).unwrap();
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    assert_eq!(verified(&tokens, &token, now(), &cluster()), ROBOT);
    answer["status"]["token"] = json!("…");
    assert_eq!(
        answer,
        json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"name": "robot", "namespace": "ns", "uid": "u1", "creationTimestamp": "2030-01-01T00:00:00Z"},
            "spec": {"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": null},
            "status": {"token": "…", "expirationTimestamp": "2030-01-01T01:00:00Z"},
        })
    );
}

#[test]
fn a_request_for_what_cannot_be_given_says_why() {
    let tokens = tokens();
    let bind = |kind: &str, version: &str, name: &str, uid: &str| json!({"spec": {"boundObjectRef": {"kind": kind, "apiVersion": version, "name": name, "uid": uid}}});
    for (body, expected) in [
        (
            json!({"spec": {"expirationSeconds": 5}}),
            r#"422 TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes"#,
        ),
        (
            json!({"spec": {"expirationSeconds": 99_999_999_999_i64}}),
            r#"422 TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 99999999999: may not specify a duration larger than 2^32 seconds"#,
        ),
        (
            json!({"metadata": {"name": "other"}}),
            r#"422 TokenRequest.authentication.k8s.io "robot" is invalid: metadata.name: Invalid value: "other": must match the service account name if specified"#,
        ),
        (
            json!({"metadata": {"uid": "other"}}),
            r#"409 Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "robot": the UID in the token request (other) does not match the UID of the service account (u1)"#,
        ),
        (bind("Pod", "v1", "nope", ""), r#"404 pods "nope" not found"#),
        (
            bind("Deployment", "apps/v1", "d", ""),
            "400 cannot bind token to object of type apps/v1, Kind=Deployment",
        ),
        (
            bind("Secret", "v1", "s", "x"),
            r#"409 Operation cannot be fulfilled on Secret "s": the UID in the bound object reference (x) does not match the UID in record. The object might have been deleted and then recreated"#,
        ),
    ] {
        assert_eq!(requested(&tokens, &body), Err(expected.to_owned()));
    }
    let other = TokenRequest { namespace: "ns", name: "gone", body: &json!({}), id: "x" };
    let refusal = answer(&tokens, &other, now(), &cluster()).unwrap_err();
    assert_eq!(refusal.to_string(), r#"serviceaccounts "gone" not found"#);

    let mut theirs = cluster();
    theirs.placements.insert("ns/p", ("somebody", ""));
    let body = bind("Pod", "v1", "p", "");
    let request = TokenRequest { namespace: "ns", name: "robot", body: &body, id: "x" };
    assert_eq!(
        answer(&tokens, &request, now(), &theirs).unwrap_err().to_string(),
        r#"cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name."#
    );
}

#[test]
fn a_kubelets_token_outlives_what_it_asked_for() {
    let tokens = tokens();
    let body = json!({"spec": {
        "expirationSeconds": 3607,
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "p1"},
    }});
    let answer = requested(&tokens, &body).unwrap();
    assert_eq!(answer["status"]["expirationTimestamp"], "2030-01-01T01:00:07Z");
    let token = answer["status"]["token"].as_str().unwrap();
    assert_eq!(verified(&tokens, token, later(300 * 24 * 3600), &cluster()), ROBOT);
    let identity = tokens.verify(token, now(), &cluster()).unwrap().unwrap();
    assert_eq!(identity.extra["authentication.kubernetes.io/node-name"], ["n"]);
}
