//! The timeline of an event in the language of the user. Entries of unknown kinds are shown in English,
//! as the API describes them.

use serde_json::Value;
use surehook_api::{
    deliveries::DeliveryResponse,
    events::{EventDetailResponse, TimelineEntryResponse},
};
use surehook_guard::timing::AttemptTimingView;
use surehook_types::time::Timestamp;
use surehook_webhooks::attribute::Attributes;

use super::{attributes::mask_personal_data, event_path, waterfall::Waterfall};
use crate::{
    format::{format_duration, format_size, truncate},
    lang::{Lang, fill},
    translations::{EventTexts, FailureTexts, TimelineTexts},
};

/// Longer values are truncated.
const VALUE_CHARS_MAX: usize = 120;

#[derive(Default)]
pub(super) struct TimelineLine {
    pub(super) icon: &'static str,
    pub(super) tone: &'static str,
    pub(super) text: String,
    /// The text comes from the API, which is in English only.
    pub(super) is_english: bool,
    /// Link target and text.
    pub(super) link: Option<(String, String)>,
    /// Status, failure, class.
    pub(super) facts: Vec<String>,
    /// Detail from the API, in English.
    pub(super) detail_text: Option<String>,
    /// Time of the next attempt, and its reason.
    pub(super) next: Option<(String, Option<String>)>,
    /// Why there are no more retries.
    pub(super) end: Option<String>,
    pub(super) waterfall: Option<Waterfall>,
}

pub(super) struct TimelineBuilder<'e> {
    detail: &'e EventDetailResponse,
    /// Values of these attributes are masked in keys.
    masked_attributes: &'e Attributes,
    lang: Lang,
    t: &'static EventTexts,
    texts: &'static TimelineTexts,
    failures: &'static FailureTexts,
    longest_ms: u64,
}

/// `None` for attempts that were recorded without timing.
fn attempt_timing(decision: &TimelineEntryResponse) -> Option<AttemptTimingView> {
    serde_json::from_value(decision.detail["timing"].clone()).ok()
}

fn detail_str<'d>(detail: &'d Value, name: &str) -> &'d str {
    detail[name].as_str().unwrap_or_default()
}

fn shorten(value: &str) -> String {
    truncate(value, VALUE_CHARS_MAX)
}

impl<'e> TimelineBuilder<'e> {
    pub(super) fn new(
        detail: &'e EventDetailResponse,
        masked_attributes: &'e Attributes,
        lang: Lang,
    ) -> Self {
        let longest_ms = detail.decisions.iter().filter_map(attempt_timing);
        let longest_ms = longest_ms.map(|timing| timing.total_ms).max();
        Self {
            detail,
            masked_attributes,
            lang,
            t: EventTexts::of(lang),
            texts: TimelineTexts::of(lang),
            failures: FailureTexts::of(lang),
            longest_ms: longest_ms.unwrap_or_default(),
        }
    }

    /// The lines with their times.
    pub(super) fn build(&self) -> Vec<(Timestamp, TimelineLine)> {
        let decisions = self.detail.decisions.iter();
        decisions.map(|decision| (decision.at, self.build_line(decision))).collect()
    }

    fn build_line(&self, decision: &TimelineEntryResponse) -> TimelineLine {
        self.translated_line(decision).unwrap_or_else(|| TimelineLine {
            icon: "dot",
            text: decision.text.clone(),
            is_english: true,
            ..TimelineLine::default()
        })
    }

