//! docs/guides/providers: every preset has a page and a row in the index, every command exists.

use std::{fs, path::PathBuf};

use surehook_types::time::HumanDuration;
use surehook_webhooks::provider::PROVIDERS;

use crate::{documentation::blocks, support::process::run_surehook};

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
