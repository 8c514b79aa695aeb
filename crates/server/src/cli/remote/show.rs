//! Prints API answers as JSON.

use std::io::{self, IsTerminal};

use posthaste_api::json_indent::indented;

use crate::cli::failure::Failure;
use crate::cli::output;

/// Prints JSON: unchanged for a tool, indented on a terminal. An empty answer prints nothing.
pub fn json(text: &str) -> Result<(), Failure> {
    if text.is_empty() {
        return Ok(());
    }
    if io::stdout().is_terminal() {
        return output::print_raw(&format!("{}\n", indented(text)));
    }
    output::print_raw(&format!("{text}\n"))
}
