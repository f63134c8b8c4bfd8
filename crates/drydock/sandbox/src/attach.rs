//! What a container writes, as it is passed on to those who attached: the output's number, a length, the bytes.

use std::io;
use std::os::unix::net::UnixStream as BlockingStream;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use crate::log::Output;

/// Passes a piece on; false when the receiver is gone, or so slow that it holds the container up.
pub(crate) fn pass_on(mut client: &BlockingStream, output: Output, bytes: &[u8]) -> bool {
    use std::io::Write;
    let mut frame = vec![if output == Output::Out { 1 } else { 2 }];
    frame.extend(u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes());
    frame.extend(bytes);
    client.write_all(&frame).is_ok()
}

/// Whether a piece came from standard error, and the piece; none at the end.
pub(crate) async fn piece(stream: &mut UnixStream) -> io::Result<Option<(bool, Vec<u8>)>> {
    let output = match stream.read_u8().await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let length = stream.read_u32_le().await?;
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes).await?;
    Ok(Some((output == 2, bytes)))
}
