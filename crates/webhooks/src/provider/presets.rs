//! Providers that are described by data alone: a signature, and one event per request.

#[cfg(test)]
mod tests;

use std::{sync::LazyLock, time::Duration};

use surehook_types::time::HumanDuration;

use super::{
    EventKey, EventPart, JSON, JSON_UTF8, ParsedRequest, Provider, SampleEvent,
    fields::{EventReader, EventTemplate},
};
use crate::{
    attribute::AttributeName::{
        Account, Email, Error, MessageId, Object, Phone, ProviderStatus, User,
    },
    key::JsonPointer,
    request::IncomingRequest,
    verify::{HeaderNames, HmacSpec, SignatureEncoding, Verifier},
};

const DAY_SECS: u64 = 86_400;

/// For senders without a preset. The source must set `verify`.
pub(super) static GENERIC: Provider = Provider {
    name: "generic",
    samples: &[SampleEvent::json(
        "surehook.test",
        r#"{"id":"test_{{id}}","type":"surehook.test","created_at":"{{now_iso}}","data":{"text":"A test event of surehook send-test","amount":4200,"currency":"BRL"}}"#,
    )],
    ..Provider::DEFAULT
};

macro_rules! linear_sample {
    ($thing:literal, $action:literal) => {
        SampleEvent::new(
            concat!($thing, ".", $action),
            &[
                ("content-type", "application/json; charset=utf-8"),
                ("user-agent", "Linear-Webhook"),
                ("linear-delivery", "{{uuid}}"),
                ("linear-event", $thing),
                ("linear-timestamp", "{{now_ms}}"),
            ],
            include_str!(concat!("samples/linear.", $thing, ".", $action, ".json")),
        )
    };
}

/// Linear: signed over the raw body, which contains the time of sending; the delivery id is in a header.
///
/// It is undocumented whether `webhookTimestamp` is renewed when Linear retries after one and six
/// hours, so older ones are refused only after the last retry.
pub(super) static LINEAR: Provider = Provider {
    name: "linear",
    verifier: |secrets| {
        let spec = HmacSpec::new("linear-signature");
        let pointer = &LINEAR_TIMESTAMP;
        Verifier::hmac_with_body_timestamp(&spec, &secrets, pointer, LINEAR_MAX_AGE)
    },
    signature_headers: &["linear-signature"],
    // It may be renewed when Linear retries.
    retry_members: &["webhookTimestamp"],
    // The last of three attempts comes seven hours after the first.
    dedup_window: HumanDuration::from_secs(DAY_SECS),
    parse_request: |request, _| LINEAR_EVENT.parse(request),
    samples: &[
        linear_sample!("Issue", "create"),
        linear_sample!("Issue", "update"),
        linear_sample!("Comment", "create"),
    ],
    ..Provider::DEFAULT
};

/// The last of three attempts comes seven hours after the first.
const LINEAR_MAX_AGE: Duration = Duration::from_secs(12 * 3600);
static LINEAR_TIMESTAMP: LazyLock<JsonPointer> =
    LazyLock::new(|| "/webhookTimestamp".parse().expect("a JSON pointer"));

/// `webhookId` is not used: it is the same in all events of a webhook.
static LINEAR_EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/type}.{/action}", "{/type|linear-event}"],
    key: &["linear:{linear-delivery}"],
    key_label: "linear:linear-delivery",
    ordering_key: &["{/data/id}"],
    attributes: &[
        (Object, &["/data/id", "/data/identifier", "/data/issueId"]),
        (User, &["/actor/id"]),
        (Email, &["/actor/email"]),
        (Account, &["/organizationId"]),
    ],
    ..EventTemplate::EMPTY
});

macro_rules! shopify_sample {
    ($topic:literal, $file:literal) => {
        SampleEvent::new(
            $topic,
            &[
                ("content-type", "application/json"),
                ("x-shopify-topic", $topic),
                ("x-shopify-shop-domain", "loja.myshopify.com"),
                ("x-shopify-api-version", "2026-04"),
                ("x-shopify-webhook-id", "{{uuid}}"),
                ("x-shopify-event-id", "98880550-7158-44d4-b7cd-2c97c8a091b5"),
                ("x-shopify-triggered-at", "{{now_iso}}"),
                ("x-shopify-test", "true"),
            ],
            include_str!(concat!("samples/shopify.", $file, ".json")),
        )
    };
}

