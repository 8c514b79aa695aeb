//! The part of a schedule that changes with its runs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::id::{EventId, ScheduleId};
use crate::time::Timestamp;

/// The status of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleStatus {
    /// It runs at its times.
    Active,
    /// It does not run until it is resumed. Its occurrences are missed.
    Paused,
    /// It has no occurrence left.
    Finished,
}

impl ScheduleStatus {
    /// Every status, in the order of the OpenAPI document.
    pub const ALL: [ScheduleStatus; 3] = [
        ScheduleStatus::Active,
        ScheduleStatus::Paused,
        ScheduleStatus::Finished,
    ];

    /// Returns the name of the status.
    pub fn name(self) -> &'static str {
        match self {
            ScheduleStatus::Active => "active",
            ScheduleStatus::Paused => "paused",
            ScheduleStatus::Finished => "finished",
        }
    }
}

impl fmt::Display for ScheduleStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is not the name of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be \"active\", \"paused\" or \"finished\"")]
pub struct UnknownStatus;

impl FromStr for ScheduleStatus {
    type Err = UnknownStatus;

    fn from_str(text: &str) -> Result<ScheduleStatus, UnknownStatus> {
        let mut all = ScheduleStatus::ALL.into_iter();
        all.find(|status| status.name() == text)
            .ok_or(UnknownStatus)
    }
}

/// The planner's memory between runs, except what the API shows. Stored as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleProgress {
    /// The time of the last resume. The schedule was paused at the occurrences before it that have not been planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_at: Option<Timestamp>,
    /// The run that is watched until its deliveries have ended. Without one it is the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<WatchedRun>,
}

/// A run whose deliveries have not ended, although later runs may have followed. It decides whether the schedule keeps
/// failing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedRun {
    /// Its event.
    #[serde(serialize_with = "write_event", deserialize_with = "read_event")]
    pub event: EventId,
    /// The time since which its deliveries are waited for.
    pub since: Timestamp,
}

fn write_event<S: Serializer>(event: &EventId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(event)
}

fn read_event<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EventId, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(de::Error::custom)
}

impl ScheduleProgress {
    /// Reads the stored form. Unreadable progress counts as none: it only decides whether an occurrence was missed and which
    /// run is watched.
    pub fn read(stored: &str) -> ScheduleProgress {
        serde_json::from_str(stored).unwrap_or_default()
    }

    /// Returns the stored form.
    pub fn stored(&self) -> String {
        serde_json::to_string(self).expect("progress is always JSON")
    }
}

/// The state of a schedule. The store keeps it and passes it to the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleState {
    /// The status.
    pub status: ScheduleStatus,
    /// The first occurrence that has not been planned. A paused schedule keeps it, to find what it missed when it is
    /// resumed; only active schedules are due at it. Absent once the schedule has finished.
    pub next_run_at: Option<Timestamp>,
    /// The time at which the last event was created.
    pub last_run_at: Option<Timestamp>,
    /// Number of events created, including those of runs started by hand.
    pub run_count: u64,
    /// The time at which the schedule was created. Fixed intervals without a start are counted from it.
    pub created_at: Timestamp,
    /// The rest of the planner's memory.
    pub progress: ScheduleProgress,
}

impl ScheduleState {
    /// Returns the state of the schedule when it is paused. A finished schedule stays finished.
    #[must_use]
    pub fn paused(&self) -> ScheduleState {
        let status = match self.status {
            ScheduleStatus::Active | ScheduleStatus::Paused => ScheduleStatus::Paused,
            ScheduleStatus::Finished => ScheduleStatus::Finished,
        };
        ScheduleState {
            status,
            ..self.clone()
        }
    }
}

/// Names the run that created an event. Stored with the event, and sent to the receiver as `posthaste-schedule-id` and
/// `posthaste-scheduled-for`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledRun {
    /// The schedule, of the event's tenant.
    pub schedule: ScheduleId,
    /// The occurrence.
    pub scheduled_for: Timestamp,
}
