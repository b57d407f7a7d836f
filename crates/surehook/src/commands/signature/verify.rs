//! `surehook verify`: checks whether a request would be accepted, and what would be stored.

use anyhow::anyhow;
use serde_json::{Map, Value, json};
use surehook_types::inflate::DecodedRequest;
use surehook_webhooks::{
    provider::{EventKey, EventPart, ParsedRequest, ProviderReply},
    request::IncomingRequest,
    verify::diagnosis,
};

use super::{OfflineSource, VerifyArgs, now, request::OfflineRequest};
use crate::{
    commands::files,
    error::CliError,
    output::{self, OutputStyle},
};

pub(in crate::commands) fn run(args: &VerifyArgs) -> Result<(), CliError> {
    let source = OfflineSource::new(&args.preset, &args.request_args)?;
    let mut request = match (&args.request, &args.file) {
        (Some(file), _) => OfflineRequest::parse(&files::read(file)?)?,
        (None, Some(file)) => OfflineRequest::new(files::read(file)?),
        (None, None) => return Err(CliError::refused(anyhow!("pass a file with the body"))),
    };
    for line in &args.request_args.headers {
        request.add_header(line)?;
    }
    if let Some(url) = &args.request_args.url {
        if !url.contains("://") || !url.contains("/in/") {
            let error =
                anyhow!("--url must be the complete URL, such as https://example.com/in/shop");
            return Err(CliError::refused(error));
        }
        request.set_url(url);
    }
    let now = now(&args.request_args)?;
    let incoming = request.incoming();
    let verified = match source.config.verifier.verify(&incoming, now) {
        Ok(verified) => verified,
        Err(refused) => {
            let build = |secrets| source.verifier(secrets);
            let mistake = diagnosis::find_cause(&build, &source.secrets, &incoming, now);
            if args.request_args.json {
                output::print_line(json!({
                    "verified": false,
                    "reason": refused.code(),
                    "detail": refused.to_string(),
                    "hint": mistake,
                }))?;
                return Err(CliError::unverified());
            }
            let failure = CliError::from(anyhow!("not verified ({}): {refused}", refused.code()));
            let hint = mistake.unwrap_or_else(|| advice(&incoming, refused.code()));
            return Err(failure.hint(&hint));
        }
    };
    let verified_by = source.config.verifier.label(verified);
    let readable = DecodedRequest::new(&request.headers, &request.body);
    let (headers, body) = readable.request(&request.headers, &request.body);
    let decoded = IncomingRequest { headers, body, ..incoming };
    let parsed = source.config.parse_request(&decoded, verified);
    if args.request_args.json {
        return output::print_line(result_json(&source, &decoded, verified_by.as_deref(), &parsed));
    }
    output::print_line(match source.is_unverified() {
        true => output::style(OutputStyle::Warning, "unverified: every request is accepted"),
        false => {
            let text = format!("verified by {}", verified_by.as_deref().unwrap_or_default());
            output::style(OutputStyle::Success, &text)
        }
    })?;
    print_events(&source, &decoded, &parsed)
}

/// Hint for a failure that no known mistake explains.
fn advice(incoming: &IncomingRequest<'_>, code: &str) -> String {
    let names: Vec<&str> = incoming.headers.keys().map(http::HeaderName::as_str).collect();
    match code {
        code if code.starts_with("missing") && names.is_empty() => {
            "Pass the headers of the request with --header 'Name: value'.".to_owned()
        }
        code if code.starts_with("missing") => {
            format!("The headers passed are: {}", names.join(", "))
        }
        "unknown_address" => "Pass the URL that the provider calls with --url.".to_owned(),
        _ => "No common mistake explains this. Check the secret, and that the body is exactly the \
              bytes that were signed."
            .to_owned(),
    }
}

/// The deduplication key of an event, and its origin.
fn find_key(
    source: &OfflineSource,
    request: &IncomingRequest<'_>,
    part: &EventPart,
) -> (Option<String>, String) {
    let body = part.body.as_deref().unwrap_or(request.body);
    match &part.key {
        EventKey::Known(key, from) | EventKey::Unsigned(Some(key), from) => {
            (Some(key.as_str().to_owned()), (*from).to_owned())
        }
        EventKey::ContentHash(window) => {
            (None, format!("hash of the body, for {} s", window.as_secs()))
        }
        EventKey::None | EventKey::Unsigned(None, _) => (None, "none".to_owned()),
        EventKey::Rules => match source.config.keys.extract(request.headers, body) {
            Ok(Some(extracted)) => {
                let from = source.config.keys.label(extracted.rule);
                (Some(extracted.key.as_str().to_owned()), from.as_deref().unwrap_or("").to_owned())
            }
            Ok(None) => (None, "none".to_owned()),
            Err(problem) => (None, problem.to_string()),
        },
    }
}

fn event_json(source: &OfflineSource, request: &IncomingRequest<'_>, part: &EventPart) -> Value {
    let (key, from) = find_key(source, request, part);
    let mut attributes = Map::new();
    for (name, value) in part.attributes.iter() {
        let values = attributes.entry(name.as_str()).or_insert_with(|| json!([]));
        if let Some(values) = values.as_array_mut() {
            values.push(json!(value));
        }
    }
    json!({
        "kind": part.kind.as_ref().map(surehook_webhooks::attribute::EventKind::as_str),
        "key": key,
        "key_from": from,
        "order": part.ordering_key.as_ref().map(surehook_webhooks::key::DedupKey::as_str),
        "attributes": attributes,
        "ping": part.is_ping,
        "body_bytes": part.body.as_deref().unwrap_or(request.body).len(),
    })
}

fn result_json(
    source: &OfflineSource,
    request: &IncomingRequest<'_>,
    verified_by: Option<&str>,
    parsed: &ParsedRequest,
) -> Value {
    let mut result = json!({ "verified": !source.is_unverified(), "by": verified_by });
    match parsed {
        ParsedRequest::Handshake(reply) => result["answer"] = json!(format_reply(reply)),
        ParsedRequest::Events(parts) => {
            result["events"] = parts.iter().map(|part| event_json(source, request, part)).collect();
        }
    }
    result
}

fn format_reply(reply: &ProviderReply) -> String {
    format!("{} {}", reply.status.as_u16(), String::from_utf8_lossy(&reply.body))
}

fn print_events(
    source: &OfflineSource,
    request: &IncomingRequest<'_>,
    reading: &ParsedRequest,
) -> Result<(), CliError> {
    let parts = match reading {
        ParsedRequest::Handshake(reply) => {
            let text = format!("a verification handshake; the response is {}", format_reply(reply));
            return output::print_line(output::escape_control(&text));
        }
        ParsedRequest::Events(parts) if parts.is_empty() => {
            let text = "The request contains no events; nothing would be stored.";
            return output::print_line(text);
        }
        ParsedRequest::Events(parts) => parts,
    };
    let total = parts.len();
    for (number, part) in parts.iter().enumerate() {
        let mut event = event_json(source, request, part);
        output::print_line("")?;
        output::print_line(format!("event {} of {total}", number + 1))?;
        let attributes = event["attributes"].take();
        output::print_fields(&event, &["kind", "key", "key_from", "order", "body_bytes"])?;
        for (name, values) in attributes.as_object().into_iter().flatten() {
            let values: Vec<String> =
                values.as_array().into_iter().flatten().map(output::format_value).collect();
            output::print_line(format!("  {name}: {}", values.join(", ")))?;
        }
    }
    Ok(())
}
