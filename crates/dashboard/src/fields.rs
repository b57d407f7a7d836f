//! Fields of a form about settings: what a spec says becomes what is typed, and back.
//!
//! A field knows its place in the spec, so that one table of fields makes a form, fills it and reads
//! it. What no field is about stays in the spec as it was.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// What was typed into a form.
pub(crate) type Typed = HashMap<String, String>;

/// How a field is filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// One line.
    Text,
    /// A whole number.
    Number,
    /// Yes or no.
    Check,
    /// One of these: what is written, and what people read.
    Choice(Vec<(String, String)>),
    /// A text for each line.
    Lines,
    /// A secret that is never shown; nothing typed leaves it as it is.
    Secret,
    /// The newest of several secrets; nothing typed leaves them as they are.
    Secrets,
}

/// A field of a form.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// Where it is in the spec, as a JSON pointer; empty where the page sees to it.
    at: &'static str,
    /// How the form calls it.
    pub(crate) name: String,
    pub(crate) label: &'static str,
    pub(crate) hint: &'static str,
    pub(crate) example: &'static str,
    pub(crate) control: Control,
    pub(crate) value: String,
    /// What is there now, where that is not what is in the field.
    pub(crate) now: Option<String>,
    pub(crate) required: bool,
}

impl Field {
    pub(crate) fn new(at: &'static str, label: &'static str, control: Control) -> Self {
        Self {
            at,
            name: at.trim_start_matches('/').replace('/', "."),
            label,
            hint: "",
            example: "",
            control,
            value: String::new(),
            now: None,
            required: false,
        }
    }

    /// A field that the page itself reads.
    pub(crate) fn own(name: &str, label: &'static str, control: Control) -> Self {
        Self { name: name.to_owned(), ..Self::new("", label, control) }
    }

    pub(crate) fn hint(self, hint: &'static str) -> Self {
        Self { hint, ..self }
    }

    pub(crate) fn example(self, example: &'static str) -> Self {
        Self { example, ..self }
    }

    pub(crate) fn required(self) -> Self {
        Self { required: true, ..self }
    }

    pub(crate) fn value(self, value: impl Into<String>) -> Self {
        Self { value: value.into(), ..self }
    }

    pub(crate) fn is_checked(&self) -> bool {
        self.value == "true"
    }

    pub(crate) fn is_secret(&self) -> bool {
        matches!(self.control, Control::Secret | Control::Secrets)
    }

    /// The kind of its `<input>`.
    pub(crate) fn kind(&self) -> &'static str {
        match self.control {
            Control::Number => "number",
            Control::Secret | Control::Secrets => "password",
            Control::Text | Control::Check | Control::Choice(_) | Control::Lines => "text",
        }
    }

    /// What the spec says, as it is typed.
    fn read(&self, spec: &Value) -> String {
        let Some(value) = spec.pointer(self.at) else { return String::new() };
        match (&self.control, value) {
            (Control::Lines, Value::Array(lines)) => {
                let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
                lines.join("\n")
            }
            (Control::Secrets, Value::Array(all)) => {
                let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
                all.join(", ")
            }
            (_, Value::String(text)) => text.clone(),
            (_, other) => other.to_string(),
        }
    }

    /// What is to be written; `None` leaves it out.
    fn write(&self, typed: &Typed, spec: &Value) -> Option<Value> {
        let text = typed.get(&self.name).map(|text| text.trim()).unwrap_or_default();
        let there = || spec.pointer(self.at).cloned();
        let own_numbers = there().filter(Value::is_object).map(|value| value.to_string());
        match &self.control {
            Control::Check => Some(Value::Bool(text == "true")),
            Control::Secret | Control::Secrets if text.is_empty() => there(),
            Control::Secrets => {
                let keeps = typed.get(&format!("{}.keep", self.name)).is_some();
                let old = there().filter(|_| keeps);
                let old = old.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
                Some([vec![Value::from(text)], old].concat().into())
            }
            _ if text.is_empty() => None,
            // What is no number is sent as it is: the gateway says what is wrong with it.
            Control::Number => Some(text.parse::<u64>().map_or_else(|_| text.into(), Value::from)),
            Control::Lines => {
                Some(text.lines().map(str::trim).filter(|line| !line.is_empty()).collect())
            }
            // Settings with numbers of their own look like JSON in a field, and stay what they are.
            _ if own_numbers.as_deref() == Some(text) => there(),
            Control::Text | Control::Choice(_) | Control::Secret => Some(text.into()),
        }
    }
}

/// Fills fields with what a spec says. A choice that is not among those offered is added to them.
pub(crate) fn fill(fields: &mut [Field], spec: &Value) {
    for field in fields.iter_mut().filter(|field| !field.at.is_empty()) {
        let value = field.read(spec);
        if field.is_secret() {
            // Shown beside the field, and the field stays empty.
            field.now = Some(value).filter(|value| !value.is_empty());
            continue;
        }
        if spec.pointer(field.at).is_some() {
            field.value = value;
        }
        offer(field);
    }
}

fn offer(field: &mut Field) {
    if let Control::Choice(choices) = &mut field.control
        && !choices.iter().any(|(value, _)| *value == field.value)
    {
        choices.push((field.value.clone(), field.value.clone()));
    }
}

