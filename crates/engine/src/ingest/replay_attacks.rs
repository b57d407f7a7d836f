//! An attacker who has captured signed requests: what deduplication must withstand, for every preset.
//!
//! The attacker sends captured requests again, in any order and before the genuine ones, with any header
//! that the signature does not cover added, changed or removed. Where only a checksum of the body is signed,
//! the attacker also makes other bodies with the same checksum. What must hold:
//! - No genuine event is answered as a duplicate, unless an event with the same signed content is stored.
//! - The same signed content of the same kind runs once within the window.
//! - By the provider's own key, no two bodies run under one signed checksum.
//!
//! Exempt are events that no key is known for, and sources without the replay guard.
//!
//! Keys are claimed in a model of the store, which allows thousands of cases; in some of them a real
//! store must decide as the model does. Each case is a number, printed by a failure:
//! `SUREHOOK_TEST_SEED=<number>` runs only that one again, and `PROPTEST_CASES` sets their number.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    ops::Range,
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use http::{HeaderMap, HeaderName, HeaderValue};
use ring::{
    hmac,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};
use surehook_core::{
    decision::IntakeRecord,
    event::{ConflictPolicy, KeyWindow, NewEvent, Payload, RequestHead},
    source::{Source, SourceSpec},
    store::{AdmitResult, ConfigChange, ConfigVersion, Store},
};
use surehook_store::{SqliteOptions, SqliteStore};
use surehook_types::{
    ids::{EventId, SourceId},
    inflate::DecodedRequest,
    rng::new_id,
    secret::Secret,
    time::Timestamp,
};
use surehook_webhooks::{
    attribute::Attributes,
    key::{KeyDigest, fingerprint},
    provider::{self, EventPart, PROVIDERS, ParsedRequest, Provider, SampleEvent},
    request::{IncomingRequest, OutgoingRequest},
    verify::{CertificateChain, RequestSignature, VerifiedRequest, Verifier, VerifyError},
};

use super::plan::{KeyAssignment, extract_keys, refuses_other_body};
use crate::{
    certificates::tests::{CHAIN, paypal_headers, trusting_root},
    system::SystemRng,
    tls::TrustStore,
};

/// Within the validity of the test certificates.
const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const ORIGIN: &str = "https://gw.test";
/// Cases of each source, unless `PROPTEST_CASES` is set.
const CASES: u64 = 40;
/// Cases of each source in which a store must agree with the model.
const STORE_CASES: u64 = 3;
/// Genuine requests of a case, which the attacker has captured.
const GENUINE: usize = 6;
/// Requests sent in a case, genuine or tampered.
const SENDS: usize = 40;

/// Headers that the attacker sets: ids and kinds of every preset, and what changes how a body is read.
const HEADERS: [&str; 26] = [
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
    "paypal-auth-algo",
    "paypal-auth-version",
    "paypal-cert-url",
    "request-id",
    "sentry-hook-resource",
    "twitch-eventsub-message-type",
    "x-hook-secret",
    "hmacsignature",
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

/// A secret that the requests of a preset are verified with.
fn secret(preset: &Provider) -> String {
    match preset.name {
        "standard-webhooks" | "gitlab" => format!("whsec_{}", "A".repeat(32)),
        "discord" => HEXLOWER.encode(discord_key().public_key().as_ref()),
        "sendgrid" => sendgrid_key(),
        _ => "0123456789abcdef".to_owned(),
    }
}

const DISCORD_SEED: [u8; 32] = [7; 32];

fn discord_key() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&DISCORD_SEED).unwrap()
}

/// Has the private key, which a source has not.
static DISCORD: LazyLock<Verifier> = LazyLock::new(|| {
    let pair = [&DISCORD_SEED[..], discord_key().public_key().as_ref()].concat();
    let pair = Secret::new(HEXLOWER.encode(&pair).as_str());
    provider::find("discord").unwrap().verifier(vec![pair]).unwrap()
});

/// As `SendGrid` signs, with a key that a source has only the public half of.
static SENDGRID: LazyLock<EcdsaKeyPair> = LazyLock::new(|| {
    let (algorithm, rng) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &rng).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &rng).unwrap()
});

/// The public key as `SendGrid` shows it.
fn sendgrid_key() -> String {
    let prefix = HEXLOWER.decode(b"3059301306072a8648ce3d020106082a8648ce3d030107034200").unwrap();
    BASE64.encode(&[&prefix, SENDGRID.public_key().as_ref()].concat())
}

