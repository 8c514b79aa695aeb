//! The command line client of the API, through the built program, against scripted servers.

mod errors;
mod fixture;
mod listen_command;
mod output;
mod requests;
mod watch;
