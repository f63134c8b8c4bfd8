//! Two connections made one: what each side says goes to the other.
//!
//! **Always holds:** what the called side says before its end reaches a caller that still listens, also when the
//! called side takes nothing any more of what the caller says. The end of one side is told to the other, and what
//! the other still says is passed on: each direction ends by itself, as in one connection.
//!
//! Nobody is told why a connection broke, and a side that only waits is waited for.

use std::{io, pin::pin, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, sink, split},
    sync::Notify,
};

/// What is under way in each direction. More is faster for large transfers, and is held by every idle connection.
const UNDER_WAY: usize = 16 << 10;

/// How long a caller has for its own end after it was told everything by one who does not hear it.
///
/// To end a connection with something unread in it is to reset it, and a reset overtakes what was said last.
const LINGER: Duration = Duration::from_secs(5);

/// Leads a caller's connection on to the one who is called, until both have said everything or the caller is gone.
pub async fn splice(caller: impl AsyncRead + AsyncWrite, called: impl AsyncRead + AsyncWrite) {
    let (mut from_caller, mut to_caller) = split(caller);
    let (mut from_called, mut to_called) = split(called);
    let deaf = Notify::new();
    let mut up = pin!(async {
        match pass(&mut from_caller, &mut to_called).await {
            Err(Broken::Listener(error)) => {
                tracing::trace!(%error, "what a caller says is not heard");
                deaf.notify_one();
                pass(&mut from_caller, &mut sink()).await
            }
            ended => ended,
        }
    });
    let mut down = pin!(async {
        if let Err(broken) = pass(&mut from_called, &mut to_caller).await {
            tracing::trace!(?broken, "a caller may not have heard everything");
            let _ = to_caller.shutdown().await;
            deaf.notify_one();
        }
    });
    tokio::select! {
        heard = &mut up => match heard {
            Ok(()) => down.await,
            Err(broken) => tracing::trace!(?broken, "a caller is gone"),
        },
        () = &mut down => {
            let patience = async {
                deaf.notified().await;
                tokio::time::sleep(LINGER).await;
            };
            tokio::select! {
                _ = up => {}
                () = patience => {}
            }
        }
    }
}

/// Whose connection broke.
#[derive(Debug)]
enum Broken {
    /// It can't be known whether there was more to say.
    Speaker(#[expect(dead_code, reason = "shown in a trace")] io::Error),
    /// What was said did not arrive.
    Listener(io::Error),
}

/// Passes on what one side says until it has said everything, and then tells the other.
async fn pass(
    speaker: &mut (impl AsyncRead + Unpin),
    listener: &mut (impl AsyncWrite + Unpin),
) -> Result<(), Broken> {
    let mut buffer = vec![0; UNDER_WAY];
    loop {
        match speaker.read(&mut buffer).await.map_err(Broken::Speaker)? {
            0 => return listener.shutdown().await.map_err(Broken::Listener),
            count => listener.write_all(&buffer[..count]).await.map_err(Broken::Listener)?,
        }
        listener.flush().await.map_err(Broken::Listener)?;
    }
}
