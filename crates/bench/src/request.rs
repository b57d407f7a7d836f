//! The request of the generator: the body is built once, then patched in place.
//!
//! ```text
//! {"id":"b1f2a3c4-000000000000042","sent_ns":"01763222400123456789","type":…,"items":[…],"pad":"…"}
//!        └ key, 24 bytes           └ 20 digits
//! ```
//!
//! Key and send time have fixed offsets and widths: the generator overwrites the digits and the
//! sink reads them without parsing JSON. The rest looks like a webhook (small objects with words and
//! numbers), because one long string would make a gateway that parses look faster.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{header, http};

use crate::whatsapp;

const KEY_LEN: usize = 24;
/// The smallest body that holds the envelope.
pub(crate) const BODY_BYTES_MIN: usize = 160;

const KEY_OFFSET: usize = r#"{"id":""#.len();
/// The number within the key; the series is before it.
const NUMBER_OFFSET: usize = KEY_OFFSET + SERIES_LEN;
pub(crate) const NUMBER_LEN: usize = KEY_LEN - SERIES_LEN;
/// `b`, seven hex digits, `-`.
pub(crate) const SERIES_LEN: usize = 9;
const SENT_OFFSET: usize = KEY_OFFSET + KEY_LEN + r#"","sent_ns":""#.len();
pub(crate) const SENT_LEN: usize = 20;

/// The common prefix of all keys of one load, so that no two loads share a key.
#[derive(Clone, Debug)]
pub(crate) struct KeySeries(String);

impl KeySeries {
    /// A random series.
    pub(crate) fn random() -> Self {
        Self(format!("b{:07x}-", random_u64() & 0x0fff_ffff))
    }
}

/// A random number. The standard library's hasher is seeded by the system, which saves a dependency
/// for the few numbers needed here.
pub(crate) fn random_u64() -> u64 {
    RandomState::new().hash_one(0_u8)
}

/// The format of the bodies of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BodyShape {
    /// A small envelope with an id, without a signature.
    #[default]
    Plain,
    /// One WhatsApp message, signed as Meta does. The gateway reports its key with `key_prefix`; the
    /// messages are from `people` different phones.
    WhatsApp { key_prefix: &'static str, people: u64 },
}

/// Builds requests that differ in key and send time.
#[derive(Clone, Debug)]
pub(crate) struct RequestTemplate {
    head: http::request::Parts,
    body: Vec<u8>,
    shape: BodyShape,
    offsets: DigitOffsets,
    /// The key that the gateway reports for the request built last.
    key: String,
}

/// Offsets in the body of the digits that differ between requests.
#[derive(Clone, Debug)]
pub(crate) struct DigitOffsets {
    pub(crate) number: usize,
    pub(crate) sent: usize,
    /// The last eight digits of the sender's phone number.
    pub(crate) phones: Vec<usize>,
}

impl RequestTemplate {
    /// A request to `source` whose body has `body_bytes` bytes.
    ///
    /// `body_bytes` must be at least [`BODY_BYTES_MIN`]; a WhatsApp message may be longer.
    pub(crate) fn new(
        addr: SocketAddr,
        source: &str,
        series: &KeySeries,
        shape: BodyShape,
        body_bytes: usize,
    ) -> Result<Self> {
        let (head, ()) = hyper::Request::post(format!("http://{addr}/in/{source}"))
            .header(header::USER_AGENT, "surehook-bench")
            .header(header::CONTENT_TYPE, "application/json")
            .body(())?
            .into_parts();
        let (body, offsets, prefix) = match shape {
            BodyShape::Plain => {
                let offsets =
                    DigitOffsets { number: NUMBER_OFFSET, sent: SENT_OFFSET, phones: Vec::new() };
                (plain_body(series, body_bytes), offsets, "")
            }
            BodyShape::WhatsApp { key_prefix, .. } => {
                let (body, offsets) = whatsapp::message_body(&series.0, body_bytes);
                (body, offsets, key_prefix)
            }
        };
        let key = format!("{prefix}{}{}", series.0, "0".repeat(NUMBER_LEN));
        Ok(Self { head, body: body.into_bytes(), shape, offsets, key })
    }

