//! Evolution API, where any key does everything and connecting changes no webhook.

use anyhow::anyhow;
use serde_json::Value;
use surehook_core::channel::{
    ChannelAccount,
    instance::{InstanceProxy, InstanceState, api},
};

use super::{Connected, Wish, target::Target, wire::Wire};
use crate::failure::Failure;

const KEY: &str = "give the instance's or the server's key with --token or EVOLUTION_TOKEN";

/// An instance of Evolution API.
pub(super) struct Api {
    wire: Wire,
    account: ChannelAccount,
}

impl Api {
    pub(super) fn new(target: &Target) -> Result<Self, Failure> {
        let key = target.token.as_ref().or(target.admin_key.as_ref());
        let missing = || Failure::unauthenticated(anyhow!("a key is needed")).hint(KEY);
        let account = target.account(target.instance.as_deref(), key.ok_or_else(missing)?)?;
        Ok(Self { wire: Wire::new(&target.url), account })
    }

    pub(super) async fn status(&self) -> Result<InstanceState, Failure> {
        self.wire.ask(api::status_request(&self.account), api::parse_status, KEY).await
    }

    pub(super) async fn connect(&self, wish: &Wish<'_>) -> Result<Connected, Failure> {
        let mut hook = self.webhook().await?;
        if wish.webhook.is_some() || !wish.events.is_empty() {
            let set = api::set_webhook_request(&self.account, &hook, wish.webhook, &wish.events);
            self.wire.ask(set, api::parse_done, KEY).await?;
            hook = self.webhook().await?;
        }
        let connect = api::connect_request(&self.account, wish.phone.as_deref());
        let link = self.wire.ask(connect, api::parse_connect, KEY).await?;
        let events = hook["events"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Ok(Connected {
            webhook: hook["url"].as_str().map(str::to_owned),
            events: events.map(str::to_owned).collect(),
            state: self.status().await?,
            link,
        })
    }

    async fn webhook(&self) -> Result<Value, Failure> {
        self.wire.ask(api::webhook_request(&self.account), api::parse_webhook, KEY).await
    }

    pub(super) async fn proxy(&self) -> Result<Option<Value>, Failure> {
        self.wire.ask(api::proxy_request(&self.account), api::parse_proxy, KEY).await
    }

    pub(super) async fn set_proxy(&self, proxy: &InstanceProxy) -> Result<(), Failure> {
        self.wire.ask(api::set_proxy_request(&self.account, proxy), api::parse_done, KEY).await
    }

    pub(super) async fn clear_proxy(&self) -> Result<(), Failure> {
        self.wire.ask(api::clear_proxy_request(&self.account), api::parse_done, KEY).await
    }
}
