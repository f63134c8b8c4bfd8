//! Who may do what.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use drydock_access::Identity;
use drydock_api::Caller;
use serde_json::{Value, json};

use crate::cluster::{Cluster, config_map};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn nobody_reads_anything_but_health_and_version_without_a_token() {
    let cluster = Cluster::new().await.by(Caller::Bearer);
    for path in ["/healthz", "/livez", "/readyz", "/readyz?verbose", "/version"] {
        let (code, _) = cluster.ask(&format!("GET {path}"), "").await;
        assert_eq!(code, 200, "{path}");
    }
    for path in ["/", "/api", "/apis", "/api/v1/pods", "/openapi/v3", "/metrics"] {
        cluster.check(&format!("GET {path}"), "", "401 Unauthorized: Unauthorized").await;
    }
    cluster.check("GET /version\nAuthorization: Bearer wrong", "", "401 Unauthorized: Unauthorized").await;
    cluster
        .check(&format!("GET {MAPS}\nAuthorization: Bearer admin-token"), "", "200 ConfigMapList []")
        .await;
}

#[tokio::test]
async fn roles_are_enforced() {
    let cluster = Cluster::new().await;
    let jane = cluster.by(Caller::Trusted(Identity::user("jane", ["devs"])));
    jane.check(&format!("GET {MAPS}"), "", r#"403 Forbidden: configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group "" in the namespace "default""#).await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "view"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devs"}]});
    cluster.must("POST /apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding).await;
    jane.check(&format!("GET {MAPS}"), "", "200 ConfigMapList []").await;
    jane.check(&format!("POST {MAPS}"), &config_map("a", json!({})), r#"403 Forbidden: configmaps is forbidden: User "jane" cannot create resource "configmaps" in API group "" in the namespace "default""#).await;
    jane.check("GET /api/v1/configmaps", "", r#"403 Forbidden: configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group "" at the cluster scope"#).await;
}

#[tokio::test]
async fn a_service_account_asks_with_its_token_and_an_administrator_in_its_name() {
    let cluster = Cluster::new().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}});
    cluster.must("POST /api/v1/namespaces/default/serviceaccounts", account).await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = cluster.must("POST /api/v1/namespaces/default/serviceaccounts/sa/token", request).await;
    let token = answer["status"]["token"].as_str().unwrap();
    let bearer = cluster.by(Caller::Bearer);
    bearer.check(&format!("GET {MAPS}\nAuthorization: Bearer {token}"), "", r#"403 Forbidden: configmaps is forbidden: User "system:serviceaccount:default:sa" cannot list resource "configmaps" in API group "" in the namespace "default""#).await;
    cluster.check(&format!("GET {MAPS}\nImpersonate-User: jane"), "", r#"403 Forbidden: configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group "" in the namespace "default""#).await;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}});
    let line = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(cluster.must(line, review.clone()).await["status"]["allowed"], true);
    let answer = bearer.must(&format!("{line}\nAuthorization: Bearer {token}"), review).await;
    assert_eq!(answer["status"]["allowed"], false);
}

#[tokio::test]
async fn nobody_stays_who_they_are_by_asking_to_be_somebody_whose_name_is_not_plain() {
    let cluster = Cluster::new().await;
    let list = |user: &[u8]| {
        let header = http::HeaderValue::from_bytes(user).unwrap();
        let mut request =
            http::Request::get(MAPS).body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
        request.headers_mut().insert("Impersonate-User", header);
        cluster.api.handle(request, Caller::Trusted(Identity::admin("admin")))
    };
    let answer = list("jörg".as_bytes()).await;
    assert_eq!(answer.status(), 403);
    let said = String::from_utf8_lossy(answer.body().bytes().unwrap()).into_owned();
    assert!(said.contains(r#"User \"jörg\" cannot list"#), "{said}");
    assert_eq!(list(b"j\xf6rg").await.status(), 500, "no UTF-8 is no name");
}

#[tokio::test]
async fn a_secret_for_a_service_account_holds_its_token_as_long_as_both_are_there() {
    let cluster = Cluster::new().await;
    let (accounts, secrets) =
        ("/api/v1/namespaces/default/serviceaccounts", "/api/v1/namespaces/default/secrets");
    let secret = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": "sa"}}})
    };
    let early = cluster.must(&format!("POST {secrets}"), secret("early")).await;
    assert_eq!(early.get("data"), None);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}});
    let account = cluster.must(&format!("POST {accounts}"), account).await;

    let text = |secret: &Value, key: &str| {
        String::from_utf8(STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap()).unwrap()
    };
    let made = cluster.must(&format!("POST {secrets}"), secret("late")).await;
    assert_eq!((text(&made, "ca.crt"), text(&made, "namespace")), ("authority".into(), "default".into()));
    let uid = &made["metadata"]["annotations"]["kubernetes.io/service-account.uid"];
    assert_eq!(*uid, account["metadata"]["uid"]);
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let early = cluster.must(&format!("PATCH {secrets}/early"), labelled.clone()).await;
    let later = cluster.must(&format!("PATCH {secrets}/late"), labelled).await;
    assert_eq!(later["data"], made["data"]);

    let bearer = cluster.by(Caller::Bearer);
    let asked = |token: &str| format!("GET {MAPS}\nAuthorization: Bearer {token}");
    let (first, second) = (asked(&text(&early, "token")), asked(&text(&made, "token")));
    bearer.check(&second, "", r#"403 Forbidden: configmaps is forbidden: User "system:serviceaccount:default:sa" cannot list resource "configmaps" in API group "" in the namespace "default""#).await;
    cluster.must(&format!("DELETE {secrets}/late"), Value::Null).await;
    bearer.check(&second, "", "401 Unauthorized: Unauthorized").await;
    assert_eq!(bearer.ask(&first, "").await.0, 403);
    cluster.must(&format!("DELETE {accounts}/sa"), Value::Null).await;
    bearer.check(&first, "", "401 Unauthorized: Unauthorized").await;
    cluster.eventually(&format!("GET {secrets}/early"), "", 404).await;
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_hold() {
    let cluster = Cluster::new().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "admin"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    cluster.must(&format!("POST {rbac}/rolebindings"), binding).await;
    let jane = cluster.by(Caller::Trusted(Identity::user("jane", ["devs"])));
    let role = |resource: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": resource},
        "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]})
    };
    jane.must(&format!("POST {rbac}/roles"), role("pods")).await;
    let (code, refused) = jane.ask(&format!("POST {rbac}/roles"), role("nodes").to_string()).await;
    assert_eq!(code, 403);
    let message = refused["message"].as_str().unwrap();
    assert!(message.starts_with(r#"roles.rbac.authorization.k8s.io "nodes" is forbidden: user "jane" (groups=["devs" "system:authenticated"]) is attempting to grant RBAC permissions not currently held"#), "{message}");
}
