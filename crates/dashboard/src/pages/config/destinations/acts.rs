//! What an operator does with a destination: pauses, resumes, probes and tests it.

use axum::{Form, extract::Path};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::editor::can_be_mended,
    page::{Typed, page},
};
use crate::{
    client::{Address, Trouble, encode},
    lang::fill,
    page::Shown,
    visitor::Visitor,
    words::{Destinations, Edit},
};

#[derive(Deserialize)]
pub(super) struct Reason {
    #[serde(default)]
    reason: String,
}

pub(super) async fn pause(
    visitor: Visitor,
    Path(name): Path<String>,
    Form(typed): Form<Reason>,
) -> Shown {
    let reason = Some(typed.reason.trim()).filter(|reason| !reason.is_empty());
    let wish = reason.map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
    let t = Destinations::of(visitor.lang());
    let kept = Typed { reason: typed.reason, ..Typed::new(&visitor) };
    act(&visitor, (&name, "pause"), wish, Some(kept), |_| fill(t.was_paused, &[&name])).await
}

#[derive(Deserialize)]
pub(super) struct Pace {
    #[serde(default)]
    rate: String,
}

pub(super) async fn resume(
    visitor: Visitor,
    Path(name): Path<String>,
    Form(typed): Form<Pace>,
) -> Shown {
    let rate = Some(typed.rate.trim()).filter(|rate| !rate.is_empty());
    let wish = rate.map_or_else(|| json!({}), |rate| json!({ "rate": rate }));
    let t = Destinations::of(visitor.lang());
    let kept = Typed { rate: typed.rate, ..Typed::new(&visitor) };
    act(&visitor, (&name, "resume"), wish, Some(kept), |_| fill(t.was_resumed, &[&name])).await
}

pub(super) async fn probe(visitor: Visitor, Path(name): Path<String>) -> Shown {
    let t = Destinations::of(visitor.lang());
    let say = |answer: &Value| match answer["succeeded"].as_bool() {
        Some(true) => t.probe_good.to_owned(),
        _ => {
            let attempt = &answer["attempt"];
            let code = attempt["status"].as_u64().map(|code| code.to_string());
            let what = code.or_else(|| attempt["failure"].as_str().map(str::to_owned));
            fill(t.probe_bad, &[&what.unwrap_or_default()])
        }
    };
    act(&visitor, (&name, "probe"), json!({}), None, say).await
}

/// Does something with a destination and goes back to its page; what was typed is kept if it was
/// refused.
async fn act(
    visitor: &Visitor,
    (name, what): (&str, &str),
    wish: Value,
    typed: Option<Typed>,
    say: impl Fn(&Value) -> String,
) -> Shown {
    let back = format!("/destinations/{}", encode(name));
    let body = (what != "probe").then_some(wish);
    match visitor.post::<Value>(Address::new(&["destinations", name, what]), body).await {
        Ok(answer) => Ok(visitor.done(&back, say(&answer))),
        Err(trouble) if !can_be_mended(&trouble) => Err(visitor.failed(trouble)),
        Err(trouble) => match typed {
            Some(typed) => {
                page(visitor, name, Typed { lane_trouble: Some(trouble), ..typed }).await
            }
            None => Ok(visitor.refused(&back, &trouble)),
        },
    }
}

#[derive(Deserialize)]
pub(super) struct Test {
    #[serde(default)]
    once: String,
    #[serde(default)]
    body: String,
    #[serde(default)]
    to: String,
    #[serde(default)]
    text: String,
}

/// Sends a test event through everything that a real one goes through.
pub(super) async fn test(
    visitor: Visitor,
    Path(name): Path<String>,
    Form(typed): Form<Test>,
) -> Shown {
    let t = Destinations::of(visitor.lang());
    let wish = if typed.to.is_empty() {
        match serde_json::from_str::<Value>(&typed.body) {
            Ok(body) => json!({ "destination": name, "type": "test", "body": body }),
            Err(error) => {
                let detail = fill(Edit::of(visitor.lang()).not_json, &[&error]);
                let trouble = Trouble { detail, ..Trouble::default() };
                return again(&visitor, &name, typed, trouble).await;
            }
        }
    } else {
        json!({ "destination": name, "to": typed.to.trim(), "text": typed.text })
    };
    let address = Address::new(&["messages"]);
    match visitor.post_once::<Value>(address, Some(wish), &typed.once).await {
        Ok(sent) => {
            let id = sent["id"].as_str().unwrap_or_default();
            Ok(visitor.done(&format!("/events/{}", encode(id)), t.test_sent))
        }
        Err(trouble) if !can_be_mended(&trouble) => Err(visitor.failed(trouble)),
        Err(trouble) => again(&visitor, &name, typed, trouble).await,
    }
}

/// The page with the test as it was typed.
async fn again(visitor: &Visitor, name: &str, typed: Test, trouble: Trouble) -> Shown {
    let kept = Typed {
        once: visitor.once_again(&typed.once, &trouble),
        body: typed.body,
        to: typed.to,
        text: typed.text,
        test_trouble: Some(trouble),
        ..Typed::new(visitor)
    };
    page(visitor, name, kept).await
}
