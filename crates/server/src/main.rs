//! Entry point of the `posthaste` program. All of its code is in the library of the same name.

use std::process::ExitCode;

fn main() -> ExitCode {
    posthaste::cli::run()
}
