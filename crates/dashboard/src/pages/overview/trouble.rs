//! What needs somebody: destinations that fail, open groups of dead letters, and days that are nearly
//! full. All of it comes from short lists, so it costs the same with ten million events.

use std::collections::{BTreeMap, HashSet};

use futures_util::future;
use serde::Deserialize;

use super::{
    Stats,
    charts::{self, Series},
    range::Range,
};
use crate::{
    client::{Address, List, Trouble, encode},
    lang::{Lang, fill},
    show::Badge,
    visitor::Visitor,
    words::{Failures, Overview},
};

/// Rows of each list here.
const ROWS_MAX: usize = 8;
/// Groups that are shown.
const GROUPS_SHOWN: usize = 5;

#[derive(Debug, Deserialize)]
pub(super) struct Group {
    pub(super) id: String,
    pub(super) destination: Option<String>,
    pub(super) class: Option<String>,
    pub(super) code: Option<u16>,
    failure: Option<String>,
    pub(super) sample: Option<String>,
    pub(super) count: u64,
    pub(super) last_seen: String,
}

impl Group {
    /// What they died of, in a few words.
    pub(super) fn cause(&self, t: &Overview, f: &Failures) -> String {
        let code = self.code.map(|code| code.to_string());
        let code = code.as_deref().or(self.failure.as_deref());
        let class = self.class.as_deref().map(|class| f.class(class));
        let parts: Vec<_> = [code, class].into_iter().flatten().collect();
        if parts.is_empty() { t.class_unknown.to_owned() } else { parts.join(" · ") }
    }

    pub(super) fn path(&self) -> String {
        format!("/dead-letters/all?q={}", encode(&format!("group:{}", self.id)))
    }
}

#[derive(Debug, Deserialize)]
struct Waiting {
    destination: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Destination {
    name: String,
    sent_today: Option<u64>,
    warn_at: Option<u64>,
    stop_at: Option<u64>,
    over: bool,
    state: Option<State>,
}

#[derive(Debug, Deserialize)]
struct State {
    paused: bool,
    circuit: String,
    cooling_until: Option<String>,
}

impl Destination {
    /// How it does, if not well.
    fn trouble(&self, t: &Overview) -> Option<Badge> {
        let Some(state) = &self.state else {
            return Some(Badge::new("bad", "warn", t.misconfigured));
        };
        match (state.paused, state.circuit.as_str()) {
            (true, _) => Some(Badge::new("held", "pause", t.paused)),
            (false, "open") => Some(Badge::new("bad", "cross", t.circuit_open)),
            (false, "half_open" | "ramp") => Some(Badge::new("warn", "clock", t.circuit_trying)),
            _ if state.cooling_until.is_some() => Some(Badge::new("warn", "clock", t.cooling)),
            _ => None,
        }
    }
}

/// A destination that does not do well.
pub(super) struct Failing {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) state: Badge,
    pub(super) class: Option<String>,
    pub(super) dead: u64,
    /// Whether some of its deliveries are tried again.
    pub(super) retries: bool,
}

/// How much of its day a destination that sends messages has used.
pub(super) struct Sent {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) text: String,
    pub(super) value: u64,
    pub(super) warn_at: Option<u64>,
    pub(super) max: Option<u64>,
    pub(super) badge: Option<Badge>,
}

pub(super) struct Troubles {
    pub(super) failing: Vec<Failing>,
    pub(super) groups: Vec<Group>,
    pub(super) sent: Vec<Sent>,
    /// Whether anything is dead, in a group or not.
    pub(super) some_dead: bool,
}

impl Troubles {
    pub(super) async fn of(
        visitor: &Visitor,
        stats: &Stats,
        range: Range,
        t: &'static Overview,
    ) -> Result<Self, Trouble> {
        let address = |parts: &[&str]| Address::new(parts).with("limit", "50");
        let retrying = address(&["deliveries"]).with("status", "scheduled");
        let (mut groups, retrying) = tokio::try_join!(
            visitor.get::<List<Group>>(address(&["dead-letters", "groups"])),
            visitor.get::<List<Waiting>>(retrying),
        )?;
        let mut failing = failing(stats, &groups.data, &retrying.data, t);
        let mostly = failing.iter().map(|one| mostly(visitor, range, &one.name));
        for (class, one) in future::join_all(mostly).await.into_iter().zip(&mut failing) {
            one.class = class.or(one.class.take());
        }
        groups.data.truncate(GROUPS_SHOWN);
        let sent = sent(stats, t, visitor.lang());
        Ok(Self { failing, groups: groups.data, sent, some_dead: stats.dlq_size > 0 })
    }
}

/// How attempts to a destination fail mostly, in the time that is shown.
async fn mostly(visitor: &Visitor, range: Range, name: &str) -> Option<String> {
    let address = charts::address("failed", range).with("destination", name);
    // It may have been deleted in between; then nothing is said about it.
    let failed: Series = visitor.get(address).await.ok()?;
    let most = failed.total.by.into_iter().max_by_key(|(_, count)| *count);
    most.filter(|(_, count)| *count > 0).map(|(class, _)| class)
}

