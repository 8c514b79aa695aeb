//! Extractors and responses for axum.
//!
//! [`Webhook`] and [`RawWebhook`] are extractors of handlers whose state contains a [`Receiver`]. A request that is not
//! authentic never reaches the handler. [`Reply`] is a response.

use axum_core::body::Body;
use axum_core::extract::{FromRef, FromRequest, Request};
use axum_core::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use crate::{RawWebhook, ReceiveError, Receiver, Reply, Webhook};

impl<S> FromRequest<S> for RawWebhook
where
    S: Send + Sync,
    Receiver: FromRef<S>,
{
    type Rejection = ReceiveError;

    async fn from_request(request: Request, state: &S) -> Result<RawWebhook, ReceiveError> {
        Receiver::from_ref(state).receive(request).await
    }
}

impl<S, T> FromRequest<S> for Webhook<T>
where
    S: Send + Sync,
    Receiver: FromRef<S>,
    T: DeserializeOwned,
{
    type Rejection = ReceiveError;

    async fn from_request(request: Request, state: &S) -> Result<Webhook<T>, ReceiveError> {
        RawWebhook::from_request(request, state).await?.json()
    }
}

impl IntoResponse for ReceiveError {
    fn into_response(self) -> Response {
        Reply::from(&self).into_response()
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        Reply::into_response::<Body>(self)
    }
}
