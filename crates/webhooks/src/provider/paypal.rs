//! `PayPal`: signed with a certificate that it serves itself.
//!
//! The request contains the URL of the certificate, which must be `PayPal`'s: otherwise a sender could
//! sign with its own certificate and make us call any server.

#[cfg(test)]
mod tests;

use std::time::Duration;

use data_encoding::BASE64;
use http::{HeaderMap, HeaderName};
use surehook_types::{
    secret::Secret,
    time::{HumanDuration, Timestamp},
};
use url::{Host, Url};

use super::{
    EventPart, ParsedRequest, Provider, SampleEvent,
    fields::{EventReader, EventTemplate},
};
use crate::{
    attribute::AttributeName::{Account, Email, Object, ProviderStatus},
    request::{IncomingRequest, OutgoingRequest},
    verify::{
        CertificateChain, RequestSignature, SignError, VerificationScheme, Verifier, VerifyError,
        VerifySpecError, check_max_age, decode_signature, text_header,
    },
};

static ID: HeaderName = HeaderName::from_static("paypal-transmission-id");
static TIME: HeaderName = HeaderName::from_static("paypal-transmission-time");
static SIGNATURE: HeaderName = HeaderName::from_static("paypal-transmission-sig");
static ALGORITHM: HeaderName = HeaderName::from_static("paypal-auth-algo");
static CERTIFICATE: HeaderName = HeaderName::from_static("paypal-cert-url");

/// The only supported algorithm.
const RSA_SHA256: &str = "SHA256withRSA";
const DOMAIN: &str = "paypal.com";
const CERTIFICATES: &str = "/v1/notifications/certs/";
/// `PayPal` sends up to 25 times within three days; it is undocumented whether the time is renewed.
const MAX_AGE: Duration = Duration::from_secs(4 * 86_400);
/// Certificate URLs have about 80 characters.
const URL_BYTES_MAX: usize = 256;
/// The webhook id of `PayPal`'s simulator, which anyone can use.
const SIMULATOR: &[u8] = b"WEBHOOK_ID";

pub(super) static PAYPAL: Provider = Provider {
    name: "paypal",
    verifier,
    signature_headers: &["paypal-transmission-sig"],
    // `PayPal` sends up to 25 times within three days.
    dedup_window: HumanDuration::from_secs(5 * 86_400),
    parse_request: |request, _| {
        let found = EVENT.read(request);
        let earlier_key = found.key(EVENT_ID);
        ParsedRequest::single(EventPart { earlier_key, ..found.event() })
    },
    samples: &[
        SampleEvent::json(
            "PAYMENT.CAPTURE.COMPLETED",
            r#"{"id":"WH-{{id}}","event_version":"1.0","create_time":"{{now_iso}}","resource_type":"capture","event_type":"PAYMENT.CAPTURE.COMPLETED","summary":"Payment completed","resource":{"id":"CAP{{id}}","status":"COMPLETED","amount":{"value":"129.90","currency_code":"BRL"}}}"#,
        ),
        SampleEvent::json(
            "PAYMENT.CAPTURE.REFUNDED",
            r#"{"id":"WH-{{id}}","event_version":"1.0","create_time":"{{now_iso}}","resource_type":"refund","event_type":"PAYMENT.CAPTURE.REFUNDED","summary":"A payment was refunded","resource":{"id":"REF{{id}}","status":"COMPLETED","amount":{"value":"129.90","currency_code":"BRL"}}}"#,
        ),
        SampleEvent::json(
            "BILLING.SUBSCRIPTION.ACTIVATED",
            r#"{"id":"WH-{{id}}","event_version":"1.0","create_time":"{{now_iso}}","resource_type":"subscription","event_type":"BILLING.SUBSCRIPTION.ACTIVATED","summary":"Subscription activated","resource":{"id":"I-{{id}}","status":"ACTIVE","subscriber":{"email_address":"ana.souza@example.com"}}}"#,
        ),
    ],
    ..Provider::DEFAULT
};

/// The id in the body, of which only a checksum is signed.
const EVENT_ID: &str = "paypal:{/id}";

/// The key is the signed transmission id. A body that is made to have the same checksum can only be sent
/// under the id of a captured request, and is refused.
static EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/event_type}"],
    key: &["paypal:{paypal-transmission-id}", EVENT_ID],
    key_label: "paypal:paypal-transmission-id",
    are_key_headers_signed: true,
    ordering_key: &["{/resource/id|/resource/dispute_id}"],
    attributes: &[
        (Object, &["/resource/id"]),
        (Object, &["/resource/supplementary_data/related_ids/order_id"]),
        (Object, &["/resource/custom_id", "/resource/invoice_id"]),
        (Object, &["/resource/billing_agreement_id", "/resource/dispute_id"]),
        (ProviderStatus, &["/resource/status", "/resource/state"]),
        (Email, &["/resource/payer/email_address", "/resource/subscriber/email_address"]),
        (Account, &["/resource/payee/merchant_id"]),
    ],
    ..EventTemplate::EMPTY
});

