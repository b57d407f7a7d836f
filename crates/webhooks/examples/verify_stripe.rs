//! Verifies a saved request of Stripe, whose body comes from the standard input:
//!
//!     cargo run --example verify_stripe -- whsec_… "t=1779024000,v1=5257a869…" < body.json

use std::{
    env,
    error::Error,
    io::{Read as _, stdin},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::Request;
use surehook_webhooks::{Receiver, WebhookRequest};

#[expect(clippy::print_stdout, reason = "the result of the program")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(secret), Some(signature)) = (args.next(), args.next()) else {
        return Err("usage: verify_stripe SECRET SIGNATURE < BODY".into());
    };
    let mut body = Vec::new();
    stdin().read_to_end(&mut body)?;
    println!("{}", describe(&secret, &signature, body)?);
    Ok(())
}

/// Says what the request contains, or why Stripe did not send it.
pub(crate) fn describe(
    secret: &str,
    signature: &str,
    body: Vec<u8>,
) -> Result<String, Box<dyn Error>> {
    let receiver = Receiver::for_provider("stripe").secret(secret).build()?;
    let request = Request::post("/").header("stripe-signature", signature);
    let accepted = receiver.accept(&request.body(Bytes::from(body))?, signed_at(signature)?)?;
    let WebhookRequest::Webhook(webhook) = accepted else { return Ok("a handshake".to_owned()) };
    let event = webhook.events.first().ok_or("the request has no event")?;
    let key = event.key.as_ref().map_or("none", |key| key.as_str());
    Ok(format!("{} with key {key}", event.kind()))
}

/// A saved request is old, so it is verified as of the time when it was signed.
fn signed_at(signature: &str) -> Result<SystemTime, Box<dyn Error>> {
    let time = signature.split(',').find_map(|part| part.trim().strip_prefix("t="));
    let seconds = time.ok_or("the signature has no timestamp `t=`")?.parse()?;
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}
