//! The vendors' own libraries agree with us on what a good signature is: what they sign is let in,
//! what we sign or hand on is good to them, and one changed bit is good to nobody.

mod cases;

use std::fmt;

use http::Method;
use surehook_core::{
    provider::{self, RefusalPolicy},
    secret::Secret,
    time::Timestamp,
    verify::Certificate,
};

use self::cases::{
    ORIGIN, PLAIN, VENDORS, WHSEC, changed, events, header_map, incoming, is_signed_anew,
    secret_for, secret_of, signed_by_us, unsigned,
};
use crate::support::{
    client::HttpResponse,
    gateway::{Gateway, route_settings},
    sink::{Sink, SinkRequest},
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

/// What came to a destination.
fn as_sent(arrival: &SinkRequest, url: &str) -> Webhook {
    let headers = arrival.headers.iter();
    Webhook {
        url: url.to_owned(),
        headers: headers.map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_owned())).collect(),
        body: arrival.body.to_vec(),
    }
}

/// The same as if the vendor had sent it there itself: with its own headers where ours have taken
/// their places.
fn handed_on(arrival: &SinkRequest, url: &str) -> Webhook {
    let mut webhook = as_sent(arrival, url);
    webhook.headers.retain(|(name, _)| !name.starts_with("webhook-"));
    for (name, _) in &mut webhook.headers {
        if let Some(original) = name.strip_prefix("original-") {
            *name = original.to_owned();
        }
    }
    webhook
}

/// A source for each preset, and two destinations for it: one gets what came as it came, the other
/// expects the vendor's signature on everything.
fn settings(as_it_came: &Sink, signed_anew: &Sink) -> String {
    let mut toml = format!("[[destinations]]\nname = \"out\"\nurl = \"{}\"\n", as_it_came.url());
    let mut presets: Vec<&str> = VENDORS.iter().map(|(_, preset)| *preset).collect();
    presets.sort_unstable();
    presets.dedup();
    for preset in presets {
        let secret = secret_for(preset);
        toml += &format!(
            "[[sources]]\nname = \"{preset}\"\nprovider = \"{preset}\"\nsecrets = [\"{secret}\"]\n\
             # Each request is an event of its own.\nkeys = []\n\
             public_url = \"{ORIGIN}\"\n[[routes]]\nfrom = \"{preset}\"\nto = \"out\"\n"
        );
        if is_signed_anew(preset) {
            toml += &format!(
                "[[destinations]]\nname = \"as-{preset}\"\nurl = \"{}\"\n\
                 sign_as = {{ provider = \"{preset}\", secret = \"{secret}\" }}\n\
                 [[routes]]\nfrom = \"{preset}\"\nto = \"as-{preset}\"\n",
                signed_anew.url()
            );
        }
    }
    toml
}

#[tokio::test]
async fn the_libraries_on_pypi_and_we_take_the_same_webhooks() {
    check(VendorLibraries::python()).await;
}

#[tokio::test]
async fn the_libraries_on_npm_and_we_take_the_same_webhooks() {
    check(VendorLibraries::node()).await;
}

async fn check(mut libraries: VendorLibraries) {
    let (as_it_came, signed_anew) = (Sink::ok().await, Sink::ok().await);
    let gateway = Gateway::start_with(&settings(&as_it_came, &signed_anew)).await;
    for vendor in libraries.vendors() {
        let is_asked = VENDORS.iter().any(|(asked, _)| *asked == vendor);
        // PayPal's certificate comes from its own server; it has a test of its own.
        assert!(is_asked || vendor == "paypal", "{vendor} is forgotten");
    }
    let mut number = 0;
    for (vendor, preset) in VENDORS {
        if !libraries.knows(vendor) {
            continue;
        }
        let samples = provider::find(preset).unwrap().samples();
        assert!(!samples.is_empty(), "{preset} has no samples");
        for (position, sample) in samples.iter().enumerate() {
            number += 1;
            let unsigned = unsigned(preset, sample, number);
            let signed = if libraries.signs(vendor) {
                libraries.sign(vendor, &secret_of(vendor), &unsigned, unix_now())
            } else {
                signed_by_us(preset, &unsigned)
            };
            let libraries = &mut libraries;
            let mut asked = Asked { vendor, preset, libraries, kind: sample.kind };
            asked.about_good(&signed, &gateway, &as_it_came, &signed_anew).await;
            if position == 0 {
                asked.about_bad(&changed(vendor, &signed, &unsigned), &gateway).await;
            }
        }
    }
}

/// A library that is asked about a webhook.
struct Asked<'a> {
    vendor: &'a str,
    preset: &'a str,
    libraries: &'a mut VendorLibraries,
    kind: &'a str,
}