/// Fills fields with what was typed; what differs from the spec says what is there. Secrets are not
/// sent back.
pub(crate) fn refill(fields: &mut [Field], typed: &Typed, there: Option<&Value>) {
    for field in fields {
        let before = std::mem::take(&mut field.value);
        if field.is_secret() {
            continue;
        }
        field.value = match (&field.control, typed.get(&field.name)) {
            (Control::Check, given) => given.is_some_and(|text| text == "true").to_string(),
            (_, Some(text)) => text.clone(),
            (_, None) => before.clone(),
        };
        let is_known = there.is_some() && !field.at.is_empty();
        field.now = (is_known && before != field.value).then_some(before);
        offer(field);
    }
}

/// Writes what was typed into a spec.
pub(crate) fn write(fields: &[Field], typed: &Typed, spec: &mut Value) {
    for field in fields.iter().filter(|field| !field.at.is_empty()) {
        let value = field.write(typed, spec);
        put(spec, field.at, value);
    }
}

/// Puts a value at a place, or takes it away with the objects that only it was in.
pub(crate) fn put(spec: &mut Value, at: &str, value: Option<Value>) {
    if !spec.is_object() {
        *spec = Map::new().into();
    }
    let Some(object) = spec.as_object_mut() else { return };
    let at = at.trim_start_matches('/');
    match (at.split_once('/'), value) {
        (None, Some(value)) => {
            object.insert(at.to_owned(), value);
        }
        (None, None) => {
            object.remove(at);
        }
        (Some((first, _)), None) if !object.contains_key(first) => {}
        (Some((first, rest)), value) => {
            let inner = object.entry(first).or_insert_with(|| Map::new().into());
            put(inner, rest, value);
            if inner.as_object().is_some_and(Map::is_empty) {
                object.remove(first);
            }
        }
    }
}

/// A spec as people edit it: without what the API says beside it.
pub(crate) fn bare(mut shown: Value) -> Value {
    if let Some(fields) = shown.as_object_mut() {
        for beside in ["id", "created_at", "updated_at", "state", "verified"] {
            fields.remove(beside);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn typed(pairs: &[(&str, &str)]) -> Typed {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn fields() -> Vec<Field> {
        vec![
            Field::new("/name", "Name", Control::Text),
            Field::new("/concurrency", "At once", Control::Number),
            Field::new("/retention/events", "Events", Control::Text),
            Field::new("/redact", "Redact", Control::Lines),
            Field::new("/enabled", "On", Control::Check),
            Field::new("/secrets", "Secrets", Control::Secrets),
            Field::new("/verify_token", "Token", Control::Secret),
        ]
    }

    #[test]
    fn what_is_typed_is_written_and_what_no_field_is_about_stays() {
        let there = json!({
            "name": "a", "retention": { "events": "1d", "bodies": "2h" }, "redact": ["x"],
            "secrets": ["•••"], "verify_token": "•••", "keys": ["jq:.a"], "enabled": true,
        });
        let cases = [
            (
                vec![
                    ("name", " b "),
                    ("concurrency", "3"),
                    ("redact", "cpf\r\n\r\nrg"),
                    ("enabled", "true"),
                ],
                json!({ "name": "b", "concurrency": 3, "redact": ["cpf", "rg"], "enabled": true,
                    "retention": { "bodies": "2h" }, "secrets": ["•••"], "verify_token": "•••",
                    "keys": ["jq:.a"] }),
            ),
            (
                vec![
                    ("name", "b"),
                    ("secrets", "new"),
                    ("secrets.keep", "true"),
                    ("concurrency", "many"),
                ],
                json!({ "name": "b", "concurrency": "many", "enabled": false,
                    "retention": { "bodies": "2h" }, "secrets": ["new", "•••"],
                    "verify_token": "•••", "keys": ["jq:.a"] }),
            ),
            (
                vec![("secrets", "new"), ("verify_token", "t"), ("retention.events", "3d")],
                json!({ "enabled": false, "retention": { "events": "3d", "bodies": "2h" },
                    "secrets": ["new"], "verify_token": "t", "keys": ["jq:.a"] }),
            ),
        ];
        for (pairs, expected) in cases {
            let mut spec = there.clone();
            write(&fields(), &typed(&pairs), &mut spec);
            assert_eq!(spec, expected, "case: {pairs:?}");
        }
    }

    #[test]
    fn a_form_that_is_filled_and_sent_changes_nothing() {
        let there = json!({
            "name": "a", "retention": { "events": "1d" }, "redact": ["x", "y"], "concurrency": 2,
            "secrets": ["•••", "env:B"], "verify_token": "•••", "enabled": true,
        });
        let mut filled = fields();
        fill(&mut filled, &there);
        let sent: Typed = filled.iter().map(|f| (f.name.clone(), f.value.clone())).collect();
        let mut spec = there.clone();
        write(&filled, &sent, &mut spec);
        assert_eq!(spec, there);
    }

    #[test]
    fn what_was_typed_is_kept_and_secrets_are_not() {
        let mut fields = fields();
        fill(&mut fields, &json!({ "name": "a", "secrets": ["env:A"], "enabled": true }));
        let given = typed(&[("name", "b"), ("secrets", "hunter2")]);
        refill(&mut fields, &given, Some(&Value::Null));
        assert_eq!((fields[0].value.as_str(), fields[0].now.as_deref()), ("b", Some("a")));
        assert!(fields[5].value.is_empty());
        assert!(!fields[4].is_checked());
    }

    #[test]
    fn objects_that_hold_nothing_any_more_go() {
        let mut spec = json!({ "a": { "b": { "c": 1 } }, "d": 2 });
        put(&mut spec, "/a/b/c", None);
        put(&mut spec, "/x/y", None);
        put(&mut spec, "/e/f", Some(json!(3)));
        assert_eq!(spec, json!({ "d": 2, "e": { "f": 3 } }));
    }
}
