use proptest::prelude::*;

use super::*;

fn changes(before: &str, after: &str) -> Vec<String> {
    let found = diff(before.as_bytes(), after.as_bytes());
    assert!(!found.truncated, "case: {before} {after}");
    let value = |value: &Option<String>| value.clone().unwrap_or_default();
    let line = |one: &BodyChange| {
        format!("{} {} {}>{}", one.kind.as_str(), one.path, value(&one.before), value(&one.after))
    };
    found.changes.iter().map(line).collect()
}

#[test]
fn differences_are_reported_with_their_paths() {
    let cases: [(&str, &str, &[&str]); 16] = [
        (r#"{"a":1,"b":2}"#, "{ \"b\":2,\n\"\\u0061\":1 }", &[]),
        (r#"{"a":1}"#, r#"{"a":1.0}"#, &["changed /a 1>1.0"]),
        (r#"{"a":"1"}"#, r#"{"a":1}"#, &[r#"changed /a "1">1"#]),
        (
            r#"{"id":12345678901234567890123}"#,
            r#"{"id":12345678901234567890124}"#,
            &["changed /id 12345678901234567890123>12345678901234567890124"],
        ),
        (r#"{"a":1,"b":2}"#, r#"{"a":1,"c":3}"#, &["removed /b 2>", "added /c >3"]),
        (r#"{"a/b":{"~":1}}"#, r#"{"a/b":{"~":2}}"#, &["changed /a~1b/~0 1>2"]),
        (r#"{"":1}"#, r#"{"":2}"#, &["changed / 1>2"]),
        ("[1,2,3]", "[1,9,2,3]", &["added /1 >9"]),
        ("[1,2,3]", "[1,3]", &["removed /1 2>"]),
        (
            r#"[{"id":1,"n":1},{"id":2}]"#,
            r#"[{"id":0},{"n":1,"id":1},{"id":2}]"#,
            &[r#"added /0 >{"id":0}"#],
        ),
        (r#"[{"a":[1]},2]"#, r#"[{"a":[3]},2]"#, &["changed /0/a/0 1>3"]),
        ("{}", "[]", &["changed  {}>[]"]),
        (r#"{"a":1,"a":2}"#, r#"{"a":1,"a":3}"#, &["changed /a 2>3"]),
        (r#"{"a":1,"a":2}"#, r#"{"a":1}"#, &["removed /a 2>"]),
        ("a=1\nb=2\nc=3\n", "a=1\nb=9\nc=3\n", &["changed line 2 b=2\n>b=9\n"]),
        ("a\n", "a\nb", &["added line 2 >b"]),
    ];
    for (before, after, expected) in cases {
        assert_eq!(changes(before, after), expected, "case: {before} {after}");
    }
}

#[test]
fn format_is_json_text_or_bytes_by_content() {
    let format = |before: &[u8], after: &[u8]| diff(before, after).format;
    assert_eq!(format(b"{}", b" [1]"), DiffFormat::Json);
    assert_eq!(format(b"{}", b"a=1"), DiffFormat::Text);
    assert_eq!(format(b"", b""), DiffFormat::Text);
    assert_eq!(format(b"{}", b"\xff"), DiffFormat::Bytes);
    let found = diff(b"\x00\xffab", b"\x00\xffac");
    let expected = BodyChange {
        path: "byte 4".to_owned(),
        kind: BodyChangeKind::Changed,
        before: Some("62".to_owned()),
        after: Some("63".to_owned()),
    };
    assert_eq!((found.changes, found.truncated), (vec![expected], false));
}

/// A lone surrogate has no text, so it is equal only to the same spelling.
#[test]
fn lone_surrogate_is_compared_by_its_spelling() {
    assert!(changes(r#"["\ud800"]"#, r#"[ "\ud800" ]"#).is_empty());
    assert_eq!(changes(r#"["\ud800"]"#, r#"["\ud801"]"#).len(), 1);
}

#[test]
fn large_differences_are_truncated() {
    let list = |value: &str| format!("[{}]", vec![value; 1000].join(","));
    let deep = |inner: &str| format!("{}{inner}{}", "[".repeat(100_000), "]".repeat(100_000));
    let wide = |value: &str| format!("[{}0]", format!("{value},").repeat(100_000));
    let long = |value: &str| format!(r#"{{"a":"{}"}}"#, value.repeat(5000));
    let name = |value: &str| format!(r#"{{"{}":{{"b":{value}}}}}"#, "n".repeat(5000));
    let cases = [
        ("many", list("1"), list("2")),
        ("deep", deep("1"), deep("2")),
        ("wide", wide("1"), wide("2")),
        ("long", long("x"), long("y")),
        ("name", name("1"), name("2")),
        ("text", "a\n".repeat(5000), "b\n".repeat(5000)),
    ];
    for (case, before, after) in cases {
        let found = diff(before.as_bytes(), after.as_bytes());
        assert!(found.truncated, "case: {case}");
        assert!((1..=CHANGES_MAX).contains(&found.changes.len()), "case: {case}");
        for change in found.changes {
            let longest = [Some(change.path), change.before, change.after];
            let longest = longest.iter().flatten().map(|text| text.chars().count()).max();
            assert!(longest <= Some(VALUE_CHARS_MAX + 1), "case: {case}");
        }
        let same = diff(before.as_bytes(), before.as_bytes());
        assert_eq!((same.changes.len(), same.truncated), (0, false), "case: {case}");
    }
}

/// A JSON value that can be written in two ways.
#[derive(Clone, Debug, PartialEq)]
enum Tree {
    Plain(String),
    List(Vec<Tree>),
    Object(std::collections::BTreeMap<String, Tree>),
}

impl Tree {
    /// `is_reversed` writes members in reverse order, with white space between tokens.
    fn write(&self, is_reversed: bool) -> String {
        let space = if is_reversed { " \n" } else { "" };
        match self {
            Self::Plain(token) => token.clone(),
            Self::List(list) => {
                let parts: Vec<_> = list.iter().map(|value| value.write(is_reversed)).collect();
                format!("[{space}{}{space}]", parts.join(&format!("{space},{space}")))
            }
            Self::Object(members) => {
                let member = |(name, value): (&String, &Self)| {
                    format!("{space}\"{name}\"{space}:{space}{}", value.write(is_reversed))
                };
                let mut parts: Vec<_> = members.iter().map(member).collect();
                if is_reversed {
                    parts.reverse();
                }
                format!("{{{}{space}}}", parts.join(","))
            }
        }
    }
}

fn trees() -> impl Strategy<Value = Tree> {
    let plain = prop::sample::select(vec!["1", "1.0", "true", "null", "\"a\"", "\"]\"", "2"]);
    let leaf = plain.prop_map(|token| Tree::Plain(token.to_owned()));
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Tree::List),
            prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(Tree::Object),
        ]
    })
}

proptest! {
    #[test]
    fn diff_is_empty_exactly_when_values_are_equal(a in trees(), b in trees()) {
        let (plain, turned) = (a.write(false), a.write(true));
        prop_assert_eq!(diff(plain.as_bytes(), turned.as_bytes()).changes, vec![]);
        let other = diff(plain.as_bytes(), b.write(true).as_bytes());
        prop_assert_eq!(other.format, DiffFormat::Json);
        prop_assert_eq!(other.changes.is_empty(), a == b);
    }

    #[test]
    fn arbitrary_bytes_are_compared(a in any::<Vec<u8>>(), b in any::<Vec<u8>>()) {
        let found = diff(&a, &b);
        prop_assert_eq!(diff(&a, &a).changes, vec![]);
        if found.format != DiffFormat::Json {
            prop_assert_eq!(found.changes.is_empty(), a == b);
        }
    }

    #[test]
    fn arbitrary_texts_are_compared(a in "[\\[\\]{}\",:a1\\\\ \n]{0,12}", b in "[ab\n]{0,8}") {
        for other in [&a, &b] {
            let found = diff(a.as_bytes(), other.as_bytes());
            if found.format != DiffFormat::Json {
                prop_assert_eq!(found.changes.is_empty(), a == *other);
            }
        }
    }
}
