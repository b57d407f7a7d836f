//! The vendors' own libraries agree with us on what a good signature is.

use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, in_to_out},
    sink::{Arrival, Sink},
    unix_now,
    vendor::{Libraries, Webhook},
};

const SIGNING: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const DISCORD_PRIVATE: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const DISCORD_PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

/// What the vendor hands out for its webhooks; its form is the vendor's.
fn secret(vendor: &str) -> Value {
    match vendor {
        "standard-webhooks" | "svix" => SIGNING.into(),
        "discord" => json!({ "public_key": DISCORD_PUBLIC, "private_key": DISCORD_PRIVATE }),
        _ => "a-shared-secret-of-32-characters".into(),
    }
}

/// A webhook to be signed. With letters that take more than one byte, which break what signs
/// characters instead of bytes.
fn unsigned(vendor: &str) -> Webhook {
    let body = match vendor {
        "twilio" => {
            "MessageSid=SM1&MessageStatus=delivered&Body=Ol%C3%A1+Jo%C3%A3o&To=%2B5511".to_owned()
        }
        _ => format!(
            r#"{{"id":"evt_1","object":"event","event":"x","type":"x","text":"João","webhookTimestamp":{}}}"#,
            unix_now() * 1000
        ),
    };
    let kind = match vendor {
        "twilio" => "application/x-www-form-urlencoded",
        _ => "application/json",
    };
    let mut headers = vec![("content-type".to_owned(), kind.to_owned())];
    if vendor == "shopify" {
        for name in ["topic", "shop-domain", "api-version", "webhook-id"] {
            headers.push((format!("x-shopify-{name}"), "orders".to_owned()));
        }
    }
    Webhook {
        url: "https://hooks.example.com/in/shop?data.id=1".to_owned(),
        headers,
        body: body.into(),
    }
}

/// The webhook with one bit of its body changed, such that it stays what it is otherwise.
fn tampered(webhook: &Webhook) -> Webhook {
    let mut changed = webhook.clone();
    let at = changed.body.iter().position(|byte| *byte == b'1').unwrap();
    changed.body[at] ^= 1;
    changed
}

// A library that would take anything could not agree with anybody.
#[test]
fn each_library_takes_what_it_or_another_signed_and_nothing_else() {
    let mut all = [Libraries::python(), Libraries::node()];
    let mut checked = 0;
    for signer in 0..all.len() {
        let vendors: Vec<String> = all[signer].vendors().into_iter().map(str::to_owned).collect();
        for vendor in vendors.iter().filter(|vendor| *vendor != "paypal") {
            if !all[signer].signs(vendor) {
                continue;
            }
            let secret = secret(vendor);
            let signed = all[signer].sign(vendor, &secret, &unsigned(vendor), unix_now());
            let by = all[signer].name(vendor);
            for verifier in &mut all {
                if !verifier.knows(vendor) {
                    continue;
                }
                let to = verifier.name(vendor);
                assert_eq!(
                    verifier.verify(vendor, &secret, &signed),
                    Ok(()),
                    "{vendor}: {by} to {to}"
                );
                // The JWT says nothing about the body.
                if vendor != "evolution-api" {
                    let refused = verifier.verify(vendor, &secret, &tampered(&signed));
                    assert!(refused.is_err(), "{vendor}: {to} takes what was changed");
                }
                checked += 1;
            }
        }
    }
    assert!(checked >= 20, "only {checked} pairs");
}

/// What came to a destination, as a library is asked about it.
fn arrived(arrival: &Arrival) -> Webhook {
    let headers = arrival.headers.iter();
    Webhook {
        url: String::new(),
        headers: headers.map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_owned())).collect(),
        body: arrival.body.to_vec(),
    }
}

// What we sign ourselves is good to every library of Standard Webhooks.
#[tokio::test]
async fn what_we_sign_is_taken_by_the_libraries_of_standard_webhooks() {
    let sink = Sink::ok().await;
    let signing = format!("signing_secrets = [\"{SIGNING}\"]");
    let gateway = Gateway::with(&in_to_out(&sink.url(), &signing)).await;
    gateway.accepted("in", r#"{"id":"evt_1","text":"João"}"#).await;
    let delivered = arrived(&sink.arrived(1).await[0]);
    for mut libraries in [Libraries::python(), Libraries::node()] {
        for vendor in ["standard-webhooks", "svix"] {
            let name = libraries.name(vendor);
            assert_eq!(libraries.verify(vendor, &SIGNING.into(), &delivered), Ok(()), "{name}");
            let refused = libraries.verify(vendor, &SIGNING.into(), &tampered(&delivered));
            assert!(refused.is_err(), "{name}");
        }
    }
}
