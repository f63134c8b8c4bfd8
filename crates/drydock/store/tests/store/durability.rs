//! What is left after a stop, a crash, and damage.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::*;
use drydock_store::{OpenError, Options, Revision, Store};

fn open(directory: &Path) -> Result<Store, OpenError> {
    Store::open(directory, Options::default())
}

/// A directory with a log of three commits, and how long the log was after each.
async fn written(directory: &Path) -> Vec<u64> {
    let store = open(directory).unwrap();
    let mut lengths = Vec::new();
    for (name, value) in [("a", "1"), ("b", "2"), ("a", "3")] {
        put(&store, name, value).await.unwrap();
        lengths.push(fs::metadata(directory.join("log")).unwrap().len());
    }
    lengths
}

#[tokio::test]
async fn what_was_acknowledged_is_there_again_with_its_history() {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path()).await;
    let store = open(directory.path()).unwrap();
    assert_eq!(names(&store, None), "a=3@4! b=2@3!");
    assert_eq!(names(&store, Some(Revision(2))), "a=1@2!");
    assert_eq!(drain(&mut store.watch(range("/pods", None), Revision(1)).unwrap()).len(), 3);
    assert_eq!(store.get(&key("/pods", "default", "a")).unwrap().facets, draft("3").facets);
    assert_eq!(store.commits(), 0);
    assert_eq!(delete(&store, "b").await.unwrap().revision, Revision(5));
    drop(store);
    assert_eq!(names(&open(directory.path()).unwrap(), None), "a=3@4!");
}

#[tokio::test]
async fn an_unfinished_last_write_is_dropped_wherever_it_was_cut() {
    let directory = tempfile::tempdir().unwrap();
    let lengths = written(directory.path()).await;
    let log = directory.path().join("log");
    let whole = fs::read(&log).unwrap();
    for cut in lengths[1]..lengths[2] {
        fs::write(&log, &whole[..cut as usize]).unwrap();
        let store = open(directory.path()).unwrap();
        assert_eq!(names(&store, None), "a=1@2! b=2@3!", "cut at {cut}");
        assert_eq!(put(&store, "c", "4").await.unwrap().revision, Revision(4));
        drop(store);
        assert_eq!(names(&open(directory.path()).unwrap(), None), "a=1@2! b=2@3! c=4@4!", "cut at {cut}");
    }
    // The file's size may reach the disk before its content does.
    let mut zeros = whole[..lengths[1] as usize].to_vec();
    zeros.resize(whole.len() + 4096, 0);
    fs::write(&log, zeros).unwrap();
    assert_eq!(names(&open(directory.path()).unwrap(), None), "a=1@2! b=2@3!");
}

#[tokio::test]
async fn damage_of_what_was_written_is_refused_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let lengths = written(directory.path()).await;
    let log = directory.path().join("log");
    let whole = fs::read(&log).unwrap();
    for at in 0..lengths[2] {
        let mut damaged = whole.clone();
        damaged[at as usize] ^= 0x40;
        fs::write(&log, &damaged).unwrap();
        let error = open(directory.path()).map(|store| names(&store, None)).unwrap_err();
        match &error {
            OpenError::Damaged { path, offset, .. } => {
                assert!(*path == log && *offset <= at, "{at}: {error}")
            }
            OpenError::Version { .. } => assert!((8..12).contains(&at), "{at}: {error}"),
            other => panic!("{at}: {other}"),
        }
        assert_eq!(fs::read(&log).unwrap(), damaged, "nothing is repaired away");
    }
    for (content, expected) in [
        (&b""[..], "damaged at offset 0: 0 bytes are too few for a log's header"),
        (&[b'x'; 100][..], "damaged at offset 0: this is no log"),
    ] {
        fs::write(&log, content).unwrap();
        assert_eq!(open(directory.path()).unwrap_err().to_string(), format!("{}: {expected}", log.display()));
    }
}