/// The secrets are webhook ids, which are part of the signed text.
fn verifier(secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
    let mut warnings = Vec::new();
    for (number, secret) in (1..).zip(&secrets) {
        let id = secret.expose();
        let is_usual = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        if id.is_empty() || !id.iter().all(is_usual) {
            let reason = "it must be the webhook id: letters and digits, as shown by PayPal";
            return Err(VerifySpecError::Secret { number, reason });
        }
        if id == SIMULATOR {
            warnings.push(format!(
                "secret {number} is the id of PayPal's simulator: anyone can send with it"
            ));
        }
    }
    Ok(Verifier::from_scheme(secrets.len(), PaypalScheme(secrets)).with_warnings(warnings))
}

/// Verifies with the webhook ids, the current one first.
#[derive(Debug)]
struct PaypalScheme(Vec<Secret>);

impl VerificationScheme for PaypalScheme {
    fn name(&self) -> &'static str {
        "paypal"
    }

    /// Fails before anything is fetched if the request lacks another header.
    fn certificate_url(&self, request: &IncomingRequest<'_>) -> Result<Option<Url>, VerifyError> {
        TransmissionHeaders::of(request.headers)?;
        let text = text_header(request.headers, &CERTIFICATE, "certificate")?
            .ok_or(VerifyError::UntrustedCertificate("the request has no certificate URL"))?;
        let foreign_url = VerifyError::UntrustedCertificate("its URL does not belong to PayPal");
        parse_certificate_url(text).map(Some).ok_or(foreign_url)
    }

    fn max_age(&self) -> Option<Duration> {
        Some(MAX_AGE)
    }

    fn signs_checksum(&self) -> bool {
        true
    }

    fn verify(&self, _: &IncomingRequest<'_>, _: Timestamp) -> Result<usize, VerifyError> {
        Err(VerifyError::UntrustedCertificate("it was not fetched"))
    }

    fn verify_with_certificate(
        &self,
        request: &IncomingRequest<'_>,
        certificate: &CertificateChain<'_>,
        now: Timestamp,
    ) -> Result<usize, VerifyError> {
        let transmission = TransmissionHeaders::of(request.headers)?;
        let mut error = VerifyError::Mismatch;
        for (index, webhook) in self.0.iter().enumerate() {
            let text = transmission.signed_text(webhook, request.body);
            match certificate.verify_signature(is_paypal, &text, &transmission.signature, now) {
                Ok(()) => return check_max_age(transmission.sent_at, now, MAX_AGE).map(|()| index),
                Err(refusal) => error = refusal,
            }
        }
        Err(error)
    }

    fn sign(&self, _: &OutgoingRequest<'_>, _: Timestamp) -> Result<RequestSignature, SignError> {
        Err(SignError("PayPal signs with a private key that only PayPal has"))
    }
}

/// The signed headers.
struct TransmissionHeaders<'h> {
    id: &'h str,
    time: &'h str,
    sent_at: Timestamp,
    signature: Vec<u8>,
}

impl<'h> TransmissionHeaders<'h> {
    fn of(headers: &'h HeaderMap) -> Result<Self, VerifyError> {
        let malformed = |part| VerifyError::Malformed { part };
        let signature = text_header(headers, &SIGNATURE, "signature")?
            .ok_or_else(|| VerifyError::MissingSignature { header: SIGNATURE.clone() })?;
        let signature = decode_signature(&BASE64, signature.as_bytes())?;
        let algorithm = text_header(headers, &ALGORITHM, "signature")?.unwrap_or(RSA_SHA256);
        if !algorithm.eq_ignore_ascii_case(RSA_SHA256) {
            return Err(malformed("signature"));
        }
        let id = text_header(headers, &ID, "id")?.ok_or(VerifyError::MissingId)?;
        let time =
            text_header(headers, &TIME, "timestamp")?.ok_or(VerifyError::MissingTimestamp)?;
        // A separator in a part would make the signed text ambiguous.
        if id.contains('|') {
            return Err(malformed("id"));
        }
        if time.contains('|') {
            return Err(malformed("timestamp"));
        }
        let sent_at = time.parse().map_err(|_| malformed("timestamp"))?;
        Ok(Self { id, time, sent_at, signature })
    }

    /// The signed text. Of the body it contains only a 32-bit checksum.
    fn signed_text(&self, webhook: &Secret, body: &[u8]) -> Vec<u8> {
        let checksum = crc32fast::hash(body).to_string();
        let parts =
            [self.id.as_bytes(), self.time.as_bytes(), webhook.expose(), checksum.as_bytes()];
        parts.join(&b'|')
    }
}

/// The URL of a certificate, if it is `PayPal`'s. Only the plainest spelling is accepted: no port, no
/// user, no query, nothing ambiguous.
fn parse_certificate_url(text: &str) -> Option<Url> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
    if text.len() > URL_BYTES_MAX || !text.bytes().all(is_plain) {
        return None;
    }
    let url = Url::parse(text).ok()?;
    let is_paypal = matches!(url.host()?, Host::Domain(host) if is_paypal(host));
    // The parsed URL equals the text, so nothing was normalized or dropped.
    let is_whole = url.as_str() == text && text.matches(':').count() == 1;
    let is_good = url.scheme() == "https" && is_paypal && is_whole;
    (is_good && url.path().starts_with(CERTIFICATES)).then_some(url)
}

/// Whether a host is `PayPal`'s domain or a subdomain.
fn is_paypal(name: &str) -> bool {
    name.strip_suffix(DOMAIN).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}
