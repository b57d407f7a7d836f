//! Which instance is meant, and with which keys.

use std::path::PathBuf;

use anyhow::anyhow;
use surehook_core::{
    channel::{self, ChannelAccount},
    destination::{DestinationSpec, kind::DestinationKind},
    secret::{Secret, SecretRef},
};

use crate::{
    cli::{InstanceArgs, Product},
    failure::Failure,
    settings::{Settings, environment},
};

/// Which instance is meant, and with which keys.
pub(super) struct Target {
    pub(super) product: Product,
    pub(super) url: String,
    pub(super) instance: Option<String>,
    pub(super) token: Option<Secret>,
    pub(super) admin_key: Option<Secret>,
}

impl Target {
    pub(super) fn new(args: &InstanceArgs) -> Result<Self, Failure> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let key = |text: &Option<String>, flag: &str| {
            given(text).map(|text| secret(&text, flag)).transpose()
        };
        let admin_key = key(&args.admin_key, "--admin-key")?;
        if let Some(name) = &args.destination {
            return Ok(Self { admin_key, ..Self::of_destination(name, args)? });
        }
        let url = given(&args.url).ok_or_else(|| {
            Failure::refused(anyhow!("it is not said where the server is"))
                .hint("give its address with --url or EVOLUTION_URL, or a --destination")
        })?;
        let token = key(&args.token, "--token")?;
        Ok(Self { product: args.service, url, instance: given(&args.instance), token, admin_key })
    }

    /// What a destination of the settings file sends through.
    fn of_destination(name: &str, args: &InstanceArgs) -> Result<Self, Failure> {
        let file = args.config.clone().unwrap_or_else(|| PathBuf::from("surehook.toml"));
        let settings = Settings::of_file(&file).map_err(Failure::settings)?;
        let named = settings.destinations.iter().find(|one| one.name.as_str() == name);
        let spec = named.ok_or_else(|| {
            let file = file.display();
            Failure::not_found(anyhow!("there is no destination `{name}` in {file}"))
                .hint("--config names another file; --url and --token do without one")
        })?;
        let product = product(spec)?;
        let account = spec.account.as_ref().ok_or_else(|| {
            Failure::refused(anyhow!("the destination `{name}` has no `account`"))
        })?;
        let token = account.token.resolve(&environment).map_err(Failure::refused)?;
        Ok(Self {
            product,
            url: spec.url.clone(),
            instance: account.sender.clone(),
            token: Some(token),
            admin_key: None,
        })
    }

    /// As whom the server is asked, with one of the keys.
    pub(super) fn account(
        &self,
        sender: Option<&str>,
        key: &Secret,
    ) -> Result<ChannelAccount, Failure> {
        let name = match self.product {
            Product::Go => "evolution-go",
            Product::Api => "evolution-api",
        };
        let service = channel::find(name).ok_or_else(|| anyhow!("{name} is not known"))?;
        let account = service.build_account(Some(&self.url), sender, key.clone());
        account
            .map_err(|error| Failure::refused(error).hint("--url, --instance and --token say it"))
    }
}

fn product(spec: &DestinationSpec) -> Result<Product, Failure> {
    match spec.kind {
        DestinationKind::EvolutionGo => Ok(Product::Go),
        DestinationKind::EvolutionApi => Ok(Product::Api),
        DestinationKind::Http
        | DestinationKind::WhatsappCloud
        | DestinationKind::Exec
        | DestinationKind::RedisStream => {
            let (name, kind) = (spec.name.as_str(), spec.kind.as_str());
            let error = anyhow!("the destination `{name}` is of the kind {kind}");
            Err(Failure::refused(error).hint("name one of the kind evolution-go or evolution-api"))
        }
    }
}

/// A key as it is given: itself, or `env:NAME`.
pub(super) fn secret(text: &str, flag: &str) -> Result<Secret, Failure> {
    let found = text.parse::<SecretRef>().and_then(|secret| secret.resolve(&environment));
    found.map_err(|error| Failure::refused(anyhow!("{flag}: {error}")))
}
