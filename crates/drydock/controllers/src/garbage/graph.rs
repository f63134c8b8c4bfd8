//! Who owns whom, as far as the process has seen, and which objects a change makes worth a look. Pure.
//!
//! The graph never decides that something is deleted: it only names objects to look at. What happens to them
//! is decided on what the server says of them and of their owners at that moment.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::objects::meta::{Meta, OwnerReference};
use crate::objects::resource::{Key, Resource};

/// The finalizer of an object that goes after its dependents.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents stay.
pub const ORPHAN: &str = "orphan";

/// The identity of an object: never used twice.
pub type Uid = Arc<str>;

/// What is known of one object.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its kind.
    pub resource: Arc<Resource>,
    /// Its place.
    pub key: Key,
    /// Its owners.
    pub owners: Vec<OwnerReference>,
    /// Where its deletion stands.
    pub stage: Stage,
}

/// Where the deletion of an object stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is not being deleted.
    Living,
    /// It is being deleted, and waits for somebody else.
    Going,
    /// It waits for its dependents to go.
    Foreground,
    /// It waits for its dependents to be let go.
    Orphaning,
}

impl Stage {
    fn of(meta: &Meta) -> Self {
        match (meta.deleting(), meta.has_finalizer(ORPHAN), meta.has_finalizer(FOREGROUND)) {
            (false, ..) => Self::Living,
            (true, true, _) => Self::Orphaning,
            (true, _, true) => Self::Foreground,
            (true, ..) => Self::Going,
        }
    }
}

/// The objects a change makes worth a look.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Now.
    pub now: BTreeSet<Uid>,
    /// In a moment: an owner is not known yet, and may only be late.
    pub later: BTreeSet<Uid>,
}

/// All objects seen, and who depends on whom.
#[derive(Default)]
pub struct Graph {
    nodes: HashMap<Uid, Node>,
    dependents: HashMap<Uid, BTreeSet<Uid>>,
    /// Owners that are gone for good, and since when they are known to be, as a running number.
    gone: HashMap<Uid, u64>,
    serial: u64,
}

/// How many owners are remembered as gone: enough for the largest cascade to be answered without asking.
const REMEMBERED: usize = 10_000;

impl Graph {
    /// The object with this uid.
    pub fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The uids of those that name this one as an owner.
    pub fn dependents(&self, uid: &str) -> impl Iterator<Item = (&Uid, &Node)> {
        let all = self.dependents.get(uid).into_iter().flatten();
        all.filter_map(|uid| Some((uid, self.nodes.get(uid)?)))
    }

    /// The dependents an object in foreground deletion waits for.
    pub fn blocking(&self, uid: &str) -> Vec<(Uid, Stage)> {
        let blocks = |node: &Node| {
            node.owners.iter().any(|owner| *owner.uid == *uid && owner.block_owner_deletion == Some(true))
        };
        self.dependents(uid)
            .filter(|(_, node)| blocks(node))
            .map(|(uid, node)| (uid.clone(), node.stage))
            .collect()
    }

    /// Whether the owner is known to be gone for good.
    pub fn is_gone(&self, uid: &str) -> bool {
        self.gone.contains_key(uid)
    }

    /// Notes that no object with this uid exists, nor ever will.
    pub fn note_gone(&mut self, uid: &str) {
        if self.gone.len() >= REMEMBERED {
            let half = self.serial - u64::try_from(REMEMBERED / 2).unwrap_or_default();
            self.gone.retain(|_, noted| *noted > half);
        }
        self.serial += 1;
        self.gone.insert(uid.into(), self.serial);
    }

    /// Whether all owners are known to live where the references say, and none waits for its dependents:
    /// then there is nothing to ask the server.
    pub fn settled(&self, node: &Node) -> bool {
        node.owners.iter().all(|owner| {
            self.nodes.get(&*owner.uid).is_some_and(|known| {
                known.stage != Stage::Foreground
                    && *known.resource.kind == *owner.kind
                    && *known.resource.group == *owner.group()
                    && *known.key.name == *owner.name
                    && (known.key.namespace.is_empty() || known.key.namespace == node.key.namespace)
            })
        })
    }

    /// Takes in an object as it is now.
    pub fn observe(&mut self, resource: &Arc<Resource>, meta: &Meta) -> Work {
        let uid: Uid = (&*meta.uid).into();
        let node = Node {
            resource: resource.clone(),
            key: meta.key(),
            owners: meta.owner_references.clone(),
            stage: Stage::of(meta),
        };
        let mut work = Work::default();
        let before = self.nodes.insert(uid.clone(), node.clone());
        let owners_before = before.as_ref().map_or(&[][..], |before| &before.owners);
        for owner in owners_before {
            if node.owners.iter().all(|kept| kept.uid != owner.uid) {
                self.unlink(&owner.uid, &uid);
            }
        }
        for owner in &node.owners {
            self.dependents.entry((&*owner.uid).into()).or_default().insert(uid.clone());
        }
        // An owner that waits for its dependents may wait no longer for this one.
        if owners_before != node.owners {
            let waiting = owners_before.iter().filter(|owner| self.waits(&owner.uid));
            work.now.extend(waiting.map(|owner| Uid::from(&*owner.uid)));
            let new = node.owners.iter().any(|owner| owners_before.iter().all(|old| old.uid != owner.uid));
            if new && !self.settled(&node) {
                let known =
                    node.owners.iter().any(|owner| self.waits(&owner.uid) || self.is_gone(&owner.uid));
                if known { &mut work.now } else { &mut work.later }.insert(uid.clone());
            }
        }
        if before.as_ref().map(|before| before.stage) != Some(node.stage) {
            match node.stage {
                Stage::Living | Stage::Going => {}
                Stage::Orphaning => {
                    work.now.insert(uid);
                }
                Stage::Foreground => {
                    work.now.extend(self.dependents(&uid).map(|(uid, _)| uid.clone()));
                    work.now.insert(uid);
                }
            }
        }
        work
    }

