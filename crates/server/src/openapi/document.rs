//! Renders the table of endpoints as an OpenAPI document.
//!
//! The document is written for client generators: every type has one schema, for requests and
//! responses alike (a field with a default is optional in both), a type that extends another refers to
//! it, all problems are one shared response, what several endpoints have in common is shared, and no
//! schema is a boolean.

use std::collections::{BTreeMap, BTreeSet};

use schemars::{
    SchemaGenerator,
    generate::{Contract, SchemaSettings},
};
use serde_json::{Map, Value, json};
use surehook_api::{
    ProblemBody, deliveries::DeliveryResponse, events::EventResponse, messages::MessageResponse,
    quarantine::QuarantinedRequestSummary, replays::ReplayCounts, requests::ReceivedRequestSummary,
    stats::SeriesValue, tokens::TokenResponse,
};
use surehook_core::{destination::DestinationSpec, route::RouteSpec, source::SourceSpec};

use super::{
    Endpoint, Operation,
    operation::{RequestBody, ResponseContent, SchemaFn, SuccessResponse, schema_ref},
};

/// Types that contain all fields of another type (`#[serde(flatten)]`), and that type.
const EXTENSIONS: [(&str, SchemaFn); 12] = [
    ("CreatedToken", schema_ref::<TokenResponse>),
    ("DeliveryWithAttempts", schema_ref::<DeliveryResponse>),
    ("EventDetail", schema_ref::<EventResponse>),
    ("ListedEvent", schema_ref::<EventResponse>),
    ("MessageDetail", schema_ref::<MessageResponse>),
    ("QuarantinedRequestDetail", schema_ref::<QuarantinedRequestSummary>),
    ("RefusedRequestDetail", schema_ref::<ReceivedRequestSummary>),
    ("ReplayJob", schema_ref::<ReplayCounts>),
    ("SeriesPoint", schema_ref::<SeriesValue>),
    ("StoredDestinationSpec", schema_ref::<DestinationSpec>),
    ("StoredRouteSpec", schema_ref::<RouteSpec>),
    ("StoredSourceSpec", schema_ref::<SourceSpec>),
];

/// Problems that any endpoint may answer with; an endpoint lists its own besides.
const COMMON_PROBLEMS: [(u16, &[&str]); 12] = [
    (400, &["bad_json", "bad_body", "bad_idempotency_key"]),
    (401, &["unauthorized"]),
    (403, &["forbidden"]),
    (404, &["not_found"]),
    (408, &["body_timeout"]),
    (409, &["idempotency_in_flight"]),
    (412, &["changed_meanwhile"]),
    (413, &["body_too_large"]),
    (415, &["not_json"]),
    (422, &["invalid", "idempotency_key_reused"]),
    (429, &["too_many_idempotency_keys", "too_many_failed_tokens"]),
    (503, &["overloaded", "disk_full", "store_failed", "request_timeout"]),
];

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
    let problem = schemas.subschema_for::<ProblemBody>();
    let bases = EXTENSIONS.map(|(name, base)| (name, base(&mut schemas).to_value()));
    let mut definitions = schemas.take_definitions(true);
    for (name, base) in bases {
        extend_base(&mut definitions, name, base);
    }
    let common = COMMON_PROBLEMS.map(|(status, codes)| (status, codes.to_vec()));
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Surehook",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "API of the Surehook webhook gateway. See docs/api.md for a guide.",
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
            "headers": { "ETag": {
                "schema": { "type": "string", "pattern": "^\"[0-9a-f]{32}\"$" },
            } },
            "schemas": definitions,
        },
    });
    remove_response_nulls(&mut document);
    simplify(&mut document);
    let parameters = share("parameters", operation_parts(&mut document, "parameters"));
    let bodies = share("requestBodies", operation_parts(&mut document, "requestBody"));
    let mut responses = share("responses", operation_parts(&mut document, "responses"));
    responses.insert(
        "Problem".to_owned(),
        json!({
            "description": format!("An error. Common problems: {}.", list_problems(&common)),
            "content": { "application/problem+json": { "schema": problem } },
        }),
    );
    document["components"]["parameters"] = json!(parameters);
    document["components"]["requestBodies"] = json!(bodies);
    document["components"]["responses"] = json!(responses);
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// The tag of an endpoint: its resource, the first segment after `/api/v1/`.
fn tag(path: &str) -> &str {
    let resource = path.strip_prefix("/api/v1/").and_then(|rest| rest.split('/').next());
    resource.unwrap_or(if path.starts_with("/in/") { "receive" } else { "health" })
}

