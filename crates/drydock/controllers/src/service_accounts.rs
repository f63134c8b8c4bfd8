//! The account `default` in every namespace.

use std::sync::Arc;

use serde_json::json;

use crate::machinery::cache::{Cache, Kind};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::rest::{Error, Rest, json_bytes};
use crate::objects::resource::Key;
use crate::objects::service::{Namespace, ServiceAccount};

const NAME: &str = "default";

/// Whether the namespace lacks its account. One that is going needs none.
pub fn lacks(namespace: &Namespace, accounts: &Cache<ServiceAccount>) -> bool {
    !namespace.metadata.deleting()
        && &*namespace.status.phase != "Terminating"
        && !accounts.contains(&Key::new(namespace.metadata.name.clone(), NAME))
}

/// The controller. Its keys are namespaces.
pub struct Controller {
    rest: Rest,
    namespaces: Arc<Cache<Namespace>>,
    accounts: Arc<Cache<ServiceAccount>>,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        namespaces: &mut Informer<Namespace>,
        accounts: &mut Informer<ServiceAccount>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        let keys = queue.clone();
        namespaces.on_change(move |change| {
            if let Some(namespace) = change.after {
                keys.add(namespace.metadata.key());
            }
        });
        let keys = queue.clone();
        accounts.on_change(move |change| {
            if let (Some(gone), None) = (change.before, change.after)
                && &*gone.metadata.name == NAME
            {
                keys.add(Key::new("", gone.metadata.namespace.clone()));
            }
        });
        Self { rest, namespaces: namespaces.cache.clone(), accounts: accounts.cache.clone() }
    }

    /// Makes the account of one namespace, where it is missing.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let namespace = self.namespaces.get(key);
        if namespace.is_none_or(|namespace| !lacks(&namespace, &self.accounts)) {
            return Ok(Next::OnChange);
        }
        let body = json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": NAME, "namespace": &*key.name },
        });
        match self.rest.create(ServiceAccount::resource(), &key.name, json_bytes(&body)?).await {
            Err(error) if !error.already_exists() && !error.namespace_terminating() && !error.not_found() => {
                Err(error)
            }
            _ => Ok(Next::OnChange),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_lacks_its_account_unless_it_has_it_or_is_going() {
        let accounts = Cache::<ServiceAccount>::default();
        let mut namespace = Namespace::default();
        namespace.metadata.name = "n".into();
        assert!(lacks(&namespace, &accounts));
        namespace.status.phase = "Terminating".into();
        assert!(!lacks(&namespace, &accounts));
        namespace.status.phase = "Active".into();
        let mut account = ServiceAccount::default();
        (account.metadata.namespace, account.metadata.name) = ("n".into(), "default".into());
        accounts.set(Arc::new(account));
        assert!(!lacks(&namespace, &accounts));
    }
}
