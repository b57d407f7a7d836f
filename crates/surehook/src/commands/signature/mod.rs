//! `surehook verify` and `surehook sign`: signatures looked at offline, as the gateway would.

mod request;
mod sign;
mod verify;

pub(super) use self::{sign::run as sign, verify::run as verify};
use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};
use surehook_core::{
    ids::SourceId,
    secret::{Secret, SecretRef},
    source::{Source, SourceSpec},
    time::{Clock as _, Timestamp},
    verify::{Verifier, VerifySpec, VerifySpecError},
};
use surehook_engine::system::SystemClock;

use crate::{cli::RequestArgs, failure::Failure, settings::environment};

/// A source as the settings would make it.
struct Judge {
    spec: SourceSpec,
    source: Source,
    secrets: Vec<Secret>,
}

impl Judge {
    fn new(preset: &str, args: &RequestArgs) -> Result<Self, Failure> {
        let mut written = json!({ "name": "source", "provider": preset });
        if let Some(verify) = &args.verify {
            let table: toml::Table = toml::from_str(&format!("verify = {verify}"))
                .with_context(|| format!("--verify is not TOML: {verify}"))
                .map_err(Failure::refused)?;
            written["verify"] = serde_json::to_value(&table["verify"])?;
        }
        // A secret may be anything that TOML could not hold; it is put in as it is.
        let secrets: Vec<SecretRef> = args
            .secrets
            .iter()
            .map(|text| text.parse::<SecretRef>())
            .collect::<Result<_, _>>()
            .map_err(|error| Failure::refused(error).hint("give it with --secret"))?;
        let mut spec: SourceSpec =
            serde_json::from_value(written).context("--verify").map_err(Failure::refused)?;
        spec.secrets = secrets;
        let source = spec.build(SourceId::new(Timestamp::default(), 0), &environment);
        let source = source.map_err(|error| Failure::refused(error).hint(HINT))?;
        let secrets = spec.secrets.iter().map(|secret| secret.resolve(&environment));
        let secrets = secrets.collect::<Result<_, _>>().map_err(Failure::refused)?;
        Ok(Self { spec, source, secrets })
    }

    /// The same with other secrets.
    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        match &self.spec.verify {
            Some(verify) => Verifier::new(verify, secrets),
            None => self.source.provider.verifier(secrets),
        }
    }

    fn is_open(&self) -> bool {
        self.spec.verify == Some(VerifySpec::None)
    }
}

const HINT: &str = "secrets are given with --secret; a generic source also needs --verify '{ hmac = { header = \"x-signature\" } }'";

/// The time that counts as now.
fn now(args: &RequestArgs) -> Result<Timestamp, Failure> {
    let Some(text) = &args.now else { return Ok(SystemClock.now()) };
    let number = text.parse::<i64>().ok().map(|number| {
        let millis = if text.len() >= 12 { number } else { number.saturating_mul(1000) };
        Timestamp::from_millis(millis)
    });
    match number {
        Some(time) => Ok(time),
        None => text.parse().map_err(|error| Failure::refused(anyhow!("--now: {error}"))),
    }
}

/// Prints an object on a line.
fn print_json(value: &Value) -> Result<(), Failure> {
    Ok(crate::output::line(&value.to_string())?)
}
