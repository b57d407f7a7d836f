//! Adyen: standard webhooks have a signature over some fields of each item, inside the body; the other
//! webhooks have one over the body, in a header.
//!
//! The signature of an item covers neither the rest of the item nor the list, so that only these fields can
//! be trusted; they make the key and the kind.

#[cfg(test)]
mod tests;

use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use http::HeaderName;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use surehook_types::{
    inflate,
    secret::Secret,
    time::{HumanDuration, Timestamp},
};

use super::{
    EventKey, ParsedRequest, Provider, ProviderReply, SampleEvent,
    fields::{EventReader, EventTemplate, FieldValues},
    raw_json,
};
use crate::{
    attribute::AttributeName::{Account, Error, Object, ProviderStatus},
    key::fingerprint,
    mac::HmacKey,
    request::{IncomingRequest, OutgoingRequest},
    verify::{
        RequestSignature, SignError, VerificationScheme, Verifier, VerifyError, VerifySpecError,
        decode_signature, signature_header,
    },
};

static SIGNATURE: HeaderName = HeaderName::from_static("hmacsignature");
/// Adyen retries for 30 days.
const WINDOW: HumanDuration = HumanDuration::from_secs(31 * 86_400);

// https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures
pub(super) static ADYEN: Provider = Provider {
    name: "adyen",
    verifier,
    signature_headers: &["hmacsignature"],
    dedup_window: WINDOW,
    parse_request,
    // Any 2xx is enough for new webhooks; older ones expect this text.
    success_reply: |_| Some(ProviderReply::text("[accepted]")),
    samples: &[
        SampleEvent::json(
            "AUTHORISATION",
            r#"{"live":"false","notificationItems":[{"NotificationRequestItem":{"additionalData":{"expiryDate":"12/2030","cardSummary":"1111"},"amount":{"currency":"BRL","value":12990},"eventCode":"AUTHORISATION","eventDate":"{{now_iso}}","merchantAccountCode":"LojaBR","merchantReference":"order-{{number}}","paymentMethod":"visa","pspReference":"88161{{number}}","reason":"033899:1111:03/2030","success":"true"}}]}"#,
        ),
        SampleEvent::json(
            "REFUND",
            r#"{"live":"false","notificationItems":[{"NotificationRequestItem":{"amount":{"currency":"BRL","value":12990},"eventCode":"REFUND","eventDate":"{{now_iso}}","merchantAccountCode":"LojaBR","merchantReference":"order-{{number}}","originalReference":"88161{{number}}","paymentMethod":"visa","pspReference":"88162{{number}}","reason":"","success":"true"}}]}"#,
        ),
        SampleEvent::json(
            "balancePlatform.transfer.updated",
            r#"{"data":{"id":"JN4227222422265{{number}}","balancePlatform":"LojaPlatform","status":"booked","sequenceNumber":3,"amount":{"currency":"EUR","value":9000}},"environment":"test","timestamp":"{{now_iso}}","type":"balancePlatform.transfer.updated"}"#,
        ),
    ],
    ..Provider::DEFAULT
};

static REQUEST: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/type}"],
    ordering_key: &["{/data/id}"],
    attributes: &[
        (Object, &["/data/id"]),
        (ProviderStatus, &["/data/status"]),
        (Account, &["/data/balancePlatform", "/data/merchantId"]),
    ],
    extra_fields: &["/notificationItems"],
    ..EventTemplate::EMPTY
});

/// The signed fields, in the order in which they are signed.
const SIGNED_FIELDS: [&str; 8] = [
    "/NotificationRequestItem/pspReference",
    "/NotificationRequestItem/originalReference",
    "/NotificationRequestItem/merchantAccountCode",
    MERCHANT_REFERENCE,
    "/NotificationRequestItem/amount/value",
    "/NotificationRequestItem/amount/currency",
    "/NotificationRequestItem/eventCode",
    "/NotificationRequestItem/success",
];
/// The only signed field whose text the merchant chooses.
const MERCHANT_REFERENCE: &str = "/NotificationRequestItem/merchantReference";
const ITEM_SIGNATURE: &str = "/NotificationRequestItem/additionalData/hmacSignature";

static ITEM: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/NotificationRequestItem/eventCode}"],
    key: &["adyen:{/NotificationRequestItem/merchantAccountCode}\
         :{/NotificationRequestItem/pspReference}\
         :{/NotificationRequestItem/eventCode}:{/NotificationRequestItem/success|-}"],
    key_label: "adyen:pspReference:eventCode:success",
    ordering_key: &["{/NotificationRequestItem/originalReference\
         |/NotificationRequestItem/pspReference}"],
    attributes: &[
        (Object, &["/NotificationRequestItem/pspReference", MERCHANT_REFERENCE]),
        (Object, &["/NotificationRequestItem/originalReference"]),
        (Account, &["/NotificationRequestItem/merchantAccountCode"]),
        (ProviderStatus, &["/NotificationRequestItem/success"]),
        (Error, &["/NotificationRequestItem/additionalData/refusalReasonRaw"]),
    ],
    extra_fields: &[
        "/NotificationRequestItem/amount/value",
        "/NotificationRequestItem/amount/currency",
        ITEM_SIGNATURE,
    ],
    ..EventTemplate::EMPTY
});

