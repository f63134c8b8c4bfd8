//! Sets of field paths.
//!
//! A [`FieldSet`] is a tree whose edges are [`PathElement`]s; a node that is a *member* is a
//! field of the set, one that is not only leads to others. It is what one manager owns, what
//! two versions of an object differ in, or what is to be left out.
//!
//! **Always holds:** the children of a node are sorted and no branch ends in a node that is not
//! a member, so two sets are the same set exactly when they are equal.

mod element;
mod json;

pub(crate) use element::Trail;
pub use element::{Path, PathElement};
pub use json::FieldsV1Error;

use std::{cmp::Ordering, fmt};

use drydock_schema::Schema;
use serde_json::Value;

use crate::node::Node;

/// A set of field paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    pub(crate) branches: Vec<Branch>,
}

/// One field and what is below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Branch {
    pub(crate) element: PathElement<'static>,
    pub(crate) member: bool,
    pub(crate) below: FieldSet,
}

impl FieldSet {
    /// The set with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The set of these paths of plain field names, e.g. `[&["status"], &["spec", "replicas"]]`.
    #[must_use]
    pub fn of_names(paths: &[&[&str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(path.iter().map(|name| PathElement::Field((*name).into())));
        }
        set
    }

    /// Every field that an object names: its leaves, the items of its list maps and sets, and
    /// the keys of its maps.
    #[must_use]
    pub fn of_object(schema: &Schema, object: &Value) -> Self {
        crate::typed::field_set(Node::root(schema), object)
    }

    /// Whether there is no path in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }

    /// How many paths the set has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.branches.iter().map(|b| usize::from(b.member) + b.below.len()).sum()
    }

    /// Adds a path. The empty path is the whole object, which nobody owns, and is not added.
    pub fn insert<'e>(&mut self, path: impl IntoIterator<Item = PathElement<'e>>) {
        let mut path = path.into_iter().peekable();
        let mut set = self;
        while let Some(element) = path.next() {
            let branch = set.branch_mut(element);
            if path.peek().is_none() {
                branch.member = true;
                return;
            }
            set = &mut branch.below;
        }
    }

    /// Whether a path is in the set.
    #[must_use]
    pub fn contains(&self, path: &[PathElement<'_>]) -> bool {
        let Some((last, above)) = path.split_last() else { return false };
        let mut set = self;
        for element in above {
            match set.get(element) {
                Some(branch) => set = &branch.below,
                None => return false,
            }
        }
        set.get(last).is_some_and(|branch| branch.member)
    }

    /// Whether every path of the set is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &FieldSet) -> bool {
        self.branches.iter().all(|branch| match other.get(&branch.element) {
            Some(theirs) => (!branch.member || theirs.member) && branch.below.is_subset(&theirs.below),
            None => false,
        })
    }

    /// Adds all paths of `other`.
    pub fn union(&mut self, other: FieldSet) {
        if self.branches.is_empty() {
            self.branches = other.branches;
            return;
        }
        if other.branches.is_empty() {
            return;
        }
        let mine = std::mem::take(&mut self.branches);
        let mut out = Vec::with_capacity(mine.len() + other.branches.len());
        let mut left = mine.into_iter().peekable();
        let mut right = other.branches.into_iter().peekable();
        while let (Some(l), Some(r)) = (left.peek(), right.peek()) {
            match l.element.cmp(&r.element) {
                Ordering::Less => out.extend(left.next()),
                Ordering::Greater => out.extend(right.next()),
                Ordering::Equal => {
                    if let (Some(mut l), Some(r)) = (left.next(), right.next()) {
                        l.member |= r.member;
                        l.below.union(r.below);
                        out.push(l);
                    }
                }
            }
        }
        out.extend(left);
        out.extend(right);
        self.branches = out;
    }

    /// Takes away the paths of `other`. Paths below them stay.
    pub fn subtract(&mut self, other: &FieldSet) {
        self.remove(other, |mine, theirs| {
            mine.member &= !theirs.member;
            mine.below.subtract(&theirs.below);
        });
    }

    /// Takes away the paths of `other` and everything below them.
    pub fn subtract_trees(&mut self, other: &FieldSet) {
        self.remove(other, |mine, theirs| {
            if theirs.member {
                mine.member = false;
                mine.below = FieldSet::new();
            } else {
                mine.below.subtract_trees(&theirs.below);
            }
        });
    }

    fn remove(&mut self, other: &FieldSet, mut from: impl FnMut(&mut Branch, &Branch)) {
        if other.is_empty() {
            return;
        }
        self.branches.retain_mut(|branch| {
            if let Some(theirs) = other.get(&branch.element) {
                from(branch, theirs);
            }
            branch.member || !branch.below.is_empty()
        });
    }

    /// The paths that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let branches = self
            .branches
            .iter()
            .filter_map(|mine| {
                let theirs = other.get(&mine.element)?;
                let member = mine.member && theirs.member;
                let below = mine.below.intersection(&theirs.below);
                (member || !below.is_empty()).then(|| Branch { element: mine.element.clone(), member, below })
            })
            .collect();
        FieldSet { branches }
    }

    /// The paths of the set, parents before children.
    #[must_use]
    pub fn paths(&self) -> Vec<Path> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, prefix: &mut Vec<PathElement<'static>>, out: &mut Vec<Path>) {
        for branch in self.branches.iter().filter(|b| b.member) {
            let mut path = prefix.clone();
            path.push(branch.element.clone());
            out.push(Path(path));
        }
        for branch in &self.branches {
            prefix.push(branch.element.clone());
            branch.below.collect(prefix, out);
            prefix.pop();
        }
    }

    /// The set together with the declared fields that lead to its paths, so that a field whose
    /// last child goes can go with it.
    pub(crate) fn with_declared_parents(&self, node: Node<'_>) -> FieldSet {
        let branches = self
            .branches
            .iter()
            .map(|branch| {
                let (declared, child) = match &branch.element {
                    PathElement::Field(name) => match node.field(name) {
                        Some(child) => (true, child),
                        None => (false, node.child(name)),
                    },
                    PathElement::Key(_) => (false, node.item()),
                    PathElement::Value(_) | PathElement::Index(_) => (false, Node::anything()),
                };
                Branch {
                    element: branch.element.clone(),
                    member: branch.member || declared,
                    below: branch.below.with_declared_parents(child),
                }
            })
            .collect();
        FieldSet { branches }
    }

    pub(crate) fn get(&self, element: &PathElement<'_>) -> Option<&Branch> {
        let at = self.find(element).ok()?;
        self.branches.get(at)
    }

    /// The branch of an element, made if it is not there.
    pub(crate) fn branch_mut(&mut self, element: PathElement<'_>) -> &mut Branch {
        let at = match self.find(&element) {
            Ok(at) => at,
            Err(at) => {
                let element = element.into_owned();
                self.branches.insert(at, Branch { element, member: false, below: FieldSet::new() });
                at
            }
        };
        &mut self.branches[at]
    }

    fn find(&self, element: &PathElement<'_>) -> Result<usize, usize> {
        // Sets are mostly built and compared in order: look at the end first.
        match self.branches.last() {
            Some(last) if last.element.compare(element) == Ordering::Less => Err(self.branches.len()),
            _ => self.branches.binary_search_by(|b| b.element.compare(element)),
        }
    }
}

impl fmt::Display for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, path) in self.paths().iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{path}")?;
        }
        Ok(())
    }
}
