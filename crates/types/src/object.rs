//! Deserializers for settings that are an object (`deserialize_with`), or an object or a text.
//!
//! serde also reads a list as a struct, its items in the order in which the fields are declared.
//! `"filter": []` would then be a filter that matches everything, and adding a field in the middle
//! would change the meaning of existing settings.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer},
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

/// Reads an object.
pub fn required<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_map(ObjectVisitor(PhantomData))
}

/// Reads an object or null.
pub fn option<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<ObjectOnly<T>>::deserialize(from)?.map(|ObjectOnly(value)| value))
}

/// Reads a list of objects.
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

/// Reads `T` from a text, or from the object `O`. Unlike an untagged enum, it reports the errors of the
/// form that was used, and says for any other form what is `expected`.
struct TextOrObject<T, O> {
    expected: &'static str,
    types: PhantomData<(T, O)>,
}

impl<'de, T: From<String> + From<O>, O: Deserialize<'de>> Visitor<'de> for TextOrObject<T, O> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(T::from(text.to_owned())))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        O::deserialize(MapAccessDeserializer::new(map)).map(|object| Some(T::from(object)))
    }
}

/// Reads a text or an object.
pub fn or_text<'de, D, T, O>(from: D, expected: &'static str) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<String> + From<O>,
    O: Deserialize<'de>,
{
    option_or_text::<D, T, O>(from, expected)?
        .ok_or_else(|| Error::invalid_type(Unexpected::Unit, &expected))
}

/// Reads a text, an object or null.
pub fn option_or_text<'de, D, T, O>(from: D, expected: &'static str) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: From<String> + From<O>,
    O: Deserialize<'de>,
{
    from.deserialize_any(TextOrObject { expected, types: PhantomData::<(T, O)> })
}
