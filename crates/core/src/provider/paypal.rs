//! `PayPal`: signed with a certificate that it serves itself.
//!
//! The request names the address of the certificate, so that address is looked at before anything
//! is fetched from it: whoever could choose it could sign whatever he likes, and make us call
//! whomever he likes.

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use data_encoding::BASE64;
use http::{HeaderMap, HeaderName};
use url::{Host, Url};

use super::{BodyFields, EventKey, EventPart, ParsedRequest, Provider, SampleEvent};
use crate::{
    attribute::{AttributeName, EventKind},
    key::DedupKey,
    request::{IncomingRequest, OutgoingRequest},
    secret::Secret,
    time::{HumanDuration, Timestamp},
    verify::{
        Certificate, RequestSignature, SignError, VerificationScheme, Verifier, VerifyError,
        VerifySpecError, only_value,
    },
};

static ID: HeaderName = HeaderName::from_static("paypal-transmission-id");
static TIME: HeaderName = HeaderName::from_static("paypal-transmission-time");
static SIGNATURE: HeaderName = HeaderName::from_static("paypal-transmission-sig");
static ALGORITHM: HeaderName = HeaderName::from_static("paypal-auth-algo");
static CERTIFICATE: HeaderName = HeaderName::from_static("paypal-cert-url");

/// The only algorithm that there is.
const RSA_SHA256: &str = "SHA256withRSA";
/// Where `PayPal` serves its certificates.
const DOMAIN: &str = "paypal.com";
const CERTIFICATES: &str = "/v1/notifications/certs/";
/// The address of a certificate has about 80 characters.
const URL_BYTES_MAX: usize = 256;
/// What its simulator signs with: everybody's webhook.
const SIMULATOR: &[u8] = b"WEBHOOK_ID";

/// What an event is, and what it is about.
static FIELDS: LazyLock<BodyFields> = LazyLock::new(|| {
    BodyFields::new(&[
        "/id",
        "/event_type",
        "/resource/id",
        "/resource/status",
        "/resource/state",
        "/resource/supplementary_data/related_ids/order_id",
        "/resource/payer/email_address",
        "/resource/subscriber/email_address",
        "/resource/payee/merchant_id",
        "/resource/custom_id",
        "/resource/invoice_id",
        "/resource/billing_agreement_id",
        "/resource/dispute_id",
    ])
});

const ABOUT: [(AttributeName, usize); 11] = [
    (AttributeName::Object, 2),
    (AttributeName::ProviderStatus, 3),
    (AttributeName::ProviderStatus, 4),
    (AttributeName::Object, 5),
    (AttributeName::Email, 6),
    (AttributeName::Email, 7),
    (AttributeName::Account, 8),
    (AttributeName::Object, 9),
    (AttributeName::Object, 10),
    (AttributeName::Object, 11),
    (AttributeName::Object, 12),
];

#[derive(Debug)]
pub(super) struct Paypal;

impl Provider for Paypal {
    fn name(&self) -> &'static str {
        "paypal"
    }

    /// The secrets are the ids of webhooks: part of what is signed.
    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let mut warnings = Vec::new();
        for (number, secret) in (1..).zip(&secrets) {
            let id = secret.expose();
            if id.is_empty() || !id.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
            {
                let why = "it must be the id of the webhook, letters and digits as PayPal shows it";
                return Err(VerifySpecError::Secret { number, why });
            }
            if id == SIMULATOR {
                warnings.push(format!(
                    "secret {number} is that of PayPal's simulator: everybody can send with it"
                ));
            }
        }
        let many = secrets.len();
        Ok(Verifier::own(Box::new(WebhookIds(secrets)), many).warning(warnings))
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = FIELDS.read(request.body);
        ParsedRequest::one(EventPart {
            kind: found.get(1).and_then(EventKind::new),
            key: EventKey::known(found.key("paypal", &[0]), "paypal:id"),
            order: found.first(&[2, 12]).and_then(DedupKey::new),
            attributes: found.attributes(&ABOUT),
            ..EventPart::default()
        })
    }

    /// It tries 25 times within three days.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(5 * 86_400)
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["paypal-transmission-sig"]
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

/// The ids of webhooks, the current one first.
#[derive(Debug)]
struct WebhookIds(Vec<Secret>);

impl VerificationScheme for WebhookIds {
    fn name(&self) -> &'static str {
        "paypal"
    }

    /// Nothing is fetched for a request that lacks what is needed besides.
    fn certificate_url(&self, request: &IncomingRequest<'_>) -> Result<Option<Url>, VerifyError> {
        Transmission::of(request.headers)?;
        let text = text(request.headers, &CERTIFICATE, "certificate")?
            .ok_or(VerifyError::UntrustedCertificate("the request does not say where it is"))?;
        let elsewhere = VerifyError::UntrustedCertificate("its address is not one of PayPal's");
        certificate_at(text).map(Some).ok_or(elsewhere)
    }

    fn verify(&self, _: &IncomingRequest<'_>, _: Timestamp) -> Result<usize, VerifyError> {
        Err(VerifyError::UntrustedCertificate("it is not at hand"))
    }

    fn verify_with_certificate(
        &self,
        request: &IncomingRequest<'_>,
        certificate: &Certificate<'_>,
        now: Timestamp,
    ) -> Result<usize, VerifyError> {
        let transmission = Transmission::of(request.headers)?;
        let mut why = VerifyError::Mismatch;
        for (index, webhook) in self.0.iter().enumerate() {
            let text = transmission.text(webhook, request.body);
            let signed = (text.as_slice(), transmission.signature.as_slice());
            match certificate.check(is_paypal, signed, now) {
                Ok(()) => return Ok(index),
                Err(refused) => why = refused,
            }
        }
        Err(why)
    }

    fn sign(&self, _: &OutgoingRequest<'_>, _: Timestamp) -> Result<RequestSignature, SignError> {
        Err(SignError("PayPal signs with a private key that only PayPal has"))
    }
}

