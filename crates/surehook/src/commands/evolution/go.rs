//! Evolution Go: the instance token connects, the server API key reads and changes settings.

use anyhow::anyhow;
use surehook_messaging::{
    ChannelAccount,
    instance::{
        InstanceProxy, InstanceState,
        go::{self, InstanceInfo, InstanceSubscription},
    },
};

use super::{
    ConnectRequest, ConnectResult, evolution_client::EvolutionClient, target::InstanceTarget,
};
use crate::{error::CliError, output};

const TOKEN_HINT: &str = "Pass the instance token with --token or EVOLUTION_TOKEN. The server API key is \
                          not accepted here.";
const ADMIN_KEY_HINT: &str = "Pass the server's GLOBAL_API_KEY with --admin-key or EVOLUTION_ADMIN_KEY. An \
                              instance token is not accepted here.";

/// An instance of Evolution Go.
pub(super) struct GoInstance {
    target: InstanceTarget,
    client: EvolutionClient,
    /// Account with the server API key, if set.
    server: Option<ChannelAccount>,
}

impl GoInstance {
    pub(super) fn new(target: InstanceTarget) -> Result<Self, CliError> {
        let server = target.admin_key.as_ref().map(|key| target.account(None, key)).transpose()?;
        Ok(Self { client: EvolutionClient::new(&target.url), server, target })
    }

    fn server(&self) -> Result<&ChannelAccount, CliError> {
        let missing = || CliError::unauthenticated(anyhow!("the server API key is required"));
        self.server.as_ref().ok_or_else(|| missing().hint(ADMIN_KEY_HINT))
    }

    /// Details of the instance; only the server API key may read them.
    async fn details(&self) -> Result<InstanceInfo, CliError> {
        let (named, token) = (self.target.instance.as_deref(), self.target.token.as_ref());
        if named.is_none() && token.is_none() {
            let error = anyhow!("no instance was named");
            return Err(
                CliError::refused(error).hint("Name it with --instance, or pass its --token.")
            );
        }
        let read =
            |status, body: &[u8]| go::find_instance(go::parse_list(status, body)?, named, token);
        self.client.send(go::list_request(self.server()?), read, ADMIN_KEY_HINT).await
    }

    /// Account with the instance token, which the server API key can look up.
    async fn account(&self) -> Result<ChannelAccount, CliError> {
        match &self.target.token {
            Some(token) => self.target.account(None, token),
            None if self.server.is_some() => {
                self.target.account(None, &self.details().await?.token)
            }
            None => {
                let error = anyhow!("the instance token is required");
                Err(CliError::unauthenticated(error).hint(TOKEN_HINT))
            }
        }
    }

    pub(super) async fn status(&self) -> Result<InstanceState, CliError> {
        self.state(&self.account().await?).await
    }

    async fn state(&self, account: &ChannelAccount) -> Result<InstanceState, CliError> {
        self.client.send(go::status_request(account), go::parse_status, TOKEN_HINT).await
    }

    pub(super) async fn connect(
        &self,
        request: &ConnectRequest<'_>,
    ) -> Result<ConnectResult, CliError> {
        if let Some(unknown) =
            request.events.iter().find(|event| !go::EVENTS.contains(&event.as_str()))
        {
            let error = anyhow!("Evolution Go has no event `{unknown}`");
            return Err(
                CliError::refused(error).hint(&format!("Use one of: {}", go::EVENTS.join(", ")))
            );
        }
        let account = self.account().await?;
        let reports = self.reports(request).await?;
        let reports = self
            .client
            .send(go::connect_request(&account, &reports), go::parse_connect, TOKEN_HINT)
            .await?;
        let link_codes = match &request.phone {
            Some(phone) => {
                self.client
                    .send(go::pairing_request(&account, phone), go::parse_link_codes, TOKEN_HINT)
                    .await?
            }
            None if request.wants_qr => {
                self.client.send(go::qr_request(&account), go::parse_link_codes, TOKEN_HINT).await?
            }
            None => None,
        };
        let webhook = Some(reports.webhook).filter(|webhook| !webhook.is_empty());
        let state = self.state(&account).await?;
        Ok(ConnectResult { webhook, events: reports.events, state, link_codes })
    }

    /// Webhook and events after connecting. `connect` resets everything that it is not given, so unset
    /// values must be known.
    async fn reports(
        &self,
        request: &ConnectRequest<'_>,
    ) -> Result<InstanceSubscription, CliError> {
        if self.server.is_some() {
            return Ok(self
                .details()
                .await?
                .subscription
                .with_changes(request.webhook, &request.events));
        }
        if request.webhook.is_none() || request.events.is_empty() {
            let error = anyhow!(
                "connecting would remove the current webhook and events: Evolution Go resets settings that \
                 are not passed, and only the server API key can read them"
            );
            return Err(CliError::refused(error).hint(
                "To keep them, pass that key with --admin-key or EVOLUTION_ADMIN_KEY; or set both with \
                 --webhook and --subscribe.",
            ));
        }
        output::note(
            "Without the server API key, the queues of the instance (RabbitMQ, NATS, WebSocket) are switched off.",
        );
        Ok(InstanceSubscription::default().with_changes(request.webhook, &request.events))
    }

    pub(super) async fn set_proxy(&self, proxy: &InstanceProxy) -> Result<(), CliError> {
        let server = self.server()?;
        let id = self.details().await?.id;
        self.client
            .send(go::set_proxy_request(server, &id, proxy), go::parse_done, ADMIN_KEY_HINT)
            .await
    }

    pub(super) async fn clear_proxy(&self) -> Result<(), CliError> {
        let server = self.server()?;
        let id = self.details().await?.id;
        self.client.send(go::clear_proxy_request(server, &id), go::parse_done, ADMIN_KEY_HINT).await
    }
}
