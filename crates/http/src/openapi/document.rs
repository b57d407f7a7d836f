//! Renders the table of endpoints as an OpenAPI document.

use std::collections::{BTreeMap, BTreeSet};

use schemars::{
    SchemaGenerator,
    generate::{Contract, SchemaSettings},
};
use serde_json::{Map, Value, json};

use super::{
    Endpoint, Operation,
    operation::{RequestBody, ResponseContent, SuccessResponse},
};
use crate::problem::ProblemBody;

const SCHEMAS_PATH: &str = "#/components/schemas/";
/// Temporary path of request schemas. A type may differ as input and output: a field with a default
/// is optional in requests and always present in responses.
const REQUESTS_PATH: &str = "#/components/requests/";

/// Generators for the schemas of requests and of responses.
struct SchemaGenerators {
    requests: SchemaGenerator,
    responses: SchemaGenerator,
}

/// Renders the document; the same table always gives the same text.
pub(super) fn render(endpoints: &[Endpoint]) -> String {
    let generator = |path: &'static str, contract: Contract| {
        let mut settings = SchemaSettings::draft2020_12();
        settings.definitions_path = path.trim_start_matches('#').trim_end_matches('/').into();
        settings.meta_schema = None;
        settings.contract = contract;
        SchemaGenerator::new(settings)
    };
    let mut schemas = SchemaGenerators {
        requests: generator(REQUESTS_PATH, Contract::Deserialize),
        responses: generator(SCHEMAS_PATH, Contract::Serialize),
    };
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for endpoint in endpoints {
        let operation = render_operation(&endpoint.operation, &mut schemas);
        paths.entry(&endpoint.path).or_default().insert(endpoint.method.to_owned(), operation);
    }
    let requests = schemas.requests.take_definitions(true);
    let mut components = schemas.responses.take_definitions(true);
    let names = request_schema_names(&requests, &components);
    for (name, schema) in requests {
        components.entry(names[&name].clone()).or_insert(schema);
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Surehook",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "API of the Surehook webhook gateway. See docs/api.md for a guide.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": {
                "type": "http", "scheme": "bearer", "description": "API token, `shk_…`.",
            } },
            "schemas": components,
        },
    });
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    for (name, final_name) in &names {
        text = text.replace(
            &format!("\"{REQUESTS_PATH}{name}\""),
            &format!("\"{SCHEMAS_PATH}{final_name}\""),
        );
    }
    text.push('\n');
    text
}

/// Names of the request schemas: unchanged if the response schema of that name is equal, otherwise
/// with the suffix `Input`.
fn request_schema_names(
    requests: &Map<String, Value>,
    responses: &Map<String, Value>,
) -> BTreeMap<String, String> {
    let text = |schema: &Value| schema.to_string().replace(REQUESTS_PATH, SCHEMAS_PATH);
    let mut different: BTreeSet<&str> = requests
        .iter()
        .filter(|(name, schema)| {
            responses.get(*name).is_some_and(|other| text(other) != text(schema))
        })
        .map(|(name, _)| name.as_str())
        .collect();
    // A schema that refers to a different schema is different, too.
    loop {
        let refers_to_different = |schema: &Value| {
            let schema = schema.to_string();
            different.iter().any(|name| schema.contains(&format!("\"{REQUESTS_PATH}{name}\"")))
        };
        let more: Vec<&str> = requests
            .iter()
            .filter(|(name, schema)| {
                !different.contains(name.as_str())
                    && responses.contains_key(*name)
                    && refers_to_different(schema)
            })
            .map(|(name, _)| name.as_str())
            .collect();
        if more.is_empty() {
            break;
        }
        different.extend(more);
    }
    let final_name = |name: &String| match different.contains(name.as_str()) {
        true => format!("{name}Input"),
        false => name.clone(),
    };
    requests.keys().map(|name| (name.clone(), final_name(name))).collect()
}

fn render_operation(operation: &Operation, schemas: &mut SchemaGenerators) -> Value {
    for extra in &operation.extra_schemas {
        extra(&mut schemas.responses);
    }
    let mut rendered = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": render_parameters(operation, schemas),
        "responses": render_responses(operation, schemas),
    });
    if let Some(description) = operation.description {
        rendered["description"] = json!(description);
    }
    if operation.is_public() {
        rendered["security"] = json!([]);
    }
    match &operation.body {
        RequestBody::None => {}
        RequestBody::Json { schema, example, required } => {
            let schema = schema(&mut schemas.requests);
            let content = json!({ "application/json": { "schema": schema, "example": example } });
            rendered["requestBody"] = json!({ "required": required, "content": content });
        }
        RequestBody::Bytes => {
            let content = json!({ "*/*": { "schema": {} } });
            rendered["requestBody"] = json!({ "required": false, "content": content });
        }
    }
    rendered
}

