//! The instance that a command works on, and its keys.

use std::path::PathBuf;

use anyhow::anyhow;
use surehook_core::destination::{DestinationSpec, kind::DestinationKind};
use surehook_messaging::ChannelAccount;
use surehook_types::secret::{Secret, SecretRef};

use super::{EvolutionProduct, InstanceArgs};
use crate::{
    error::CliError,
    settings::{Settings, environment},
};

pub(super) struct InstanceTarget {
    pub(super) product: EvolutionProduct,
    pub(super) url: String,
    pub(super) instance: Option<String>,
    pub(super) token: Option<Secret>,
    pub(super) admin_key: Option<Secret>,
}

impl InstanceTarget {
    pub(super) fn new(args: &InstanceArgs) -> Result<Self, CliError> {
        let non_empty = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let key = |text: &Option<String>, flag: &str| {
            non_empty(text).map(|text| parse_secret(&text, flag)).transpose()
        };
        let admin_key = key(&args.admin_key, "--admin-key")?;
        if let Some(name) = &args.destination {
            return Ok(Self { admin_key, ..Self::from_destination(name, args)? });
        }
        let url = non_empty(&args.url).ok_or_else(|| {
            CliError::refused(anyhow!("no server URL"))
                .hint("Pass it with --url or EVOLUTION_URL, or use --destination.")
        })?;
        let token = key(&args.token, "--token")?;
        Ok(Self {
            product: args.service,
            url,
            instance: non_empty(&args.instance),
            token,
            admin_key,
        })
    }

    /// The instance of a destination in the settings file.
    fn from_destination(name: &str, args: &InstanceArgs) -> Result<Self, CliError> {
        let file = args.config.clone().unwrap_or_else(|| PathBuf::from("surehook.toml"));
        let settings = Settings::from_file(&file).map_err(CliError::settings)?;
        let destination =
            settings.destinations.iter().find(|destination| destination.name.as_str() == name);
        let spec = destination.ok_or_else(|| {
            let file = file.display();
            CliError::not_found(anyhow!("no destination `{name}` in {file}"))
                .hint("Use --config for another file, or --url and --token.")
        })?;
        let product = find_product(spec)?;
        let account = spec
            .account
            .as_ref()
            .ok_or_else(|| CliError::refused(anyhow!("destination `{name}` has no `account`")))?;
        let token = account.token.resolve(&environment).map_err(CliError::refused)?;
        Ok(Self {
            product,
            url: spec.url.clone(),
            instance: account.sender.clone(),
            token: Some(token),
            admin_key: None,
        })
    }

    pub(super) fn account(
        &self,
        sender: Option<&str>,
        key: &Secret,
    ) -> Result<ChannelAccount, CliError> {
        let name = match self.product {
            EvolutionProduct::Go => "evolution-go",
            EvolutionProduct::Api => "evolution-api",
        };
        let service =
            surehook_messaging::find_channel(name).ok_or_else(|| anyhow!("{name} is not known"))?;
        let account = service.build_account(Some(&self.url), sender, key.clone());
        account
            .map_err(|error| CliError::refused(error).hint("Check --url, --instance and --token."))
    }
}

fn find_product(spec: &DestinationSpec) -> Result<EvolutionProduct, CliError> {
    match spec.kind {
        DestinationKind::EvolutionGo => Ok(EvolutionProduct::Go),
        DestinationKind::EvolutionApi => Ok(EvolutionProduct::Api),
        DestinationKind::Http
        | DestinationKind::Origin
        | DestinationKind::WhatsappCloud
        | DestinationKind::Exec
        | DestinationKind::RedisStream
        | DestinationKind::Listen
        | DestinationKind::Email => {
            let (name, kind) = (spec.name.as_str(), spec.kind.as_str());
            let error = anyhow!("destination `{name}` has the kind {kind}");
            Err(CliError::refused(error)
                .hint("Use a destination of the kind evolution-go or evolution-api."))
        }
    }
}

/// Parses a key: a literal or `env:NAME`.
pub(super) fn parse_secret(text: &str, flag: &str) -> Result<Secret, CliError> {
    let secret = text.parse::<SecretRef>().and_then(|secret| secret.resolve(&environment));
    secret.map_err(|error| CliError::refused(anyhow!("{flag}: {error}")))
}
