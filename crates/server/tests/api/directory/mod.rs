//! The API for tenants, keys and endpoints, through the real router, with the engine running on the in-memory store.
//! Every response is checked against the OpenAPI document.

mod access;
mod alerts;
mod audit;
mod body_memory;
mod credentials;
mod endpoints;
mod failed_authentications;
mod http_server;
mod keys;
mod nodes;
mod owner_emails;
mod pagination;
mod protection;
mod request_validation;
mod route_table;
mod signatures;
mod tenants;
