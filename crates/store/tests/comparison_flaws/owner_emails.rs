//! Owner addresses, without mutations.

use posthaste_core::id::TenantId;
use posthaste_core::time::Timestamp;
use posthaste_store::*;

use crate::Flawed;

impl OwnerEmails for Flawed {
    right! {
        is_owner_confirmed(tenant: TenantId, recipient: String) -> Answer<bool>;
        request_confirmation(now: Timestamp, request: ConfirmationRequest, limits: OwnerEmailLimits) -> Answer<ConfirmationResult>;
        claim_confirmations(now: Timestamp, until: Timestamp, tokens: Vec<KeyHash>) -> Answer<Vec<(KeyHash, ConfirmationRequest)>>;
        record_confirmation_result(token: KeyHash, result: EmailResult) -> Answer<()>;
        confirmation(now: Timestamp, token: KeyHash) -> Answer<Option<ConfirmationRequest>>;
        confirm_owner(now: Timestamp, token: KeyHash) -> Answer<Option<u64>>;
        count_owner_email(now: Timestamp, tenant: TenantId, limit: u32) -> Answer<EmailAllowance>;
    }
}
