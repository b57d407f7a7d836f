//! The payloads of `testdata/payloads` and what `INDEX.json` expects of them. The integration tests of the
//! binary use this module too.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
pub(crate) struct IndexedPayload {
    pub(crate) file: String,
    pub(crate) provider: String,
    pub(crate) now: i64,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) events: Vec<ExpectedEvent>,
    pub(crate) secret: BTreeMap<String, String>,
    pub(crate) query: Option<String>,
    pub(crate) url: Option<String>,
    pub(crate) expect_response: Option<Value>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct ExpectedEvent {
    pub(crate) kind: String,
    pub(crate) dedup_key: Option<String>,
    pub(crate) ordering_key: Option<String>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/payloads")
}

pub(crate) fn payloads() -> Vec<IndexedPayload> {
    let index = fs::read_to_string(folder().join("INDEX.json")).unwrap();
    let mut index: Value = serde_json::from_str(&index).unwrap();
    serde_json::from_value(index["items"].take()).unwrap()
}

impl IndexedPayload {
    /// The preset for the name in the index.
    pub(crate) fn preset(&self) -> &str {
        match self.provider.as_str() {
            "whatsapp" => "whatsapp-cloud",
            "evolution_api" => "evolution-api",
            "evolution_go" => "evolution-go",
            "generic_hmac" => "n8n",
            "mercadopago" => "mercado-pago",
            "standardwebhooks" => "standard-webhooks",
            other => other,
        }
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        fs::read(folder().join(&self.file)).unwrap()
    }

    /// When it was signed, in Unix seconds.
    pub(crate) fn signed_at(&self) -> i64 {
        // The published vector was signed years before the others.
        if self.provider == "standardwebhooks" { 1_614_265_330 } else { self.now }
    }

    /// The events of the index, with keys as the gateway stores them.
    pub(crate) fn expected_events(&self) -> Vec<ExpectedEvent> {
        let mut events = self.events.clone();
        for key in events.iter_mut().filter_map(|event| event.dedup_key.as_mut()) {
            if let Some(scoped) = key.strip_prefix("generic:") {
                *key = scoped.to_owned();
            }
        }
        events
    }
}
