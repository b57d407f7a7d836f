//! Finds destinations that wait for status updates although no source receives them.
//!
//! A message with an unknown outcome waits for a status update. Without a source for status updates every
//! such message is sent again, and may arrive twice. The engine and `surehook doctor` warn about it.

use surehook_messaging::sender::AmbiguousSendPolicy;

use super::DestinationSpec;
use crate::{source::SourceSpec, store::Configuration};

/// The warning for such a destination.
pub const MISSING_STATUS_SOURCE: &str = "waits for status updates of its messages, but no source \
                                         receives them: a message with an unknown outcome is sent again";

/// How to fix it.
pub const MISSING_STATUS_SOURCE_ADVICE: &str = "add a source with `provider = \"whatsapp-cloud\"` and the secret of \
                                  the app, and subscribe it to `messages` at Meta; or set `sending = \
                                  { on_ambiguous = \"park\" }`";

pub fn destinations_without_status_source(
    configuration: &Configuration,
) -> impl Iterator<Item = &DestinationSpec> {
    let destinations = configuration.destinations.iter().map(|stored| &stored.spec);
    destinations.filter(|spec| waits_for_status(spec) && !has_status_source(spec, configuration))
}

fn waits_for_status(spec: &DestinationSpec) -> bool {
    let has_send_id = spec.kind.channel().is_some_and(|channel| channel.has_send_id_in_statuses());
    let on_ambiguous = spec.sending.as_ref().and_then(|sending| sending.on_ambiguous);
    has_send_id && on_ambiguous.is_none_or(|policy| policy == AmbiguousSendPolicy::Wait)
}

/// Only a source that verifies signatures counts.
fn has_status_source(spec: &DestinationSpec, configuration: &Configuration) -> bool {
    let receives = |source: &SourceSpec| {
        source.provider == spec.kind.as_str() && source.enabled && source.is_verified()
    };
    configuration.sources.iter().any(|stored| receives(&stored.spec))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use surehook_types::{
        ids::{DestinationId, SourceId},
        time::Timestamp,
    };

    use super::*;
    use crate::store::ConfigChange;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn lacks_status_source(sending: Value, source: Option<Value>) -> bool {
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
        destinations_without_status_source(&configuration).next().is_some()
    }

    #[test]
    fn destination_that_waits_for_status_needs_verified_source() {
        let source = |fields: &str| {
            let text =
                format!(r#"{{"name":"wa","provider":"whatsapp-cloud","secrets":["s"]{fields}}}"#);
            serde_json::from_str::<Value>(&text).ok()
        };
        let other = Some(json!({ "name": "gh", "provider": "github", "secrets": ["s"] }));
        let cases = [
            ("none", json!({}), None, true),
            ("another", json!({}), other, true),
            ("matching", json!({}), source(""), false),
            ("disabled", json!({}), source(r#","enabled":false"#), true),
            ("unverified", json!({}), source(r#","verify":"none""#), true),
            ("parked", json!({ "on_ambiguous": "park" }), None, false),
            ("retried", json!({ "on_ambiguous": "retry" }), None, false),
            ("waits", json!({ "on_ambiguous": "wait" }), None, true),
        ];
        for (name, sending, source, expected) in cases {
            assert_eq!(lacks_status_source(sending, source), expected, "case: {name}");
        }
    }
}
