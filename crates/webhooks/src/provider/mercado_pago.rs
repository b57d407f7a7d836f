//! Mercado Pago: signs a manifest of the id in the URL, a request id and a time, but not the body.
//!
//! A captured request can be resent with another body, so only the id in the URL can be trusted: it is
//! required, the body must have the same id, and the receiver should fetch the object from Mercado Pago.

use std::{borrow::Cow, time::Duration};

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use http::HeaderName;
use surehook_types::{
    inflate,
    secret::Secret,
    time::{HumanDuration, Timestamp},
};
use url::form_urlencoded;

use super::{
    EventKey, EventPart, ParsedRequest, Provider, SampleEvent, SampleHeaders,
    fields::{EventReader, EventTemplate},
};
use crate::{
    attribute::AttributeName::{Account, Object},
    key::{DedupKey, fingerprint},
    mac::HmacKey,
    request::{IncomingRequest, OutgoingRequest},
    verify::{
        RequestSignature, SignError, VerificationScheme, Verifier, VerifyError, check_max_age,
        decode_signature, parse_epoch, signing_secret, text_header,
    },
};

static SIGNATURE: HeaderName = HeaderName::from_static("x-signature");
static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The retries take about two weeks, and it is undocumented whether they are signed again.
const MAX_AGE: Duration = Duration::from_secs(20 * 86_400);

pub(super) static MERCADO_PAGO: Provider = Provider {
    name: "mercado-pago",
    verifier: |secrets| Ok(Verifier::from_scheme(secrets.len(), ManifestScheme { secrets })),
    signature_headers: &["x-signature"],
    // The intervals between attempts grow up to four days.
    dedup_window: HumanDuration::from_secs(21 * 86_400),
    parse_request: |request, _| ParsedRequest::single(parse_event(request)),
    samples: &[
        payment_sample(
            "payment.updated",
            r#"{"id":1{{number}},"live_mode":true,"type":"payment","date_created":"{{now_iso}}","user_id":987654321,"api_version":"v1","action":"payment.updated","data":{"id":"{{number}}"}}"#,
        ),
        payment_sample(
            "payment.created",
            r#"{"id":1{{number}},"live_mode":true,"type":"payment","date_created":"{{now_iso}}","user_id":987654321,"api_version":"v1","action":"payment.created","data":{"id":"{{number}}"}}"#,
        ),
    ],
    ..Provider::DEFAULT
};

static EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/action|/type|/topic}"],
    attributes: &[(Account, &["/user_id"])],
    extra_fields: &["/data/id", "/id", "/type"],
    ..EventTemplate::EMPTY
});

/// The object is named by the body or, if it does not, by the signed URL. Several notifications about
/// one object have different ids.
fn parse_event(request: &IncomingRequest<'_>) -> EventPart {
    let found = EVENT.read(request);
    let signed_id = signed_id(request.query).ok().flatten();
    let mut event = found.event();
    let Some(data_id) = found.get("/data/id").or(signed_id.as_deref()) else { return event };
    let key = found.get("/action|/type").and_then(|action| {
        let (user, id) = (found.get("/user_id|-")?, found.get("/id|-")?);
        DedupKey::new(&format!("mercadopago:{user}:{action}:{data_id}:{id}"))
    });
    // The body is not signed.
    event.key = EventKey::Unsigned(key, "mercadopago:id");
    event.ordering_key =
        found.get("/type").and_then(|kind| DedupKey::new(&format!("{kind}:{data_id}")));
    event.attributes.push_some(Object, Some(data_id));
    event
}

const fn payment_sample(kind: &'static str, body: &'static str) -> SampleEvent {
    let headers: SampleHeaders =
        &[("content-type", "application/json"), ("user-agent", "MercadoPago WebHook v1.0 payment")];
    SampleEvent { kind, headers, target: "?data.id={{number}}&type=payment", body }
}

/// Verifies the signed manifest with the secret of an application.
#[derive(Debug)]
struct ManifestScheme {
    secrets: Vec<Secret>,
}

