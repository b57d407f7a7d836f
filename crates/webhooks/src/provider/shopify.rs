//! Shopify: signed over the raw body, in base64; topic and ids are in headers.

use surehook_types::{secret::Secret, time::HumanDuration};

use super::{EventKey, EventPart, ParsedRequest, Provider, SampleEvent, fields::body_fields};
use crate::{
    attribute::{AttributeName, EventKind},
    key::DedupKey,
    request::IncomingRequest,
    verify::{HmacSpec, SignatureEncoding, Verifier, VerifySpecError},
};

body_fields! {
    /// Ids keep their spelling: some are too large for a floating-point number.
    static FIELDS {
        ID = "/id",
        INVENTORY_ITEM_ID = "/inventory_item_id",
        CUSTOMER_ID = "/customer/id",
        ORDER_ID = "/order_id",
        ORDER_NUMBER = "/order_number",
        EMAIL = "/email",
        CUSTOMER_EMAIL = "/customer/email",
        PHONE = "/phone",
        CUSTOMER_PHONE = "/customer/phone",
        FINANCIAL_STATUS = "/financial_status",
    }
}

const ATTRIBUTES: [(AttributeName, usize); 10] = [
    (AttributeName::Object, ID),
    (AttributeName::Object, INVENTORY_ITEM_ID),
    (AttributeName::User, CUSTOMER_ID),
    (AttributeName::Object, ORDER_ID),
    (AttributeName::Object, ORDER_NUMBER),
    (AttributeName::Email, EMAIL),
    (AttributeName::Email, CUSTOMER_EMAIL),
    (AttributeName::Phone, PHONE),
    (AttributeName::Phone, CUSTOMER_PHONE),
    (AttributeName::ProviderStatus, FINANCIAL_STATUS),
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

    /// `X-Shopify-Event-Id` is not a key: all topics caused by one action share it.
    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = FIELDS.read(request.body);
        let shop = request.header("x-shopify-shop-domain");
        let of_shop =
            |prefix: &str, id: Option<&str>| DedupKey::new(&format!("{prefix}{}:{}", shop?, id?));
        let key = of_shop("shopify:", request.header("x-shopify-webhook-id"));
        let mut attributes = found.attributes(&ATTRIBUTES);
        attributes.push_some(AttributeName::Account, shop);
        ParsedRequest::single(EventPart {
            kind: request.header("x-shopify-topic").and_then(EventKind::new),
            key: EventKey::known(key, "shopify:x-shopify-webhook-id"),
            order: of_shop("", found.first(&[ID, INVENTORY_ITEM_ID, CUSTOMER_ID])),
            attributes,
            ..EventPart::default()
        })
    }

    /// Eight attempts in four hours; older API versions retry for two days.
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
    use super::super::testing::{attribute_pairs, summary};

    const SHOP: (&str, &str) = ("x-shopify-shop-domain", "a.myshopify.com");
    const WEBHOOK: (&str, &str) = ("x-shopify-webhook-id", "w-1");
    const TOPIC: (&str, &str) = ("x-shopify-topic", "orders/paid");
    const EVENT: (&str, &str) = ("x-shopify-event-id", "e-1");

    #[test]
    fn keys_are_per_shop_and_ids_are_not_rounded() {
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
            assert_eq!(summary("shopify", headers, body), expected, "case: {name}");
        }
    }

    #[test]
    fn attributes_include_order_and_customer() {
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
        assert_eq!(attribute_pairs("shopify", &[SHOP], body), expected);
    }
}
