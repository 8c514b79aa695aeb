//! Isolation of tenants: a tenant learns nothing about the resources of another tenant and cannot change them.
//!
//! The routes come from the OpenAPI document of a running server, so that a new route is covered automatically. A route
//! that names its resources in an unknown way fails the test until the test knows it.

mod fixture;
mod keys;
mod lists;
mod openapi_routes;
mod other_tenant;
mod tenant_data;
