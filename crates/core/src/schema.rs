//! JSON schemas of types with a custom text form.
//!
//! All other types derive their schema from the declaration that serde uses, so that the API document
//! always matches the code.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{
    attribute::{AttributeName, Attributes, EventKind, KIND_BYTES_MAX},
    delivery::retry::StatusRange,
    destination::{
        send_limits::{QuietHours, UtcOffset},
        tls::PemRef,
    },
    ids::{Id, IdKind},
    lane::Rate,
    name::Name,
    replay::{ReplayRate, StatusPattern},
    secret::SecretRef,
    time::{HumanDuration, Timestamp},
};

impl JsonSchema for Name {
    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "The name of a source or destination.",
            "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$",
        })
    }
}

impl JsonSchema for HumanDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A duration: a whole number and ms, s, m, h or d.",
            "pattern": "^[0-9]+(ms|s|m|h|d)$",
            "examples": ["250ms", "30s", "8d"],
        })
    }
}

impl JsonSchema for QuietHours {
    fn schema_name() -> Cow<'static, str> {
        "QuietHours".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Daily hours; the end may be on the next day and must differ from the beginning.",
            "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$",
            "examples": ["22:00-08:00"],
        })
    }
}

impl JsonSchema for UtcOffset {
    fn schema_name() -> Cow<'static, str> {
        "UtcOffset".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "How far local time is ahead of UTC, all year.",
            "pattern": "^[+-](0[0-9]:[0-5][0-9]|1[0-3]:[0-5][0-9]|14:00)$",
            "examples": ["-03:00"],
        })
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "date-time",
            "description": "RFC 3339; the answers are in UTC with milliseconds.",
            "examples": ["2026-11-15T08:00:00.123Z"],
        })
    }
}

impl<K: IdKind> JsonSchema for Id<K> {
    fn schema_name() -> Cow<'static, str> {
        K::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A prefix and 26 characters of base32; ids sort by creation time.",
            "pattern": format!("^{}_[0-7][0-9a-hjkmnp-tv-z]{{25}}$", K::PREFIX),
        })
    }
}

impl JsonSchema for SecretRef {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 1,
            "description": "A secret, or `env:NAME` to take it from the environment. Answers show a literal one as `•••`.",
        })
    }
}

impl JsonSchema for PemRef {
    fn schema_name() -> Cow<'static, str> {
        "Pem".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 1,
            "description": "PEM text, `env:NAME` or `file:/path`. Answers show a literal key as `•••`.",
        })
    }
}

impl JsonSchema for Rate {
    fn schema_name() -> Cow<'static, str> {
        "Rate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Maximum number of attempts per second, minute or hour, and how many may start at once.",
            "pattern": "^([1-9][0-9]{0,5}|1000000)/[smh]( burst ([1-9][0-9]{0,5}|1000000))?$",
            "examples": ["50/s", "100/m burst 10"],
        })
    }
}

impl JsonSchema for ReplayRate {
    fn schema_name() -> Cow<'static, str> {
        "ReplayRate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Number of deliveries a job creates per second, minute or hour; at most 1000/s.",
            "pattern": "^[1-9][0-9]{0,6}/[smh]$",
            "examples": ["50/s"],
        })
    }
}

impl JsonSchema for EventKind {
    fn schema_name() -> Cow<'static, str> {
        "EventKind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "The event type, as the provider names it.",
            "minLength": 1,
            "maxLength": KIND_BYTES_MAX,
            "examples": ["message", "payment_intent.succeeded"],
        })
    }
}

impl JsonSchema for Attributes {
    fn schema_name() -> Cow<'static, str> {
        "Attributes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let values =
            json_schema!({ "type": "array", "minItems": 1, "items": { "type": "string" } });
        let names =
            AttributeName::ALL.map(|name| (name.as_str().to_owned(), values.clone().to_value()));
        json_schema!({
            "type": "object",
            "description": "Searchable attributes: names, each with its values.",
            "properties": serde_json::Map::from_iter(names),
            "additionalProperties": false,
            "examples": [{ "message_id": ["wamid.A"], "phone": ["5511987654321"] }],
        })
    }
}

/// A status as a number, or a pattern as text.
fn status_schema(description: &str, pattern: &str) -> Schema {
    json_schema!({
        "description": description,
        "anyOf": [
            { "type": "integer", "minimum": 100, "maximum": 999 },
            { "type": "string", "pattern": pattern },
        ],
    })
}

impl JsonSchema for StatusRange {
    fn schema_name() -> Cow<'static, str> {
        "StatusRange".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pattern = "^([1-9]xx|[1-9][0-9]{2}( ?- ?[1-9][0-9]{2})?)$";
        status_schema(
            "A status, `5xx` for a whole class, or `500-503`. Answers show a string.",
            pattern,
        )
    }
}

impl JsonSchema for StatusPattern {
    fn schema_name() -> Cow<'static, str> {
        "StatusPattern".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pattern = "^([1-9]xx|[1-9][0-9]{2})$";
        status_schema("A status, or `5xx` for a whole class. Answers show a string.", pattern)
    }
}

#[cfg(test)]
mod tests {
    use crate::{destination::DestinationSpec, source::SourceSpec};

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
}