    /// The translated line, if the kind is known.
    fn translated_line(&self, decision: &TimelineEntryResponse) -> Option<TimelineLine> {
        let (texts, detail) = (self.texts, &decision.detail);
        let line = |icon, tone, text: String| {
            Some(TimelineLine { icon, tone, text, ..TimelineLine::default() })
        };
        let to = || self.destination_name(decision);
        match decision.kind.as_str() {
            "received" => {
                let mut line = TimelineLine { icon: "door", ..TimelineLine::default() };
                line.text =
                    fill(texts.received, &[&format_size(self.lang, self.detail.event.body_bytes)]);
                line.end = self.detail.event.body_removed.then(|| texts.body_removed.to_owned());
                Some(line)
            }
            "verified" => match detail_str(detail, "by") {
                "none" => line("warn", "warn", texts.unverified.to_owned()),
                "released by hand" => line("warn", "warn", texts.released.to_owned()),
                by => line("check", "ok", fill(texts.verified, &[&shorten(by)])),
            },
            "key" => line("dot", "", self.key_text(detail)),
            "no_key" => {
                let is_duplicate =
                    |other: &TimelineEntryResponse| other.kind == "not_a_duplicate_of";
                let is_duplicate = self.detail.decisions.iter().any(is_duplicate);
                line(
                    "dot",
                    "",
                    if is_duplicate { texts.no_key_duplicate } else { texts.no_key }.to_owned(),
                )
            }
            "not_routed" => line("route", "", self.not_routed_text(detail)?),
            "delivery_created" => {
                let is_replay = !detail["replay_of"].is_null();
                let template = if is_replay { texts.created_again } else { texts.created };
                line("route", "", fill(template, &[&to()]))
            }
            "attempt_succeeded" | "attempt_failed" => Some(self.attempt_line(decision)),
            "attempts_removed" => {
                let count = detail["count"].as_u64().unwrap_or_default();
                let template =
                    self.lang.plural(count, texts.attempt_removed, texts.attempts_removed);
                line("dot", "", fill(template, &[&self.lang.number(count), &to()]))
            }
            "duplicate" => Some(self.duplicate_line(decision, texts.duplicate)),
            "duplicate_differs" => Some(self.duplicate_line(decision, texts.duplicate_differs)),
            "duplicate_replayed" => Some(self.duplicate_line(decision, texts.duplicate_replayed)),
            "key_conflict" => Some(TimelineLine {
                tone: "warn",
                icon: "warn",
                ..Self::other_event_line(detail, texts.key_conflict)
            }),
            "duplicates" => {
                let count = detail["count"].as_u64().unwrap_or_default();
                line("copy", "", fill(texts.duplicates, &[&self.lang.number(count)]))
            }
            "revived" => line("replay", "", fill(texts.revived, &[&to()])),
            "replayed" => line("replay", "", fill(texts.replayed, &[&to()])),
            "cancelled" if decision.detail["why"].is_string() => {
                line("cross", "", fill(texts.cancelled_not_routed, &[&to()]))
            }
            "cancelled" => line("cross", "", fill(texts.cancelled, &[&to()])),
            "lease_expired" => line("clock", "warn", fill(texts.lease_expired, &[&to()])),
            "recovered" => line("clock", "warn", fill(texts.recovered, &[&to()])),
            "hastened" => line("clock", "", fill(texts.hastened, &[&to()])),
            "unheard" => line("warn", "warn", fill(texts.no_response, &[&to()])),
            "confirmed" => {
                let late = detail["by"].is_null();
                let template = if late { texts.confirmed_late } else { texts.confirmed };
                line("check", "ok", fill(template, &[&to()]))
            }
            "refuted" => {
                let mut line =
                    TimelineLine { icon: "cross", tone: "bad", ..TimelineLine::default() };
                line.text = fill(texts.refuted, &[&to()]);
                line.end = self.gave_up_text(detail["reason"].as_str());
                line.next = detail["due_at"].as_str().map(|at| (at.to_owned(), None));
                Some(line)
            }
            "damaged" => line("cross", "bad", fill(texts.damaged, &[&to()])),
            "delivered_anyway" => Some(Self::other_event_line(detail, texts.delivered_anyway)),
            "not_a_duplicate_of" => Some(Self::other_event_line(detail, texts.not_a_duplicate)),
            "callback_posted" => Some(TimelineLine {
                icon: "send",
                ..Self::other_event_line(detail, texts.callback_posted)
            }),
            "callback_lost" => line("warn", "warn", fill(texts.callback_lost, &[&to()])),
            "answered" => {
                line("send", "", fill(texts.answered, &[&shorten(detail_str(detail, "answer"))]))
            }
            "revealed" => {
                let actor =
                    [detail_str(detail, "name"), detail_str(detail, "token"), texts.unknown_user];
                let actor = actor.into_iter().find(|actor| !actor.is_empty()).unwrap_or_default();
                line("eye", "warn", fill(texts.revealed, &[&shorten(actor)]))
            }
            _ => None,
        }
    }

    fn delivery(&self, decision: &TimelineEntryResponse) -> Option<&DeliveryResponse> {
        self.detail.deliveries.iter().find(|delivery| Some(delivery.id) == decision.delivery)
    }