impl VerificationScheme for ManifestScheme {
    fn name(&self) -> &'static str {
        "mercado-pago"
    }

    fn max_age(&self) -> Option<Duration> {
        Some(MAX_AGE)
    }

    fn signs_body(&self) -> bool {
        false
    }

    /// The signed id, request id and time. An id has one spelling here, however it is written in the URL.
    fn signed_fingerprint(&self, request: &IncomingRequest<'_>) -> [u8; 32] {
        let data_id = signed_id(request.query).ok().flatten();
        let data_id = data_id.map(|data_id| data_id.to_ascii_lowercase());
        let header = request.header(SIGNATURE.as_str()).map(parse_signature);
        let timestamp = header.and_then(Result::ok).map_or("", |(timestamp, _)| timestamp);
        let request_id = request.header(REQUEST_ID.as_str());
        fingerprint(manifest(data_id.as_deref(), request_id, timestamp).as_bytes())
    }

    fn verify(&self, request: &IncomingRequest<'_>, now: Timestamp) -> Result<usize, VerifyError> {
        let header = text_header(request.headers, &SIGNATURE, "signature")?
            .ok_or_else(|| VerifyError::MissingSignature { header: SIGNATURE.clone() })?;
        let (timestamp, signature) = parse_signature(header)?;
        check_max_age(parse_epoch(timestamp.as_bytes())?, now, MAX_AGE)?;
        let request_id = text_header(request.headers, &REQUEST_ID, "id")?;
        // Without it the signature says nothing about what happened.
        let data_id = signed_id(request.query)?.ok_or(VerifyError::MissingId)?;
        let lines: Vec<_> = id_spellings(&data_id)
            .into_iter()
            .map(|data_id| manifest(Some(&data_id), request_id, timestamp))
            .collect();
        let is_match = |secret: &Secret| {
            let key = HmacKey::sha256(secret.expose());
            lines.iter().any(|line| key.verify([line.as_bytes()], &signature))
        };
        let secret_index = self.secrets.iter().position(is_match).ok_or(VerifyError::Mismatch)?;
        check_body_id(request, &data_id)?;
        Ok(secret_index)
    }

    fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestSignature, SignError> {
        let key = HmacKey::sha256(signing_secret(&self.secrets)?.expose());
        let query = request.url.split_once('?').map(|(_, query)| query);
        let data_id = signed_id(query).map_err(|_| SignError("the URL has `data.id` twice"))?;
        let data_id = data_id.map(|data_id| data_id.to_ascii_lowercase());
        let timestamp = now.as_millis().to_string();
        let line = manifest(data_id.as_deref(), Some(request.id), &timestamp);
        let signature = HEXLOWER.encode(key.sign([line.as_bytes()]).as_ref());
        Ok(RequestSignature::headers(vec![
            (SIGNATURE.clone(), format!("ts={timestamp},v1={signature}")),
            (REQUEST_ID.clone(), request.id.to_owned()),
        ]))
    }
}

/// Parses `ts=…,v1=…`; each may occur once.
fn parse_signature(header: &str) -> Result<(&str, Vec<u8>), VerifyError> {
    let malformed = |part| VerifyError::Malformed { part };
    let (mut timestamp, mut signature) = (None, None);
    for (name, value) in header.split(',').filter_map(|pair| pair.split_once('=')) {
        let (slot, part) = match name.trim() {
            "ts" => (&mut timestamp, "timestamp"),
            "v1" => (&mut signature, "signature"),
            _ => continue,
        };
        if slot.replace(value.trim()).is_some() {
            return Err(malformed(part));
        }
    }
    let signature =
        signature.ok_or_else(|| VerifyError::MissingSignature { header: SIGNATURE.clone() })?;
    let signature = decode_signature(&HEXLOWER_PERMISSIVE, signature.as_bytes())?;
    let timestamp = timestamp.ok_or(VerifyError::MissingTimestamp)?;
    let is_number = !timestamp.is_empty() && timestamp.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { Ok((timestamp, signature)) } else { Err(malformed("timestamp")) }
}

/// `data.id` in the query: the id of the object.
fn signed_id(query: Option<&str>) -> Result<Option<Cow<'_, str>>, VerifyError> {
    let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut ids = pairs.filter(|(name, _)| name == "data.id").map(|(_, value)| value);
    match (ids.next(), ids.next()) {
        (_, Some(_)) => Err(VerifyError::Malformed { part: "id" }),
        (id, None) => Ok(id.filter(|id| !id.is_empty())),
    }
}

