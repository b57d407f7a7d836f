//! The environment variables that a configuration may reference with `env:NAME`.
//!
//! A user who may change a destination decides where its secrets are sent. So the API may reference only
//! the variables that the setting `allow_env` lists; the settings file may reference all but the
//! gateway's own. The check looks at names only and comes before any lookup: its result does not depend
//! on what the environment contains.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use surehook_core::{
    destination::receivers::receivers,
    store::{ConfigChange, Configuration},
};

use crate::registry::ConfigError;

/// Variables with this prefix hold the gateway's own settings and credentials.
const OWN_PREFIX: &str = "SUREHOOK_";

const ENV_PREFIX: &str = "env:";

/// The arguments of a program are plain text, never references.
const PLAIN_TEXT: &str = "/exec/command";

/// Where a change of the configuration comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigOrigin {
    SettingsFile,
    Api,
}

/// Names of variables that the API may reference. `*` at the end of an entry stands for any rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct AllowedVariables(Vec<String>);

/// An invalid entry of the list.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllowedVariablesSpecError {
    #[error(
        "allow_env: `{0}` is not a variable name; use letters, digits and underscores, and `*` only at the end"
    )]
    Name(String),
    #[error("allow_env: `{0}` holds the gateway's own settings and cannot be allowed")]
    Own(String),
}

impl TryFrom<Vec<String>> for AllowedVariables {
    type Error = AllowedVariablesSpecError;

    fn try_from(names: Vec<String>) -> Result<Self, AllowedVariablesSpecError> {
        for name in &names {
            let stem = name.strip_suffix('*').unwrap_or(name);
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if name.is_empty() || !stem.bytes().all(is_word) {
                return Err(AllowedVariablesSpecError::Name(name.clone()));
            }
            if is_own(name) {
                return Err(AllowedVariablesSpecError::Own(name.clone()));
            }
        }
        Ok(Self(names))
    }
}

impl From<AllowedVariables> for Vec<String> {
    fn from(AllowedVariables(names): AllowedVariables) -> Self {
        names
    }
}

impl AllowedVariables {
    pub fn permits(&self, name: &str) -> bool {
        let is_listed = |entry: &String| match entry.strip_suffix('*') {
            Some(stem) => name.starts_with(stem),
            None => entry == name,
        };
        !is_own(name) && self.0.iter().any(is_listed)
    }
}

fn is_own(name: &str) -> bool {
    name.starts_with(OWN_PREFIX)
}

/// A reference to a variable, and the field with it. Positions in lists are left out: a secret that
/// moves down during a rotation stays where it is.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reference {
    field: String,
    name: String,
}

