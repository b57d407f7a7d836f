//! `surehook config`: shows and checks the settings of `serve`.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Subcommand;
use serde_json::{Value, json};
use surehook_core::store::Configuration;
use surehook_engine::{
    apply::plan_changes,
    system::{SystemClock, SystemRng},
    variables::{ConfigOrigin, check_references},
};
use surehook_guard::address::AddressPolicy;
use surehook_server::api::masked_spec;
use surehook_types::{secret::SecretError, time::Clock as _};

use super::{
    check::{ConfigCheckReport, check, check_filters},
    serve::ServeArgs,
};
use crate::{
    backend::StoreLocation,
    cli::LocalArgs,
    error::CliError,
    output,
    settings::{
        self, Settings, document::SettingsDocument, environment, flatten, otel, variable_name,
    },
};

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the effective settings, secrets masked
    Show {
        /// Show where each value comes from
        #[arg(long)]
        origin: bool,
        #[command(flatten)]
        local: LocalArgs,
    },
    /// Print the JSON Schema of the settings file, for completion and checks in editors
    Schema,
    /// Check a settings file, and its filters on recent events
    Check {
        /// Settings file
        file: PathBuf,
        /// Data folder with recent events [default: that of the file, if it exists]
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(super) async fn run(command: &ConfigCommand) -> Result<(), CliError> {
    match command {
        ConfigCommand::Show { origin, local } => show(local, *origin),
        ConfigCommand::Schema => output::print_line(settings::json_schema()),
        ConfigCommand::Check { file, data, json } => check_file(file, data.as_deref(), *json).await,
    }
}

fn show(local: &LocalArgs, origin: bool) -> Result<(), CliError> {
    let args = local.serve_args();
    let settings = Settings::load(&args).map_err(CliError::settings)?;
    for warning in &settings.warnings {
        output::note(&format!("warning: {warning}"));
    }
    let file = settings::settings_file(&args).map(|path| SettingsDocument::read(&path));
    let file = file.transpose().map_err(CliError::settings)?;
    let origins = SettingOrigins { args: &args, file: file.as_ref() };
    let mut rows = Vec::new();
    for (key, value) in flatten(&mask_settings(&settings)?) {
        let from = origins.find(&key);
        rows.push(json!({ "key": key, "value": value, "origin": from }));
    }
    if local.json {
        return output::print_json_lines(&rows);
    }
    let columns = [("setting", "key"), ("value", "value"), ("from", "origin")];
    output::print_table(if origin { &columns } else { &columns[..2] }, &rows)
}

/// The settings as JSON, secrets masked.
fn mask_settings(settings: &Settings) -> Result<Value, CliError> {
    let mut masked = serde_json::to_value(settings)?;
    let media = &settings.media;
    for (name, key) in [("access_key", &media.access_key), ("secret_key", &media.secret_key)] {
        masked["media"][name] = key.as_ref().map(ToString::to_string).into();
    }
    for (name, value) in &settings.otlp.headers {
        masked["otlp"]["headers"][name] = value.to_string().into();
    }
    masked["sources"] = settings.sources.iter().map(masked_spec::mask_spec).collect();
    masked["destinations"] = settings.destinations.iter().map(masked_spec::mask_spec).collect();
    Ok(masked)
}

/// The possible origins of settings.
struct SettingOrigins<'a> {
    args: &'a ServeArgs,
    file: Option<&'a SettingsDocument>,
}

impl SettingOrigins<'_> {
    /// The origin with the highest precedence that sets `key`.
    fn find(&self, key: &str) -> String {
        let flags =
            [("data", self.args.data.is_some()), ("database", self.args.database.is_some())];
        if flags.contains(&(key, true)) {
            return format!("--{key}");
        }
        let variable = variable_name(key);
        if environment(&variable).is_some() {
            return variable;
        }
        match self.file.filter(|file| file.has(key)) {
            Some(file) => file.place_of(key),
            None => otel::variable_of(key, &environment).unwrap_or("default").to_owned(),
        }
    }
}

async fn check_file(file: &Path, data: Option<&Path>, as_json: bool) -> Result<(), CliError> {
    let document = SettingsDocument::read(file).map_err(CliError::settings)?;
    let settings = Settings::from_document_alone(&document).map_err(CliError::settings)?;
    let of_settings = || StoreLocation::of_settings(&settings);
    let location = data.map_or_else(of_settings, |data| StoreLocation::Folder(data.to_owned()));
    let mut configuration = Configuration::default();
    let now = SystemClock.now();
    let (changes, _) =
        plan_changes(&configuration, settings.desired_configuration(), &SystemRng, now);
    let origin = ConfigOrigin::SettingsFile;
    let forbidden = check_references(&configuration, &changes, origin, &settings.allow_env).err();
    configuration.apply(&changes, now);
    let addresses = AddressPolicy::new(settings.allow_networks);
    let (stored, has_public_url) = (Configuration::default(), settings.public_url.is_some());
    let ConfigCheckReport { mut problems, warnings: key_warnings, mut unset } =
        check(&stored, &configuration, &addresses, &settings.allow_exec, has_public_url);
    problems.extend(forbidden.map(|error| error.to_string()));
    for problem in &mut problems {
        *problem = document.error(problem).to_string();
    }
    let keys = [settings.media.access_key, settings.media.secret_key];
    for key in keys.into_iter().flatten() {
        if let Err(SecretError::Unset { name }) = key.resolve(&environment) {
            unset.insert(name);
        }
    }
    // With problems, the filters may not even be valid.
    let mut warnings = Vec::new();
    if problems.is_empty()
        && let Ok(store) = location.open_read_only().await
    {
        warnings = check_filters(&configuration, &*store).await;
    }
    warnings.extend(key_warnings);
    if as_json {
        output::print_line(json!({
            "problems": problems, "unset_variables": unset, "warnings": warnings,
        }))?;
    }
    if let Some(problem) = problems.first() {
        let more = problems.len() - 1;
        let rest = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        return Err(CliError::settings(anyhow!("{problem}{rest}")));
    }
    for warning in &warnings {
        output::note(&format!("warning: {warning}"));
    }
    for name in &unset {
        output::note(&format!("note: {name} is not set here. The gateway needs it."));
    }
    if !as_json {
        output::print_line(format!("{} is valid", file.display()))?;
    }
    Ok(())
}