#[tokio::test]
async fn a_damaged_end_costs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let lengths = written(directory.path()).await;
    let log = directory.path().join("log");
    let whole = fs::read(&log).unwrap();
    assert!(whole.len() as u64 > lengths[2], "a log that was closed says so");
    for at in lengths[2]..whole.len() as u64 {
        let mut damaged = whole.clone();
        damaged[at as usize] ^= 0x40;
        fs::write(&log, &damaged).unwrap();
        assert_eq!(names(&open(directory.path()).unwrap(), None), "a=3@4! b=2@3!", "damaged at {at}");
    }
}

#[tokio::test]
async fn a_second_opening_is_refused_until_the_first_is_closed() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("made/by/the/store");
    let first = open(&directory).unwrap();
    let watch = first.watch(range("/pods", None), first.revision()).unwrap();
    let error = open(&directory).unwrap_err();
    assert_eq!(error.to_string(), format!("{} is in use by another process", directory.display()));
    first.close();
    let second = open(&directory).unwrap();
    assert!(put(&first, "a", "1").await.is_err());
    drop((second, first));
    open(&directory).unwrap();
    drop(watch);
}

#[tokio::test]
async fn only_the_owner_can_read_it() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    written(&directory).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[tokio::test]
async fn a_log_well_past_its_live_data_is_compacted() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let store = open(directory.path()).unwrap();
    let large = "x".repeat(1 << 20);
    for name in ["a", "b"].repeat(12) {
        put(&store, name, &large).await.unwrap();
    }
    delete(&store, "b").await.unwrap();
    // It takes its time, beside the commits: the one after its end puts the new log in place.
    let deadline = Instant::now() + Duration::from_secs(30);
    while fs::metadata(&log).unwrap().len() > 14 << 20 {
        assert!(Instant::now() < deadline, "24 MiB of commits are not compacted");
        put(&store, "c", "small").await.unwrap();
    }
    let revision = store.revision();
    drop(store);
    let store = open(directory.path()).unwrap();
    assert_eq!(store.revision(), revision);
    let listed = store.list(&range("/pods", None), Default::default()).unwrap();
    let kept: Vec<_> = listed.items.iter().map(|item| (&*item.key.name, item.revision)).collect();
    assert_eq!(kept, [("a", Revision(24)), ("c", revision)]);
}

#[tokio::test]
async fn commits_go_on_while_the_log_is_compacted_and_all_of_them_are_there_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    let large = "x".repeat(200_000);
    let mut largest = 0;
    for number in 0..400 {
        // Ten names, so that there is far more to forget than to keep; and some that come and go.
        put(&store, &format!("kept-{}", number % 10), &format!("{number}-{large}")).await.unwrap();
        put(&store, &format!("passing-{number}"), "short").await.unwrap();
        if number >= 7 {
            delete(&store, &format!("passing-{}", number - 7)).await.unwrap();
        }
        largest = largest.max(fs::metadata(directory.path().join("log")).unwrap().len());
    }
    assert!(largest < 60 << 20, "{largest} bytes where 80 MB were written, and 2 MB are kept");
    let (before, revision) = (names(&store, None), store.revision());
    drop(store);
    assert!(!directory.path().join("log.new").exists(), "an unfinished log was left");
    let store = open(directory.path()).unwrap();
    assert!(names(&store, None) == before, "something is other than it was");
    assert_eq!(store.revision(), revision);
}

#[tokio::test]
async fn a_log_that_was_being_written_when_the_process_died_is_of_no_account() {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path()).await;
    fs::write(directory.path().join("log.new"), b"half a lo").unwrap();
    assert_eq!(names(&open(directory.path()).unwrap(), None), "a=3@4! b=2@3!");
}

#[tokio::test]
async fn a_later_format_is_refused_in_one_line_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path()).await;
    let log = directory.path().join("log");
    let mut later = fs::read(&log).unwrap();
    later[8] = 2;
    fs::write(&log, &later).unwrap();
    assert_eq!(
        open(directory.path()).unwrap_err().to_string(),
        format!("{}: written in format version 2, and this program reads no later one than 1", log.display())
    );
    assert_eq!(fs::read(&log).unwrap(), later);
}
