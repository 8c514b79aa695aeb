//! Reads the fields of a submitted form.

use std::time::Duration;

use axum::body::Body;
use http::HeaderMap;
use posthaste_api::body;
use posthaste_api::body_budget::BodyReservation;
use posthaste_api::code::Code;
use posthaste_api::problem::Problem;

/// Maximum size of a form, in bytes.
pub(super) const MAX_FORM_BYTES: u64 = 256 << 10;
/// Maximum size of a form of a visitor who is not authenticated: less than the head of a request may have.
pub(super) const MAX_SIGN_IN_BYTES: u64 = 16 << 10;
/// Maximum number of fields in a form.
const MAX_FIELDS: usize = 1_000;
/// Maximum time to receive a form.
const FORM_TIME: Duration = Duration::from_secs(30);

/// The fields of a submitted form, in the order in which the browser sent them.
#[derive(Clone, Default)]
pub(super) struct Form {
    fields: Vec<(String, String)>,
}

impl Form {
    /// Reads a form of at most `limit_bytes` from a request body.
    pub(super) async fn read(
        headers: &HeaderMap,
        sent: Body,
        limit_bytes: u64,
        mut reservation: BodyReservation,
    ) -> Result<Form, Problem> {
        let bytes = body::read(headers, sent, limit_bytes, FORM_TIME, &mut reservation).await?;
        let fields = url::form_urlencoded::parse(&bytes).into_owned();
        let fields: Vec<(String, String)> = fields.take(MAX_FIELDS + 1).collect();
        if fields.len() > MAX_FIELDS {
            let detail = format!("A form may have at most {MAX_FIELDS} fields.");
            return Err(Problem::new(Code::TooLarge, detail));
        }
        Ok(Form { fields })
    }

    /// Returns a field's value without surrounding white space; empty if the field is missing.
    pub(super) fn text(&self, name: &str) -> &str {
        self.raw(name).trim()
    }

    /// Returns a field's value unchanged; empty if the field is missing.
    pub(super) fn raw(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(field, _)| field == name);
        found.map_or("", |(_, text)| text)
    }

    /// Returns a field's trimmed value, or `None` if it is empty.
    pub(super) fn filled(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// Returns all values of a field that can occur several times.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.fields.iter().filter(move |(field, _)| field == name);
        named.map(|(_, text)| text.as_str())
    }

    /// Returns whether a checkbox is ticked.
    pub(super) fn is_ticked(&self, name: &str) -> bool {
        !self.raw(name).is_empty()
    }
}

#[cfg(test)]
impl Form {
    /// Creates a form with these fields.
    pub(super) fn of(fields: &[(&str, &str)]) -> Form {
        let fields = fields.iter();
        let fields = fields.map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        Form {
            fields: fields.collect(),
        }
    }
}
