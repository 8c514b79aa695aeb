//! Memory budgets of request bodies.
//!
//! [`BodyBudget`] has a budget for the server and one for each tenant. A body reserves memory as it arrives
//! ([`BodyReservation::grow_to`]), so an announced body that does not arrive holds nothing. The reservation is
//! released when the request ends; for events that is when they are committed or refused. A request beyond a budget
//! is refused.
//!
//! One body is always allowed to grow, however large: if it is the only one of its tenant, or of the server. Its own size
//! is limited elsewhere. Otherwise a body that is larger than the budget would be refused forever.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use posthaste_core::id::TenantId;
use posthaste_core::time::Span;
use posthaste_telemetry::metrics::Metrics;
use posthaste_telemetry::metrics::request_counters::BodyBudgetScope;
use rustc_hash::FxHashMap;

use super::code::Code;
use super::problem::Problem;

/// `Retry-After` when a budget is used up.
const RETRY_AFTER: Span = Span::from_secs(1);
/// Number of tenants from which on the table of tenants is searched for unused entries.
const MIN_TENANTS_TO_CLEAN: usize = 1_024;

/// The budgets of the server and of its tenants.
pub struct BodyBudget {
    server: Arc<ServerBudget>,
    tenant_limit_bytes: u64,
    tenants: Mutex<Tenants>,
}

/// The budget of the server.
struct ServerBudget {
    share: Share,
    metrics: Arc<Metrics>,
}

/// Memory that is in use, and its limit.
#[derive(Debug)]
struct Share {
    used_bytes: AtomicU64,
    limit_bytes: u64,
}

/// The budget of one tenant.
#[derive(Clone, Debug)]
pub struct TenantBudget(Arc<Share>);

/// The tenants whose budget is in use.
struct Tenants {
    budgets: FxHashMap<TenantId, Weak<Share>>,
    clean_at: usize,
}

/// Memory that a body has reserved. Dropping it releases the memory.
pub struct BodyReservation {
    server: Arc<ServerBudget>,
    tenant: Option<Arc<Share>>,
    bytes: u64,
}

impl BodyBudget {
    /// Creates budgets in which nothing is reserved.
    pub fn new(server_bytes: u64, tenant_bytes: u64, metrics: Arc<Metrics>) -> BodyBudget {
        BodyBudget {
            server: Arc::new(ServerBudget {
                share: Share::new(server_bytes),
                metrics,
            }),
            tenant_limit_bytes: tenant_bytes,
            tenants: Mutex::new(Tenants {
                budgets: FxHashMap::default(),
                clean_at: MIN_TENANTS_TO_CLEAN,
            }),
        }
    }

    /// Returns the budget of a tenant: the same one as long as it is in use.
    pub(super) fn of_tenant(&self, tenant: &TenantId) -> TenantBudget {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(budget) = tenants.budgets.get(tenant).and_then(Weak::upgrade) {
            return TenantBudget(budget);
        }
        if tenants.budgets.len() >= tenants.clean_at {
            tenants
                .budgets
                .retain(|_, budget| budget.strong_count() > 0);
            tenants.clean_at = (tenants.budgets.len() * 2).max(MIN_TENANTS_TO_CLEAN);
        }
        let budget = Arc::new(Share::new(self.tenant_limit_bytes));
        let weak = Arc::downgrade(&budget);
        tenants.budgets.insert(tenant.clone(), weak);
        TenantBudget(budget)
    }

    /// Returns an empty reservation, of a tenant or of the operator.
    pub(super) fn reservation(&self, tenant: Option<&TenantBudget>) -> BodyReservation {
        BodyReservation {
            server: self.server.clone(),
            tenant: tenant.map(|TenantBudget(budget)| budget.clone()),
            bytes: 0,
        }
    }

    /// Returns the memory that is reserved.
    pub fn reserved_bytes(&self) -> u64 {
        self.server.share.used_bytes.load(Relaxed)
    }
}

