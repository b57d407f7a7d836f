//! What a route makes of a body before it is sent.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use bytes::Bytes;
use http::HeaderMap;
use surehook_core::{
    event::Payload,
    ids::RouteId,
    inflate,
    jq::{JqFilter, JsonInput, ParseJsonInputError},
};

/// The transforms of all routes; a route that has none is there without one.
pub(crate) type Transforms = HashMap<RouteId, Option<Arc<JqFilter>>>;

/// A body as filters and transforms see it, unpacked if it is packed.
pub(crate) fn json(headers: &HeaderMap, body: &[u8]) -> Result<JsonInput, ParseJsonInputError> {
    let plain = inflate::decode_body(headers, body);
    JsonInput::parse(&plain.unwrap_or(Cow::Borrowed(body)))
}

/// What is sent instead of the body: none drops the event. An error is a text for people.
pub(crate) fn run(
    transform: &JqFilter,
    input: Result<&JsonInput, &ParseJsonInputError>,
) -> Result<Option<Bytes>, String> {
    let input = input.map_err(ToString::to_string)?;
    let output = transform.transform(input).map_err(|error| error.to_string())?;
    Ok(output.map(Bytes::from))
}

/// Tries again what failed when the event came, with the route as it is now.
pub(crate) fn run_late(
    transforms: &Transforms,
    route: RouteId,
    payload: &Payload,
) -> Result<Payload, String> {
    let transform = match transforms.get(&route) {
        Some(Some(transform)) => transform,
        // Whoever took the transform away wants the original to be sent.
        Some(None) => return Ok(payload.clone()),
        None => return Err("the route whose transform failed is gone".to_owned()),
    };
    let input = json(&payload.head.headers.to_map(), &payload.body);
    match run(transform, input.as_ref())? {
        Some(body) => Ok(payload.transformed(body)),
        None => Err("the transform drops this event now; nothing was sent".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use surehook_core::{
        event::{HeaderBlock, RequestHead},
        key::fingerprint,
        time::Timestamp,
    };

    use super::*;

    #[test]
    fn what_failed_is_tried_with_the_route_as_it_is_now() {
        let id = |number: u128| RouteId::new(Timestamp::from_millis(1), number << 100);
        let jq = |text| Some(Arc::new(JqFilter::compile(text).unwrap()));
        let transforms = Transforms::from([
            (id(1), jq("{sum: (.a + 1)}")),
            (id(2), None),
            (id(3), jq("error(\"no\")")),
            (id(4), jq("empty")),
        ]);
        let body = Bytes::from_static(br#"{"a":9007199254740993}"#);
        let head = RequestHead {
            headers: HeaderBlock::from_bytes(b"content-type: text/plain\r\n".to_vec()),
            ..RequestHead::default()
        };
        let came = Payload { head: Arc::new(head), fingerprint: fingerprint(&body), body };
        let late = |number| run_late(&transforms, id(number), &came).map(|sent| sent.body);

        assert_eq!(late(1).as_deref(), Ok(&br#"{"sum":9007199254740994}"#[..]));
        assert_eq!(late(2).as_ref(), Ok(&came.body));
        assert_eq!(late(3), Err("the filter failed: no".to_owned()));
        assert!(late(4).is_err_and(|why| why.contains("drops")));
        assert!(late(5).is_err_and(|why| why.contains("gone")));
    }
}
