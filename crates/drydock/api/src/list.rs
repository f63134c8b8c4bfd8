//! Lists: selection, pages, revisions.
//!
//! **Always holds:** all pages of a list show the revision of its first page. A page whose revision
//! is no longer known is refused with a token that goes on inconsistently, as in Kubernetes.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use drydock_kinds::Kind;
use drydock_schema::FieldError;
use drydock_store::{Listing, Page, Range, Revision, Store, Stored};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    body::{invalid_option, unsupported_option},
    failure::Failure,
    present::View,
    request::Options,
    response::Answer,
    select::Selection,
};

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Continue {
    v: String,
    /// The revision of the first page; -1 for the present.
    rv: i64,
    /// The key after which the list goes on, ended by a zero byte as the real server ends it.
    start: String,
}

impl Continue {
    fn parse(token: &str) -> Result<Self, Failure> {
        let refuse = |why: String| Failure::BadRequest(format!("invalid continue token: {why}"));
        let bytes = URL_SAFE_NO_PAD
            .decode(token.trim_end_matches('='))
            .map_err(|_| refuse("continue key is not valid: illegal base64 data at input byte 0".into()))?;
        let parsed: Self = serde_json::from_slice(&bytes)
            .map_err(|error| refuse(format!("continue key is not valid: {error}")))?;
        if parsed.v != "meta.k8s.io/v1" {
            return Err(refuse(
                "continue key is not valid: server does not recognize this encoded version \"\"".into(),
            ));
        }
        if parsed.start.is_empty() || parsed.rv == 0 {
            return Err(refuse(
                "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"
                    .into(),
            ));
        }
        Ok(parsed)
    }

    fn after(revision: i64, last: &Stored) -> String {
        let start = if last.key.namespace.is_empty() {
            format!("{}\0", last.key.name)
        } else {
            format!("{}/{}\0", last.key.namespace, last.key.name)
        };
        Self { v: "meta.k8s.io/v1".into(), rv: revision, start }.encode()
    }

    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    fn position(&self, namespaced: bool) -> (Arc<str>, Arc<str>) {
        let start = self.start.trim_end_matches('\0');
        match start.split_once('/') {
            Some((namespace, name)) if namespaced => (namespace.into(), name.into()),
            _ => ("".into(), start.into()),
        }
    }
}

