//! One destination: how it does, and the forms for what can be done about it.

use std::time::Duration;

use askama::Template;
use axum::extract::Path;
use serde::Deserialize;
use serde_json::{Value, json};
use surehook_core::destination::kind::Family;

use super::{
    super::{Deletion, chart::Series},
    Found, NOTHING, Stats,
    fields::kind_of,
    state::{Limit, Numbers, Watermark, badge, limits, watermark},
    without_secrets,
};
use crate::{
    client::{Address, List, Trouble, encode},
    page::{Frame, Nav, Shown, show},
    show::{Badge, span},
    visitor::Visitor,
    words::{Destinations, Edit},
};

/// An attempt that failed.
#[derive(Deserialize)]
struct Attempt {
    started_at: String,
    status: Option<u16>,
    failure: Option<String>,
    class: Option<String>,
    detail: Option<String>,
}

impl Attempt {
    fn what(&self) -> String {
        let code = self.status.map(|status| status.to_string());
        let what = code.or_else(|| self.failure.clone()).unwrap_or_default();
        format!("{what} {}", self.class.as_deref().unwrap_or_default()).trim().to_owned()
    }
}

#[derive(Template)]
#[template(path = "destination.html")]
struct DestinationPage {
    frame: Frame,
    t: &'static Destinations,
    e: &'static Edit,
    found: Found,
    badge: Badge,
    mark: Option<Watermark>,
    limits: Vec<Limit>,
    /// It is neither paused nor unusable.
    is_free: bool,
    deletion: Deletion,
    path: String,
    tiles: Vec<(&'static str, String, String)>,
    last: Option<Attempt>,
    takes_messages: bool,
    spec: String,
    typed: Typed,
}

/// What is in the forms of the page, and why one of them was not carried out.
pub(super) struct Typed {
    pub(super) reason: String,
    pub(super) rate: String,
    pub(super) body: String,
    pub(super) to: String,
    pub(super) text: String,
    pub(super) once: String,
    /// What was wrong with the test.
    pub(super) test_trouble: Option<Trouble>,
    /// Why it was neither paused nor resumed.
    pub(super) lane_trouble: Option<Trouble>,
}

impl Typed {
    pub(super) fn new(visitor: &Visitor) -> Self {
        Self {
            reason: String::new(),
            rate: String::new(),
            body: SAMPLE.to_owned(),
            to: String::new(),
            text: String::new(),
            once: visitor.once(),
            test_trouble: None,
            lane_trouble: None,
        }
    }
}

/// What is sent to see whether anything arrives.
const SAMPLE: &str = "{\n  \"type\": \"test\",\n  \"message\": \"Hello from Surehook\"\n}";

pub(super) async fn one(visitor: Visitor, Path(name): Path<String>) -> Shown {
    let typed = Typed::new(&visitor);
    page(&visitor, &name, typed).await
}

pub(super) async fn page(visitor: &Visitor, name: &str, typed: Typed) -> Shown {
    let (lang, t) = (visitor.lang(), Destinations::of(visitor.lang()));
    let failed = |trouble| visitor.failed(trouble);
    let address = Address::new(&["destinations", name]);
    let (mut shown, tag) = visitor.get_tagged::<Value>(address).await.map_err(failed)?;
    let unread = |_| visitor.failed(Trouble { status: 500, ..Trouble::default() });
    let mut found: Found = serde_json::from_value(shown.clone()).map_err(unread)?;
    let stats: Stats = visitor.get(Address::new(&["stats"])).await.map_err(failed)?;
    let numbers = stats.destinations.into_iter().find(|numbers| numbers.name == found.name);
    let numbers = numbers.unwrap_or_default();
    found.url = without_secrets(&found.url);
    if shown["url"].is_string() {
        shown["url"] = json!(found.url);
    }
    let spec = crate::fields::bare(shown);
    let e = Edit::of(lang);
    let text = t.delete_text.to_owned();
    show(&DestinationPage {
        frame: Frame::new(visitor, Nav::Destinations, &found.name),
        t,
        e,
        badge: badge(found.state.as_ref(), t),
        mark: watermark(&numbers, lang, t),
        limits: limits(found.state.as_ref(), found.rate.as_deref(), t),
        is_free: found.state.as_ref().is_some_and(|state| state.pause.is_none()),
        deletion: Deletion::new(e, "destinations", &found.name, tag, text),
        path: format!("/destinations/{}", encode(&found.name)),
        tiles: tiles(visitor, &found.name, &numbers).await.map_err(failed)?,
        last: last_failure(visitor, &found.name).await.map_err(failed)?,
        takes_messages: kind_of(&spec).family() == Family::Service,
        spec: serde_json::to_string_pretty(&spec).unwrap_or_default(),
        typed,
        found,
    })
}

/// How it did in the last 24 hours.
async fn tiles(
    visitor: &Visitor,
    name: &str,
    numbers: &Numbers,
) -> Result<Vec<(&'static str, String, String)>, Trouble> {
    let (lang, t) = (visitor.lang(), Destinations::of(visitor.lang()));
    let of = |metric| Series::of_day(visitor, metric, "destination", name);
    let (attempts, failures) = (of("attempts").await?.total.value, of("failed").await?.total.value);
    let times = of("attempt_time").await?.total;
    let dead = of("dead").await?.total.value;
    let ms = |ms: Option<f64>| {
        let whole = ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
        whole.map_or_else(|| NOTHING.to_owned(), |whole| span(lang, whole))
    };
    #[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
    let success = match attempts {
        0 => NOTHING.to_owned(),
        _ => {
            let share = (attempts.saturating_sub(failures)) as f64 / attempts as f64;
            format!("{} %", lang.decimal(share * 100.0, 1))
        }
    };
    let none = String::new;
    let times_shown = match times.p95_ms {
        Some(_) => format!("p50 {} · p99 {}", ms(times.p50_ms), ms(times.p99_ms)),
        None => none(),
    };
    Ok(vec![
        (t.success, success, none()),
        (t.attempts_day, lang.number(attempts), none()),
        (t.took, ms(times.p95_ms), times_shown),
        (t.dead_day, lang.number(dead), none()),
        (t.oldest, numbers.age(lang), none()),
    ])
}

/// The newest failure of what is tried again, or else of what died.
async fn last_failure(visitor: &Visitor, name: &str) -> Result<Option<Attempt>, Trouble> {
    #[derive(Deserialize)]
    struct Listed {
        id: String,
    }
    #[derive(Deserialize)]
    struct Whole {
        attempt_list: Vec<Attempt>,
    }
    for status in ["scheduled", "dead"] {
        let address = Address::new(&["deliveries"])
            .with("destination", name)
            .with("status", status)
            .with("limit", "1");
        let found: List<Listed> = visitor.get(address).await?;
        let Some(delivery) = found.data.into_iter().next() else { continue };
        let whole: Whole = visitor.get(Address::new(&["deliveries", &delivery.id])).await?;
        let failed = |attempt: &Attempt| attempt.class.is_some();
        if let Some(attempt) = whole.attempt_list.into_iter().rev().find(failed) {
            return Ok(Some(attempt));
        }
    }
    Ok(None)
}