impl Asked<'_> {
    /// A webhook that is good is good to all, also when it has gone through us.
    async fn about_good(
        &mut self,
        signed: &Webhook,
        gateway: &Gateway,
        as_it_came: &Sink,
        signed_anew: &Sink,
    ) {
        let before = (as_it_came.count(), signed_anew.count());
        self.takes(signed, "signed");
        let answer = send(gateway, signed).await;
        assert!(answer.status.is_success(), "{self}: we refuse what it takes: {answer:?}");

        let events = events(self.preset, signed);
        let arrivals = as_it_came.wait_for_requests(before.0 + events.len()).await;
        for body in &events {
            let is_it = |arrival: &&SinkRequest| arrival.body == body;
            let arrival = arrivals[before.0..].iter().find(is_it);
            let arrival = arrival.unwrap_or_else(|| panic!("{self}: did not arrive: {body:?}"));
            // A token for us does not travel, and a signature not with a part of what it is over.
            let has_token = matches!(self.vendor, "evolution-api" | "telegram");
            if !has_token && *body == signed.body {
                self.takes(&handed_on(arrival, &signed.url), "handed on");
            }
        }
        if is_signed_anew(self.preset) {
            let arrivals = signed_anew.wait_for_requests(before.1 + events.len()).await;
            for arrival in &arrivals[before.1..] {
                self.takes(&as_sent(arrival, &signed_anew.url()), "signed anew");
            }
        }
    }

    /// One changed bit is good to nobody.
    async fn about_bad(&mut self, all: &[(String, Webhook)], gateway: &Gateway) {
        for (what, changed) in all {
            let taken = self.libraries.verify(self.vendor, &secret_of(self.vendor), changed);
            assert!(taken.is_err(), "{self}: takes another {what}");
            let answer = send(gateway, changed).await;
            let refusal = match provider::find(self.preset).unwrap().on_refusal() {
                RefusalPolicy::Unauthorized | RefusalPolicy::Keep => 401,
                RefusalPolicy::Quarantine => 503,
            };
            assert_eq!(answer.status, refusal, "{self}: we take another {what}: {answer:?}");
        }
    }

    fn takes(&mut self, webhook: &Webhook, what: &str) {
        let taken = self.libraries.verify(self.vendor, &secret_of(self.vendor), webhook);
        assert_eq!(taken, Ok(()), "{self}: refuses what was {what}: {webhook:?}");
    }
}

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} with {}", self.preset, self.kind, self.libraries.name(self.vendor))
    }
}

// Not through a running gateway, which would ask PayPal for the certificate.
#[test]
fn the_library_of_paypal_and_we_take_the_same_webhooks() {
    let mut libraries = VendorLibraries::python();
    let mut secret = libraries.keys();
    secret["webhook_id"] = PLAIN.replace('-', "").into();
    let provider = provider::find("paypal").unwrap();
    let webhook_id = Secret::new(secret["webhook_id"].as_str().unwrap());
    let verifier = provider.verifier(vec![webhook_id]).unwrap();
    let pem = secret["certificate"].as_str().unwrap().to_owned();
    let certificate = Certificate { pem: pem.as_bytes(), roots: &[] };
    let mut takes = |webhook: &Webhook| {
        let headers = header_map(webhook);
        let request = incoming("paypal", webhook, &headers);
        let now = Timestamp::from_millis(unix_now() * 1000);
        let ours = verifier.verify_with_certificate(&request, &certificate, now);
        let is_at_paypal = verifier.certificate_url(&request).is_ok();
        let theirs = libraries.verify("paypal", &secret, webhook);
        (ours.is_ok() && is_at_paypal, theirs.is_ok())
    };
    let mut signer = VendorLibraries::python();
    for (number, sample) in provider.samples().iter().enumerate() {
        let unsigned = unsigned("paypal", sample, number);
        let signed = signer.sign("paypal", &secret, &unsigned, unix_now());
        assert_eq!(takes(&signed), (true, true), "{}", sample.kind);
        for (what, changed) in changed("paypal", &signed, &unsigned) {
            // The library is told the algorithm and the certificate, so it does not mind these.
            let is_told = matches!(what.as_str(), "paypal-auth-algo" | "paypal-cert-url");
            assert_eq!(takes(&changed), (false, is_told), "{}: another {what}", sample.kind);
        }
    }
}

// What we sign ourselves is good to every library of Standard Webhooks.
#[tokio::test]
async fn what_we_sign_is_taken_by_the_libraries_of_standard_webhooks() {
    let sink = Sink::ok().await;
    let signing = format!("signing_secrets = [\"{WHSEC}\"]");
    let gateway = Gateway::start_with(&route_settings(&sink.url(), &signing)).await;
    // Svix looks at its own headers first: those of the sender must not stand beside ours.
    let senders =
        [("svix-id", "msg_1"), ("svix-timestamp", "1794762220"), ("svix-signature", "v1,AAAA")];
    gateway.send_webhook("in", &senders, r#"{"id":"evt_1","text":"João"}"#).await.expect(200);
    let delivered = as_sent(&sink.wait_for_requests(1).await[0], "");
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
