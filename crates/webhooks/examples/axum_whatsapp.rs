//! Receives WhatsApp messages of Meta's Cloud API with axum.
//!
//!     cargo run --features axum --example axum_whatsapp -- APP_SECRET VERIFY_TOKEN
//!
//! Enter the URL of `/whatsapp` and the verify token in the app's settings at Meta. The handshake is answered
//! without a line of code here, and a request with a wrong signature never reaches `receive`.

use std::{env, error::Error};

use axum::{Router, http::StatusCode};
use surehook_webhooks::{
    Receiver, ReceiverBuildError,
    axum::{Webhook, webhook},
    preset::WhatsAppCloud,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(app_secret), Some(verify_token)) = (args.next(), args.next()) else {
        return Err("usage: axum_whatsapp APP_SECRET VERIFY_TOKEN".into());
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    axum::serve(listener, app(&app_secret, &verify_token)?).await?;
    Ok(())
}

/// The web application.
pub(crate) fn app(app_secret: &str, verify_token: &str) -> Result<Router, ReceiverBuildError> {
    let receiver =
        Receiver::of(WhatsAppCloud).secret(app_secret).verify_token(verify_token).build()?;
    Ok(Router::new().route("/whatsapp", webhook(receive)).with_state(receiver))
}

/// Runs for verified requests only. Meta retries for days unless it gets 200 quickly, so store the events
/// here and process them elsewhere.
#[expect(clippy::print_stdout, reason = "the example shows what it received")]
async fn receive(webhook: Webhook<WhatsAppCloud>) -> StatusCode {
    // One request may carry many messages and statuses.
    for event in &webhook.events {
        let key = event.key.as_ref().map_or("none", |key| key.as_str());
        println!("{} with key {key}: {} bytes", event.kind(), event.body.len());
    }
    StatusCode::OK
}
