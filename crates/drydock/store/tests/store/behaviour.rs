//! What the store promises, one sentence at a time, and all of it against a naive model.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::*;
use drydock_store::{
    Change, CommitError, EventKind, Expect, Key, Lagged, Options, Page, Range, Revision, Store, Stored, Watch,
};
use futures::{FutureExt, StreamExt};
use proptest::prelude::*;

fn unlimited() -> Store {
    Store::in_memory(Options::unlimited())
}

#[tokio::test]
async fn a_commit_writes_its_own_revision_into_the_value() {
    let store = unlimited();
    assert_eq!(text(&put(&store, "a", "first").await.unwrap()), "first@2!");
    assert_eq!(text(&put(&store, "a", "second").await.unwrap()), "second@3!");
    assert_eq!(text(&delete(&store, "a").await.unwrap()), "gone@4!");
    assert_eq!((store.revision(), store.commits()), (Revision(4), 3));
}

#[tokio::test]
async fn a_commit_goes_ahead_only_on_what_it_expects() {
    let store = unlimited();
    let a = || key("/pods", "default", "a");
    let change = |change: &str| match change {
        "put" => Change::Put(draft("x")),
        _ => Change::Delete(draft("x")),
    };
    let cases = [
        (Expect::At(Revision(9)), "put", "missing"),
        (Expect::Any, "delete", "missing"),
        (Expect::Absent, "put", "ok 2"),
        (Expect::Absent, "put", "exists 2"),
        (Expect::At(Revision(1)), "put", "conflict 2"),
        (Expect::At(Revision(2)), "put", "ok 3"),
        (Expect::At(Revision(2)), "delete", "conflict 3"),
        (Expect::At(Revision(3)), "delete", "ok 4"),
        (Expect::At(Revision(3)), "delete", "missing"),
        (Expect::Any, "put", "ok 5"),
    ];
    for (expect, what, expected) in cases {
        let said = match store.commit(a(), expect, change(what)).await {
            Ok(stored) => format!("ok {}", stored.revision),
            Err(CommitError::Exists(current)) => format!("exists {}", current.revision),
            Err(CommitError::Conflict(current)) => format!("conflict {}", current.revision),
            Err(CommitError::Missing) => "missing".into(),
            Err(error) => error.to_string(),
        };
        assert_eq!(said, expected, "{expect:?} {what}");
    }
}

#[tokio::test]
async fn a_list_goes_on_at_its_revision_while_others_write() {
    let store = unlimited();
    for name in ["a", "b", "c", "d"] {
        put(&store, name, "v").await.unwrap();
    }
    let all = range("/pods", Some("default"));
    let first = store.list(&all, Page { limit: Some(2), ..Page::default() }).unwrap();
    assert_eq!((first.items.len(), first.more, first.remaining), (2, true, 2));
    delete(&store, "c").await.unwrap();
    put(&store, "b2", "new").await.unwrap();
    let last = first.items.last().unwrap();
    let after = Some((Arc::clone(&last.key.namespace), Arc::clone(&last.key.name)));
    let rest = store.list(&all, Page { limit: Some(2), after, at: Some(first.revision) }).unwrap();
    let names: Vec<_> = rest.items.iter().map(|item| &*item.key.name).collect();
    assert_eq!((names, rest.more, rest.revision), (vec!["c", "d"], false, first.revision));
}

#[tokio::test]
async fn a_namespace_is_listed_and_watched_alone() {
    let store = unlimited();
    for (resource, namespace) in
        [("/pods", "a"), ("/pods", "b"), ("/secrets", "a"), ("/pods", "ab"), ("/nodes", "")]
    {
        store.commit(key(resource, namespace, "n"), Expect::Absent, Change::Put(draft("v"))).await.unwrap();
    }
    let listed = |namespace| store.list(&range("/pods", namespace), Page::default()).unwrap().items.len();
    assert_eq!((listed(Some("a")), listed(Some("b")), listed(None), listed(Some("c"))), (1, 1, 3, 0));
    let watched = |namespace| drain(&mut store.watch(range("/pods", namespace), Revision(1)).unwrap()).len();
    assert_eq!((watched(Some("a")), watched(None), watched(Some("c"))), (1, 3, 0));
    assert_eq!(store.resource_revision("/pods"), Revision(5));
    assert_eq!(store.resource_revision("/configmaps"), Revision(0));
}