/// Shopify: signed over the raw body, in base64; topic and ids are in headers.
pub(super) static SHOPIFY: Provider = Provider {
    name: "shopify",
    verifier: |secrets| {
        let encoding = SignatureEncoding::Base64;
        Verifier::hmac(HmacSpec { encoding, ..HmacSpec::new("x-shopify-hmac-sha256") }, secrets)
    },
    signature_headers: &["x-shopify-hmac-sha256"],
    // A payload may have 5 MiB.
    max_body_bytes: Some(5 * 1024 * 1024),
    // Eight attempts in four hours; older API versions retry for two days.
    dedup_window: HumanDuration::from_secs(3 * DAY_SECS),
    parse_request: |request, _| SHOPIFY_EVENT.parse(request),
    samples: &[
        shopify_sample!("orders/create", "orders_create"),
        shopify_sample!("orders/paid", "orders_paid"),
        shopify_sample!("refunds/create", "refunds_create"),
        shopify_sample!("customers/create", "customers_create"),
        shopify_sample!("inventory_levels/update", "inventory_levels_update"),
        shopify_sample!("app/uninstalled", "app_uninstalled"),
    ],
    ..Provider::DEFAULT
};

/// `X-Shopify-Event-Id` is not a key: all topics caused by one action share it. Ids keep their spelling:
/// some are too large for a floating-point number.
static SHOPIFY_EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{x-shopify-topic}"],
    key: &["shopify:{x-shopify-shop-domain}:{x-shopify-webhook-id}"],
    key_label: "shopify:x-shopify-webhook-id",
    ordering_key: &["{x-shopify-shop-domain}:{/id|/inventory_item_id|/customer/id}"],
    attributes: &[
        (Object, &["/id", "/inventory_item_id", "/order_id", "/order_number"]),
        (User, &["/customer/id"]),
        (Email, &["/email", "/customer/email"]),
        (Phone, &["/phone", "/customer/phone"]),
        (ProviderStatus, &["/financial_status"]),
        (Account, &["x-shopify-shop-domain"]),
    ],
    ..EventTemplate::EMPTY
});

/// Square: HMAC over the body and the URL, exactly as configured in the subscription.
pub(super) static SQUARE: Provider = Provider {
    name: "square",
    verifier: |secrets| {
        let spec = HmacSpec {
            template: "{url}{body}".to_owned(),
            encoding: SignatureEncoding::Base64,
            ..HmacSpec::new("x-square-hmacsha256-signature")
        };
        Verifier::hmac(spec, secrets)
    },
    signature_headers: &["x-square-hmacsha256-signature"],
    // Square retries for a day.
    dedup_window: HumanDuration::from_secs(3 * DAY_SECS),
    parse_request: |request, _| SQUARE_EVENT.parse(request),
    samples: &[
        square_sample(
            "payment.updated",
            r#"{"merchant_id":"6SSW7HV8K2ST5","type":"payment.updated","event_id":"{{uuid}}","created_at":"{{now_iso}}","data":{"type":"payment","id":"pay{{id}}","object":{"payment":{"id":"pay{{id}}","status":"COMPLETED","order_id":"order{{id}}","amount_money":{"amount":4200,"currency":"USD"}}}}}"#,
        ),
        square_sample(
            "refund.updated",
            r#"{"merchant_id":"6SSW7HV8K2ST5","type":"refund.updated","event_id":"{{uuid}}","created_at":"{{now_iso}}","data":{"type":"refund","id":"refund{{id}}","object":{"refund":{"id":"refund{{id}}","payment_id":"pay{{id}}","status":"COMPLETED","amount_money":{"amount":4200,"currency":"USD"}}}}}"#,
        ),
        square_sample(
            "order.updated",
            r#"{"merchant_id":"6SSW7HV8K2ST5","type":"order.updated","event_id":"{{uuid}}","created_at":"{{now_iso}}","data":{"type":"order_updated","id":"order{{id}}","object":{"order_updated":{"order_id":"order{{id}}","state":"OPEN","version":2}}}}"#,
        ),
    ],
    ..Provider::DEFAULT
};

