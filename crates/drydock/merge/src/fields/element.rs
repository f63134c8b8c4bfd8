//! One step of a field path.

use std::{borrow::Cow, cmp::Ordering, fmt};

use serde_json::Value;

use crate::{value, wording};

/// How a child is found in its parent.
#[derive(Debug, Clone)]
pub enum PathElement<'a> {
    /// The field of this name.
    Field(Cow<'a, str>),
    /// The item of a list map with these keys, sorted by name.
    Key(Vec<(Cow<'a, str>, Cow<'a, Value>)>),
    /// The item of a set that is this value.
    Value(Cow<'a, Value>),
    /// The item at this place of a list.
    Index(i64),
}

impl PathElement<'_> {
    /// The same element, borrowing nothing.
    #[must_use]
    pub fn into_owned(self) -> PathElement<'static> {
        match self {
            Self::Field(name) => PathElement::Field(Cow::Owned(name.into_owned())),
            Self::Key(keys) => PathElement::Key(
                keys.into_iter()
                    .map(|(name, value)| (Cow::Owned(name.into_owned()), Cow::Owned(value.into_owned())))
                    .collect(),
            ),
            Self::Value(value) => PathElement::Value(Cow::Owned(value.into_owned())),
            Self::Index(index) => PathElement::Index(index),
        }
    }

    /// The order of elements: fields, keys, values, places.
    pub(crate) fn compare(&self, other: &PathElement<'_>) -> Ordering {
        match (self, other) {
            (Self::Field(l), PathElement::Field(r)) => l.as_ref().cmp(r.as_ref()),
            (Self::Key(l), PathElement::Key(r)) => l
                .iter()
                .zip(r)
                .map(|((ln, lv), (rn, rv))| ln.as_ref().cmp(rn.as_ref()).then_with(|| value::order(lv, rv)))
                .find(|o| o.is_ne())
                .unwrap_or_else(|| l.len().cmp(&r.len())),
            (Self::Value(l), PathElement::Value(r)) => value::order(l, r),
            (Self::Index(l), PathElement::Index(r)) => l.cmp(r),
            (left, right) => left.rank().cmp(&right.rank()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl PartialEq for PathElement<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.compare(other).is_eq()
    }
}

impl Eq for PathElement<'_> {}

impl PartialOrd for PathElement<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PathElement<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.compare(other)
    }
}

/// As conflicts show it: `.spec`, `[name="x"]`, `[="v"]`, `[0]`.
impl fmt::Display for PathElement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                f.write_str("[")?;
                for (i, (name, value)) in keys.iter().enumerate() {
                    if i > 0 {
                        f.write_str(",")?;
                    }
                    write!(f, "{name}={}", wording::in_path(value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", wording::in_path(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// The way from the root of an object to a field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<PathElement<'static>>);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| write!(f, "{element}"))
    }
}

/// A path on the stack of a walk, from the last step up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trail<'t> {
    up: Option<(&'t Trail<'t>, &'t PathElement<'t>)>,
}

impl<'t> Trail<'t> {
    pub(crate) const ROOT: Trail<'static> = Trail { up: None };

    pub(crate) fn to(&'t self, element: &'t PathElement<'t>) -> Trail<'t> {
        Trail { up: Some((self, element)) }
    }

    /// The steps from the root.
    pub(crate) fn steps(&self) -> Vec<PathElement<'t>> {
        let mut steps = Vec::new();
        let mut at = *self;
        while let Some((up, element)) = at.up {
            steps.push(element.clone());
            at = *up;
        }
        steps.reverse();
        steps
    }
}

impl fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.up {
            Some((up, element)) => write!(f, "{up}{element}"),
            None => Ok(()),
        }
    }
}
