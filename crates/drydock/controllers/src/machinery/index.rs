//! What objects are looked up by besides their keys: who controls them, the labels they carry, the labels they select.
//!
//! What a look-up costs depends on what it finds, not on how many objects there are. A selector is found by the labels
//! it asks for as a whole: among a thousand that all ask for `app=web`, each also for a name of its own, a pod finds
//! its one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::objects::meta::{Meta, Pairs};
use crate::objects::resource::Key;

/// By what the objects of a kind are looked up, what they select aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By their keys alone.
    Key,
    /// By the controller that manages them.
    Controller,
    /// By their labels.
    Labels,
    /// By their controller and by their labels.
    ControllerAndLabels,
}

/// The names of labels that are selected together, and how many objects select just these.
type Selected = BTreeMap<Box<[Box<str>]>, usize>;

/// The keys of objects by what they are looked up by.
#[derive(Default)]
pub struct Index {
    /// By the uid of the controller; those without one by `/namespace`.
    by_controller: HashMap<Box<str>, BTreeSet<Key>>,
    /// By `namespace/name=value`, once for each label.
    by_label: HashMap<Box<str>, BTreeSet<Key>>,
    /// By `namespace/name=value,name=value`, once for all that is selected.
    by_selection: HashMap<Box<str>, BTreeSet<Key>>,
    /// By namespace.
    selected: BTreeMap<Box<str>, Selected>,
}

impl Index {
    /// Puts an object in.
    pub fn insert(&mut self, by: By, meta: &Meta, selection: Option<&Pairs>) {
        let put = |keys: &mut HashMap<Box<str>, BTreeSet<Key>>, mark: Box<str>| {
            keys.entry(mark).or_default().insert(meta.key());
        };
        if let Some(mark) = controller(by, meta) {
            put(&mut self.by_controller, mark);
        }
        labels(by, meta).for_each(|mark| put(&mut self.by_label, mark));
        if let Some(selection) = selection {
            put(&mut self.by_selection, mark(&meta.namespace, selection.iter()));
            let selected = self.selected.entry((&*meta.namespace).into()).or_default();
            *selected.entry(names(selection)).or_default() += 1;
        }
    }

    /// Takes out an object that was put in just so.
    pub fn remove(&mut self, by: By, meta: &Meta, selection: Option<&Pairs>) {
        let key = meta.key();
        let take = |keys: &mut HashMap<Box<str>, BTreeSet<Key>>, mark: Box<str>| {
            if let Some(held) = keys.get_mut(&mark) {
                held.remove(&key);
                if held.is_empty() {
                    keys.remove(&mark);
                }
            }
        };
        if let Some(mark) = controller(by, meta) {
            take(&mut self.by_controller, mark);
        }
        labels(by, meta).for_each(|mark| take(&mut self.by_label, mark));
        let Some(selection) = selection else { return };
        take(&mut self.by_selection, mark(&meta.namespace, selection.iter()));
        if let Some(selected) = self.selected.get_mut(&*meta.namespace) {
            let names = names(selection);
            if let Some(number) = selected.get_mut(&names) {
                *number -= 1;
                if *number == 0 {
                    selected.remove(&names);
                }
            }
            if selected.is_empty() {
                self.selected.remove(&*meta.namespace);
            }
        }
    }

    /// The objects that the controller with this uid manages.
    pub fn controlled_by(&self, uid: &str) -> impl Iterator<Item = &Key> {
        self.by_controller.get(uid).into_iter().flatten()
    }

    /// The objects of a namespace that no controller manages.
    pub fn orphans(&self, namespace: &str) -> impl Iterator<Item = &Key> {
        self.by_controller.get(&*orphans(namespace)).into_iter().flatten()
    }

    /// The objects of a namespace that carry the one of these labels that the fewest carry. `None` when no label is
    /// asked for, which every object fulfils.
    pub fn labelled(&self, namespace: &str, wanted: &Pairs) -> Option<impl Iterator<Item = &Key>> {
        let carriers = wanted.iter().map(|label| self.by_label.get(&mark(namespace, [label].into_iter())));
        let fewest = carriers.min_by_key(|keys| keys.map_or(0, BTreeSet::len))?;
        Some(fewest.into_iter().flatten())
    }

