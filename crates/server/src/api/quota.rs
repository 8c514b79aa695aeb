//! What a tenant's plan allows, and what it is told when it wants more.
//!
//! The answer is 429 with `Retry-After`, which is long where only a change of the plan helps; where the
//! payload is too large, 413. Each names the limit.

use std::sync::{Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use posthaste_core::mistakes::Mistakes;
use posthaste_core::policy::RetryPolicy;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{EventFilter, Limits, PageRequest, Tenant};

use super::App;
use super::auth::KnownTenant;
use super::code::Code;
use super::paging::MAX_LIMIT;
use super::problem::Problem;
use super::settings::Pace;

/// When to ask again, where nobody knows when the plan will allow more.
const PLAN_WAIT: Span = Span::from_hours(1);

/// How many events a tenant has sent in a calendar month, in UTC. Counted from the store when it is
/// first asked for, and kept up to date from then on.
#[derive(Debug, Default)]
pub struct MonthMeter {
    spent: Mutex<Option<Spent>>,
    /// Held by whoever counts, so that others wait for the figure.
    counting: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Debug)]
struct Spent {
    month: Month,
    events: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Month {
    begins_at: Timestamp,
    ends_at: Timestamp,
}

/// Events that are about to be accepted. Those that are not are given back.
pub struct Reserved<'a> {
    meter: &'a MonthMeter,
    month: Month,
    events: u64,
}

impl Reserved<'_> {
    /// So many were accepted.
    pub fn keep(mut self, accepted: u64) {
        self.events = self.events.saturating_sub(accepted);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(spent) = &mut *self.meter.spent()
            && spent.month == self.month
        {
            spent.events = spent.events.saturating_sub(self.events);
        }
    }
}

impl MonthMeter {
    fn spent(&self) -> MutexGuard<'_, Option<Spent>> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Spends `events`, if it is known how much was spent before. Says whether there was room.
    fn spend(&self, month: Month, events: u64, limit: u64) -> Option<bool> {
        let mut spent = self.spent();
        let spent = spent.as_mut().filter(|spent| spent.month == month)?;
        let fits = spent.events.saturating_add(events) <= limit;
        if fits {
            spent.events += events;
        }
        Some(fits)
    }
}

impl Month {
    /// The month that `now` is in.
    fn of(now: Timestamp) -> Month {
        // A time is written with its year and month first, and read back by the same rules.
        let text = now.to_string();
        let mut parts = text.split('-');
        let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok());
        let (year, month) = number().zip(number()).expect("a time has a month");
        let first_day = |year: u32, month: u32| {
            let text = format!("{year:04}-{month:02}-01T00:00:00Z");
            // After the last year that can be written there is no month.
            text.parse().unwrap_or(now)
        };
        Month {
            begins_at: first_day(year, month),
            ends_at: match month {
                12 => first_day(year + 1, 1),
                1..=11 => first_day(year, month + 1),
                0 | 13.. => now,
            },
        }
    }
}

impl App {
    /// Spends `count` of the tenant's events per second.
    pub fn admit_events(&self, tenant: &KnownTenant, count: u32) -> Result<(), Problem> {
        let Some(per_second) = self.limits_of(&tenant.tenant).events_per_second else {
            return Ok(());
        };
        if per_second == 0 {
            let detail = "The limit events_per_second is 0: this tenant may send no events.";
            return Err(Problem::new(Code::QuotaExceeded, detail).after(PLAN_WAIT));
        }
        let pace = Pace {
            per_second,
            burst: per_second,
        };
        let now = self.clock.now().tick;
        tenant.meter.spend(now, pace, count).map_err(|wait| {
            let detail = format!(
                "The limit events_per_second is {per_second}. Nothing was accepted; send it again after Retry-After."
            );
            Problem::new(Code::QuotaExceeded, detail).after(wait)
        })
    }

