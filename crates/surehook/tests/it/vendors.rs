//! The gateway and the vendors' own libraries agree on valid signatures: the gateway accepts what the
//! libraries sign, the libraries accept what the gateway signs or forwards, and both reject every
//! changed bit.

mod cases;

use std::fmt;

use http::{HeaderMap, Method};
use surehook_types::{secret::Secret, time::Timestamp};
use surehook_webhooks::{
    provider::{self, RefusalPolicy},
    request::OutgoingRequest,
    verify::{CertificateChain, Verifier, VerifySpec},
};

use self::cases::{
    ORIGIN, PLAIN, VENDORS, WHSEC, can_resign, delivered_bodies, gateway_secret, header_map,
    incoming, signed_by_us, tampered_webhooks, unsigned, vendor_secret,
};
use crate::support::{
    client::HttpResponse,
    gateway::{Gateway, route_settings},
    sink::{Sink, SinkRequest},
    tools::Tool,
    unix_now,
    vendor_libraries::{VendorLibraries, Webhook},
};

/// Sends the webhook to the gateway as the vendor would.
async fn send(gateway: &Gateway, webhook: &Webhook) -> HttpResponse {
    let path = webhook.url.strip_prefix(ORIGIN).unwrap();
    let headers: Vec<(&str, &[u8])> =
        webhook.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    gateway.request(Method::POST, path, &headers, webhook.body.clone()).await
}

/// A request received by a destination, as a webhook.
fn received_webhook(request: &SinkRequest, url: &str) -> Webhook {
    let headers = request.headers.iter();
    Webhook {
        url: url.to_owned(),
        headers: headers.map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_owned())).collect(),
        body: request.body.to_vec(),
    }
}

/// Settings with a source for each preset and two destinations: one gets the webhooks unchanged, the
/// other ones signed again in the vendor's scheme.
fn settings(forwarded_sink: &Sink, resigned_sink: &Sink) -> String {
    let mut toml =
        format!("[[destinations]]\nname = \"out\"\nurl = \"{}\"\n", forwarded_sink.url());
    let mut presets: Vec<&str> = VENDORS.iter().map(|(_, preset)| *preset).collect();
    presets.sort_unstable();
    presets.dedup();
    for preset in presets {
        let secret = gateway_secret(preset);
        toml += &format!(
            "[[sources]]\nname = \"{preset}\"\nprovider = \"{preset}\"\nsecrets = [\"{secret}\"]\n\
             # Each request is an event of its own.\nkeys = []\n\
             public_url = \"{ORIGIN}\"\n[[routes]]\nfrom = \"{preset}\"\nto = \"out\"\n"
        );
        if can_resign(preset) {
            toml += &format!(
                "[[destinations]]\nname = \"as-{preset}\"\nurl = \"{}\"\n\
                 sign_as = {{ provider = \"{preset}\", secret = \"{secret}\" }}\n\
                 [[routes]]\nfrom = \"{preset}\"\nto = \"as-{preset}\"\n",
                resigned_sink.url()
            );
        }
    }
    toml
}

#[tokio::test]
async fn python_libraries_and_gateway_accept_the_same_webhooks() {
    if !Tool::Vendors.is_available() {
        return;
    }
    check(VendorLibraries::python()).await;
}

#[tokio::test]
async fn node_libraries_and_gateway_accept_the_same_webhooks() {
    if !Tool::Vendors.is_available() {
        return;
    }
    check(VendorLibraries::node()).await;
}

async fn check(mut libraries: VendorLibraries) {
    let (forwarded_sink, resigned_sink) = (Sink::ok().await, Sink::ok().await);
    let gateway = Gateway::start_with(&settings(&forwarded_sink, &resigned_sink)).await;
    for vendor in libraries.vendors() {
        let is_listed = VENDORS.iter().any(|(listed, _)| *listed == vendor);
        // PayPal has a separate test: its certificate comes from its own server.
        // The last two have no preset, only recipes in the documentation.
        let is_apart = matches!(vendor, "paypal" | "paddle" | "razorpay");
        assert!(is_listed || is_apart, "{vendor} has no entry in VENDORS");
    }
    let mut number = 0;
    for (vendor, preset) in VENDORS {
        if !libraries.has_library(vendor) {
            continue;
        }
        let samples = provider::find(preset).unwrap().samples;
        assert!(!samples.is_empty(), "{preset} has no samples");
        for (position, sample) in samples.iter().enumerate() {
            number += 1;
            let unsigned = unsigned(preset, sample, number);
            let signed = if libraries.can_sign(vendor) {
                libraries.sign(vendor, &vendor_secret(vendor), &unsigned, unix_now())
            } else {
                signed_by_us(preset, &unsigned)
            };
            let libraries = &mut libraries;
            let mut check = LibraryCheck { vendor, preset, libraries, kind: sample.kind };
            check.check_valid(&signed, &gateway, &forwarded_sink, &resigned_sink).await;
            if position == 0 {
                check
                    .check_tampered(&tampered_webhooks(vendor, &signed, &unsigned), &gateway)
                    .await;
            }
        }
    }
}