/// Statuses with their codes, as text.
fn list_problems(problems: &[(u16, Vec<&str>)]) -> String {
    let line = |(status, codes): &(u16, Vec<&str>)| {
        let codes: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
        format!("{status} {}", codes.join(", "))
    };
    problems.iter().map(line).collect::<Vec<_>>().join("; ")
}

/// The last segment of a reference to a component.
fn reference_name(value: &Value) -> Option<&str> {
    value["$ref"].as_str()?.rsplit('/').next()
}

/// Replaces the fields that a type has from its base by a reference to the base.
fn extend_base(definitions: &mut Map<String, Value>, name: &str, base: Value) {
    let base_name = reference_name(&base).unwrap_or_default();
    let Some(Value::Object(base_schema)) = definitions.get_mut(base_name) else { return };
    // The types that extend it have more fields.
    base_schema.remove("additionalProperties");
    let inherited = base_schema["properties"].clone();
    let Some(Value::Object(mut own)) = definitions.remove(name) else { return };
    if let Some(Value::Object(properties)) = own.get_mut("properties") {
        properties.retain(|field, _| inherited.get(field).is_none());
    }
    if let Some(Value::Array(required)) = own.get_mut("required") {
        required.retain(|field| field.as_str().is_some_and(|field| inherited.get(field).is_none()));
    }
    let description = own.remove("description");
    let schema = json!({ "description": description, "allOf": [base, own] });
    definitions.insert(name.to_owned(), schema);
}

/// Removes null from the schemas that only responses use: they omit fields without a value.
fn remove_response_nulls(document: &mut Value) {
    let mut schemas = document["components"]["schemas"].take();
    let mut in_requests = BTreeSet::new();
    for body in operation_parts(document, "requestBody") {
        collect_schemas(body, &schemas, &mut in_requests);
    }
    for (name, schema) in schemas.as_object_mut().into_iter().flatten() {
        if !in_requests.contains(name) {
            remove_null(schema);
        }
    }
    document["components"]["schemas"] = schemas;
}