fn sign_as_sendgrid(body: &[u8]) -> RequestSignature {
    let time = NOW.as_secs().to_string();
    let text = [time.as_bytes(), body].concat();
    let signature = SENDGRID.sign(&SystemRandom::new(), &text).unwrap();
    let header = |name| HeaderName::from_static(name);
    RequestSignature::headers(vec![
        (header("x-twilio-email-event-webhook-signature"), BASE64.encode(signature.as_ref())),
        (header("x-twilio-email-event-webhook-timestamp"), time),
    ])
}

/// Adds Adyen's signature of some fields to the only item of a body.
fn sign_adyen_item(body: &[u8], key: &str) -> Bytes {
    let mut body: serde_json::Value = serde_json::from_slice(body).unwrap();
    let item = &mut body["notificationItems"][0]["NotificationRequestItem"];
    let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let amount = &item["amount"];
    let fields = [
        text("pspReference"),
        text("originalReference"),
        text("merchantAccountCode"),
        text("merchantReference"),
        amount["value"].to_string(),
        amount["currency"].as_str().unwrap().to_owned(),
        text("eventCode"),
        text("success"),
    ];
    let key = hmac::Key::new(hmac::HMAC_SHA256, &HEXLOWER.decode(key.as_bytes()).unwrap());
    let signature = hmac::sign(&key, fields.join(":").as_bytes());
    item["additionalData"]["hmacSignature"] = BASE64.encode(signature.as_ref()).into();
    serde_json::to_vec(&body).unwrap().into()
}

static TRUST: LazyLock<TrustStore> = LazyLock::new(trusting_root);

/// Verifies a request, with a certificate if the provider signs with one.
fn verify(source: &Source, request: &IncomingRequest<'_>) -> Result<VerifiedRequest, VerifyError> {
    match source.verifier.certificate_url(request)? {
        None => source.verifier.verify(request, NOW),
        Some(_) => {
            let certificate = CertificateChain { pem: CHAIN, roots: TRUST.roots() };
            source.verifier.verify_with_certificate(request, &certificate, NOW)
        }
    }
}

/// A genuine request.
fn genuine(source: &Source, sample: &SampleEvent, number: usize) -> SentRequest {
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
    let id = format!("msg{number:06}");
    let outgoing = OutgoingRequest {
        id: &id,
        url: &format!("{ORIGIN}/in/in{target}"),
        headers: &headers.clone(),
        body: &body,
    };
    let signature = match source.provider.name {
        "paypal" => {
            headers.extend(paypal_headers(&id, NOW, &secret(source.provider), &body));
            return SentRequest { path, query, headers, body };
        }
        "sendgrid" => Ok(sign_as_sendgrid(&body)),
        // Standard webhooks are signed in the body, the others in a header.
        "adyen" if sample.body.contains("notificationItems") => {
            let body = sign_adyen_item(&body, &secret(source.provider));
            return SentRequest { path, query, headers, body };
        }
        "discord" => DISCORD.sign(&outgoing, NOW),
        _ => source.verifier.sign(&outgoing, NOW),
    };
    let signature = signature.unwrap();
    for (name, value) in signature.headers {
        headers.insert(name, value.parse().unwrap());
    }
    let (path, query) = (format!("{path}{}", signature.path), signature.query.or(query));
    SentRequest { path, query, headers, body }
}