impl BodyReservation {
    /// Raises the reservation to this size, if the budgets allow it.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), Problem> {
        let bytes = bytes as u64;
        let more_bytes = bytes.saturating_sub(self.bytes);
        if more_bytes == 0 {
            return Ok(());
        }
        if let Some(tenant) = &self.tenant
            && !tenant.take(more_bytes, self.bytes)
        {
            return Err(self.refused(BodyBudgetScope::Tenant));
        }
        if !self.server.share.take(more_bytes, self.bytes) {
            if let Some(tenant) = &self.tenant {
                tenant.release(more_bytes);
            }
            return Err(self.refused(BodyBudgetScope::Server));
        }
        self.bytes = bytes;
        Ok(())
    }

    fn refused(&self, scope: BodyBudgetScope) -> Problem {
        self.server.metrics.requests.budget_refused(scope);
        let detail = match scope {
            BodyBudgetScope::Server => {
                "The server's memory for request bodies is used up. Nothing was changed. Send the request again shortly."
            }
            BodyBudgetScope::Tenant => {
                "This tenant's share of the memory for request bodies is used up. Nothing was changed. Send fewer requests at once, or send the request again shortly."
            }
        };
        Problem::new(Code::Overloaded, detail).after(RETRY_AFTER)
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.server.share.release(self.bytes);
        if let Some(tenant) = &self.tenant {
            tenant.release(self.bytes);
        }
    }
}

impl Share {
    fn new(limit_bytes: u64) -> Share {
        Share {
            used_bytes: AtomicU64::new(0),
            limit_bytes,
        }
    }

    /// Takes memory for a body that already holds `own_bytes`.
    fn take(&self, bytes: u64, own_bytes: u64) -> bool {
        let used_bytes = self.used_bytes.fetch_add(bytes, Relaxed);
        let fits = used_bytes + bytes <= self.limit_bytes || used_bytes == own_bytes;
        if !fits {
            self.release(bytes);
        }
        fits
    }

    fn release(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        name.parse().expect("a valid id")
    }

    fn refused(result: Result<(), Problem>) -> bool {
        match result {
            Ok(()) => false,
            Err(problem) => {
                assert_eq!(problem.code, Code::Overloaded);
                assert_eq!(problem.retry_after, Some(RETRY_AFTER));
                true
            }
        }
    }

    #[test]
    fn a_tenant_cannot_use_up_the_memory_of_the_others() {
        let budget = BodyBudget::new(100, 40, Arc::default());
        let acme = budget.of_tenant(&tenant("acme"));
        let mut first = budget.reservation(Some(&acme));
        let mut second = budget.reservation(Some(&acme));
        assert!(!refused(first.grow_to(30)));
        assert!(!refused(second.grow_to(10)));
        assert!(refused(second.grow_to(11)));
        assert!(refused(first.grow_to(31)));
        assert_eq!(budget.reserved_bytes(), 40);
        let globex = budget.of_tenant(&tenant("globex"));
        let mut other = budget.reservation(Some(&globex));
        assert!(!refused(other.grow_to(40)));
        let mut admin = budget.reservation(None);
        assert!(!refused(admin.grow_to(20)));
        assert!(refused(admin.grow_to(21)), "the server's budget is used up");
        drop(first);
        assert!(!refused(second.grow_to(40)));
        drop((second, other, admin));
        assert_eq!(budget.reserved_bytes(), 0);
    }

    #[test]
    fn one_body_alone_may_be_larger_than_the_budget() {
        let budget = BodyBudget::new(100, 40, Arc::default());
        let acme = budget.of_tenant(&tenant("acme"));
        let mut large = budget.reservation(Some(&acme));
        assert!(!refused(large.grow_to(30)));
        assert!(!refused(large.grow_to(300)));
        let mut second = budget.reservation(Some(&acme));
        assert!(refused(second.grow_to(1)));
        assert_eq!(budget.reserved_bytes(), 300);
        drop(large);
        assert!(!refused(second.grow_to(1)));
    }

    #[test]
    fn what_the_server_refuses_does_not_count_for_the_tenant() {
        let budget = BodyBudget::new(10, 40, Arc::default());
        let mut admin = budget.reservation(None);
        assert!(!refused(admin.grow_to(10)));
        let acme = budget.of_tenant(&tenant("acme"));
        let mut first = budget.reservation(Some(&acme));
        assert!(refused(first.grow_to(1)));
        drop(admin);
        assert_eq!(acme.0.used_bytes.load(Relaxed), 0);
    }

    #[test]
    fn budgets_of_a_tenant_are_one_and_forgotten_when_unused() {
        let budget = BodyBudget::new(100, 40, Arc::default());
        let acme = budget.of_tenant(&tenant("acme"));
        let mut first = budget.reservation(Some(&acme));
        drop(acme);
        assert!(!refused(first.grow_to(40)));
        let same = budget.of_tenant(&tenant("acme"));
        assert!(refused(budget.reservation(Some(&same)).grow_to(1)));
        for number in 0..10 * MIN_TENANTS_TO_CLEAN {
            budget.of_tenant(&tenant(&format!("t{number}")));
        }
        let known = budget.tenants.lock().expect("no panic").budgets.len();
        assert!(known <= MIN_TENANTS_TO_CLEAN, "{known}");
    }
}
