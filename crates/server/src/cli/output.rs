//! All output to standard output and standard error.
//!
//! Results go to standard output: [`print()`] for people, [`print_raw`] and [`print_json`] for tools. Errors, notices and
//! hints go to standard error.

use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

use posthaste_api::json_indent::indented;
use posthaste_charts::terminal;

use super::error::CommandError;
use super::input::STANDARD;

/// Prints text for a person. Styles are removed unless the output is a terminal.
pub fn print(text: &str) -> Result<(), CommandError> {
    write(anstream::stdout().lock(), text)
}

/// Prints text for a tool, unchanged.
pub fn print_raw(text: &str) -> Result<(), CommandError> {
    write(io::stdout().lock(), text)
}

/// Prints JSON: unchanged for a tool, indented on a terminal. An empty text prints nothing.
pub fn print_json(json: &str) -> Result<(), CommandError> {
    match json {
        "" => Ok(()),
        json if io::stdout().is_terminal() => print_raw(&format!("{}\n", indented(json))),
        json => print_raw(&format!("{json}\n")),
    }
}

/// Prints a message on standard error that is neither a result nor an error.
pub fn print_notice(text: &str) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Writes all of the text. A closed pipe (`| head`) is not an error.
fn write(mut out: impl Write, text: &str) -> Result<(), CommandError> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CommandError::Print(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a chart to a file, and reports it on standard error.
pub fn write_chart(path: &Path, chart: &str) -> Result<(), CommandError> {
    if path == Path::new(STANDARD) {
        return print_raw(chart);
    }
    fs::write(path, chart).map_err(|error| CommandError::WriteFile {
        path: path.to_owned(),
        error,
    })?;
    let path = terminal::printable(&path.display().to_string());
    let _ = writeln!(anstream::stderr(), "wrote {path}");
    Ok(())
}

/// Prints an error on standard error. If that fails too, the exit code still reports it.
pub fn print_error(message: &str) {
    let _ = writeln!(
        anstream::stderr(),
        "{} {message}",
        terminal::styled(terminal::BAD.bold(), "error:")
    );
}

/// Prints a hint on standard error that is not part of the result.
pub fn print_hint(message: &str) {
    let message = terminal::styled(terminal::QUIET, &terminal::printable(message));
    let _ = writeln!(anstream::stderr(), "{message}");
}

/// Returns the maximum width of the output, in columns: that of `COLUMNS`, or else of the terminal.
pub fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok();
    let columns = columns.or_else(|| terminal_columns().map(|columns| columns.to_string()));
    terminal::width(columns.as_deref())
}

/// Returns the width of the terminal, if standard output is one.
pub fn terminal_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
