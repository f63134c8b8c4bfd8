//! A stream in pieces, worked on by several threads, taken in order.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// How much of a dump is compressed at a time. The window of the level that is used is a quarter of it, so that larger
/// pieces compress no better, and a few of them are in memory at once.
pub(super) const PIECE: usize = 2 << 20;

/// What is little to read at a time, and how long it takes a quick server to write much more.
const LITTLE: usize = 256 << 10;
const GATHER: Duration = Duration::from_millis(2);

/// How far the threads stand behind a server and its tools, in the scheduler's steps.
const BEHIND: i32 = 10;

/// As many as pay beside a server and its tool.
const MOST_WORKERS: usize = 4;

/// Has a worker that `hire` gives work on each piece that `next` gives, and gives what comes of it to `take`, in the
/// order of the pieces. Ends with the first error.
pub(super) fn in_order<T, R, E, W>(
    mut next: impl FnMut() -> Result<Option<T>, E> + Send,
    hire: impl Fn() -> W + Sync,
    mut take: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E>
where
    T: Send,
    R: Send,
    E: Send,
    W: FnMut(T) -> Result<R, E>,
{
    let workers = thread::available_parallelism().map_or(1, usize::from).min(MOST_WORKERS);
    thread::scope(|scope| {
        let (mut ways, mut results): (Vec<SyncSender<_>>, Vec<Receiver<_>>) = Default::default();
        for _ in 0..workers {
            let (way, pieces) = sync_channel::<Result<T, E>>(1);
            let (done, result) = sync_channel(1);
            let hire = &hire;
            // Ends when nothing comes any more, and when nobody takes what it made.
            scope.spawn(move || {
                stand_back();
                let mut work = hire();
                pieces.iter().map(|piece| piece.and_then(&mut work)).all(|made| done.send(made).is_ok())
            });
            ways.push(way);
            results.push(result);
        }
        scope.spawn(move || {
            stand_back();
            for way in ways.iter().cycle() {
                let Some(piece) = next().transpose() else { return };
                let last = piece.is_err();
                if way.send(piece).is_err() || last {
                    return;
                }
            }
        });
        for result in results.iter().cycle() {
            // A worker that has nothing more to give: the piece before was the last.
            let Ok(made) = result.recv() else { break };
            take(made?)?;
        }
        Ok(())
    })
}

/// Lets the server and its tools go first: everybody waits for them.
fn stand_back() {
    if let Err(error) = rustix::process::nice(BEHIND) {
        tracing::debug!(%error, "the server and its tools are not let first");
    }
}

/// Reads until the buffer is full or nothing comes any more. Who writes in small pieces is given time to gather some:
/// otherwise each of them would wake us, which takes longer than reading it.
pub(super) fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match from.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(more) => {
                length += more;
                if more < LITTLE {
                    thread::sleep(GATHER);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_out_in_the_order_in_which_they_went_in() {
        let (mut given, mut taken) = (0..1000, Vec::new());
        let work = |number: u64| {
            // Some take longer than those after them.
            (0..number % 7 * 1000).for_each(|turn| _ = std::hint::black_box(turn));
            Ok::<_, ()>(number * 2)
        };
        let take = |number| {
            taken.push(number);
            Ok(())
        };
        in_order(|| Ok(given.next()), || work, take).unwrap();
        assert_eq!(taken, (0..1000).map(|number| number * 2).collect::<Vec<_>>());
    }

    #[test]
    fn the_first_error_ends_it_wherever_it_comes_from() {
        for failing in ["next", "work", "take"] {
            let fails = |place, number: u64| {
                if place == failing && number == 100 { Err(format!("{place} fails")) } else { Ok(number) }
            };
            let (mut given, mut last) = (0.., 0);
            let ended = in_order(
                || given.next().map(|number| fails("next", number)).transpose(),
                || |number| fails("work", number),
                |number| {
                    last = fails("take", number)?;
                    Ok(())
                },
            );
            assert_eq!((ended, last), (Err(format!("{failing} fails")), 99));
        }
    }
}
