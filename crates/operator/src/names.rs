//! Names that somebody else holds.
//!
//! What an operator did not make it does not take over. It says whose it is and what to do about it, and looks again
//! by itself: that a stranger lets go of a name is no event of the resource's.

use std::time::Duration;

use kube_core::Resource;
use serde::de::DeserializeOwned;

use crate::{Scope, Standing, Trouble, View};

/// How soon to look again at a name that a stranger holds.
const STRANGER_CHECK: Duration = Duration::from_secs(30);
/// How soon to look again at what the garbage collector is about to take.
const LEFTOVER_CHECK: Duration = Duration::from_secs(2);

/// A name that somebody else holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// What is said about it.
    pub trouble: Trouble,
    /// How soon to look again.
    pub look_again: Duration,
}

impl Taken {
    /// A name that a stranger holds.
    pub fn by_a_stranger(message: String) -> Self {
        Taken { trouble: Trouble::new("NameTaken", message), look_again: STRANGER_CHECK }
    }
}

impl<R> View<R>
where
    R: Resource<DynamicType = ()>,
{
    /// Who else holds a name among an owned kind, if anybody does.
    pub fn taken<K>(&self, name: &str) -> Option<Taken>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
        K::Scope: Scope,
    {
        let (kind, own) = (K::kind(&()), R::kind(&()));
        match self.standing::<K>(name).ok()? {
            Standing::Absent | Standing::Ours(_) => None,
            Standing::Leftover => {
                let message =
                    format!("the {kind} {name} of a deleted {own} is still there and will be collected");
                Some(Taken { look_again: LEFTOVER_CHECK, ..Taken::by_a_stranger(message) })
            }
            Standing::Stranger { controller } => {
                let whose = match controller {
                    Some(owner) => format!("belongs to {owner}"),
                    None => format!("was not made by this {own}"),
                };
                Some(Taken::by_a_stranger(format!(
                    "the {kind} {name} {whose} and is left alone: delete it, or give this {own} another name"
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
    use serde_json::{Value, json};

    use super::*;
    use crate::{KindRef, Object};

    fn check(owners: Value, expected: &str) {
        let mut deployment = Deployment::default();
        deployment.metadata.name = Some("d".to_owned());
        deployment.metadata.uid = Some("now".to_owned());
        let mut view = View::new(deployment, Timestamp::UNIX_EPOCH);
        let kind = KindRef::of::<Service>();
        let service = json!({"metadata": {"name": "s", "ownerReferences": owners}});
        view.children.insert(&kind, Object::of_kind(&kind, service).unwrap());
        let taken = view.taken::<Service>("s");
        let said = taken.map(|taken| format!("{} {:?}", taken.trouble.message, taken.look_again));
        assert_eq!(said.unwrap_or_default(), expected);
        assert_eq!(view.taken::<Service>("free"), None);
    }

    #[test]
    fn it_is_said_whose_a_name_is_and_what_to_do() {
        let owner = |kind: &str, name: &str, uid: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true}]);
        check(owner("Deployment", "d", "now"), "");
        check(
            owner("Deployment", "d", "before"),
            "the Service s of a deleted Deployment is still there and will be collected 2s",
        );
        check(
            owner("Shop", "x", "other"),
            "the Service s belongs to Shop x and is left alone: delete it, or give this Deployment another name 30s",
        );
        check(
            json!([]),
            "the Service s was not made by this Deployment and is left alone: delete it, or give this Deployment \
             another name 30s",
        );
    }
}
