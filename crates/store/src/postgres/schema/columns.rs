//! Conversion between Rust values and columns: ids, enum codes, times, JSON.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use posthaste_core::subscription::Pattern;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::codes::Coded;
use crate::postgres::db_error::DbError;

/// An id, stored as a `uuid`: 16 bytes that sort like the ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id(pub(crate) u128);

impl ToSql for Id {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_u128(self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Id {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Id, Box<dyn Error + Sync + Send>> {
        Ok(Id(u128::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }
}

/// An enum value, stored as a `smallint` code.
#[derive(Clone, Copy, Debug)]
pub(in crate::postgres) struct EnumCode<T>(pub(in crate::postgres) T);

impl<T: Coded + std::fmt::Debug> ToSql for EnumCode<T> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_i16(i16::try_from(self.0.code())?);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::INT2
    }

    to_sql_checked!();
}

impl<'a, T: Coded> FromSql<'a> for EnumCode<T> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<EnumCode<T>, Box<dyn Error + Sync + Send>> {
        let code = i64::from(i16::from_be_bytes(raw.try_into()?));
        let word = T::decode(code);
        word.map(EnumCode)
            .ok_or_else(|| format!("{code} is no word of this kind").into())
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::INT2
    }
}

/// Reads an enum code. A code that a later version added is an error, not a panic.
pub(in crate::postgres) fn word<T: Coded>(row: &Row, column: usize) -> Result<T, DbError> {
    let code: Option<i16> = row.get(column);
    let word = code.and_then(|code| T::decode(code.into()));
    word.ok_or_else(|| DbError::Corrupt(format!("{code:?} is no word of its kind")))
}

/// Parses stored JSON.
pub(in crate::postgres) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, DbError> {
    serde_json::from_str(text).map_err(|error| DbError::Corrupt(error.to_string()))
}

/// Parses stored JSON. Returns the default if there is none.
pub(in crate::postgres) fn json_or_default<T: DeserializeOwned + Default>(
    text: Option<&str>,
) -> Result<T, DbError> {
    text.map_or_else(|| Ok(T::default()), from_json)
}

/// Serializes a value as JSON. The types that this crate stores can always be serialized.
pub(in crate::postgres) fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("what we store has a form in JSON")
}

/// Parses stored text.
pub(in crate::postgres) fn parse<T>(text: &str) -> Result<T, DbError>
where
    T: std::str::FromStr<Err: std::error::Error>,
{
    text.parse()
        .map_err(|error: T::Err| DbError::Corrupt(error.to_string()))
}

/// Parses stored subscription patterns.
pub(in crate::postgres) fn read_patterns(text: &str) -> Result<Vec<Pattern>, DbError> {
    let patterns: Vec<String> = from_json(text)?;
    patterns.iter().map(|pattern| parse(pattern)).collect()
}

/// Parses a stored retry policy.
pub(in crate::postgres) fn policy(text: Option<&str>) -> Result<Option<Value>, DbError> {
    text.map(from_json).transpose()
}
