//! That the document is the committed one, and whole.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

fn parsed() -> Value {
    serde_json::from_str(document()).unwrap()
}

#[test]
fn the_committed_document_is_the_current_one() {
    let committed = include_str!("../../../../docs/openapi.json");
    assert!(
        committed == document(),
        "docs/openapi.json is not what the code says; renew it with\n    \
         cargo run -- openapi > docs/openapi.json"
    );
}

#[test]
fn every_call_of_the_table_is_described() {
    let document = parsed();
    let mut names = BTreeSet::new();
    let calls = front::table().calls;
    assert!(calls.len() > 25);
    for call in &calls {
        let Call { method, path, op } = call;
        let described = &document["paths"][path][*method];
        assert_eq!(described["operationId"], op.id, "{method} {path}");
        assert!(names.insert(op.id.clone()), "two calls are named {}", op.id);
        assert!(!op.answers.is_empty(), "{method} {path} has no good answer");
        let braces: Vec<&str> =
            path.split('{').skip(1).filter_map(|rest| rest.split('}').next()).collect();
        let named: Vec<&str> = op.path.iter().map(|(name, _)| *name).collect();
        assert_eq!(named, braces, "{method} {path}");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let document = parsed();
    let text = document.to_string();
    let mut found = 0;
    for rest in text.split("\"$ref\":\"#").skip(1) {
        let pointer = rest.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
        found += 1;
    }
    assert!(found > 50);
}
