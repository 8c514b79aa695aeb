-- Payloads of large requests, stored before their events. `payload_no` of an event is the number of its row; without one,
-- the payload is in the row of the event. `staged_payloads` has the numbers reserved for requests that are not accepted yet.
CREATE TABLE payloads (no INTEGER PRIMARY KEY, payload BLOB NOT NULL);
CREATE TABLE staged_payloads (first_no INTEGER PRIMARY KEY, last_no INTEGER NOT NULL);
ALTER TABLE events ADD COLUMN payload_no INTEGER;