#[tokio::test]
async fn a_sleeping_watch_is_woken_by_its_own_range_only() {
    let store = unlimited();
    let mut watch = store.watch(range("/pods", Some("default")), store.revision()).unwrap();
    let task = tokio::spawn(async move { watch.next().await.unwrap().unwrap() });
    tokio::task::yield_now().await;
    store.commit(key("/pods", "other", "x"), Expect::Any, Change::Put(draft("v"))).await.unwrap();
    put(&store, "a", "v").await.unwrap();
    let event = task.await.unwrap();
    assert_eq!((event.kind, event.revision), (EventKind::Added, Revision(3)));
}

#[tokio::test]
async fn progress_moves_with_changes_elsewhere_and_never_past_an_undelivered_event() {
    let store = unlimited();
    let mut watch = store.watch(range("/pods", None), store.revision()).unwrap();
    store.commit(key("/nodes", "", "n"), Expect::Any, Change::Put(draft("v"))).await.unwrap();
    assert_eq!(watch.progress(), Revision(2));
    put(&store, "a", "v").await.unwrap();
    put(&store, "b", "v").await.unwrap();
    assert_eq!(watch.progress(), Revision(2));
    watch.next().await.unwrap().unwrap();
    assert_eq!(watch.progress(), Revision(3));
    watch.next().await.unwrap().unwrap();
    assert_eq!(watch.progress(), Revision(4));
}

#[tokio::test]
async fn a_watch_from_any_revision_begins_right_after_it() {
    let store = unlimited();
    let mut expected = Vec::new();
    for number in 0..100 {
        expected.push(put(&store, "a", "v").await.unwrap().revision);
        if number % 3 == 0 {
            store.commit(key("/nodes", "", "n"), Expect::Any, Change::Put(draft("v"))).await.unwrap();
        }
    }
    for from in 1..=store.revision().0 {
        let mut watch = store.watch(range("/pods", None), Revision(from)).unwrap();
        let seen: Vec<Revision> = drain(&mut watch).iter().map(|event| event.revision).collect();
        assert_eq!(seen, expected[expected.partition_point(|revision| revision.0 <= from)..], "from {from}");
    }
}

#[tokio::test]
async fn a_watch_goes_on_behind_what_its_reader_has_from_elsewhere() {
    let store = unlimited();
    let mut watch = store.watch(range("/pods", Some("default")), store.revision()).unwrap();
    assert_eq!(watch.next_revision(), None);
    store.commit(key("/pods", "other", "x"), Expect::Any, Change::Put(draft("v"))).await.unwrap();
    for name in ["a", "b", "c", "d"] {
        put(&store, name, "v").await.unwrap();
    }
    assert_eq!(watch.next_revision(), Some(Revision(3)));
    watch.skip_to(Revision(3));
    assert_eq!((watch.next_revision(), watch.position()), (Some(Revision(4)), Some(Revision(3))));
    assert_eq!(watch.next().await.unwrap().unwrap().revision, Revision(4));
    assert_eq!((watch.next_revision(), watch.position()), (None, None), "the others were taken with it");
    watch.skip_to(Revision(5));
    assert_eq!(drain(&mut watch).iter().map(|event| event.revision).collect::<Vec<_>>(), [Revision(6)]);
    assert_eq!(watch.position(), Some(Revision(6)));
    store.compact(Revision(6));
    let mut late = store.watch(range("/pods", None), Revision(6)).unwrap();
    put(&store, "e", "v").await.unwrap();
    store.compact(Revision(7));
    assert_eq!(late.next_revision(), None, "what is forgotten can't be told");
    assert!(late.next().await.unwrap().is_err());
}