/// Those in a bad state, those with dead letters and those that are tried again; the worst first.
fn failing(
    stats: &Stats,
    groups: &[Group],
    retrying: &[Waiting],
    t: &'static Overview,
) -> Vec<Failing> {
    let mut dead: BTreeMap<&str, (u64, Option<&str>)> = BTreeMap::new();
    for group in groups {
        let Some(name) = group.destination.as_deref() else { continue };
        // Newest first: the first class that is seen is that of the last failure.
        let entry = dead.entry(name).or_insert((0, group.class.as_deref()));
        entry.0 += group.count;
    }
    let retried: HashSet<&str> =
        retrying.iter().filter_map(|it| it.destination.as_deref()).collect();
    let mut found: Vec<_> = stats
        .destinations
        .iter()
        .filter_map(|destination| {
            let name = destination.name.as_str();
            let trouble = destination.trouble(t);
            let (count, class) = dead.get(name).copied().unwrap_or_default();
            let retries = retried.contains(name);
            (trouble.is_some() || count > 0 || retries).then(|| Failing {
                name: name.to_owned(),
                path: format!("/destinations/{}", encode(name)),
                state: trouble.unwrap_or_else(|| Badge::new("ok", "check", t.circuit_closed)),
                class: class.map(str::to_owned),
                dead: count,
                retries,
            })
        })
        .collect();
    let rank = |one: &Failing| {
        ["bad", "held", "warn"].iter().position(|tone| *tone == one.state.tone).unwrap_or(3)
    };
    found.sort_by_key(|one| (rank(one), std::cmp::Reverse(one.dead)));
    found.truncate(ROWS_MAX);
    found
}

fn sent(stats: &Stats, t: &Overview, lang: Lang) -> Vec<Sent> {
    let shown = |destination: &Destination| {
        let value = destination.sent_today?;
        let limit = destination.stop_at.or(destination.warn_at);
        let number = lang.number(value);
        let text = match limit {
            Some(limit) => fill(t.sent_of, &[&number, &lang.number(limit)]),
            None => number,
        };
        let is_full = destination.stop_at.is_some_and(|stop_at| value >= stop_at);
        let badge = if is_full {
            Some(Badge::new("bad", "cross", t.day_full))
        } else {
            destination.over.then(|| Badge::new("warn", "warn", t.day_warns))
        };
        Some(Sent {
            name: destination.name.clone(),
            path: format!("/destinations/{}", encode(&destination.name)),
            text,
            value,
            warn_at: destination.warn_at.filter(|_| limit.is_some()),
            max: limit,
            badge,
        })
    };
    stats.destinations.iter().filter_map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(name: &str, paused: bool, circuit: &str) -> serde_json::Value {
        serde_json::json!({
            "name": name, "sent_today": null, "warn_at": null, "stop_at": null, "over": false,
            "state": { "paused": paused, "circuit": circuit, "cooling_until": null },
        })
    }

    fn stats(destinations: &[serde_json::Value]) -> Stats {
        serde_json::from_value(serde_json::json!({
            "total": 1, "by_status": {}, "dlq_size": 0, "oldest_pending_age_seconds": null,
            "destinations": destinations,
        }))
        .unwrap()
    }

    fn group(destination: &str, class: &str, count: u64) -> Group {
        Group {
            id: "g".to_owned(),
            destination: Some(destination.to_owned()),
            class: Some(class.to_owned()),
            code: Some(503),
            failure: None,
            sample: None,
            count,
            last_seen: String::new(),
        }
    }

    #[test]
    fn the_worst_comes_first_and_the_healthy_not_at_all() {
        let stats = stats(&[
            destination("healthy", false, "closed"),
            destination("retried", false, "closed"),
            destination("paused", true, "open"),
            destination("open", false, "open"),
            destination("dying", false, "closed"),
        ]);
        let groups = [group("dying", "permanent", 3), group("dying", "transient", 4)];
        let retrying = [Waiting { destination: Some("retried".to_owned()) }];
        let found = failing(&stats, &groups, &retrying, Overview::of(Lang::En));
        let names: Vec<_> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["open", "paused", "dying", "retried"]);
        assert_eq!((found[2].dead, found[2].class.as_deref()), (7, Some("permanent")));
        assert_eq!(
            groups[0].cause(Overview::of(Lang::En), Failures::of(Lang::En)),
            "503 · refused for good"
        );
    }

    #[test]
    fn a_day_that_is_nearly_full_says_so() {
        for (value, over, expected) in
            [(10, false, None), (80, true, Some("warn")), (100, true, Some("bad"))]
        {
            let mut json = destination("wa", false, "closed");
            json["sent_today"] = value.into();
            json["warn_at"] = 80.into();
            json["stop_at"] = 100.into();
            json["over"] = over.into();
            let shown = sent(&stats(&[json]), Overview::of(Lang::En), Lang::En).remove(0);
            assert_eq!(shown.badge.map(|badge| badge.tone), expected, "case: {value}");
            assert_eq!(shown.text, format!("{value} of 100"));
        }
    }
}
