//! All output to standard output and standard error.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use posthaste_charts::terminal;

use super::failure::Failure;

/// The path that stands for standard input or output.
pub const STANDARD: &str = "-";

/// Prints text for a person. Styles are removed unless the output is a terminal.
pub fn print(text: &str) -> Result<(), Failure> {
    write(anstream::stdout().lock(), text)
}

/// Prints text for a tool, unchanged.
pub fn print_raw(text: &str) -> Result<(), Failure> {
    write(io::stdout().lock(), text)
}

/// Prints a message on standard error that is neither a result nor an error.
pub fn note(text: &str) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Writes all of the text. A closed pipe (`| head`) is not an error.
fn write(mut out: impl Write, text: &str) -> Result<(), Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Unprintable(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a chart to a file, and reports it on standard error.
pub fn write_picture(path: &Path, picture: &str) -> Result<(), Failure> {
    if path == Path::new(STANDARD) {
        return print_raw(picture);
    }
    fs::write(path, picture).map_err(|error| Failure::Unwritable {
        path: path.to_owned(),
        error,
    })?;
    let path = terminal::printable(&path.display().to_string());
    let _ = writeln!(anstream::stderr(), "wrote {path}");
    Ok(())
}

/// Prints an error on standard error. If that fails too, the exit code still reports it.
pub fn complain(message: &str) {
    let _ = writeln!(
        anstream::stderr(),
        "{} {message}",
        terminal::styled(terminal::BAD.bold(), "error:")
    );
}

/// Prints a hint on standard error that is not part of the result.
pub fn remark(message: &str) {
    let message = terminal::styled(terminal::QUIET, &terminal::printable(message));
    let _ = writeln!(anstream::stderr(), "{message}");
}

/// Returns the maximum width of the output, in columns.
pub fn width() -> usize {
    terminal::width(std::env::var("COLUMNS").ok().as_deref())
}
