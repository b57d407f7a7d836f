//! An attacker who has captured signed requests: what deduplication must withstand, for every preset.
//!
//! The attacker sends captured requests again, in any order and before the genuine ones, with any header
//! that the signature does not cover added, changed or removed. What must hold:
//! - No genuine event is answered as a duplicate, unless an event with the same signed content is stored.
//! - The same signed content of the same kind runs once within the window.
//!
//! Exempt are events that no key is known for, and sources without the replay guard. Each case is a
//! number, printed by a failure; `run_case(number)` repeats it.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use surehook_core::{
    event::{ConflictPolicy, KeyWindow},
    source::{Source, SourceSpec},
};
use surehook_types::{ids::SourceId, inflate::DecodedRequest, time::Timestamp};
use surehook_webhooks::{
    key::{KeyDigest, fingerprint},
    provider::{PROVIDERS, ParsedRequest, Provider, SampleEvent},
    request::{IncomingRequest, OutgoingRequest},
    verify::VerifiedRequest,
};

use super::plan::{KeyAssignment, extract_keys};

const NOW: Timestamp = Timestamp::from_millis(1_767_268_800_000);
const ORIGIN: &str = "https://gw.test";
const CASES: u64 = 40;
const GENUINE: usize = 6;
const SENDS: usize = 40;

/// Headers that the attacker sets: ids and kinds of every preset, and what changes how a body is read.
const HEADERS: [&str; 18] = [
    "idempotency-key",
    "webhook-id",
    "svix-id",
    "x-event-id",
    "x-own-id",
    "x-github-delivery",
    "x-github-event",
    "linear-delivery",
    "linear-event",
    "x-shopify-webhook-id",
    "x-shopify-shop-domain",
    "x-shopify-topic",
    "x-chatwoot-delivery",
    "i-twilio-idempotency-token",
    "x-gitlab-event-uuid",
    "x-request-id",
    "content-type",
    "content-encoding",
];

fn window(span: Duration) -> KeyWindow {
    KeyWindow { expires_at: NOW + span, as_of: NOW }
}

struct AttackRng(u64);

impl AttackRng {
    /// The next number of `SplitMix64`.
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % sides as u64).unwrap()
    }
}

/// A request as it is received.
#[derive(Clone)]
struct SentRequest {
    path: String,
    query: Option<String>,
    headers: HeaderMap,
    body: Bytes,
}

impl SentRequest {
    fn incoming(&self) -> IncomingRequest<'_> {
        IncomingRequest {
            source: "in",
            path: &self.path,
            query: self.query.as_deref(),
            headers: &self.headers,
            body: &self.body,
            origin: Some(ORIGIN),
        }
    }
}

fn fill(text: &str, number: usize) -> String {
    text.replace("{{id}}", &format!("x{number:06}"))
        .replace("{{number}}", &(100_000 + number).to_string())
        .replace("{{uuid}}", &format!("00000000-0000-4000-8000-{number:012}"))
        .replace("{{phone}}", &(5_511_987_650_000 + number).to_string())
        .replace("{{now}}", &NOW.as_secs().to_string())
        .replace("{{now_ms}}", &NOW.as_millis().to_string())
        .replace("{{now_iso}}", &NOW.to_string())
}

/// A genuine request; `None` if the preset cannot sign here.
fn genuine(source: &Source, sample: &SampleEvent, number: usize) -> Option<SentRequest> {
    let target = fill(sample.target, number);
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (target.clone(), None),
    };
    let mut headers = HeaderMap::new();
    for (name, value) in sample.headers {
        let value = fill(value, number);
        headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    let body = Bytes::from(fill(sample.body, number));
    let outgoing = OutgoingRequest {
        id: &format!("msg{number:06}"),
        url: &format!("{ORIGIN}/in/in{target}"),
        headers: &headers.clone(),
        body: &body,
    };
    let signature = source.verifier.sign(&outgoing, NOW).ok()?;
    for (name, value) in signature.headers {
        headers.insert(name, value.parse().unwrap());
    }
    let path = format!("{path}{}", signature.path.split('?').next().unwrap_or_default());
    let query = signature.path.split_once('?').map(|(_, query)| query.to_owned()).or(query);
    let sent = SentRequest { path, query, headers, body };
    source.verifier.verify(&sent.incoming(), NOW).ok().map(|_| sent)
}

