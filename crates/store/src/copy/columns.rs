//! Converts SQLite rows to column arrays for PostgreSQL.
//!
//! Rows are inserted by one statement for many rows, with one array for each column. [`ColumnKind`] says how a column is
//! made; a value that does not fit is an error.

use posthaste_core::cluster::Shard;
use posthaste_core::id::EndpointId;
use rusqlite::types::Value;
use tokio_postgres::types::ToSql;

use super::CopyError;
use crate::postgres::Id;
use crate::sqlite::{Export, id_of_row};

/// The type of a target column, and the source values that it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    /// A `bigint`.
    Long,
    /// An `integer`.
    Int,
    /// A `smallint`.
    Small,
    /// A `boolean`, from a number.
    Flag,
    /// A `double precision`.
    Real,
    /// A `text`.
    Text,
    /// A `bytea`.
    Bytes,
    /// A `uuid`, from a key and a tail.
    Row,
    /// A `uuid`, from its bytes.
    Id,
    /// A `smallint`: the shard of the endpoint with these bytes.
    Shard,
    /// A `smallint`: the shard of a schedule, from the ids of its tenant and its own.
    ScheduleShard,
}

impl ColumnKind {
    /// The SQL name of an array of this type.
    pub(super) fn array(self) -> &'static str {
        match self {
            ColumnKind::Long => "bigint[]",
            ColumnKind::Int => "integer[]",
            ColumnKind::Small | ColumnKind::Shard | ColumnKind::ScheduleShard => "smallint[]",
            ColumnKind::Flag => "boolean[]",
            ColumnKind::Real => "double precision[]",
            ColumnKind::Text => "text[]",
            ColumnKind::Bytes => "bytea[]",
            ColumnKind::Row | ColumnKind::Id => "uuid[]",
        }
    }

    /// Creates an empty column of this type.
    fn column(self) -> Column {
        match self {
            ColumnKind::Long => Column::Long(Vec::new()),
            ColumnKind::Int => Column::Int(Vec::new()),
            ColumnKind::Small | ColumnKind::Shard | ColumnKind::ScheduleShard => {
                Column::Small(Vec::new())
            }
            ColumnKind::Flag => Column::Flag(Vec::new()),
            ColumnKind::Real => Column::Real(Vec::new()),
            ColumnKind::Text => Column::Text(Vec::new()),
            ColumnKind::Bytes => Column::Bytes(Vec::new()),
            ColumnKind::Row | ColumnKind::Id => Column::Id(Vec::new()),
        }
    }
}

/// The values of one column for many rows.
#[derive(Debug)]
pub(super) enum Column {
    Long(Vec<Option<i64>>),
    Int(Vec<Option<i32>>),
    Small(Vec<Option<i16>>),
    Flag(Vec<Option<bool>>),
    Real(Vec<Option<f64>>),
    Text(Vec<Option<String>>),
    Bytes(Vec<Option<Vec<u8>>>),
    Id(Vec<Option<Id>>),
}

impl Column {
    /// Returns the parameter for a statement.
    pub(super) fn as_sql(&self) -> &(dyn ToSql + Sync) {
        match self {
            Column::Long(values) => values,
            Column::Int(values) => values,
            Column::Small(values) => values,
            Column::Flag(values) => values,
            Column::Real(values) => values,
            Column::Text(values) => values,
            Column::Bytes(values) => values,
            Column::Id(values) => values,
        }
    }
}

/// Converts rows to columns of these types.
pub(super) fn columns(
    kinds: &[ColumnKind],
    rows: Vec<Vec<Value>>,
) -> Result<Vec<Column>, CopyError> {
    let mut columns: Vec<Column> = kinds.iter().map(|kind| kind.column()).collect();
    for row in rows {
        let mut values = row.into_iter();
        for (kind, column) in kinds.iter().zip(&mut columns) {
            push(*kind, column, &mut values)?;
        }
        if values.next().is_some() {
            return Err(unexpected("a column too many"));
        }
    }
    Ok(columns)
}

