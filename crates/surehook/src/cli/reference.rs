//! Generates the reference part of `docs/reference/cli.md` from the command definitions, and tests
//! that it is current. `SUREHOOK_UPDATE_DOCS=1 cargo test -p surehook reference` regenerates it.

use std::{fmt::Write as _, path::Path};

use clap::{Arg, Command, CommandFactory as _};

use super::Cli;

const GENERATED_MARKER: &str =
    "<!-- Generated from the command definitions: see crates/surehook/src/cli/reference.rs -->";
/// Options shared by many commands; described once.
const COMMON: [&str; 5] = ["server", "token", "data", "database", "json"];
const GLOBAL: [&str; 4] = ["color", "quiet", "help", "version"];

#[test]
fn reference_matches_the_command_definitions() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (prose, _) = text.split_once(GENERATED_MARKER).unwrap();
    let expected = format!("{prose}{GENERATED_MARKER}\n{}", reference());
    if std::env::var_os("SUREHOOK_UPDATE_DOCS").is_some() {
        std::fs::write(&file, &expected).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        expected,
        "regenerate it with SUREHOOK_UPDATE_DOCS=1"
    );
}

#[test]
fn every_command_and_argument_has_a_help_text() {
    visit_commands(&Cli::command(), "surehook", &mut |name, command| {
        assert!(command.get_about().is_some(), "{name}");
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            assert!(arg.get_help().is_some(), "{name} {arg}");
        }
    });
}

/// Visits every command without subcommands.
fn visit_commands(command: &Command, name: &str, visit: &mut dyn FnMut(&str, &Command)) {
    let mut visible = command.get_subcommands().filter(|sub| !sub.is_hide_set()).peekable();
    if visible.peek().is_none() {
        visit(name, command);
    }
    for sub in visible {
        visit_commands(sub, &format!("{name} {}", sub.get_name()), visit);
    }
}

fn reference() -> String {
    let mut text = "\n## Global options\n\n| option | meaning |\n| --- | --- |\n".to_owned();
    let cli = Cli::command();
    cli.get_arguments().for_each(|arg| text.push_str(&row(arg)));
    text.push_str("\n## Options for a running gateway\n\n| option | meaning |\n| --- | --- |\n");
    let events = cli.find_subcommand("events").unwrap().find_subcommand("list").unwrap();
    let is_common = |arg: &&Arg| COMMON.contains(&arg.get_id().as_str());
    events.get_arguments().filter(is_common).for_each(|arg| text.push_str(&row(arg)));
    text.push_str("\n## Commands\n");
    visit_commands(&cli, "surehook", &mut |name, command| text.push_str(&section(name, command)));
    text
}

fn section(name: &str, command: &Command) -> String {
    let mut text = format!("\n### `{}`\n\n", usage(name, command));
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _always = writeln!(text, "{}.", about.trim_end_matches('.'));
    // A command with all shared options is described by a reference to them.
    let has =
        |id: &str| command.get_arguments().any(|arg| arg.get_id() == id && !arg.is_hide_set());
    let uses_gateway =
        ["server", "token", "json"].into_iter().all(has) && !name.ends_with("doctor");
    let is_specific = |arg: &&Arg| {
        let id = arg.get_id().as_str();
        let is_described_elsewhere = GLOBAL.contains(&id) || (uses_gateway && COMMON.contains(&id));
        !arg.is_hide_set() && !is_described_elsewhere
    };
    let rows: String = command.get_arguments().filter(is_specific).map(row).collect();
    if !rows.is_empty() {
        let _always = write!(text, "\n| argument | meaning |\n| --- | --- |\n{rows}");
    }
    if uses_gateway {
        let common: Vec<String> =
            COMMON.into_iter().filter(|id| has(id)).map(|id| format!("`--{id}`")).collect();
        let _always = writeln!(text, "\nOptions for a running gateway: {}.", common.join(", "));
    }
    text
}

/// The command with its required arguments.
fn usage(name: &str, command: &Command) -> String {
    let required =
        command.get_arguments().filter(|arg| arg.is_positional() || arg.is_required_set());
    let required = required.map(|arg| match (arg.get_long(), arg.is_required_set()) {
        (Some(long), _) => format!(" --{long} {}", value(arg)),
        (None, true) => format!(" {}", value(arg)),
        (None, false) => format!(" [{}]", value(arg)),
    });
    required.fold(name.to_owned(), |usage, next| usage + &next)
}

fn value(arg: &Arg) -> String {
    arg.get_value_names()
        .and_then(|names| names.first())
        .map(ToString::to_string)
        .unwrap_or_default()
}

fn row(arg: &Arg) -> String {
    let takes_value = arg.get_action().takes_values();
    let name = match (arg.get_short(), arg.get_long()) {
        (None, None) => value(arg),
        (short, long) => {
            let short = short.map(|short| format!("-{short}, ")).unwrap_or_default();
            let value = if takes_value { format!(" {}", value(arg)) } else { String::new() };
            format!("{short}--{}{value}", long.unwrap_or_default())
        }
    };
    let mut meaning =
        arg.get_help().map(ToString::to_string).unwrap_or_default().replace('|', "\\|");
    let choices: Vec<String> =
        arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    if takes_value && !choices.is_empty() {
        let _always = write!(meaning, "; one of {}", choices.join(", "));
    }
    if let Some(default) = arg.get_default_values().first().filter(|_| takes_value) {
        let _always = write!(meaning, " [default: {}]", default.to_string_lossy());
    }
    if let Some(env) = arg.get_env() {
        let _always = write!(meaning, " [env: `{}`]", env.to_string_lossy());
    }
    // A bare `|` would end the table cell, even in code.
    format!("| `{}` | {meaning} |\n", name.replace('|', "\\|"))
}