/// A captured request with other unsigned headers.
fn tamper(captured: &SentRequest, others: &[SentRequest], rng: &mut AttackRng) -> SentRequest {
    let mut changed = captured.clone();
    for _ in 0..=rng.roll(3) {
        let name = HeaderName::from_static(HEADERS[rng.roll(HEADERS.len())]);
        let other = &others[rng.roll(others.len())];
        let value = match rng.roll(6) {
            0 => {
                changed.headers.remove(&name);
                continue;
            }
            1 => HeaderValue::from_static("application/x-www-form-urlencoded"),
            2 => HeaderValue::from_static("gzip"),
            3 => HeaderValue::try_from(format!("x{:06}", rng.roll(GENUINE))).unwrap(),
            4 => match other.headers.get(&name) {
                Some(value) => value.clone(),
                None => continue,
            },
            _ => HeaderValue::try_from(format!("attack-{}", rng.roll(1000))).unwrap(),
        };
        match rng.roll(8) {
            0 => drop(changed.headers.append(name, value)),
            _ => drop(changed.headers.insert(name, value)),
        }
    }
    changed
}

/// A stored event: its signed content, position in the request and kind.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct SignedContent {
    fingerprint: [u8; 32],
    position: usize,
    kind: String,
}

/// The rules of `IngestStore::admit` about keys, without time.
#[derive(Default)]
struct KeyMemory {
    keys: HashMap<KeyDigest, (usize, [u8; 32])>,
    events: Vec<SignedContent>,
}

impl KeyMemory {
    /// `Err` is the original of a duplicate.
    fn admit(
        &mut self,
        source: SourceId,
        key: &KeyAssignment,
        body: [u8; 32],
        content: &SignedContent,
    ) -> Result<(), usize> {
        let short = |body: [u8; 32]| std::array::from_fn(|index| body[index]);
        let digest = key.claim.as_ref().map(|claim| claim.digest(source));
        let mut holder = None;
        if let (Some(claim), Some(digest)) = (&key.claim, digest)
            && let Some(&(event, other)) = self.keys.get(&digest)
        {
            let own = self.keys.get(&digest.with_body(short(body)));
            if other == body || claim.on_conflict != Some(ConflictPolicy::Accept) {
                return Err(event);
            }
            if let Some((event, _)) = own {
                return Err(*event);
            }
            holder = Some((event, other));
        }
        if let Some((event, _)) = key.signed_bytes.and_then(|claim| self.keys.get(&claim.digest)) {
            return Err(*event);
        }
        let number = self.events.len();
        self.events.push(content.clone());
        if let Some(digest) = digest {
            if let Some(holder) = holder {
                self.keys.insert(digest.with_body(short(holder.1)), holder);
            }
            self.keys.insert(digest, (number, body));
        }
        if let Some(claim) = key.signed_bytes {
            self.keys.insert(claim.digest, (number, body));
        }
        Ok(())
    }
}

/// A source under attack, and how often each signed content ran.
struct Attack<'s> {
    source: &'s Source,
    memory: KeyMemory,
    runs: HashMap<SignedContent, usize>,
    name: String,
}

impl Attack<'_> {
    fn receive(&mut self, sent: &SentRequest, is_genuine: bool) {
        let incoming = sent.incoming();
        let Ok(verified) = self.source.verifier.verify(&incoming, NOW) else {
            assert!(!is_genuine, "{}: a genuine request is refused", self.name);
            return;
        };
        let readable = DecodedRequest::new(&sent.headers, &sent.body);
        let (headers, body) = readable.request(&sent.headers, &sent.body);
        let read = IncomingRequest { headers, body, ..incoming };
        let parts = match self.source.parse_request(&read, verified) {
            ParsedRequest::Handshake(_) => return,
            ParsedRequest::Events(parts) => parts,
        };
        let Ok(keys) = extract_keys(self.source, &incoming, &readable, &parts, &window) else {
            assert!(!is_genuine, "{}: a genuine request has no key", self.name);
            return;
        };
        let signed = self.source.verifier.signed_fingerprint(&incoming);
        for (position, (part, key)) in parts.iter().zip(keys).enumerate() {
            let kind = part.kind.as_ref().map_or("", |kind| kind.as_str()).to_owned();
            let content = SignedContent { fingerprint: signed, position, kind };
            let body = fingerprint(part.body.as_deref().unwrap_or(&sent.body));
            let has_key = key.claim.is_some() || key.signed_bytes.is_some();
            match self.memory.admit(self.source.id, &key, body, &content) {
                Ok(()) if has_key && self.source.replay_guard => {
                    *self.runs.entry(content).or_default() += 1;
                }
                Ok(()) => {}
                Err(original) => {
                    let original = &self.memory.events[original];
                    let is_same = (original.fingerprint, original.position)
                        == (content.fingerprint, content.position);
                    assert!(
                        !is_genuine || is_same,
                        "{}: a genuine event is a duplicate of other signed content",
                        self.name
                    );
                }
            }
        }
    }
}

