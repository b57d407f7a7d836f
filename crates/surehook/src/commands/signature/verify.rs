//! `surehook verify`: would this request be let in, and what would become of it?

use anyhow::anyhow;
use serde_json::{Map, Value, json};
use surehook_core::{
    inflate::DecodedRequest,
    provider::{EventKey, EventPart, ParsedRequest, ProviderReply},
    request::IncomingRequest,
    verify::diagnosis,
};

use super::{Judge, now, print_json, request::Given};
use crate::{
    cli::VerifyArgs,
    commands::files,
    failure::Failure,
    output::{self, Tone},
};

pub(in crate::commands) fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let judge = Judge::new(&args.preset, &args.with)?;
    let mut given = match (&args.request, &args.file) {
        (Some(request), _) => Given::parse(&files::read(request)?)?,
        (None, Some(file)) => Given::new(files::read(file)?),
        (None, None) => return Err(Failure::refused(anyhow!("name a file with the body"))),
    };
    for line in &args.with.headers {
        given.header(line)?;
    }
    if let Some(url) = &args.with.url {
        if !url.contains("://") || !url.contains("/in/") {
            let error = anyhow!("--url is the whole address, such as https://example.com/in/shop");
            return Err(Failure::refused(error));
        }
        given.address(url);
    }
    let now = now(&args.with)?;
    let incoming = given.incoming();
    let verified = match judge.source.verifier.verify(&incoming, now) {
        Ok(verified) => verified,
        Err(refused) => {
            let build = |secrets| judge.verifier(secrets);
            let mistake = diagnosis::find_cause(&build, &judge.secrets, &incoming, now);
            if args.with.json {
                print_json(&json!({
                    "verified": false,
                    "reason": refused.code(),
                    "detail": refused.to_string(),
                    "hint": mistake,
                }))?;
                return Err(Failure::unverified());
            }
            let failure = Failure::from(anyhow!("not verified ({}): {refused}", refused.code()));
            let hint = mistake.unwrap_or_else(|| advice(&incoming, refused.code()));
            return Err(failure.hint(&hint));
        }
    };
    let by = judge.source.verifier.label(verified);
    let readable = DecodedRequest::new(&given.headers, &given.body);
    let (headers, body) = readable.request(&given.headers, &given.body);
    let read = IncomingRequest { headers, body, ..incoming };
    let reading = judge.source.read(&read, verified);
    if args.with.json {
        return print_json(&told(&judge, &read, by.as_deref(), &reading));
    }
    match judge.is_open() {
        true => output::line(&output::paint(Tone::Warn, "unverified: everything is let in"))?,
        false => {
            let said = format!("verified by {}", by.as_deref().unwrap_or_default());
            output::line(&output::paint(Tone::Good, &said))?;
        }
    }
    print(&judge, &read, &reading)
}

/// What to look at when no mistake explains it.
fn advice(incoming: &IncomingRequest<'_>, code: &str) -> String {
    let names: Vec<&str> = incoming.headers.keys().map(http::HeaderName::as_str).collect();
    match code {
        code if code.starts_with("missing") && names.is_empty() => {
            "give the headers of the request with --header 'Name: value'".to_owned()
        }
        code if code.starts_with("missing") => {
            format!("the headers given are: {}", names.join(", "))
        }
        "unknown_address" => "give the address that the provider calls with --url".to_owned(),
        _ => "none of the usual mistakes explains it: is it the right secret, and are these the \
              exact bytes that were signed?"
            .to_owned(),
    }
}

/// The key of an event, and where it comes from.
fn key(judge: &Judge, request: &IncomingRequest<'_>, part: &EventPart) -> (Option<String>, String) {
    let body = part.body.as_deref().unwrap_or(request.body);
    match &part.key {
        EventKey::Known(key, from) => (Some(key.as_str().to_owned()), (*from).to_owned()),
        EventKey::ContentHash(window) => {
            (None, format!("hash of the body, for {} s", window.as_secs()))
        }
        EventKey::None => (None, "none".to_owned()),
        EventKey::Rules => match judge.source.keys.extract(request.headers, body) {
            Ok(Some(found)) => {
                let from = judge.source.keys.label(found.rule);
                (Some(found.key.as_str().to_owned()), from.as_deref().unwrap_or("").to_owned())
            }
            Ok(None) => (None, "none".to_owned()),
            Err(problem) => (None, problem.to_string()),
        },
    }
}

fn event(judge: &Judge, request: &IncomingRequest<'_>, part: &EventPart) -> Value {
    let (key, from) = key(judge, request, part);
    let mut attributes = Map::new();
    for (name, value) in part.attributes.iter() {
        let values = attributes.entry(name.as_str()).or_insert_with(|| json!([]));
        if let Some(values) = values.as_array_mut() {
            values.push(json!(value));
        }
    }
    json!({
        "kind": part.kind.as_ref().map(surehook_core::attribute::EventKind::as_str),
        "key": key,
        "key_from": from,
        "order": part.order.as_ref().map(surehook_core::key::DedupKey::as_str),
        "attributes": attributes,
        "ping": part.is_ping,
        "body_bytes": part.body.as_deref().unwrap_or(request.body).len(),
    })
}

fn told(
    judge: &Judge,
    request: &IncomingRequest<'_>,
    by: Option<&str>,
    reading: &ParsedRequest,
) -> Value {
    let mut told = json!({ "verified": !judge.is_open(), "by": by });
    match reading {
        ParsedRequest::Handshake(reply) => told["answer"] = json!(answer(reply)),
        ParsedRequest::Events(parts) => {
            told["events"] = parts.iter().map(|part| event(judge, request, part)).collect();
        }
    }
    told
}

fn answer(reply: &ProviderReply) -> String {
    format!("{} {}", reply.status.as_u16(), String::from_utf8_lossy(&reply.body))
}

fn print(
    judge: &Judge,
    request: &IncomingRequest<'_>,
    reading: &ParsedRequest,
) -> Result<(), Failure> {
    let parts = match reading {
        ParsedRequest::Handshake(reply) => {
            let said = format!("a greeting; it is answered with {}", answer(reply));
            return Ok(output::line(&output::plain(&said))?);
        }
        ParsedRequest::Events(parts) if parts.is_empty() => {
            return Ok(output::line("it holds no event; nothing would be kept")?);
        }
        ParsedRequest::Events(parts) => parts,
    };
    let many = parts.len();
    for (number, part) in parts.iter().enumerate() {
        let mut shown = event(judge, request, part);
        output::line("")?;
        output::line(&format!("event {} of {many}", number + 1))?;
        let attributes = shown["attributes"].take();
        output::fields(&shown, &["kind", "key", "key_from", "order", "body_bytes"])?;
        for (name, values) in attributes.as_object().into_iter().flatten() {
            let values: Vec<String> =
                values.as_array().into_iter().flatten().map(output::cell).collect();
            output::line(&format!("  {name}: {}", values.join(", ")))?;
        }
    }
    Ok(())
}
