//! Where in an object something is, written only when it is needed.

use std::fmt;

/// A place in an object: a chain that ends at the root, so that walking an object without errors
/// allocates nothing.
#[derive(Debug, Clone, Copy)]
pub enum Path<'a> {
    /// A field at the top.
    Root(&'a str),
    /// A field of an object.
    Field(&'a Path<'a>, &'a str),
    /// An item of a list.
    Index(&'a Path<'a>, usize),
    /// An entry of a map.
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    /// The field `name` at the top of an object.
    #[must_use]
    pub fn new(name: &'a str) -> Self {
        Self::Root(name)
    }

    /// The field `name` of this.
    #[must_use]
    pub fn field(&'a self, name: &'a str) -> Self {
        Self::Field(self, name)
    }

    /// The item at `index` of this.
    #[must_use]
    pub fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }

    /// The entry `key` of this.
    #[must_use]
    pub fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
            Self::Key(parent, key) => write!(f, "{parent}[{key}]"),
        }
    }
}

impl From<&Path<'_>> for String {
    fn from(path: &Path<'_>) -> Self {
        path.to_string()
    }
}

impl From<Path<'_>> for String {
    fn from(path: Path<'_>) -> Self {
        path.to_string()
    }
}
