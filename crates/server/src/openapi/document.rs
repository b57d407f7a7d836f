//! Renders the table of endpoints as an OpenAPI document.
//!
//! The document is written for client generators: every type has one schema, for requests and
//! responses alike (a field with a default is optional in both), problems are shared responses named
//! by their status, parameters that several endpoints have are shared, and no schema is a boolean.

use std::collections::{BTreeMap, BTreeSet};

use schemars::{
    SchemaGenerator,
    generate::{Contract, SchemaSettings},
};
use serde_json::{Map, Value, json};
use surehook_api::ProblemBody;

use super::{
    Endpoint, Operation,
    operation::{RequestBody, ResponseContent, SuccessResponse},
};

/// Renders the document; the same table always gives the same text.
pub(super) fn render(endpoints: &[Endpoint]) -> String {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    settings.contract = Contract::Deserialize;
    let mut schemas = SchemaGenerator::new(settings);
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for endpoint in endpoints {
        let mut operation = render_operation(&endpoint.operation, &mut schemas);
        operation["tags"] = json!([tag(&endpoint.path)]);
        paths.entry(&endpoint.path).or_default().insert(endpoint.method.to_owned(), operation);
    }
    let tags: BTreeSet<&str> = endpoints.iter().map(|endpoint| tag(&endpoint.path)).collect();
    let tags: Vec<Value> = tags.into_iter().map(|name| json!({ "name": name })).collect();
    let problem = schemas.subschema_for::<ProblemBody>().to_value();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Surehook",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "API of the Surehook webhook gateway. See docs/reference/api.md for a guide.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "tags": tags,
        "paths": paths,
        "components": {
            "securitySchemes": { "token": {
                "type": "http", "scheme": "bearer", "description": "API token, `shk_…`.",
            } },
            "responses": render_problems(endpoints, &problem),
            "schemas": schemas.take_definitions(true),
        },
    });
    simplify(&mut document);
    share_parameters(&mut document);
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// The tag of an endpoint: its resource, the first segment after `/api/v1/`.
fn tag(path: &str) -> &str {
    let resource = path.strip_prefix("/api/v1/").and_then(|rest| rest.split('/').next());
    resource.unwrap_or(if path.starts_with("/in/") { "receive" } else { "health" })
}

/// The name of the shared response for the problems with a status.
fn problem_name(status: u16) -> String {
    let reason = http::StatusCode::from_u16(status).ok().and_then(|code| code.canonical_reason());
    reason.unwrap_or("Problem").split([' ', '-']).collect()
}

/// The shared responses: one for each status, with all codes that any endpoint answers with it.
fn render_problems(endpoints: &[Endpoint], problem: &Value) -> Map<String, Value> {
    let mut codes_by_status: BTreeMap<u16, BTreeSet<&str>> = BTreeMap::new();
    for (status, codes) in endpoints.iter().flat_map(|endpoint| &endpoint.operation.problems) {
        codes_by_status.entry(*status).or_default().extend(codes);
    }
    let render = |(status, codes): (u16, BTreeSet<&str>)| {
        let codes: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
        let content = json!({ "application/problem+json": { "schema": problem } });
        let response = json!({ "description": codes.join(", "), "content": content });
        (problem_name(status), response)
    };
    codes_by_status.into_iter().map(render).collect()
}