/// All references in the JSON form of a spec.
fn references(spec: &Value) -> BTreeSet<Reference> {
    fn collect(value: &Value, field: &str, found: &mut BTreeSet<Reference>) {
        match value {
            Value::String(text) => {
                if let Some(name) = text.strip_prefix(ENV_PREFIX)
                    && field != PLAIN_TEXT
                {
                    found.insert(Reference { field: field.to_owned(), name: name.to_owned() });
                }
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, field, found)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    collect(value, &format!("{field}/{name}"), found);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut found = BTreeSet::new();
    collect(spec, "", &mut found);
    found
}

/// Specs always serialize.
fn to_json(spec: &impl Serialize) -> Value {
    serde_json::to_value(spec).unwrap_or_default()
}

/// Refuses changes that reference a variable that their origin may not use. A reference that is already
/// stored in the same field stays allowed, as long as its value is sent to the same receiver.
pub fn check_references(
    before: &Configuration,
    changes: &[ConfigChange],
    origin: ConfigOrigin,
    allowed: &AllowedVariables,
) -> Result<(), ConfigError> {
    for change in changes {
        let (label, new_spec, stored) = match change {
            ConfigChange::PutSource(id, spec) => {
                let stored = before.sources.iter().find(|stored| stored.id == *id);
                let stored = stored.map(|stored| to_json(&stored.spec));
                (format!("source `{}`", spec.name), to_json(spec), stored)
            }
            ConfigChange::PutDestination(id, spec) => {
                let stored = before.destinations.iter().find(|stored| stored.id == *id);
                let stored = stored.map(|stored| to_json(&stored.spec));
                (format!("destination `{}`", spec.name), to_json(spec), stored)
            }
            ConfigChange::PutRoute(..)
            | ConfigChange::DeleteSource(_)
            | ConfigChange::DeleteDestination(_)
            | ConfigChange::DeleteRoute(_) => continue,
        };
        let unchanged = stored.filter(|stored| receivers(stored) == receivers(&new_spec));
        let unchanged = unchanged.as_ref().map(references).unwrap_or_default();
        for reference in references(&new_spec).difference(&unchanged) {
            let name = reference.name.clone();
            if is_own(&name) {
                return Err(ConfigError::ReservedVariable(label, name));
            }
            if origin == ConfigOrigin::Api && !allowed.permits(&name) {
                return Err(ConfigError::VariableNotAllowed(label, name));
            }
        }
    }
    Ok(())
}

/// References of the stored configuration that could not be written again today: neither `allow_env`
/// nor the settings file, `desired`, has them. Each as the object and the variable.
pub fn unlisted_references(
    stored: &Configuration,
    desired: &crate::apply::DesiredConfiguration,
    allowed: &AllowedVariables,
) -> Vec<(String, String)> {
    let mut unlisted = BTreeSet::new();
    let mut add = |label: String, stored: Value, desired: Option<Value>| {
        let desired = desired.as_ref().map(references).unwrap_or_default();
        for reference in references(&stored) {
            let is_in_file = desired.contains(&reference) && !is_own(&reference.name);
            if !is_in_file && !allowed.permits(&reference.name) {
                unlisted.insert((label.clone(), reference.name));
            }
        }
    };
    for source in &stored.sources {
        let name = &source.spec.name;
        let desired = desired.sources.iter().find(|spec| spec.name == *name).map(to_json);
        add(format!("source `{name}`"), to_json(&source.spec), desired);
    }
    for destination in &stored.destinations {
        let name = &destination.spec.name;
        let desired = desired.destinations.iter().find(|spec| spec.name == *name).map(to_json);
        add(format!("destination `{name}`"), to_json(&destination.spec), desired);
    }
    unlisted.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use surehook_types::{ids::DestinationId, time::Timestamp};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1);

    fn allowed(names: &[&str]) -> Result<AllowedVariables, AllowedVariablesSpecError> {
        names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>().try_into()
    }

    fn put(fields: Value) -> ConfigChange {
        let mut spec = json!({ "name": "crm", "url": "https://a.example/in" });
        for (name, value) in fields.as_object().unwrap() {
            spec[name] = value.clone();
        }
        let id = DestinationId::new(NOW, 1);
        ConfigChange::PutDestination(id, serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn allowed_variables_are_names_or_prefixes_and_never_our_own() {
        let list = allowed(&["TOKEN", "HOOK_*"]).unwrap();
        for (name, expected) in [
            ("TOKEN", true),
            ("HOOK_", true),
            ("HOOK_A", true),
            ("TOKENS", false),
            ("HOOK", false),
            ("PATH", false),
        ] {
            assert_eq!(list.permits(name), expected, "case: {name}");
        }
        let everything = allowed(&["*"]).unwrap();
        assert!(everything.permits("PATH"));
        assert!(!everything.permits("SUREHOOK_ADMIN_TOKEN"));
        for wrong in ["", "A B", "*A", "SUREHOOK_TOKEN", "SUREHOOK_*"] {
            assert!(allowed(&[wrong]).is_err(), "case: {wrong}");
        }
    }

    #[test]
    fn api_may_reference_only_listed_variables_and_the_file_all_but_our_own() {
        let list = allowed(&["LISTED"]).unwrap();
        let before = Configuration::default();
        for (fields, from_api, from_file) in [
            (json!({ "headers": { "x-a": "env:LISTED" } }), true, true),
            (json!({ "headers": { "x-a": "env:OTHER" } }), false, true),
            (json!({ "auth": { "bearer": "env:OTHER" } }), false, true),
            (json!({ "signing_secrets": ["env:LISTED", "env:OTHER"] }), false, true),
            (json!({ "proxy": "env:OTHER" }), false, true),
            (json!({ "tls": { "ca": "env:OTHER" } }), false, true),
            (json!({ "kind": "redis-stream", "url": "env:OTHER" }), false, true),
            (json!({ "exec": { "command": ["/a"], "env": { "A": "env:OTHER" } } }), false, true),
            (json!({ "exec": { "command": ["/a", "env:OTHER"] } }), true, true),
            (json!({ "auth": { "bearer": "env:SUREHOOK_ADMIN_TOKEN" } }), false, false),
        ] {
            for (origin, expected) in
                [(ConfigOrigin::Api, from_api), (ConfigOrigin::SettingsFile, from_file)]
            {
                let result = check_references(&before, &[put(fields.clone())], origin, &list);
                assert_eq!(result.is_ok(), expected, "case: {fields} {origin:?}: {result:?}");
            }
        }
    }

    #[test]
    fn stored_reference_stays_allowed_in_its_field_and_for_its_receiver() {
        let mut before = Configuration::default();
        before.apply(&[put(json!({ "auth": { "bearer": "env:OLD" } }))], NOW);
        let list = AllowedVariables::default();
        for (fields, expected) in [
            (json!({ "auth": { "bearer": "env:OLD" }, "concurrency": 2 }), true),
            (json!({ "auth": { "bearer": "env:OLD" }, "url": "https://a.example/b" }), true),
            (json!({ "auth": { "bearer": "env:OLD" }, "url": "https://evil.example/" }), false),
            (json!({ "headers": { "x-a": "env:OLD" } }), false),
            (json!({ "auth": { "bearer": "env:NEW" } }), false),
        ] {
            let result =
                check_references(&before, &[put(fields.clone())], ConfigOrigin::Api, &list);
            assert_eq!(result.is_ok(), expected, "case: {fields}: {result:?}");
        }
    }

    #[test]
    fn stored_reference_that_is_neither_listed_nor_in_the_file_is_reported() {
        let mut stored = Configuration::default();
        stored.apply(&[put(json!({ "headers": { "a": "env:OLD", "b": "env:LISTED" } }))], NOW);
        let list = allowed(&["LISTED"]).unwrap();
        let mut desired = crate::apply::DesiredConfiguration::default();

        let unlisted = unlisted_references(&stored, &desired, &list);
        assert_eq!(unlisted, [("destination `crm`".to_owned(), "OLD".to_owned())]);

        desired.destinations = stored.destinations.iter().map(|d| d.spec.clone()).collect();
        assert!(unlisted_references(&stored, &desired, &list).is_empty());
    }
}