    fn destination_name(&self, decision: &TimelineEntryResponse) -> &str {
        let name = self.delivery(decision).and_then(|delivery| delivery.destination.as_deref());
        name.unwrap_or(self.t.destination_gone)
    }

    fn key_text(&self, detail: &Value) -> String {
        let key = shorten(&mask_personal_data(detail_str(detail, "key"), self.masked_attributes));
        let origin = match detail_str(detail, "from") {
            "" => return fill(self.texts.key, &[&key]),
            "content_hash" => self.texts.key_hash.to_owned(),
            from => match from.split_once(':') {
                Some(("pointer", pointer)) => fill(self.texts.key_body_field, &[&shorten(pointer)]),
                Some(("header", name)) => fill(self.texts.key_header, &[&shorten(name)]),
                _ => shorten(from),
            },
        };
        let template = match detail_str(detail, "origin") {
            "guessed" => self.texts.key_guessed,
            _ => self.texts.key_from,
        };
        fill(template, &[&key, &origin])
    }

    fn not_routed_text(&self, detail: &Value) -> Option<String> {
        let (texts, to) = (self.texts, detail_str(detail, "destination"));
        let reason = detail_str(detail, "why");
        Some(match reason {
            "ping" => texts.ping.to_owned(),
            "filter_false" => fill(texts.filter_false, &[&to]),
            "not_json" => fill(texts.not_json, &[&to]),
            "same_destination" => fill(texts.same_destination, &[&to]),
            "dropped_by_transform" => fill(texts.dropped, &[&to]),
            _ => {
                fill(texts.filter_failed, &[&to, &shorten(reason.strip_prefix("filter_failed:")?)])
            }
        })
    }

    fn attempt_line(&self, decision: &TimelineEntryResponse) -> TimelineLine {
        let detail = &decision.detail;
        let ok = decision.kind == "attempt_succeeded";
        let (icon, tone) = if ok { ("check", "ok") } else { ("cross", "bad") };
        let template = if ok { self.texts.attempt_ok } else { self.texts.attempt_failed };
        let number = detail["number"].as_u64().unwrap_or_default();
        let status = detail["status"].as_u64().map(|status| format!("HTTP {status}"));
        let failure = detail["failure"].as_str().map(|code| self.failures.failure(code).to_owned());
        let class = detail["class"].as_str().map(|code| self.failures.class(code).to_owned());
        let schedule_reason = detail["next_reason"]
            .as_str()
            .map(|code| self.failures.schedule_reason(code).to_owned());
        let delivery = self.delivery(decision).filter(|_| detail["next"] == "dead");
        let reason = delivery.and_then(|delivery| delivery.reason);
        TimelineLine {
            icon,
            tone,
            text: fill(template, &[&number, &self.destination_name(decision)]),
            facts: [status, failure, class].into_iter().flatten().collect(),
            detail_text: detail["detail"].as_str().map(str::to_owned),
            next: detail["next_at"].as_str().map(|at| (at.to_owned(), schedule_reason)),
            end: reason.and_then(|reason| self.gave_up_text(Some(reason.as_str()))),
            waterfall: attempt_timing(decision)
                .map(|timing| Waterfall::build(&timing, self.longest_ms, self.lang, self.t)),
            ..TimelineLine::default()
        }
    }

    fn gave_up_text(&self, reason: Option<&str>) -> Option<String> {
        reason.map(|reason| fill(self.texts.gave_up, &[&self.failures.reason(reason)]))
    }

    fn duplicate_line(&self, decision: &TimelineEntryResponse, template: &str) -> TimelineLine {
        let gap = decision.at.since(self.detail.event.received_at);
        let mut duplicates = self.detail.duplicates.iter();
        let duplicate = duplicates.find(|duplicate| duplicate.seen_at == decision.at);
        let link = duplicate.filter(|duplicate| duplicate.n > 0).map(|duplicate| {
            let path = format!("{}/duplicates/{}", event_path(self.detail.event.id), duplicate.n);
            (path, self.t.compare.to_owned())
        });
        let text = fill(template, &[&format_duration(self.lang, gap)]);
        TimelineLine { icon: "copy", text, link, ..TimelineLine::default() }
    }

