//! `posthaste completions`: prints a completion script for a shell.

use clap::{Args, Command};
use clap_complete::Shell;

use super::error::CommandError;
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
    /// Shell to generate the script for
    pub shell: Shell,
}

/// Prints the script for the command line `command`.
pub fn run(args: &CompletionsArgs, mut command: Command) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "posthaste", &mut script);
    output::print_raw(&String::from_utf8_lossy(&script))
}
