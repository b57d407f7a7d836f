//! CLI: `sign`, `verify` and `send-test` with provider presets.

use std::{fs, path::Path};

use serde_json::Value;
use surehook_webhooks::provider::{PROVIDERS, Provider};

use crate::support::{
    gateway::{Gateway, route_settings},
    process::{CommandOutput, run_surehook},
    sink::Sink,
};

const SECRET: &str = "whsec_a_secret_for_tests";
const BODY: &str = r#"{"id": "evt_1", "type": "invoice.paid", "data": {"object": {"id": "in_1"}}}"#;

async fn run(folder: &Path, args: &[&str]) -> CommandOutput {
    run_surehook(folder, args, &[]).await
}

/// The header that `sign` prints for a body.
async fn signed(folder: &Path, file: &str) -> String {
    let output = run(folder, &["sign", "stripe", "--secret", SECRET, file]).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    output.stdout.trim_end().to_owned()
}

#[tokio::test]
async fn verify_accepts_output_of_sign_and_shows_events() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("body.json"), BODY).unwrap();
    let header = signed(folder, "body.json").await;
    assert!(header.starts_with("stripe-signature: t="), "{header}");

    let args = ["verify", "stripe", "--secret", "another", "--secret", SECRET, "-H", &header];
    let text = run(folder, &[&args[..], &["body.json"]].concat()).await;
    let json = run(folder, &[&args[..], &["body.json", "--json"]].concat()).await;
    let raw = format!("POST /in/shop HTTP/1.1\r\nHost: gw\r\n{header}\r\n\r\n{BODY}");
    fs::write(folder.join("raw.http"), raw).unwrap();
    let whole = ["verify", "stripe", "--secret", SECRET, "--request", "raw.http"];
    let whole = run(folder, &whole).await;
    let curl = ["sign", "stripe", "--secret", SECRET, "--curl", "--now", "1700000000", "body.json"];
    let curl = run(folder, &curl).await;

    assert_eq!(text.code, Some(0), "{text:?}");
    assert!(text.stdout.contains("verified by hmac-sha256 secret 2 of 2"), "{text:?}");
    for part in ["invoice.paid", "stripe:evt_1", "in_1"] {
        assert!(text.stdout.contains(part), "{part}: {text:?}");
    }
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (&json["verified"], &json["events"][0]["key"]),
        (&true.into(), &"stripe:evt_1".into())
    );
    assert_eq!(whole.code, Some(0), "{whole:?}");
    let line = &curl.stdout;
    assert!(line.starts_with("curl -X POST 'http://127.0.0.1:8080/in/stripe'"), "{line}");
    assert!(
        line.contains("t=1700000000,v1=") && line.contains("--data-binary '@body.json'"),
        "{line}"
    );
}

#[tokio::test]
async fn failed_verification_is_explained_with_likely_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("body.json"), BODY).unwrap();
    fs::write(folder.join("newline.json"), format!("{BODY}\n")).unwrap();
    fs::write(folder.join("compact.json"), BODY.replace(": ", ":").replace(", ", ",")).unwrap();
    let header = signed(folder, "body.json").await;
    let newline = format!("{SECRET}\n");
    let cases: [(&str, &[&str], &str); 6] = [
        (
            "newline at the end",
            &["--secret", SECRET, "-H", &header, "newline.json"],
            "newline around it",
        ),
        (
            "parsed again",
            &["--secret", SECRET, "-H", &header, "compact.json"],
            "parsed and serialized again",
        ),
        (
            "secret read from a file",
            &["--secret", &newline, "-H", &header, "body.json"],
            "newline around it",
        ),
        (
            "old",
            &["--secret", SECRET, "-H", &header, "--now", "2036-01-01T00:00:00Z", "body.json"],
            "s old",
        ),
        ("no header", &["--secret", SECRET, "body.json"], "--header"),
        ("another secret", &["--secret", "guess", "-H", &header, "body.json"], "Check the secret"),
    ];
    for (name, more, expected) in cases {
        let output = run(folder, &[&["verify", "stripe"], more].concat()).await;
        assert_eq!(output.code, Some(1), "case: {name}: {output:?}");
        assert!(output.stderr.contains(expected), "case: {name}: {output:?}");
        assert!(!output.stderr.contains(SECRET), "case: {name}: {output:?}");
    }
    let json = ["verify", "stripe", "--secret", "guess", "-H", &header, "--json", "body.json"];
    let json = run(folder, &json).await;
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.code, &report["reason"]), (Some(1), &"mismatch".into()));
    for (args, expected) in [
        (&["verify", "stripy", "--secret", "x", "body.json"][..], "unknown provider `stripy`"),
        (&["verify", "stripe", "body.json"], "`secrets` is missing"),
        (&["verify", "generic", "--secret", "x", "body.json"], "`verify` is missing"),
        (&["verify", "stripe", "--secret", "x", "-H", "nonsense", "body.json"], "Name: value"),
        (&["verify", "stripe", "--secret", "x", "--now", "noon", "body.json"], "--now"),
    ] {
        let output = run(folder, args).await;
        assert_eq!(output.code, Some(5), "{output:?}");
        assert!(output.stderr.contains(expected), "{output:?}");
    }
    let generic = ["generic", "--secret", "s", "--verify", "{ hmac = { header = \"x-sig\" } }"];
    let signed = run(folder, &[&["sign"], &generic[..], &["body.json"]].concat()).await;
    let header = signed.stdout.trim_end().to_owned();
    let verified =
        run(folder, &[&["verify"], &generic[..], &["-H", &header, "body.json"]].concat()).await;
    assert_eq!(verified.code, Some(0), "{signed:?} {verified:?}");
    assert!(verified.stdout.contains("evt_1"), "{verified:?}");
}