#[tokio::test]
async fn a_watch_that_slept_through_the_history_says_so_and_ends() {
    let store = Store::in_memory(Options { history: 2, ..Options::default() });
    let mut watch = store.watch(range("/pods", None), store.revision()).unwrap();
    let mut idle = store.watch(range("/nodes", None), store.revision()).unwrap();
    for name in ["a", "b", "c"] {
        put(&store, name, "v").await.unwrap();
    }
    assert_eq!(watch.next().await, Some(Err(Lagged { at: Revision(1), forgotten: Revision(2) })));
    assert_eq!(watch.next().await, None);
    assert!(idle.next().now_or_never().is_none(), "nothing it looks at was forgotten");
    assert_eq!(store.oldest(), Revision(2));
    assert!(store.watch(range("/pods", None), Revision(1)).is_err());
    assert!(store.snapshot(Revision(1)).is_err());
    assert_eq!(drain(&mut store.watch(range("/pods", None), Revision(2)).unwrap()).len(), 2);
}

#[tokio::test]
async fn a_watch_of_a_quiet_namespace_outlasts_whatever_is_forgotten_of_others() {
    let store = Store::in_memory(Options { history: 2, ..Options::default() });
    let quiet = || range("/pods", Some("quiet"));
    let [mut asleep, mut unread] = [(); 2].map(|()| store.watch(quiet(), store.revision()).unwrap());
    assert!(asleep.next().now_or_never().is_none());
    for name in ["a", "b", "c"] {
        put(&store, name, "v").await.unwrap();
    }
    assert_eq!((asleep.progress(), asleep.next_revision()), (Revision(4), None));
    assert!(store.watch(quiet(), Revision(1)).is_err(), "that nothing was forgotten of it nobody knows");
    let late = async |name: &str| {
        store
            .commit(key("/pods", "quiet", name), Expect::Any, Change::Put(draft("v")))
            .await
            .unwrap()
            .revision
    };
    let first = late("a").await;
    assert_eq!(asleep.next_revision(), Some(first));
    for watch in [&mut asleep, &mut unread] {
        assert_eq!(drain(watch).iter().map(|event| event.revision).collect::<Vec<_>>(), [first]);
    }
    let [missed, _, _] = [late("a").await, late("b").await, late("c").await];
    assert_eq!(asleep.next().await, Some(Err(Lagged { at: first, forgotten: missed })));
    assert_eq!(drain(&mut store.watch(quiet(), store.oldest()).unwrap()).len(), 2);
}

#[tokio::test]
async fn the_history_holds_so_many_bytes_of_the_past_and_no_more() {
    let store = Store::in_memory(Options { history_bytes: 3_000, ..Options::unlimited() });
    let large = "x".repeat(1_000 - "@2!".len());
    // What is stored counts for nothing, however much it is.
    for name in ["a", "b", "c", "d", "e"] {
        put(&store, name, &large).await.unwrap();
    }
    assert_eq!(store.oldest(), Revision(1));
    // What it was before does: of four changes three are remembered.
    for expected in [1, 1, 1, 7] {
        put(&store, "a", &large[1..]).await.unwrap();
        assert_eq!(store.oldest(), Revision(expected));
    }
    // One that is larger than the bound is the only one, and is kept.
    put(&store, "b", &"y".repeat(5_000)).await.unwrap();
    let huge = delete(&store, "b").await.unwrap();
    assert_eq!(store.oldest(), Revision(huge.revision.0 - 1));
    assert_eq!(drain(&mut store.watch(range("/pods", None), store.oldest()).unwrap()).len(), 1);
    put(&store, "b", "z").await.unwrap();
    assert_eq!(store.oldest(), huge.revision);
}