    fn other_event_line(detail: &Value, template: &str) -> TimelineLine {
        let event = detail_str(detail, "event");
        let n = detail["n"].as_u64().unwrap_or_default();
        TimelineLine {
            icon: "copy",
            text: fill(template, &[&n]),
            link: Some((event_path(event), event.to_owned())),
            ..TimelineLine::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use surehook_core::decision::EventDecisionKind;

    use super::*;

    const EVENT: &str = "evt_01k00000000000000000000000";
    const DELIVERY: &str = "dlv_01k00000000000000000000000";

    fn event(decisions: &Value) -> EventDetailResponse {
        serde_json::from_value(json!({
            "id": EVENT, "request_id": "req_01k00000000000000000000000", "source": "shop",
            "no_key": true, "received_at": "2026-11-15T10:00:00.000Z", "body_bytes": 10,
            "duplicate_count": 1, "attributes": {}, "body_removed": false, "sha256": "",
            "deliveries": [{ "id": DELIVERY, "event": EVENT, "destination": "crm", "status": "dead",
                "reason": "max_retries", "attempts": 1, "created_at": "2026-11-15T10:00:00.000Z" }],
            "duplicates": [{ "n": 1, "seen_at": "2026-11-15T10:00:04.250Z", "bytes_differ": false,
                "body_omitted": false, "masked": 0 }],
            "decisions": decisions,
        }))
        .unwrap()
    }

    fn line_for(lang: Lang, kind: &str, detail: Value) -> TimelineLine {
        let decision = json!({ "at": "2026-11-15T10:00:04.250Z", "kind": kind, "text": "as the API says",
            "delivery": DELIVERY, "detail": detail });
        TimelineBuilder::new(&event(&json!([decision])), &Attributes::default(), lang)
            .build()
            .remove(0)
            .1
    }

    #[test]
    fn every_timeline_kind_is_translated_and_unknown_kinds_stay_english() {
        let stored = EventDecisionKind::ALL.iter().map(|kind| kind.as_str());
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
            "duplicate_replayed",
            "key_conflict",
            "duplicates",
        ];
        for kind in stored.chain(others) {
            for lang in Lang::ALL {
                assert!(!line_for(lang, kind, Value::Null).is_english, "{kind} is not translated");
            }
        }
        let new = line_for(Lang::Es, "something_new", Value::Null);
        assert_eq!((new.text.as_str(), new.is_english), ("as the API says", true));
        let line = line_for(Lang::Es, "not_routed", json!({ "destination": "crm", "why": "new" }));
        assert!(line.is_english);
    }

    #[test]
    fn attempt_line_shows_result_and_next_attempt() {
        let detail = json!({ "number": 2, "status": 503, "failure": null, "class": "transient",
            "next": "retry", "next_at": "2026-11-15T10:01:00Z", "next_reason": "retry_after" });
        let line = line_for(Lang::Pt, "attempt_failed", detail);
        assert_eq!(line.text, "Tentativa 2 para crm falhou");
        assert_eq!(line.facts, ["HTTP 503", "Falha temporária"]);
        let (at, reason) = line.next.unwrap();
        assert_eq!(
            (at.as_str(), reason.as_deref()),
            ("2026-11-15T10:01:00Z", Some("Solicitado pelo destino (Retry-After)"))
        );
        assert!(line.waterfall.is_none(), "no timing, no waterfall");
        let dead = line_for(Lang::En, "attempt_failed", json!({ "number": 1, "next": "dead" }));
        assert_eq!(dead.end.as_deref(), Some("No more retries: All retries failed"));
    }

    #[test]
    fn duplicate_line_shows_delay_and_links_to_comparison() {
        let line = line_for(Lang::En, "duplicate", Value::Null);
        assert_eq!(line.text, "Duplicate received after 4.2 s");
        assert_eq!(line.link.unwrap().0, format!("/events/{EVENT}/duplicates/1"));
    }

    #[test]
    fn not_routed_lines_show_the_reason() {
        for (code, expected) in [
            ("filter_false", "Not routed to crm: filter did not match"),
            ("filter_failed:timeout", "Not routed to crm: filter failed (timeout)"),
            ("ping", "Not routed: test request from the provider"),
        ] {
            let line =
                line_for(Lang::En, "not_routed", json!({ "destination": "crm", "why": code }));
            assert_eq!(line.text, expected);
        }
    }
}