fn push(
    kind: ColumnKind,
    column: &mut Column,
    values: &mut impl Iterator<Item = Value>,
) -> Result<(), CopyError> {
    let value = values
        .next()
        .ok_or_else(|| unexpected("a column too few"))?;
    match column {
        Column::Long(column) => column.push(long(value)?),
        Column::Int(column) => column.push(narrow(long(value)?)?),
        Column::Small(column) if kind == ColumnKind::Shard => {
            let shard = |id| Shard::of(EndpointId(id)).number();
            column.push(narrow(id(value)?.map(|id| i64::from(shard(id))))?);
        }
        Column::Small(column) if kind == ColumnKind::ScheduleShard => {
            let schedule = values
                .next()
                .ok_or_else(|| unexpected("a column too few"))?;
            let shard = schedule_shard(&value, &schedule)?.number();
            column.push(narrow(Some(i64::from(shard)))?);
        }
        Column::Small(column) => column.push(narrow(long(value)?)?),
        Column::Flag(column) => column.push(long(value)?.map(|flag| flag != 0)),
        Column::Real(column) => column.push(match value {
            Value::Null => None,
            Value::Real(real) => Some(real),
            Value::Integer(whole) => Some(whole as f64),
            Value::Text(_) | Value::Blob(_) => return Err(unexpected("not a number")),
        }),
        Column::Text(column) => column.push(match value {
            Value::Null => None,
            Value::Text(text) => Some(text),
            Value::Integer(_) | Value::Real(_) | Value::Blob(_) => {
                return Err(unexpected("not a text"));
            }
        }),
        Column::Bytes(column) => column.push(blob(value)?),
        Column::Id(column) if kind == ColumnKind::Row => {
            let tail = values
                .next()
                .ok_or_else(|| unexpected("a column too few"))?;
            let id = long(value)?.zip(long(tail)?);
            column.push(id.map(|(key, tail)| Id(id_of_row(key, tail))));
        }
        Column::Id(column) => column.push(id(value)?.map(Id)),
    }
    Ok(())
}

/// Converts a replay's targets: keys of events become their ids. A target whose event was deleted keeps its position,
/// so that the counts of the replay stay correct. It refers to no event, as before.
pub(super) fn targets(export: &Export, packed: &[u8]) -> Result<Vec<u8>, CopyError> {
    let mut written = Vec::with_capacity(packed.len() * 3 / 2);
    for target in packed.chunks_exact(16) {
        let half = |range: std::ops::Range<usize>| {
            i64::from_le_bytes(target[range].try_into().expect("eight bytes"))
        };
        let key = half(0..8);
        let tail = export.number(&format!("SELECT tail FROM events WHERE key = {key}"))?;
        written.extend_from_slice(&id_of_row(key, tail).to_be_bytes());
        written.extend_from_slice(&half(8..16).to_be_bytes());
    }
    Ok(written)
}

fn long(value: Value) -> Result<Option<i64>, CopyError> {
    match value {
        Value::Null => Ok(None),
        Value::Integer(number) => Ok(Some(number)),
        Value::Real(_) | Value::Text(_) | Value::Blob(_) => Err(unexpected("not a whole number")),
    }
}

fn schedule_shard(tenant: &Value, schedule: &Value) -> Result<Shard, CopyError> {
    let (Value::Text(tenant), Value::Text(schedule)) = (tenant, schedule) else {
        return Err(unexpected("not a text"));
    };
    match (tenant.parse(), schedule.parse()) {
        (Ok(tenant), Ok(schedule)) => Ok(Shard::of_schedule(&tenant, &schedule)),
        (Err(_), _) | (_, Err(_)) => Err(unexpected("not an id")),
    }
}

fn narrow<T: TryFrom<i64>>(number: Option<i64>) -> Result<Option<T>, CopyError> {
    let narrow = number.map(T::try_from).transpose();
    narrow.map_err(|_| unexpected("a number that is too great"))
}

fn blob(value: Value) -> Result<Option<Vec<u8>>, CopyError> {
    match value {
        Value::Null => Ok(None),
        Value::Blob(bytes) => Ok(Some(bytes)),
        Value::Integer(_) | Value::Real(_) | Value::Text(_) => Err(unexpected("not bytes")),
    }
}

fn id(value: Value) -> Result<Option<u128>, CopyError> {
    let Some(bytes) = blob(value)? else {
        return Ok(None);
    };
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| unexpected("not an id"))?;
    Ok(Some(u128::from_be_bytes(bytes)))
}

fn unexpected(what: &str) -> CopyError {
    CopyError::Read(format!("{what} where the format has something else"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_takes_two_columns_or_sixteen_bytes() {
        let id = id_of_row(77 << 12, 5);
        let row = vec![
            Value::Integer(77 << 12),
            Value::Integer(5),
            Value::Blob(id.to_be_bytes().to_vec()),
            Value::Null,
        ];
        let columns = columns(
            &[ColumnKind::Row, ColumnKind::Id, ColumnKind::Id],
            vec![row],
        )
        .unwrap();
        let ids: Vec<_> = columns
            .iter()
            .map(|column| {
                let Column::Id(ids) = column else {
                    panic!("{column:?}");
                };
                ids[0]
            })
            .collect();
        assert_eq!(ids, [Some(Id(id)), Some(Id(id)), None]);
    }

    #[test]
    fn unexpected_values_are_errors() {
        let read = |kind, value| columns(&[kind], vec![vec![value]]);
        assert!(read(ColumnKind::Small, Value::Integer(40_000)).is_err());
        assert!(read(ColumnKind::Long, Value::Text("7".to_owned())).is_err());
        assert!(read(ColumnKind::Id, Value::Blob(vec![0; 15])).is_err());
        assert!(read(ColumnKind::Row, Value::Integer(1)).is_err());
        assert!(columns(&[], vec![vec![Value::Null]]).is_err());
        assert!(read(ColumnKind::Flag, Value::Integer(1)).is_ok());
    }
}