/// The checks of one sample with one library.
struct LibraryCheck<'a> {
    vendor: &'a str,
    preset: &'a str,
    libraries: &'a mut VendorLibraries,
    kind: &'a str,
}

impl LibraryCheck<'_> {
    /// A valid webhook is accepted by the library and the gateway, also after it was forwarded.
    async fn check_valid(
        &mut self,
        signed: &Webhook,
        gateway: &Gateway,
        forwarded_sink: &Sink,
        resigned_sink: &Sink,
    ) {
        let before = (forwarded_sink.count(), resigned_sink.count());
        self.assert_accepted(signed, "signed");
        let response = send(gateway, signed).await;
        assert!(
            response.status.is_success(),
            "{self}: the gateway rejects what the library accepts: {response:?}"
        );

        let events = delivered_bodies(self.preset, signed);
        let requests = forwarded_sink.wait_for_requests(before.0 + events.len()).await;
        for body in &events {
            let is_it = |request: &&SinkRequest| request.body == body;
            let request = requests[before.0..].iter().find(is_it);
            let request = request.unwrap_or_else(|| panic!("{self}: did not arrive: {body:?}"));
            // Tokens for the gateway are not forwarded, and a signature is invalid for a part of the body.
            let has_token = matches!(self.vendor, "evolution-api" | "telegram");
            if !has_token && *body == signed.body {
                self.assert_accepted(&received_webhook(request, &signed.url), "forwarded");
            }
        }
        if can_resign(self.preset) {
            let requests = resigned_sink.wait_for_requests(before.1 + events.len()).await;
            for request in &requests[before.1..] {
                // Twilio's signature of a body that is not a form is part of the query.
                let mut url = resigned_sink.url();
                if !request.query.is_empty() {
                    url = format!("{url}?{}", request.query);
                }
                self.assert_accepted(&received_webhook(request, &url), "signed again");
            }
        }
    }

    /// A webhook with one changed bit is rejected by the library and the gateway.
    async fn check_tampered(&mut self, all: &[(String, Webhook)], gateway: &Gateway) {
        for (what, changed) in all {
            let taken = self.libraries.verify(self.vendor, &vendor_secret(self.vendor), changed);
            assert!(taken.is_err(), "{self}: accepts a changed {what}");
            let response = send(gateway, changed).await;
            let refusal = match provider::find(self.preset).unwrap().on_refusal {
                RefusalPolicy::Unauthorized | RefusalPolicy::Keep => 401,
                RefusalPolicy::Quarantine => 503,
            };
            assert_eq!(
                response.status, refusal,
                "{self}: the gateway accepts a changed {what}: {response:?}"
            );
        }
    }

    fn assert_accepted(&mut self, webhook: &Webhook, what: &str) {
        let taken = self.libraries.verify(self.vendor, &vendor_secret(self.vendor), webhook);
        assert_eq!(taken, Ok(()), "{self}: rejects a webhook that was {what}: {webhook:?}");
    }
}

impl fmt::Display for LibraryCheck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} with {}", self.preset, self.kind, self.libraries.name(self.vendor))
    }
}

// Without a running gateway, which would fetch the certificate from PayPal.
#[test]
fn paypal_library_and_verifier_accept_the_same_webhooks() {
    if !Tool::Vendors.is_available() {
        return;
    }
    let mut libraries = VendorLibraries::python();
    let mut secret = libraries.generate_keys();
    secret["webhook_id"] = PLAIN.replace('-', "").into();
    let provider = provider::find("paypal").unwrap();
    let webhook_id = Secret::new(secret["webhook_id"].as_str().unwrap());
    let verifier = provider.verifier(vec![webhook_id]).unwrap();
    let pem = secret["certificate"].as_str().unwrap().to_owned();
    let certificate = CertificateChain { pem: pem.as_bytes(), roots: &[] };
    let mut accepts = |webhook: &Webhook| {
        let headers = header_map(webhook);
        let request = incoming("paypal", webhook, &headers);
        let now = Timestamp::from_millis(unix_now() * 1000);
        let ours = verifier.verify_with_certificate(&request, &certificate, now);
        let is_at_paypal = verifier.certificate_url(&request).is_ok();
        let theirs = libraries.verify("paypal", &secret, webhook);
        (ours.is_ok() && is_at_paypal, theirs.is_ok())
    };
    let mut signer = VendorLibraries::python();
    for (number, sample) in provider.samples.iter().enumerate() {
        let unsigned = unsigned("paypal", sample, number);
        let signed = signer.sign("paypal", &secret, &unsigned, unix_now());
        assert_eq!(accepts(&signed), (true, true), "{}", sample.kind);
        for (what, changed) in tampered_webhooks("paypal", &signed, &unsigned) {
            // The library gets the algorithm and the certificate as arguments and ignores these headers.
            let is_ignored = matches!(what.as_str(), "paypal-auth-algo" | "paypal-cert-url");
            assert_eq!(accepts(&changed), (false, is_ignored), "{}: changed {what}", sample.kind);
        }
    }
}