/// Alphanumeric ids are signed in lower case. This is undocumented for other ids, so both are tried.
fn id_spellings(id: &str) -> Vec<String> {
    let small = id.to_ascii_lowercase();
    if small == id { vec![small] } else { vec![small, id.to_owned()] }
}

/// The signed text; parts that the request lacks are left out.
fn manifest(data_id: Option<&str>, request_id: Option<&str>, timestamp: &str) -> String {
    let mut line = String::new();
    for (name, value) in [("id", data_id), ("request-id", request_id), ("ts", Some(timestamp))] {
        if let Some(value) = value {
            line = format!("{line}{name}:{value};");
        }
    }
    line
}

/// The body is not signed, so an id in it must equal the signed id in the URL.
fn check_body_id(request: &IncomingRequest<'_>, data_id: &str) -> Result<(), VerifyError> {
    let decoded = inflate::decode_body(request.headers, request.body);
    match EVENT.read_json(decoded.as_deref().unwrap_or(request.body)).get("/data/id") {
        Some(named) if !data_id.eq_ignore_ascii_case(named) => Err(VerifyError::Mismatch),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{TestCall, attribute_pairs, event_summary, summary},
        ParsedRequest,
    };

    const URL: &str = "https://gw.test/in/mp?data.id=42&type=payment";
    const BODY: &str =
        r#"{"id":7,"type":"payment","user_id":9,"action":"payment.updated","data":{"id":"42"}}"#;

    fn call() -> TestCall {
        TestCall::new("mercado-pago", "mp_secret_5d1f")
            .at(1_779_024_000_000)
            .url(URL)
            .body(BODY)
            .signed()
    }

    /// The signature header over a manifest.
    fn over(line: &str) -> String {
        let signature = super::HmacKey::sha256(b"mp_secret_5d1f").sign([line.as_bytes()]);
        let hex = data_encoding::HEXLOWER.encode(signature.as_ref());
        format!("ts=1779023998000,v1={hex}")
    }

    #[test]
    fn url_id_is_signed_and_must_match_the_body() {
        let signature = "x-signature";
        let cases = [
            ("good", call(), Ok(0)),
            ("a retry after ten days", call().at(1_779_924_000_000), Ok(0)),
            ("replayed after three weeks", call().at(1_780_838_400_000), Err("stale")),
            ("from a clock an hour ahead", call().at(1_779_020_400_000), Err("stale")),
            ("the number is not a text", call().body(r#"{"data":{"id":42}}"#), Ok(0)),
            ("a body that names nothing", call().body("{}"), Ok(0)),
            (
                "a body about another payment",
                call().body(BODY.replace("42", "43")),
                Err("mismatch"),
            ),
            ("another payment", call().url(URL.replace("42", "43")), Err("mismatch")),
            (
                "both",
                call().url(URL.replace("42", "43")).body(BODY.replace("42", "43")),
                Err("mismatch"),
            ),
            ("another request", call().header("x-request-id", "r2"), Err("mismatch")),
            ("no request id", call().without("x-request-id"), Err("mismatch")),
            ("a second id", call().url(format!("{URL}&data.id=43")), Err("malformed")),
            ("not signed", call().without(signature), Err("missing_signature")),
            ("no time", call().header(signature, "v1=00"), Err("missing_timestamp")),
            ("no version", call().header(signature, "ts=1"), Err("missing_signature")),
            (
                "two versions",
                call().header(signature, "ts=1779024000,v1=00,v1=11"),
                Err("malformed"),
            ),
            ("not hex", call().header(signature, "ts=1779024000,v1=zz"), Err("malformed")),
            ("cut short", call().header(signature, "ts=1779024000,v1=00ff"), Err("mismatch")),
            ("an odd time", call().header(signature, "ts=1;x:1,v1=00"), Err("malformed")),
            ("another secret", call().secrets(&["x"]), Err("mismatch")),
            ("the second secret", call().secrets(&["x", "mp_secret_5d1f"]), Ok(1)),
        ];
        for (name, call, expected) in cases {
            assert_eq!(call.verify(), expected, "case: {name}");
        }
        // The body is not signed; everything else must match exactly.
        call().body("").assert_every_bit_counts(&["x-request-id"]);
    }

    #[test]
    fn missing_parts_are_left_out_of_the_manifest() {
        let signature = "x-signature";
        let letters = "https://gw.test/in/mp?type=order&data.id=ORD01ABC";
        let letters_body = r#"{"data":{"id":"ORD01ABC"}}"#;
        let no_id = "https://gw.test/in/mp?topic=merchant_order&id=5";
        let cases = [
            (
                "spaces, and the other way round",
                call().header(
                    signature,
                    over("id:42;request-id:msg_1;ts:1779023998000;")
                        .split(',')
                        .rev()
                        .collect::<Vec<_>>()
                        .join(" , "),
                ),
                Ok(0),
            ),
            (
                "letters are signed in lower case",
                call()
                    .url(letters)
                    .body(letters_body)
                    .header(signature, over("id:ord01abc;request-id:msg_1;ts:1779023998000;")),
                Ok(0),
            ),
            (
                "letters in their own case",
                call()
                    .url(letters)
                    .body(letters_body)
                    .header(signature, over("id:ORD01ABC;request-id:msg_1;ts:1779023998000;")),
                Ok(0),
            ),
            (
                "without a request id",
                call().without("x-request-id").header(signature, over("id:42;ts:1779023998000;")),
                Ok(0),
            ),
            (
                "without an id",
                call()
                    .url(no_id)
                    .body(r#"{"resource":"/merchant_orders/5","topic":"merchant_order"}"#)
                    .header(signature, over("request-id:msg_1;ts:1779023998000;")),
                Err("missing_id"),
            ),
            (
                "an id that is only in the body",
                call().url(no_id).header(signature, over("request-id:msg_1;ts:1779023998000;")),
                Err("missing_id"),
            ),
            (
                "the old notifications are not signed",
                call().url(no_id).without(signature),
                Err("missing_signature"),
            ),
        ];
        for (name, call, expected) in cases {
            assert_eq!(call.verify(), expected, "case: {name}");
        }
    }

    #[test]
    fn compressed_body_is_checked_too() {
        use std::io::Write as _;
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(BODY.replace("42", "43").as_bytes()).unwrap();
        let call = call().header("content-encoding", "gzip").body(packed.finish().unwrap());
        assert_eq!(call.verify(), Err("mismatch"));
    }

    #[test]
    fn notifications_of_one_payment_have_different_keys() {
        let cases = [
            (
                "typical",
                BODY,
                ["payment.updated", "mercadopago:9:payment.updated:42:7", "payment:42"],
            ),
            (
                "no id",
                r#"{"type":"payment","user_id":9,"action":"payment.updated","data":{"id":"42"}}"#,
                ["payment.updated", "mercadopago:9:payment.updated:42:-", "payment:42"],
            ),
            (
                "no action",
                r#"{"id":7,"type":"plan","user_id":9,"data":{"id":"42"}}"#,
                ["plan", "mercadopago:9:plan:42:7", "plan:42"],
            ),
            (
                "the old form",
                r#"{"resource":"/merchant_orders/5","topic":"merchant_order"}"#,
                ["merchant_order", "-", "-"],
            ),
            ("not JSON", "x", ["-", "-", "-"]),
        ];
        for (name, body, expected) in cases {
            assert_eq!(summary("mercado-pago", &[], body), expected, "case: {name}");
        }
        assert_eq!(attribute_pairs("mercado-pago", &[], BODY), ["object=42", "account=9"]);
        let order = r#"{"id":"7","type":"topic_merchant_order_wh","user_id":9,"action":"create","data":{"status":"opened"}}"#;
        let ParsedRequest::Events(parts) = call().body(order).parse() else {
            panic!("a handshake")
        };
        assert_eq!(
            event_summary(&parts[0]),
            ["create", "mercadopago:9:create:42:7", "topic_merchant_order_wh:42"],
            "the signed URL names the object"
        );
    }
}
