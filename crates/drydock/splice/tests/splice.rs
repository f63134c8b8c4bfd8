//! What each side hears, over real sockets.

#![expect(clippy::unwrap_used, reason = "a failure here is the answer")]

use std::time::Duration;

use drydock_splice::splice;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// More than the system keeps of what nobody reads.
const MUCH: usize = 16 << 20;

/// Nothing here takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(30);

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(near, listener.accept());
    (near.unwrap(), far.unwrap().0)
}

/// The two ends of a spliced connection, the caller's first, and what splices it.
async fn spliced() -> (TcpStream, TcpStream, JoinHandle<()>) {
    let ((caller, theirs), (ours, called)) = tokio::join!(pair(), pair());
    (caller, called, tokio::spawn(splice(theirs, ours)))
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.unwrap()
}

async fn everything(from: &mut TcpStream) -> String {
    let mut heard = String::new();
    soon(from.read_to_string(&mut heard)).await.unwrap();
    heard
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn last_words_reach_a_caller_that_still_talks() {
    for round in 0..100 {
        let (mut caller, mut called, task) = spliced().await;
        called.write_all(b"enough").await.unwrap();
        drop(called);
        // Some of it is on its way, or unread, when the other side is gone. Many a client listens no more when it
        // can't write.
        soon(caller.write_all(&vec![b'x'; 256 << 10])).await.unwrap();
        assert_eq!(everything(&mut caller).await, "enough", "round {round}");
        drop(caller);
        soon(task).await.unwrap();
    }
}

#[tokio::test]
async fn each_direction_ends_by_itself() {
    let (mut caller, mut called, task) = spliced().await;
    called.write_all(b"first").await.unwrap();
    called.shutdown().await.unwrap();
    assert_eq!(everything(&mut caller).await, "first");
    caller.write_all(b"second").await.unwrap();
    caller.shutdown().await.unwrap();
    assert_eq!(everything(&mut called).await, "second");
    soon(task).await.unwrap();

    let (mut caller, mut called, task) = spliced().await;
    caller.shutdown().await.unwrap();
    assert_eq!(everything(&mut called).await, "");
    called.write_all(b"an answer").await.unwrap();
    drop(called);
    assert_eq!(everything(&mut caller).await, "an answer");
    soon(task).await.unwrap();
}

#[tokio::test]
async fn who_is_called_does_not_wait_for_a_caller_that_is_gone() {
    let (caller, called, task) = spliced().await;
    caller.set_zero_linger().unwrap();
    drop(caller);
    soon(task).await.unwrap();
    drop(called);
}

#[tokio::test]
async fn a_caller_that_talks_for_ever_to_nobody_is_left_in_the_end() {
    let (mut caller, called, task) = spliced().await;
    called.set_zero_linger().unwrap();
    drop(called);
    let talking = tokio::spawn(async move { while caller.write_all(&[b'x'; 1024]).await.is_ok() {} });
    soon(task).await.unwrap();
    soon(talking).await.unwrap();
}

#[tokio::test]
async fn much_goes_through_in_both_directions_at_once() {
    let (caller, called, task) = spliced().await;
    let talk = |mut end: TcpStream, word: u8| async move {
        let (mut from, mut to) = end.split();
        let mut heard = Vec::new();
        let said = async {
            to.write_all(&vec![word; MUCH]).await.unwrap();
            to.shutdown().await.unwrap();
        };
        let ((), count) = soon(async { tokio::join!(said, from.read_to_end(&mut heard)) }).await;
        (count.unwrap(), heard.first().copied(), heard.last().copied())
    };
    let (by_caller, by_called) = tokio::join!(talk(caller, b'a'), talk(called, b'b'));
    assert_eq!(by_caller, (MUCH, Some(b'b'), Some(b'b')));
    assert_eq!(by_called, (MUCH, Some(b'a'), Some(b'a')));
    soon(task).await.unwrap();
}
