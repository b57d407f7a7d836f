//! Evolution Go, where one key connects and another one shows and sets.

use anyhow::anyhow;
use surehook_core::channel::{
    ChannelAccount,
    instance::{
        InstanceProxy, InstanceState,
        go::{self, InstanceInfo, InstanceSubscription},
    },
};

use super::{Connected, Wish, target::Target, wire::Wire};
use crate::{failure::Failure, output};

const TOKEN: &str = "give the instance's own token with --token or EVOLUTION_TOKEN; the server's key \
                     does not do here";
const ADMIN_KEY: &str = "give the server's GLOBAL_API_KEY with --admin-key or EVOLUTION_ADMIN_KEY; an \
                         instance's token does not do here";

/// An instance of Evolution Go.
pub(super) struct Go {
    target: Target,
    wire: Wire,
    /// With the server's own key, if it is given.
    server: Option<ChannelAccount>,
}

impl Go {
    pub(super) fn new(target: Target) -> Result<Self, Failure> {
        let server = target.admin_key.as_ref().map(|key| target.account(None, key)).transpose()?;
        Ok(Self { wire: Wire::new(&target.url), server, target })
    }

    fn server(&self) -> Result<&ChannelAccount, Failure> {
        let missing = || Failure::unauthenticated(anyhow!("the server's own key is needed"));
        self.server.as_ref().ok_or_else(|| missing().hint(ADMIN_KEY))
    }

    /// What the server knows of the instance; only its own key shows it.
    async fn about(&self) -> Result<InstanceInfo, Failure> {
        let (named, token) = (self.target.instance.as_deref(), self.target.token.as_ref());
        if named.is_none() && token.is_none() {
            let error = anyhow!("it is not said which instance is meant");
            return Err(
                Failure::refused(error).hint("name it with --instance, or give its --token")
            );
        }
        let read =
            |status, body: &[u8]| go::find_instance(go::parse_list(status, body)?, named, token);
        self.wire.ask(go::list_request(self.server()?), read, ADMIN_KEY).await
    }

    /// With the instance's own token. The server's key finds it, if it is not given.
    async fn account(&self) -> Result<ChannelAccount, Failure> {
        match &self.target.token {
            Some(token) => self.target.account(None, token),
            None if self.server.is_some() => self.target.account(None, &self.about().await?.token),
            None => {
                let error = anyhow!("the instance's own token is needed");
                Err(Failure::unauthenticated(error).hint(TOKEN))
            }
        }
    }

    pub(super) async fn status(&self) -> Result<InstanceState, Failure> {
        self.state(&self.account().await?).await
    }

    async fn state(&self, account: &ChannelAccount) -> Result<InstanceState, Failure> {
        self.wire.ask(go::status_request(account), go::parse_status, TOKEN).await
    }

    pub(super) async fn connect(&self, wish: &Wish<'_>) -> Result<Connected, Failure> {
        if let Some(unknown) =
            wish.events.iter().find(|event| !go::EVENTS.contains(&event.as_str()))
        {
            let error = anyhow!("Evolution Go knows no events `{unknown}`");
            return Err(
                Failure::refused(error).hint(&format!("it is one of {}", go::EVENTS.join(", ")))
            );
        }
        let account = self.account().await?;
        let reports = self.reports(wish).await?;
        let reports = self
            .wire
            .ask(go::connect_request(&account, &reports), go::parse_connect, TOKEN)
            .await?;
        let link = match &wish.phone {
            Some(phone) => {
                self.wire.ask(go::pairing_request(&account, phone), go::parse_link, TOKEN).await?
            }
            None if wish.wants_qr => {
                self.wire.ask(go::qr_request(&account), go::parse_link, TOKEN).await?
            }
            None => None,
        };
        let webhook = Some(reports.webhook).filter(|webhook| !webhook.is_empty());
        let state = self.state(&account).await?;
        Ok(Connected { webhook, events: reports.events, state, link })
    }

    /// Where the instance is to report to, and what. `connect` forgets all that it is not told, so
    /// what is not given must be known.
    async fn reports(&self, wish: &Wish<'_>) -> Result<InstanceSubscription, Failure> {
        if self.server.is_some() {
            return Ok(self.about().await?.subscription.with_changes(wish.webhook, &wish.events));
        }
        if wish.webhook.is_none() || wish.events.is_empty() {
            let error = anyhow!(
                "connecting would take away the webhook and the events that are set now: Evolution Go \
                 forgets what it is not told, and shows them only to the server's own key"
            );
            return Err(Failure::refused(error).hint(
                "give that key with --admin-key or EVOLUTION_ADMIN_KEY and they stay, or say both \
                 anew with --webhook and --subscribe",
            ));
        }
        output::note(
            "without the server's own key, queues of the instance (RabbitMQ, NATS, WebSocket) are switched off",
        );
        Ok(InstanceSubscription::default().with_changes(wish.webhook, &wish.events))
    }

    pub(super) async fn set_proxy(&self, proxy: &InstanceProxy) -> Result<(), Failure> {
        let server = self.server()?;
        let id = self.about().await?.id;
        self.wire.ask(go::set_proxy_request(server, &id, proxy), go::parse_done, ADMIN_KEY).await
    }

    pub(super) async fn clear_proxy(&self) -> Result<(), Failure> {
        let server = self.server()?;
        let id = self.about().await?.id;
        self.wire.ask(go::clear_proxy_request(server, &id), go::parse_done, ADMIN_KEY).await
    }
}
