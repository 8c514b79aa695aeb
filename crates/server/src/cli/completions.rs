//! `posthaste completions`: prints a completion script for a shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::args::Cli;
use super::failure::Failure;
use super::output;

const EXAMPLES: &str = "\
Examples:
  posthaste completions bash > ~/.local/share/bash-completion/completions/posthaste
  posthaste completions zsh > ~/.zfunc/_posthaste
  posthaste completions fish > ~/.config/fish/completions/posthaste.fish";

/// `completions`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// For this shell
    pub shell: Shell,
}

/// Prints the script.
pub fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "posthaste", &mut script);
    output::print_raw(&String::from_utf8_lossy(&script))
}
