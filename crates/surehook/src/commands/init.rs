//! `surehook init`: writes a commented settings file for a provider.
//!
//! The content is that of the provider's page in the documentation: its configuration, which a test
//! checks, with the steps of the setup as comments.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, IsTerminal as _, Write as _},
    path::PathBuf,
};

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde_json::{Value, json};
use surehook_webhooks::provider::{self, preset_names};

use crate::{error::CliError, output};

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Provider whose webhooks you receive; asks for it on a terminal
    provider: Option<String>,
    /// File to write
    #[arg(long, short, value_name = "FILE", default_value = "surehook.toml")]
    output: PathBuf,
    /// URL of your application, which gets the events
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// List the providers and exit
    #[arg(long)]
    list: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The page of a provider in the documentation.
struct ProviderGuide {
    name: &'static str,
    text: &'static str,
}

macro_rules! guides {
    ($($name:literal,)*) => {
        const GUIDES: &[ProviderGuide] = &[$(ProviderGuide {
            name: $name,
            text: include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/providers/", $name, ".md"
            )),
        },)*];
    };
}

guides! {
    "adyen", "asana", "calendly", "chatwoot", "discord", "docusign", "evolution-api", "evolution-go",
    "evonexus", "generic", "github", "gitlab", "hubspot", "intercom", "linear", "mercado-pago", "n8n",
    "notion", "okta", "paypal", "sendgrid", "sentry", "shopify", "slack", "square",
    "standard-webhooks", "stripe", "telegram", "trello", "twilio", "twitch", "typeform",
    "whatsapp-cloud", "zoom",
}

pub(super) fn run(args: &InitArgs) -> Result<(), CliError> {
    if args.list {
        return list(args.json);
    }
    let name = match &args.provider {
        Some(name) => name.clone(),
        None => ask_for_provider()?,
    };
    let guide = find_guide(&name)?;
    let file = SettingsFile::of(guide, args.to.as_deref())?;
    write_new_file(args, &file.text)?;
    file.print_next_steps(args)
}

fn list(as_json: bool) -> Result<(), CliError> {
    for guide in GUIDES {
        let title = guide.title();
        let row = json!({ "provider": guide.name, "title": title });
        output::print_result(as_json, &row, &format!("{:18}  {title}", guide.name))?;
    }
    Ok(())
}

fn find_guide(name: &str) -> Result<&'static ProviderGuide, CliError> {
    let found = GUIDES.iter().find(|guide| guide.name == name);
    found.ok_or_else(|| {
        let distance = |known: &&str| strsim::damerau_levenshtein(known, name);
        let known = preset_names();
        let closest =
            known.iter().copied().min_by_key(distance).filter(|known| distance(known) <= 3);
        let error = anyhow!("unknown provider `{name}`");
        let hint = match closest {
            Some(closest) => {
                format!("Did you mean `{closest}`? All providers: surehook init --list")
            }
            None => {
                "All providers: surehook init --list. For any other sender: surehook init generic"
                    .to_owned()
            }
        };
        CliError::refused(error).hint(&hint)
    })
}

/// Asks on the terminal; elsewhere the provider must be given.
#[expect(clippy::print_stderr, reason = "a question is no result")]
fn ask_for_provider() -> Result<String, CliError> {
    if !std::io::stdin().is_terminal() {
        let error = anyhow!("no provider given, and not a terminal to ask on");
        return Err(CliError::refused(error)
            .hint("Name one, such as: surehook init stripe. List them with --list."));
    }
    eprintln!("Which webhooks do you receive?\n  {}", preset_names().join(", "));
    eprint!("Provider [generic]: ");
    std::io::stderr().flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let name = line.trim();
    Ok(if name.is_empty() { "generic".to_owned() } else { name.to_owned() })
}

impl ProviderGuide {
    /// The title of the page, without its name in the settings.
    fn title(&self) -> String {
        let title = self.text.lines().next().unwrap_or_default().trim_start_matches("# ");
        title.split(" (`").next().unwrap_or(title).to_owned()
    }

    /// The first block of settings.
    fn settings(&self) -> Option<&'static str> {
        let (_, rest) = self.text.split_once("```toml\n")?;
        rest.split_once("```").map(|(settings, _)| settings)
    }

    /// The numbered steps of the setup, as plain text.
    fn steps(&self) -> Vec<String> {
        let mut steps: Vec<String> = Vec::new();
        let section = self.text.split("\n## ").find(|section| section.starts_with("Set up"));
        for line in section.unwrap_or_default().lines().skip(1) {
            let is_step = line.split_once(". ").is_some_and(|(number, _)| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            });
            match steps.last_mut() {
                _ if is_step => steps.push(to_plain_text(line)),
                Some(step) if line.starts_with("   ") && !line.trim_start().starts_with("```") => {
                    step.push(' ');
                    step.push_str(&to_plain_text(line.trim()));
                }
                Some(_) | None => {}
            }
        }
        steps
    }
}

/// Removes emphasis, and the targets of links.
fn to_plain_text(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.replace("**", "").replace(['[', '`'], "")
}

/// Wraps a text into comment lines.
fn comment(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + word.chars().count() > 92 {
            lines.push_str(&format!("# {line}\n"));
            indent.clone_into(&mut line);
        } else if !line.trim().is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push_str(&format!("# {line}\n"));
    lines
}

/// A settings file, and what is left to do.
struct SettingsFile {
    text: String,
    guide: &'static ProviderGuide,
    source: String,
    /// Environment variables that it needs.
    variables: BTreeSet<String>,
}

