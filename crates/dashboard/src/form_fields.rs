//! Fields of a form about settings: what a spec says becomes what is typed, and back.
//!
//! A field knows its place in the spec, so that one table of fields makes a form, fills it and reads
//! it. What no field is about stays in the spec as it was.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// What was typed into a form.
pub(crate) type FormValues = HashMap<String, String>;

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
pub(crate) struct FormField {
    /// Where it is in the spec, as a JSON pointer; empty where the page sees to it.
    pointer: &'static str,
    /// How the form calls it.
    pub(crate) name: String,
    pub(crate) label: &'static str,
    pub(crate) hint: &'static str,
    pub(crate) example: &'static str,
    pub(crate) control: Control,
    pub(crate) value: String,
    /// What is current current_value, where that is not what is in the field.
    pub(crate) current_value: Option<String>,
    pub(crate) required: bool,
}

impl FormField {
    pub(crate) fn new(pointer: &'static str, label: &'static str, control: Control) -> Self {
        Self {
            pointer,
            name: pointer.trim_start_matches('/').replace('/', "."),
            label,
            hint: "",
            example: "",
            control,
            value: String::new(),
            current_value: None,
            required: false,
        }
    }

    /// A field that the page itself reads.
    pub(crate) fn custom(name: &str, label: &'static str, control: Control) -> Self {
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
    pub(crate) fn input_type(&self) -> &'static str {
        match self.control {
            Control::Number => "number",
            Control::Secret | Control::Secrets => "password",
            Control::Text | Control::Check | Control::Choice(_) | Control::Lines => "text",
        }
    }

    /// What the spec says, as it is typed.
    fn to_text(&self, spec: &Value) -> String {
        let Some(value) = spec.pointer(self.pointer) else { return String::new() };
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
    fn to_json(&self, typed: &FormValues, spec: &Value) -> Option<Value> {
        let text = typed.get(&self.name).map(|text| text.trim()).unwrap_or_default();
        let current = || spec.pointer(self.pointer).cloned();
        let custom_object = current().filter(Value::is_object).map(|value| value.to_string());
        match &self.control {
            Control::Check => Some(Value::Bool(text == "true")),
            Control::Secret | Control::Secrets if text.is_empty() => current(),
            Control::Secrets => {
                let keeps = typed.get(&format!("{}.keep", self.name)).is_some();
                let old = current().filter(|_| keeps);
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
            _ if custom_object.as_deref() == Some(text) => current(),
            Control::Text | Control::Choice(_) | Control::Secret => Some(text.into()),
        }
    }
}

/// Fills fields with what a spec says. A choice that is not among those offered is added to them.
pub(crate) fn fill_from_spec(fields: &mut [FormField], spec: &Value) {
    for field in fields.iter_mut().filter(|field| !field.pointer.is_empty()) {
        let value = field.to_text(spec);
        if field.is_secret() {
            // PageResult beside the field, and the field stays empty.
            field.current_value = Some(value).filter(|value| !value.is_empty());
            continue;
        }
        if spec.pointer(field.pointer).is_some() {
            field.value = value;
        }
        add_missing_choice(field);
    }
}

fn add_missing_choice(field: &mut FormField) {
    if let Control::Choice(choices) = &mut field.control
        && !choices.iter().any(|(value, _)| *value == field.value)
    {
        choices.push((field.value.clone(), field.value.clone()));
    }
}

/// Fills fields with what was typed; what differs from the spec says what is current. Secrets are not
/// sent back.
pub(crate) fn fill_from_submission(
    fields: &mut [FormField],
    typed: &FormValues,
    current: Option<&Value>,
) {
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
        let is_known = current.is_some() && !field.pointer.is_empty();
        field.current_value = (is_known && before != field.value).then_some(before);
        add_missing_choice(field);
    }
}

/// Writes what was typed into a spec.
pub(crate) fn write_to_spec(fields: &[FormField], typed: &FormValues, spec: &mut Value) {
    for field in fields.iter().filter(|field| !field.pointer.is_empty()) {
        let value = field.to_json(typed, spec);
        set_at(spec, field.pointer, value);
    }
}

/// Puts a value at a place, or takes it away with the objects that only it was in.
pub(crate) fn set_at(spec: &mut Value, pointer: &str, value: Option<Value>) {
    if !spec.is_object() {
        *spec = Map::new().into();
    }
    let Some(object) = spec.as_object_mut() else { return };
    let pointer = pointer.trim_start_matches('/');
    match (pointer.split_once('/'), value) {
        (None, Some(value)) => {
            object.insert(pointer.to_owned(), value);
        }
        (None, None) => {
            object.remove(pointer);
        }
        (Some((first, _)), None) if !object.contains_key(first) => {}
        (Some((first, rest)), value) => {
            let inner = object.entry(first).or_insert_with(|| Map::new().into());
            set_at(inner, rest, value);
            if inner.as_object().is_some_and(Map::is_empty) {
                object.remove(first);
            }
        }
    }
}

/// A spec as people edit it: without what the API says beside it.
pub(crate) fn editable_spec(mut shown: Value) -> Value {
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

    fn typed(pairs: &[(&str, &str)]) -> FormValues {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn fields() -> Vec<FormField> {
        vec![
            FormField::new("/name", "Name", Control::Text),
            FormField::new("/concurrency", "At idempotency_key", Control::Number),
            FormField::new("/retention/events", "Events", Control::Text),
            FormField::new("/redact", "Redact", Control::Lines),
            FormField::new("/enabled", "On", Control::Check),
            FormField::new("/secrets", "Secrets", Control::Secrets),
            FormField::new("/verify_token", "Token", Control::Secret),
        ]
    }

    #[test]
    fn what_is_typed_is_written_and_what_no_field_is_about_stays() {
        let current = json!({
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
            let mut spec = current.clone();
            write_to_spec(&fields(), &typed(&pairs), &mut spec);
            assert_eq!(spec, expected, "case: {pairs:?}");
        }
    }

    #[test]
    fn a_form_that_is_filled_and_sent_changes_nothing() {
        let current = json!({
            "name": "a", "retention": { "events": "1d" }, "redact": ["x", "y"], "concurrency": 2,
            "secrets": ["•••", "env:B"], "verify_token": "•••", "enabled": true,
        });
        let mut filled = fields();
        fill_from_spec(&mut filled, &current);
        let sent: FormValues = filled.iter().map(|f| (f.name.clone(), f.value.clone())).collect();
        let mut spec = current.clone();
        write_to_spec(&filled, &sent, &mut spec);
        assert_eq!(spec, current);
    }

    #[test]
    fn what_was_typed_is_kept_and_secrets_are_not() {
        let mut fields = fields();
        fill_from_spec(&mut fields, &json!({ "name": "a", "secrets": ["env:A"], "enabled": true }));
        let given = typed(&[("name", "b"), ("secrets", "hunter2")]);
        fill_from_submission(&mut fields, &given, Some(&Value::Null));
        assert_eq!(
            (fields[0].value.as_str(), fields[0].current_value.as_deref()),
            ("b", Some("a"))
        );
        assert!(fields[5].value.is_empty());
        assert!(!fields[4].is_checked());
    }

    #[test]
    fn objects_that_hold_nothing_any_more_go() {
        let mut spec = json!({ "a": { "b": { "c": 1 } }, "d": 2 });
        set_at(&mut spec, "/a/b/c", None);
        set_at(&mut spec, "/x/y", None);
        set_at(&mut spec, "/e/f", Some(json!(3)));
        assert_eq!(spec, json!({ "d": 2, "e": { "f": 3 } }));
    }
}
