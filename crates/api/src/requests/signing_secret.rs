//! A tenant's own signing secret: shows it on explicit request, and rotates it.
//!
//! It signs the tenant's one-off requests. It is generated with the other keys of the tenant when it is first needed: by
//! the first request, or when it is first shown. [`show`] is audited, because it reveals the secret.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::id::TenantId;
use posthaste_core::sign::{SignatureStyle, SigningKey};
use posthaste_core::validation::ValidationErrors;
use posthaste_engine::tenant_keys::{TenantKeys, TenantKeysError};
use posthaste_engine::vault::VaultError;
use posthaste_store::{ReplaceResult, StoreError, Tenant};
use posthaste_system::random::fresh_secret;

use crate::endpoints::secret::{read_rotation, rotation_problem};
use crate::problem::{Problem, ResourceKind};
use crate::resources::EndpointSecret;
use crate::route::Call;
use crate::tenants::{MAX_TRIES, contended};
use crate::{App, body};

/// `GET …/signing-secret`.
pub(super) async fn show(call: Call) -> Result<Response<Body>, Problem> {
    let app = &call.app;
    let (_, keys) = keys_now(app, &call.tenant().tenant.id).await?;
    let now = app.clock.wall();
    Ok(body::answer_secret(
        StatusCode::OK,
        &EndpointSecret::reveal(&keys.keyring, now),
    ))
}

/// `POST …/signing-secret/rotate`.
pub(super) async fn rotate(mut call: Call) -> Result<Response<Body>, Problem> {
    let document = call.take_json().await?;
    let app = &call.app;
    let (wanted, overlap) = read_rotation(&document)?;
    let id = &call.tenant().tenant.id;
    for _ in 0..MAX_TRIES {
        let (mut tenant, mut keys) = keys_now(app, id).await?;
        let now = app.clock.wall();
        let mut errors = ValidationErrors::default();
        let key = wanted.resolve(SignatureStyle::Standard, &mut errors);
        let key = errors.into_result(key)?;
        let rotated = keys.keyring.rotate(key, now, overlap);
        rotated.map_err(|error| rotation_problem(error, "tenant"))?;
        tenant.sealed_keys = keys.seal(&app.vault, id);
        if replace(app, tenant).await? {
            return Ok(body::answer_secret(
                StatusCode::OK,
                &EndpointSecret::reveal(&keys.keyring, now),
            ));
        }
    }
    Err(contended())
}

/// Returns the keys of a tenant, which is read from the cache. Its header key is the current one; its signing keys may be
/// those before a rotation.
pub(crate) async fn keys_of(app: &App, tenant: &Tenant) -> Result<TenantKeys, NoKeys> {
    match open(app, tenant) {
        Ok(keys) => Ok(keys),
        Err(TenantKeysError::Missing) => Ok(keys_now(app, &tenant.id).await?.1),
        Err(error) => Err(error.into()),
    }
}

/// The reason why the keys of a tenant cannot be used.
#[derive(Debug)]
pub(crate) enum NoKeys {
    /// They are encrypted with a master key that this node does not have. Other nodes may have it.
    OtherMasterKey(VaultError),
    /// They are damaged.
    Damaged(TenantKeysError),
    /// They cannot be read from the store, or be generated.
    Problem(Problem),
}

impl From<TenantKeysError> for NoKeys {
    fn from(error: TenantKeysError) -> NoKeys {
        match error {
            TenantKeysError::Sealed(error @ VaultError::UnknownKey { .. }) => {
                NoKeys::OtherMasterKey(error)
            }
            error @ (TenantKeysError::Sealed(_)
            | TenantKeysError::Keyring(_)
            | TenantKeysError::Unreadable
            | TenantKeysError::Missing) => NoKeys::Damaged(error),
        }
    }
}

impl From<NoKeys> for Problem {
    fn from(error: NoKeys) -> Problem {
        match error {
            NoKeys::OtherMasterKey(error) => Problem::without_master_key(&error),
            NoKeys::Damaged(error) => Problem::internal(&error),
            NoKeys::Problem(problem) => problem,
        }
    }
}

impl From<Problem> for NoKeys {
    fn from(problem: Problem) -> NoKeys {
        NoKeys::Problem(problem)
    }
}

impl From<StoreError> for NoKeys {
    fn from(error: StoreError) -> NoKeys {
        NoKeys::Problem(error.into())
    }
}

/// Reads a tenant with its keys. Generates them if it has none.
async fn keys_now(app: &App, id: &TenantId) -> Result<(Tenant, TenantKeys), NoKeys> {
    for _ in 0..MAX_TRIES {
        let stored = app.store.tenant(id.clone()).await?;
        let mut tenant = stored.ok_or_else(|| Problem::missing(ResourceKind::Tenant))?;
        match open(app, &tenant) {
            Ok(keys) => return Ok((tenant, keys)),
            Err(TenantKeysError::Missing) => {}
            Err(error) => return Err(error.into()),
        }
        let key = SigningKey::Shared(fresh_secret());
        let keys = TenantKeys::new(key).map_err(|error| Problem::internal(&error))?;
        tenant.sealed_keys = keys.seal(&app.vault, id);
        // Read again, because the stored tenant has another revision now.
        replace(app, tenant).await?;
    }
    Err(contended().into())
}

fn open(app: &App, tenant: &Tenant) -> Result<TenantKeys, TenantKeysError> {
    TenantKeys::open(&app.vault, &tenant.id, &tenant.sealed_keys)
}

/// Writes a changed tenant. Returns false if another change was faster.
async fn replace(app: &App, tenant: Tenant) -> Result<bool, Problem> {
    let id = tenant.id.clone();
    match app.store.replace_tenant(app.clock.wall(), tenant).await? {
        ReplaceResult::Done => {
            app.forget_tenant(&id);
            app.engine.tenant_changed(id);
            Ok(true)
        }
        ReplaceResult::Outdated => Ok(false),
        ReplaceResult::NotFound => Err(Problem::missing(ResourceKind::Tenant)),
    }
}
