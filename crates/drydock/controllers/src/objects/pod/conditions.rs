//! The conditions of a pod, type and status, in their order: what a policy about failures goes by.
//!
//! Every pod has a handful, and pods are what there is most of. So those that Kubernetes itself writes are kept as one
//! byte each, and only others by name. Nothing else is kept of them.

/// The types that nearly every pod has, and those of pods that end badly.
const TYPES: [&str; 8] = [
    "PodScheduled",
    "PodReadyToStartContainers",
    "Initialized",
    "ContainersReady",
    "Ready",
    "DisruptionTarget",
    "PodResizePending",
    "PodResizeInProgress",
];

const STATUSES: [&str; 3] = ["True", "False", "Unknown"];

/// A byte that stands for nothing, and one that stands for the next condition by name. All others are a pair of
/// [`TYPES`] and [`STATUSES`].
const NOTHING: u8 = 0;
const BY_NAME: u8 = u8::MAX;

/// Conditions, in their order.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// The first ones. What does not fit follows by name.
    first: [u8; 8],
    by_name: Box<[(Box<str>, Box<str>)]>,
}

impl Conditions {
    /// Each, type and status.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut by_name = self.by_name.iter();
        let mut first = self.first.iter().take_while(|code| **code != NOTHING);
        std::iter::from_fn(move || match first.next() {
            None | Some(&BY_NAME) => by_name.next().map(|(kind, status)| (&**kind, &**status)),
            Some(code) => {
                let pair = usize::from(code - 1);
                Some((TYPES.get(pair / STATUSES.len())?, STATUSES.get(pair % STATUSES.len())?))
            }
        })
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Conditions {
    fn from_iter<T: IntoIterator<Item = (&'a str, &'a str)>>(all: T) -> Self {
        let (mut first, mut by_name) = ([NOTHING; 8], Vec::new());
        for (at, (kind, status)) in all.into_iter().enumerate() {
            let code = code(kind, status).filter(|_| at < first.len());
            if let Some(place) = first.get_mut(at) {
                *place = code.unwrap_or(BY_NAME);
            }
            if code.is_none() {
                by_name.push((kind.into(), status.into()));
            }
        }
        Self { first, by_name: by_name.into() }
    }
}

fn code(kind: &str, status: &str) -> Option<u8> {
    let kind = TYPES.iter().position(|one| *one == kind)?;
    let status = STATUSES.iter().position(|one| *one == status)?;
    u8::try_from(kind * STATUSES.len() + status + 1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(all: &[(&str, &str)], by_name: usize) {
        let kept: Conditions = all.iter().copied().collect();
        assert_eq!(kept.iter().collect::<Vec<_>>(), all);
        assert_eq!(kept.by_name.len(), by_name);
    }

    #[test]
    fn conditions_keep_their_order_and_only_unusual_ones_take_room() {
        check(&[], 0);
        let each = |kind| STATUSES.map(|status| (kind, status));
        TYPES.into_iter().for_each(|kind| check(&each(kind), 0));
        check(&[("x.io/a", "True"), ("Ready", "Unknown"), ("x.io/b", "False"), ("PodScheduled", "False")], 2);
        check(&[("Ready", "Perhaps"), ("Ready", "")], 2);
        let many: Vec<_> = TYPES.into_iter().flat_map(each).collect();
        check(&many, many.len() - 8);
        let mixed: Vec<_> = many.iter().flat_map(|one| [("x.io/a", "True"), *one]).collect();
        check(&mixed, mixed.len() - 4);
        assert_eq!(size_of::<Conditions>(), 24);
    }
}
