//! From the table of calls to the text of the document.

use std::collections::{BTreeMap, BTreeSet};

use schemars::{
    SchemaGenerator,
    generate::{Contract, SchemaSettings},
};
use serde_json::{Map, Value, json};

use super::{
    Call, Op,
    op::{Answer, Content, Taken},
};
use crate::problem::Shown;

/// Where schemas stand in the document.
const SCHEMAS: &str = "#/components/schemas/";
/// Where those of requests stand while it is made: a type may be read otherwise than it is written
/// (what has a default may be left out, but is always shown).
const REQUESTS: &str = "#/components/requests/";

/// Schemas of what is read and of what is written.
struct Schemas {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

/// The document as text, the same for the same table.
pub(super) fn render(calls: &[Call]) -> String {
    let generator = |path: &'static str, contract: Contract| {
        let mut settings = SchemaSettings::draft2020_12();
        settings.definitions_path = path.trim_start_matches('#').trim_end_matches('/').into();
        settings.meta_schema = None;
        settings.contract = contract;
        SchemaGenerator::new(settings)
    };
    let mut schemas = Schemas {
        read: generator(REQUESTS, Contract::Deserialize),
        written: generator(SCHEMAS, Contract::Serialize),
    };
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for call in calls {
        let operation = operation(&call.op, &mut schemas);
        paths.entry(&call.path).or_default().insert(call.method.to_owned(), operation);
    }
    let read = schemas.read.take_definitions(true);
    let mut components = schemas.written.take_definitions(true);
    let names = names_of_read(&read, &components);
    for (name, schema) in read {
        components.entry(names[&name].clone()).or_insert(schema);
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Surehook",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A webhook gateway. docs/api.md says the same for people.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": {
                "type": "http", "scheme": "bearer", "description": "An admin token, `shk_…`.",
            } },
            "schemas": components,
        },
    });
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    for (name, shown) in &names {
        text = text.replace(&format!("\"{REQUESTS}{name}\""), &format!("\"{SCHEMAS}{shown}\""));
    }
    text.push('\n');
    text
}

/// What the schemas of requests are called: their own name where the answers mean the same by it.
fn names_of_read(
    read: &Map<String, Value>,
    written: &Map<String, Value>,
) -> BTreeMap<String, String> {
    let text = |schema: &Value| schema.to_string().replace(REQUESTS, SCHEMAS);
    let mut other: BTreeSet<&str> = read
        .iter()
        .filter(|(name, schema)| written.get(*name).is_some_and(|it| text(it) != text(schema)))
        .map(|(name, _)| name.as_str())
        .collect();
    // Whatever speaks of one that differs, differs.
    loop {
        let speaks_of_other = |schema: &Value| {
            let schema = schema.to_string();
            other.iter().any(|name| schema.contains(&format!("\"{REQUESTS}{name}\"")))
        };
        let more: Vec<&str> = read
            .iter()
            .filter(|(name, schema)| {
                !other.contains(name.as_str())
                    && written.contains_key(*name)
                    && speaks_of_other(schema)
            })
            .map(|(name, _)| name.as_str())
            .collect();
        if more.is_empty() {
            break;
        }
        other.extend(more);
    }
    let shown = |name: &String| match other.contains(name.as_str()) {
        true => format!("{name}Input"),
        false => name.clone(),
    };
    read.keys().map(|name| (name.clone(), shown(name))).collect()
}

fn operation(op: &Op, schemas: &mut Schemas) -> Value {
    for also in &op.also {
        also(&mut schemas.written);
    }
    let mut operation = json!({
        "operationId": op.id,
        "summary": op.summary,
        "parameters": parameters(op, schemas),
        "responses": responses(op, schemas),
    });
    if let Some(description) = op.description {
        operation["description"] = json!(description);
    }
    if op.is_open() {
        operation["security"] = json!([]);
    }
    match &op.body {
        Taken::Nothing => {}
        Taken::Json { schema, example, required } => {
            let schema = schema(&mut schemas.read);
            let content = json!({ "application/json": { "schema": schema, "example": example } });
            operation["requestBody"] = json!({ "required": required, "content": content });
        }
        Taken::Bytes => {
            let content = json!({ "*/*": { "schema": {} } });
            operation["requestBody"] = json!({ "required": false, "content": content });
        }
    }
    operation
}

