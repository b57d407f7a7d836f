//! Bodies that are a list: one event for each item.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::{EventPart, pieces::PARTS_MAX};

/// One event for each item of a list, in its order; `None` if the body is no list, or too long a one.
/// Each gets a list
/// with itself alone, as it was written; the only item of a list keeps the body as it came.
pub(super) fn split(body: &[u8], read: impl Fn(&[u8]) -> EventPart) -> Option<Vec<EventPart>> {
    let items: Vec<&RawValue> = serde_json::from_slice(body).ok()?;
    if items.len() > PARTS_MAX {
        return None;
    }
    let is_alone = items.len() == 1;
    let part = |item: &&RawValue| {
        let text = item.get();
        let alone = (!is_alone).then(|| Bytes::from(format!("[{text}]")));
        EventPart { body: alone, ..read(text.as_bytes()) }
    };
    Some(items.iter().map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_too_many_stays_whole() {
        let of = |many: usize| format!("[{}]", vec!["1"; many].join(","));
        let parts = |many| split(of(many).as_bytes(), |_| EventPart::default());
        assert_eq!(parts(PARTS_MAX).map(|parts| parts.len()), Some(PARTS_MAX));
        assert_eq!(parts(PARTS_MAX + 1), None);
    }

    #[test]
    fn each_item_is_a_list_of_its_own() {
        let cases: [(&str, Option<&[Option<&str>]>); 8] = [
            ("[]", Some(&[])),
            (" [ ] ", Some(&[])),
            (r#"[ {"a" : 1} ]"#, Some(&[None])),
            (
                r#"[{"a": 1.0,"n":820982911946154500} , {"a":"\u00e9"}]"#,
                Some(&[
                    Some(r#"[{"a": 1.0,"n":820982911946154500}]"#),
                    Some(r#"[{"a":"\u00e9"}]"#),
                ]),
            ),
            ("[1,null]", Some(&[Some("[1]"), Some("[null]")])),
            (r#"{"a":1}"#, None),
            ("[{}", None),
            ("", None),
        ];
        for (body, expected) in cases {
            let parts = split(body.as_bytes(), |_| EventPart::default());
            let bodies = parts.map(|parts| {
                let text = |part: EventPart| {
                    part.body.map(|body| String::from_utf8(body.to_vec()).unwrap())
                };
                parts.into_iter().map(text).collect::<Vec<_>>()
            });
            let expected = expected.map(|bodies| {
                bodies.iter().map(|body| body.map(str::to_owned)).collect::<Vec<_>>()
            });
            assert_eq!(bodies, expected, "{body}");
        }
    }
}