#[tokio::test]
async fn compaction_forgets_the_past_and_keeps_the_present() {
    let store = unlimited();
    for value in ["1", "2", "3"] {
        put(&store, "a", value).await.unwrap();
    }
    store.compact(Revision(3));
    assert_eq!((store.oldest(), names(&store, Some(Revision(3)))), (Revision(3), "a=2@3!".into()));
    let error =
        store.list(&range("/pods", None), Page { at: Some(Revision(2)), ..Page::default() }).unwrap_err();
    assert_eq!(error.to_string(), "revision 2 has been compacted; the oldest that is known is 3");
    store.compact(Revision(u64::MAX));
    assert_eq!((store.oldest(), names(&store, None)), (Revision(4), "a=3@4!".into()));
}

#[tokio::test]
async fn a_store_starts_again_from_any_snapshot() {
    let store = unlimited();
    put(&store, "a", "1").await.unwrap();
    put(&store, "b", "2").await.unwrap();
    delete(&store, "a").await.unwrap();
    let snapshot = store.snapshot(Revision(3)).unwrap();
    assert_eq!((snapshot.len(), snapshot.revision()), (2, Revision(3)));
    let again = Store::from_snapshot(snapshot, Options::default());
    assert_eq!(names(&again, None), "a=1@2! b=2@3!");
    assert_eq!(put(&again, "c", "3").await.unwrap().revision, Revision(4));
    assert_eq!(again.oldest(), Revision(3));
    assert_eq!(names(&store, None), "b=2@3!", "the two go their own ways");
}

