//! Fuzzes one verifier, and the parser of the requests it accepts.
//!
//! Findings are: a panic; an accepted request that was not made with the secret; and an event that
//! parses differently when its split body is sent alone.
//!
//! `SUREHOOK_FUZZ_CASE` names the verifier; `list` prints all names. `SUREHOOK_FUZZ_SEEDS` is a folder
//! for the valid seed requests. scripts/fuzz-verifiers does all that.

#![no_main]

mod case;
mod wire;

use std::{fs, io, path::Path, process::exit, sync::OnceLock};

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use surehook_webhooks::{provider::{EventKey, ParsedRequest}, request::IncomingRequest, verify::{CertificateChain, VerifiedRequest}};

use crate::{case::{Case, NOW, VERIFY_TOKEN, incoming, signed_body}, wire::Wire};

static CASE: OnceLock<Case> = OnceLock::new();

fuzz_target!(
    init: {
        CASE.get_or_init(start);
    },
    |data: &[u8]| {
        let case = CASE.get_or_init(start);
        let wire = Wire::read(data);
        let request = incoming(&wire);
        if let Ok(verified) = case.source.verifier.verify(&request, NOW) {
            assert!(has_proof_of_secret(case, &wire), "accepted without the secret");
            let _ = case.source.provider.success_reply(&request);
            parse_events(case, &request, verified);
        }
        verify_with_certificates(case, &request);
        // Parses unverified requests too, to reach the parser more often.
        parse_events(case, &request, VerifiedRequest { by: "unverified", secret_index: 0 });
        answer_handshake(case, &request);
    }
);

fn start() -> Case {
    let name = std::env::var("SUREHOOK_FUZZ_CASE").unwrap_or_default();
    let names = case::names();
    if !names.contains(&name.as_str()) && name != case::BROKEN {
        println!("{}", names.join("\n"));
        exit(i32::from(name != "list"));
    }
    let case = Case::named(&name);
    for seed in case.seeds.iter().filter(|seed| seed.is_ours) {
        let verified = case.source.verifier.verify(&incoming(&seed.wire), NOW);
        assert!(verified.is_ok(), "{name} refuses what it signed: {verified:?} {:?}", seed.wire);
    }
    if let Ok(folder) = std::env::var("SUREHOOK_FUZZ_SEEDS") {
        write_seeds(Path::new(&folder), &case).expect("a folder to write to");
    }
    case
}

/// Writes the seeds. A corpus from other seeds is deleted: it may contain valid signatures that this
/// run does not know.
fn write_seeds(folder: &Path, case: &Case) -> io::Result<()> {
    let seeds: Vec<_> = case.seeds.iter().map(|seed| seed.wire.write()).collect();
    let path = |number: usize| folder.join(format!("seed-{number}"));
    let is_same =
        |(number, seed): (usize, &Vec<u8>)| fs::read(path(number)).is_ok_and(|it| it == *seed);
    if !seeds.iter().enumerate().all(is_same) || path(seeds.len()).exists() {
        fs::remove_dir_all(folder)?;
        fs::create_dir_all(folder)?;
    }
    seeds.iter().enumerate().try_for_each(|(number, seed)| fs::write(path(number), seed))
}

/// Whether the request contains a proof that requires the secret, for this body.
fn has_proof_of_secret(case: &Case, wire: &Wire) -> bool {
    let mut text = wire.write();
    // Values in the body may be spelled with escapes.
    if let Ok(body) = serde_json::from_slice::<Value>(&wire.body) {
        text.extend_from_slice(body.to_string().as_bytes());
    }
    text.make_ascii_lowercase();
    let body = signed_body(&case.name, wire);
    case.seeds.iter().any(|seed| {
        let has_proof = seed.proofs.iter().any(|proof| contains(&text, proof));
        has_proof && (!case.covers_body || signed_body(&case.name, &seed.wire) == body)
    })
}

fn contains(data: &[u8], part: &[u8]) -> bool {
    data.windows(part.len()).any(|window| window == part)
}

/// Verifies with a certificate whose private key was deleted, so an accepted request is a finding. The
/// body as a certificate must only not panic.
fn verify_with_certificates(case: &Case, request: &IncomingRequest<'_>) {
    let verifier = &case.source.verifier;
    let Ok(Some(url)) = verifier.certificate_url(request) else { return };
    let host = url.host_str().unwrap_or_default();
    assert!(host == "paypal.com" || host.ends_with(".paypal.com"), "would fetch {url}");
    for pem in [include_bytes!("certificate.pem").as_slice(), request.body] {
        let taken =
            verifier.verify_with_certificate(request, &CertificateChain { pem, roots: &[] }, NOW);
        assert!(taken.is_err() || pem == request.body, "accepted without the key");
    }
}

/// Parses the events. Each split body must parse as the same event.
fn parse_events(case: &Case, request: &IncomingRequest<'_>, verified: VerifiedRequest) {
    let ParsedRequest::Events(parts) = case.source.parse_request(request, verified) else { return };
    for part in parts {
        if part.key == EventKey::Rules {
            let body = part.body.as_deref().unwrap_or(request.body);
            let _ = case.source.keys.extract(request.headers, body);
        }
        let Some(body) = &part.body else { continue };
        let alone = IncomingRequest { body, ..*request };
        let ParsedRequest::Events(again) = case.source.parse_request(&alone, verified) else {
            panic!("an event became a handshake");
        };
        assert_eq!(again.len(), 1, "an event became several: {}", body.escape_ascii());
        assert_eq!(
            (&again[0].key, &again[0].kind, &again[0].order),
            (&part.key, &part.kind, &part.order),
            "an event changed: {}",
            body.escape_ascii()
        );
    }
}

/// Sends the handshake of a provider. Only the right token may be answered.
fn answer_handshake(case: &Case, request: &IncomingRequest<'_>) {
    let token = case.source.verify_token.as_ref();
    if let Some(Ok(_)) = case.source.provider.answer_handshake(request.query, token) {
        let query = request.query.unwrap_or_default();
        assert!(
            percent_decode(query).contains(VERIFY_TOKEN),
            "handshake answered without the token"
        );
    }
}

fn percent_decode(query: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = query.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| str::from_utf8(hex).ok());
        match hex.filter(|_| *first == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
