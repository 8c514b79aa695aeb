//! Finds the heads in the bytes of a connection.
//!
//! [`RequestScanner`] follows the requests on a connection: head, body, head, body. It checks every head with
//! [`scan_head`] and passes over bodies, so that a line feed in a body means nothing. Its view of a body is that of
//! hyper: the head rules leave one way to read a length, and [`Chunks`] accepts every chunked body that hyper
//! accepts, with the same end. hyper closes the connection on a body that it does not accept.

use super::head::{BodyLength, HeadError, HeadScan, scan_head};

/// Result of [`RequestScanner::scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scanned {
    /// All bytes are checked.
    All,
    /// The bytes from this index on are the beginning of a head. Scan them again when more has arrived.
    Until(usize),
    /// The head at this index breaks a rule.
    Refused(usize, HeadError),
}

/// The position within the requests of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestScanner {
    /// Before a head.
    Head,
    /// Within a body, this number of bytes before its end.
    Body(u64),
    /// Within a chunked body.
    Chunked(Chunks),
}

impl RequestScanner {
    /// Scans the next bytes of the connection.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Scanned {
        let mut index = 0;
        while index < bytes.len() {
            let rest = &bytes[index..];
            match self {
                RequestScanner::Head => match scan_head(rest) {
                    HeadScan::Incomplete => return Scanned::Until(index),
                    HeadScan::Malformed(error) => return Scanned::Refused(index, error),
                    HeadScan::Complete(length, body) => {
                        index += length;
                        *self = match body {
                            BodyLength::Bytes(0) => RequestScanner::Head,
                            BodyLength::Bytes(length) => RequestScanner::Body(length),
                            BodyLength::Chunked => RequestScanner::Chunked(Chunks::START),
                        };
                    }
                },
                RequestScanner::Body(remaining) => {
                    let passed = passed_over(rest, remaining);
                    index += passed;
                    if *remaining == 0 {
                        *self = RequestScanner::Head;
                    }
                }
                RequestScanner::Chunked(chunks) => {
                    let (passed, has_ended) = chunks.pass_over(rest);
                    index += passed;
                    if has_ended {
                        *self = RequestScanner::Head;
                    }
                }
            }
        }
        Scanned::All
    }
}

/// Takes as many bytes from `remaining` as there are, and returns their number.
fn passed_over(bytes: &[u8], remaining: &mut u64) -> usize {
    let passed = usize::try_from(*remaining).map_or(bytes.len(), |left| left.min(bytes.len()));
    *remaining -= passed as u64;
    passed
}

/// The position within a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunks {
    /// Within the line of a size, with the size so far.
    Size { bytes: u64, has_ended: bool },
    /// Within a chunk or the line end after it, this number of bytes before the next size.
    Data(u64),
    /// At the begin of a line after the last chunk.
    TrailerStart,
    /// After a CR at the begin of such a line.
    LastLine,
    /// Within such a line.
    Trailer,
    /// After a CR within such a line.
    TrailerEnd,
}

impl Chunks {
    const START: Chunks = Chunks::Size {
        bytes: 0,
        has_ended: false,
    };
    /// Length of the line end after a chunk.
    const LINE_END_BYTES: u64 = 2;

    /// Passes over bytes of the body. Returns their number, and true if the body ends with them.
    fn pass_over(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut index = 0;
        while index < bytes.len() {
            if let Chunks::Data(remaining) = self {
                index += passed_over(&bytes[index..], remaining);
                if *remaining == 0 {
                    *self = Chunks::START;
                }
                continue;
            }
            let byte = bytes[index];
            index += 1;
            *self = match *self {
                Chunks::Data(_) => unreachable!("handled above"),
                Chunks::Size { bytes: 0, .. } if byte == b'\n' => Chunks::TrailerStart,
                Chunks::Size { bytes, .. } if byte == b'\n' => {
                    Chunks::Data(bytes.saturating_add(Chunks::LINE_END_BYTES))
                }
                Chunks::Size { bytes, has_ended } => match char::from(byte).to_digit(16) {
                    Some(digit) if !has_ended => Chunks::Size {
                        bytes: bytes.saturating_mul(16).saturating_add(digit.into()),
                        has_ended,
                    },
                    Some(_) | None => Chunks::Size {
                        bytes,
                        has_ended: true,
                    },
                },
                Chunks::TrailerStart if byte == b'\r' => Chunks::LastLine,
                Chunks::Trailer if byte == b'\r' => Chunks::TrailerEnd,
                Chunks::LastLine if byte == b'\n' => return (index, true),
                Chunks::TrailerEnd if byte == b'\n' => Chunks::TrailerStart,
                Chunks::TrailerStart | Chunks::Trailer => Chunks::Trailer,
                // hyper refuses a CR without LF here.
                Chunks::LastLine | Chunks::TrailerEnd => Chunks::Trailer,
            };
        }
        (index, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "POST / HTTP/1.1\r\nHost: a\r\n";

    fn requests() -> Vec<u8> {
        let sized = format!("{HEAD}Content-Length: 8\r\n\r\n\n\n\nGET\n\n");
        let chunked = format!(
            "{HEAD}Transfer-Encoding: chunked\r\n\r\n\
             5\r\n\na\nb\n\r\nA;name=\"f\"\r\n0\r\n\r\n\n\n\n\n\n\r\n000\r\nTrailer: \n0\r\nB: c\r\n\r\n"
        );
        let plain = format!("{HEAD}\r\n");
        format!("{plain}{sized}{chunked}{plain}{chunked}").into_bytes()
    }

    #[test]
    fn line_feeds_in_bodies_mean_nothing() {
        let mut scanner = RequestScanner::Head;
        assert_eq!(scanner.scan(&requests()), Scanned::All);
        assert_eq!(scanner, RequestScanner::Head);
    }

    #[test]
    fn result_does_not_depend_on_how_the_bytes_arrive() {
        let mut all = requests();
        let refused_at = all.len();
        all.extend_from_slice(b"GET / HTTP/1.1\nHost: a\r\n\r\n");
        for length in 1..60 {
            let mut scanner = RequestScanner::Head;
            let mut passed = 0;
            let mut arrived = 0;
            let error = loop {
                arrived = (arrived + length).min(all.len());
                match scanner.scan(&all[passed..arrived]) {
                    Scanned::All => passed = arrived,
                    Scanned::Until(index) => passed += index,
                    Scanned::Refused(index, error) => {
                        passed += index;
                        break error;
                    }
                }
            };
            assert_eq!((passed, error), (refused_at, HeadError::BareLineFeed));
        }
    }
}
