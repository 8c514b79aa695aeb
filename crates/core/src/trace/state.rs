//! The `tracestate` header: data that tracing systems pass along with a trace.
//!
//! [`TraceState`] holds the members of the header as they were received. An invalid header is dropped as a whole. A
//! header longer than [`MAX_STATE_CHARS`] loses whole members, long ones first, as the standard prescribes. The
//! contents are never interpreted, and `Debug` does not show them.

use std::fmt;

/// Maximum length of a `tracestate`. Members of a longer one are dropped in the order of the standard.
pub const MAX_STATE_CHARS: usize = 512;
/// Maximum number of members of a `tracestate`. One with more is invalid.
pub const MAX_STATE_MEMBERS: usize = 32;
/// Members longer than this are dropped first.
const LONG_MEMBER_CHARS: usize = 128;
/// Maximum length of a member's name, and of its value.
const MAX_PART_CHARS: usize = 256;

/// The members of a `tracestate`: `name=value`, separated by commas. `Debug` shows none of them, because they may
/// contain anything.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TraceState(Box<str>);

impl TraceState {
    /// Parses the values of the header, in their order.
    pub(super) fn read<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<TraceState> {
        let mut members: Vec<&str> = Vec::new();
        for value in values {
            for member in value.split(',') {
                let member = member.trim_matches([' ', '\t']);
                // The standard allows empty members.
                if member.is_empty() {
                    continue;
                }
                let name = name_of(member)?;
                let twice = members.iter().any(|other| name_of(other) == Some(name));
                if twice || members.len() == MAX_STATE_MEMBERS {
                    return None;
                }
                members.push(member);
            }
        }
        shorten(&mut members);
        Some(TraceState(members.join(",").into()))
    }

    /// Returns true if there are no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the header value.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TraceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = self.0.split(',').filter(|member| !member.is_empty());
        f.debug_struct("TraceState")
            .field("members", &members.count())
            .finish_non_exhaustive()
    }
}

/// Drops members until the rest is short enough: long ones first, then from the end.
fn shorten(members: &mut Vec<&str>) {
    let chars = |members: &[&str]| members.iter().map(|it| it.len() + 1).sum::<usize>();
    while chars(members) > MAX_STATE_CHARS + 1 {
        let is_long = |member: &&str| member.len() > LONG_MEMBER_CHARS;
        let index = members.iter().rposition(is_long);
        members.remove(index.unwrap_or(members.len() - 1));
    }
}

/// Returns the name of a member, or `None` if the member is invalid.
fn name_of(member: &str) -> Option<&str> {
    let (name, value) = member.split_once('=')?;
    (is_name(name) && is_value(value)).then_some(name)
}

fn is_name(name: &str) -> bool {
    let begins = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let goes_on = |byte: u8| begins(byte) || b"_-*/@".contains(&byte);
    name.len() <= MAX_PART_CHARS
        && name.bytes().next().is_some_and(begins)
        && name.bytes().all(goes_on)
}

fn is_value(value: &str) -> bool {
    let visible = |byte: u8| matches!(byte, b' '..=b'~') && byte != b',' && byte != b'=';
    (1..=MAX_PART_CHARS).contains(&value.len())
        && value.bytes().all(visible)
        && !value.ends_with(' ')
}