    /// The objects of a namespace that select nothing but what is among these labels.
    pub fn selecting(&self, namespace: &str, labels: &Pairs) -> impl Iterator<Item = &Key> {
        let selected = self.selected.get(namespace).into_iter().flat_map(BTreeMap::keys);
        selected.flat_map(move |names| {
            let carried: Option<Vec<_>> =
                names.iter().map(|name| Some((&**name, labels.get(name)?))).collect();
            let mark = carried.map(|labels| mark(namespace, labels.into_iter()));
            mark.and_then(|mark| self.by_selection.get(&mark)).into_iter().flatten()
        })
    }
}

fn controller(by: By, meta: &Meta) -> Option<Box<str>> {
    matches!(by, By::Controller | By::ControllerAndLabels)
        .then(|| meta.controller().map_or_else(|| orphans(&meta.namespace), |owner| owner.uid.clone()))
}

fn orphans(namespace: &str) -> Box<str> {
    format!("/{namespace}").into()
}

fn labels(by: By, meta: &Meta) -> impl Iterator<Item = Box<str>> {
    let labels = matches!(by, By::Labels | By::ControllerAndLabels).then_some(&meta.labels);
    labels.into_iter().flat_map(Pairs::iter).map(|label| mark(&meta.namespace, [label].into_iter()))
}

/// No namespace has a `/` in it, no label a `=` or `,`.
fn mark<'a>(namespace: &str, labels: impl Iterator<Item = (&'a str, &'a str)>) -> Box<str> {
    let mut mark = format!("{namespace}/");
    for (name, value) in labels {
        mark.extend([name, "=", value, ","]);
    }
    mark.into()
}

fn names(selection: &Pairs) -> Box<[Box<str>]> {
    selection.iter().map(|(name, _)| name.into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Pairs {
        text.split(',').filter_map(|pair| pair.split_once('=')).collect()
    }

    fn meta(name: &str, labels: &str) -> Meta {
        Meta { name: name.into(), namespace: "n".into(), labels: pairs(labels), ..Meta::default() }
    }

    fn names<'a>(keys: impl Iterator<Item = &'a Key>) -> String {
        keys.map(|key| &*key.name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_label_that_the_fewest_carry_is_looked_up() {
        let mut index = Index::default();
        for (name, labels) in [("a", "app=web,of=a"), ("b", "app=web,of=b"), ("c", "app=web,of=b"), ("d", "")]
        {
            index.insert(By::Labels, &meta(name, labels), None);
        }
        let found = |index: &Index, wanted| index.labelled("n", &pairs(wanted)).map(names);
        assert_eq!(found(&index, "app=web,of=b").as_deref(), Some("b c"));
        assert_eq!(found(&index, "app=web").as_deref(), Some("a b c"));
        assert_eq!(found(&index, "app=web,of=x").as_deref(), Some(""));
        assert_eq!(found(&index, ""), None);
        assert!(index.labelled("m", &pairs("app=web")).is_some_and(|mut keys| keys.next().is_none()));
        index.remove(By::Labels, &meta("b", "app=web,of=b"), None);
        assert_eq!(found(&index, "app=web,of=b").as_deref(), Some("c"));
    }

    #[test]
    fn a_selector_is_found_by_all_it_asks_for() {
        let mut index = Index::default();
        let selectors = [("a", "app=web,of=a"), ("b", "app=web,of=b"), ("every", ""), ("web", "app=web")];
        for (name, selection) in selectors {
            index.insert(By::Key, &meta(name, ""), Some(&pairs(selection)));
        }
        let found = |index: &Index, labels| names(index.selecting("n", &pairs(labels)));
        assert_eq!(found(&index, "app=web,of=a,more=1"), "every web a");
        assert_eq!(found(&index, "app=db,of=a"), "every");
        assert_eq!(names(index.selecting("m", &pairs("app=web"))), "");
        for (name, selection) in selectors {
            index.remove(By::Key, &meta(name, ""), Some(&pairs(selection)));
        }
        assert!(index.by_selection.is_empty() && index.selected.is_empty());
    }
}
