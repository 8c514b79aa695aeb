//! What a form carries.

use axum::body::Body;
use http::HeaderMap;
use std::time::Duration;

use crate::api::body;
use crate::api::code::Code;
use crate::api::problem::Problem;

/// The largest form.
const MAX_FORM_BYTES: u64 = 256 << 10;
/// The most fields it may have.
const MAX_FIELDS: usize = 1_000;
/// How long it may take to arrive.
const FORM_TIME: Duration = Duration::from_secs(30);

/// What somebody filled in.
#[derive(Clone, Default)]
pub(super) struct Form {
    fields: Vec<(String, String)>,
}

impl Form {
    /// Reads a form that a browser sent.
    pub(super) async fn read(headers: &HeaderMap, sent: Body) -> Result<Form, Problem> {
        let bytes = body::read(headers, sent, MAX_FORM_BYTES, FORM_TIME).await?;
        let fields = url::form_urlencoded::parse(&bytes).into_owned();
        let fields: Vec<(String, String)> = fields.take(MAX_FIELDS + 1).collect();
        if fields.len() > MAX_FIELDS {
            let detail = format!("A form may have at most {MAX_FIELDS} fields.");
            return Err(Problem::new(Code::TooLarge, detail));
        }
        Ok(Form { fields })
    }

    /// What stands in a field, without blanks around it; empty if there is none.
    pub(super) fn text(&self, name: &str) -> &str {
        self.raw(name).trim()
    }

    /// What stands in a field, as it stands there.
    pub(super) fn raw(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(field, _)| field == name);
        found.map_or("", |(_, text)| text)
    }

    /// What stands in a field, unless that is nothing.
    pub(super) fn filled(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// Everything that was chosen under a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.fields.iter().filter(move |(field, _)| field == name);
        named.map(|(_, text)| text.as_str())
    }

    /// Whether a box is ticked.
    pub(super) fn is_ticked(&self, name: &str) -> bool {
        !self.raw(name).is_empty()
    }
}

#[cfg(test)]
impl Form {
    /// A form filled in like this.
    pub(super) fn of(fields: &[(&str, &str)]) -> Form {
        let fields = fields.iter();
        let fields = fields.map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        Form {
            fields: fields.collect(),
        }
    }
}
