//! Shopify: signed over the raw body in base64; what an event is stands in headers.

use std::sync::LazyLock;

use super::{BodyFields, EventKey, EventPart, ParsedRequest, Provider, SampleEvent};
use crate::{
    attribute::{AttributeName, EventKind},
    key::DedupKey,
    request::IncomingRequest,
    secret::Secret,
    time::HumanDuration,
    verify::{HmacSpec, SignatureEncoding, Verifier, VerifySpecError},
};

/// Ids are read as they are spelled: some are too large for a floating-point number.
static FIELDS: LazyLock<BodyFields> = LazyLock::new(|| {
    BodyFields::new(&[
        "/id",
        "/inventory_item_id",
        "/customer/id",
        "/order_id",
        "/order_number",
        "/email",
        "/customer/email",
        "/phone",
        "/customer/phone",
        "/financial_status",
    ])
});

const ABOUT: [(AttributeName, usize); 10] = [
    (AttributeName::Object, 0),
    (AttributeName::Object, 1),
    (AttributeName::User, 2),
    (AttributeName::Object, 3),
    (AttributeName::Object, 4),
    (AttributeName::Email, 5),
    (AttributeName::Email, 6),
    (AttributeName::Phone, 7),
    (AttributeName::Phone, 8),
    (AttributeName::ProviderStatus, 9),
];

#[derive(Debug)]
pub(super) struct Shopify;

impl Provider for Shopify {
    fn name(&self) -> &'static str {
        "shopify"
    }

    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let spec = HmacSpec {
            encoding: SignatureEncoding::Base64,
            ..HmacSpec::new("x-shopify-hmac-sha256")
        };
        Verifier::hmac(spec, secrets)
    }

    /// `X-Shopify-Event-Id` is no key: all topics that one action causes share it.
    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = FIELDS.read(request.body);
        let shop = request.header("x-shopify-shop-domain");
        let of_shop =
            |prefix: &str, id: Option<&str>| DedupKey::new(&format!("{prefix}{}:{}", shop?, id?));
        let key = of_shop("shopify:", request.header("x-shopify-webhook-id"));
        let mut attributes = found.attributes(&ABOUT);
        attributes.push_some(AttributeName::Account, shop);
        ParsedRequest::one(EventPart {
            kind: request.header("x-shopify-topic").and_then(EventKind::new),
            key: EventKey::known(key, "shopify:x-shopify-webhook-id"),
            order: of_shop("", found.first(&[0, 1, 2])),
            attributes,
            ..EventPart::default()
        })
    }

    /// Eight tries in four hours; older versions went on for two days.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(3 * 86_400)
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["x-shopify-hmac-sha256"]
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

macro_rules! sample {
    ($topic:literal, $file:literal) => {
        SampleEvent {
            kind: $topic,
            headers: &[
                ("content-type", "application/json"),
                ("x-shopify-topic", $topic),
                ("x-shopify-shop-domain", "loja.myshopify.com"),
                ("x-shopify-api-version", "2026-04"),
                ("x-shopify-webhook-id", "{{uuid}}"),
                ("x-shopify-event-id", "98880550-7158-44d4-b7cd-2c97c8a091b5"),
                ("x-shopify-triggered-at", "{{now_iso}}"),
                ("x-shopify-test", "true"),
            ],
            target: "",
            body: include_str!(concat!("samples/shopify.", $file, ".json")),
        }
    };
}

static SAMPLES: &[SampleEvent] = &[
    sample!("orders/create", "orders_create"),
    sample!("orders/paid", "orders_paid"),
    sample!("refunds/create", "refunds_create"),
    sample!("customers/create", "customers_create"),
    sample!("inventory_levels/update", "inventory_levels_update"),
    sample!("app/uninstalled", "app_uninstalled"),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{about, told};

    const SHOP: (&str, &str) = ("x-shopify-shop-domain", "a.myshopify.com");
    const WEBHOOK: (&str, &str) = ("x-shopify-webhook-id", "w-1");
    const TOPIC: (&str, &str) = ("x-shopify-topic", "orders/paid");
    const EVENT: (&str, &str) = ("x-shopify-event-id", "e-1");

    #[test]
    fn keys_are_of_one_shop_and_ids_are_not_rounded() {
        let key = "shopify:a.myshopify.com:w-1";
        let cases: [(_, &[_], _, _); 6] = [
            (
                "beyond 2^53",
                &[SHOP, WEBHOOK, TOPIC, EVENT],
                r#"{"id":820982911946154508}"#,
                ["orders/paid", key, "a.myshopify.com:820982911946154508"],
            ),
            (
                "stock has another id",
                &[SHOP, WEBHOOK, TOPIC],
                r#"{"inventory_item_id":271878346596884015,"available":4}"#,
                ["orders/paid", key, "a.myshopify.com:271878346596884015"],
            ),
            (
                "a request for data",
                &[SHOP, WEBHOOK, TOPIC],
                r#"{"shop_id":1,"customer":{"id":7}}"#,
                ["orders/paid", key, "a.myshopify.com:7"],
            ),
            ("no id of the webhook", &[SHOP, TOPIC, EVENT], "{}", ["orders/paid", "-", "-"]),
            ("no shop", &[WEBHOOK, TOPIC], r#"{"id":1}"#, ["orders/paid", "-", "-"]),
            ("not JSON", &[SHOP, WEBHOOK], "x", ["-", key, "-"]),
        ];
        for (name, headers, body, expected) in cases {
            assert_eq!(told("shopify", headers, body), expected, "case: {name}");
        }
    }

    #[test]
    fn an_order_is_found_by_its_customer() {
        let body = r#"{"id":1,"order_number":9999,"email":"ana@example.com","phone":"+5511987654321",
            "financial_status":"paid","customer":{"id":7,"email":"ana@example.com"}}"#;
        let expected = [
            "object=1",
            "object=9999",
            "phone=5511987654321",
            "email=ana@example.com",
            "user=7",
            "account=a.myshopify.com",
            "provider_status=paid",
        ];
        assert_eq!(about("shopify", &[SHOP], body), expected);
    }
}
