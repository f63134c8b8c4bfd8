//! Which objects a list or a watch is about.

use drydock_kinds::{
    Kind,
    selector::{FieldSelector, LabelSelector},
};
use drydock_store::Stored;

use crate::{failure::Failure, request::Options};

/// Both selectors of a request, read once and asked of each object's facets.
#[derive(Debug, Default)]
pub struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// Reads the selectors of a request for objects of `kind`.
    ///
    /// # Errors
    /// When one can't be understood, or names a field that can't be selected.
    pub fn parse(options: &Options, kind: &Kind) -> Result<Self, Failure> {
        let refuse = |error: drydock_kinds::selector::SelectorError| Failure::BadRequest(error.to_string());
        let labels = match &options.label_selector {
            Some(text) => LabelSelector::parse(text).map_err(refuse)?,
            None => LabelSelector::default(),
        };
        let fields = match &options.field_selector {
            Some(text) => FieldSelector::parse(text, kind).map_err(refuse)?,
            None => FieldSelector::default(),
        };
        Ok(Self { labels, fields })
    }

    /// Everything is selected.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The one namespace that is selected, if the selector says so.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.fields.exact("metadata.namespace")
    }

    /// Whether an object is selected.
    #[must_use]
    pub fn matches(&self, stored: &Stored) -> bool {
        (self.labels.is_empty() || self.labels.matches(|key| stored.facets.label(key)))
            && (self.fields.is_empty() || self.fields.matches(|field| stored.facets.field(field)))
    }
}
