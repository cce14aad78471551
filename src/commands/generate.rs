//! `effigy completions` and `effigy man`: what packagers install, made from the command-line definition.

use std::io;
use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;

pub(crate) fn completions(shell: Shell) {
    clap_complete::generate(shell, &mut Cli::command(), "effigy", &mut io::stdout());
}

/// Writes `effigy.1` to standard output, or it and one page for each command into a directory.
pub(crate) fn man(directory: Option<&Path>) -> anyhow::Result<()> {
    match directory {
        None => clap_mangen::Man::new(Cli::command())
            .render(&mut io::stdout())
            .context("cannot write the man page"),
        Some(directory) => clap_mangen::generate_to(Cli::command(), directory)
            .with_context(|| format!("cannot write man pages into {}", directory.display())),
    }
}
