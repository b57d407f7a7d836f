//! `surehook sign`: the headers that make a request pass.

use anyhow::anyhow;
use serde_json::{Map, json};
use surehook_core::request::OutgoingRequest;

use super::{Judge, now, print_json, request::Given};
use crate::{cli::SignArgs, commands::files, failure::Failure, output};

pub(in crate::commands) fn run(args: &SignArgs) -> Result<(), Failure> {
    let judge = Judge::new(&args.preset, &args.with)?;
    let mut given = Given::new(files::read(&args.file)?);
    for line in &args.with.headers {
        given.header(line)?;
    }
    let now = now(&args.with)?;
    let usual = format!("http://127.0.0.1:8080/in/{}", args.preset);
    let url = args.with.url.as_deref().unwrap_or(&usual);
    let id = args.id.clone().unwrap_or_else(|| format!("msg_{}", now.as_millis()));
    let outgoing = OutgoingRequest { id: &id, url, headers: &given.headers, body: &given.body };
    let signed = judge.source.verifier.sign(&outgoing, now).map_err(Failure::refused)?;
    if args.with.json {
        let headers: Map<_, _> =
            signed.headers.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
        return print_json(&json!({ "headers": headers, "path": signed.path }));
    }
    if args.curl {
        let mut line = format!("curl -X POST {}", quoted(&with_path(url, &signed.path)));
        let usual = ("content-type".to_owned(), "application/json".to_owned());
        let has_kind = given.headers.contains_key(http::header::CONTENT_TYPE);
        let own = given.headers.iter().map(|(name, value)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        });
        let made = signed.headers.iter().map(|(name, value)| (name.to_string(), value.clone()));
        for (name, value) in (!has_kind).then_some(usual).into_iter().chain(own).chain(made) {
            line.push_str(&format!(" -H {}", quoted(&format!("{name}: {value}"))));
        }
        let file = quoted(&format!("@{}", args.file.display()));
        return Ok(output::line(&format!("{line} --data-binary {file}"))?);
    }
    if signed.headers.is_empty() && signed.path.is_empty() {
        return Err(Failure::refused(anyhow!(
            "there is nothing to sign: this source is unverified"
        )));
    }
    for (name, value) in &signed.headers {
        output::line(&format!("{name}: {value}"))?;
    }
    if !signed.path.is_empty() {
        output::line(&format!("path: {}", with_path(url, &signed.path)))?;
    }
    Ok(())
}

/// The address with something added to its path, or to its query.
fn with_path(url: &str, more: &str) -> String {
    match url.split_once('?') {
        Some((url, query)) if !more.starts_with(['?', '&']) => format!("{url}{more}?{query}"),
        Some(_) | None => format!("{url}{more}"),
    }
}

/// As one word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_stands_where_it_was_signed() {
        let cases = [
            ("https://gw/in/t", "/secret", "https://gw/in/t/secret"),
            ("https://gw/in/t?x=1", "/secret", "https://gw/in/t/secret?x=1"),
            ("https://gw/in/t", "?bodySHA256=00", "https://gw/in/t?bodySHA256=00"),
            ("https://gw/in/t?x=1", "&bodySHA256=00", "https://gw/in/t?x=1&bodySHA256=00"),
            ("https://gw/in/t?x=1", "", "https://gw/in/t?x=1"),
        ];
        for (url, more, expected) in cases {
            assert_eq!(with_path(url, more), expected, "{url} {more}");
        }
    }
}
