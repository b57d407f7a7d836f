//! `surehook completions` and `man`: what a shell and a manual want to know of the command line.

use std::io::Write as _;

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::{
    cli::{Cli, CompletionsArgs, ManArgs},
    failure::Failure,
    output,
};

pub(super) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(), "surehook", &mut script);
    Ok(output::line(String::from_utf8(script)?.trim_end())?)
}

/// The command line without what is hidden: shells would offer it all the same.
fn visible() -> clap::Command {
    let whole = Cli::command();
    clap::Command::new("surehook")
        .args(whole.get_arguments().cloned())
        .subcommands(whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned())
}

pub(super) fn man(args: &ManArgs) -> Result<(), Failure> {
    let Some(folder) = &args.folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        page.flush()?;
        return Ok(output::line(String::from_utf8(page)?.trim_end())?);
    };
    let named = || format!("cannot write manual pages into {}", folder.display());
    std::fs::create_dir_all(folder).with_context(named)?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(named)?;
    output::note(&format!("wrote manual pages into {}", folder.display()));
    Ok(())
}

/// Prints the description of the API.
pub(super) fn openapi() -> Result<(), Failure> {
    Ok(output::line(surehook_http::openapi_document().trim_end())?)
}
