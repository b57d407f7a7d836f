//! Providers that are described by data alone: a signature, and one event per request.

#[cfg(test)]
mod tests;

use std::{sync::LazyLock, time::Duration};

use surehook_types::time::HumanDuration;

use super::{
    BODY_BYTES_CEILING, EventKey, EventPart, HandshakeKind, JSON, JSON_UTF8, ParsedRequest,
    Provider, RefusalPolicy, SampleEvent, answer_head,
    fields::{EventReader, EventTemplate},
};
use crate::{
    attribute::AttributeName::{
        Account, Conversation, Email, Error, MessageId, Object, Phone, ProviderStatus, User,
    },
    key::JsonPointer,
    request::IncomingRequest,
    verify::{HeaderNames, HmacAlgorithm, HmacSpec, SignatureEncoding, Verifier},
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

/// Docusign Connect: a signature in base64 for each HMAC key of the account, each in a header of its own.
// https://developers.docusign.com/platform/webhooks/connect/validate
pub(super) static DOCUSIGN: Provider = Provider {
    name: "docusign",
    // The key is the text that Docusign shows, not what it decodes to.
    verifier: |secrets| {
        let names = DOCUSIGN_SIGNATURES.iter().map(|name| (*name).to_owned()).collect();
        let spec = HmacSpec {
            header: HeaderNames::Several(names),
            encoding: SignatureEncoding::Base64,
            ..HmacSpec::new(DOCUSIGN_SIGNATURES[0])
        };
        Verifier::hmac_in_any_header(&spec, &secrets)
    },
    signature_headers: DOCUSIGN_SIGNATURES,
    retry_members: &["retryCount"],
    // Documents may be part of the body.
    max_body_bytes: Some(BODY_BYTES_CEILING),
    // Docusign retries for days; the schedule depends on the account.
    dedup_window: HumanDuration::from_secs(16 * DAY_SECS),
    parse_request: |request, _| DOCUSIGN_EVENT.parse(request),
    samples: &[
        docusign_sample(
            "envelope-completed",
            r#"{"event":"envelope-completed","apiVersion":"v2.1","uri":"/restapi/v2.1/accounts/61fc0ef2-3d72-4a4b-9f8a-6b1d7b1e1a52/envelopes/{{uuid}}","retryCount":0,"configurationId":10418598,"generatedDateTime":"{{now_iso}}","data":{"accountId":"61fc0ef2-3d72-4a4b-9f8a-6b1d7b1e1a52","userId":"0d47dfb2-2f23-4d4e-ae29-6c5a2a2a9f16","envelopeId":"{{uuid}}","envelopeSummary":{"status":"completed","emailSubject":"Contract","envelopeId":"{{uuid}}","sender":{"userName":"Ana Souza","email":"ana.souza@example.com"}}}}"#,
        ),
        docusign_sample(
            "recipient-completed",
            r#"{"event":"recipient-completed","apiVersion":"v2.1","uri":"/restapi/v2.1/accounts/61fc0ef2-3d72-4a4b-9f8a-6b1d7b1e1a52/envelopes/{{uuid}}","retryCount":0,"configurationId":10418598,"generatedDateTime":"{{now_iso}}","data":{"accountId":"61fc0ef2-3d72-4a4b-9f8a-6b1d7b1e1a52","userId":"0d47dfb2-2f23-4d4e-ae29-6c5a2a2a9f16","envelopeId":"{{uuid}}","recipientId":"1"}}"#,
        ),
    ],
    ..Provider::DEFAULT
};

/// Docusign numbers them; an account with more than ten keys in use is not expected.
const DOCUSIGN_SIGNATURES: &[&str] = &[
    "x-docusign-signature-1",
    "x-docusign-signature-2",
    "x-docusign-signature-3",
    "x-docusign-signature-4",
    "x-docusign-signature-5",
    "x-docusign-signature-6",
    "x-docusign-signature-7",
    "x-docusign-signature-8",
    "x-docusign-signature-9",
    "x-docusign-signature-10",
];

/// Messages have no id. An event may happen twice, so its time is part of the key.
static DOCUSIGN_EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/event}"],
    key: &["docusign:{/configurationId|-}:{/data/envelopeId}:{/event}:{/data/recipientId|-}\
            :{/generatedDateTime}"],
    key_label: "docusign:envelopeId:event:time",
    ordering_key: &["{/data/envelopeId}"],
    attributes: &[
        (Object, &["/data/envelopeId"]),
        (ProviderStatus, &["/data/envelopeSummary/status"]),
        (Email, &["/data/envelopeSummary/sender/email"]),
        (User, &["/data/userId"]),
        (Account, &["/data/accountId"]),
    ],
    ..EventTemplate::EMPTY
});

