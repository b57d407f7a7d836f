//! The headers of an outgoing webhook: those of the original request, with our own signature or a new
//! one in the format of a provider. A signature of the sender in the form of Standard Webhooks passes
//! with its id and timestamp where nothing here takes its place. A signature may also change the URL.

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use surehook_core::{
    destination::{BUILTIN_INBOX, Destination, Transport, auth::AuthConfig},
    event::{RequestHead, is_never_forwarded},
    one_shot::url_at_origin,
    store::ClaimedDelivery,
};
use surehook_types::time::Timestamp;
use surehook_webhooks::{sign::build_signature_header, verify::SignError};

use crate::otlp::AttemptTrace;

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
/// The id of the event, where `webhook-id` is that of the sender.
const EVENT_ID: HeaderName = HeaderName::from_static("surehook-event-id");

/// The name under which a sender's own Standard Webhooks header is forwarded. Ours take its place: the
/// receiver needs one id that is the same over all attempts of this gateway.
fn forwarded_name(name: HeaderName) -> HeaderName {
    match name.as_str() {
        "webhook-id" => HeaderName::from_static("original-webhook-id"),
        "webhook-timestamp" => HeaderName::from_static("original-webhook-timestamp"),
        "webhook-signature" => HeaderName::from_static("original-webhook-signature"),
        _ => name,
    }
}

/// Renames Svix headers of the sender: the libraries of Svix read them first and would take them for ours.
/// Only where we sign; otherwise a receiver may check the sender's signature.
fn rename_svix_headers(map: &mut HeaderMap) {
    for (name, renamed) in [
        ("svix-id", "original-svix-id"),
        ("svix-timestamp", "original-svix-timestamp"),
        ("svix-signature", "original-svix-signature"),
    ] {
        if let Some(value) = map.remove(name) {
            map.insert(HeaderName::from_static(renamed), value);
        }
    }
}

/// The hop-by-hop headers that the sender declared (RFC 9110 §7.6.1).
fn connection_headers(head: &RequestHead) -> Vec<&[u8]> {
    let declared = head.headers.lines().filter(|(name, _)| *name == "connection");
    declared
        .flat_map(|(_, value)| value.split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .collect()
}

/// The headers of one attempt.
#[derive(Debug)]
pub(crate) struct OutboundHead {
    pub(crate) headers: HeaderMap,
    /// The URL to call instead of that of the destination, if a signature is part of it.
    pub(crate) signed_url: Option<Uri>,
}

/// Builds the headers of one attempt. `secret_headers` are the names of headers that carry the source's
/// secret; they are left out, because with the secret anyone could send events. Without a `trace`, the
/// sender's trace context passes unchanged.
pub(crate) fn build(
    destination: &Destination,
    claimed: &ClaimedDelivery,
    secret_headers: &[String],
    trace: Option<&AttemptTrace>,
    now: Timestamp,
) -> Result<OutboundHead, SignError> {
    let head = &claimed.payload.head;
    let passes_senders_signature =
        !sets_standard_signature(destination) && has_standard_signature(head);
    let mut map = forwarded_headers(head, secret_headers, passes_senders_signature);
    if let Some(trace) = trace {
        trace.inject(&mut map);
    }
    for (name, template) in &destination.headers {
        match template.render(claimed) {
            Some(value) => map.insert(name, value),
            // Its value is empty for this event. The sender's header of that name is removed too: a
            // configured header is never taken from the request.
            None => map.remove(name),
        };
    }
    if let Some(AuthConfig::Fixed(value)) = &destination.auth {
        map.insert(header::AUTHORIZATION, value.clone());
    }
    let id = claimed.event.to_string();
    if !destination.signing.is_empty() {
        let signature =
            build_signature_header(&destination.signing, &id, now.as_secs(), &claimed.payload.body);
        set(&mut map, WEBHOOK_SIGNATURE, &signature);
        rename_svix_headers(&mut map);
    }
    if passes_senders_signature {
        set(&mut map, EVENT_ID, &id);
    } else {
        set(&mut map, WEBHOOK_ID, &id);
        map.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(now.as_secs()));
    }
    let mut signed_url = None;
    if let Some(sign_as) = &destination.sign_as {
        let url = match &destination.transport {
            Transport::Http(url) => url.to_string(),
            Transport::Origin(origin) => url_at_origin(origin, &claimed.payload.head)
                .map_or_else(|| origin.to_string(), |url| url.to_string()),
            // Never used: `sign_as` is rejected for these kinds.
            Transport::Inbox
            | Transport::Channel(_)
            | Transport::Exec(_)
            | Transport::RedisStream(_)
            | Transport::Listen(_)
            | Transport::Email(_) => BUILTIN_INBOX.to_owned(),
        };
        let signed = sign_as.sign(&mut map, &id, &url, &claimed.payload.body, now)?;
        let parse = |url: String| url.parse();
        let unusable = |_| SignError("the URL with the signature is not valid");
        signed_url = signed.map(parse).transpose().map_err(unusable)?;
    }
    Ok(OutboundHead { headers: map, signed_url })
}

