//! docs/guides/providers: every example works, every preset has a page and a row in the index.

use std::{fs, path::PathBuf};

use surehook_types::time::HumanDuration;
use surehook_webhooks::provider::PROVIDERS;

use crate::support::process::run_surehook;

/// Values for variables that accept only a special secret.
const SPECIAL: &[(&str, &str)] = &[
    // The public key of RFC 8032, test 1.
    ("PUBLIC_KEY", "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"),
];
/// Accepted by all others: long enough, base64, and without characters that a provider forbids.
const SECRET: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/providers")
}

/// Name and text of every page.
fn pages() -> Vec<(String, String)> {
    let mut pages: Vec<_> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect();
    pages.sort();
    pages
}

/// The code blocks of a page in one language.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let fence = format!("\n```{language}\n");
    let rest = page.split(&fence).skip(1);
    rest.map(|rest| rest.split("\n```").next().unwrap()).collect()
}

/// A value for every environment variable used in an example.
fn environment(toml: &str) -> Vec<(String, String)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = toml.split("env:").skip(1).map(|rest| rest.split(|c| !is_part(c)).next().unwrap());
    let value = |name: &str| {
        let special = SPECIAL.iter().find(|(end, _)| name.ends_with(end));
        special.map_or(SECRET, |(_, value)| value).to_owned()
    };
    names.map(|name| (name.to_owned(), value(name))).collect()
}

#[tokio::test]
async fn every_toml_example_is_valid_configuration() {
    for (name, page) in pages() {
        let blocks = blocks(&page, "toml");
        assert!(!blocks.is_empty() || name == "README", "{name} has no example");
        for toml in blocks {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("surehook.toml"), toml).unwrap();
            let args = ["config", "check", "surehook.toml"];

            let checked = run_surehook(folder.path(), &args, &environment(toml)).await;

            assert_eq!(checked.code, Some(0), "{name}: {toml}\n{checked:?}");
            // Readers copy examples, so they must not contain literal secrets.
            let secrets = toml.lines().filter(|line| line.starts_with("secrets"));
            for line in secrets {
                assert_eq!(
                    line.matches('"').count(),
                    line.matches("env:").count() * 2,
                    "{name}: {line}"
                );
            }
            // The example is valid even when the variables are not set.
            let unset = run_surehook(folder.path(), &args, &[]).await;
            let needs_key = environment(toml).iter().any(|(_, value)| value != SECRET);
            assert!(needs_key || unset.code == Some(0), "{name}: {unset:?}");
        }
    }
}

#[tokio::test]
async fn every_shell_example_is_a_known_command() {
    let folder = tempfile::tempdir().unwrap();
    for (name, page) in pages() {
        for line in blocks(&page, "sh").iter().flat_map(|block| block.lines()) {
            let Some(words) = line.strip_prefix("surehook ") else { continue };
            let words = words.split(" #").next().unwrap();
            assert!(!words.contains(['\'', '"', '|', '$']), "{name}: this test cannot read {line}");
            // Unknown commands and options are errors even with --help.
            let args: Vec<_> = words.split_whitespace().chain(["--help"]).collect();
            let output = run_surehook(folder.path(), &args, &[]).await;
            assert_eq!(output.code, Some(0), "{name}: {line}: {output:?}");
        }
    }
    // Makes sure that --help does not hide unknown commands.
    for wrong in [["events", "lost"], ["events", "--lost"]] {
        let output = run_surehook(folder.path(), &[wrong[0], wrong[1], "--help"], &[]).await;
        assert_ne!(output.code, Some(0), "{wrong:?}");
    }
}

#[test]
fn every_preset_has_page_and_correct_index_row() {
    let index = fs::read_to_string(folder().join("README.md")).unwrap();
    for provider in PROVIDERS {
        let name = provider.name;
        let page = fs::read_to_string(folder().join(format!("{name}.md")));
        let page = page.unwrap_or_else(|error| panic!("docs/guides/providers/{name}.md: {error}"));
        let example = format!("provider = \"{name}\"");
        assert!(name == "generic" || page.contains(&example), "{name}.md does not use it");

        let row = index.lines().find(|row| row.starts_with(&format!("| [`{name}`]({name}.md) |")));
        let row = row.unwrap_or_else(|| panic!("{name} is not in docs/guides/providers/README.md"));
        let window: HumanDuration = provider.dedup_window;
        assert!(row.contains(&format!("| {window} |")), "the window of {name} is {window}: {row}");
    }
}

#[test]
fn links_between_provider_pages_resolve() {
    let is_there = |target: &str| folder().join(target).exists();
    for (name, page) in pages() {
        for link in page.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if link.starts_with("https://") {
                continue;
            }
            let target = link.split('#').next().unwrap();
            let preset = target.strip_suffix(".md").filter(|stem| !stem.contains('/'));
            let is_known = preset.is_none_or(|preset| PROVIDERS.iter().any(|p| p.name == preset));
            assert!(!is_known || is_there(target), "{name}: {link} leads nowhere");
        }
    }
}