const fn docusign_sample(kind: &'static str, body: &'static str) -> SampleEvent {
    let headers = &[("content-type", "application/json"), ("x-authorization-digest", "HMACSHA256")];
    SampleEvent::new(kind, headers, body)
}

/// Intercom: SHA-1 over the body, by the client secret of the app.
// https://developers.intercom.com/docs/webhooks/setting-up-webhooks
pub(super) static INTERCOM: Provider = Provider {
    name: "intercom",
    verifier: |secrets| {
        let spec = HmacSpec {
            prefix: "sha1=".to_owned(),
            algorithm: HmacAlgorithm::Sha1,
            ..HmacSpec::new("x-hub-signature")
        };
        Verifier::hmac(spec, secrets)
    },
    signature_headers: &["x-hub-signature"],
    retry_members: &["delivery_attempts", "delivery_status", "delivered_at", "first_sent_at"],
    // Throttled notifications are delayed by up to two hours; a subscription is suspended after a week.
    dedup_window: HumanDuration::from_secs(8 * DAY_SECS),
    // One retry.
    on_refusal: RefusalPolicy::Keep,
    handshake: HandshakeKind::Automatic,
    answer_handshake: answer_head,
    parse_request: |request, _| {
        let found = INTERCOM_EVENT.read(request);
        let is_ping = found.get("/topic") == Some("ping");
        ParsedRequest::single(EventPart { is_ping, ..found.event() })
    },
    samples: &[
        SampleEvent::json(
            "conversation.user.created",
            r#"{"type":"notification_event","app_id":"a86dr8yl","data":{"type":"notification_event_data","item":{"type":"conversation","id":"1{{number}}","state":"open","source":{"type":"conversation","body":"<p>Is it still there?</p>","author":{"type":"user","id":"5ba682d2","email":"ana.souza@example.com"}}}},"id":"notif_{{uuid}}","topic":"conversation.user.created","delivery_status":"pending","delivery_attempts":1,"delivered_at":0,"first_sent_at":{{now}},"created_at":{{now}}}"#,
        ),
        SampleEvent::json(
            "contact.user.created",
            r#"{"type":"notification_event","app_id":"a86dr8yl","data":{"type":"notification_event_data","item":{"type":"contact","id":"66{{id}}","role":"user","email":"ana.souza@example.com","phone":"+{{phone}}"}},"id":"notif_{{uuid}}","topic":"contact.user.created","delivery_status":"pending","delivery_attempts":1,"delivered_at":0,"first_sent_at":{{now}},"created_at":{{now}}}"#,
        ),
        SampleEvent::json(
            "ping",
            r#"{"type":"notification_event","app_id":"a86dr8yl","data":{"type":"notification_event_data","item":{"type":"ping","message":"something something interzen"}},"id":null,"topic":"ping","delivery_status":null,"delivery_attempts":1,"delivered_at":0,"first_sent_at":{{now}},"created_at":{{now}}}"#,
        ),
    ],
    ..Provider::DEFAULT
};

static INTERCOM_EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/topic}"],
    key: &["intercom:{/app_id}:{/id}"],
    key_label: "intercom:id",
    ordering_key: &["{/data/item/id}"],
    attributes: &[
        (Account, &["/app_id"]),
        (Object, &["/data/item/id"]),
        (Conversation, &["/data/item/conversation_id"]),
        (Email, &["/data/item/email", "/data/item/source/author/email"]),
        (Phone, &["/data/item/phone"]),
        (User, &["/data/item/external_id", "/data/item/source/author/id"]),
        (ProviderStatus, &["/data/item/state"]),
    ],
    ..EventTemplate::EMPTY
});

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

macro_rules! sentry_sample {
    ($resource:literal, $action:literal, $body:literal) => {
        SampleEvent::new(
            concat!($resource, ".", $action),
            &[
                ("content-type", "application/json"),
                ("request-id", "{{id}}"),
                ("sentry-hook-resource", $resource),
                ("sentry-hook-timestamp", "{{now}}"),
            ],
            $body,
        )
    };
}