/// The object is nested under the name of its type.
static SQUARE_EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/type}"],
    key: &["square:{/merchant_id}:{/event_id}"],
    key_label: "square:event_id",
    ordering_key: &["{/data/id}"],
    attributes: &[
        (Account, &["/merchant_id"]),
        (Object, &["/data/id"]),
        (Object, &["/data/object/payment/order_id", "/data/object/refund/payment_id"]),
        (ProviderStatus, &["/data/object/payment/status", "/data/object/refund/status"]),
        (ProviderStatus, &["/data/object/invoice/status", "/data/object/order_updated/state"]),
        (User, &["/data/object/payment/customer_id"]),
    ],
    ..EventTemplate::EMPTY
});

const fn square_sample(kind: &'static str, body: &'static str) -> SampleEvent {
    let headers = &[("content-type", "application/json"), ("square-environment", "Production")];
    SampleEvent::new(kind, headers, body)
}

/// Stripe: timestamp and signatures in one header; events have an id.
pub(super) static STRIPE: Provider = Provider {
    name: "stripe",
    // The key is the whole text `whsec_…`, unlike with Standard Webhooks. Any of several `v1`
    // signatures may match; `v0` is only for Stripe's tests and is ignored.
    verifier: |secrets| {
        let spec = HmacSpec {
            template: "{timestamp}.{body}".to_owned(),
            signature_param: Some("v1".to_owned()),
            timestamp_param: Some("t".to_owned()),
            ..HmacSpec::new("stripe-signature")
        };
        Verifier::hmac(spec, secrets)
    },
    signature_headers: &["stripe-signature"],
    // Stripe retries for three days.
    dedup_window: HumanDuration::from_secs(4 * DAY_SECS),
    parse_request: |request, _| STRIPE_EVENT.parse(request),
    samples: &[
        sample!(JSON_UTF8, "payment_intent.succeeded", "stripe.payment_intent.succeeded.json"),
        sample!(
            JSON_UTF8,
            "payment_intent.payment_failed",
            "stripe.payment_intent.payment_failed.json"
        ),
        sample!(JSON_UTF8, "checkout.session.completed", "stripe.checkout.session.completed.json"),
        sample!(JSON_UTF8, "invoice.paid", "stripe.invoice.paid.json"),
        sample!(
            JSON_UTF8,
            "customer.subscription.deleted",
            "stripe.customer.subscription.deleted.json"
        ),
        sample!(JSON_UTF8, "charge.refunded", "stripe.charge.refunded.json"),
    ],
    ..Provider::DEFAULT
};

/// A thin event has only the id of its object.
static STRIPE_EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/type}"],
    key: &["stripe:{/id}"],
    key_label: "stripe:id",
    ordering_key: &["{/data/object/id|/related_object/id}"],
    attributes: &[
        (Object, &["/data/object/id", "/related_object/id", "/data/object/payment_intent"]),
        (Account, &["/account"]),
        (ProviderStatus, &["/data/object/status"]),
        (User, &["/data/object/customer"]),
        (Email, &["/data/object/customer_email", "/data/object/receipt_email"]),
        (Email, &["/data/object/customer_details/email", "/data/object/email"]),
        (Error, &["/data/object/last_payment_error/code"]),
    ],
    ..EventTemplate::EMPTY
});

/// Typeform: like GitHub's signature, but in base64.
pub(super) static TYPEFORM: Provider = Provider {
    name: "typeform",
    verifier: |secrets| {
        let spec = HmacSpec {
            prefix: "sha256=".to_owned(),
            encoding: SignatureEncoding::Base64,
            ..HmacSpec::new("typeform-signature")
        };
        Verifier::hmac(spec, secrets)
    },
    signature_headers: &["typeform-signature"],
    // Typeform retries for ten hours.
    dedup_window: HumanDuration::from_secs(2 * DAY_SECS),
    parse_request: |request, _| TYPEFORM_EVENT.parse(request),
    samples: &[sample!(JSON, "form_response", "typeform.form_response.json")],
    ..Provider::DEFAULT
};

