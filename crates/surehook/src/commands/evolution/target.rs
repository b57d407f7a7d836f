//! Which instance is meant, and with which keys.

use anyhow::anyhow;
use surehook_core::{
    secret::{Secret, SecretRef},
    service::{self, Account},
};

use crate::{
    cli::{InstanceArgs, Product},
    failure::Failure,
    settings::environment,
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
        let url = given(&args.url).ok_or_else(|| {
            Failure::refused(anyhow!("it is not said where the server is"))
                .hint("give its address with --url or EVOLUTION_URL, or a --destination")
        })?;
        let token = key(&args.token, "--token")?;
        Ok(Self { product: args.service, url, instance: given(&args.instance), token, admin_key })
    }

    /// As whom the server is asked, with one of the keys.
    pub(super) fn account(&self, sender: Option<&str>, key: &Secret) -> Result<Account, Failure> {
        let name = match self.product {
            Product::Go => "evolution-go",
            Product::Api => "evolution-api",
        };
        let service = service::find(name).ok_or_else(|| anyhow!("{name} is not known"))?;
        let account = service.account(Some(&self.url), sender, key.clone());
        account
            .map_err(|error| Failure::refused(error).hint("--url, --instance and --token say it"))
    }
}

/// A key as it is given: itself, or `env:NAME`.
pub(super) fn secret(text: &str, flag: &str) -> Result<Secret, Failure> {
    let found = text.parse::<SecretRef>().and_then(|secret| secret.resolve(&environment));
    found.map_err(|error| Failure::refused(anyhow!("{flag}: {error}")))
}
