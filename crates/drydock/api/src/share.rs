//! What many watches are sent, made once.
//!
//! Watches that ask for the same are sent the same bytes. Whichever comes to an event first selects and writes it, and
//! what follows it; the others take that piece, and add what came since, which is again for all.
//!
//! **Always holds:** a piece is all that there is to send from the event it begins with up to a revision. It is found by
//! that event, so whoever takes it misses nothing and sees nothing twice. What nobody watches takes no room.
//!
//! **Not here:** tables, which tell ages and describe their columns once per watch.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
};

use bytes::Bytes;
use drydock_kinds::Kind;
use drydock_store::Revision;
use parking_lot::Mutex;

use crate::accept::Shape;

/// So many pieces are kept for those who are a little behind.
const PIECES: usize = 4;

/// None of them is larger than this: what is large is copied rather than held.
const LARGEST: usize = 64 << 10;

/// All that decides what a watch is sent.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The kind, in the version asked for, as it was when the watch began.
    pub kind: Arc<Kind>,
    /// Custom objects that were written later are what the present definition makes of them.
    pub fresh: Option<Revision>,
    /// The namespace of the path.
    pub namespace: Option<String>,
    /// The selectors, as they were written.
    pub selectors: [Option<String>; 2],
    /// The form.
    pub form: (Shape, &'static str),
}

/// The wish's parts; a kind is itself only.
type Same<'a> =
    (*const Kind, Option<Revision>, &'a Option<String>, &'a [Option<String>; 2], (Shape, &'static str));

impl Wish {
    fn same(&self) -> Same<'_> {
        (Arc::as_ptr(&self.kind), self.fresh, &self.namespace, &self.selectors, self.form)
    }
}

impl PartialEq for Wish {
    fn eq(&self, other: &Self) -> bool {
        self.same() == other.same()
    }
}

impl Eq for Wish {}

impl std::hash::Hash for Wish {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.same().hash(state);
    }
}

/// A part of what a group is sent.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The event that it begins with.
    pub first: Revision,
    /// Up to where there is nothing else to send.
    pub to: Revision,
    /// How many lines it has.
    pub lines: u64,
    /// The lines.
    pub bytes: Bytes,
}

/// All groups of a server.
#[derive(Debug, Default)]
pub struct Groups(Mutex<HashMap<Wish, Weak<Group>>>);

impl Groups {
    /// The group of those who have the same wish.
    pub fn join(self: &Arc<Self>, wish: Wish) -> Arc<Group> {
        let mut groups = self.0.lock();
        if let Some(group) = groups.get(&wish).and_then(Weak::upgrade) {
            return group;
        }
        let group =
            Arc::new(Group { wish: wish.clone(), groups: Arc::clone(self), pieces: Mutex::default() });
        groups.insert(wish, Arc::downgrade(&group));
        group
    }
}

/// Watches with the same wish.
#[derive(Debug)]
pub struct Group {
    wish: Wish,
    groups: Arc<Groups>,
    pieces: Mutex<VecDeque<Piece>>,
}

impl Group {
    /// Whether there is anybody to share with.
    pub fn is_shared(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
    }

    /// The last piece that begins with this event, if somebody has made it.
    pub fn beginning_with(&self, first: Revision) -> Option<Piece> {
        self.pieces.lock().iter().find(|piece| piece.first == first).cloned()
    }

    /// Keeps a piece for the others.
    pub fn keep(&self, piece: Piece) {
        if piece.bytes.len() <= LARGEST {
            let mut pieces = self.pieces.lock();
            pieces.truncate(PIECES - 1);
            pieces.push_front(piece);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut groups = self.groups.0.lock();
        // Somebody may have come in the meantime, and have another one.
        if groups.get(&self.wish).is_some_and(|group| group.strong_count() == 0) {
            groups.remove(&self.wish);
        }
    }
}

#[cfg(test)]
mod tests {
    use drydock_kinds::Registry;

    use super::*;

    fn wish(labels: &str) -> Wish {
        static KINDS: std::sync::LazyLock<Registry> = std::sync::LazyLock::new(Registry::builtin);
        Wish {
            kind: KINDS.find("", "v1", "pods").unwrap(),
            fresh: None,
            namespace: None,
            selectors: [Some(labels.to_owned()), None],
            form: (Shape::Whole, "v1"),
        }
    }

    fn piece(first: u64, size: usize) -> Piece {
        Piece { first: Revision(first), to: Revision(first + 1), lines: 1, bytes: vec![b'x'; size].into() }
    }

    #[test]
    fn those_with_the_same_wish_are_a_group_for_as_long_as_there_is_one() {
        let groups = Arc::new(Groups::default());
        let one = groups.join(wish("a=b"));
        assert!(!one.is_shared());
        let (same, other) = (groups.join(wish("a=b")), groups.join(wish("a=c")));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        assert!(one.is_shared() && !other.is_shared());
        drop((one, other));
        assert_eq!(groups.0.lock().len(), 1);
        drop(same);
        assert!(groups.0.lock().is_empty());
    }

    #[test]
    fn the_last_pieces_are_kept_but_for_large_ones() {
        let group = Arc::new(Groups::default()).join(wish("a=b"));
        (1..=PIECES as u64 + 1).for_each(|first| group.keep(piece(first, 10)));
        group.keep(piece(100, LARGEST + 1));
        let has = |first| group.beginning_with(Revision(first)).is_some();
        assert!(!has(1) && !has(100) && (2..=PIECES as u64 + 1).all(has));
    }

    #[test]
    fn of_two_that_begin_alike_the_later_is_taken() {
        let group = Arc::new(Groups::default()).join(wish("a=b"));
        [10, 20].into_iter().for_each(|size| group.keep(piece(1, size)));
        assert_eq!(group.beginning_with(Revision(1)).unwrap().bytes.len(), 20);
    }
}