fn render_parameters(operation: &Operation, schemas: &mut SchemaGenerators) -> Vec<Value> {
    let mut parameters = Vec::new();
    for (name, schema) in &operation.path {
        let schema = schema(&mut schemas.requests);
        parameters.push(json!({ "name": name, "in": "path", "required": true, "schema": schema }));
    }
    let query = operation.query.map(|schema| schema(&mut schemas.requests).to_value());
    let properties = query.as_ref().and_then(|query| query["properties"].as_object());
    let properties = properties.into_iter().flatten();
    for (name, schema) in
        properties.filter(|(name, _)| !operation.excluded_query.contains(&name.as_str()))
    {
        let mut schema = remove_null(schema.clone());
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        let mut parameter = json!({ "name": name, "in": "query", "schema": schema });
        if let Some(description) = description {
            parameter["description"] = description;
        }
        parameters.push(parameter);
    }
    for header in &operation.headers {
        parameters.push(json!({
            "name": header.name,
            "in": "header",
            "description": header.description,
            "schema": header.schema,
        }));
    }
    parameters
}

/// Removes `null` from the schema of a query parameter: it is present or absent, never null.
fn remove_null(mut schema: Value) -> Value {
    let is_null = |kind: &Value| kind == "null" || kind["type"] == "null";
    if let Some(kinds) = schema["type"].as_array() {
        let rest: Vec<_> = kinds.iter().filter(|kind| !is_null(kind)).cloned().collect();
        schema["type"] = if let [only] = &rest[..] { only.clone() } else { json!(rest) };
    }
    if let Some(choices) = schema.get("anyOf").and_then(Value::as_array) {
        let rest: Vec<_> = choices.iter().filter(|kind| !is_null(kind)).cloned().collect();
        match &rest[..] {
            [only] => replace_any_of(&mut schema, only.clone()),
            _ => schema["anyOf"] = json!(rest),
        }
    }
    if let Some(fields) = schema.as_object_mut() {
        fields.retain(|name, value| !(name == "default" && value.is_null()));
    }
    schema
}

/// Replaces `anyOf` by its only choice.
fn replace_any_of(schema: &mut Value, only: Value) {
    if let (Some(fields), Value::Object(only)) = (schema.as_object_mut(), only) {
        fields.remove("anyOf");
        fields.extend(only);
    }
}

fn render_responses(operation: &Operation, schemas: &mut SchemaGenerators) -> Value {
    let mut responses = Map::new();
    for success in &operation.responses {
        let mut response = render_success(operation, success, schemas);
        let entry = responses.entry(success.status.to_string()).or_insert_with(|| response.take());
        // One status with several media types: a list and its export.
        if let (Some(all), Some(more)) = (
            entry.pointer_mut("/content").and_then(Value::as_object_mut),
            response["content"].as_object(),
        ) {
            all.extend(more.clone());
        }
    }
    let problem = schemas.responses.subschema_for::<ProblemBody<'_>>().to_value();
    for (status, codes) in &operation.problems {
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

fn render_success(
    operation: &Operation,
    success: &SuccessResponse,
    schemas: &mut SchemaGenerators,
) -> Value {
    let description = match success.status {
        201 => "Created",
        202 => "Accepted",
        204 => "No content",
        304 => "Not modified",
        _ => "OK",
    };
    let mut response = json!({ "description": description });
    match &success.content {
        ResponseContent::None => {}
        ResponseContent::Json(schema) => {
            let schema = schema(&mut schemas.responses);
            response["content"] = json!({ "application/json": { "schema": schema } });
        }
        ResponseContent::Media(types) => {
            let any: Map<String, Value> =
                types.iter().map(|kind| ((*kind).to_owned(), json!({ "schema": {} }))).collect();
            response["content"] = Value::Object(any);
        }
    }
    if operation.has_etag && success.status != 204 {
        let schema = json!({ "type": "string", "pattern": "^\"[0-9a-f]{32}\"$" });
        response["headers"] = json!({ "ETag": { "schema": schema } });
    }
    response
}