    /// Spends `count` of the tenant's events per month, unless it may send any number.
    pub async fn reserve_events<'a>(
        &self,
        tenant: &'a KnownTenant,
        now: Timestamp,
        count: u64,
    ) -> Result<Option<Reserved<'a>>, Problem> {
        let Some(limit) = self.limits_of(&tenant.tenant).events_per_month else {
            return Ok(None);
        };
        let (meter, month) = (&tenant.month, Month::of(now));
        let fits = match meter.spend(month, count, limit) {
            Some(fits) => fits,
            None => {
                let _turn = meter.counting.lock().await;
                // Somebody else may have counted meanwhile.
                match meter.spend(month, count, limit) {
                    Some(fits) => fits,
                    None => {
                        let events = self.events_since(&tenant.tenant, month, limit).await?;
                        *meter.spent() = Some(Spent { month, events });
                        meter.spend(month, count, limit).unwrap_or(false)
                    }
                }
            }
        };
        if fits {
            return Ok(Some(Reserved {
                meter,
                month,
                events: count,
            }));
        }
        let detail = format!(
            "The limit events_per_month is {limit}. Nothing was accepted; the next month begins at {}.",
            month.ends_at
        );
        let wait = month.ends_at.0.saturating_sub(now.0);
        Err(Problem::new(Code::QuotaExceeded, detail).after(Span::from_millis(wait)))
    }

    /// How many events of a month are stored. Beyond `limit` nobody needs to know.
    async fn events_since(
        &self,
        tenant: &Tenant,
        month: Month,
        limit: u64,
    ) -> Result<u64, Problem> {
        let filter = EventFilter {
            since: Some(month.begins_at),
            ..EventFilter::default()
        };
        let mut events = 0;
        let mut before = None;
        while events < limit {
            let page = PageRequest {
                limit: MAX_LIMIT,
                before,
            };
            let found = self.store.events(tenant.id.clone(), filter.clone(), page);
            let found = found.await?;
            events += found.items.len() as u64;
            before = found.next;
            if before.is_none() {
                break;
            }
        }
        Ok(events)
    }

    /// What a tenant is allowed: its own limits, else its plan's, else the server's.
    pub fn limits_of(&self, tenant: &Tenant) -> Limits {
        self.settings.plans.limits_of(tenant)
    }

    /// How large a payload of this tenant may be.
    pub fn payload_bytes(&self, tenant: &Tenant) -> u64 {
        let allowed = self.limits_of(tenant).payload_bytes;
        allowed.unwrap_or(self.settings.body_bytes)
    }

    /// How many endpoints a tenant may have.
    pub fn endpoints_allowed(&self, tenant: &Tenant) -> u32 {
        self.limits_of(tenant).endpoints.unwrap_or(u32::MAX)
    }

    /// Notes a mistake if a policy asks for more attempts than a tenant is allowed.
    pub fn check_policy(
        &self,
        policy: &RetryPolicy,
        tenant: &Tenant,
        field: &str,
        mistakes: &mut Mistakes,
    ) {
        let Some(allowed) = self.limits_of(tenant).max_attempts else {
            return;
        };
        if policy.max_attempts > allowed {
            let message = format!(
                "must be at most {allowed}, which is the limit max_attempts of this tenant; the policy asks for {}",
                policy.max_attempts
            );
            mistakes.note(format!("{field}.max_attempts"), message);
        }
    }
}

/// A payload of a tenant is larger than its plan allows.
pub fn payload_too_large(limit_bytes: u64) -> Problem {
    let detail = format!("The limit payload_bytes is {limit_bytes}. Send a smaller payload.");
    Problem::new(Code::QuotaExceeded, detail).with_status(StatusCode::PAYLOAD_TOO_LARGE)
}

/// A tenant has as many endpoints as it may have.
pub fn too_many_endpoints(limit: u32) -> Problem {
    let detail =
        format!("The limit endpoints is {limit}. Delete an endpoint, or have the limit raised.");
    // Waiting would not help, so nobody is told to.
    Problem::new(Code::QuotaExceeded, detail).with_status(StatusCode::FORBIDDEN)
}

/// A tenant has as many keys as it may have.
pub fn too_many_keys(limit: usize) -> Problem {
    let detail = format!("A tenant may have {limit} keys. Revoke one that is not used.");
    Problem::new(Code::QuotaExceeded, detail).with_status(StatusCode::FORBIDDEN)
}

/// A tenant has as many links to its portal as it may have.
pub fn too_many_links(limit: usize) -> Problem {
    let detail = format!(
        "A tenant may have {limit} portal links at once. End one that is not used, or wait until some expire."
    );
    Problem::new(Code::QuotaExceeded, detail).with_status(StatusCode::FORBIDDEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_begins_and_ends_with_the_calendar() {
        for (now, begins, ends) in [
            (
                "2026-11-15T12:00:00Z",
                "2026-11-01T00:00:00.000Z",
                "2026-12-01T00:00:00.000Z",
            ),
            (
                "2026-12-31T23:59:59.999Z",
                "2026-12-01T00:00:00.000Z",
                "2027-01-01T00:00:00.000Z",
            ),
            (
                "2028-02-29T00:00:00Z",
                "2028-02-01T00:00:00.000Z",
                "2028-03-01T00:00:00.000Z",
            ),
            (
                "2027-01-01T00:00:00Z",
                "2027-01-01T00:00:00.000Z",
                "2027-02-01T00:00:00.000Z",
            ),
        ] {
            let month = Month::of(now.parse().expect("a time"));
            assert_eq!(month.begins_at.to_string(), begins, "{now}");
            assert_eq!(month.ends_at.to_string(), ends, "{now}");
        }
    }
}