/// Extends a JSON object so that it has this CRC-32.
///
/// The case of each of 32 letters flips a fixed set of bits of the checksum, so the letters to flip are the
/// solution of 32 linear equations.
fn forge_checksum(object: &[u8], checksum: u32) -> Bytes {
    const LETTERS: usize = 32;
    const CASE: u8 = 0x20;
    let mut forged = object.strip_suffix(b"}").unwrap().to_vec();
    forged.extend(br#","pad":""#);
    let start = forged.len();
    forged.extend([b'a'; LETTERS]);
    forged.extend(br#""}"#);
    let initial = crc32fast::hash(&forged);
    // For each leading bit: a checksum difference, and the letters that cause it.
    let mut basis = [(0_u32, 0_u32); LETTERS];
    for letter in 0..LETTERS {
        forged[start + letter] ^= CASE;
        let (mut difference, mut letters) = (crc32fast::hash(&forged) ^ initial, 1 << letter);
        forged[start + letter] ^= CASE;
        while difference != 0 {
            let vector = &mut basis[difference.leading_zeros() as usize];
            if vector.0 == 0 {
                *vector = (difference, letters);
                break;
            }
            difference ^= vector.0;
            letters ^= vector.1;
        }
    }
    let (mut difference, mut letters) = (initial ^ checksum, 0);
    while difference != 0 {
        let vector = basis[difference.leading_zeros() as usize];
        assert_ne!(vector.0, 0, "the letters do not reach every checksum");
        difference ^= vector.0;
        letters ^= vector.1;
    }
    for letter in 0..LETTERS {
        if letters >> letter & 1 == 1 {
            forged[start + letter] ^= CASE;
        }
    }
    assert_eq!(crc32fast::hash(&forged), checksum);
    forged.into()
}

/// A captured request with other unsigned headers, and with another body where that is possible.
fn tamper(
    source: &Source,
    captured: &SentRequest,
    others: &[SentRequest],
    rng: &mut AttackRng,
) -> SentRequest {
    let mut changed = captured.clone();
    if source.verifier.signs_checksum() && rng.roll(2) == 0 {
        let other = &others[rng.roll(others.len())];
        changed.body = forge_checksum(&other.body, crc32fast::hash(&captured.body));
    }
    // Adyen signs some fields of an item only.
    if source.provider.name == "adyen" && rng.roll(2) == 0 {
        let text = String::from_utf8(changed.body.to_vec()).unwrap();
        let reason = format!(r#""reason":"attack-{}""#, rng.roll(1000));
        changed.body = text.replacen(r#""reason":"#, &format!("{reason},\"old\":"), 1).into();
    }
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
    /// That of the body.
    checksum: u32,
    position: usize,
    kind: String,
}

/// The result of admitting an event. The numbers are those of earlier events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Accepted,
    Duplicate(usize),
    /// Refused: the key belongs to another body.
    OtherBody(usize),
}

/// The rules of `IngestStore::admit` about keys, without time.
#[derive(Default)]
struct KeyMemory {
    keys: HashMap<KeyDigest, (usize, [u8; 32])>,
    events: Vec<SignedContent>,
}

impl KeyMemory {
    fn admit(
        &mut self,
        source: SourceId,
        key: &KeyAssignment,
        body: [u8; 32],
        refuses_other_body: bool,
        content: &SignedContent,
    ) -> Admission {
        let short = |body: [u8; 32]| std::array::from_fn(|index| body[index]);
        let digest = key.claim.as_ref().map(|claim| claim.digest(source));
        let mut holder = None;
        if let (Some(claim), Some(digest)) = (&key.claim, digest)
            && let Some(&(event, other)) = self.keys.get(&digest)
        {
            if refuses_other_body && other != body {
                return Admission::OtherBody(event);
            }
            let same_body = self.keys.get(&digest.with_body(short(body)));
            if other == body || claim.on_conflict != Some(ConflictPolicy::Accept) {
                return Admission::Duplicate(event);
            }
            if let Some((event, _)) = same_body {
                return Admission::Duplicate(*event);
            }
            holder = Some((event, other));
        }
        if let Some((event, _)) = key.signed_bytes.and_then(|claim| self.keys.get(&claim.digest)) {
            return Admission::Duplicate(*event);
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
        Admission::Accepted
    }
}

/// A real store, for the events that are admitted to a [`KeyMemory`].
struct AttackedStore<'s> {
    store: &'s dyn Store,
    runtime: &'s tokio::runtime::Handle,
    /// Those of [`KeyMemory::events`].
    events: Vec<EventId>,
}

impl AttackedStore<'_> {
    /// What becomes of an event, as `Engine::store_events` finds out.
    fn admit(
        &mut self,
        source: &Source,
        part: &EventPart,
        key: KeyAssignment,
        body: &Bytes,
    ) -> Admission {
        let body = part.body.as_ref().unwrap_or(body).clone();
        let payload = Payload {
            head: Arc::new(RequestHead::default()),
            fingerprint: fingerprint(&body),
            body,
        };
        let event = NewEvent {
            id: new_id(&SystemRng, NOW),
            request_id: new_id(&SystemRng, NOW),
            source: source.id,
            received_at: NOW,
            key: key.claim,
            signed_bytes: key.signed_bytes,
            earlier_key: key.earlier_key,
            compared_fingerprint: key.compared_fingerprint,
            refuses_other_body: refuses_other_body(source, part),
            kind: part.kind.clone(),
            attributes: Attributes::default(),
            payload,
            deliveries: Vec::new(),
            revive_dead: false,
            intake: IntakeRecord::default(),
            from_duplicate: None,
            releases: None,
            status_update: None,
            bodies: Vec::new(),
        };
        let compared = event.compared_fingerprint();
        let recent = event
            .key
            .as_ref()
            .and_then(|claim| self.store.find_committed(source.id, claim, compared, NOW));
        if let Some(original) = recent {
            return Admission::Duplicate(self.number(original));
        }
        let id = event.id;
        let admitted = self.runtime.block_on(self.store.admit([event].into())).unwrap();
        match &admitted[..] {
            [AdmitResult::Accepted { .. }] => {
                self.events.push(id);
                Admission::Accepted
            }
            [AdmitResult::Duplicate(duplicate)] => {
                Admission::Duplicate(self.number(duplicate.original))
            }
            [AdmitResult::OtherBody(original)] => Admission::OtherBody(self.number(*original)),
            other => panic!("{other:?}"),
        }
    }

    fn number(&self, event: EventId) -> usize {
        self.events.iter().position(|known| *known == event).unwrap()
    }
}

/// A source under attack, and how often each signed content ran.
struct Attack<'s> {
    source: &'s Source,
    memory: KeyMemory,
    store: Option<AttackedStore<'s>>,
    runs: HashMap<SignedContent, usize>,
    name: String,
}

impl Attack<'_> {
    fn receive(&mut self, sent: &SentRequest, is_genuine: bool) {
        let incoming = sent.incoming();
        let Ok(verified) = verify(self.source, &incoming) else {
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
            let checksum = crc32fast::hash(&sent.body);
            let content = SignedContent { fingerprint: signed, checksum, position, kind };
            let body = fingerprint(part.body.as_deref().unwrap_or(&sent.body));
            let body = key.compared_fingerprint.unwrap_or(body);
            let has_key = key.claim.is_some() || key.signed_bytes.is_some();
            let refuses_other_body = refuses_other_body(self.source, part);
            let admission =
                self.memory.admit(self.source.id, &key, body, refuses_other_body, &content);
            if let Some(store) = &mut self.store {
                let real = store.admit(self.source, part, key, &sent.body);
                assert_eq!(real, admission, "{}: the store and its model", self.name);
            }
            match admission {
                Admission::Accepted if has_key && self.source.replay_guard => {
                    *self.runs.entry(content.clone()).or_default() += 1;
                    let same_checksum = |other: &&SignedContent| other.checksum == content.checksum;
                    let bodies = self.memory.events.iter().filter(same_checksum).count();
                    assert!(
                        !refuses_other_body || bodies == 1,
                        "{}: {bodies} bodies ran under one signed checksum",
                        self.name
                    );
                }
                Admission::Accepted => {}
                Admission::Duplicate(original) => {
                    let original = &self.memory.events[original];
                    let is_same = (original.fingerprint, original.position)
                        == (content.fingerprint, content.position);
                    assert!(
                        !is_genuine || is_same,
                        "{}: a genuine event is a duplicate of other signed content",
                        self.name
                    );
                }
                Admission::OtherBody(original) => assert_eq!(
                    self.memory.events[original].checksum, content.checksum,
                    "{}: an event is refused for one that its signature does not fit",
                    self.name
                ),
            }
        }
    }
}

