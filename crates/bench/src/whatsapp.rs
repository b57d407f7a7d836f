//! WhatsApp phase: the cost of verifying, splitting and extracting keys, compared with a generic source.
//!
//! Both sources get the same requests: one message each, signed as Meta signs, every one from
//! another phone. The generic source verifies nothing and finds the message id with a JSON pointer;
//! the preset verifies the signature and parses the envelope. Both are on one gateway and alternate
//! in order.

use anyhow::{Context as _, Result};
use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use hyper::header::HeaderValue;
use serde::Serialize;
use sha2::Sha256;

use crate::bench_run::{BenchRun, run_load};
use crate::gateway::GatewayConfig;
use crate::latency::median;
use crate::load::LoadPlan;
use crate::request::{BodyShape, DigitOffsets, NUMBER_LEN, SENT_LEN, SERIES_LEN};

/// The share of the generic source's rate that the preset should reach.
const RATIO_TARGET: f64 = 0.8;
const GENERIC: &str = "generic";
const PRESET: &str = "whatsapp";
const SECRET: &str = "bench-app-secret-0123456789abcdef";
const PHONE_NUMBER_ID: &str = "106540352242922";
/// Common prefix of all phone numbers.
pub(crate) const PHONE_PREFIX: &str = "55119";
/// Number of digits after the prefix.
pub(crate) const PHONE_DIGITS: usize = 8;
/// Number of different phone numbers.
const PEOPLE_MAX: u64 = 10_u64.pow(PHONE_DIGITS as u32);
/// The header of Meta's signature.
pub(crate) const SIGNATURE_HEADER: &str = "x-hub-signature-256";

/// Rates of the WhatsApp preset and of a generic source.
#[derive(Clone, Debug, Serialize)]
pub struct WhatsAppReport {
    pub generic_per_second: f64,
    pub whatsapp_per_second: f64,
    pub generic_per_second_rounds: Vec<f64>,
    pub whatsapp_per_second_rounds: Vec<f64>,
    /// The preset's rate as a share of the generic source's rate.
    pub ratio: f64,
    pub ratio_target: f64,
}

pub(crate) async fn measure(run: &BenchRun) -> Result<WhatsAppReport> {
    run.progress.set_total(2 * run.options.rounds as u64);
    let (mut generic, mut preset) = (Vec::new(), Vec::new());
    for round in 0..run.options.rounds {
        let config = GatewayConfig::default()
            .source_with(
                GENERIC,
                "provider = \"generic\"\nverify = \"none\"\n\
                 keys = [\"pointer:/entry/0/changes/0/value/messages/0/id\"]",
            )
            .source_with(PRESET, &preset_settings());
        let gateway = run.start_gateway(&config).await?;
        let mut order = [(GENERIC, "wamid."), (PRESET, KEY_PREFIX)];
        order.rotate_left(round % 2);
        for (source, key_prefix) in order {
            run.progress.start_step(format!(
                "round {} of {}: {source}",
                round + 1,
                run.options.rounds
            ));
            let shape = BodyShape::WhatsApp { key_prefix, people: PEOPLE_MAX };
            let plan = LoadPlan { shape, ..run.default_plan(gateway.child.addr(), source) };
            let outcome = run_load(&gateway.child, plan).await;
            let outcome = outcome.with_context(|| format!("source `{source}` failed"))?;
            let rates = if source == GENERIC { &mut generic } else { &mut preset };
            rates.push(outcome.per_second());
            run.progress.finish_step();
        }
    }
    let [generic_per_second, whatsapp_per_second] =
        [&generic, &preset].map(|rates| median(rates.iter().copied()));
    Ok(WhatsAppReport {
        generic_per_second,
        whatsapp_per_second,
        generic_per_second_rounds: generic,
        whatsapp_per_second_rounds: preset,
        ratio: whatsapp_per_second / generic_per_second,
        ratio_target: RATIO_TARGET,
    })
}

/// The settings of a source that accepts the messages of [`message_body`].
pub(crate) fn preset_settings() -> String {
    format!("provider = \"whatsapp-cloud\"\nsecrets = [\"{SECRET}\"]")
}

/// The preset's key prefix before the message id.
pub(crate) const KEY_PREFIX: &str = "whatsapp:106540352242922:message:wamid.";

/// One message of `body_bytes` bytes and the offsets of its digits.
pub(crate) fn message_body(series: &str, body_bytes: usize) -> (String, DigitOffsets) {
    let (zeros, sent) = ("0".repeat(NUMBER_LEN), "0".repeat(SENT_LEN));
    let phone = format!("{PHONE_PREFIX}{}", "0".repeat(PHONE_DIGITS));
    let before_text = format!(
        "{{\"object\":\"whatsapp_business_account\",\"entry\":[{{\"id\":\"102290129340398\",\
         \"changes\":[{{\"value\":{{\"messaging_product\":\"whatsapp\",\"metadata\":{{\
         \"display_phone_number\":\"551130000000\",\"phone_number_id\":\"{PHONE_NUMBER_ID}\"}},\
         \"contacts\":[{{\"profile\":{{\"name\":\"Maria\"}},\"wa_id\":\"{phone}\"}}],\
         \"messages\":[{{\"from\":\"{phone}\",\"id\":\"wamid.{series}{zeros}\",\
         \"timestamp\":\"{sent}\",\"type\":\"text\",\"text\":{{\"body\":\""
    );
    let after_text = "\"}}]},\"field\":\"messages\"}]}]}";
    let text = "x".repeat(body_bytes.saturating_sub(before_text.len() + after_text.len()));
    let body = format!("{before_text}{text}{after_text}");
    let after = |mark: &str| body.find(mark).map_or(0, |at| at + mark.len());
    let offsets = DigitOffsets {
        number: after("wamid.") + SERIES_LEN,
        sent: after("\"timestamp\":\""),
        phones: ["\"wa_id\":\"55119", "\"from\":\"55119"].map(after).to_vec(),
    };
    (body, offsets)
}

/// The value of the signature header for `body`.
pub(crate) fn sign(body: &[u8]) -> HeaderValue {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(body);
    let value = format!("sha256={}", HEXLOWER.encode(&mac.finalize().into_bytes()));
    HeaderValue::try_from(value).expect("hexadecimal digits are valid in a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_json_of_the_requested_size_with_patchable_digits() {
        let (body, offsets) = message_body("b0abcdef-", 1024);
        assert_eq!(body.len(), 1024);
        let json: serde_json::Value = serde_json::from_str(&body).unwrap();
        let value = &json["entry"][0]["changes"][0]["value"];
        assert_eq!(value["messages"][0]["id"], "wamid.b0abcdef-000000000000000");
        assert!(body[offsets.number..].starts_with("000000000000000\","));
        assert!(body[offsets.sent..].starts_with("00000000000000000000\","));
        for phone in offsets.phones {
            assert!(body[phone..].starts_with("00000000\""));
        }
    }
}
