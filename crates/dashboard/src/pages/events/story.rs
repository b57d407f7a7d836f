//! The story of an event in the language of whoever reads it. What has no words here is told as the
//! API tells it.

use std::time::Duration;

use serde_json::Value;
use surehook_core::time::Timestamp;

use super::{
    api::{Attributes, Decision, Event, Timing, without_people},
    path_of,
    waterfall::Waterfall,
};
use crate::{
    lang::{Lang, fill},
    show::{size, span},
    words::{EventWords, Failures, Told},
};

/// The longest value that a line of the story holds.
const VALUE_CHARS_MAX: usize = 120;

/// One line of the story.
#[derive(Default)]
pub(super) struct Line {
    pub(super) at: String,
    pub(super) icon: &'static str,
    pub(super) tone: &'static str,
    pub(super) text: String,
    /// It is in the words of the API.
    pub(super) is_english: bool,
    /// Where it leads, and the text of the link.
    pub(super) link: Option<(String, String)>,
    /// Short facts: a status, a class.
    pub(super) facts: Vec<String>,
    /// What the API says in English.
    pub(super) said: Option<String>,
    /// When it is tried again, and why then.
    pub(super) next: Option<(String, Option<String>)>,
    /// How it ended.
    pub(super) end: Option<String>,
    pub(super) waterfall: Option<Waterfall>,
}

/// Everything that the story of an event is told with.
pub(super) struct Teller<'e> {
    event: &'e Event,
    /// People who are not named.
    hidden: &'e Attributes,
    lang: Lang,
    t: &'static EventWords,
    told: &'static Told,
    failures: &'static Failures,
    longest: u64,
}

fn timing(decision: &Decision) -> Timing {
    serde_json::from_value(decision.detail["timing"].clone()).unwrap_or_default()
}

/// A text of a decision's detail.
fn text<'d>(detail: &'d Value, name: &str) -> &'d str {
    detail[name].as_str().unwrap_or_default()
}

fn short(value: &str) -> String {
    let mut chars = value.chars();
    let head: String = chars.by_ref().take(VALUE_CHARS_MAX).collect();
    if chars.next().is_some() { format!("{head}…") } else { head }
}

impl<'e> Teller<'e> {
    pub(super) fn new(event: &'e Event, hidden: &'e Attributes, lang: Lang) -> Self {
        let longest = event.decisions.iter().filter_map(|decision| timing(decision).total_ms).max();
        Self {
            event,
            hidden,
            lang,
            t: EventWords::of(lang),
            told: Told::of(lang),
            failures: Failures::of(lang),
            longest: longest.unwrap_or_default(),
        }
    }

    pub(super) fn tell(&self) -> Vec<Line> {
        self.event.decisions.iter().map(|decision| self.line(decision)).collect()
    }

    fn line(&self, decision: &Decision) -> Line {
        let line = self.by_kind(decision);
        let mut line = line.unwrap_or_else(|| Line {
            icon: "dot",
            text: decision.text.clone(),
            is_english: true,
            ..Line::default()
        });
        line.at.clone_from(&decision.at);
        line
    }

