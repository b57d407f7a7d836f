//! `surehook completions`, `man` and `openapi`: prints or writes documents generated from the code.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};

use crate::{cli::Cli, error::CliError, output};

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell
    shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManPageArgs {
    /// Write one page per command into this folder [default: print the main page]
    folder: Option<PathBuf>,
}

pub(super) fn print_completions(args: &CompletionsArgs) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible_command(), "surehook", &mut script);
    output::print_line(String::from_utf8(script)?.trim_end())
}

/// The command without hidden subcommands, which shells would offer otherwise.
fn visible_command() -> clap::Command {
    let cli = Cli::command();
    clap::Command::new("surehook")
        .args(cli.get_arguments().cloned())
        .subcommands(cli.get_subcommands().filter(|command| !command.is_hide_set()).cloned())
}

pub(super) fn print_man_pages(args: &ManPageArgs) -> Result<(), CliError> {
    let Some(folder) = &args.folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        return output::print_line(String::from_utf8(page)?.trim_end());
    };
    let context = || format!("cannot write manual pages into {}", folder.display());
    std::fs::create_dir_all(folder).with_context(context)?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(context)?;
    output::note(&format!("Manual pages written to {}", folder.display()));
    Ok(())
}

pub(super) fn print_openapi() -> Result<(), CliError> {
    output::print_line(surehook_server::openapi_document().trim_end())
}