    /// Builds request number `number` of its series, sent at `sent_ns`.
    pub(crate) fn build(&mut self, number: u64, sent_ns: u64) -> hyper::Request<Full<Bytes>> {
        let number = scatter(number);
        write_digits(&mut self.body[self.offsets.number..][..NUMBER_LEN], number);
        write_digits(&mut self.body[self.offsets.sent..][..SENT_LEN], sent_ns);
        if let BodyShape::WhatsApp { people, .. } = self.shape {
            for phone in &self.offsets.phones {
                write_digits(&mut self.body[*phone..][..whatsapp::PHONE_DIGITS], number % people);
            }
        }
        self.key.truncate(self.key.len() - NUMBER_LEN);
        let digits = &self.body[self.offsets.number..][..NUMBER_LEN];
        self.key.extend(digits.iter().map(|digit| char::from(*digit)));
        let mut head = self.head.clone();
        if let BodyShape::WhatsApp { .. } = self.shape {
            head.headers.insert(whatsapp::SIGNATURE_HEADER, whatsapp::sign(&self.body));
        }
        hyper::Request::from_parts(head, Full::new(Bytes::copy_from_slice(&self.body)))
    }

    /// The key of the request built last.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }
}

/// Spreads the numbers over all keys, like the ids of providers: ascending keys would all fall on one
/// page of the gateway's index and make it look faster. No two numbers collide, because the factor is
/// coprime to ten.
fn scatter(number: u64) -> u64 {
    const FACTOR: u128 = 618_033_988_749_897;
    const KEYS: u128 = 10_u128.pow(NUMBER_LEN as u32);
    // Less than KEYS, so it fits into a u64.
    (u128::from(number) * FACTOR % KEYS) as u64
}

/// When the generator sent `body`; none if the body is not from the generator.
pub(crate) fn sent_ns(body: &[u8]) -> Option<u64> {
    let digits = body.get(SENT_OFFSET..SENT_OFFSET + SENT_LEN)?;
    digits.iter().try_fold(0_u64, |value, digit| match digit {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

fn plain_body(series: &KeySeries, body_bytes: usize) -> String {
    let zeros = "0".repeat(NUMBER_LEN);
    let sent = "0".repeat(SENT_LEN);
    let mut body = format!(
        r#"{{"id":"{}{zeros}","sent_ns":"{sent}","type":"bench.event","items":["#,
        series.0
    );
    let tail_len = r#"],"pad":""}"#.len();
    let mut rng = FixedRng(1);
    let mut comma = "";
    loop {
        let item = format!(
            r#"{comma}{{"name":"{:07x}","amount":{}}}"#,
            rng.next() & 0x0fff_ffff,
            rng.next() % 100_000
        );
        if body.len() + item.len() + tail_len > body_bytes {
            break;
        }
        body.push_str(&item);
        comma = ",";
    }
    let pad = "x".repeat(body_bytes.saturating_sub(body.len() + tail_len));
    body.push_str(&format!(r#"],"pad":"{pad}"}}"#));
    body
}

/// A linear congruential generator with Knuth's MMIX constants: the same numbers in every run.
struct FixedRng(u64);

impl FixedRng {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

fn write_digits(field: &mut [u8], mut value: u64) {
    for digit in field.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(body_bytes: usize) -> RequestTemplate {
        let addr = SocketAddr::from(([127, 0, 0, 1], 80));
        let series = KeySeries("b0abcdef-".to_owned());
        RequestTemplate::new(addr, "in-only", &series, BodyShape::Plain, body_bytes).unwrap()
    }

    #[test]
    fn body_is_json_of_the_requested_size_with_key_and_time() {
        for body_bytes in [BODY_BYTES_MIN, 161, 200, 1024, 65_536] {
            let mut template = template(body_bytes);
            template.build(1, 1_763_222_400_123_456_789);
            assert_eq!(template.body.len(), body_bytes);
            let json: serde_json::Value = serde_json::from_slice(&template.body).unwrap();
            assert_eq!(json["id"], "b0abcdef-618033988749897");
            assert_eq!(json["id"], template.key());
            assert_eq!(sent_ns(&template.body), Some(1_763_222_400_123_456_789));
        }
    }

    #[test]
    fn scattered_keys_are_unique() {
        let keys: std::collections::HashSet<u64> = (0..100_000).map(scatter).collect();
        assert_eq!(keys.len(), 100_000);
    }

    #[test]
    fn foreign_body_has_no_send_time() {
        assert_eq!(sent_ns(b"{}"), None);
        assert_eq!(sent_ns(&[b'x'; 200]), None);
        assert_eq!(sent_ns(&[b'9'; 200]), None, "more than a u64 holds");
    }

    #[test]
    fn patched_body_equals_a_new_body() {
        let mut patched = template(512);
        patched.build(u64::MAX, u64::MAX);
        patched.build(7, 8);
        let mut unpatched = template(512);
        unpatched.build(7, 8);
        assert_eq!(patched.body, unpatched.body);
    }
}
