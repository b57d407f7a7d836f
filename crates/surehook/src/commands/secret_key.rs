//! `surehook secret-key`: the key that secrets in the database are encrypted with.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, Subcommand};
use serde_json::json;
use surehook_engine::system::SystemClock;
use surehook_store::{
    OpenError, rotate_database_key,
    sqlite::{NewSecretKey, RotationReport, SECRET_KEY_FILE, SecretKey, rotate_secret_key},
};
use surehook_types::time::Clock as _;

use crate::{
    backend::{database_error, postgres_options},
    cli::LocalArgs,
    data_folder,
    database::DatabaseUrl,
    error::CliError,
    output,
    settings::Settings,
};

#[derive(Debug, Subcommand)]
pub(crate) enum SecretKeyCommand {
    /// Create a random key in a file, for `secret_key_file`
    Create {
        /// File to write, which must not exist
        file: PathBuf,
    },
    /// Encrypt all secrets with a new key; the gateway, or all nodes, must be stopped
    Rotate(RotateArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RotateArgs {
    /// File with the new key; created with a random key if it does not exist [default: a new key in the
    /// data folder]
    #[arg(long, value_name = "FILE")]
    new_key_file: Option<PathBuf>,
    #[command(flatten)]
    local: LocalArgs,
}

pub(super) async fn run(command: &SecretKeyCommand) -> Result<(), CliError> {
    match command {
        SecretKeyCommand::Create { file } => create(file),
        SecretKeyCommand::Rotate(args) => rotate(args).await,
    }
}

fn create(file: &Path) -> Result<(), CliError> {
    if file.exists() {
        let error = anyhow!("{} already exists", file.display());
        return Err(CliError::refused(error).hint("Use another name: no key is overwritten."));
    }
    let key = read_or_create(file)?;
    output::print_line(format!("{} in {}", key.id(), file.display()))?;
    output::note("Keep a copy elsewhere: secrets in the database cannot be read without it.");
    Ok(())
}

async fn rotate(args: &RotateArgs) -> Result<(), CliError> {
    let settings = Settings::load(&args.local.serve_args()).map_err(CliError::settings)?;
    if let Some(database) = &settings.database {
        return rotate_in_database(args, &settings, database).await;
    }
    let current = settings.secret_key().map_err(CliError::settings)?;
    let data = &settings.data;
    let new = match &args.new_key_file {
        Some(file) => NewSecretKey::External(read_or_create(file)?),
        None if current.is_some() => {
            let error = anyhow!("the current key is not in the data folder");
            return Err(
                CliError::refused(error).hint("Name a file for the new key: --new-key-file")
            );
        }
        None => NewSecretKey::InFolder(SecretKey::generate().map_err(anyhow::Error::from)?),
    };
    let report = rotate_secret_key(data, current.as_ref(), &new, SystemClock.now())
        .map_err(|error| rotate_error(error, data))?;
    print_report(args, &report)?;
    if let Some(reason) = &report.leftover {
        output::note(&format!(
            "Old copies of secrets may be left in unused space of the files: {reason}. Run it again."
        ));
    }
    output::note(&format!(
        "Backups made before need the old key. If it was in the data folder, it is still there as \
         {SECRET_KEY_FILE}.{}; delete it when no such backup is needed.",
        report.old
    ));
    Ok(())
}

async fn rotate_in_database(
    args: &RotateArgs,
    settings: &Settings,
    database: &DatabaseUrl,
) -> Result<(), CliError> {
    let Some(file) = &args.new_key_file else {
        let error = anyhow!("the key of a database is kept outside of it");
        return Err(CliError::refused(error).hint("Name a file for the new key: --new-key-file"));
    };
    let options = postgres_options(settings, database)?;
    let new = read_or_create(file)?;
    let report = rotate_database_key(&options, &new, SystemClock.now()).await;
    print_report(args, &report.map_err(database_error)?)?;
    output::note("Backups made before need the old key.");
    Ok(())
}

fn print_report(args: &RotateArgs, report: &RotationReport) -> Result<(), CliError> {
    let line = format!("{} replaced by {}", report.old, report.new);
    let result = json!({
        "old": report.old.to_string(),
        "new": report.new.to_string(),
        "leftover": report.leftover,
    });
    output::print_result(args.local.json, &result, &line)?;
    if let Some(file) = &args.new_key_file {
        output::note(&format!(
            "Set secret_key_file = \"{}\" (or SUREHOOK_SECRET_KEY) before the gateway starts.",
            file.display()
        ));
    }
    Ok(())
}

fn read_or_create(file: &Path) -> Result<SecretKey, CliError> {
    let key = if file.exists() {
        SecretKey::read(file)
    } else {
        SecretKey::generate().and_then(|key| key.create_file(file).map(|()| key))
    };
    key.map_err(|error| CliError::settings(anyhow!("the secret key {}: {error}", file.display())))
}

fn rotate_error(error: OpenError, data: &Path) -> CliError {
    if matches!(error, OpenError::Locked(_)) {
        return CliError::refused(error).hint("Stop the gateway first, then rotate the key.");
    }
    if matches!(error, OpenError::Missing(_)) {
        return data_folder::open_error(error);
    }
    data_folder::damage_error(error, data)
}