    /// A line in our own words, if there are any for it.
    fn by_kind(&self, decision: &Decision) -> Option<Line> {
        let (told, detail) = (self.told, &decision.detail);
        let line = |icon, tone, text: String| Some(Line { icon, tone, text, ..Line::default() });
        let to = || self.destination(decision);
        match decision.kind.as_str() {
            "received" => {
                let mut line = Line { icon: "door", ..Line::default() };
                line.text = fill(told.received, &[&size(self.lang, self.event.body_bytes)]);
                line.end = self.event.body_removed.then(|| told.body_removed.to_owned());
                Some(line)
            }
            "verified" => match text(detail, "by") {
                "none" => line("warn", "warn", told.unverified.to_owned()),
                "released by hand" => line("warn", "warn", told.released.to_owned()),
                by => line("check", "ok", fill(told.verified, &[&short(by)])),
            },
            "key" => line("dot", "", self.key(detail)),
            "no_key" => {
                let is_copy = |other: &Decision| other.kind == "not_a_duplicate_of";
                let is_copy = self.event.decisions.iter().any(is_copy);
                line("dot", "", if is_copy { told.no_key_copy } else { told.no_key }.to_owned())
            }
            "not_routed" => line("route", "", self.not_routed(detail)?),
            "delivery_created" => {
                let again = !detail["replay_of"].is_null();
                let words = if again { told.created_again } else { told.created };
                line("route", "", fill(words, &[&to()]))
            }
            "attempt_succeeded" | "attempt_failed" => Some(self.attempt(decision)),
            "attempts_removed" => {
                let count = detail["count"].as_u64().unwrap_or_default();
                let words = self.lang.plural(count, told.attempt_removed, told.attempts_removed);
                line("dot", "", fill(words, &[&self.lang.number(count), &to()]))
            }
            "duplicate" => Some(self.duplicate(decision, told.duplicate)),
            "duplicate_differs" => Some(self.duplicate(decision, told.duplicate_differs)),
            "duplicates" => {
                let count = detail["count"].as_u64().unwrap_or_default();
                line("copy", "", fill(told.duplicates, &[&self.lang.number(count)]))
            }
            "revived" => line("replay", "", fill(told.revived, &[&to()])),
            "replayed" => line("replay", "", fill(told.replayed, &[&to()])),
            "cancelled" => line("cross", "", fill(told.cancelled, &[&to()])),
            "lease_expired" => line("clock", "warn", fill(told.lease_expired, &[&to()])),
            "recovered" => line("clock", "warn", fill(told.recovered, &[&to()])),
            "hastened" => line("clock", "", fill(told.hastened, &[&to()])),
            "unheard" => line("warn", "warn", fill(told.unheard, &[&to()])),
            "confirmed" => {
                let late = detail["by"].is_null();
                let words = if late { told.confirmed_late } else { told.confirmed };
                line("check", "ok", fill(words, &[&to()]))
            }
            "refuted" => {
                let mut line = Line { icon: "cross", tone: "bad", ..Line::default() };
                line.text = fill(told.refuted, &[&to()]);
                line.end = self.given_up(detail["reason"].as_str());
                line.next = detail["due_at"].as_str().map(|at| (at.to_owned(), None));
                Some(line)
            }
            "damaged" => line("cross", "bad", fill(told.damaged, &[&to()])),
            "delivered_anyway" => Some(Self::other_event(detail, told.delivered_anyway)),
            "not_a_duplicate_of" => Some(Self::other_event(detail, told.not_a_duplicate)),
            "answered" => line("send", "", fill(told.answered, &[&short(text(detail, "answer"))])),
            "revealed" => {
                let who = [text(detail, "name"), text(detail, "token"), told.somebody];
                let who = who.into_iter().find(|who| !who.is_empty()).unwrap_or_default();
                line("eye", "warn", fill(told.revealed, &[&short(who)]))
            }
            _ => None,
        }
    }

    /// The destination that a decision is about.
    fn destination(&self, decision: &Decision) -> &str {
        let about = decision.delivery.as_deref();
        let owed = self.event.deliveries.iter().find(|owed| Some(owed.id.as_str()) == about);
        let name = owed.and_then(|owed| owed.destination.as_deref());
        name.unwrap_or(self.t.destination_gone)
    }

    fn key(&self, detail: &Value) -> String {
        let key = short(&without_people(text(detail, "key"), self.hidden));
        match text(detail, "from") {
            "" => fill(self.told.key, &[&key]),
            "content_hash" => fill(self.told.key_from, &[&key, &self.told.key_hash]),
            from => fill(self.told.key_from, &[&key, &short(from)]),
        }
    }

    fn not_routed(&self, detail: &Value) -> Option<String> {
        let (told, to) = (self.told, text(detail, "destination"));
        let why = text(detail, "why");
        Some(match why {
            "ping" => told.ping.to_owned(),
            "filter_false" => fill(told.filter_false, &[&to]),
            "not_json" => fill(told.not_json, &[&to]),
            "same_destination" => fill(told.same_destination, &[&to]),
            "dropped_by_transform" => fill(told.dropped, &[&to]),
            _ => fill(told.filter_failed, &[&to, &short(why.strip_prefix("filter_failed:")?)]),
        })
    }

    fn attempt(&self, decision: &Decision) -> Line {
        let detail = &decision.detail;
        let ok = decision.kind == "attempt_succeeded";
        let (icon, tone) = if ok { ("check", "ok") } else { ("cross", "bad") };
        let words = if ok { self.told.attempt_ok } else { self.told.attempt_failed };
        let number = detail["number"].as_u64().unwrap_or_default();
        let status = detail["status"].as_u64().map(|status| format!("HTTP {status}"));
        let failure = detail["failure"].as_str().map(|word| self.failures.failure(word).to_owned());
        let class = detail["class"].as_str().map(|word| self.failures.class(word).to_owned());
        let why = detail["next_why"].as_str().map(|word| self.failures.why(word).to_owned());
        Line {
            icon,
            tone,
            text: fill(words, &[&number, &self.destination(decision)]),
            facts: [status, failure, class].into_iter().flatten().collect(),
            said: detail["detail"].as_str().map(str::to_owned),
            next: detail["next_at"].as_str().map(|at| (at.to_owned(), why)),
            end: (detail["next"] == "dead").then(|| self.given_up(self.reason(decision))).flatten(),
            waterfall: Waterfall::of(&timing(decision), self.longest, self.lang, self.t),
            ..Line::default()
        }
    }

    /// Why the delivery of an attempt is dead.
    fn reason(&self, decision: &Decision) -> Option<&str> {
        let about = decision.delivery.as_deref();
        let owed = self.event.deliveries.iter().find(|owed| Some(owed.id.as_str()) == about)?;
        owed.reason.as_deref()
    }

    fn given_up(&self, reason: Option<&str>) -> Option<String> {
        reason.map(|reason| fill(self.told.given_up, &[&self.failures.reason(reason)]))
    }

