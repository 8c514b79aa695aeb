//! The name of an outbox table, with an optional schema.
//!
//! [`TableName`] accepts letters, digits and `_`, and is quoted in SQL. So a configured name never changes the meaning
//! of a statement.

use std::fmt;
use std::str::FromStr;

/// The name of a table whose configuration names none.
pub const DEFAULT_TABLE: &str = "posthaste_outbox";
/// Maximum length of a name in PostgreSQL, in bytes.
const MAX_NAME_BYTES: usize = 63;

/// The name of an outbox table, as PostgreSQL stores it: `posthaste_outbox` or `billing.posthaste_outbox`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableName {
    schema: Option<String>,
    name: String,
}

/// The text is not the name of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be the name of a table, such as \"posthaste_outbox\" or \"billing.posthaste_outbox\": letters, digits and _, \
     at most {MAX_NAME_BYTES} bytes in each part, without quotes"
)]
pub struct TableNameError;

impl TableName {
    /// Returns the name for SQL.
    pub(super) fn quoted(&self) -> String {
        match &self.schema {
            Some(schema) => format!("\"{schema}\".\"{}\"", self.name),
            None => format!("\"{}\"", self.name),
        }
    }

    /// Returns the name for SQL of an object beside the table, in the same schema.
    pub(super) fn beside(&self, suffix: &str) -> String {
        let name = self.object(suffix);
        match &self.schema {
            Some(schema) => format!("\"{schema}\".{name}"),
            None => name,
        }
    }

    /// Returns the name for SQL of an object that belongs to the table, without the schema.
    pub(super) fn object(&self, suffix: &str) -> String {
        let room = MAX_NAME_BYTES - suffix.len();
        let mut end = self.name.len().min(room);
        while !self.name.is_char_boundary(end) {
            end -= 1;
        }
        format!("\"{}{suffix}\"", &self.name[..end])
    }

    /// Returns the schema, if the name has one.
    pub(super) fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }
}

impl Default for TableName {
    fn default() -> TableName {
        TableName {
            schema: None,
            name: DEFAULT_TABLE.to_owned(),
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(formatter, "{schema}.")?;
        }
        formatter.write_str(&self.name)
    }
}

impl FromStr for TableName {
    type Err = TableNameError;

    fn from_str(text: &str) -> Result<TableName, TableNameError> {
        let (schema, name) = match text.split_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, text),
        };
        let fits = |part: &str| {
            let starts_valid = part.starts_with(|c: char| c.is_alphabetic() || c == '_');
            let allowed = |c: char| c.is_alphanumeric() || c == '_';
            starts_valid && part.len() <= MAX_NAME_BYTES && part.chars().all(allowed)
        };
        match fits(name) && schema.is_none_or(fits) {
            true => Ok(TableName {
                schema: schema.map(str::to_owned),
                name: name.to_owned(),
            }),
            false => Err(TableNameError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_for_sql() {
        for (text, quoted, index) in [
            ("orders", "\"orders\"", "\"orders_waiting\""),
            (
                "Billing.Outbox_2",
                "\"Billing\".\"Outbox_2\"",
                "\"Billing\".\"Outbox_2_waiting\"",
            ),
            ("_ä", "\"_ä\"", "\"_ä_waiting\""),
        ] {
            let name: TableName = text.parse().expect(text);
            assert_eq!(name.quoted(), quoted);
            assert_eq!(name.beside("_waiting"), index);
            assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn names_of_objects_fit_into_the_limit_of_postgres() {
        let long: TableName = "ä".repeat(31).parse().expect("62 bytes");
        let object = long.object("_waiting");
        assert!(object.len() <= MAX_NAME_BYTES + 2, "{object}");
        assert!(object.ends_with("ä_waiting\""), "{object}");
    }

    #[test]
    fn texts_that_are_no_name_are_refused() {
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for text in [
            "", ".", "a.", ".a", "a.b.c", "a\"b", "a b", "1a", "a;b", "a-b", &long,
        ] {
            assert_eq!(text.parse::<TableName>(), Err(TableNameError), "{text}");
        }
    }
}
