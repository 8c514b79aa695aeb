//! Time zones by IANA name, from the data that is part of the program.
//!
//! The machine's own zone data is not used: it may be absent or old, and all nodes of a cluster must agree.

use std::sync::LazyLock;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};

use crate::quoted::quoted;
use crate::time::Timestamp;

/// Name of the zone of schedules that name none.
pub const DEFAULT_ZONE: &str = "UTC";
/// Maximum length of the name of a time zone.
const MAX_ZONE_CHARS: usize = 64;

/// The zone data, which is constant. Reading a zone parses it once.
static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A time zone.
#[derive(Clone, Debug)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

/// There is no time zone with this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given} is not a known IANA time zone; {hint}")]
pub struct UnknownZone {
    given: String,
    hint: String,
}

impl Zone {
    /// Finds a zone by its IANA name, in any case.
    pub fn find(name: &str) -> Result<Zone, UnknownZone> {
        let found = match name.len() <= MAX_ZONE_CHARS {
            true => DATABASE.get(name).ok(),
            false => None,
        };
        let found = found.filter(|zone| !zone.is_unknown());
        let named = found.and_then(|zone| Some((zone.iana_name()?.to_owned(), zone)));
        named
            .map(|(name, zone)| Zone { name, zone })
            .ok_or_else(|| unknown(name))
    }

    /// Returns the names of all zones, sorted.
    pub fn names() -> Vec<String> {
        let known = DATABASE.available();
        let mut names: Vec<String> = known.map(|name| name.as_str().to_owned()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the IANA name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the local time at an instant as `2026-11-20 09:00:00 +01:00`.
    pub fn local_text(&self, at: Timestamp) -> Option<String> {
        let offset = self.offset_at(at)?;
        let local = offset.to_datetime(self.instant(at)?);
        let seconds = offset.seconds();
        let sign = if seconds < 0 { '-' } else { '+' };
        let minutes = seconds.unsigned_abs() / 60;
        let local = local.strftime("%Y-%m-%d %H:%M:%S");
        Some(format!(
            "{local} {sign}{:02}:{:02}",
            minutes / 60,
            minutes % 60
        ))
    }

    pub(super) fn instant(&self, at: Timestamp) -> Option<jiff::Timestamp> {
        jiff::Timestamp::from_millisecond(i64::try_from(at.0).ok()?).ok()
    }

    pub(super) fn timestamp(&self, instant: jiff::Timestamp) -> Option<Timestamp> {
        u64::try_from(instant.as_millisecond()).ok().map(Timestamp)
    }

    /// Returns the offset from UTC at an instant.
    pub(super) fn offset_at(&self, at: Timestamp) -> Option<Offset> {
        self.instant(at).map(|instant| self.zone.to_offset(instant))
    }

    /// Returns the first change of the offset after an instant.
    pub(super) fn next_change(&self, after: Timestamp) -> Option<Timestamp> {
        let next = self.zone.following(self.instant(after)?).next()?;
        self.timestamp(next.timestamp())
    }

    /// Returns the first instant at which the clocks show a local time, or the first instant after the gap if they never do.
    pub(super) fn first_instant(&self, local: DateTime) -> Option<Timestamp> {
        let instant = match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local).ok()?,
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local).ok()?,
            AmbiguousOffset::Gap { after, .. } => {
                // By the offset that is not in force yet, the local time is before the gap.
                let earlier = after.to_timestamp(local).ok()?;
                self.zone.following(earlier).next()?.timestamp()
            }
        };
        self.timestamp(instant)
    }
}

fn unknown(name: &str) -> UnknownZone {
    let hint = match similar(name) {
        Some(similar) => format!("did you mean {similar}?"),
        None => "write a name such as Europe/Berlin or UTC".to_owned(),
    };
    UnknownZone {
        given: quoted(name),
        hint,
    }
}

/// Returns the zone that the name most probably means.
fn similar(name: &str) -> Option<String> {
    if name.is_empty() || name.len() > MAX_ZONE_CHARS {
        return None;
    }
    let wanted = simplified(name);
    let most = (wanted.len() / 4).clamp(1, 4);
    let candidates = Zone::names().into_iter().flat_map(|zone| {
        let city = zone.rsplit('/').next().map(simplified);
        let by_city = city.map(|city| distance(&wanted, &city));
        let by_name = distance(&wanted, &simplified(&zone));
        let best = by_city.map_or(by_name, |by_city| by_city.min(by_name));
        // Names without an area, such as "Turkey", are kept for compatibility only.
        let is_old = !zone.contains('/');
        (best <= most).then_some((best, is_old, zone))
    });
    candidates.min().map(|(_, _, zone)| zone)
}

fn simplified(name: &str) -> Vec<u8> {
    let bytes = name.bytes();
    let kept = bytes.filter(|byte| !matches!(byte, b' ' | b'_' | b'-'));
    kept.map(|byte| byte.to_ascii_lowercase()).collect()
}

/// Returns the number of characters to insert, remove or replace to make one text the other.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