    fn duplicate(&self, decision: &Decision, words: &str) -> Line {
        let gap = gap(&self.event.received_at, &decision.at);
        let seen = self.event.duplicates.iter().find(|seen| seen.seen_at == decision.at);
        let link = seen.filter(|seen| seen.n > 0).map(|seen| {
            let path = format!("{}/duplicates/{}", path_of(&self.event.id), seen.n);
            (path, self.t.compare.to_owned())
        });
        let text = fill(words, &[&span(self.lang, gap)]);
        Line { icon: "copy", text, link, ..Line::default() }
    }

    fn other_event(detail: &Value, words: &str) -> Line {
        let event = text(detail, "event");
        let n = detail["n"].as_u64().unwrap_or_default();
        Line {
            icon: "copy",
            text: fill(words, &[&n]),
            link: Some((path_of(event), event.to_owned())),
            ..Line::default()
        }
    }
}

/// How long after one time another was.
pub(super) fn gap(first: &str, then: &str) -> Duration {
    match (first.parse::<Timestamp>(), then.parse::<Timestamp>()) {
        (Ok(first), Ok(then)) => then.since(first),
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use surehook_core::decision::DecisionKind;

    use super::*;

    fn event(decisions: &Value) -> Event {
        serde_json::from_value(json!({
            "id": "evt_1", "source": "shop", "kind": null, "key": null,
            "received_at": "2026-11-15T10:00:00.000Z", "body_bytes": 10, "duplicate_count": 1,
            "attributes": {}, "body_removed": false, "sha256": "", "request": null,
            "deliveries": [{ "id": "dlv_1", "destination": "crm", "status": "dead", "order_key": null,
                "reason": "max_retries", "attempts": 1, "due_at": null, "replay_of": null,
                "replayed_by": null, "sent_id": null }],
            "duplicates": [{ "n": 1, "seen_at": "2026-11-15T10:00:04.250Z", "bytes_differ": false }],
            "decisions": decisions,
        }))
        .unwrap()
    }

    fn told(lang: Lang, kind: &str, detail: Value) -> Line {
        let decision = json!({ "at": "2026-11-15T10:00:04.250Z", "kind": kind, "text": "as the API says",
            "delivery": "dlv_1", "detail": detail });
        Teller::new(&event(&json!([decision])), &Attributes::new(), lang).tell().remove(0)
    }

    #[test]
    fn every_kind_has_words_and_new_ones_are_told_as_they_come() {
        let stored = DecisionKind::ALL.iter().map(|kind| kind.as_str());
        let others = [
            "received",
            "verified",
            "key",
            "no_key",
            "delivery_created",
            "attempt_succeeded",
            "attempt_failed",
            "attempts_removed",
            "duplicate",
            "duplicate_differs",
            "duplicates",
        ];
        for kind in stored.chain(others) {
            for lang in Lang::ALL {
                assert!(!told(lang, kind, Value::Null).is_english, "{kind} has no words");
            }
        }
        let new = told(Lang::Es, "something_new", Value::Null);
        assert_eq!((new.text.as_str(), new.is_english), ("as the API says", true));
        let why = told(Lang::Es, "not_routed", json!({ "destination": "crm", "why": "new" }));
        assert!(why.is_english);
    }

    #[test]
    fn an_attempt_tells_how_it_went_and_what_follows() {
        let detail = json!({ "number": 2, "status": 503, "failure": null, "class": "transient",
            "next": "retry", "next_at": "2026-11-15T10:01:00Z", "next_why": "retry_after" });
        let line = told(Lang::Pt, "attempt_failed", detail);
        assert_eq!(line.text, "Tentativa 2 para crm falhou");
        assert_eq!(line.facts, ["HTTP 503", "temporária"]);
        let (at, why) = line.next.unwrap();
        assert_eq!(
            (at.as_str(), why.as_deref()),
            ("2026-11-15T10:01:00Z", Some("o destino pediu com Retry-After"))
        );
        let dead = told(Lang::En, "attempt_failed", json!({ "number": 1, "next": "dead" }));
        assert_eq!(dead.end.as_deref(), Some("Given up: all attempts failed"));
    }

    #[test]
    fn a_duplicate_tells_its_gap_and_leads_to_the_comparison() {
        let line = told(Lang::En, "duplicate", Value::Null);
        assert_eq!(line.text, "Came again after 4.2 s");
        assert_eq!(line.link.unwrap().0, "/events/evt_1/duplicates/1");
    }

    #[test]
    fn routes_that_were_not_taken_say_why() {
        for (why, expected) in [
            ("filter_false", "Not for crm: the filter says no"),
            ("filter_failed:timeout", "Not for crm: the filter failed (timeout)"),
            ("ping", "The provider only asked whether we are there"),
        ] {
            let line = told(Lang::En, "not_routed", json!({ "destination": "crm", "why": why }));
            assert_eq!(line.text, expected);
        }
    }
}
