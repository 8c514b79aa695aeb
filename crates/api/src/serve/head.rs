//! Strict rules for the head of a request.
//!
//! hyper accepts heads that other HTTP servers and proxies read differently: a line that ends with a bare LF, a
//! repeated `Host`, `Content-Length` beside `Transfer-Encoding`. Such a head can make a proxy and this server
//! disagree about where a request ends, or about whom it comes from. [`scan_head`] refuses them.
//!
//! It is not a parser: it splits the head into lines, looks at four fields, and leaves everything else to hyper,
//! which sees only heads that passed. Both therefore agree on the length of every body: `Content-Length` occurs
//! at most once and is a number, or `Transfer-Encoding` occurs once and is `chunked`.

use http::StatusCode;

/// Result of [`scan_head`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadScan {
    /// The head does not end within the bytes.
    Incomplete,
    /// The head ends after this number of bytes, and this body follows.
    Complete(usize, BodyLength),
    /// The head breaks a rule.
    Malformed(HeadError),
}

/// The length of a body, according to its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLength {
    /// This number of bytes.
    Bytes(u64),
    /// Chunks, the last of which is empty.
    Chunked,
}

/// A rule that a head breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadError {
    BareLineFeed,
    FoldedLine,
    MissingHost,
    RepeatedHost,
    RepeatedAuthorization,
    RepeatedContentLength,
    InvalidContentLength,
    InvalidTransferEncoding,
    TwoLengths,
    TooLarge,
}

impl HeadError {
    /// Returns the status of the response.
    pub(super) fn status(self) -> StatusCode {
        match self {
            HeadError::BareLineFeed
            | HeadError::FoldedLine
            | HeadError::MissingHost
            | HeadError::RepeatedHost
            | HeadError::RepeatedAuthorization
            | HeadError::RepeatedContentLength
            | HeadError::InvalidContentLength
            | HeadError::InvalidTransferEncoding
            | HeadError::TwoLengths => StatusCode::BAD_REQUEST,
            HeadError::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        }
    }

    /// Returns the explanation for the caller.
    pub(super) fn detail(self) -> &'static str {
        match self {
            HeadError::BareLineFeed => {
                "A header line ends with LF only. End every line with CR LF."
            }
            HeadError::FoldedLine => {
                "A header line begins with a space. Write every header on one line."
            }
            HeadError::MissingHost => "The header `Host` is missing. HTTP/1.1 requires it.",
            HeadError::RepeatedHost => "The header `Host` is repeated. Send it once.",
            HeadError::RepeatedAuthorization => {
                "The header `Authorization` is repeated. Send it once."
            }
            HeadError::RepeatedContentLength => {
                "The header `Content-Length` is repeated. Send it once."
            }
            HeadError::InvalidContentLength => "The header `Content-Length` is not a valid number.",
            HeadError::InvalidTransferEncoding => {
                "The header `Transfer-Encoding` may only be `chunked`, once, and only in HTTP/1.1."
            }
            HeadError::TwoLengths => {
                "The headers `Content-Length` and `Transfer-Encoding` cannot be combined. Send one of them."
            }
            HeadError::TooLarge => {
                "The request line and headers are larger than 32 KiB. Send fewer or shorter headers."
            }
        }
    }
}

/// Checks the head that `bytes` begin with, as far as it has arrived. Empty lines before it are part of it.
pub(super) fn scan_head(bytes: &[u8]) -> HeadScan {
    let mut fields: Option<Fields> = None;
    let mut start = 0;
    while let Some(length) = bytes[start..].iter().position(|byte| *byte == b'\n') {
        let Some(line) = bytes[start..start + length].strip_suffix(b"\r") else {
            return HeadScan::Malformed(HeadError::BareLineFeed);
        };
        start += length + 1;
        let checked = match &mut fields {
            None if line.is_empty() => Ok(()),
            None => {
                fields = Some(Fields::after_request_line(line));
                Ok(())
            }
            Some(fields) if line.is_empty() => match fields.body_length() {
                Ok(body) => return HeadScan::Complete(start, body),
                Err(error) => Err(error),
            },
            Some(fields) => fields.add(line),
        };
        if let Err(error) = checked {
            return HeadScan::Malformed(error);
        }
    }
    HeadScan::Incomplete
}

/// The fields of a head that the rules are about.
struct Fields {
    is_http_11: bool,
    has_host: bool,
    has_authorization: bool,
    content_length: Option<u64>,
    is_chunked: bool,
}

impl Fields {
    fn after_request_line(line: &[u8]) -> Fields {
        Fields {
            is_http_11: line.ends_with(b"HTTP/1.1"),
            has_host: false,
            has_authorization: false,
            content_length: None,
            is_chunked: false,
        }
    }