impl SettingsFile {
    fn of(guide: &'static ProviderGuide, to: Option<&str>) -> Result<Self, CliError> {
        let settings = guide.settings().context("the guide of this provider has no settings")?;
        let parsed: Value = toml::from_str(settings).context("invalid settings in the guide")?;
        let source = parsed["sources"][0]["name"].as_str().unwrap_or(guide.name).to_owned();
        let variables = find_variables(&parsed);
        let mut settings = settings.to_owned();
        if let Some(url) = to {
            settings = replace_destination_url(&settings, &parsed, url)?;
        }
        let name = guide.name;
        let mut text = comment(&format!("{}.", guide.title()), "");
        text.push_str(&format!("# Guide: docs/guides/providers/{name}.md\n#\n"));
        let steps = guide.steps();
        if !steps.is_empty() {
            text.push_str("# Setup at the provider:\n#\n");
            steps.iter().for_each(|step| text.push_str(&comment(step, "   ")));
            text.push_str("#\n");
        }
        text.push_str(
            "# Values such as env:NAME come from the environment of the gateway and are not stored here.\n\
             # Check this file with `surehook config check`, and start with `surehook serve`.\n\n",
        );
        // Top-level settings come before the tables.
        text.push_str("listen = \"127.0.0.1:8080\"\ndata = \"data\"\n\n");
        text.push_str("# Only public addresses may be called. To deliver to this machine or a private network:\n");
        text.push_str("# allow_networks = [\"127.0.0.0/8\"]\n\n");
        text.push_str(&settings);
        Ok(Self { text, guide, source, variables })
    }

    fn print_next_steps(&self, args: &InitArgs) -> Result<(), CliError> {
        let file = args.output.display();
        let names: Vec<&str> = self.variables.iter().map(String::as_str).collect();
        let needs_secret = provider::find(self.guide.name).is_some() && !names.is_empty();
        if args.json {
            return output::print_line(json!({
                "file": args.output, "provider": self.guide.name, "source": self.source,
                "variables": names, "path": format!("/in/{}", self.source),
                "guide": format!("docs/guides/providers/{}.md", self.guide.name),
            }));
        }
        output::print_line(format!("Wrote {file}.\n\nNext steps:\n"))?;
        let mut steps = Vec::new();
        if needs_secret {
            let exports: Vec<String> =
                names.iter().map(|name| format!("export {name}='…'")).collect();
            steps.push(format!(
                "Set in the environment of the gateway:\n       {}",
                exports.join("\n       ")
            ));
        }
        if args.to.is_none() {
            steps.push(
                "Replace the `url` of the destination by that of your application.".to_owned(),
            );
        }
        steps.push(format!("surehook config check {file}"));
        steps.push(format!("surehook serve --config {file}"));
        steps.push(format!(
            "Enter at the provider: https://YOUR-HOST/in/{} (the address under which the gateway is public)",
            self.source
        ));
        steps.push(format!("surehook send-test {}", self.source));
        for (number, step) in steps.iter().enumerate() {
            output::print_line(format!("  {}. {step}", number + 1))?;
        }
        output::print_line(format!(
            "\nThe guide, with the steps at the provider and the pitfalls: docs/guides/providers/{}.md",
            self.guide.name
        ))
    }
}

/// The variables in `env:NAME` values.
fn find_variables(settings: &Value) -> BTreeSet<String> {
    match settings {
        Value::String(text) => {
            text.strip_prefix("env:").map(ToOwned::to_owned).into_iter().collect()
        }
        Value::Array(values) => values.iter().flat_map(find_variables).collect(),
        Value::Object(fields) => fields.values().flat_map(find_variables).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => BTreeSet::new(),
    }
}

/// Puts the URL of the application into the first destination.
fn replace_destination_url(settings: &str, parsed: &Value, url: &str) -> Result<String, CliError> {
    let current = parsed["destinations"][0]["url"].as_str();
    let current =
        current.context("the settings of this provider have no destination with a URL")?;
    let url = url::Url::parse(url).with_context(|| format!("`{url}` is not a URL"))?;
    Ok(settings.replacen(&format!("\"{current}\""), &format!("\"{url}\""), 1))
}

/// Writes the file, unless there is one.
fn write_new_file(args: &InitArgs, text: &str) -> Result<(), CliError> {
    let file = args.output.display();
    let created = std::fs::OpenOptions::new().write(true).create_new(true).open(&args.output);
    let mut created = match created {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(CliError::refused(anyhow!(
                "{file} exists already, and is not overwritten"
            ))
            .hint("Choose another file with --output, or remove it."));
        }
        created => created.with_context(|| format!("could not write {file}"))?,
    };
    created.write_all(text.as_bytes()).with_context(|| format!("could not write {file}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_has_a_guide_with_settings_and_a_source() {
        let names: Vec<&str> = GUIDES.iter().map(|guide| guide.name).collect();
        assert_eq!(names, preset_names());
        for guide in GUIDES {
            let file = SettingsFile::of(guide, None).unwrap_or_else(|error| panic!("{error}"));
            assert!(!file.variables.is_empty(), "{}", guide.name);
            assert!(file.text.contains("[[sources]]"), "{}", guide.name);
        }
    }

    #[test]
    fn markdown_becomes_plain_text() {
        let text =
            "1. **Developers → Webhooks**, see [the page](https://x.example/a) and `whsec_…`.";
        let plain = "1. Developers → Webhooks, see the page and whsec_….";
        assert_eq!(to_plain_text(text), plain);
    }
}
