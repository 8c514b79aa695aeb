//! The one place that prints.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use super::failure::Failure;
use crate::picture::terminal;

/// A path that stands for standard input or output.
pub const STANDARD: &str = "-";

/// Prints an answer for a person. Styles reach terminals only.
pub fn print(text: &str) -> Result<(), Failure> {
    write(anstream::stdout().lock(), text)
}

/// Prints an answer for a tool: as it is, whatever it holds.
pub fn print_raw(text: &str) -> Result<(), Failure> {
    write(io::stdout().lock(), text)
}

/// Says something on standard error that is no answer and no complaint.
pub fn note(text: &str) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Writes it all. A reader who has seen enough (`| head`) is no failure.
fn write(mut out: impl Write, text: &str) -> Result<(), Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Unprintable(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a picture where it was asked for, and says so on standard error.
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

/// Says on standard error what went wrong. If even that fails, the exit code still tells.
pub fn complain(message: &str) {
    let _ = writeln!(
        anstream::stderr(),
        "{} {message}",
        terminal::styled(terminal::BAD.bold(), "error:")
    );
}

/// Says on standard error what helps a person and is no part of the answer.
pub fn remark(message: &str) {
    let message = terminal::styled(terminal::QUIET, &terminal::printable(message));
    let _ = writeln!(anstream::stderr(), "{message}");
}

/// How wide an answer may be.
pub fn width() -> usize {
    terminal::width(std::env::var("COLUMNS").ok().as_deref())
}