#[tokio::test]
async fn a_closed_store_ends_its_watches_after_what_there_was() {
    let store = unlimited();
    let mut watch = store.watch(range("/pods", None), store.revision()).unwrap();
    put(&store, "a", "1").await.unwrap();
    store.close();
    assert!(matches!(put(&store, "a", "2").await, Err(CommitError::Closed)));
    assert!(watch.next().await.unwrap().is_ok());
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn the_watches_of_one_resource_are_ended_after_what_there_was() {
    let store = unlimited();
    let watch = |resource, namespace| store.watch(range(resource, namespace), Revision(1)).unwrap();
    let [mut all, mut some, mut other] = [("/pods", None), ("/pods", Some("default")), ("/nodes", None)]
        .map(|(resource, namespace)| watch(resource, namespace));
    let mut asleep = watch("/pods", None);
    assert!(asleep.next().now_or_never().is_none());
    let woken = tokio::spawn(async move { asleep.count().await });
    tokio::task::yield_now().await;
    store.end_watches("/secrets");
    store.end_watches("/pods");
    assert_eq!(woken.await.unwrap(), 0);
    let mut anew = watch("/pods", None);
    for name in ["a", "b"] {
        put(&store, name, "1").await.unwrap();
    }
    assert!(all.next().await.is_none() && some.next().await.is_none(), "what came later is for others");
    assert!(other.next().now_or_never().is_none());
    assert!(anew.next().await.is_some());
    store.end_watches("/pods");
    delete(&store, "a").await.unwrap();
    assert_eq!(anew.next().await.unwrap().unwrap().revision, Revision(3), "what came before is not");
    assert!(anew.next().await.is_none());
}

#[tokio::test]
async fn a_watch_that_is_ended_misses_nothing_that_comes_later() {
    let store = unlimited();
    put(&store, "a", "1").await.unwrap();
    let watch = || store.watch(range("/pods", None), store.revision()).unwrap();
    let (mut ended, mut behind) = (watch(), watch());
    store.end_watches("/pods");
    let mut goes_on = watch();
    put(&store, "a", "2").await.unwrap();
    store.compact(store.revision());
    assert!(ended.next().await.is_none() && behind.next().await.is_none());
    assert!(goes_on.next().await.unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_lose_nothing_and_watches_see_one_order() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::unlimited();
    for store in [Store::in_memory(options.clone()), Store::open(directory.path(), options).unwrap()] {
        let watch = store.watch(range("/pods", None), store.revision()).unwrap();
        let watching = tokio::spawn(watch.take(800).map(|event| event.unwrap()).collect::<Vec<_>>());
        let writers: Vec<_> = (0..8).map(|_| tokio::spawn(count_up(store.clone(), 100))).collect();
        for writer in writers {
            writer.await.unwrap();
        }
        let events = watching.await.unwrap();
        let revisions: Vec<_> = events.iter().map(|event| event.revision.0).collect();
        assert_eq!(revisions, (2..802).collect::<Vec<_>>());
        let last = store.get(&key("/pods", "default", "counter")).unwrap();
        assert_eq!(text(&last), "800@801!", "each read-modify-write saw the one before it");
    }
}

/// Adds one, `times` times, each time trying again until no one came in between.
async fn count_up(store: Store, times: usize) {
    let counter = key("/pods", "default", "counter");
    for _ in 0..times {
        loop {
            let current = store.get(&counter);
            let (expect, count) = match &current {
                None => (Expect::Absent, 0),
                Some(seen) => {
                    (Expect::At(seen.revision), text(seen).split('@').next().unwrap().parse().unwrap())
                }
            };
            let change = Change::Put(draft(&(count + 1u32).to_string()));
            match store.commit(counter.clone(), expect, change).await {
                Ok(_) => break,
                Err(CommitError::Exists(_) | CommitError::Conflict(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

type Everything = BTreeMap<Key, Arc<Stored>>;
type Told = (EventKind, Arc<Stored>);

/// The store as one would write it without a thought to cost: a copy of everything for each revision.
#[derive(Default)]
struct Model {
    past: Vec<(Everything, Option<Told>)>,
}

#[derive(Clone, Debug)]
enum Move {
    Put { place: usize, expect: usize },
    Delete { place: usize, expect: usize },
    Compact { back: u64 },
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => (0..8usize, 0..3usize).prop_map(|(place, expect)| Move::Put { place, expect }),
        3 => (0..8usize, 0..3usize).prop_map(|(place, expect)| Move::Delete { place, expect }),
        1 => (0..12u64).prop_map(|back| Move::Compact { back }),
    ];
    proptest::collection::vec(one, 1..60)
}

fn place(number: usize) -> Key {
    let places = [("/pods", "a"), ("/pods", "b"), ("/secrets", "a"), ("/nodes", "")];
    let (resource, namespace) = places[number % 4];
    key(resource, namespace, ["x", "y"][number / 4])
}

impl Model {
    fn new() -> Model {
        Model { past: vec![(BTreeMap::new(), None), (BTreeMap::new(), None)] }
    }

    fn step(&mut self, store: &Store, what: &Move) {
        let (number, expect, deleting) = match what {
            Move::Put { place, expect } => (*place, *expect, false),
            Move::Delete { place, expect } => (*place, *expect, true),
            Move::Compact { back } => {
                store.compact(Revision(store.revision().0.saturating_sub(*back)));
                return;
            }
        };
        let now = &self.past.last().unwrap().0;
        let current = now.get(&place(number));
        let seen = current.map_or(Revision(1), |stored| stored.revision);
        let expect = [Expect::Absent, Expect::At(seen), Expect::Any][expect];
        let change = if deleting { Change::Delete(draft("d")) } else { Change::Put(draft("p")) };
        let result = store.commit(place(number), expect, change).now_or_never().unwrap();
        let allowed = match (expect, current, deleting) {
            (Expect::Absent, current, deleting) => current.is_none() && !deleting,
            (Expect::At(_), current, _) => current.is_some(),
            (Expect::Any, current, deleting) => current.is_some() || !deleting,
        };
        assert_eq!(result.is_ok(), allowed, "{what:?} {expect:?} {current:?}");
        if let Ok(stored) = result {
            assert_eq!(stored.revision.0, self.past.len() as u64);
            let mut next = now.clone();
            let kind = match (deleting, now.contains_key(&stored.key)) {
                (true, _) => EventKind::Deleted,
                (false, true) => EventKind::Modified,
                (false, false) => EventKind::Added,
            };
            if deleting {
                next.remove(&stored.key)
            } else {
                next.insert(stored.key.clone(), Arc::clone(&stored))
            };
            self.past.push((next, Some((kind, stored))));
        }
    }

    /// What a watch says that was last read at a revision: all since then, or that some of it is forgotten.
    fn follow(&self, store: &Store, watch: &mut Watch, range: &Range, seen: &mut usize) {
        let later = self.past.iter().enumerate().skip(*seen + 1);
        let due: Vec<_> = later
            .filter_map(|(revision, (_, told))| Some((revision as u64, told.as_ref()?)))
            .filter(|(_, (_, stored))| range.contains(&stored.key))
            .map(|(revision, _)| Revision(revision))
            .collect();
        if due.first().is_some_and(|first| *first <= store.oldest()) {
            assert!(matches!(watch.next().now_or_never(), Some(Some(Err(_)))), "{range:?}");
            *watch = store.watch(range.clone(), store.revision()).unwrap();
        } else {
            assert_eq!(drain(watch).iter().map(|event| event.revision).collect::<Vec<_>>(), due);
        }
        *seen = self.past.len() - 1;
    }

    fn check(&self, store: &Store) {
        assert_eq!(store.revision().0 as usize, self.past.len() - 1);
        for revision in 1..self.past.len() as u64 {
            let at = Revision(revision);
            for range in [
                range("/pods", None),
                range("/pods", Some("b")),
                range("/secrets", None),
                range("/nodes", None),
            ] {
                let listed = store.list(&range, Page { at: Some(at), limit: Some(1), after: None });
                let watch = store.watch(range.clone(), at);
                if at < store.oldest() {
                    assert!(listed.is_err() && watch.is_err() && store.snapshot(at).is_err());
                    continue;
                }
                let all = &self.past[revision as usize].0;
                let expected: Vec<_> =
                    all.values().filter(|stored| range.contains(&stored.key)).cloned().collect();
                let mut items = Vec::new();
                let mut after = None;
                loop {
                    let page = Page { at: Some(at), limit: Some(1), after: after.take() };
                    let page = store.list(&range, page).unwrap();
                    items.extend(page.items);
                    assert_eq!(page.remaining, expected.len() - items.len());
                    if !page.more {
                        break;
                    }
                    after = items
                        .last()
                        .map(|last: &Arc<Stored>| (last.key.namespace.clone(), last.key.name.clone()));
                }
                assert_eq!(items, expected);
                let events: Vec<_> = drain(&mut watch.unwrap())
                    .iter()
                    .map(|event| (event.kind, event.object.clone()))
                    .collect();
                let later =
                    self.past.iter().skip(revision as usize + 1).filter_map(|(_, event)| event.clone());
                assert_eq!(
                    events,
                    later.filter(|(_, stored)| range.contains(&stored.key)).collect::<Vec<_>>()
                );
                let snapshot = store.snapshot(at).unwrap();
                assert!(snapshot.iter().eq(all.values()));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_a_naive_model_does(moves in moves(), history in prop_oneof![Just(5usize), Just(usize::MAX)]) {
        let store = Store::in_memory(Options { history, ..Options::unlimited() });
        let mut model = Model::new();
        let ranges = [range("/pods", None), range("/pods", Some("b")), range("/secrets", None)];
        let mut watches = ranges.map(|range| (store.watch(range.clone(), Revision(1)).unwrap(), range, 1));
        for (number, step) in moves.iter().enumerate() {
            model.step(&store, step);
            if let Some((watch, range, seen)) = watches.get_mut(number % 8) {
                model.follow(&store, watch, range, seen);
            }
        }
        model.check(&store);
    }
}
