//! The name of an inbox table, as it is written in SQL.
//!
//! A name is checked and quoted once, when the inbox is created, so it can never change the meaning of a statement.

use thiserror::Error;

/// Name of the inbox table if the application chooses none.
pub(super) const DEFAULT_TABLE: &str = "webhook_inbox";
/// Maximum length of a part of the name, in bytes: the limit of PostgreSQL, with room for the suffix of the index.
const MAX_NAME_BYTES: usize = 48;

/// A name cannot be the name of an inbox table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the name of an inbox table is `table` or `schema.table`, of letters, digits and underscores, at most {MAX_NAME_BYTES} bytes each"
)]
pub struct TableNameError;

/// The name of a table, checked and quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableName {
    schema: Option<String>,
    table: String,
}

impl TableName {
    /// Parses `table` or `schema.table`.
    pub(super) fn parse(name: &str) -> Result<TableName, TableNameError> {
        let (schema, table) = match name.split_once('.') {
            Some((schema, table)) => (Some(part(schema)?), part(table)?),
            None => (None, part(name)?),
        };
        Ok(TableName { schema, table })
    }

    /// Returns the name as it is written in a statement.
    pub(super) fn quoted(&self) -> String {
        format!("{}\"{}\"", self.prefix(), self.table)
    }

    /// Returns the name of the index on the time, without a schema.
    pub(super) fn index(&self) -> String {
        format!("\"{}_processed_at\"", self.table)
    }

    /// Returns the table without its schema, as SQLite wants it in `CREATE INDEX`.
    #[cfg(feature = "sqlite")]
    pub(super) fn quoted_table(&self) -> String {
        format!("\"{}\"", self.table)
    }

    /// Returns the schema and a full stop, or nothing.
    pub(super) fn prefix(&self) -> String {
        let schema = self.schema.as_ref();
        schema.map_or_else(String::new, |schema| format!("\"{schema}\"."))
    }
}

fn part(name: &str) -> Result<String, TableNameError> {
    let is_valid = (1..=MAX_NAME_BYTES).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_valid {
        Ok(name.to_owned())
    } else {
        Err(TableNameError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_quoted() {
        let quoted = |name: &str| TableName::parse(name).map(|name| name.quoted());
        assert_eq!(quoted("inbox").as_deref(), Ok("\"inbox\""));
        assert_eq!(quoted("app.inbox").as_deref(), Ok("\"app\".\"inbox\""));
        let too_long = "a".repeat(MAX_NAME_BYTES + 1);
        for name in [
            "", ".", "a.", ".a", "a.b.c", "a b", "a\"b", "a;b", "ä", &too_long,
        ] {
            assert_eq!(quoted(name), Err(TableNameError), "{name}");
        }
    }
}