/// Sentry's integration platform: signed over the body by the client secret; resource, request id and time
/// are in headers that are not signed.
// https://docs.sentry.io/organization/integrations/integration-platform/webhooks/
pub(super) static SENTRY: Provider = Provider {
    name: "sentry",
    verifier: |secrets| Verifier::hmac(HmacSpec::new("sentry-hook-signature"), secrets),
    signature_headers: &["sentry-hook-signature"],
    // A request that timed out is sent again under another request id: the replay guard recognizes it.
    dedup_window: HumanDuration::from_secs(DAY_SECS),
    parse_request: |request, _| SENTRY_EVENT.parse(request),
    samples: &[
        sentry_sample!(
            "issue",
            "created",
            r#"{"action":"created","installation":{"uuid":"7a485448-a9e2-4c85-8a3c-4f44175783c9"},"data":{"issue":{"id":"1{{number}}","shortId":"LOJA-{{number}}","title":"TypeError: undefined is not a function","level":"error","status":"unresolved","project":{"id":"1","slug":"loja"}}},"actor":{"type":"application","id":"sentry","name":"Sentry"}}"#
        ),
        sentry_sample!(
            "issue",
            "resolved",
            r#"{"action":"resolved","installation":{"uuid":"7a485448-a9e2-4c85-8a3c-4f44175783c9"},"data":{"issue":{"id":"1{{number}}","shortId":"LOJA-{{number}}","title":"TypeError: undefined is not a function","level":"error","status":"resolved","project":{"id":"1","slug":"loja"}}},"actor":{"type":"user","id":789,"name":"Ana Souza"}}"#
        ),
        sentry_sample!(
            "event_alert",
            "triggered",
            r#"{"action":"triggered","installation":{"uuid":"7a485448-a9e2-4c85-8a3c-4f44175783c9"},"data":{"event":{"event_id":"e4874d664c3540c1a32eab185f12c5ab","issue_id":"1{{number}}","level":"error","title":"TypeError: undefined is not a function"},"triggered_rule":"Very important alert rule"},"actor":{"type":"application","id":"sentry","name":"Sentry"}}"#
        ),
    ],
    ..Provider::DEFAULT
};

static SENTRY_EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{sentry-hook-resource}.{/action}", "{/action}"],
    key: &["sentry:{/installation/uuid|-}:{request-id}"],
    key_label: "sentry:request-id",
    ordering_key: &["{/data/issue/id|/data/event/issue_id|/data/error/issue_id|/data/issue_id}"],
    attributes: &[
        (Account, &["/installation/uuid"]),
        (Object, &["/data/issue/id", "/data/issue/shortId", "/data/event/issue_id"]),
        (Object, &["/data/event/event_id", "/data/error/event_id"]),
        (Object, &["/data/error/issue_id", "/data/issue_id"]),
        (ProviderStatus, &["/data/issue/status"]),
        (User, &["/actor/id"]),
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

/// Trello: SHA-1 over the body and the URL, exactly as it was registered.
// https://developer.atlassian.com/cloud/trello/guides/rest-api/webhooks/
pub(super) static TRELLO: Provider = Provider {
    name: "trello",
    verifier: |secrets| {
        let spec = HmacSpec {
            template: "{body}{url}".to_owned(),
            encoding: SignatureEncoding::Base64,
            algorithm: HmacAlgorithm::Sha1,
            ..HmacSpec::new("x-trello-webhook")
        };
        Verifier::hmac(spec, secrets)
    },
    signature_headers: &["x-trello-webhook"],
    dedup_window: HumanDuration::from_secs(DAY_SECS),
    // Three retries within minutes: a wrong secret must not lose events.
    on_refusal: RefusalPolicy::Keep,
    handshake: HandshakeKind::Automatic,
    answer_handshake: answer_head,
    parse_request: |request, _| TRELLO_EVENT.parse(request),
    samples: &[
        SampleEvent::json(
            "updateCard",
            r#"{"model":{"id":"4d5ea62fd76aa1136000000c","name":"Loja"},"action":{"id":"51f9424bcd6e0{{number}}","idMemberCreator":"4fc78a59a885233f4b349bd9","type":"updateCard","date":"{{now_iso}}","data":{"board":{"name":"Loja","id":"4d5ea62fd76aa1136000000c"},"card":{"idShort":1458,"name":"Ship order","id":"51a79e72dbb7e23c7c00{{number}}","closed":true},"old":{"closed":false}}},"webhook":{"id":"63ae","idModel":"4d5ea62fd76aa1136000000c","active":true}}"#,
        ),
        SampleEvent::json(
            "commentCard",
            r#"{"model":{"id":"4d5ea62fd76aa1136000000c","name":"Loja"},"action":{"id":"51f9424bcd6e1{{number}}","idMemberCreator":"4fc78a59a885233f4b349bd9","type":"commentCard","date":"{{now_iso}}","data":{"board":{"name":"Loja","id":"4d5ea62fd76aa1136000000c"},"card":{"idShort":1458,"name":"Ship order","id":"51a79e72dbb7e23c7c00{{number}}"},"text":"On its way"}}}"#,
        ),
    ],
    ..Provider::DEFAULT
};

/// Several webhooks may report one action, each for its own model.
static TRELLO_EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/action/type}"],
    key: &["trello:{/model/id|-}:{/action/id}"],
    key_label: "trello:action",
    ordering_key: &["{/action/data/card/id|/action/data/board/id|/model/id}"],
    attributes: &[
        (Object, &["/action/data/card/id", "/action/data/board/id"]),
        (User, &["/action/idMemberCreator"]),
        (Account, &["/model/id"]),
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
