//! As much of SPDY/3.1 as port-forward needs: streams opened by the other side, data both ways, pings.
//!
//! There is no flow control: the implementation that clients use has none. Header blocks that are sent are
//! compressed in name only, which every reader takes.

use std::collections::BTreeMap;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

/// What one side tells the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Open { stream: u32, headers: BTreeMap<String, String> },
    Data { stream: u32, bytes: Vec<u8>, last: bool },
    Reset { stream: u32 },
    Ping(u32),
    GoAway,
    Other,
}

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const FIN: u8 = 1;
/// No frame of port-forward is nearly as large.
const LARGEST: usize = 1 << 20;

/// Reads frames from a stream of bytes.
#[derive(Default)]
pub(crate) struct Reader {
    buffer: Vec<u8>,
    headers: Option<Inflater>,
}

impl Reader {
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame; none when more bytes must come first.
    pub fn next(&mut self) -> Result<Option<Frame>, &'static str> {
        let Some(head) = self.buffer.first_chunk::<8>() else { return Ok(None) };
        let flags = head[4];
        let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        if length > LARGEST {
            return Err("a frame is too large");
        }
        if self.buffer.len() < 8 + length {
            return Ok(None);
        }
        let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let payload: Vec<u8> = self.buffer.drain(..8 + length).skip(8).collect();
        if first >> 31 == 0 {
            return Ok(Some(Frame::Data { stream: first, bytes: payload, last: flags & FIN != 0 }));
        }
        let number = |at: usize| -> Result<u32, &'static str> {
            let bytes = payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_be_bytes).ok_or("a frame is too short")
        };
        Ok(Some(match (first & 0xffff) as u16 {
            SYN_STREAM => {
                let stream = number(0)? & 0x7fff_ffff;
                let block = payload.get(10..).ok_or("a frame is too short")?;
                let text = self.headers.get_or_insert_with(Inflater::default).inflate(block)?;
                Frame::Open { stream, headers: headers(&text)? }
            }
            RST_STREAM => Frame::Reset { stream: number(0)? & 0x7fff_ffff },
            PING => Frame::Ping(number(0)?),
            GOAWAY => Frame::GoAway,
            _ => Frame::Other,
        }))
    }
}

/// A header block: a count, then names and values, each with its length before it.
fn headers(text: &[u8]) -> Result<BTreeMap<String, String>, &'static str> {
    const SHORT: &str = "a header block is too short";
    let number = |rest: &mut &[u8]| -> Result<usize, &'static str> {
        let (bytes, tail) = rest.split_first_chunk::<4>().ok_or(SHORT)?;
        *rest = tail;
        Ok(u32::from_be_bytes(*bytes) as usize)
    };
    let word = |rest: &mut &[u8]| -> Result<String, &'static str> {
        let length = number(rest)?;
        let (bytes, tail) = rest.split_at_checked(length).ok_or(SHORT)?;
        *rest = tail;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    };
    let mut rest = text;
    let count = number(&mut rest)?;
    let mut headers = BTreeMap::new();
    for _ in 0..count {
        let name = word(&mut rest)?;
        let value = word(&mut rest)?;
        headers.insert(name.to_ascii_lowercase(), value);
    }
    Ok(headers)
}

/// Writes frames.
#[derive(Default)]
pub(crate) struct Writer {
    begun: bool,
}

impl Writer {
    /// Accepts a stream, without headers.
    pub fn reply(&mut self, stream: u32) -> Vec<u8> {
        let mut payload = stream.to_be_bytes().to_vec();
        if !self.begun {
            // What a compressed stream begins with.
            payload.extend([0x78, 0x01]);
            self.begun = true;
        }
        let block = 0u32.to_be_bytes();
        let length = block.len() as u16;
        // A part that is stored as it is: its kind, its length, and the length's complement.
        payload.push(0);
        payload.extend(length.to_le_bytes());
        payload.extend((!length).to_le_bytes());
        payload.extend(block);
        // An empty part. Readers hand out what they have when they see one, and else read on, past the frame.
        payload.extend([0, 0, 0, 0xff, 0xff]);
        control(SYN_REPLY, &payload)
    }

    pub fn ping(number: u32) -> Vec<u8> {
        control(PING, &number.to_be_bytes())
    }

    pub fn data(stream: u32, bytes: &[u8], last: bool) -> Vec<u8> {
        let mut frame = stream.to_be_bytes().to_vec();
        frame.extend(length(bytes.len(), if last { FIN } else { 0 }));
        frame.extend_from_slice(bytes);
        frame
    }
}

fn control(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = (0x8003_0000 | u32::from(kind)).to_be_bytes().to_vec();
    frame.extend(length(payload.len(), 0));
    frame.extend_from_slice(payload);
    frame
}