static TYPEFORM_EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/event_type}"],
    key: &["typeform:{/event_id}"],
    key_label: "typeform:event_id",
    ordering_key: &["{/form_response/form_id}"],
    attributes: &[
        (Account, &["/form_response/form_id"]),
        (Object, &["/form_response/token"]),
        (Email, &["/form_response/hidden/email"]),
        (User, &["/form_response/hidden/user_id"]),
    ],
    ..EventTemplate::EMPTY
});

/// n8n: does not sign by itself. This verifies workflows that sign with a Crypto node; for a static
/// header the source must set `verify`.
pub(super) static N8N: Provider = Provider {
    name: "n8n",
    verifier: |secrets| Verifier::hmac(default_signature(), secrets),
    signature_headers: SIGNATURE_HEADERS,
    parse_request: |request, _| parse_by_rules(&N8N_EVENT, request),
    key_rules: N8N_KEYS,
    // The workflow's author sets the header; the Crypto node signs the body alone.
    has_unsigned_id: true,
    // Workflows send equal bodies again, for example on a schedule.
    replay_guard: false,
    samples: &[SampleEvent::new(
        "order.shipped",
        &[("content-type", "application/json"), ("user-agent", "n8n")],
        r#"{"idempotency_key":"wf-{{id}}","event":"order.shipped","data":{"number":"{{phone}}","text":"Your order {{number}} is on its way"}}"#,
    )],
    ..Provider::DEFAULT
};

static N8N_EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/event|/event_type|/type}"],
    attributes: &[
        (MessageId, &["/messageId", "/data/messageId"]),
        (Phone, &["/number", "/data/number"]),
    ],
    ..EventTemplate::EMPTY
});

/// Explicit keys only. `/id` is often that of a customer or row, whose changes would look like
/// duplicates.
const N8N_KEYS: &[&str] = &[
    "header:idempotency-key",
    "header:webhook-id",
    "header:x-event-id",
    "pointer:/idempotency_key",
    "pointer:/data/idempotency_key",
    "pointer:/event_id",
    "pointer:/messageId",
    "pointer:/data/messageId",
];

/// `EvoNexus` triggers: signed over the body; keys are read from the same fields as its own receiver.
pub(super) static EVONEXUS: Provider = Provider {
    name: "evonexus",
    verifier: |secrets| Verifier::hmac(default_signature(), secrets),
    signature_headers: SIGNATURE_HEADERS,
    parse_request: |request, _| parse_by_rules(&EVONEXUS_EVENT, request),
    key_rules: EVONEXUS_KEYS,
    samples: &[
        SampleEvent::json(
            "whatsapp.message",
            r#"{"event_type":"whatsapp.message","data":{"messageId":"3EB0{{id}}","from":"{{phone}}","text":"/status","timestamp":{{now}}}}"#,
        ),
        SampleEvent::json(
            "trigger.test",
            r#"{"event":"trigger.test","idempotency_key":"test-{{id}}","data":{"action":"status"}}"#,
        ),
    ],
    ..Provider::DEFAULT
};

static EVONEXUS_EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/event_type|/event}"],
    attributes: &[
        (MessageId, &["/messageId", "/data/messageId"]),
        (Phone, &["/number", "/data/number", "/data/from"]),
    ],
    ..EventTemplate::EMPTY
});

/// The explicit header first, then the order of its own receiver.
const EVONEXUS_KEYS: &[&str] = &[
    "header:idempotency-key",
    "pointer:/idempotency_key",
    "pointer:/messageId",
    "pointer:/data/messageId",
    "pointer:/data/idempotency_key",
];

/// One event whose key is found by the rules of the preset.
fn parse_by_rules(reader: &'static EventReader, request: &IncomingRequest<'_>) -> ParsedRequest {
    let event = reader.read(request).event();
    ParsedRequest::single(EventPart { key: EventKey::Rules, ..event })
}

const SIGNATURE_HEADERS: &[&str] = &["x-webhook-signature", "x-signature"];

/// SHA-256 over the body in hex, in either header, with or without `sha256=`.
fn default_signature() -> HmacSpec {
    let names = SIGNATURE_HEADERS.iter().map(|name| (*name).to_owned()).collect();
    HmacSpec {
        header: HeaderNames::Several(names),
        prefix: "sha256=".to_owned(),
        prefix_optional: true,
        ..HmacSpec::new("x-webhook-signature")
    }
}
