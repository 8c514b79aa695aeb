//! The API from a terminal, through the built program, against servers that say what they are told.

mod answers;
mod complaints;
mod kit;
mod listening;
mod requests;
mod watching;