fn length(length: usize, flags: u8) -> [u8; 4] {
    let [_, a, b, c] = u32::try_from(length).unwrap_or(0).to_be_bytes();
    [flags, a, b, c]
}

const WINDOW: usize = 32 * 1024;

/// Header blocks are one compressed stream for the whole connection, that begins with a dictionary.
struct Inflater {
    state: Box<DecompressorOxide>,
    window: Vec<u8>,
    at: usize,
    begun: bool,
}

impl Default for Inflater {
    fn default() -> Self {
        let mut window = dictionary();
        let at = window.len();
        window.resize(WINDOW, 0);
        Self { state: Box::default(), window, at, begun: false }
    }
}

impl Inflater {
    fn inflate(&mut self, block: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut input = block;
        if !self.begun {
            // Two bytes of header, and four that name the dictionary where there is one.
            let header = input.get(..2).ok_or("a header block is too short")?;
            let skipped = if header[1] & 0x20 != 0 { 6 } else { 2 };
            input = input.get(skipped..).ok_or("a header block is too short")?;
            self.begun = true;
        }
        let mut out = Vec::new();
        loop {
            let flags = inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
            let (status, read, written) =
                decompress(&mut self.state, input, &mut self.window, self.at, flags);
            out.extend_from_slice(&self.window[self.at..self.at + written]);
            self.at = (self.at + written) % WINDOW;
            input = input.get(read..).unwrap_or_default();
            match status {
                TINFLStatus::NeedsMoreInput => return Ok(out),
                TINFLStatus::HasMoreOutput if out.len() < LARGEST => {}
                _ => return Err("a header block is damaged"),
            }
        }
    }
}

/// The dictionary of SPDY/3: words with their lengths before them, then text.
fn dictionary() -> Vec<u8> {
    const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
        accept-ranges age allow authorization cache-control connection content-base content-encoding \
        content-language content-length content-location content-md5 content-range content-type date etag expect \
        expires from host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified \
        location max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server te \
        trailer transfer-encoding upgrade user-agent vary via warning www-authenticate method get status 200_OK \
        version HTTP/1.1 url public set-cookie keep-alive origin";
    const TEXT: &str = "1001012012022052063003023033043053063074024054064074084094104114124134144154164175025045\
        05203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 \
        Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr \
        May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,\
        image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,public\
        privatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";
    let mut bytes = Vec::new();
    for word in WORDS.split_ascii_whitespace() {
        bytes.extend(u32::try_from(word.len()).unwrap_or(0).to_be_bytes());
        bytes.extend(word.replace('_', " ").as_bytes());
    }
    bytes.extend(TEXT.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_one_that_both_sides_know() {
        let bytes = dictionary();
        let (a, b) = bytes.iter().fold((1u32, 0u32), |(a, b), byte| {
            let a = (a + u32::from(*byte)) % 65521;
            (a, (b + a) % 65521)
        });
        assert_eq!((bytes.len(), b << 16 | a), (1423, 0xe3c6_a7c2));
    }

    #[test]
    fn frames_are_read_however_they_are_cut() {
        let mut bytes = Writer::data(3, b"hello", false);
        bytes.extend(Writer::ping(7));
        bytes.extend(Writer::data(3, b"", true));
        for size in [1, 5, 100] {
            let mut reader = Reader::default();
            let mut frames = Vec::new();
            for piece in bytes.chunks(size) {
                reader.feed(piece);
                while let Some(frame) = reader.next().unwrap() {
                    frames.push(frame);
                }
            }
            let data = |bytes: &[u8], last| Frame::Data { stream: 3, bytes: bytes.to_vec(), last };
            assert_eq!(frames, [data(b"hello", false), Frame::Ping(7), data(b"", true)]);
        }
    }

    #[test]
    fn headers_that_another_compressed_are_read() {
        let frames = [
            "800300010000003e0000000100000000000078f9e3c6a7c202253a50120fc82f0227750b030b0320cd098daf4c503a66048970059714\
             a526e6420b1bd654505400000000ffff",
            "800300010000001600000003000000000000225333a8a44a04000000ffff",
        ];
        let mut reader = Reader::default();
        for (frame, (number, kind)) in frames.into_iter().zip([(1, "error"), (3, "data")]) {
            let digits = frame.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
            let bytes: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
            reader.feed(&bytes);
            let Some(Frame::Open { stream, headers }) = reader.next().unwrap() else { panic!("no stream") };
            let expected = [("port", "8080"), ("requestid", "0"), ("streamtype", kind)];
            assert_eq!(stream, number);
            assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        }
    }
}
