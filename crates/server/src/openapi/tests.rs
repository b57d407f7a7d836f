//! Checks that the committed document is current and complete.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

fn parse_document() -> Value {
    serde_json::from_str(document()).unwrap()
}

#[test]
fn committed_document_matches_the_code() {
    let committed = include_str!("../../../../docs/openapi.json");
    assert!(
        committed == document(),
        "docs/openapi.json does not match the code; regenerate it with\n    \
         cargo run -- openapi > docs/openapi.json"
    );
}

#[test]
fn every_endpoint_is_described() {
    let document = parse_document();
    let mut names = BTreeSet::new();
    let endpoints = api_table().endpoints;
    assert!(endpoints.len() > 25);
    for endpoint in &endpoints {
        let Endpoint { method, path, operation } = endpoint;
        let entry = &document["paths"][path][*method];
        assert_eq!(entry["operationId"], operation.id, "{method} {path}");
        assert!(names.insert(operation.id.clone()), "two endpoints are named {}", operation.id);
        assert!(!operation.responses.is_empty(), "{method} {path} has no success response");
        let in_path: Vec<&str> =
            path.split('{').skip(1).filter_map(|rest| rest.split('}').next()).collect();
        let described: Vec<&str> = operation.path.iter().map(|(name, _)| *name).collect();
        assert_eq!(described, in_path, "{method} {path}");
    }
}

#[test]
fn document_contains_no_null() {
    fn find_null(value: &Value, path: &str) -> Option<String> {
        match value {
            Value::Null => Some(path.to_owned()),
            Value::Object(fields) => {
                fields.iter().find_map(|(name, value)| find_null(value, &format!("{path}/{name}")))
            }
            Value::Array(items) => items.iter().find_map(|item| find_null(item, path)),
            Value::String(text) => (text == "null").then(|| path.to_owned()),
            Value::Bool(_) | Value::Number(_) => None,
        }
    }
    assert_eq!(find_null(&parse_document(), ""), None);
}

#[test]
fn every_schema_reference_resolves() {
    let document = parse_document();
    let text = document.to_string();
    let mut found = 0;
    for rest in text.split("\"$ref\":\"#").skip(1) {
        let pointer = rest.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
        found += 1;
    }
    assert!(found > 50);
}