    /// Takes in that an object is gone.
    pub fn forget(&mut self, uid: &str) -> Work {
        let mut work = Work::default();
        let Some(node) = self.nodes.remove(uid) else { return work };
        for owner in &node.owners {
            self.unlink(&owner.uid, uid);
            if self.waits(&owner.uid) {
                work.now.insert((&*owner.uid).into());
            }
        }
        let dependents: Vec<Uid> = self.dependents(uid).map(|(uid, _)| uid.clone()).collect();
        if !dependents.is_empty() {
            self.note_gone(uid);
            work.now.extend(dependents);
        }
        work
    }

    fn waits(&self, uid: &str) -> bool {
        self.nodes.get(uid).is_some_and(|node| node.stage == Stage::Foreground)
    }

    fn unlink(&mut self, owner: &str, uid: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(uid);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THINGS: Resource = Resource::fixed("x.io", "v1", "Thing", "things", true);

    /// `name [owner=uid[!]]… [living|going|foreground|orphaning]`; `!` blocks the owner.
    fn meta(line: &str) -> Meta {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap();
        let mut meta = Meta { name: name.into(), uid: name.into(), namespace: "n".into(), ..Meta::default() };
        for word in words {
            if let Some(owner) = word.strip_prefix("owner=") {
                let uid = owner.trim_end_matches('!');
                meta.owner_references.push(OwnerReference {
                    api_version: "x.io/v1".into(),
                    kind: "Thing".into(),
                    name: uid.into(),
                    uid: uid.into(),
                    controller: None,
                    block_owner_deletion: Some(owner.ends_with('!')),
                });
                continue;
            }
            meta.deletion_timestamp = Some("2026-01-01T00:00:00Z".parse().unwrap());
            match word {
                "foreground" => meta.finalizers.push(FOREGROUND.into()),
                "orphaning" => meta.finalizers.push(ORPHAN.into()),
                "going" => {}
                other => panic!("{other}"),
            }
        }
        meta
    }

    struct Play(Graph, Arc<Resource>);

    impl Play {
        fn new() -> Self {
            Self(Graph::default(), Arc::new(THINGS))
        }

        #[track_caller]
        fn sees(&mut self, line: &str, expected: &str) {
            let work = self.0.observe(&self.1, &meta(line));
            assert_eq!(tell(&work), expected, "on {line}");
        }

        #[track_caller]
        fn loses(&mut self, uid: &str, expected: &str) {
            let work = self.0.forget(uid);
            assert_eq!(tell(&work), expected, "without {uid}");
        }
    }

    fn tell(work: &Work) -> String {
        let list =
            |uids: &BTreeSet<Uid>| uids.iter().map(|uid| uid.to_string()).collect::<Vec<_>>().join(" ");
        let later = list(&work.later);
        if later.is_empty() {
            list(&work.now)
        } else {
            format!("{} later {later}", list(&work.now)).trim().to_owned()
        }
    }

    #[test]
    fn dependents_are_looked_at_when_their_owner_is_gone() {
        let mut play = Play::new();
        play.sees("a", "");
        play.sees("b owner=a", "");
        play.sees("c owner=a", "");
        play.sees("d owner=b", "");
        play.loses("a", "b c");
        play.loses("b", "d");
        play.loses("d", "");
        assert!(play.0.is_gone("a") && !play.0.is_gone("d"));
    }

    #[test]
    fn an_object_whose_owner_is_unknown_is_looked_at_later_and_settled_when_it_comes() {
        let mut play = Play::new();
        play.sees("b owner=a", "later b");
        play.sees("a", "");
        assert!(play.0.settled(play.0.node("b").unwrap()));
    }

    #[test]
    fn an_owner_of_another_name_or_namespace_settles_nothing() {
        let mut play = Play::new();
        play.sees("a", "");
        let mut elsewhere = meta("b owner=a");
        elsewhere.namespace = "other".into();
        let resource = play.1.clone();
        assert_eq!(tell(&play.0.observe(&resource, &elsewhere)), "later b");
        let mut renamed = meta("c owner=a");
        renamed.owner_references[0].name = "z".into();
        assert_eq!(tell(&play.0.observe(&resource, &renamed)), "later c");
    }

    #[test]
    fn foreground_deletion_looks_at_dependents_and_then_at_the_owner() {
        let mut play = Play::new();
        play.sees("a", "");
        play.sees("b owner=a!", "");
        play.sees("c owner=a", "");
        play.sees("a foreground", "a b c");
        play.sees("a foreground", "");
        assert_eq!(play.0.blocking("a").len(), 1);
        play.sees("d owner=a!", "d");
        play.loses("b", "a");
        play.sees("d owner=a", "a");
        assert_eq!(play.0.blocking("a").len(), 0);
    }

    #[test]
    fn an_owner_is_looked_at_when_a_dependent_lets_go_of_it() {
        let mut play = Play::new();
        play.sees("a foreground", "a");
        play.sees("b owner=a!", "b");
        play.sees("b", "a");
    }

    #[test]
    fn orphaning_looks_at_the_owner_alone() {
        let mut play = Play::new();
        play.sees("a", "");
        play.sees("b owner=a", "");
        play.sees("a orphaning", "a");
    }

    #[test]
    fn only_so_many_owners_are_remembered_as_gone() {
        let mut graph = Graph::default();
        for at in 0..REMEMBERED + 10 {
            graph.note_gone(&at.to_string());
        }
        assert!(graph.gone.len() <= REMEMBERED);
        assert!(graph.is_gone(&(REMEMBERED + 9).to_string()));
    }
}
