//! Stores the payloads of a large request before its events, so that no transaction writes many bytes.
//!
//! [`StagedPayloads`] stores the payloads of a request with more than [`MAX_BYTES_AT_ONCE`] bytes as rows of the table
//! `payloads`, one piece in each transaction. No event refers to these rows, so they cannot be read or delivered. The
//! transaction that accepts the request stores its events with the numbers of the rows: all of the request is accepted, or
//! nothing. Between two pieces the writer serves other classes; operations of the same tenant wait.
//!
//! The reserved numbers are in the table `staged_payloads` until the request is accepted. If it is refused, fails, or the
//! process ends before, [`DiscardPayloads`] deletes the rows, at once or when the store is opened again ([`resume`]).

use rusqlite::{Connection, OptionalExtension};

use super::group_budget::{BYTES_PER_ROW, MAX_BYTES_AT_ONCE};
use super::group_commit::{Operation, WriteContext};
use crate::{NewEvent, StoreError};

/// The number of a row of the table `payloads`.
pub(super) type PayloadNo = i64;

/// Returns whether the payloads of a request are stored before its events. A single payload is not divided.
pub(super) fn is_needed(events: &[NewEvent]) -> bool {
    let bytes = events.iter().map(|event| event.content.payload.len());
    events.len() > 1 && bytes.sum::<usize>() > MAX_BYTES_AT_ONCE
}

/// The payloads of a request that is not accepted yet.
#[derive(Clone, Debug)]
pub(super) struct StagedPayloads {
    first_no: PayloadNo,
    /// The number of each event's payload; `None` if the event was stored by an earlier request. Operations of the tenant
    /// wait, so the other events are still new when the request is accepted.
    numbers: Vec<Option<PayloadNo>>,
    /// Number of events, in their order, whose payloads are stored.
    stored: usize,
}

impl StagedPayloads {
    /// Reserves numbers for the payloads of the new events of a request.
    pub(super) fn begin(conn: &Connection, is_new: &[bool]) -> rusqlite::Result<StagedPayloads> {
        let first_no: PayloadNo = conn
            .prepare_cached(
                "SELECT 1 + max(ifnull((SELECT max(no) FROM payloads), 0), \
                 ifnull((SELECT max(last_no) FROM staged_payloads), 0))",
            )?
            .query_row([], |row| row.get(0))?;
        let mut next_no = first_no;
        let mut reserve = || {
            next_no += 1;
            next_no - 1
        };
        let numbers = is_new
            .iter()
            .map(|is_new| is_new.then(&mut reserve))
            .collect();
        conn.prepare_cached("INSERT INTO staged_payloads (first_no, last_no) VALUES (?1, ?2)")?
            .execute((first_no, next_no - 1))?;
        Ok(StagedPayloads {
            first_no,
            numbers,
            stored: 0,
        })
    }

    /// Stores the next piece.
    pub(super) fn store_piece(
        &mut self,
        conn: &Connection,
        events: &[NewEvent],
    ) -> rusqlite::Result<()> {
        let (end, _) = self.next_piece(events);
        let mut insert =
            conn.prepare_cached("INSERT INTO payloads (no, payload) VALUES (?1, ?2)")?;
        let numbered = self.numbers.iter().zip(events);
        for (no, event) in numbered.take(end).skip(self.stored) {
            if let Some(no) = no {
                insert.execute((no, event.content.payload.as_ref()))?;
            }
        }
        self.stored = end;
        Ok(())
    }

    /// Returns whether all payloads are stored.
    pub(super) fn is_complete(&self) -> bool {
        self.stored == self.numbers.len()
    }

    /// Returns the number of the payload of the event at this position.
    pub(super) fn number(&self, index: usize) -> Option<PayloadNo> {
        self.numbers[index]
    }

    /// Returns the size of the next piece, in bytes.
    pub(super) fn next_bytes(&self, events: &[NewEvent]) -> usize {
        self.next_piece(events).1
    }

    /// Returns the end of the next piece, and the bytes of the payloads that it stores.
    fn next_piece(&self, events: &[NewEvent]) -> (usize, usize) {
        let sizes = self.numbers.iter().zip(events).map(|(no, event)| match no {
            Some(_) => event.content.payload.len(),
            None => 0,
        });
        let (count, bytes) = piece(sizes.skip(self.stored));
        (self.stored + count, bytes)
    }

    /// Keeps the payloads, because events refer to them now.
    pub(super) fn keep(&self, conn: &Connection) -> rusqlite::Result<()> {
        end_staging(conn, self.first_no)
    }