    fn add(&mut self, line: &[u8]) -> Result<(), HeadError> {
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            return Err(HeadError::FoldedLine);
        }
        // hyper refuses a line without a colon, and a name that ends with a blank.
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return Ok(());
        };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        match name.len() {
            4 if is(b"host") => once(&mut self.has_host, HeadError::RepeatedHost),
            13 if is(b"authorization") => once(
                &mut self.has_authorization,
                HeadError::RepeatedAuthorization,
            ),
            14 if is(b"content-length") => {
                if self.content_length.is_some() {
                    return Err(HeadError::RepeatedContentLength);
                }
                let length = number(trimmed(value)).ok_or(HeadError::InvalidContentLength)?;
                self.content_length = Some(length);
                Ok(())
            }
            17 if is(b"transfer-encoding") => {
                if !trimmed(value).eq_ignore_ascii_case(b"chunked") || !self.is_http_11 {
                    return Err(HeadError::InvalidTransferEncoding);
                }
                once(&mut self.is_chunked, HeadError::InvalidTransferEncoding)
            }
            _ => Ok(()),
        }
    }

    fn body_length(&self) -> Result<BodyLength, HeadError> {
        if self.is_http_11 && !self.has_host {
            return Err(HeadError::MissingHost);
        }
        match (self.content_length, self.is_chunked) {
            (Some(_), true) => Err(HeadError::TwoLengths),
            (None, true) => Ok(BodyLength::Chunked),
            (length, false) => Ok(BodyLength::Bytes(length.unwrap_or_default())),
        }
    }
}

fn once(seen: &mut bool, repeated: HeadError) -> Result<(), HeadError> {
    match std::mem::replace(seen, true) {
        false => Ok(()),
        true => Err(repeated),
    }
}

/// Removes blanks and tabs around a value.
fn trimmed(value: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let start = value.iter().position(is_text).unwrap_or(value.len());
    let end = value
        .iter()
        .rposition(is_text)
        .map_or(start, |last| last + 1);
    &value[start..end]
}

/// Parses decimal digits, without a sign.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &str) -> HeadScan {
        scan_head(format!("POST /v1 HTTP/1.1\r\n{fields}\r\n").as_bytes())
    }

    #[test]
    fn the_length_of_the_body_is_found() {
        let text = b"\r\nPOST / HTTP/1.1\r\nhost: a\r\nContent-Length: \t12 \r\n\r\nmore";
        let complete = HeadScan::Complete(text.len() - 4, BodyLength::Bytes(12));
        assert_eq!(scan_head(text), complete);
        for length in 0..text.len() - 4 {
            assert_eq!(scan_head(&text[..length]), HeadScan::Incomplete, "{length}");
        }
        let body = |fields| match head(fields) {
            HeadScan::Complete(_, body) => body,
            other @ (HeadScan::Incomplete | HeadScan::Malformed(_)) => panic!("{other:?}"),
        };
        assert_eq!(body("Host:\r\n"), BodyLength::Bytes(0));
        let chunked = body("Host: a\r\nTransfer-Encoding: Chunked\r\n");
        assert_eq!(chunked, BodyLength::Chunked);
        let old = scan_head(b"GET / HTTP/1.0\r\n\r\n");
        assert_eq!(old, HeadScan::Complete(18, BodyLength::Bytes(0)));
    }

    #[test]
    fn ambiguous_heads_are_refused() {
        use HeadError::*;
        for (fields, error) in [
            ("Host: a\nX: b\r\n", BareLineFeed),
            ("Host: a\r\n\n", BareLineFeed),
            ("Host: a\r\n folded\r\n", FoldedLine),
            ("Host: a\r\n\tfolded\r\n", FoldedLine),
            ("X: a\r\n", MissingHost),
            ("Host: a\r\nHOST: a\r\n", RepeatedHost),
            (
                "Host: a\r\nAuthorization: a\r\nauthorization: a\r\n",
                RepeatedAuthorization,
            ),
            (
                "Host: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n",
                RepeatedContentLength,
            ),
            (
                "Host: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n",
                RepeatedContentLength,
            ),
            ("Host: a\r\nContent-Length: 5, 5\r\n", InvalidContentLength),
            ("Host: a\r\nContent-Length: +5\r\n", InvalidContentLength),
            ("Host: a\r\nContent-Length:\r\n", InvalidContentLength),
            (
                "Host: a\r\nContent-Length: 18446744073709551616\r\n",
                InvalidContentLength,
            ),
            (
                "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n",
                InvalidTransferEncoding,
            ),
            (
                "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                InvalidTransferEncoding,
            ),
            (
                "Host: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                TwoLengths,
            ),
            (
                "Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                TwoLengths,
            ),
        ] {
            assert_eq!(head(fields), HeadScan::Malformed(error), "{fields:?}");
        }
        let line_feed = HeadScan::Malformed(BareLineFeed);
        assert_eq!(scan_head(b"GET / HTTP/1.1\nHost: a"), line_feed);
        assert_eq!(scan_head(b"\n"), line_feed);
        let chunked = b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        let refused = HeadScan::Malformed(InvalidTransferEncoding);
        assert_eq!(scan_head(chunked), refused);
    }

    #[test]
    fn other_fields_may_be_repeated() {
        let fields = "Host: a\r\nAccept: a\r\nAccept: b\r\nno colon\r\nHosts: a\r\n";
        let complete = matches!(head(fields), HeadScan::Complete(..));
        assert!(complete, "{:?}", head(fields));
    }
}