/// Collects the names of all schemas that a value refers to.
fn collect_schemas(value: &Value, schemas: &Value, found: &mut BTreeSet<String>) {
    if let Some(name) = reference_name(value)
        && found.insert(name.to_owned())
    {
        collect_schemas(&schemas[name], schemas, found);
    }
    match value {
        Value::Object(fields) => {
            fields.values().for_each(|value| collect_schemas(value, schemas, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_schemas(item, schemas, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Rewrites what client generators reject or handle badly: boolean schemas, number formats that JSON
/// schema does not define, defaults (a generator takes a field with a default for required), and
/// enumerations that are a choice between constants.
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
            describe_default(fields);
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

/// Moves the default of a field into its description. Values such as `false` go without saying.
fn describe_default(schema: &mut Map<String, Value>) {
    let text = match schema.get("default") {
        // The default response of an operation.
        None | Some(Value::Object(_)) => return,
        Some(Value::Null | Value::Bool(false) | Value::Array(_)) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    schema.remove("default");
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    if !text.is_empty() && !description.to_lowercase().contains("default") {
        let description = format!("{description} Default: `{text}`.");
        schema.insert("description".to_owned(), json!(description.trim_start()));
    }
}

/// Moves what several operations have in common into the components.
fn share(section: &str, parts: Vec<&mut Value>) -> BTreeMap<String, Value> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for part in &parts {
        *counts.entry(part.to_string()).or_default() += 1;
    }
    let mut shared: BTreeMap<String, Value> = BTreeMap::new();
    for part in parts {
        if counts[&part.to_string()] < 2 || part.get("$ref").is_some() {
            continue;
        }
        let Some(name) = component_name(part) else { continue };
        // Different parts of the same name get numbers.
        let name = (1..)
            .map(|number| if number == 1 { name.clone() } else { format!("{name}{number}") })
            .find(|name| shared.get(name).is_none_or(|other| *other == *part));
        let Some(name) = name else { continue };
        let reference = json!({ "$ref": format!("#/components/{section}/{name}") });
        shared.insert(name, std::mem::replace(part, reference));
    }
    shared
}

/// A name for a parameter, body or response: that of its schema, or its own. Content that is not JSON
/// has none.
fn component_name(part: &Value) -> Option<String> {
    let schema = match part.get("content") {
        Some(content) => Some(reference_name(&content["application/json"]["schema"])?),
        None => reference_name(&part["schema"]).filter(|_| part["in"] == "path"),
    };
    let text = schema.or_else(|| part["name"].as_str()).or_else(|| part["description"].as_str());
    Some(text?.split(['_', '-', ' ']).map(capitalize).collect())
}

/// The values below `field` of all operations.
fn operation_parts<'d>(document: &'d mut Value, field: &str) -> Vec<&'d mut Value> {
    let paths = document["paths"].as_object_mut().into_iter().flat_map(Map::values_mut);
    let operations = paths.filter_map(Value::as_object_mut).flat_map(Map::values_mut);
    let values = operations.filter_map(|operation| operation.get_mut(field));
    let parts = values.flat_map(|value| match (field, value) {
        ("parameters", Value::Array(parameters)) => parameters.iter_mut().collect(),
        ("responses", Value::Object(by_status)) => by_status.values_mut().collect(),
        (_, value) => vec![value],
    });
    parts.collect()
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
    if let Some(description) = describe(operation) {
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

/// The description of an operation, with the problems that only few operations have.
fn describe(operation: &Operation) -> Option<String> {
    let is_own = |status: u16, code: &&str| {
        let mut common = COMMON_PROBLEMS.iter().filter(|(other, _)| *other == status);
        !common.any(|(_, codes)| codes.contains(code))
    };
    let mut problems = operation.problems.clone();
    for (status, codes) in &mut problems {
        codes.retain(|code| is_own(*status, code));
    }
    problems.retain(|(_, codes)| !codes.is_empty());
    let problems =
        (!problems.is_empty()).then(|| format!("Problems: {}.", list_problems(&problems)));
    let text: Vec<String> =
        operation.description.map(str::to_owned).into_iter().chain(problems).collect();
    (!text.is_empty()).then(|| text.join("\n\n"))
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
        let mut schema = schema.clone();
        // A parameter is present or absent, never null.
        remove_null(&mut schema);
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

/// Removes null from a schema and all schemas in it.
fn remove_null(schema: &mut Value) {
    let is_null = |kind: &Value| kind == "null" || kind["type"] == "null";
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Array(kinds)) = fields.get_mut("type") {
                kinds.retain(|kind| !is_null(kind));
                if let [only] = &kinds[..] {
                    let only = only.clone();
                    fields.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(choices)) = fields.get_mut("anyOf") {
                choices.retain(|kind| !is_null(kind));
                if let [Value::Object(only)] = &choices[..] {
                    let only = only.clone();
                    fields.remove("anyOf");
                    fields.extend(only);
                }
            }
            fields.values_mut().for_each(remove_null);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
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
    if !operation.is_public() || !operation.problems.is_empty() {
        responses.insert("default".to_owned(), json!({ "$ref": "#/components/responses/Problem" }));
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
        response["headers"] = json!({ "ETag": { "$ref": "#/components/headers/ETag" } });
    }
    response
}
