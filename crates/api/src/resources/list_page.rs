//! A page of a list.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema::{nullable_text, object};

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPage<T> {
    /// Items of this page.
    pub data: Vec<T>,
    /// Cursor of the next page, if there is one.
    pub next_cursor: Option<String>,
}

/// Returns the schema of a page whose items have the schema `item`.
pub(crate) fn list_schema(item: Value) -> Value {
    object(json!({
        "data": {"type": "array", "items": item},
        "next_cursor": nullable_text(),
    }))
}