fn parameters(op: &Op, schemas: &mut Schemas) -> Vec<Value> {
    let mut parameters = Vec::new();
    for (name, schema) in &op.path {
        let schema = schema(&mut schemas.read);
        parameters.push(json!({ "name": name, "in": "path", "required": true, "schema": schema }));
    }
    let query = op.query.map(|schema| schema(&mut schemas.read).to_value());
    let properties = query.as_ref().and_then(|query| query["properties"].as_object());
    let properties = properties.into_iter().flatten();
    for (name, schema) in properties.filter(|(name, _)| !op.not_in_query.contains(&name.as_str())) {
        let mut schema = never_null(schema.clone());
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        let mut parameter = json!({ "name": name, "in": "query", "schema": schema });
        if let Some(description) = description {
            parameter["description"] = description;
        }
        parameters.push(parameter);
    }
    for header in &op.headers {
        parameters.push(json!({
            "name": header.name,
            "in": "header",
            "description": header.description,
            "schema": header.schema,
        }));
    }
    parameters
}

/// A parameter is there or not; it is never `null`.
fn never_null(mut schema: Value) -> Value {
    let is_null = |kind: &Value| kind == "null" || kind["type"] == "null";
    if let Some(kinds) = schema["type"].as_array() {
        let rest: Vec<_> = kinds.iter().filter(|kind| !is_null(kind)).cloned().collect();
        schema["type"] = if let [only] = &rest[..] { only.clone() } else { json!(rest) };
    }
    if let Some(choices) = schema.get("anyOf").and_then(Value::as_array) {
        let rest: Vec<_> = choices.iter().filter(|kind| !is_null(kind)).cloned().collect();
        match &rest[..] {
            [only] => merge(&mut schema, only.clone()),
            _ => schema["anyOf"] = json!(rest),
        }
    }
    if let Some(fields) = schema.as_object_mut() {
        fields.retain(|name, value| !(name == "default" && value.is_null()));
    }
    schema
}

/// Puts the only choice in the place of the choice.
fn merge(schema: &mut Value, only: Value) {
    if let (Some(fields), Value::Object(only)) = (schema.as_object_mut(), only) {
        fields.remove("anyOf");
        fields.extend(only);
    }
}

fn responses(op: &Op, schemas: &mut Schemas) -> Value {
    let mut responses = Map::new();
    for answer in &op.answers {
        let mut response = success(op, answer, schemas);
        let entry = responses.entry(answer.status.to_string()).or_insert_with(|| response.take());
        // The same status with another content: a list, and its export.
        if let (Some(all), Some(more)) = (
            entry.pointer_mut("/content").and_then(Value::as_object_mut),
            response["content"].as_object(),
        ) {
            all.extend(more.clone());
        }
    }
    let problem = schemas.written.subschema_for::<Shown<'_>>().to_value();
    for (status, codes) in &op.problems {
        let kind = "application/problem+json";
        let code = json!({ "properties": { "code": { "enum": codes } } });
        let schema = json!({ "allOf": [problem, code] });
        let codes: Vec<_> = codes.iter().map(|code| format!("`{code}`")).collect();
        let response =
            json!({ "description": codes.join(", "), "content": { kind: { "schema": schema } } });
        responses.insert(status.to_string(), response);
    }
    Value::Object(responses)
}

fn success(op: &Op, answer: &Answer, schemas: &mut Schemas) -> Value {
    let description = match answer.status {
        201 => "It was created.",
        202 => "It will be done.",
        204 => "It is done.",
        304 => "It is as it was.",
        _ => "What was asked for.",
    };
    let mut response = json!({ "description": description });
    match &answer.content {
        Content::Nothing => {}
        Content::Json(schema) => {
            let schema = schema(&mut schemas.written);
            response["content"] = json!({ "application/json": { "schema": schema } });
        }
        Content::Other(kinds) => {
            let any: Map<String, Value> =
                kinds.iter().map(|kind| ((*kind).to_owned(), json!({ "schema": {} }))).collect();
            response["content"] = Value::Object(any);
        }
    }
    if op.is_tagged && answer.status != 204 {
        let schema = json!({ "type": "string", "pattern": "^\"[0-9a-f]{32}\"$" });
        response["headers"] = json!({ "ETag": { "schema": schema } });
    }
    response
}
