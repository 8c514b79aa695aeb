//! W3C Trace Context: the trace that an event belongs to.
//!
//! A producer that uses tracing sends the headers `traceparent` and `tracestate` with an event. [`TraceContext`] is
//! stored with the event and sent to the receiver, so that one trace covers the producer's request and the
//! receiver's. It guarantees:
//!
//! - Version 00 of the standard is written. Any later version can be read.
//! - Invalid headers are ignored: an invalid `traceparent` drops both, an invalid `tracestate` drops only itself.
//! - The size is limited to [`MAX_STATE_CHARS`] characters in [`MAX_STATE_MEMBERS`] members.

mod state;

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

pub use state::{MAX_STATE_CHARS, MAX_STATE_MEMBERS, TraceState};

use crate::rng::Rng;

/// Length of a `traceparent` of version 00, and of the part of a later version that can be read.
const PARENT_CHARS: usize = 55;
/// The version number that the standard forbids.
const FORBIDDEN_VERSION: u8 = 0xff;

/// The id of a trace. Never all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId([u8; 16]);

/// The id of a span of a trace. Never all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId([u8; 8]);

/// The flags of a trace. Bits that the standard does not define are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceFlags(u8);

impl TraceId {
    /// Creates an id from bytes, unless they are all zero.
    pub fn new(bytes: [u8; 16]) -> Option<TraceId> {
        (bytes != [0; 16]).then_some(TraceId(bytes))
    }

    /// Creates a random id for a new trace.
    pub fn random(rng: &mut Rng) -> TraceId {
        loop {
            let bits = u128::from(rng.bits()) << 64 | u128::from(rng.bits());
            if let Some(id) = TraceId::new(bits.to_be_bytes()) {
                return id;
            }
        }
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl SpanId {
    /// Creates an id from bytes, unless they are all zero.
    pub fn new(bytes: [u8; 8]) -> Option<SpanId> {
        (bytes != [0; 8]).then_some(SpanId(bytes))
    }

    /// Creates a random id for a new span.
    pub fn random(rng: &mut Rng) -> SpanId {
        loop {
            if let Some(id) = SpanId::new(rng.bits().to_be_bytes()) {
                return id;
            }
        }
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl TraceFlags {
    /// The caller may have recorded this trace.
    const SAMPLED: u8 = 0x01;
    /// The trace id was generated at random, at least its right-most seven bytes.
    const RANDOM: u8 = 0x02;

    /// Returns the flags of a trace that starts here, with an id from [`TraceId::random`].
    pub fn local(sampled: bool) -> TraceFlags {
        let sampled = if sampled { Self::SAMPLED } else { 0 };
        TraceFlags(sampled | Self::RANDOM)
    }

    fn known(bits: u8) -> TraceFlags {
        TraceFlags(bits & (Self::SAMPLED | Self::RANDOM))
    }

    /// Returns true if the system that started the trace records it.
    pub fn is_sampled(self) -> bool {
        self.0 & Self::SAMPLED != 0
    }

    /// Returns the flags as they are written.
    pub fn bits(self) -> u8 {
        self.0
    }
}

/// The position of a request in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span that caused the request.
    pub parent_id: SpanId,
    /// The flags of the trace.
    pub flags: TraceFlags,
    /// Data of tracing systems (`tracestate`); may be empty.
    pub state: TraceState,
}

impl TraceContext {
    /// Parses the two headers; `states` are the values of `tracestate`, of which there may be several.
    pub fn read<'a>(
        parent: &str,
        states: impl IntoIterator<Item = &'a str>,
    ) -> Option<TraceContext> {
        let (trace_id, parent_id, flags) = read_parent(parent)?;
        Some(TraceContext {
            trace_id,
            parent_id,
            flags,
            state: TraceState::read(states).unwrap_or_default(),
        })
    }

    /// Returns the context for a request that `span` of the same trace makes.
    pub fn within(&self, span: SpanId) -> TraceContext {
        TraceContext {
            parent_id: span,
            ..self.clone()
        }
    }

    /// Returns the value of `traceparent`.
    pub fn traceparent(&self) -> String {
        let (trace, parent) = (self.trace_id, self.parent_id);
        format!("00-{trace}-{parent}-{:02x}", self.flags.0)
    }
}

/// The stored form: `traceparent`, followed by a space and `tracestate` if there is one.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.traceparent())?;
        if !self.state.is_empty() {
            write!(f, " {}", self.state.as_str())?;
        }
        Ok(())
    }
}

/// The text is not a stored trace context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a valid trace context")]
pub struct TraceContextError;

impl FromStr for TraceContext {
    type Err = TraceContextError;

    fn from_str(text: &str) -> Result<TraceContext, TraceContextError> {
        let (parent, state) = text.split_once(' ').unwrap_or((text, ""));
        TraceContext::read(parent, [state]).ok_or(TraceContextError)
    }
}

fn read_parent(text: &str) -> Option<(TraceId, SpanId, TraceFlags)> {
    let bytes = text.as_bytes();
    let known = bytes.get(..PARENT_CHARS)?;
    let [version] = unhex(&known[..2])?;
    let ends_well = match version {
        FORBIDDEN_VERSION => false,
        0 => bytes.len() == PARENT_CHARS,
        // A later version may have more fields after another dash.
        1..FORBIDDEN_VERSION => matches!(bytes.get(PARENT_CHARS), None | Some(b'-')),
    };
    let dashed = [2, 35, 52].iter().all(|index| known[*index] == b'-');
    if !ends_well || !dashed {
        return None;
    }
    let [flags] = unhex(&known[53..55])?;
    Some((
        TraceId::new(unhex(&known[3..35])?)?,
        SpanId::new(unhex(&known[36..52])?)?,
        TraceFlags::known(flags),
    ))
}

/// Decodes hexadecimal digits; letters must be in lower case.
fn unhex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        0..=u8::MAX => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    (digits.len() == 2 * N).then_some(bytes)
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

#[cfg(test)]
mod tests;
