//! Objects that are written as objects.
//!
//! serde also reads a list as a struct: its entries in the order in which the fields happen to be
//! declared. `"filter": []` would then be a filter that takes everything, and adding a field in the
//! middle would change what people wrote. These functions are for fields (`deserialize_with`) and
//! take nothing but an object.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};

struct Object<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// An object.
pub fn required<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_map(Object(PhantomData))
}

/// An object, or null.
pub fn optional<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Only<T>>::deserialize(from)?.map(|Only(value)| value))
}

/// A list of objects.
pub fn each<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Vec::<Only<T>>::deserialize(from)?.into_iter().map(|Only(value)| value).collect())
}

struct Only<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Only<T> {
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
        // Text is read with less care than a value.
        serde_json::from_str::<T>(&written.to_string()).is_ok()
    }

    #[test]
    fn a_list_is_no_object() {
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