/// A gateway with an unverified source `in` and a Stripe source `pay`.
async fn gateway_with_stripe(sink: &Sink) -> Gateway {
    let source = format!(
        "\n[[sources]]\nname = \"pay\"\nprovider = \"stripe\"\nsecrets = [\"{SECRET}\"]\n\n[[routes]]\nfrom = \"pay\"\nto = \"out\"\n"
    );
    Gateway::start_with(&format!("{}{source}", route_settings(&sink.url(), ""))).await
}

fn statuses(output: &CommandOutput) -> Vec<&str> {
    output.stdout.lines().filter_map(|line| line.split_whitespace().nth(1)).collect()
}

#[tokio::test]
async fn send_test_with_preset_sends_sample_events() {
    let sink = Sink::ok().await;
    let gateway = gateway_with_stripe(&sink).await;
    let send = async |more: &[&str]| {
        gateway.cli(&[&["send-test", "stripe", "--secret", SECRET], more].concat()).await
    };

    let kinds = gateway.cli(&["send-test", "stripe", "--list"]).await;
    let first = send(&["--seed", "7", "--dup"]).await;
    let again = send(&["--seed", "7"]).await;
    let other = send(&["--seed", "8", "--count", "2", "--rate", "1000/s"]).await;
    let bad = send(&["--bad-sig", "--json"]).await;

    assert!(kinds.stdout.contains("payment_intent.succeeded"), "{kinds:?}");
    let many = kinds.stdout.lines().count();
    assert_eq!(statuses(&first), ["accepted", "duplicate"].repeat(many), "{first:?}");
    assert_eq!(statuses(&again), ["duplicate"].repeat(many), "{again:?}");
    assert_eq!(statuses(&other), ["accepted"].repeat(2 * many), "{other:?}");
    assert_eq!(bad.code, Some(0), "{bad:?}");
    let refused: Value = serde_json::from_str(bad.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(refused["http_status"], 401, "{bad:?}");
    sink.wait_for_requests(3 * many).await;

    for (name, args, code, expected) in [
        (
            "no source of it",
            &["send-test", "generic", "--to", "pay"][..],
            5,
            "has the provider stripe",
        ),
        ("no such kind", &["send-test", "pay", "--kind", "x"], 5, "--list"),
        ("no such source or preset", &["send-test", "absent"], 4, "No such source"),
        ("unverified", &["send-test", "in", "--bad-sig"], 5, "does not verify signatures"),
    ] {
        let output = gateway.cli(args).await;
        assert_eq!(output.code, Some(code), "case: {name}: {output:?}");
        assert!(output.stderr.contains(expected), "case: {name}: {output:?}");
    }
    let sources = gateway.cli(&["sources", "list"]).await;
    let line =
        |name: &str| sources.stdout.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(
        line("/in/in").contains("unverified") && !line("/in/pay").contains("unverified"),
        "{sources:?}"
    );
    let shown = gateway.get("/sources/in").await.expect(200).json();
    assert_eq!(shown["verified"], false);
}

/// An Ed25519 key pair: 64 hex digits of the private and 64 of the public key (RFC 8032, test 1).
const KEY_PAIR: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60\
                        d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

/// A secret in the format that the preset requires.
fn secret_of(preset: &str) -> &'static str {
    match preset {
        "adyen" => "44782540635438062910043932310071",
        "discord" => KEY_PAIR,
        "standard-webhooks" => "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        _ => "a-shared-secret-of-32-characters",
    }
}

#[tokio::test]
async fn send_test_sends_every_sample_of_every_preset() {
    // Only PayPal and SendGrid can sign their requests; generic sources are covered by other tests.
    let is_skipped = |name| ["generic", "paypal", "sendgrid"].contains(&name);
    let presets: Vec<_> = PROVIDERS.iter().filter(|preset| !is_skipped(preset.name)).collect();
    let source = |preset: &&&Provider| {
        let name = preset.name;
        let secret = secret_of(name);
        format!("[[sources]]\nname = \"{name}\"\nprovider = \"{name}\"\nsecrets = [\"{secret}\"]\n")
    };
    // Some providers sign the URL.
    let mut settings = "public_url = \"https://hooks.example.com\"\n".to_owned();
    settings.extend(presets.iter().map(source));
    let gateway = Gateway::start_with(&settings).await;
    for preset in presets {
        let (name, many) = (preset.name, preset.samples.len());
        let secret = secret_of(name);
        let sent =
            gateway.cli(&["send-test", name, "--secret", secret, "--seed", "1", "--json"]).await;
        assert_eq!((sent.code, sent.stdout.lines().count()), (Some(0), many), "{name}: {sent:?}");
        let bad = ["send-test", name, "--secret", secret, "--bad-sig", "--json"];
        let bad = gateway.cli(&bad).await;
        for line in bad.stdout.lines() {
            let response: Value = serde_json::from_str(line).unwrap();
            let status = response["http_status"].as_u64().unwrap();
            assert!([401, 503].contains(&status), "{name}: {response}");
        }
        assert_eq!(bad.code, Some(0), "{name}: {bad:?}");
    }
}