/// What stands in the headers.
struct Transmission<'h> {
    id: &'h str,
    time: &'h str,
    signature: Vec<u8>,
}

impl<'h> Transmission<'h> {
    fn of(headers: &'h HeaderMap) -> Result<Self, VerifyError> {
        let malformed = |part| VerifyError::Malformed { part };
        let signature = text(headers, &SIGNATURE, "signature")?
            .ok_or_else(|| VerifyError::MissingSignature { header: SIGNATURE.clone() })?;
        let signature = BASE64.decode(signature.as_bytes()).map_err(|_| malformed("signature"))?;
        let algorithm = text(headers, &ALGORITHM, "signature")?.unwrap_or(RSA_SHA256);
        if !algorithm.eq_ignore_ascii_case(RSA_SHA256) {
            return Err(malformed("signature"));
        }
        let id = text(headers, &ID, "id")?.ok_or(VerifyError::MissingId)?;
        let time = text(headers, &TIME, "timestamp")?.ok_or(VerifyError::MissingTimestamp)?;
        // The line that is signed could be cut elsewhere.
        if id.contains('|') {
            return Err(malformed("id"));
        }
        if time.contains('|') {
            return Err(malformed("timestamp"));
        }
        Ok(Self { id, time, signature })
    }

    /// The line that is signed. Of the body it holds a checksum, of 32 bits.
    fn text(&self, webhook: &Secret, body: &[u8]) -> Vec<u8> {
        let checksum = crc32fast::hash(body).to_string();
        let parts =
            [self.id.as_bytes(), self.time.as_bytes(), webhook.expose(), checksum.as_bytes()];
        parts.join(&b'|')
    }
}

fn text<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    part: &'static str,
) -> Result<Option<&'h str>, VerifyError> {
    let value = only_value(headers, name, part)?;
    value.map(|value| value.to_str().map_err(|_| VerifyError::Malformed { part })).transpose()
}

/// The address of a certificate, if it is one of `PayPal`'s. Anything but its plainest spelling is
/// not: no port, no user, no query, nothing that is read in two ways.
fn certificate_at(text: &str) -> Option<Url> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
    if text.len() > URL_BYTES_MAX || !text.bytes().all(is_plain) {
        return None;
    }
    let url = Url::parse(text).ok()?;
    let is_paypal = matches!(url.host()?, Host::Domain(host) if is_paypal(host));
    // As it is written, it is what it was read as: there is nothing more in it.
    let is_whole = url.as_str() == text && text.matches(':').count() == 1;
    let is_good = url.scheme() == "https" && is_paypal && is_whole;
    (is_good && url.path().starts_with(CERTIFICATES)).then_some(url)
}

/// Whether a name is `PayPal`'s: the domain itself, or one below it.
fn is_paypal(name: &str) -> bool {
    name.strip_suffix(DOMAIN).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

static SAMPLES: &[SampleEvent] = &[
    sample(
        "PAYMENT.CAPTURE.COMPLETED",
        r#"{"id":"WH-{{id}}","event_version":"1.0","create_time":"{{now_iso}}","resource_type":"capture","event_type":"PAYMENT.CAPTURE.COMPLETED","summary":"Payment completed","resource":{"id":"CAP{{id}}","status":"COMPLETED","amount":{"value":"129.90","currency_code":"BRL"}}}"#,
    ),
    sample(
        "PAYMENT.CAPTURE.REFUNDED",
        r#"{"id":"WH-{{id}}","event_version":"1.0","create_time":"{{now_iso}}","resource_type":"refund","event_type":"PAYMENT.CAPTURE.REFUNDED","summary":"A payment was refunded","resource":{"id":"REF{{id}}","status":"COMPLETED","amount":{"value":"129.90","currency_code":"BRL"}}}"#,
    ),
    sample(
        "BILLING.SUBSCRIPTION.ACTIVATED",
        r#"{"id":"WH-{{id}}","event_version":"1.0","create_time":"{{now_iso}}","resource_type":"subscription","event_type":"BILLING.SUBSCRIPTION.ACTIVATED","summary":"Subscription activated","resource":{"id":"I-{{id}}","status":"ACTIVE","subscriber":{"email_address":"ana.souza@example.com"}}}"#,
    ),
];

const fn sample(kind: &'static str, body: &'static str) -> SampleEvent {
    SampleEvent { kind, headers: &[("content-type", "application/json")], target: "", body }
}
