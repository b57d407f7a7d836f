//! Takes secrets out of what is sent, for sources that ask for it.
//!
//! It is done at each attempt, after any transform, so that retries and replays do the same and what
//! is stored stays as it came.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use surehook_core::{
    event::Payload, name::Name, provider::PROVIDERS, redact::SecretNames, store::Configuration,
};

/// What each source says about its secrets.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceSecretsTable {
    sources: HashMap<Name, SourceSecrets>,
    /// What holds for a source of which nothing is known any more.
    unknown: SourceSecrets,
}

impl SourceSecretsTable {
    pub(crate) fn of(&self, source: &Name) -> &SourceSecrets {
        self.sources.get(source).unwrap_or(&self.unknown)
    }
}

/// What one source says about its secrets.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceSecrets {
    pub(crate) names: Arc<SecretNames>,
    /// Headers that hold a secret itself, in lower case. They end here.
    pub(crate) headers: Arc<[String]>,
    /// Secrets are also taken out of the body that is sent.
    strips: bool,
}

/// What holds with a new configuration. A source that is gone, or has another name, goes on saying
/// the same about the deliveries that it left behind.
pub(crate) fn secrets(
    before: &SourceSecretsTable,
    configuration: &Configuration,
) -> SourceSecretsTable {
    let live: HashSet<&Name> = configuration.sources.iter().map(|s| &s.spec.name).collect();
    let said = |name: &Name, id, strips, headers| {
        let names = Arc::new(configuration.secret_names(id));
        (name.clone(), SourceSecrets { names, headers, strips })
    };
    // Of those that went before the last start only the names of all their headers are kept.
    let presets = PROVIDERS.iter().filter_map(|provider| provider.secret_header());
    let once = configuration.past.token_headers.iter().cloned();
    let lost: Arc<[String]> = once.chain(presets.map(str::to_owned)).collect();
    let left = before.sources.iter().map(|(name, said)| (name.clone(), said.clone()));
    let past = configuration.past.sources.iter();
    let past = past.map(|past| said(&past.name, past.id, past.strip_secrets, Arc::clone(&lost)));
    let gone = left.chain(past).filter(|(name, _)| !live.contains(name));
    let sources = configuration.sources.iter().map(|stored| {
        let spec = &stored.spec;
        said(&spec.name, stored.id, spec.strip_secrets, spec.secret_headers().into())
    });
    SourceSecretsTable {
        sources: gone.chain(sources).collect(),
        unknown: SourceSecrets { headers: Arc::clone(&lost), ..SourceSecrets::default() },
    }
}

/// What is sent of a payload, or why nothing is.
pub(crate) fn strip<'p>(
    said: &SourceSecrets,
    payload: &'p Payload,
) -> Result<Cow<'p, Payload>, String> {
    if !said.strips {
        return Ok(Cow::Borrowed(payload));
    }
    let stripped = payload.stripped(&said.names).map(Cow::Owned);
    stripped.map_err(|opaque| {
        format!("`strip_secrets` lets nothing pass that it cannot read: {opaque}")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use surehook_core::{ids::SourceId, source::SourceSpec, store::ConfigChange, time::Timestamp};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1);

    fn put(number: u128, name: &str, strip_secrets: bool) -> ConfigChange {
        let spec = json!({ "name": name, "redact": ["pin"], "strip_secrets": strip_secrets });
        let spec: SourceSpec = serde_json::from_value(spec).unwrap();
        ConfigChange::PutSource(SourceId::new(NOW, number << 100), spec)
    }

    #[test]
    fn what_a_source_left_behind_is_stripped_too() {
        let mut configuration = Configuration::default();
        let mut now = SourceSecretsTable::default();
        let mut after = |changes: &[ConfigChange]| {
            configuration.apply(changes, NOW);
            now = secrets(&now, &configuration);
            let fresh = secrets(&SourceSecretsTable::default(), &configuration);
            let sorted = |secrets: &SourceSecretsTable| {
                let stripping = secrets.sources.iter().filter(|(_, said)| said.strips);
                let mut names: Vec<_> = stripping.map(|(name, _)| name.to_string()).collect();
                names.sort();
                names.join(" ")
            };
            assert!(now.sources.values().all(|said| said.names.is_field("pin")));
            (sorted(&now), sorted(&fresh))
        };
        let both = |names: &str| (names.to_owned(), names.to_owned());

        assert_eq!(after(&[put(1, "shop", true), put(2, "bank", false)]), both("shop"));
        // What is in memory has the old name; the store gives the new one.
        let moved = ("shop store".to_owned(), "store".to_owned());
        assert_eq!(after(&[put(1, "store", true)]), moved);
        assert_eq!(after(&[ConfigChange::DeleteSource(SourceId::new(NOW, 1 << 100))]), moved);
        // Whoever takes the name says what holds for it.
        assert_eq!(after(&[put(3, "store", false), put(4, "shop", false)]), both(""));
    }

    #[test]
    fn headers_with_a_secret_are_those_of_the_source_and_of_all_if_it_is_gone() {
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
        let now = secrets(&SourceSecretsTable::default(), &configuration);
        let of = |secrets: &SourceSecretsTable, name: &str| {
            secrets.of(&name.parse().unwrap()).headers.join(" ")
        };
        let telegram = "x-telegram-bot-api-secret-token";
        assert_eq!(of(&now, "own"), "x-shared");
        assert_eq!(of(&now, "lab"), "x-gitlab-token");
        assert_eq!(of(&now, "both"), format!("x-shared {telegram}"));
        assert_eq!(of(&now, "plain"), "");

        configuration.apply(&[ConfigChange::DeleteSource(SourceId::new(NOW, 1 << 100))], NOW);
        assert_eq!(of(&secrets(&now, &configuration), "own"), "x-shared");
        let restarted = secrets(&SourceSecretsTable::default(), &configuration);
        assert_eq!(of(&restarted, "own"), format!("x-shared apikey x-gitlab-token {telegram}"));
    }
}
