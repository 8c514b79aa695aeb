//! What a route is: how it is reached, who may, what it takes and what it gives.
//!
//! The router, the OpenAPI document and the page of documentation are all made from the same routes,
//! so none of them can say something else than the others.

use std::pin::Pin;

use axum::body::Body;
use http::Response;
use serde_json::Value;

use super::call::Call;
use super::code::Code;
use super::problem::Problem;

/// What a handler answers, in the end.
pub type Handled = Pin<Box<dyn Future<Output = Result<Response<Body>, Problem>> + Send>>;

/// What does the work.
pub type Handler = fn(Call) -> Handled;

/// Lets a handler go on to its end though its caller goes away. What it has changed on disk, others
/// must hear of: the engine of work, the caches of keys that were revoked.
pub fn to_the_end(
    handler: impl Future<Output = Result<Response<Body>, Problem>> + Send + 'static,
) -> Handled {
    let task = tokio::spawn(handler);
    Box::pin(async move {
        let ended = task.await;
        ended.unwrap_or_else(|error| Err(Problem::internal(&error)))
    })
}

/// Routes that belong together.
pub struct Group {
    /// What they are about, in a word.
    pub name: &'static str,
    /// What they are about, in a sentence or two.
    pub about: &'static str,
    /// The routes.
    pub routes: &'static [Route],
    /// The shapes they take and give.
    pub schemas: fn() -> Vec<Schema>,
}

/// A shape with a name: JSON Schema, with an example.
pub struct Schema {
    /// Its name.
    pub name: &'static str,
    /// The shape.
    pub shape: Value,
}

/// A method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads.
    Get,
    /// Makes, or does.
    Post,
    /// Changes.
    Patch,
    /// Removes.
    Delete,
}

impl Verb {
    /// The method as it stands in a request.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Post => "POST",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
        }
    }
}

/// Who may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anybody, without a key.
    Open,
    /// Anybody with a key.
    AnyKey,
    /// An admin key.
    Admin,
    /// An admin key, a key of the tenant in the path, or a link to its portal.
    Tenant,
    /// An admin key, or a key of the tenant in the path.
    TenantKey,
}

/// A parameter of a query.
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Its shape.
    pub shape: fn() -> Value,
}

/// What a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// JSON of the named shape.
    Json(&'static str),
    /// JSON of the named shape, or nothing.
    OptionalJson(&'static str),
}

/// What a good answer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing.
    Nothing,
    /// JSON of the named shape.
    Json(&'static str),
    /// A page of a list of the named shape.
    List(&'static str),
    /// Something else, of this media type.
    Other(&'static str),
}

/// A good answer.
pub struct Gives {
    /// Its status.
    pub status: u16,
    /// What it means.
    pub about: &'static str,
    /// What it carries.
    pub content: Content,
}

/// A route.
pub struct Route {
    /// The method.
    pub verb: Verb,
    /// The path, with names in braces.
    pub path: &'static str,
    /// What clients generated from the description call it.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// Who may call.
    pub access: Access,
    /// Parameters of the query.
    pub query: &'static [Parameter],
    /// What the request carries.
    pub takes: Takes,
    /// The good answers.
    pub gives: &'static [Gives],
    /// Bad answers beyond those that every route of its kind has.
    pub fails: &'static [(u16, Code)],
    /// What does the work.
    pub handler: Handler,
}

/// `limit`, as every list takes it.
pub const LIMIT: Parameter = Parameter {
    name: "limit",
    about: "How many items the page has at most.",
    shape: || serde_json::json!({"type": "integer", "minimum": 1, "maximum": 250, "default": 50}),
};

/// `cursor`, as every list takes it.
pub const CURSOR: Parameter = Parameter {
    name: "cursor",
    about: "The `next_cursor` of the page before.",
    shape: || serde_json::json!({"type": "string"}),
};

impl Route {
    /// Every bad answer the route may give, the usual ones included.
    pub fn all_fails(&self) -> Vec<(u16, Code)> {
        let mut codes: Vec<(u16, Code)> = self.fails.to_vec();
        let mut add = |list: &[Code]| {
            codes.extend(list.iter().map(|code| (code.status().as_u16(), *code)));
        };
        match self.access {
            Access::Open => {}
            Access::AnyKey => add(KEYED),
            Access::Admin => {
                add(KEYED);
                add(&[Code::Forbidden]);
            }
            Access::Tenant => {
                add(KEYED);
                add(&[Code::NotFound]);
            }
            Access::TenantKey => {
                add(KEYED);
                add(&[Code::NotFound, Code::Forbidden]);
            }
        }
        match self.takes {
            Takes::Nothing => {}
            Takes::Json(_) | Takes::OptionalJson(_) => add(CARRYING),
        }
        match (self.access, self.verb) {
            (Access::Open, _) | (_, Verb::Get) => {}
            (_, Verb::Post | Verb::Patch | Verb::Delete) => add(&[Code::DiskFull]),
        }
        codes.sort_unstable_by_key(|(status, code)| (*status, code.as_str()));
        codes.dedup();
        codes
    }

    /// Where the part of the path with this name stands, counted from 0.
    ///
    /// # Panics
    /// If the path has no such part.
    pub fn place_of(&self, name: &str) -> usize {
        self.path
            .split('/')
            .position(|part| {
                part.strip_prefix('{')
                    .and_then(|part| part.strip_suffix('}'))
                    == Some(name)
            })
            .expect("handlers ask only for what their path has")
    }
}

/// What every route that needs a key may answer.
const KEYED: &[Code] = &[
    Code::Unauthorized,
    Code::Invalid,
    Code::RateLimited,
    Code::Internal,
    Code::Unavailable,
    Code::Overloaded,
    Code::ShuttingDown,
];

/// What every route that takes a body may answer.
const CARRYING: &[Code] = &[
    Code::MalformedJson,
    Code::RequestTimeout,
    Code::TooLarge,
    Code::UnsupportedMediaType,
    Code::Invalid,
];

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn what_was_begun_is_ended_though_nobody_waits() {
        let (begin, begun) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel::<()>();
        let handled = to_the_end(async move {
            let _ = begun.await;
            let _ = end.send(());
            Err(Problem::unauthorized())
        });
        drop(handled);
        begin.send(()).expect("it still waits");
        ended.await.expect("it ends");
        let panics = to_the_end(async { panic!("as it was told to") });
        let problem = panics.await.expect_err("a fault of ours");
        assert_eq!(problem.code, Code::Internal);
    }
}