/// Checks the options that lists and watches share.
///
/// # Errors
/// For combinations that Kubernetes forbids.
pub fn check_options(options: &Options) -> Result<(), Failure> {
    let forbid =
        |detail: &str| invalid_option("ListOptions", FieldError::forbidden("resourceVersionMatch", detail));
    if let Some(matching) = options.resource_version_match.as_deref() {
        if options.watch && options.send_initial_events.is_none() {
            return Err(forbid(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if options.resource_version.is_none() && !options.watch {
            return Err(forbid("resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        if options.continue_token.is_some() {
            return Err(forbid("resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            return Err(unsupported_option(
                "ListOptions",
                "resourceVersionMatch",
                matching.into(),
                r#"supported values: "Exact", "NotOlderThan", """#,
            ));
        }
        if matching == "Exact" && options.resource_version.as_deref() == Some("0") {
            return Err(forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
        }
    }
    if options.send_initial_events.is_some() {
        if !options.watch {
            return Err(invalid_option(
                "ListOptions",
                FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"),
            ));
        }
        if options.resource_version_match.as_deref() != Some("NotOlderThan") {
            return Err(forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
        }
    }
    Ok(())
}

/// Reads a revision out of an option; 0 when there is none.
///
/// # Errors
/// When it is no number.
pub fn revision(options: &Options) -> Result<u64, Failure> {
    let Some(text) = options.resource_version.as_deref() else { return Ok(0) };
    text.parse().map_err(|_| {
        Failure::BadRequest(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

/// Refuses a revision that is yet to come.
///
/// # Errors
/// When it is.
pub fn not_in_the_future(store: &Store, wanted: u64) -> Result<(), Failure> {
    let current = store.revision().0;
    if wanted > current {
        return Err(Failure::TooLargeResourceVersion { wanted, current });
    }
    Ok(())
}

/// The objects of `kind` that a request selects, and the list's metadata.
///
/// # Errors
/// For options that don't fit, and revisions that are not known.
pub fn select(
    store: &Store,
    kind: &Kind,
    namespace: Option<&str>,
    options: &Options,
) -> Result<(Vec<Arc<Stored>>, Value), Failure> {
    check_options(options)?;
    if let Some(climbing) = namespace.filter(|namespace| matches!(*namespace, "." | "..")) {
        let group = if kind.is_custom() { format!("{}/", kind.group) } else { String::new() };
        return Err(Failure::Unexpected(format!("invalid key: \"/{group}{}/{climbing}\"", kind.plural)));
    }
    let selection = Selection::parse(options, kind)?;
    let token = options.continue_token.as_deref().map(Continue::parse).transpose()?;
    let wanted = revision(options)?;
    if token.is_some() && wanted != 0 {
        return Err(Failure::BadRequest(
            "specifying resource version is not allowed when using continue".into(),
        ));
    }
    not_in_the_future(store, wanted)?;
    let exact = options.resource_version_match.as_deref() == Some("Exact")
        || (wanted != 0 && options.limit > 0 && options.resource_version_match.is_none());
    let at = match &token {
        Some(token) => u64::try_from(token.rv).ok().map(Revision),
        None => (exact && wanted != 0).then_some(Revision(wanted)),
    };
    let narrowed = namespace.or_else(|| selection.namespace()).filter(|_| kind.namespaced);
    let range = Range { resource: kind.resource_key(), namespace: narrowed.map(Arc::from) };
    let limit = usize::try_from(options.limit).ok().filter(|limit| *limit > 0);
    let page = Page {
        limit: limit.filter(|_| selection.is_all()),
        after: token.as_ref().map(|token| token.position(kind.namespaced)),
        at,
    };
    let listing = store.list(&range, page).map_err(|_| too_old(token.as_ref()))?;
    let Listing { revision, mut items, mut more, remaining } = listing;
    let mut remaining = Some(remaining);
    if !selection.is_all() {
        items.retain(|item| selection.matches(item));
        remaining = None;
        if let Some(limit) = limit {
            more = items.len() > limit;
            items.truncate(limit);
        }
    }
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".into(), revision.to_string().into());
    if more && let Some(last) = items.last() {
        let at = i64::try_from(revision.0).unwrap_or(-1);
        metadata.insert("continue".into(), Continue::after(at, last).into());
        if let Some(remaining) = remaining {
            metadata.insert("remainingItemCount".into(), remaining.into());
        }
    }
    Ok((items, metadata.into()))
}

/// The answer to a list.
///
/// # Errors
/// As [`select`].
pub fn list(
    store: &Store,
    view: &View<'_>,
    namespace: Option<&str>,
    options: &Options,
) -> Result<Answer, Failure> {
    let (items, metadata) = select(store, view.kind, namespace, options)?;
    view.list(&items, &metadata)
}

fn too_old(token: Option<&Continue>) -> Failure {
    match token {
        None => Failure::Expired("The resourceVersion for the provided list is too old.".into()),
        Some(token) => Failure::ExpiredContinue {
            message: "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.".into(),
            token: Continue { rv: -1, ..token.clone() }.encode(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_where_the_list_goes_on() {
        let token = Continue { v: "meta.k8s.io/v1".into(), rv: 7, start: "default/a\0".into() };
        let read = Continue::parse(&token.encode()).unwrap();
        assert_eq!(read, token);
        assert_eq!(read.position(true), ("default".into(), "a".into()));
        assert_eq!(read.position(false).0.as_ref(), "");
    }

    #[test]
    fn a_token_that_is_none_is_refused() {
        let message = Continue::parse("x").unwrap_err().to_string();
        assert!(message.starts_with("invalid continue token: continue key is not valid"), "{message}");
    }
}
