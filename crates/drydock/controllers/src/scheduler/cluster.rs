//! The cluster as a decision sees it: the nodes, what is on them, and what of them is taken.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::claims::Storage;
use crate::objects::meta::Pairs;
use crate::objects::node::Node;
use crate::objects::placement::{Amounts, Placement, PodTerm};
use crate::objects::pod::Pod;

/// A pod that says nothing about where it wants to be.
static ANYWHERE: std::sync::LazyLock<Placement> = std::sync::LazyLock::new(Placement::default);

/// What a pod says about where it wants to be.
pub fn placement(pod: &Pod) -> &Placement {
    pod.spec.placement.as_deref().unwrap_or(&ANYWHERE)
}

/// A node and what is on it.
#[derive(Debug)]
pub struct Place {
    /// The node.
    pub node: Arc<Node>,
    /// The pods on it that have not ended.
    pub pods: Vec<Arc<Pod>>,
    /// What they ask for, together.
    pub used: Amounts,
    /// What they are taken to need: cpu and memory.
    pub likely: [i64; 2],
}

impl Place {
    /// The value of this label of the node.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.node.metadata.labels.get(key)
    }
}

/// Everything a decision is made from, beside the pod.
#[derive(Debug, Default)]
pub struct Cluster {
    /// The nodes, by name.
    pub places: Vec<Place>,
    /// The labels of the namespaces.
    pub namespaces: BTreeMap<Arc<str>, Pairs>,
    /// What claims are bound by.
    pub storage: Storage,
}

impl Cluster {
    /// Puts the pods on their nodes. Pods that have ended, or are on no node that there is, do not count.
    pub fn new(
        nodes: Vec<Arc<Node>>,
        pods: impl IntoIterator<Item = (Arc<Pod>, Arc<str>)>,
        namespaces: BTreeMap<Arc<str>, Pairs>,
        storage: Storage,
    ) -> Self {
        let mut places: Vec<Place> = nodes
            .into_iter()
            .map(|node| Place { node, pods: Vec::new(), used: Amounts::default(), likely: [0; 2] })
            .collect();
        places.sort_by(|a, b| a.node.metadata.name.cmp(&b.node.metadata.name));
        let index: HashMap<Arc<str>, usize> =
            places.iter().enumerate().map(|(at, place)| (place.node.metadata.name.clone(), at)).collect();
        for (pod, node) in pods {
            if let Some(place) = index.get(&node).and_then(|at| places.get_mut(*at))
                && !pod.finished()
            {
                place.used.add(&pod.spec.requests);
                place.likely[0] += pod.spec.likely[0];
                place.likely[1] += pod.spec.likely[1];
                place.pods.push(pod);
            }
        }
        Self { places, namespaces, storage }
    }

    /// All pods, each with the place it is at.
    pub fn pods(&self) -> impl Iterator<Item = (&Pod, &Place)> {
        self.places.iter().flat_map(|place| place.pods.iter().map(move |pod| (&**pod, place)))
    }

    /// Whether a term of `owner` is about `pod`.
    pub fn about(&self, term: &PodTerm, owner: &Pod, pod: &Pod) -> bool {
        let namespace = &pod.metadata.namespace;
        let in_namespace = match &term.namespace_selector {
            Some(selector) => {
                self.namespaces.get(namespace).is_some_and(|labels| selector.matches(labels))
                    || term.namespaces.iter().any(|one| **one == **namespace)
            }
            None if term.namespaces.is_empty() => *namespace == owner.metadata.namespace,
            None => term.namespaces.iter().any(|one| **one == **namespace),
        };
        in_namespace
            && term.label_selector.as_ref().is_some_and(|selector| selector.matches(&pod.metadata.labels))
    }
}
