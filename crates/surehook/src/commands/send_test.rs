//! `surehook send-test`: an event for a source, signed as the source wants it.

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};
use surehook_core::{
    chance::Chance as _,
    request::Outgoing,
    secret::{Secret, SecretRef},
    time::Clock as _,
    verify::{Verifier, VerifySpec},
};
use surehook_engine::system::{SystemChance, SystemClock};

use super::files;
use crate::{cli::SendTestArgs, client::Client, failure::Failure, output, settings::environment};

pub(super) async fn run(args: &SendTestArgs) -> Result<(), Failure> {
    let client = Client::new(&args.remote)?;
    let source = client.get(&format!("/sources/{}", args.source)).await?;
    let verifier = verifier(&source, args.secret.as_deref())?;
    let body = args.body.as_deref().map(files::read).transpose()?;
    let copies = if args.dup { 2 } else { 1 };
    let mut refused = None;
    for _ in 0..args.count {
        let id = format!("test_{:024x}", SystemChance.bits() >> 32);
        let body = body.clone().map_or_else(|| made_up(&id), Bytes::from);
        for _ in 0..copies {
            let (status, answer) = send(&client, args, &verifier, &id, body.clone()).await?;
            print(args, status, &answer)?;
            if !status.is_success() {
                refused = Some(answer["detail"].as_str().unwrap_or("no reason").to_owned());
            }
        }
    }
    match refused {
        Some(detail) => Err(Failure::refused(anyhow!("the gateway refused: {detail}"))
            .hint("is this the source's secret? give it with --secret")),
        None => {
            output::note("where it went: surehook events show ID");
            Ok(())
        }
    }
}

/// What checks the source's requests can also make them, given the secret. The API does not
/// tell secrets, so it must be known here.
fn verifier(source: &Value, secret: Option<&str>) -> Result<Verifier, Failure> {
    let spec: VerifySpec = serde_json::from_value(source["verify"].clone())
        .context("the gateway verifies in a way that this version does not know")?;
    let secrets = match spec {
        VerifySpec::None => Vec::new(),
        VerifySpec::Hmac(_) => vec![find(source, secret)?],
        // These send the secret itself: the gateway must not choose which variable that is.
        VerifySpec::Token { .. } | VerifySpec::Basic { .. } => vec![given(secret)?],
    };
    Ok(Verifier::new(&spec, secrets)?)
}

fn given(secret: Option<&str>) -> Result<Secret, Failure> {
    secret.map(Secret::new).ok_or_else(|| {
        Failure::refused(anyhow!("the source's secret is not known here"))
            .hint("give it with --secret or SUREHOOK_SECRET")
    })
}

fn find(source: &Value, secret: Option<&str>) -> Result<Secret, Failure> {
    if secret.is_some() {
        return given(secret);
    }
    let written = source["secrets"].as_array().into_iter().flatten().filter_map(Value::as_str);
    // A secret that was written out is masked, which is no reference.
    let references = written.filter_map(|text| text.parse::<SecretRef>().ok());
    match references.filter_map(|reference| reference.resolve(&environment).ok()).next() {
        Some(found) => Ok(found),
        None => given(None),
    }
}

/// An event such as many senders have.
fn made_up(id: &str) -> Bytes {
    let event = json!({
        "id": id,
        "type": "surehook.test",
        "created_at": SystemClock.now(),
        "data": { "text": "A test event of surehook send-test", "amount": 4200, "currency": "BRL" },
    });
    Bytes::from(event.to_string())
}

async fn send(
    client: &Client,
    args: &SendTestArgs,
    verifier: &Verifier,
    id: &str,
    body: Bytes,
) -> Result<(StatusCode, Value), Failure> {
    let url = format!("{}/in/{}", client.base(), args.source);
    let outgoing = Outgoing { id, url: &url, headers: &HeaderMap::new(), body: &body };
    let signed = verifier.sign(&outgoing, SystemClock.now()).map_err(Failure::refused)?;
    let mut request = Request::post(format!("{url}{}", signed.path))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, concat!("surehook-send-test/", env!("CARGO_PKG_VERSION")));
    for (name, value) in signed.headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(body)).context("the secret cannot stand in a header")?;
    let (status, answer) = client.exchange(request).await?;
    Ok((status, serde_json::from_slice(&answer).unwrap_or(Value::Null)))
}

fn print(args: &SendTestArgs, status: StatusCode, answer: &Value) -> Result<(), Failure> {
    if args.remote.json {
        let line = json!({ "http_status": status.as_u16(), "answer": answer });
        return Ok(output::line(&line.to_string())?);
    }
    let code = status.as_u16();
    let events = answer["events"].as_array().cloned().unwrap_or_default();
    if events.is_empty() {
        let said = ["status", "code"].map(|name| output::cell(&answer[name]));
        let word = if status.is_success() { &said[0] } else { &said[1] };
        return Ok(output::line(&format!("{code}  {word}"))?);
    }
    for event in events {
        let [word, id] = ["status", "id"].map(|name| output::cell(&event[name]));
        output::line(&format!("{code}  {word}  {id}"))?;
    }
    Ok(())
}
