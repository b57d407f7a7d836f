//! `surehook verify` and `surehook sign`: signatures without a running gateway.

mod request;
mod sign;
mod verify;

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde_json::json;
use surehook_core::source::{Source, SourceSpec};
use surehook_engine::system::SystemClock;
use surehook_types::{
    ids::SourceId,
    secret::{Secret, SecretRef},
    time::{Clock as _, Timestamp},
};
use surehook_webhooks::verify::{Verifier, VerifySpec, VerifySpecError};

use std::path::PathBuf;

pub(super) use self::{sign::run as sign, verify::run as verify};
use crate::{error::CliError, settings::environment};

/// The request besides its body.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// Secret of the source, or env:NAME; repeatable during rotation, current secret first
    #[arg(long = "secret", value_name = "SECRET", env = "SUREHOOK_SECRET", hide_env_values = true)]
    secrets: Vec<String>,
    /// Verification of a `generic` source, as in the settings: '{ hmac = { header = "x-sig" } }'
    #[arg(long, value_name = "TOML")]
    verify: Option<String>,
    /// Header of the request; repeatable
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// URL that the provider calls, such as <https://hooks.example.com/in/shop>
    #[arg(long)]
    url: Option<String>,
    /// Time to use as now: 2026-11-15T08:00:00Z, or Unix seconds
    #[arg(long, value_name = "TIME")]
    now: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Provider, as in `provider = "…"`
    preset: String,
    /// File with the exact body; `-` reads standard input
    #[arg(required_unless_present = "request")]
    file: Option<PathBuf>,
    /// File with the whole request instead: request line, headers, empty line, body
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    request: Option<PathBuf>,
    #[command(flatten)]
    request_args: RequestArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    /// Provider, as in `provider = "…"`
    preset: String,
    /// File with the exact body; `-` reads standard input
    file: PathBuf,
    /// Message id to sign, if the provider uses one
    #[arg(long)]
    id: Option<String>,
    /// Print a curl command that sends the request
    #[arg(long, conflicts_with = "json")]
    curl: bool,
    #[command(flatten)]
    request_args: RequestArgs,
}

/// A source built from command line arguments.
struct OfflineSource {
    spec: SourceSpec,
    config: Source,
    secrets: Vec<Secret>,
}

impl OfflineSource {
    fn new(preset: &str, args: &RequestArgs) -> Result<Self, CliError> {
        let mut spec_json = json!({ "name": "source", "provider": preset });
        if let Some(verify) = &args.verify {
            let table: toml::Table = toml::from_str(&format!("verify = {verify}"))
                .with_context(|| format!("--verify is not TOML: {verify}"))
                .map_err(CliError::refused)?;
            spec_json["verify"] = serde_json::to_value(&table["verify"])?;
        }
        // Set after parsing, because a secret may contain anything.
        let secrets: Vec<SecretRef> = args
            .secrets
            .iter()
            .map(|text| text.parse::<SecretRef>())
            .collect::<Result<_, _>>()
            .map_err(|error| CliError::refused(error).hint("Pass it with --secret."))?;
        let mut spec: SourceSpec =
            serde_json::from_value(spec_json).context("--verify").map_err(CliError::refused)?;
        spec.secrets = secrets;
        let source = spec.build(SourceId::new(Timestamp::default(), 0), &environment);
        let source = source.map_err(|error| CliError::refused(error).hint(SECRETS_HINT))?;
        let secrets = spec.secrets.iter().map(|secret| secret.resolve(&environment));
        let secrets = secrets.collect::<Result<_, _>>().map_err(CliError::refused)?;
        Ok(Self { spec, config: source, secrets })
    }

    /// A verifier of this source with other secrets.
    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        match &self.spec.verify {
            Some(verify) => Verifier::new(verify, secrets),
            None => self.config.provider.verifier(secrets),
        }
    }

    fn is_unverified(&self) -> bool {
        self.spec.verify == Some(VerifySpec::None)
    }
}

const SECRETS_HINT: &str = "Pass secrets with --secret. A generic source also needs --verify '{ hmac = { header = \"x-signature\" } }'.";

/// The current time, or `--now`.
fn now(args: &RequestArgs) -> Result<Timestamp, CliError> {
    let Some(text) = &args.now else { return Ok(SystemClock.now()) };
    let number = text.parse::<i64>().ok().map(|number| {
        let millis = if text.len() >= 12 { number } else { number.saturating_mul(1000) };
        Timestamp::from_millis(millis)
    });
    match number {
        Some(time) => Ok(time),
        None => text.parse().map_err(|error| CliError::refused(anyhow!("--now: {error}"))),
    }
}