/// Standard webhooks are signed within the body, which the other test does not do.
#[test]
fn adyen_libraries_and_verifier_accept_the_same_items() {
    if !Tool::Vendors.is_available() {
        return;
    }
    const BODY: &str =
        include_str!("../../../../testdata/payloads/adyen.authorisation_and_refund.json");
    let key = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";
    let adyen = provider::find("adyen").unwrap();
    let verifier = adyen.verifier(vec![Secret::new(key)]).unwrap();
    let changes = [
        ("", ""),
        ("1130", "1131"),
        ("EUR", "USD"),
        ("REFUND", "CANCEL"),
        ("pedido:42", "pedido:43"),
        ("7914073381342299", "7914073381342290"),
        ("TestMerchant", "OtherMerchant"),
        ("true", "false"),
    ];
    for mut libraries in [VendorLibraries::python(), VendorLibraries::node()] {
        for (from, to) in changes {
            let body = BODY.replacen(from, to, 1).into_bytes();
            let url = format!("{ORIGIN}/in/adyen");
            let webhook = Webhook { url, headers: Vec::new(), body };
            let headers = header_map(&webhook);
            let request = incoming("adyen", &webhook, &headers);
            let ours = verifier.verify(&request, Timestamp::default()).is_ok();
            let theirs = libraries.verify("adyen", &key.into(), &webhook).is_ok();
            let name = libraries.name("adyen");
            assert_eq!((ours, theirs), (from.is_empty(), from.is_empty()), "{name}: {from}");
        }
    }
}

/// The verification of a source in the recipes of the documentation.
fn documented_verifier(source: &str) -> Verifier {
    let page = include_str!("../../../../docs/guides/providers/generic.md");
    let (_, recipes) = page.split_once("## Recipes").unwrap();
    let block = recipes.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let settings: toml::Table = toml::from_str(block).unwrap();
    let mut sources = settings["sources"].as_array().unwrap().iter();
    let found = sources.find(|one| one["name"].as_str() == Some(source)).unwrap();
    let spec: VerifySpec = found["verify"].clone().try_into().unwrap();
    Verifier::new(&spec, vec![Secret::new(PLAIN)]).unwrap()
}

#[test]
fn documented_recipes_agree_with_the_libraries_of_their_vendors() {
    if !Tool::Vendors.is_available() {
        return;
    }
    let mut libraries = VendorLibraries::python();
    for vendor in ["paddle", "razorpay"] {
        let verifier = documented_verifier(vendor);
        let body = r#"{"event_id":"evt_01","event":"payment.captured","name":"João"}"#;
        let mut webhook = Webhook {
            url: format!("{ORIGIN}/in/{vendor}"),
            headers: Vec::new(),
            body: body.into(),
        };
        let now = Timestamp::from_millis(unix_now() * 1000);
        let headers = HeaderMap::new();
        let outgoing = OutgoingRequest {
            id: "id",
            url: &webhook.url,
            headers: &headers,
            body: body.as_bytes(),
        };
        let signed = verifier.sign(&outgoing, now).unwrap();
        let added = signed.headers.into_iter().map(|(name, value)| (name.to_string(), value));
        webhook.headers = added.collect();
        let mut accepts = |webhook: &Webhook| {
            let headers = header_map(webhook);
            let ours = verifier.verify(&incoming(vendor, webhook, &headers), now).is_ok();
            (ours, libraries.verify(vendor, &PLAIN.into(), webhook).is_ok())
        };
        assert_eq!(accepts(&webhook), (true, true), "{vendor}: {webhook:?}");
        webhook.body[20] ^= 1;
        assert_eq!(accepts(&webhook), (false, false), "{vendor}: a changed body");
    }
}

#[tokio::test]
async fn our_signatures_are_accepted_by_standard_webhooks_libraries() {
    if !Tool::Vendors.is_available() {
        return;
    }
    let sink = Sink::ok().await;
    let signing = format!("signing_secrets = [\"{WHSEC}\"]");
    let gateway = Gateway::start_with(&route_settings(&sink.url(), &signing)).await;
    // The Svix library reads its own headers first: those of the sender must not be forwarded.
    let senders =
        [("svix-id", "msg_1"), ("svix-timestamp", "1794762220"), ("svix-signature", "v1,AAAA")];
    gateway.send_webhook("in", &senders, r#"{"id":"evt_1","text":"João"}"#).await.expect(200);
    let delivered = received_webhook(&sink.wait_for_requests(1).await[0], "");
    let mut tampered = delivered.clone();
    tampered.body[9] ^= 1;
    for mut libraries in [VendorLibraries::python(), VendorLibraries::node()] {
        for vendor in ["standard-webhooks", "svix"] {
            let name = libraries.name(vendor);
            assert_eq!(libraries.verify(vendor, &WHSEC.into(), &delivered), Ok(()), "{name}");
            assert!(libraries.verify(vendor, &WHSEC.into(), &tampered).is_err(), "{name}");
        }
    }
}
