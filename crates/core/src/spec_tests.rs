//! Tests of rules that both sources and destinations follow in their settings.

use serde_json::{Value, json};

use crate::{destination::DestinationSpec, source::SourceSpec};

fn reads<T: serde::de::DeserializeOwned>(base: &Value, field: &str, value: &Value) -> bool {
    let mut spec = base.clone();
    spec[field] = value.clone();
    // From text: deserializing from a `Value` is stricter.
    serde_json::from_str::<T>(&spec.to_string()).is_ok()
}

#[test]
fn list_is_rejected_where_an_object_is_expected() {
    let destination = json!({ "name": "out", "url": "https://example.com" });
    let oauth2 = json!({ "token_url": "https://id.test", "client_id": "i", "client_secret": "s" });
    let cases = [
        ("retry", json!({ "max_attempts": 3 }), json!([3])),
        ("circuit", json!({ "failures": 3 }), json!([3])),
        ("order", json!({ "key": "/id" }), json!(["/id"])),
        ("tls", json!({ "ca_only": false }), json!([null, false])),
        ("rules", json!([{ "status": 409, "then": "dead" }]), json!([[409, "dead"]])),
        ("auth", json!({ "oauth2": oauth2 }), json!({ "oauth2": ["https://id.test", "i", "s"] })),
        (
            "auth",
            json!({ "basic": { "user": "u", "password": "p" } }),
            json!({ "basic": ["u", "p"] }),
        ),
    ];
    for (field, object, list) in cases {
        assert!(reads::<DestinationSpec>(&destination, field, &object), "case: {field}");
        assert!(!reads::<DestinationSpec>(&destination, field, &list), "case: {field}");
    }
    let source = json!({ "name": "in" });
    for (field, object, list) in [
        ("sync", json!({ "destination": "out" }), json!(["out"])),
        ("verify", json!({ "hmac": { "header": "x" } }), json!({ "hmac": ["x"] })),
        ("verify", json!({ "token": { "header": "x" } }), json!({ "token": ["x"] })),
        ("verify", json!({ "basic": { "user": "u" } }), json!({ "basic": ["u"] })),
    ] {
        assert!(reads::<SourceSpec>(&source, field, &object), "case: {field}");
        assert!(!reads::<SourceSpec>(&source, field, &list), "case: {field}");
    }
}

#[test]
fn spec_schemas_have_fields_and_bounds_and_reject_unknown_fields() {
    let schema = schemars::schema_for!(DestinationSpec).to_value();
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["required"], serde_json::json!(["name"]));
    assert_eq!(schema["properties"]["concurrency"]["maximum"], 1024);
    let schema = schemars::schema_for!(SourceSpec).to_value();
    assert_eq!(schema["properties"]["name"]["$ref"], "#/$defs/Name");
    assert_eq!(schema["properties"]["enabled"]["default"], true);
}
