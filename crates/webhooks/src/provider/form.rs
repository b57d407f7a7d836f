//! URL-encoded forms: `a=1&b=2`.

use std::borrow::Cow;

use http::{HeaderMap, header};
use url::form_urlencoded;

use crate::request::IncomingRequest;

/// Whether the body is a form.
pub(crate) fn is_form(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(kind), None) = (types.next(), types.next()) else { return false };
    is_form_type(kind.to_str().unwrap_or_default())
}

/// Whether a `Content-Type` is that of a form.
pub fn is_form_type(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// A field of a form, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedField {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// The fields of a form in their order.
pub fn form_fields(body: &str) -> impl Iterator<Item = DecodedField> {
    form_urlencoded::parse(body.as_bytes())
        .map(|(name, value)| DecodedField { name: name.into_owned(), value: value.into_owned() })
}

/// The first field of this name, if it is not blank.
pub(super) fn field<'b>(body: &'b [u8], name: &str) -> Option<Cow<'b, str>> {
    let mut fields = form_urlencoded::parse(body);
    let (_, value) = fields.find(|(field, _)| field == name)?;
    Some(value).filter(|value| !value.trim().is_empty())
}

/// The JSON of a request: its body, or the field `payload` of a form.
pub(super) fn payload_json<'b>(request: &IncomingRequest<'b>) -> Cow<'b, [u8]> {
    if !is_form(request.headers) {
        return Cow::Borrowed(request.body);
    }
    match field(request.body, "payload") {
        Some(Cow::Borrowed(text)) => Cow::Borrowed(text.as_bytes()),
        Some(Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
        None => Cow::Borrowed(b""),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::incoming, *};

    #[test]
    fn json_is_read_from_body_or_form_payload() {
        let cases: [(_, &[u8], &[u8]); 6] = [
            ("application/json", b"payload=%7B%7D", b"payload=%7B%7D"),
            ("application/x-www-form-urlencoded", b"a=1&payload=%7B%22b%22%3A1%7D", b"{\"b\":1}"),
            ("Application/X-WWW-Form-Urlencoded; charset=utf-8", b"payload={}", b"{}"),
            ("application/x-www-form-urlencoded", b"{}", b""),
            ("application/x-www-form-urlencoded", b"payload=+", b""),
            ("application/x-www-form-urlencoded", b"payload=%ff%00", "\u{fffd}\0".as_bytes()),
        ];
        for (kind, body, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            let request = IncomingRequest { body, ..incoming(&headers, "") };
            assert_eq!(payload_json(&request).as_ref(), expected, "{kind} {body:?}");
        }
    }
}
