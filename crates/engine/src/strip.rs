//! Takes secrets out of what is sent, for sources that ask for it.
//!
//! It is done at each attempt, after any transform, so that retries and replays do the same and what
//! is stored stays as it came.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use surehook_core::{event::Payload, name::Name, redact::Names, store::Configuration};

/// What each source says about its secrets.
pub(crate) type Secrets = HashMap<Name, SecretsOfSource>;

/// What one source says about its secrets.
#[derive(Clone, Debug)]
pub(crate) struct SecretsOfSource {
    pub(crate) names: Arc<Names>,
    /// They are taken out of what is sent.
    strips: bool,
}

/// What holds with a new configuration. A source that is gone, or has another name, goes on saying
/// the same about the deliveries that it left behind.
pub(crate) fn secrets(before: &Secrets, configuration: &Configuration) -> Secrets {
    let live: HashSet<&Name> = configuration.sources.iter().map(|s| &s.spec.name).collect();
    let said = |name: &Name, id, strips| {
        let names = Arc::new(configuration.secret_names(id));
        (name.clone(), SecretsOfSource { names, strips })
    };
    let left = before.iter().map(|(name, said)| (name.clone(), said.clone()));
    let past = configuration.past.sources.iter();
    let past = past.map(|past| said(&past.name, past.id, past.strip_secrets));
    let gone = left.chain(past).filter(|(name, _)| !live.contains(name));
    let sources = configuration.sources.iter();
    gone.chain(sources.map(|s| said(&s.spec.name, s.id, s.spec.strip_secrets))).collect()
}

/// What is sent of a payload, or why nothing is.
pub(crate) fn strip<'p>(
    said: Option<&SecretsOfSource>,
    payload: &'p Payload,
) -> Result<Cow<'p, Payload>, String> {
    match said {
        Some(said) if said.strips => {
            payload.stripped(&said.names).map(Cow::Owned).map_err(|opaque| {
                format!("`strip_secrets` lets nothing pass that it cannot read: {opaque}")
            })
        }
        Some(_) | None => Ok(Cow::Borrowed(payload)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use surehook_core::{ids::SourceId, source::SourceSpec, store::Change, time::Timestamp};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1);

    fn put(number: u128, name: &str, strip_secrets: bool) -> Change {
        let spec = json!({ "name": name, "redact": ["pin"], "strip_secrets": strip_secrets });
        let spec: SourceSpec = serde_json::from_value(spec).unwrap();
        Change::PutSource(SourceId::new(NOW, number << 100), spec)
    }

    #[test]
    fn what_a_source_left_behind_is_stripped_too() {
        let mut configuration = Configuration::default();
        let mut now = Secrets::new();
        let mut after = |changes: &[Change]| {
            configuration.apply(changes, NOW);
            now = secrets(&now, &configuration);
            let fresh = secrets(&Secrets::new(), &configuration);
            let sorted = |secrets: &Secrets| {
                let stripping = secrets.iter().filter(|(_, said)| said.strips);
                let mut names: Vec<_> = stripping.map(|(name, _)| name.to_string()).collect();
                names.sort();
                names.join(" ")
            };
            assert!(now.values().all(|said| said.names.is_field("pin")));
            (sorted(&now), sorted(&fresh))
        };
        let both = |names: &str| (names.to_owned(), names.to_owned());

        assert_eq!(after(&[put(1, "shop", true), put(2, "bank", false)]), both("shop"));
        // What is in memory has the old name; the store gives the new one.
        let moved = ("shop store".to_owned(), "store".to_owned());
        assert_eq!(after(&[put(1, "store", true)]), moved);
        assert_eq!(after(&[Change::DeleteSource(SourceId::new(NOW, 1 << 100))]), moved);
        // Whoever takes the name says what holds for it.
        assert_eq!(after(&[put(3, "store", false), put(4, "shop", false)]), both(""));
    }
}
