//! Stores enums as number codes in columns.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

use crate::codes::Coded;
pub(super) use crate::codes::RowStatus;

/// A column that holds the code of a `T`.
pub(super) struct Code<T>(pub(super) T);

impl<T: Coded> ToSql for Code<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.code().into())
    }
}

impl<T: Coded> FromSql for Code<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Code<T>> {
        let code = value.as_i64()?;
        T::decode(code)
            .map(Code)
            .ok_or(FromSqlError::OutOfRange(code))
    }
}
