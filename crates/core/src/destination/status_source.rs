//! Destinations that wait for statuses which nobody takes in.
//!
//! A message of which nobody knows whether it arrived waits for a status of the service. If no source
//! takes statuses, none ever comes: every such message is sent again, and may arrive twice.

use super::{DestinationSpec, sender::AmbiguousSendPolicy};
use crate::{source::SourceSpec, store::Configuration};

/// What is wrong with such a destination.
pub const MISSING_STATUS_SOURCE: &str = "it waits for statuses of its messages, and no source takes them in: a \
                           message of which nobody knows whether it arrived is sent again";

/// What to do about it.
pub const MISSING_STATUS_SOURCE_ADVICE: &str = "add a source with `provider = \"whatsapp-cloud\"` and the secret of \
                                  the app, and subscribe it to `messages` at Meta; or set `sending = \
                                  { on_ambiguous = \"park\" }`";

/// Those destinations.
pub fn without_status_source(
    configuration: &Configuration,
) -> impl Iterator<Item = &DestinationSpec> {
    let destinations = configuration.destinations.iter().map(|stored| &stored.spec);
    destinations.filter(|spec| waits(spec) && !is_heard(spec, configuration))
}

fn waits(spec: &DestinationSpec) -> bool {
    let names_sends = spec.kind.channel().is_some_and(|channel| channel.has_send_id_in_statuses());
    let on_ambiguous = spec.sending.as_ref().and_then(|sending| sending.on_ambiguous);
    names_sends && on_ambiguous.is_none_or(|chosen| chosen == AmbiguousSendPolicy::Wait)
}

/// Statuses count only if they prove where they come from.
fn is_heard(spec: &DestinationSpec, configuration: &Configuration) -> bool {
    let hears = |source: &SourceSpec| {
        source.provider == spec.kind.as_str() && source.enabled && source.is_verified()
    };
    configuration.sources.iter().any(|stored| hears(&stored.spec))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        ids::{DestinationId, SourceId},
        store::ConfigChange,
        time::Timestamp,
    };

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn is_unheard(sending: Value, source: Option<Value>) -> bool {
        let account = json!({ "sender": "1", "token": "t" });
        let destination = json!({
            "name": "out", "kind": "whatsapp-cloud", "account": account, "sending": sending,
        });
        let destination = serde_json::from_value(destination).unwrap();
        let mut changes =
            vec![ConfigChange::PutDestination(DestinationId::new(NOW, 1), destination)];
        changes.extend(source.map(|source| {
            ConfigChange::PutSource(SourceId::new(NOW, 2), serde_json::from_value(source).unwrap())
        }));
        let mut configuration = Configuration::default();
        configuration.apply(&changes, NOW);
        without_status_source(&configuration).next().is_some()
    }

    #[test]
    fn a_destination_that_waits_for_statuses_needs_a_source_of_them() {
        let source = |more: &str| {
            let text =
                format!(r#"{{"name":"wa","provider":"whatsapp-cloud","secrets":["s"]{more}}}"#);
            serde_json::from_str::<Value>(&text).ok()
        };
        let other = Some(json!({ "name": "gh", "provider": "github", "secrets": ["s"] }));
        let cases = [
            ("none", json!({}), None, true),
            ("another", json!({}), other, true),
            ("theirs", json!({}), source(""), false),
            ("off", json!({}), source(r#","enabled":false"#), true),
            ("anybody's", json!({}), source(r#","verify":"none""#), true),
            ("parked", json!({ "on_ambiguous": "park" }), None, false),
            ("sent again", json!({ "on_ambiguous": "retry" }), None, false),
            ("waits", json!({ "on_ambiguous": "wait" }), None, true),
        ];
        for (name, sending, source, expected) in cases {
            assert_eq!(is_unheard(sending, source), expected, "case: {name}");
        }
    }
}
