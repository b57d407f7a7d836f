//! Deserializers for struct fields that accept only objects (`deserialize_with`).
//!
//! serde also reads a list as a struct, its items in the order in which the fields are declared.
//! `"filter": []` would then be a filter that matches everything, and adding a field in the middle
//! would change the meaning of existing settings.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

pub fn required<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_map(ObjectVisitor(PhantomData))
}

/// An object or null.
pub fn optional<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<ObjectOnly<T>>::deserialize(from)?.map(|ObjectOnly(value)| value))
}

/// A list of objects.
pub fn each<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Vec::<ObjectOnly<T>>::deserialize(from)?
        .into_iter()
        .map(|ObjectOnly(value)| value)
        .collect())
}

/// Deserializes from an object only.
struct ObjectOnly<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ObjectOnly<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        required(from).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{destination::DestinationSpec, source::SourceSpec};

    fn reads<T: serde::de::DeserializeOwned>(base: &Value, field: &str, value: &Value) -> bool {
        let mut written = base.clone();
        written[field] = value.clone();
        // From text: deserializing from a `Value` is stricter.
        serde_json::from_str::<T>(&written.to_string()).is_ok()
    }

    #[test]
    fn list_is_rejected_where_an_object_is_expected() {
        let destination = json!({ "name": "out", "url": "https://example.com" });
        let oauth2 =
            json!({ "token_url": "https://id.test", "client_id": "i", "client_secret": "s" });
        let cases = [
            ("retry", json!({ "max_attempts": 3 }), json!([3])),
            ("circuit", json!({ "failures": 3 }), json!([3])),
            ("order", json!({ "key": "/id" }), json!(["/id"])),
            ("tls", json!({ "ca_only": false }), json!([null, false])),
            ("rules", json!([{ "status": 409, "then": "dead" }]), json!([[409, "dead"]])),
            (
                "auth",
                json!({ "oauth2": oauth2 }),
                json!({ "oauth2": ["https://id.test", "i", "s"] }),
            ),
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
}
