//! Confirmations of owner addresses in the model, and the number of emails per tenant and day.
//!
//! The model keeps both in plain maps, and takes the decisions from the same pure functions as the stores.

use posthaste_core::id::TenantId;
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;
use posthaste_store::for_other_stores::{
    EmailUsage, StoredConfirmation, address_key, day_of, next_allowed,
};
use posthaste_store::{
    Answer, ConfirmationRequest, ConfirmationResult, EMAIL_LIMIT_REACHED, EmailAllowance,
    EmailResult, KeyHash, OwnerEmailLimits, OwnerEmails, SubjectScope,
};
use serde_json::json;

use super::tables::{Tables, TenantVersion};
use super::{ModelStore, answer};

/// Key of a confirmation: the tenant and the address.
type ConfirmationKey = (TenantVersion, String);

impl OwnerEmails for ModelStore {
    fn is_owner_confirmed(&self, tenant: TenantId, recipient: String) -> Answer<bool> {
        answer(self.read(|tables| {
            let owner = tables.owner(&tenant);
            let address = address_key(&recipient);
            tables.endpoints.values().any(|it| {
                let endpoint = &it.row.endpoint;
                let email = endpoint.owner_email.as_deref().map(address_key);
                Some(it.owner) == owner
                    && email.as_ref() == Some(&address)
                    && endpoint.owner_email_confirmed
                    && it.row.status != EndpointStatus::Deleted
            })
        }))
    }

    fn request_confirmation(
        &self,
        now: Timestamp,
        request: ConfirmationRequest,
        limits: OwnerEmailLimits,
    ) -> Answer<ConfirmationResult> {
        answer(self.write(|tables| {
            let Some(owner) = tables.owner(&request.tenant) else {
                return ConfirmationResult::NoSuchTenant;
            };
            let key = (owner, address_key(&request.recipient));
            let stored = tables.confirmations.get(&key).cloned();
            let mut usage = tables.email_usage(owner, now);
            let before = usage;
            let tenant = request.tenant.clone();
            let (result, stored) =
                StoredConfirmation::request(stored, request, now, &mut usage, limits);
            if let Some(stored) = stored {
                tables.confirmations.insert(key, stored);
            }
            if usage != before {
                let taken = result.allowance();
                tables.set_email_usage(now, (tenant, owner), usage, taken);
            }
            result
        }))
    }

    fn claim_confirmations(
        &self,
        now: Timestamp,
        until: Timestamp,
        tokens: Vec<KeyHash>,
    ) -> Answer<Vec<(KeyHash, ConfirmationRequest)>> {
        answer(self.write(|tables| {
            let first_kept = day_of(now).saturating_sub(1);
            tables.email_usage.retain(|(_, day), _| *day >= first_kept);
            tables.confirmations.retain(|_, it| it.expires_at > now);
            let mut claimed = Vec::new();
            for token in tokens {
                let Some(key) = tables.next_due_confirmation(now) else {
                    break;
                };
                let stored = tables.confirmations.get_mut(&key).expect("it was found");
                stored.claim(now, until, token);
                claimed.push((token, stored.request.clone()));
            }
            claimed
        }))
    }

    fn record_confirmation_result(&self, token: KeyHash, result: EmailResult) -> Answer<()> {
        answer(self.write(|tables| {
            if let Some(key) = tables.confirmation_with(token) {
                let stored = tables.confirmations.get_mut(&key).expect("it was found");
                stored.settle(&result);
            }
        }))
    }

    fn confirmation(&self, now: Timestamp, token: KeyHash) -> Answer<Option<ConfirmationRequest>> {
        answer(self.read(|tables| {
            let stored = &tables.confirmations[&tables.confirmation_with(token)?];
            (stored.expires_at > now).then(|| stored.request.clone())
        }))
    }

    fn confirm_owner(&self, now: Timestamp, token: KeyHash) -> Answer<Option<u64>> {
        answer(self.write(|tables| {
            let key = tables.confirmation_with(token)?;
            let stored = tables.confirmations.get_mut(&key).expect("it was found");
            if stored.expires_at <= now {
                return None;
            }
            stored.token = None;
            stored.due_at = None;
            let (owner, address) = key;
            let mut confirmed = 0;
            for it in tables.endpoints.values_mut() {
                let endpoint = &mut it.row.endpoint;
                let email = endpoint.owner_email.as_deref().map(address_key);
                let is_theirs = it.owner == owner && email.as_ref() == Some(&address);
                if is_theirs && it.row.status != EndpointStatus::Deleted {
                    endpoint.owner_email_confirmed = true;
                    endpoint.revision += 1;
                    confirmed += 1;
                }
            }
            Some(confirmed)
        }))
    }

    fn count_owner_email(
        &self,
        now: Timestamp,
        tenant: TenantId,
        limit: u32,
    ) -> Answer<EmailAllowance> {
        answer(self.write(|tables| {
            let Some(owner) = tables.owner(&tenant) else {
                return EmailAllowance::Within;
            };
            let mut usage = tables.email_usage(owner, now);
            let taken = usage.take_email(limit);
            tables.set_email_usage(now, (tenant, owner), usage, taken);
            taken
        }))
    }
}

impl Tables {
    fn email_usage(&self, owner: TenantVersion, now: Timestamp) -> EmailUsage {
        let found = self.email_usage.get(&(owner, day_of(now)));
        found.copied().unwrap_or_default()
    }

    fn set_email_usage(
        &mut self,
        now: Timestamp,
        (tenant, owner): (TenantId, TenantVersion),
        usage: EmailUsage,
        taken: EmailAllowance,
    ) {
        self.email_usage.insert((owner, day_of(now)), usage);
        if taken == (EmailAllowance::LimitReached { is_first: true }) {
            let detail = json!({"emails": usage.emails, "new_recipients": usage.recipients});
            let about = (SubjectScope::Tenant(tenant), Some(owner));
            self.add_notification(now, about, EMAIL_LIMIT_REACHED, detail);
        }
    }

    /// Returns true if the tenant was not deleted.
    fn is_live(&self, owner: TenantVersion) -> bool {
        self.tenants.values().any(|row| row.owner == owner)
    }

    fn confirmation_with(&self, token: KeyHash) -> Option<ConfirmationKey> {
        let mut rows = self.confirmations.iter();
        let (key, _) = rows.find(|(_, it)| it.token == Some(token))?;
        Some(key.clone()).filter(|(owner, _)| self.is_live(*owner))
    }

    /// Returns the confirmation that is longest due and whose address got no email of another tenant lately.
    fn next_due_confirmation(&self, now: Timestamp) -> Option<ConfirmationKey> {
        let is_quiet = |(owner, address): &ConfirmationKey| {
            !self.confirmations.iter().any(|(other, it)| {
                let sent_lately = it.sent_at.and_then(|at| next_allowed(now, at)).is_some();
                other.0 != *owner && other.1 == *address && sent_lately
            })
        };
        let due = self
            .confirmations
            .iter()
            .filter(|(key, it)| it.is_due(now) && self.is_live(key.0) && is_quiet(key));
        let first = due.min_by_key(|(key, it)| (it.due_at, (*key).clone()));
        first.map(|(key, _)| key.clone())
    }
}
