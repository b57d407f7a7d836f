//! Form fields for settings: converts a JSON spec to form values and back.
//!
//! Each field knows its JSON pointer, so one table of fields builds the form, fills it and reads it.
//! Parts of the spec without a field stay unchanged.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Submitted form values by field name.
pub(crate) type FormValues = HashMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Text,
    Number,
    Check,
    /// Value and label of each option.
    Choice(Vec<(String, String)>),
    /// A list of texts, one per line.
    Lines,
    /// Never shown. An empty value keeps the current secret.
    Secret,
    /// A new first secret. An empty value keeps the current ones.
    Secrets,
}

#[derive(Clone, Debug)]
pub(crate) struct FormField {
    /// JSON pointer in the spec; empty if the page handles the field itself.
    pointer: &'static str,
    /// Name of the `<input>`.
    pub(crate) name: String,
    pub(crate) label: &'static str,
    pub(crate) hint: &'static str,
    pub(crate) example: &'static str,
    pub(crate) control: Control,
    pub(crate) value: String,
    /// Shown beside the field if it differs from the value in the field.
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

    /// A field that the page itself reads and writes.
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

    /// The `type` of the `<input>`.
    pub(crate) fn input_type(&self) -> &'static str {
        match self.control {
            Control::Number => "number",
            Control::Secret | Control::Secrets => "password",
            Control::Text | Control::Check | Control::Choice(_) | Control::Lines => "text",
        }
    }

    /// The value in the spec as form text.
    fn to_text(&self, spec: &Value) -> String {
        let Some(value) = spec.pointer(self.pointer) else { return String::new() };
        match (&self.control, value) {
            (Control::Lines, Value::Array(lines)) => {
                let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
                lines.join("\n")
            }
            (Control::Secrets, Value::Array(secrets)) => {
                let secrets: Vec<&str> = secrets.iter().filter_map(Value::as_str).collect();
                secrets.join(", ")
            }
            (_, Value::String(text)) => text.clone(),
            (_, other) => other.to_string(),
        }
    }

    /// The submitted value as JSON; `None` removes the setting.
    fn to_json(&self, values: &FormValues, spec: &Value) -> Option<Value> {
        let text = values.get(&self.name).map(|text| text.trim()).unwrap_or_default();
        let current = || spec.pointer(self.pointer).cloned();
        let custom_object = current().filter(Value::is_object).map(|value| value.to_string());
        match &self.control {
            Control::Check => Some(Value::Bool(text == "true")),
            Control::Secret | Control::Secrets if text.is_empty() => current(),
            Control::Secrets => {
                let keeps_old = values.get(&format!("{}.keep", self.name)).is_some();
                let old = current().filter(|_| keeps_old);
                let old = old.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
                Some([vec![Value::from(text)], old].concat().into())
            }
            _ if text.is_empty() => None,
            // Invalid numbers are sent unchanged: the API reports the error.
            Control::Number => Some(text.parse::<u64>().map_or_else(|_| text.into(), Value::from)),
            Control::Lines => {
                Some(text.lines().map(str::trim).filter(|line| !line.is_empty()).collect())
            }
            // Custom objects appear as JSON in a text field; unchanged text keeps them.
            _ if custom_object.as_deref() == Some(text) => current(),
            Control::Text | Control::Choice(_) | Control::Secret => Some(text.into()),
        }
    }
}

/// Fills fields from a spec. A value that is not among the options is added to them.
pub(crate) fn fill_from_spec(fields: &mut [FormField], spec: &Value) {
    for field in fields.iter_mut().filter(|field| !field.pointer.is_empty()) {
        let value = field.to_text(spec);
        if field.is_secret() {
            // Secrets are shown masked beside the field; the field stays empty.
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

/// Fills fields that hold the current values with the submitted ones, and shows current values that
/// differ. Secrets are never sent back to the browser.
pub(crate) fn fill_from_submission(
    fields: &mut [FormField],
    values: &FormValues,
    current: Option<&Value>,
) {
    for field in fields {
        let current_value = std::mem::take(&mut field.value);
        if field.is_secret() {
            continue;
        }
        field.value = match (&field.control, values.get(&field.name)) {
            (Control::Check, value) => value.is_some_and(|text| text == "true").to_string(),
            (_, Some(text)) => text.clone(),
            (_, None) => current_value.clone(),
        };
        let is_known = current.is_some() && !field.pointer.is_empty();
        field.current_value = (is_known && current_value != field.value).then_some(current_value);
        add_missing_choice(field);
    }
}

pub(crate) fn write_to_spec(fields: &[FormField], values: &FormValues, spec: &mut Value) {
    for field in fields.iter().filter(|field| !field.pointer.is_empty()) {
        let value = field.to_json(values, spec);
        set_at(spec, field.pointer, value);
    }
}

/// Sets a value at a pointer. `None` removes it, with objects that become empty.
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

/// Removes read-only fields that the API adds to a spec.
pub(crate) fn editable_spec(mut resource: Value) -> Value {
    if let Some(fields) = resource.as_object_mut() {
        for read_only in ["id", "created_at", "updated_at", "state", "health", "verified"] {
            fields.remove(read_only);
        }
    }
    resource
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form_values(pairs: &[(&str, &str)]) -> FormValues {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn fields() -> Vec<FormField> {
        vec![
            FormField::new("/name", "Name", Control::Text),
            FormField::new("/concurrency", "Concurrency", Control::Number),
            FormField::new("/retention/events", "Events", Control::Text),
            FormField::new("/redact", "Redact", Control::Lines),
            FormField::new("/enabled", "On", Control::Check),
            FormField::new("/secrets", "Secrets", Control::Secrets),
            FormField::new("/verify_token", "Token", Control::Secret),
        ]
    }

    #[test]
    fn submitted_values_are_written_and_other_settings_stay() {
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
            write_to_spec(&fields(), &form_values(&pairs), &mut spec);
            assert_eq!(spec, expected, "case: {pairs:?}");
        }
    }

    #[test]
    fn unchanged_form_keeps_the_spec() {
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
    fn submitted_values_are_kept_but_secrets_are_not_sent_back() {
        let mut fields = fields();
        fill_from_spec(&mut fields, &json!({ "name": "a", "secrets": ["env:A"], "enabled": true }));
        let submitted = form_values(&[("name", "b"), ("secrets", "hunter2")]);
        fill_from_submission(&mut fields, &submitted, Some(&Value::Null));
        assert_eq!(
            (fields[0].value.as_str(), fields[0].current_value.as_deref()),
            ("b", Some("a"))
        );
        assert!(fields[5].value.is_empty());
        assert!(!fields[4].is_checked());
    }

    #[test]
    fn removing_the_last_value_removes_empty_objects() {
        let mut spec = json!({ "a": { "b": { "c": 1 } }, "d": 2 });
        set_at(&mut spec, "/a/b/c", None);
        set_at(&mut spec, "/x/y", None);
        set_at(&mut spec, "/e/f", Some(json!(3)));
        assert_eq!(spec, json!({ "d": 2, "e": { "f": 3 } }));
    }
}