fn build_source(id: SourceId, settings: &str) -> Source {
    let spec: SourceSpec = serde_json::from_str(settings).unwrap();
    spec.build(id, &|_| None).unwrap()
}

/// The sources of a preset that can be attacked: as it is, and with keys in headers.
fn sources(id: SourceId, preset: &Provider) -> Vec<Source> {
    let secret = secret(preset);
    let verify = match preset.name {
        "generic" => r#","verify":{"hmac":{"header":"x-signature"}}"#,
        _ => "",
    };
    let variants =
        ["", r#","keys":["header:x-own-id","pointer:/id"]"#, r#","keys":["header:x-own-id"]"#];
    let build = |more: &&str| {
        let settings = format!(
            r#"{{"name":"in","provider":"{}","secrets":["{secret}"],"public_url":"{ORIGIN}"{verify}{more}}}"#,
            preset.name
        );
        build_source(id, &settings)
    };
    // Without a signature, an attacker who has seen a request can send anything.
    variants.iter().map(build).filter(|source| source.verifier.signs_content()).collect()
}

/// The numbers of the cases to run.
fn case_numbers(count: u64) -> Range<u64> {
    let number = |name: &str| std::env::var_os(name)?.to_str()?.parse::<u64>().ok();
    if let Some(seed) = number("SUREHOOK_TEST_SEED") {
        return seed..seed + 1;
    }
    let first = RandomState::new().hash_one(0_u8) >> 32;
    first..first + number("PROPTEST_CASES").unwrap_or(count)
}

fn run_case(
    source: &Source,
    samples: &[SampleEvent],
    number: u64,
    store: Option<AttackedStore<'_>>,
) {
    let mut rng = AttackRng(number);
    let requests: Vec<SentRequest> = (0..GENUINE)
        .map(|index| genuine(source, &samples[rng.roll(samples.len())], index))
        .collect();
    let rules = match source.keys.are_defaults() {
        true => "default keys".to_owned(),
        false => format!("{:?}", source.keys.rules()),
    };
    let name = format!("{}, {rules}, case {number}", source.provider.name);
    let (memory, runs) = (KeyMemory::default(), HashMap::new());
    let mut attack = Attack { source, memory, store, runs, name };
    let mut waiting: Vec<usize> = (0..GENUINE).collect();
    for _ in 0..SENDS {
        // The attacker may hold a genuine request back, and send its own version first.
        if rng.roll(4) == 0 && !waiting.is_empty() {
            let next = waiting.swap_remove(rng.roll(waiting.len()));
            attack.receive(&requests[next], true);
        } else {
            let captured = &requests[rng.roll(GENUINE)];
            attack.receive(&tamper(source, captured, &requests, &mut rng), false);
        }
    }
    for next in waiting {
        attack.receive(&requests[next], true);
    }
    for (content, runs) in &attack.runs {
        assert_eq!(*runs, 1, "{}: signed content ran {runs} times: {content:?}", attack.name);
    }
}

#[test]
fn captured_signed_requests_neither_run_twice_nor_hide_genuine_events() {
    let mut attacked = Vec::new();
    for preset in PROVIDERS {
        for source in sources(SourceId::new(NOW, 1), preset) {
            case_numbers(CASES).for_each(|case| run_case(&source, preset.samples, case, None));
            attacked.push(preset.name);
        }
    }
    attacked.dedup();
    assert!(attacked.len() >= 27, "{attacked:?}");
    assert!(
        ["adyen", "discord", "paypal", "sendgrid"].iter().all(|name| attacked.contains(name)),
        "{attacked:?}"
    );
}

#[test]
fn store_decides_about_captured_requests_as_the_model_of_the_attack() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&SqliteOptions::new(folder.path()), NOW).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // Each case has a source of its own, so that all of them run beside each other in one store.
    let mut cases = Vec::new();
    let mut stored = Vec::new();
    for preset in PROVIDERS {
        for case in case_numbers(STORE_CASES) {
            for variant in 0..sources(SourceId::new(NOW, 0), preset).len() {
                let id = SourceId::new(NOW, (cases.len() as u128 + 1) << 64);
                let source = sources(id, preset).swap_remove(variant);
                let spec = format!(r#"{{"name":"case-{}","verify":"none"}}"#, cases.len());
                stored.push(ConfigChange::PutSource(id, serde_json::from_str(&spec).unwrap()));
                cases.push((source, preset.samples, case));
            }
        }
    }
    runtime.block_on(store.change(stored, ConfigVersion::default(), NOW)).unwrap();

    std::thread::scope(|scope| {
        for (source, samples, case) in &cases {
            let events = Vec::new();
            let store = AttackedStore { store: &*store, runtime: runtime.handle(), events };
            scope.spawn(move || run_case(source, samples, *case, Some(store)));
        }
    });
    assert!(cases.len() >= 18, "{} cases", cases.len());
}

#[test]
fn request_that_is_not_signed_is_verified_by_nothing() {
    let source = build_source(SourceId::new(NOW, 1), r#"{"name":"in","verify":"none"}"#);
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
