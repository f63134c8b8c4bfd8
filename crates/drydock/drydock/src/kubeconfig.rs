//! How a client finds the cluster and proves who it is, as kubectl reads it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;

/// A token with 256 bits of randomness.
///
/// # Errors
/// The system has no randomness to give.
pub(crate) fn random_token() -> Result<String, getrandom::Error> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Whether it is one of those.
pub(crate) fn is_token(text: &str) -> bool {
    URL_SAFE_NO_PAD.decode(text).is_ok_and(|bytes| bytes.len() == 32)
}

/// A kubeconfig with one cluster, one user and one context that is the current one.
///
/// It is JSON, which is YAML, laid out as people expect a kubeconfig to be.
pub(crate) fn render(server: &str, ca_pem: &str, user: &str, token: &str) -> String {
    let (ca, quote) = (STANDARD.encode(ca_pem), |text: &str| json!(text).to_string());
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: drydock\n\
         \x20 cluster:\n\
         \x20   server: {server}\n\
         \x20   certificate-authority-data: {ca}\n\
         users:\n\
         - name: {user}\n\
         \x20 user:\n\
         \x20   token: {token}\n\
         contexts:\n\
         - name: drydock\n\
         \x20 context:\n\
         \x20   cluster: drydock\n\
         \x20   user: {user}\n\
         current-context: drydock\n",
        server = quote(server),
        ca = quote(&ca),
        user = quote(user),
        token = quote(token),
    )
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    #[test]
    fn clients_read_it_back() {
        let text = render("https://127.0.0.1:6443", "PEM", "a \"b\": c", "secret");
        let config = Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(config.current_context.as_deref(), Some("drydock"));
        let cluster = config.clusters[0].cluster.clone().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:6443"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("UEVN"));
        let context = config.contexts[0].context.clone().unwrap();
        assert_eq!((context.cluster.as_str(), context.user.as_deref()), ("drydock", Some("a \"b\": c")));
        assert_eq!(config.auth_infos[0].name, "a \"b\": c");
    }

    #[test]
    fn tokens_are_long_and_never_the_same() {
        let (one, other) = (random_token().unwrap(), random_token().unwrap());
        assert_eq!(one.len(), 43);
        assert_ne!(one, other);
    }
}