/// The secrets are hexadecimal, as Adyen shows them.
fn verifier(secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
    let reason = "it must be the HMAC key as shown by Adyen: hexadecimal digits";
    let parse = |(number, secret): (usize, &Secret)| {
        let key = HEXLOWER_PERMISSIVE.decode(secret.expose().trim_ascii()).ok();
        let key = key.filter(|key| !key.is_empty()).map(|key| HmacKey::sha256(&key));
        key.ok_or(VerifySpecError::Secret { number, reason })
    };
    let keys = (1..).zip(&secrets).map(parse).collect::<Result<_, _>>()?;
    Ok(Verifier::from_scheme(secrets.len(), AdyenScheme(keys)))
}

fn parse_request(request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
    let found = REQUEST.read(request);
    let items = found.raw("/notificationItems");
    let read = |item: &[u8]| ITEM.read_json(item).event();
    if let Some(parts) = items.and_then(|items| raw_json::split_list(request.body, items, read)) {
        return ParsedRequest::Events(parts);
    }
    let mut event = found.event();
    if event.kind.is_some() {
        // There is no id. The body contains the time, so equal bytes are the same event.
        event.key = EventKey::ContentHash(WINDOW.0);
    }
    ParsedRequest::single(event)
}

/// Verifies with the HMAC keys of an endpoint, the current one first.
#[derive(Debug)]
struct AdyenScheme(Vec<HmacKey>);

impl AdyenScheme {
    fn position(&self, is_match: impl Fn(&HmacKey) -> bool) -> Result<usize, VerifyError> {
        self.0.iter().position(is_match).ok_or(VerifyError::Mismatch)
    }
}

impl VerificationScheme for AdyenScheme {
    fn name(&self) -> &'static str {
        "adyen"
    }

    /// Only some fields of it, in standard webhooks.
    fn signs_body(&self) -> bool {
        false
    }

    fn signed_fingerprint(&self, request: &IncomingRequest<'_>) -> [u8; 32] {
        if request.headers.contains_key(&SIGNATURE) {
            return fingerprint(request.body);
        }
        let mut hasher = Sha256::new();
        for item in read_items(request).unwrap_or_default() {
            hasher.update(&item.signed_text);
            hasher.update("\n");
        }
        hasher.finalize().into()
    }

    fn verify(&self, request: &IncomingRequest<'_>, _: Timestamp) -> Result<usize, VerifyError> {
        if request.headers.contains_key(&SIGNATURE) {
            let signature = signature_header(request.headers, &SIGNATURE)?;
            let signature = decode_signature(&BASE64, signature)?;
            return self.position(|key| key.verify([request.body], &signature));
        }
        let items = read_items(request)?;
        if items.is_empty() {
            return Err(VerifyError::MissingSignature { header: SIGNATURE.clone() });
        }
        self.position(|key| {
            let is_signed =
                |item: &SignedItem| key.verify([item.signed_text.as_bytes()], &item.signature);
            items.iter().all(is_signed)
        })
    }

    /// Signs the body in the header, as the webhooks of Adyen's platforms are.
    fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        _: Timestamp,
    ) -> Result<RequestSignature, SignError> {
        let key = self.0.first().ok_or(SignError("there is no secret to sign with"))?;
        let signature = BASE64.encode(key.sign([request.body]).as_ref());
        Ok(RequestSignature::headers(vec![(SIGNATURE.clone(), signature)]))
    }
}

/// What is signed of an item, and its signature.
struct SignedItem {
    signed_text: String,
    signature: Vec<u8>,
}

/// The items of a standard webhook.
fn read_items(request: &IncomingRequest<'_>) -> Result<Vec<SignedItem>, VerifyError> {
    let decoded = inflate::decode_body(request.headers, request.body);
    let found = REQUEST.read_json(decoded.as_deref().unwrap_or(request.body));
    let items = found.raw("/notificationItems").unwrap_or("[]");
    let items: Vec<&RawValue> =
        serde_json::from_str(items).map_err(|_| VerifyError::Malformed { part: "signature" })?;
    items.into_iter().map(|item| read_item(&ITEM.read_json(item.get().as_bytes()))).collect()
}

fn read_item(item: &FieldValues<'_>) -> Result<SignedItem, VerifyError> {
    let signature = item.get(ITEM_SIGNATURE);
    let missing = || VerifyError::MissingSignature { header: SIGNATURE.clone() };
    let signature = decode_signature(&BASE64, signature.ok_or_else(missing)?.as_bytes())?;
    let mut signed_text = String::new();
    for (position, field) in SIGNED_FIELDS.iter().enumerate() {
        let is_bool = |text: &&str| matches!(*text, "true" | "false");
        let text = item.get(field).or_else(|| item.raw(field).filter(is_bool)).unwrap_or_default();
        // The fields are joined by colons, so a colon could make one signature valid for other fields.
        if text.contains(':') && *field != MERCHANT_REFERENCE {
            return Err(VerifyError::Malformed { part: "signature" });
        }
        if position > 0 {
            signed_text.push(':');
        }
        signed_text.push_str(text);
    }
    Ok(SignedItem { signed_text, signature })
}