    /// Returns the operation that deletes the payloads.
    pub(super) fn discard(&self) -> DiscardPayloads {
        DiscardPayloads::of(self.first_no)
    }
}

/// Returns the bytes of the first piece if all events are new.
pub(super) fn first_bytes(events: &[NewEvent]) -> usize {
    piece(events.iter().map(|event| event.content.payload.len())).1
}

/// Cuts a piece off payloads of these sizes. Returns their number and their bytes. An event that is stored already has
/// size 0.
fn piece(sizes: impl Iterator<Item = usize>) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    for size in sizes {
        if size > 0 && bytes > 0 && bytes + size > MAX_BYTES_AT_ONCE {
            break;
        }
        (count, bytes) = (count + 1, bytes + size);
    }
    (count, bytes)
}

fn end_staging(conn: &Connection, first_no: PayloadNo) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM staged_payloads WHERE first_no = ?1")?
        .execute([first_no])?;
    Ok(())
}

/// Deletes the payloads of a request that was not accepted, one piece in each transaction.
pub(super) struct DiscardPayloads {
    first_no: PayloadNo,
    is_complete: bool,
}

impl DiscardPayloads {
    fn of(first_no: PayloadNo) -> DiscardPayloads {
        DiscardPayloads {
            first_no,
            is_complete: false,
        }
    }

    /// Deletes the next piece. Returns whether it was the last.
    fn delete_piece(&self, context: &mut WriteContext<'_>) -> rusqlite::Result<bool> {
        let conn = context.conn;
        let last_no: Option<PayloadNo> = conn
            .prepare_cached("SELECT last_no FROM staged_payloads WHERE first_no = ?1")?
            .query_row([self.first_no], |row| row.get(0))
            .optional()?;
        let Some(last_no) = last_no else {
            return Ok(true);
        };
        let mut statement = conn.prepare_cached(
            "SELECT no, length(payload) FROM payloads WHERE no >= ?1 AND no <= ?2 ORDER BY no",
        )?;
        let mut rows = statement.query((self.first_no, last_no))?;
        let (mut up_to, mut bytes, mut is_last) = (0, 0, true);
        while let Some(row) = rows.next()? {
            if bytes >= MAX_BYTES_AT_ONCE {
                is_last = false;
                break;
            }
            up_to = row.get(0)?;
            bytes += row.get::<_, i64>(1)? as usize;
        }
        conn.prepare_cached("DELETE FROM payloads WHERE no >= ?1 AND no <= ?2")?
            .execute((self.first_no, up_to))?;
        context.effects.other_work += (bytes / BYTES_PER_ROW) as u64;
        if is_last {
            end_staging(conn, self.first_no)?;
        }
        Ok(is_last)
    }
}

impl Operation for DiscardPayloads {
    fn run(&mut self, context: &mut WriteContext<'_>) -> rusqlite::Result<()> {
        self.is_complete = self.delete_piece(context)?;
        Ok(())
    }

    fn committed(self: Box<Self>) -> Option<Box<dyn Operation>> {
        if self.is_complete { None } else { Some(self) }
    }

    fn failed(self: Box<Self>, _: StoreError) -> Option<Box<dyn Operation>> {
        Some(self)
    }

    fn continues(&self) -> bool {
        !self.is_complete
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// Returns the operations that delete the payloads of the requests that were not accepted when the process ended.
pub(super) fn resume(conn: &Connection) -> rusqlite::Result<Vec<DiscardPayloads>> {
    let mut statement = conn.prepare("SELECT first_no FROM staged_payloads ORDER BY first_no")?;
    let rows = statement.query_map([], |row| Ok(DiscardPayloads::of(row.get(0)?)))?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Content;
    use bytes::Bytes;

    #[test]
    fn events_that_are_stored_already_do_not_count_for_a_piece() {
        let payload = Bytes::from(vec![0; MAX_BYTES_AT_ONCE / 2]);
        let content = Content::new("a.b".parse().expect("a type"), payload);
        let event = NewEvent::new("acme".parse().expect("a name"), content);
        let events = vec![event; 9];
        let is_new = |n: usize| n.is_multiple_of(3);
        let mut staged = StagedPayloads {
            first_no: 1,
            numbers: (0..9)
                .map(|n| is_new(n).then_some(1 + n as PayloadNo))
                .collect(),
            stored: 0,
        };
        // The first piece has the payloads of the events 0 and 3, the second that of event 6.
        assert_eq!(staged.next_piece(&events), (6, MAX_BYTES_AT_ONCE));
        staged.stored = 6;
        assert_eq!(staged.next_piece(&events), (9, MAX_BYTES_AT_ONCE / 2));
    }
}