fn build_source(settings: &str) -> Source {
    let spec: SourceSpec = serde_json::from_str(settings).unwrap();
    spec.build(SourceId::new(NOW, 1), &|_| None).unwrap()
}

/// The sources of a preset: as it is, and with keys in headers.
fn sources(preset: &Provider) -> Vec<Source> {
    let secret = match preset.name {
        "standard-webhooks" | "gitlab" => format!("whsec_{}", "A".repeat(32)),
        // The public key of the private key that the test does not have.
        "discord" => "0".repeat(64),
        _ => "0123456789abcdef".to_owned(),
    };
    let verify = match preset.name {
        "generic" => r#","verify":{"hmac":{"header":"x-signature"}}"#,
        _ => "",
    };
    let variants =
        ["", r#","keys":["header:x-own-id","pointer:/id"]"#, r#","keys":["header:x-own-id"]"#];
    let build = |more: &&str| {
        build_source(&format!(
            r#"{{"name":"in","provider":"{}","secrets":["{secret}"],"public_url":"{ORIGIN}"{verify}{more}}}"#,
            preset.name
        ))
    };
    variants.iter().map(build).collect()
}

fn run_case(source: &Source, samples: &[SampleEvent], number: u64) -> bool {
    let mut rng = AttackRng(number);
    let requests: Option<Vec<SentRequest>> = (0..GENUINE)
        .map(|index| genuine(source, &samples[rng.roll(samples.len())], index))
        .collect();
    let Some(requests) = requests else { return false };
    let name = format!("{} case {number}", source.provider.name);
    let mut attack = Attack { source, memory: KeyMemory::default(), runs: HashMap::new(), name };
    let mut waiting: Vec<usize> = (0..GENUINE).collect();
    for _ in 0..SENDS {
        // The attacker may hold a genuine request back, and send its own version first.
        if rng.roll(4) == 0 && !waiting.is_empty() {
            let next = waiting.swap_remove(rng.roll(waiting.len()));
            attack.receive(&requests[next], true);
        } else {
            let captured = &requests[rng.roll(GENUINE)];
            attack.receive(&tamper(captured, &requests, &mut rng), false);
        }
    }
    for next in waiting {
        attack.receive(&requests[next], true);
    }
    for (content, runs) in &attack.runs {
        assert_eq!(*runs, 1, "{}: signed content ran {runs} times: {content:?}", attack.name);
    }
    true
}

/// Presets whose requests cannot be signed here: their keys are tested with their verification.
const UNSIGNABLE: [&str; 2] = ["discord", "paypal"];

#[test]
fn captured_signed_requests_neither_run_twice_nor_hide_genuine_events() {
    let mut attacked = Vec::new();
    for preset in PROVIDERS {
        for source in sources(preset) {
            // Without a signature, an attacker who has seen a request can send anything.
            if !source.verifier.signs_content() {
                continue;
            }
            let ran = (0..CASES).filter(|case| run_case(&source, preset.samples, *case)).count();
            assert_eq!(ran > 0, !UNSIGNABLE.contains(&preset.name), "{}", preset.name);
            attacked.push(preset.name);
        }
    }
    attacked.dedup();
    assert!(attacked.len() >= 18, "{attacked:?}");
}

#[test]
fn request_that_is_not_signed_is_verified_by_nothing() {
    let source = build_source(r#"{"name":"in","verify":"none"}"#);
    assert!(!source.verifier.signs_content());
    let verified = VerifiedRequest { by: "none", secret_index: 0 };
    let sent = SentRequest {
        path: String::new(),
        query: None,
        headers: HeaderMap::new(),
        body: Bytes::from_static(br#"{"id":1}"#),
    };
    let parsed = source.parse_request(&sent.incoming(), verified);
    let ParsedRequest::Events(parts) = parsed else { panic!("not a handshake") };
    let readable = DecodedRequest::new(&sent.headers, &sent.body);
    let keys = extract_keys(&source, &sent.incoming(), &readable, &parts, &window).unwrap();
    assert!(keys[0].signed_bytes.is_none(), "nothing more is claimed than a key");
}
