//! Field management: who owns which field, and what an apply makes of it.
//!
//! Every write names its manager. [`apply`] merges a manager's whole opinion into the live
//! object: fields it no longer has an opinion on go when nobody else owns them, and fields that
//! another manager owns with another value are conflicts, unless taken by force. [`update`] is
//! for every other write: the fields it changed become the writer's.
//!
//! **Always holds:**
//!
//! - A manager owns a field either way of writing at most once per subresource; managers with
//!   nothing to their name have no entry.
//! - What an apply changes nothing in comes back equal to the live object, times included.
//! - The system's own fields (`apiVersion`, `kind`, `metadata.name`, `metadata.uid`, …) are
//!   never owned.
//!
//! **Deliberately absent:** defaulting after an apply. A caller that defaults, and may thereby
//! undo a change, calls [`keep_times`] before it compares what to store.
//!
//! An object or list from which an apply took the last item, while another manager still owns
//! it as a whole, is `null` in the result, as it is in Kubernetes: built-in kinds drop it when
//! the object is decoded, custom resources are refused by their schema.

mod apply;
mod blank;
mod conflict;
mod entries;
mod last_applied;
mod update;

pub use apply::{Apply, ApplyError, apply};
pub use conflict::Conflict;
pub use entries::{DecodeError, Operation, validate};
pub use update::{Update, update};

use serde_json::{Map, Value};

/// The manager a write is recorded under that names none and whose client can't be told.
const UNKNOWN_MANAGER: &str = "unknown";

/// Where the entries are, in `metadata`.
const ENTRIES: &str = "managedFields";

/// Gives `new` the times of `live` back, where nothing but the times of managed fields differs,
/// so that a write that changes nothing is none.
pub fn keep_times(live: &Value, new: &mut Value) {
    let (Some(theirs), Some(ours)) = (entries_of(live), entries_of(new)) else { return };
    if theirs.is_empty() || !entries::same_but_times(theirs, ours) || !same_but_entries(live, new, Value::eq)
    {
        return;
    }
    let theirs = theirs.clone();
    entries::store(new, theirs);
}

fn entries_of(object: &Value) -> Option<&Vec<Value>> {
    object.get("metadata")?.get(ENTRIES)?.as_array()
}

/// Whether two objects are the same, each field by `same`, but for their entries.
fn same_but_entries(left: &Value, right: &Value, same: fn(&Value, &Value) -> bool) -> bool {
    let (Some(left), Some(right)) = (left.as_object(), right.as_object()) else { return false };
    let same_field = |((ln, lv), (rn, rv)): ((&String, &Value), (&String, &Value))| ln == rn && same(lv, rv);
    left.len() == right.len()
        && left.iter().zip(right).all(|(left, right)| match (left.1.as_object(), right.1.as_object()) {
            (Some(l), Some(r)) if left.0 == "metadata" && right.0 == "metadata" => {
                let others = |map: &Map<String, Value>| map.len() - usize::from(map.contains_key(ENTRIES));
                let is_other = |field: &(&String, &Value)| field.0 != ENTRIES;
                others(l) == others(r)
                    && l.iter().filter(is_other).zip(r.iter().filter(is_other)).all(same_field)
            }
            _ => same_field((left, right)),
        })
}
