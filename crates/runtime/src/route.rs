//! Whom a change concerns.
//!
//! A child that changed concerns the resource that controls it, or whose name is in its label. The owner is found by
//! kind and name and not by uid: when a deleted namesake's leftover finally goes, the new resource has to know.

use std::sync::Arc;

use ballast_operator::{KindRef, Relation};

use crate::{
    cache::{Change, Entry, Listener},
    key::Key,
    queue::{Cause, Queue},
};

/// What puts the resources that a change of `kind` concerns into an operator's queue, where there are any.
pub(crate) fn listener(
    kind: &KindRef,
    resource: &KindRef,
    relations: &[Relation],
    labels: &dyn Fn(&str) -> Option<usize>,
    queue: &Arc<Queue<Key>>,
) -> Option<Listener> {
    let queue = Arc::clone(queue);
    if kind == resource {
        return Some(Box::new(move |_, change| {
            queue.add(change.key.clone(), Cause::Resource(change.version.clone()));
        }));
    }
    let ways: Vec<Way> = relations
        .iter()
        .filter(|relation| relation.kind == *kind)
        .filter_map(|relation| match relation.label() {
            None => Some(Way::Controller),
            Some(label) => labels(label).map(Way::Label),
        })
        .collect();
    if ways.is_empty() {
        return None;
    }
    let resource = resource.clone();
    Some(Box::new(move |_, change| {
        for key in concerned(change, &resource, &ways) {
            queue.add(key, Cause::Child(change.version.clone()));
        }
    }))
}

/// How a child leads to its resource.
#[derive(Clone, Copy)]
enum Way {
    Controller,
    /// The label with this place among those that the cache keeps.
    Label(usize),
}

fn concerned(change: &Change, resource: &KindRef, ways: &[Way]) -> Vec<Key> {
    let states = [change.old.as_deref(), change.new.as_deref()];
    let mut keys: Vec<Key> = states
        .into_iter()
        .flatten()
        .flat_map(|entry| ways.iter().filter_map(|way| name(entry, resource, *way)))
        .map(|name| change.key.beside(name, resource.namespaced))
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

fn name<'e>(entry: &'e Entry, resource: &KindRef, way: Way) -> Option<&'e str> {
    match way {
        Way::Label(place) => entry.labels.get(place)?.as_deref(),
        Way::Controller => {
            let owner = entry.controller.as_ref()?;
            (*owner.kind == *resource.kind && owner.group() == resource.group).then_some(&*owner.name)
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
    use serde_json::json;

    use super::*;
    use crate::{
        cache::Shown,
        watch::{Namespaces, Wanted},
    };

    /// The resources that are woken by a child with this metadata.
    async fn check(child: &KindRef, metadata: serde_json::Value, expected: &[&str]) {
        check_object(child, json!({"metadata": metadata}), expected).await;
    }

    async fn check_object(child: &KindRef, value: serde_json::Value, expected: &[&str]) {
        let resource = KindRef {
            group: "test".into(),
            version: "v1".into(),
            kind: "Notebook".into(),
            plural: "notebooks".into(),
            namespaced: true,
        };
        let relations = [
            Relation::owned::<Deployment>(),
            Relation::observed::<Pod>("notebook"),
            Relation::observed::<Pod>(".spec.reads"),
        ];
        let queue = Arc::new(Queue::new());
        let mut wanted = Wanted::default();
        wanted.add(&resource, &relations);
        let caches = wanted.caches(&Namespaces::All, |kind, labels| {
            let place = |label: &str| labels.iter().position(|known| known == label);
            listener(kind, &resource, &relations, &place, &queue).into_iter().collect()
        });
        let shown = Shown { key: Key::new(Some("ns"), "child"), value: value.clone() };
        caches.of(child).unwrap().show(0, shown);
        queue.add(Key::new(None, "end"), Cause::Time);
        let mut woken = Vec::new();
        while let Some(taken) = queue.take().await.filter(|taken| &*taken.key.name != "end") {
            woken.push(taken.key.to_string());
        }
        assert_eq!(woken, expected, "{value}");
    }

    #[tokio::test]
    async fn a_child_wakes_the_resource_that_controls_it_or_is_named_in_its_label() {
        let owner = |api_version: &str, kind: &str, controller: bool| {
            json!({"ownerReferences": [
                {"apiVersion": api_version, "kind": kind, "name": "n", "uid": "gone", "controller": controller}
            ]})
        };
        let deployment = KindRef::of::<Deployment>();
        check(&deployment, owner("test/v1", "Notebook", true), &["ns/n"]).await;
        check(&deployment, owner("test/v2", "Notebook", true), &["ns/n"]).await;
        check(&deployment, owner("other/v1", "Notebook", true), &[]).await;
        check(&deployment, owner("test/v1", "Notebook", false), &[]).await;
        check(&deployment, json!({"labels": {"notebook": "n"}}), &[]).await;
        let pod = KindRef::of::<Pod>();
        check(&pod, json!({"labels": {"notebook": "n"}}), &["ns/n"]).await;
        check(&pod, owner("test/v1", "Notebook", true), &[]).await;
        check_object(&pod, json!({"metadata": {}, "spec": {"reads": "n"}}), &["ns/n"]).await;
        check_object(
            &pod,
            json!({"metadata": {"labels": {"notebook": "m"}}, "spec": {"reads": "n"}}),
            &["ns/m", "ns/n"],
        )
        .await;
    }
}
