//! What is kept of a request that was refused: enough to see why, nothing that opens a door.

use http::{HeaderMap, HeaderName, HeaderValue};
use surehook_core::{
    event::HeaderBlock,
    ids::RequestId,
    redact::{self, MASK, SecretNames},
    refused::RefusedRequest,
    rng::new_id,
};
use surehook_engine::ingest::{IngestError, QUARANTINED};

use crate::{
    App,
    door::{Arrival, PREFIX, source_name},
    problem::Problem,
};

/// The path, the query and each value of a header are cut here: this is for people to look at.
const TEXT_CHARS_MAX: usize = 512;

/// Counts a refusal, and offers the request for the sample.
pub(crate) fn note(app: &App, name: &str, arrival: Arrival, problem: &Problem) {
    let Arrival { parts, remote, read } = arrival;
    let (headers, body) = match read {
        Some(read) => (read.headers, Some(read.body)),
        None => (parts.headers, None),
    };
    // A name that is no source's is the sender's text: no label and no log may hold it.
    let found = app.engine.source(name);
    let source = (!matches!(found, Err(IngestError::UnknownSource))).then_some(name);
    app.engine.telemetry().count_refused(source, problem.code());
    tracing::debug!(source, code = problem.code(), "refused a request");
    // That is kept whole, elsewhere.
    if problem.code() == QUARANTINED {
        return;
    }
    app.engine.sample_refused(source, problem.code(), || {
        let open = found.as_ref().ok();
        let secret = open.and_then(|open| open.secret_header());
        let mut hidden = SecretNames::usual();
        secret.map(HeaderName::as_str).into_iter().for_each(|header| hidden.add_header(header));
        let at = app.engine.clock().now();
        let id: RequestId = new_id(app.engine.chance(), at);
        let keeps_body = open.is_some_and(|open| open.keeps_refused_bodies());
        RefusedRequest {
            id,
            source: source.map(str::to_owned),
            at,
            code: problem.code().to_owned(),
            status: problem.status().as_u16(),
            method: parts.method.to_string(),
            path: cut(&shown_path(parts.uri.path())),
            query: parts.uri.query().map(|query| cut(&redact::mask_query(query, &hidden))),
            remote: remote.to_string(),
            headers: HeaderBlock::from_map(&shown(&headers, &hidden)),
            body_bytes: body.as_ref().map(|body| body.len() as u64),
            body: body.filter(|_| keeps_body),
        }
    });
}

/// A path at the door. What follows the source's name may hold a secret, and is masked.
pub(crate) fn shown_path(path: &str) -> String {
    let (name, rest) = source_name(path);
    format!("{PREFIX}{name}{}", redact::mask_path(rest))
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

/// The headers with their secrets masked and their values cut.
fn shown(headers: &HeaderMap, hidden: &SecretNames) -> HeaderMap {
    let mut shown = headers.clone();
    for (name, value) in &mut shown {
        let kept = match hidden.is_parameter(name.as_str()) {
            true => MASK.as_bytes(),
            false => &value.as_bytes()[..value.len().min(TEXT_CHARS_MAX)],
        };
        // A part of a value is one, and so is the mask.
        if let Ok(kept) = HeaderValue::from_bytes(kept) {
            *value = kept;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_shows_the_source_and_no_secret() {
        let cases = [
            ("/in/shop", "/in/shop"),
            ("/in/evo/secret", "/in/evo/•••"),
            ("/in/evo/secret/call", "/in/evo/•••/call"),
            ("/in/", "/in/"),
        ];
        for (path, expected) in cases {
            assert_eq!(shown_path(path), expected, "case: {path}");
            assert_eq!(shown_path(expected), expected, "what is masked stays as it is");
        }
    }
}
