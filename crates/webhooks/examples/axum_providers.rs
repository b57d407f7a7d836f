//! Receives webhooks of several providers with axum.
//!
//!     cargo run --features axum --example axum_providers -- STRIPE_SECRET SLACK_SECRET

use std::{env, error::Error};

use axum::{Json, Router, extract::FromRef};
use surehook_webhooks::{
    Receiver, ReceiverBuildError,
    axum::{Webhook, webhook},
    preset::{Slack, Stripe},
    provider::ProviderReply,
};

/// One receiver for each provider. The type of the receiver says which handler gets which.
#[derive(Clone)]
struct AppState {
    stripe: Receiver<Stripe>,
    slack: Receiver<Slack>,
}

impl FromRef<AppState> for Receiver<Stripe> {
    fn from_ref(state: &AppState) -> Self {
        state.stripe.clone()
    }
}

impl FromRef<AppState> for Receiver<Slack> {
    fn from_ref(state: &AppState) -> Self {
        state.slack.clone()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(stripe), Some(slack)) = (args.next(), args.next()) else {
        return Err("usage: axum_providers STRIPE_SECRET SLACK_SECRET".into());
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    axum::serve(listener, app(&stripe, &slack)?).await?;
    Ok(())
}

/// The web application.
pub(crate) fn app(stripe_secret: &str, slack_secret: &str) -> Result<Router, ReceiverBuildError> {
    let state = AppState {
        stripe: Receiver::of(Stripe).secret(stripe_secret).build()?,
        slack: Receiver::of(Slack).secret(slack_secret).build()?,
    };
    let routes = Router::new().route("/stripe", webhook(payment)).route("/slack", webhook(message));
    Ok(routes.with_state(state))
}

/// Answers with the kinds of the events.
async fn payment(webhook: Webhook<Stripe>) -> Json<Vec<String>> {
    Json(webhook.events.iter().map(|event| event.kind().to_owned()).collect())
}

/// Slack shows an error to people if the answer has a body, so it gets the reply of the preset.
async fn message(webhook: Webhook<Slack>) -> ProviderReply {
    webhook.reply.clone()
}
