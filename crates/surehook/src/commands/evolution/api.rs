//! Evolution API: any key may do everything, and connecting keeps the webhook.

use anyhow::anyhow;
use serde_json::Value;
use surehook_messaging::{
    ChannelAccount,
    instance::{InstanceProxy, InstanceState, api},
};

use super::{
    ConnectRequest, ConnectResult, evolution_client::EvolutionClient, target::InstanceTarget,
};
use crate::error::CliError;

const KEY_HINT: &str =
    "Pass the instance token or the server API key with --token or EVOLUTION_TOKEN.";

/// An instance of Evolution API.
pub(super) struct ApiInstance {
    client: EvolutionClient,
    account: ChannelAccount,
}

impl ApiInstance {
    pub(super) fn new(target: &InstanceTarget) -> Result<Self, CliError> {
        let key = target.token.as_ref().or(target.admin_key.as_ref());
        let missing = || CliError::unauthenticated(anyhow!("a key is required")).hint(KEY_HINT);
        let account = target.account(target.instance.as_deref(), key.ok_or_else(missing)?)?;
        Ok(Self { client: EvolutionClient::new(&target.url), account })
    }

    pub(super) async fn status(&self) -> Result<InstanceState, CliError> {
        self.client.send(api::status_request(&self.account), api::parse_status, KEY_HINT).await
    }

    pub(super) async fn connect(
        &self,
        request: &ConnectRequest<'_>,
    ) -> Result<ConnectResult, CliError> {
        let mut webhook = self.webhook().await?;
        if request.webhook.is_some() || !request.events.is_empty() {
            let set =
                api::set_webhook_request(&self.account, &webhook, request.webhook, &request.events);
            self.client.send(set, api::parse_done, KEY_HINT).await?;
            webhook = self.webhook().await?;
        }
        let connect = api::connect_request(&self.account, request.phone.as_deref());
        let link_codes = self.client.send(connect, api::parse_connect, KEY_HINT).await?;
        let events = webhook["events"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Ok(ConnectResult {
            webhook: webhook["url"].as_str().map(str::to_owned),
            events: events.map(str::to_owned).collect(),
            state: self.status().await?,
            link_codes,
        })
    }

    async fn webhook(&self) -> Result<Value, CliError> {
        self.client.send(api::webhook_request(&self.account), api::parse_webhook, KEY_HINT).await
    }

    pub(super) async fn proxy(&self) -> Result<Option<Value>, CliError> {
        self.client.send(api::proxy_request(&self.account), api::parse_proxy, KEY_HINT).await
    }

    pub(super) async fn set_proxy(&self, proxy: &InstanceProxy) -> Result<(), CliError> {
        self.client
            .send(api::set_proxy_request(&self.account, proxy), api::parse_done, KEY_HINT)
            .await
    }

    pub(super) async fn clear_proxy(&self) -> Result<(), CliError> {
        self.client.send(api::clear_proxy_request(&self.account), api::parse_done, KEY_HINT).await
    }
}