/// Rewrites what client generators reject or handle badly: boolean schemas, number formats that JSON
/// schema does not define, defaults that are null (a generator takes a field with a default for
/// required), and enumerations that are a choice between constants.
fn simplify(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in ["properties", "patternProperties"] {
                if let Some(Value::Object(properties)) = fields.get_mut(name) {
                    properties.values_mut().for_each(replace_boolean_schema);
                }
            }
            if let Some(items) = fields.get_mut("items") {
                replace_boolean_schema(items);
            }
            if fields.get("format").and_then(Value::as_str).is_some_and(|it| it.contains("int")) {
                fields.remove("format");
                fields.retain(|name, value| !(name == "minimum" && value == 0));
            }
            fields.retain(|name, value| !(name == "default" && value.is_null()));
            merge_constants(fields);
            fields.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn replace_boolean_schema(schema: &mut Value) {
    if *schema == Value::Bool(true) {
        *schema = json!({});
    }
}

/// Turns `oneOf` of described constants into an `enum` whose description lists them.
fn merge_constants(schema: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = schema.get("oneOf") else { return };
    let mut values = Vec::new();
    let mut texts = Vec::new();
    for choice in choices {
        let mut constants = match (choice.get("const"), choice.get("enum")) {
            (Some(constant), _) => vec![constant.clone()],
            (None, Some(Value::Array(constants))) => constants.clone(),
            _ => return,
        };
        if let (Some(text), [Value::String(name)]) =
            (choice["description"].as_str(), &constants[..])
        {
            texts.push(format!("`{name}`: {text}"));
        }
        values.append(&mut constants);
    }
    let description = schema.get("description").and_then(Value::as_str).map(str::to_owned);
    let description: Vec<String> = description.into_iter().chain(texts).collect();
    schema.remove("oneOf");
    schema.insert("type".to_owned(), json!("string"));
    schema.insert("enum".to_owned(), Value::Array(values));
    if !description.is_empty() {
        schema.insert("description".to_owned(), json!(description.join("\n")));
    }
}

/// Moves parameters that several operations have into the components.
fn share_parameters(document: &mut Value) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for parameter in parameters_of(document) {
        *counts.entry(parameter.to_string()).or_default() += 1;
    }
    let mut shared: BTreeMap<String, Value> = BTreeMap::new();
    for parameter in parameters_of(document) {
        let text = parameter.to_string();
        if counts[&text] < 2 {
            continue;
        }
        let name: String = parameter["name"]
            .as_str()
            .unwrap_or_default()
            .split(['_', '-'])
            .map(capitalize)
            .collect();
        // Parameters of the same name with different schemas get numbers.
        let name = (1..)
            .map(|number| if number == 1 { name.clone() } else { format!("{name}{number}") })
            .find(|name| shared.get(name).is_none_or(|other| *other == *parameter));
        let Some(name) = name else { continue };
        let reference = json!({ "$ref": format!("#/components/parameters/{name}") });
        shared.insert(name, std::mem::replace(parameter, reference));
    }
    document["components"]["parameters"] = json!(shared);
}

fn parameters_of(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    let paths = document["paths"].as_object_mut().into_iter().flat_map(Map::values_mut);
    let operations = paths.filter_map(Value::as_object_mut).flat_map(Map::values_mut);
    let lists = operations.filter_map(|operation| operation.get_mut("parameters"));
    lists.filter_map(Value::as_array_mut).flatten()
}

fn capitalize(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn render_operation(operation: &Operation, schemas: &mut SchemaGenerator) -> Value {
    for extra in &operation.extra_schemas {
        extra(schemas);
    }
    let mut rendered = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": render_responses(operation, schemas),
    });
    let parameters = render_parameters(operation, schemas);
    if !parameters.is_empty() {
        rendered["parameters"] = json!(parameters);
    }
    if let Some(description) = operation.description {
        rendered["description"] = json!(description);
    }
    if operation.is_public() {
        rendered["security"] = json!([]);
    }
    match &operation.body {
        RequestBody::None => {}
        RequestBody::Json { schema, example, required } => {
            let schema = schema(schemas);
            let content = json!({ "application/json": { "schema": schema, "example": example } });
            rendered["requestBody"] = json!({ "required": required, "content": content });
        }
        RequestBody::Bytes => {
            let content = json!({ "application/octet-stream": { "schema": {} } });
            rendered["requestBody"] = json!({ "required": false, "content": content });
        }
    }
    rendered
}

fn render_parameters(operation: &Operation, schemas: &mut SchemaGenerator) -> Vec<Value> {
    let mut parameters = Vec::new();
    for (name, schema) in &operation.path {
        let schema = schema(schemas);
        parameters.push(json!({ "name": name, "in": "path", "required": true, "schema": schema }));
    }
    let query = operation.query.map(|schema| schema(schemas).to_value());
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
    schema
}

/// Replaces `anyOf` by its only choice.
fn replace_any_of(schema: &mut Value, only: Value) {
    if let (Some(fields), Value::Object(only)) = (schema.as_object_mut(), only) {
        fields.remove("anyOf");
        fields.extend(only);
    }
}

fn render_responses(operation: &Operation, schemas: &mut SchemaGenerator) -> Value {
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
    for (status, _) in &operation.problems {
        let reference = format!("#/components/responses/{}", problem_name(*status));
        responses.insert(status.to_string(), json!({ "$ref": reference }));
    }
    Value::Object(responses)
}

fn render_success(
    operation: &Operation,
    success: &SuccessResponse,
    schemas: &mut SchemaGenerator,
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
            let schema = schema(schemas);
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
