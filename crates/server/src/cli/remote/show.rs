//! Printing answers of the API as JSON.

use std::io::{self, IsTerminal};

use super::indent::indented;
use crate::cli::failure::Failure;
use crate::cli::output;

/// Prints JSON: a line as it came for a tool, laid out for a person at a terminal. Nothing is printed
/// where nothing was said.
pub fn json(text: &str) -> Result<(), Failure> {
    if text.is_empty() {
        return Ok(());
    }
    if io::stdout().is_terminal() {
        return output::print_raw(&format!("{}\n", indented(text)));
    }
    output::print_raw(&format!("{text}\n"))
}
