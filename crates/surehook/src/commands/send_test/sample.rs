//! Test events: the samples of a provider with their blanks filled in.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use surehook_core::{provider::SampleEvent, rng::Rng as _, time::Timestamp};
use surehook_engine::system::SystemRng;

const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// What a seed takes for the time, so that its events are the same tomorrow: 2026-01-01 12:00.
const SEEDED_NOON: i64 = 1_767_268_800_000;

/// One event as it is sent, before it is signed.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) id: String,
    pub(super) headers: HeaderMap,
    pub(super) target: String,
    pub(super) body: Bytes,
}

/// What is put into the blanks of one event.
#[derive(Clone, Debug)]
pub(super) struct Blanks {
    id: String,
    number: String,
    uuid: String,
    phone: String,
    now: Timestamp,
}

impl Blanks {
    /// The same at another time.
    pub(super) fn at(&self, now: Timestamp) -> Self {
        Self { now, ..self.clone() }
    }

    /// The id of the event.
    fn id(&self) -> String {
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

    /// The sample with its blanks filled in.
    pub(super) fn made(&self, sample: &SampleEvent) -> Made {
        let mut headers = HeaderMap::new();
        for (name, value) in sample.headers {
            // Samples are written in the code, and a test reads them all.
            if let (Ok(name), Ok(value)) =
                (name.parse::<HeaderName>(), HeaderValue::try_from(self.fill(value)))
            {
                headers.append(name, value);
            }
        }
        let (target, body) = (self.fill(sample.target), self.fill(sample.body));
        Made { id: self.id(), headers, target, body: body.into() }
    }
}

/// Where the blanks come from: dice, or a seed that always gives the same.
#[derive(Debug)]
pub(super) struct Source {
    seeded: Option<u64>,
    events: i64,
}

impl Source {
    pub(super) fn new(seed: Option<u64>) -> Self {
        Self { seeded: seed, events: 0 }
    }

    /// `SplitMix64`: small, and the same on every machine.
    fn next_u128(&mut self) -> u64 {
        let Some(state) = &mut self.seeded else {
            return u64::try_from(SystemRng.next_u128() & u128::from(u64::MAX)).unwrap_or_default();
        };
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn letters(&mut self, many: usize) -> String {
        let letter = |bits: u64| char::from(LETTERS[usize::try_from(bits % 36).unwrap_or(0)]);
        (0..many).map(|_| letter(self.next_u128())).collect()
    }

    /// The blanks of the next event.
    pub(super) fn next(&mut self, now: Timestamp) -> Blanks {
        self.events += 1;
        let id = self.letters(24);
        let number = (100_000_000_000_000 + self.next_u128() % 900_000_000_000_000).to_string();
        let bits = (u128::from(self.next_u128()) << 64) | u128::from(self.next_u128());
        let hex = format!("{bits:032x}");
        let uuid = format!(
            "{}-{}-4{}-8{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[13..16],
            &hex[17..20],
            &hex[20..]
        );
        let phone = format!("55119{:08}", 60_000_000 + self.next_u128() % 39_999_999);
        let now = match self.seeded {
            Some(_) => Timestamp::from_millis(SEEDED_NOON + self.events * 1000),
            None => now,
        };
        Blanks { id, number, uuid, phone, now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use surehook_core::provider::PROVIDERS;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    #[test]
    fn every_sample_can_be_filled_in() {
        for provider in PROVIDERS {
            for sample in provider.samples() {
                let made = Source::new(None).next(NOW).made(sample);
                let name = (provider.name(), sample.kind);
                assert_eq!(made.headers.len(), sample.headers.len(), "{name:?}");
                let text = String::from_utf8(made.body.to_vec()).unwrap();
                let whole = format!("{text}{}{:?}", made.target, made.headers);
                assert!(!whole.contains("{{"), "{name:?}: {whole}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_events() {
        let sample = SampleEvent {
            kind: "k",
            headers: &[("x-id", "{{uuid}}")],
            target: "/{{number}}",
            body: "{{id}} {{phone}} {{now}} {{now_ms}} {{now_iso}}",
        };
        let all = |seed: u64, now: Timestamp| -> Vec<_> {
            let mut source = Source::new(Some(seed));
            (0..3)
                .map(|_| source.next(now).made(&sample))
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
