//! Error responses (RFC 9457).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema::{integer, named, object, text};
use crate::code::Code;

/// The body of an error response. Reads bodies of other servers too, whose fields may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProblemBody {
    /// The page that explains the error.
    pub r#type: String,
    /// The error, in a few words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The problem with this request, and what to do.
    pub detail: String,
    /// The stable code.
    pub code: String,
    /// The invalid fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<FieldProblem>>,
    /// The limit that is exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// An invalid field of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FieldProblem {
    /// Path of the field, such as `backoff.base`.
    pub field: String,
    /// The error, and which values are valid.
    pub message: String,
}

/// Returns the schema of [`ProblemBody`].
pub(crate) fn schema() -> Value {
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    json!({
        "type": "object",
        "description": "An error, as defined by RFC 9457.",
        "required": ["type", "title", "status", "detail", "code"],
        "properties": {
            "type": {"type": "string", "description": "Link to the description of the error."},
            "title": text(),
            "status": integer(),
            "detail": {"type": "string", "description": "Description of this occurrence, and the remedy."},
            "code": named("ErrorCode", json!({"type": "string", "enum": codes})),
            "limit": {"type": "string", "description": "The exceeded limit, if the code is `quota_exceeded`."},
            "errors": {
                "type": "array",
                "items": named("FieldError", object(json!({"field": text(), "message": text()}))),
            },
        },
        "additionalProperties": false,
        "examples": [{
            "type": "/docs/errors#not_found",
            "title": "Not found",
            "status": 404,
            "detail": "No such endpoint. Check the id in the path.",
            "code": "not_found",
        }],
    })
}
