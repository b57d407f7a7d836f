//! Test events: a provider's samples with their placeholders filled in.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use surehook_engine::system::SystemRng;
use surehook_types::{rng::Rng as _, time::Timestamp};
use surehook_webhooks::provider::SampleEvent;

const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// Time of seeded events, so that they are reproducible: 2026-01-01 12:00.
const SEEDED_TIME: i64 = 1_767_268_800_000;

/// A test event before it is signed.
#[derive(Clone, Debug)]
pub(super) struct TestEvent {
    pub(super) id: String,
    pub(super) headers: HeaderMap,
    pub(super) target: String,
    pub(super) body: Bytes,
}

/// Values for the placeholders of one event.
#[derive(Clone, Debug)]
pub(super) struct SampleValues {
    id: String,
    number: String,
    uuid: String,
    phone: String,
    now: Timestamp,
}

impl SampleValues {
    pub(super) fn with_time(&self, now: Timestamp) -> Self {
        Self { now, ..self.clone() }
    }

    fn event_id(&self) -> String {
        format!("test_{}", self.id)
    }

    fn fill(&self, text: &str) -> String {
        let now = self.now;
        text.replace("{{id}}", &self.id)
            .replace("{{number}}", &self.number)
            .replace("{{uuid}}", &self.uuid)
            .replace("{{phone}}", &self.phone)
            .replace("{{now}}", &now.as_secs().to_string())
            .replace("{{now_ms}}", &now.as_millis().to_string())
            .replace("{{now_iso}}", &now.to_string())
    }

    pub(super) fn fill_sample(&self, sample: &SampleEvent) -> TestEvent {
        let mut headers = HeaderMap::new();
        for (name, value) in sample.headers {
            // Samples are constants; a test parses them all.
            if let (Ok(name), Ok(value)) =
                (name.parse::<HeaderName>(), HeaderValue::try_from(self.fill(value)))
            {
                headers.append(name, value);
            }
        }
        let (target, body) = (self.fill(sample.target), self.fill(sample.body));
        TestEvent { id: self.event_id(), headers, target, body: body.into() }
    }
}

/// Generates placeholder values, randomly or from a seed.
#[derive(Debug)]
pub(super) struct SampleGenerator {
    seed_state: Option<u64>,
    events: i64,
}

impl SampleGenerator {
    pub(super) fn new(seed: Option<u64>) -> Self {
        Self { seed_state: seed, events: 0 }
    }

    /// `SplitMix64`: small, and the same on every machine.
    fn next_u64(&mut self) -> u64 {
        let Some(state) = &mut self.seed_state else {
            return u64::try_from(SystemRng.next_u128() & u128::from(u64::MAX)).unwrap_or_default();
        };
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn random_letters(&mut self, count: usize) -> String {
        let letter = |bits: u64| char::from(LETTERS[usize::try_from(bits % 36).unwrap_or(0)]);
        (0..count).map(|_| letter(self.next_u64())).collect()
    }

    pub(super) fn next(&mut self, now: Timestamp) -> SampleValues {
        self.events += 1;
        let id = self.random_letters(24);
        let number = (100_000_000_000_000 + self.next_u64() % 900_000_000_000_000).to_string();
        let bits = (u128::from(self.next_u64()) << 64) | u128::from(self.next_u64());
        let hex = format!("{bits:032x}");
        let uuid = format!(
            "{}-{}-4{}-8{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[13..16],
            &hex[17..20],
            &hex[20..]
        );
        let phone = format!("55119{:08}", 60_000_000 + self.next_u64() % 39_999_999);
        let now = match self.seed_state {
            Some(_) => Timestamp::from_millis(SEEDED_TIME + self.events * 1000),
            None => now,
        };
        SampleValues { id, number, uuid, phone, now }
    }
}

#[cfg(test)]
mod tests {
    use surehook_webhooks::provider::PROVIDERS;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    #[test]
    fn every_sample_has_known_placeholders_only() {
        for provider in PROVIDERS {
            for sample in provider.samples {
                let event = SampleGenerator::new(None).next(NOW).fill_sample(sample);
                let name = (provider.name, sample.kind);
                assert_eq!(event.headers.len(), sample.headers.len(), "{name:?}");
                let text = String::from_utf8(event.body.to_vec()).unwrap();
                let request_text = format!("{text}{}{:?}", event.target, event.headers);
                assert!(!request_text.contains("{{"), "{name:?}: {request_text}");
            }
        }
    }

    #[test]
    fn same_seed_gives_same_events() {
        let sample = SampleEvent {
            kind: "k",
            headers: &[("x-id", "{{uuid}}")],
            target: "/{{number}}",
            body: "{{id}} {{phone}} {{now}} {{now_ms}} {{now_iso}}",
        };
        let all = |seed: u64, now: Timestamp| -> Vec<_> {
            let mut source = SampleGenerator::new(Some(seed));
            (0..3)
                .map(|_| source.next(now).fill_sample(&sample))
                .map(|m| (m.target, m.headers, m.body))
                .collect()
        };
        let later = Timestamp::from_millis(NOW.as_millis() + 5000);
        let first = all(1, NOW);
        assert_eq!(first, all(1, later));
        assert_ne!(first, all(2, NOW));
        assert!(first[0] != first[1] && first[1] != first[2]);
    }
}
