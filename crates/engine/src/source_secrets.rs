//! Removes secrets from what is sent, for sources with `strip_secrets`.
//!
//! Done at each attempt, after any transform: retries and replays do the same, and the stored event
//! stays unchanged.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use surehook_core::{event::Payload, store::Configuration};
use surehook_types::{name::Name, redact::SecretNames};
use surehook_webhooks::provider::PROVIDERS;

use crate::Engine;

/// The secret settings of all sources, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceSecretsTable {
    sources: HashMap<Name, SourceSecrets>,
    /// For a source that is not in the table.
    unknown: SourceSecrets,
}

impl SourceSecretsTable {
    /// The table for a new configuration. For a source that was deleted or renamed, the settings under
    /// its old name keep applying to the deliveries that it left behind.
    pub(crate) fn build(previous: &Self, configuration: &Configuration) -> Self {
        let current_names: HashSet<&Name> =
            configuration.sources.iter().map(|stored| &stored.spec.name).collect();
        let entry = |name: &Name, id, should_strip, headers| {
            let names = Arc::new(configuration.secret_names(id));
            (name.clone(), SourceSecrets { names, headers, should_strip })
        };
        // Of sources deleted before the last start, only the names of all their headers are stored.
        let presets = PROVIDERS.iter().filter_map(|provider| provider.secret_header);
        let past_headers = configuration.past.token_headers.iter().cloned();
        let all_headers: Arc<[String]> = past_headers.chain(presets.map(str::to_owned)).collect();
        let previous =
            previous.sources.iter().map(|(name, secrets)| (name.clone(), secrets.clone()));
        let deleted = configuration.past.sources.iter().map(|source| {
            entry(&source.name, source.id, source.strip_secrets, Arc::clone(&all_headers))
        });
        let old_names = previous.chain(deleted).filter(|(name, _)| !current_names.contains(name));
        let current = configuration.sources.iter().map(|stored| {
            let spec = &stored.spec;
            entry(&spec.name, stored.id, spec.strip_secrets, spec.secret_headers().into())
        });
        Self {
            sources: old_names.chain(current).collect(),
            unknown: SourceSecrets { headers: all_headers, ..SourceSecrets::default() },
        }
    }

    /// The headers in which any source gets its secret, or once did.
    fn all_headers(&self) -> Arc<[String]> {
        Arc::clone(&self.unknown.headers)
    }

    pub(crate) fn of(&self, source: &Name) -> &SourceSecrets {
        self.sources.get(source).unwrap_or(&self.unknown)
    }
}

impl Engine {
    /// The headers in which any source gets its secret, in lower case. For requests whose source is not
    /// certain: a sender with the wrong URL sends the secret of another source.
    pub fn all_secret_headers(&self) -> Arc<[String]> {
        self.shared.secrets.load().all_headers()
    }
}

/// The secret settings of one source.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceSecrets {
    pub(crate) names: Arc<SecretNames>,
    /// Headers that carry the secret itself, in lower case. They are never forwarded.
    pub(crate) headers: Arc<[String]>,
    /// Whether secrets are also removed from the body.
    should_strip: bool,
}

/// The payload without secrets, or why it cannot be sent.
pub(crate) fn strip<'p>(
    secrets: &SourceSecrets,
    payload: &'p Payload,
) -> Result<Cow<'p, Payload>, String> {
    if !secrets.should_strip {
        return Ok(Cow::Borrowed(payload));
    }
    let stripped = payload.without_secrets(&secrets.names).map(Cow::Owned);
    stripped
        .map_err(|error| format!("not sent, because `strip_secrets` cannot read the body: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use surehook_core::{source::SourceSpec, store::ConfigChange};
    use surehook_types::{ids::SourceId, time::Timestamp};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1);

    fn put(number: u128, name: &str, strip_secrets: bool) -> ConfigChange {
        let spec = json!({ "name": name, "redact": ["pin"], "strip_secrets": strip_secrets });
        let spec: SourceSpec = serde_json::from_value(spec).unwrap();
        ConfigChange::PutSource(SourceId::new(NOW, number << 100), spec)
    }

    #[test]
    fn deliveries_of_a_deleted_or_renamed_source_are_still_stripped() {
        let mut configuration = Configuration::default();
        let mut table = SourceSecretsTable::default();
        // The names whose bodies are stripped: after these changes, and after a restart.
        let mut stripped_after = |changes: &[ConfigChange]| {
            configuration.apply(changes, NOW);
            table = SourceSecretsTable::build(&table, &configuration);
            let restarted =
                SourceSecretsTable::build(&SourceSecretsTable::default(), &configuration);
            let stripped_names = |table: &SourceSecretsTable| {
                let stripping = table.sources.iter().filter(|(_, secrets)| secrets.should_strip);
                let mut names: Vec<_> = stripping.map(|(name, _)| name.to_string()).collect();
                names.sort();
                names.join(" ")
            };
            assert!(table.sources.values().all(|secrets| secrets.names.is_secret_field("pin")));
            (stripped_names(&table), stripped_names(&restarted))
        };
        let in_both = |names: &str| (names.to_owned(), names.to_owned());

        assert_eq!(stripped_after(&[put(1, "shop", true), put(2, "bank", false)]), in_both("shop"));
        // Deliveries in memory carry the old name; those from the store the new one.
        let renamed = ("shop store".to_owned(), "store".to_owned());
        assert_eq!(stripped_after(&[put(1, "store", true)]), renamed);
        assert_eq!(
            stripped_after(&[ConfigChange::DeleteSource(SourceId::new(NOW, 1 << 100))]),
            renamed
        );
        // The new owner of a name decides.
        assert_eq!(stripped_after(&[put(3, "store", false), put(4, "shop", false)]), in_both(""));
    }

    #[test]
    fn secret_headers_are_those_of_the_source_or_of_all_sources_if_it_is_gone() {
        let put = |number: u128, spec| {
            let spec: SourceSpec = serde_json::from_value(spec).unwrap();
            ConfigChange::PutSource(SourceId::new(NOW, number << 100), spec)
        };
        let mut configuration = Configuration::default();
        let token = json!({ "token": { "header": "X-Shared" } });
        configuration.apply(
            &[
                put(1, json!({ "name": "own", "verify": token })),
                put(2, json!({ "name": "lab", "provider": "gitlab" })),
                put(3, json!({ "name": "both", "provider": "telegram", "verify": token })),
                put(4, json!({ "name": "plain", "verify": "none" })),
            ],
            NOW,
        );
        let table = SourceSecretsTable::build(&SourceSecretsTable::default(), &configuration);
        let headers_of = |table: &SourceSecretsTable, name: &str| {
            table.of(&name.parse().unwrap()).headers.join(" ")
        };
        let telegram = "x-telegram-bot-api-secret-token";
        assert_eq!(headers_of(&table, "own"), "x-shared");
        assert_eq!(headers_of(&table, "lab"), "x-gitlab-token");
        assert_eq!(headers_of(&table, "both"), format!("x-shared {telegram}"));
        assert_eq!(headers_of(&table, "plain"), "");

        configuration.apply(&[ConfigChange::DeleteSource(SourceId::new(NOW, 1 << 100))], NOW);
        let changed = SourceSecretsTable::build(&table, &configuration);
        assert_eq!(headers_of(&changed, "own"), "x-shared");
        let restarted = SourceSecretsTable::build(&SourceSecretsTable::default(), &configuration);
        assert_eq!(
            headers_of(&restarted, "own"),
            format!("x-shared apikey x-gitlab-token authorization {telegram}")
        );
    }
}