/// Whether the destination gets a signature of ours in the form of Standard Webhooks.
fn sets_standard_signature(destination: &Destination) -> bool {
    let signs_as = destination.sign_as.as_ref();
    !destination.signing.is_empty()
        || signs_as.is_some_and(|signer| signer.sets(&WEBHOOK_SIGNATURE))
}

/// Whether the sender signed in the form of Standard Webhooks. Without all three headers there is nothing
/// to verify, and the receiver needs our id.
fn has_standard_signature(head: &RequestHead) -> bool {
    let has = |wanted: &HeaderName| {
        let mut lines = head.headers.lines();
        lines.any(|(name, value)| name.eq_ignore_ascii_case(wanted.as_str()) && !value.is_empty())
    };
    [WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE].iter().all(has)
}

fn set(map: &mut HeaderMap, name: HeaderName, text: &str) {
    // Ids and signatures consist of ASCII characters that are valid in a header.
    if let Ok(value) = HeaderValue::from_str(text) {
        map.insert(name, value);
    }
}

fn forwarded_headers(
    head: &RequestHead,
    secret_headers: &[String],
    passes_senders_signature: bool,
) -> HeaderMap {
    let declared = connection_headers(head);
    let mut map = HeaderMap::with_capacity(16);
    for (name, value) in head.headers.lines() {
        let is_hop_by_hop = || declared.iter().any(|d| d.eq_ignore_ascii_case(name.as_bytes()));
        let is_secret = || secret_headers.iter().any(|header| header.eq_ignore_ascii_case(name));
        if is_never_forwarded(name) || is_hop_by_hop() || is_secret() {
            continue;
        }
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            let name = if passes_senders_signature { name } else { forwarded_name(name) };
            map.append(name, value);
        }
    }
    map.entry(header::USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!("surehook/", env!("CARGO_PKG_VERSION"))));
    map
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use surehook_core::destination::DestinationSpec;
    use surehook_types::ids::DestinationId;

    use super::*;
    use crate::testing::claimed_delivery;

    const NOW: Timestamp = Timestamp::from_millis(1_614_265_330_000);

    fn destination(signing_secrets: &[&str]) -> Destination {
        let spec: DestinationSpec = serde_json::from_value(json!({
            "name": "crm",
            "url": "https://example.com/hook",
            "headers": { "X-Tenant": "acme" },
            "signing_secrets": signing_secrets,
        }))
        .unwrap();
        spec.build(DestinationId::new(NOW, 1), &|_| None).unwrap()
    }

    fn build_headers(
        destination: &Destination,
        claimed: &ClaimedDelivery,
        secret_headers: &[String],
        trace: Option<&AttemptTrace>,
        now: Timestamp,
    ) -> Result<HeaderMap, SignError> {
        build(destination, claimed, secret_headers, trace, now).map(|head| head.headers)
    }

    fn claimed(headers: &[(&str, &str)]) -> ClaimedDelivery {
        claimed_delivery(headers, b"{}", NOW)
    }

    #[test]
    fn senders_signature_is_forwarded_and_hop_by_hop_headers_are_not() {
        let received = claimed(&[
            ("x-hub-signature-256", "sha256=00"),
            ("content-type", "application/json"),
            ("x-multi", "1"),
            ("x-multi", "2"),
            ("host", "gateway"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("content-length", "2"),
            ("authorization", "Bearer secret"),
            ("cookie", "a=b"),
            ("x-gitlab-token", "secret"),
            ("x-forwarded-for", "10.0.0.1"),
            ("user-agent", "GitHub-Hookshot/1"),
        ]);

        let secret = ["x-gitlab-token".to_owned()];
        let sent = build_headers(&destination(&[]), &received, &secret, None, NOW).unwrap();

        assert_eq!(sent["x-hub-signature-256"], "sha256=00");
        assert_eq!(sent.get_all("x-multi").iter().count(), 2);
        assert_eq!(sent["user-agent"], "GitHub-Hookshot/1");
        assert_eq!(sent["x-tenant"], "acme");
        assert_eq!(sent["webhook-id"], received.event.to_string());
        assert_eq!(sent["webhook-timestamp"], "1614265330");
        for removed in [
            "host",
            "connection",
            "x-hop",
            "content-length",
            "authorization",
            "cookie",
            "x-gitlab-token",
            "x-forwarded-for",
        ] {
            assert!(!sent.contains_key(removed), "case: {removed}");
        }
        assert!(!sent.contains_key("webhook-signature"));
    }

    #[test]
    fn our_signature_replaces_the_senders_which_is_forwarded_renamed() {
        let received = claimed(&[("webhook-id", "msg_1"), ("webhook-signature", "v1,AA==")]);

        let sent = build_headers(
            &destination(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]),
            &received,
            &[],
            None,
            NOW,
        )
        .unwrap();

        assert_eq!(sent["original-webhook-id"], "msg_1");
        assert_eq!(sent["original-webhook-signature"], "v1,AA==");
        assert_eq!(sent["webhook-id"], received.event.to_string());
        assert!(sent["webhook-signature"].to_str().unwrap().starts_with("v1,"));
        assert_ne!(sent["webhook-signature"], "v1,AA==");
    }

    #[test]
    fn senders_standard_signature_passes_with_its_id_unless_we_sign() {
        let signed = [
            ("webhook-id", "msg_1"),
            ("webhook-timestamp", "1614265000"),
            ("webhook-signature", "v1,AA=="),
        ];
        let received = claimed(&signed);

        let sent = build_headers(&destination(&[]), &received, &[], None, NOW).unwrap();

        for (name, value) in signed {
            assert_eq!(sent[name], value);
            assert!(!sent.contains_key(format!("original-{name}")), "case: {name}");
        }
        assert_eq!(sent["surehook-event-id"], received.event.to_string());
        // An id alone proves nothing: the receiver needs one that is the same in all attempts.
        let incomplete = claimed(&signed[..2]);
        let sent = build_headers(&destination(&[]), &incomplete, &[], None, NOW).unwrap();
        assert_eq!(sent["webhook-id"], incomplete.event.to_string());
        assert_eq!(sent["original-webhook-id"], "msg_1");
        assert!(!sent.contains_key("surehook-event-id"));
    }

    #[test]
    fn svix_headers_are_renamed_only_if_we_sign() {
        let received = claimed(&[("svix-id", "msg_1"), ("svix-signature", "v1,AA==")]);
        let whsec = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"];

        let sent = build_headers(&destination(&whsec), &received, &[], None, NOW).unwrap();
        assert_eq!(sent["original-svix-id"], "msg_1");
        assert_eq!(sent["original-svix-signature"], "v1,AA==");
        assert!(!sent.contains_key("svix-id") && !sent.contains_key("svix-signature"));

        let sent = build_headers(&destination(&[]), &received, &[], None, NOW).unwrap();
        assert_eq!(sent["svix-id"], "msg_1");
        assert_eq!(sent["svix-signature"], "v1,AA==");
    }
}
