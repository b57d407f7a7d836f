//! Secrets that a change leaves as they are: whoever sends back the mask that he was shown keeps what
//! is under it.

use http::Uri;
use serde_json::{Value, value::RawValue};
use surehook_core::redact::{self, MASK};

use super::masked::{self, Masked};
use crate::problem::Problem;

/// Reads what is to replace `stored`. A mask stands for the secret that is there in the same place.
pub(super) fn read<S: Masked + serde::de::DeserializeOwned>(
    wish: &RawValue,
    stored: &S,
) -> Result<S, Problem> {
    let invalid = |error: serde_json::Error| Problem::invalid(error.to_string());
    let mut json: Value = serde_json::from_str(wish.get()).map_err(invalid)?;
    // A spec is plain data and always becomes JSON.
    let plain = serde_json::to_value(stored).unwrap_or_default();
    if !uncover(&mut json, &plain, &masked::spec(stored)) {
        return serde_json::from_str(wish.get()).map_err(invalid);
    }
    if leads_to(&json) != leads_to(&plain) {
        return Err(Problem::invalid(format!(
            "it would lead elsewhere, and secrets do not go along by themselves: write those that \
             are `{MASK}` again"
        )));
    }
    serde_json::from_value(json).map_err(invalid)
}

/// Puts what is under a mask in its place, wherever `shown` has the same mask. Of a list the first mask
/// is the first secret that is shown as one, so that a new one can be put before it.
fn uncover(wish: &mut Value, plain: &Value, shown: &Value) -> bool {
    match (wish, plain, shown) {
        (wish @ Value::String(_), Value::String(_), Value::String(mask))
            if *wish == MASK && mask == MASK =>
        {
            *wish = plain.clone();
            true
        }
        // Of an address only the secrets in its query are hidden.
        (Value::String(wish), Value::String(plain), Value::String(shown))
            if plain != shown && *shown == redact::mask_url(plain) =>
        {
            let uncovered = redact::unmask_url(wish, plain);
            let any = *wish != uncovered;
            *wish = uncovered;
            any
        }
        (Value::Object(wish), Value::Object(plain), Value::Object(shown)) => {
            let mut any = false;
            for (name, wish) in wish {
                if let (Some(plain), Some(shown)) = (plain.get(name), shown.get(name)) {
                    any |= uncover(wish, plain, shown);
                }
            }
            any
        }
        (Value::Array(wish), Value::Array(plain), Value::Array(shown)) => {
            let hidden = plain.iter().zip(shown).filter(|(_, shown)| **shown == MASK);
            let masks = wish.iter_mut().filter(|wish| **wish == MASK);
            let mut any = false;
            for (wish, (plain, _)) in masks.zip(hidden) {
                *wish = plain.clone();
                any = true;
            }
            any
        }
        _ => false,
    }
}

/// Who gets what is sent, and so its secrets. Another path at the same place is no other place.
fn leads_to(spec: &Value) -> [Option<Value>; 5] {
    let at = |pointer: &str| spec.pointer(pointer).cloned();
    let origin = |pointer: &str| {
        let url = at(pointer)?;
        let parsed = url.as_str().and_then(|url| url.parse::<Uri>().ok());
        let origin = parsed.and_then(|url| {
            Some(format!("{}://{}", url.scheme_str()?, url.authority()?).to_ascii_lowercase())
        });
        // Of what is no such address the whole counts.
        Some(origin.map_or(url, Value::from))
    };
    [
        at("/kind"),
        origin("/url"),
        at("/proxy"),
        at("/exec/command"),
        origin("/auth/oauth2/token_url"),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{json, value::to_raw_value};
    use surehook_core::{destination::DestinationSpec, source::SourceSpec};

    use super::*;

    fn source(json: Value) -> SourceSpec {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_mask_stands_for_the_secret_under_it() {
        let there = source(json!({
            "name": "shop", "provider": "stripe", "secrets": ["old", "env:OLDER", "oldest"],
            "verify_token": "token",
        }));
        for (secrets, expected) in [
            (json!(["•••", "env:OLDER", "•••"]), Some(json!(["old", "env:OLDER", "oldest"]))),
            (json!(["new", "•••"]), Some(json!(["new", "old"]))),
            (json!(["new"]), Some(json!(["new"]))),
            (json!(["•••", "•••", "•••"]), None),
        ] {
            let wish = json!({ "name": "shop", "provider": "stripe", "secrets": secrets,
                "verify_token": "•••" });
            let read = read(&to_raw_value(&wish).unwrap(), &there);
            let read = read.ok().map(|spec| serde_json::to_value(spec).unwrap());
            assert_eq!(read.as_ref().map(|spec| spec["secrets"].clone()), expected);
            assert!(read.is_none_or(|spec| spec["verify_token"] == "token"));
        }
        let wish = json!({ "name": "•••", "provider": "stripe", "secrets": ["a"] });
        assert!(read(&to_raw_value(&wish).unwrap(), &there).is_err(), "a name is no secret");
    }

    #[test]
    fn secrets_do_not_go_along_to_another_place() {
        let spec = json!({
            "name": "crm", "url": "https://a.example/in", "headers": { "X-Key": "hunter2" },
            "auth": { "bearer": "hunter3" },
        });
        let there: DestinationSpec = serde_json::from_value(spec.clone()).unwrap();
        let shown = masked::spec(&there);
        for (pointer, value, keeps) in [
            ("url", "https://a.example/elsewhere", true),
            ("url", "https://b.example/in", false),
            ("url", "http://a.example/in", false),
            ("url", "https://a.example:8443/in", false),
            ("proxy", "http://evil.example", false),
            ("kind", "redis-stream", false),
            ("delay", "5s", true),
        ] {
            let mut wish = shown.clone();
            wish[pointer] = json!(value);
            let read = read(&to_raw_value(&wish).unwrap(), &there);
            assert_eq!(read.is_ok(), keeps, "case: {pointer} {value}");
            let kept = read.map(|spec| serde_json::to_value(spec).unwrap()["auth"].clone());
            assert!(kept.is_err() || kept.is_ok_and(|auth| auth == spec["auth"]));
        }
    }

    #[test]
    fn a_mask_in_an_address_stands_for_the_secret_under_it() {
        let url = "https://a.example/in?token=s%2B1&a=1&token=s2";
        let there: DestinationSpec =
            serde_json::from_value(json!({ "name": "crm", "url": url })).unwrap();
        for (wish, expected) in [
            ("https://a.example/in?token=•••&a=1&token=•••", Some(url)),
            ("https://a.example/b?a=2&token=•••", Some("https://a.example/b?a=2&token=s%2B1")),
            ("https://a.example/in?token=new", Some("https://a.example/in?token=new")),
            ("https://a.example/in", Some("https://a.example/in")),
            // Who reads addresses may spell it so.
            (
                "https://a.example/in?token=%E2%80%A2%E2%80%A2%E2%80%A2",
                Some("https://a.example/in?token=s%2B1"),
            ),
            ("https://b.example/in?token=•••", None),
            ("https://b.example/in?token=mine", Some("https://b.example/in?token=mine")),
        ] {
            let wish = json!({ "name": "crm", "url": wish });
            let read = read(&to_raw_value(&wish).unwrap(), &there).ok().map(|spec| spec.url);
            assert_eq!(read.as_deref(), expected, "case: {wish}");
        }
    }
}
