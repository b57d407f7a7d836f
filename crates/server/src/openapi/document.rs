//! Renders the table of endpoints as an OpenAPI document.
//!
//! The document is written for client generators: every type has one schema, for requests and
//! responses alike (a field with a default is optional in both, and no field is null), a type that
//! extends another refers to it, all problems are one shared response, what several endpoints have in
//! common is shared, what only one field uses is written there, and no schema is a boolean.

use std::collections::{BTreeMap, BTreeSet};

use schemars::{
    SchemaGenerator,
    generate::{Contract, SchemaSettings},
};
use serde_json::{Map, Value, json};
use surehook_api::{
    ProblemBody,
    deliveries::DeliveryResponse,
    events::EventResponse,
    messages::MessageResponse,
    quarantine::QuarantinedRequestSummary,
    replays::{ReplayCounts, ReprocessRequest},
    requests::ReceivedRequestSummary,
    stats::SeriesValue,
    tokens::TokenResponse,
};
use surehook_core::{destination::DestinationSpec, route::RouteSpec, source::SourceSpec};

use super::{
    Endpoint, Operation,
    operation::{RequestBody, ResponseContent, SchemaFn, SuccessResponse, schema_ref},
};

/// Types that contain all fields of another type, and that type.
const EXTENSIONS: [(&str, SchemaFn); 13] = [
    ("CreateReplayRequest", schema_ref::<ReprocessRequest>),
    ("CreatedToken", schema_ref::<TokenResponse>),
    ("Destination", schema_ref::<DestinationSpec>),
    ("DeliveryWithAttempts", schema_ref::<DeliveryResponse>),
    ("EventDetail", schema_ref::<EventResponse>),
    ("ListedEvent", schema_ref::<EventResponse>),
    ("MessageDetail", schema_ref::<MessageResponse>),
    ("QuarantinedRequestDetail", schema_ref::<QuarantinedRequestSummary>),
    ("RefusedRequestDetail", schema_ref::<ReceivedRequestSummary>),
    ("ReplayJob", schema_ref::<ReplayCounts>),
    ("Route", schema_ref::<RouteSpec>),
    ("SeriesPoint", schema_ref::<SeriesValue>),
    ("Source", schema_ref::<SourceSpec>),
];

/// Problems of many endpoints; an endpoint lists its own besides.
const COMMON_PROBLEMS: [(u16, &[&str]); 14] = [
    (400, &["bad_json", "bad_body", "bad_idempotency_key"]),
    (401, &["unauthorized"]),
    (403, &["forbidden"]),
    (404, &["not_found"]),
    (408, &["body_timeout"]),
    (409, &["idempotency_in_flight", "name_taken", "destination_misconfigured"]),
    (410, &["body_removed"]),
    (412, &["changed_meanwhile"]),
    (413, &["body_too_large"]),
    (415, &["not_json"]),
    (422, &["invalid", "idempotency_key_reused"]),
    (429, &["too_many_idempotency_keys", "too_many_failed_tokens"]),
    (500, &["body_damaged"]),
    (
        503,
        &[
            "overloaded",
            "disk_full",
            "store_failed",
            "outcome_unknown",
            "database_unavailable",
            "request_timeout",
            "too_many_exports",
        ],
    ),
];

/// The parts that all endpoints share.
const INFO: &str = "API of the Surehook webhook gateway. docs/reference/api.md is its guide.\n\n\
    Fields without a value are left out, and unknown fields of a request are rejected. An id is a \
    prefix and 26 characters of base32; ids sort by creation time.";

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
            "description": INFO,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
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
    // A field without a value is left out. Requests may say null instead.
    remove_null(&mut document);
    simplify(&mut document);
    inline_single_uses(&mut document);
    remove_repeated_descriptions(&mut document);
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
    let Some(Value::Object(base_schema)) = definitions.get(base_name) else { return };
    let inherited = base_schema["properties"].clone();
    let base_description = base_schema.get("description").cloned();
    let Some(Value::Object(mut own)) = definitions.remove(name) else { return };
    if let Some(Value::Object(properties)) = own.get_mut("properties") {
        properties.retain(|field, schema| inherited.get(field) != Some(schema));
    }
    if let Some(Value::Array(required)) = own.get_mut("required") {
        required.retain(|field| field.as_str().is_some_and(|field| inherited.get(field).is_none()));
    }
    own.remove("type");
    // A flattened base lends its description to a type without one.
    let description =
        own.remove("description").filter(|text| Some(text) != base_description.as_ref());
    // Not as fields beside `allOf`: generators take a type that is all of one other for that one.
    let mut schema = json!({ "allOf": [base, own] });
    if let Some(description) = description {
        schema["description"] = description;
    }
    definitions.insert(name.to_owned(), schema);
}

/// Writes a schema that only one field uses into that field, unless it is an object, whose name clients
/// need.
fn inline_single_uses(document: &mut Value) {
    let mut uses = BTreeMap::new();
    count_uses(document, &mut uses);
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    let mut inlined = BTreeMap::new();
    let names: Vec<String> = schemas.keys().cloned().collect();
    for name in names {
        let is_object = |schema: &Value| {
            ["properties", "allOf", "oneOf"].iter().any(|word| schema.get(word).is_some())
        };
        if uses.get(&name) == Some(&1)
            && !is_object(&schemas[&name])
            && let Some(Value::Object(schema)) = schemas.remove(&name)
        {
            inlined.insert(name, schema);
        }
    }
    inline(document, &mut inlined);
}

/// Removes the description of an object that is used in one place, if that place has a summary or a
/// description and the object's says no more than what it is, in one clause.
fn remove_repeated_descriptions(document: &mut Value) {
    let mut uses = BTreeMap::new();
    count_uses(document, &mut uses);
    let mut described = BTreeSet::new();
    collect_described(document, false, &mut described);
    let schemas = document["components"]["schemas"].as_object_mut();
    for (name, schema) in schemas.into_iter().flatten() {
        let text = schema["description"].as_str().unwrap_or_default();
        let is_one_clause = ![". ", "; ", ": ", "\n", "`"].iter().any(|mark| text.contains(mark));
        if uses.get(name) == Some(&1) && described.contains(name) && is_one_clause {
            schema.as_object_mut().and_then(|schema| schema.remove("description"));
        }
    }
}

/// Collects the schemas that are referred to where a summary or a description is.
fn collect_described(value: &Value, is_described: bool, schemas: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            let is_described = is_described
                || ["summary", "description"]
                    .iter()
                    .any(|name| fields.get(*name).is_some_and(Value::is_string));
            if let Some(name) = reference_name(value).filter(|_| is_described) {
                schemas.insert(name.to_owned());
            }
            for (name, value) in fields {
                let keeps = !["properties", "anyOf"].contains(&name.as_str());
                collect_described(value, is_described && keeps, schemas);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| collect_described(item, is_described, schemas));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Counts the references to each schema.
fn count_uses(value: &Value, uses: &mut BTreeMap<String, usize>) {
    if let Some(name) = reference_name(value) {
        *uses.entry(name.to_owned()).or_default() += 1;
    }
    match value {
        Value::Object(fields) => fields.values().for_each(|value| count_uses(value, uses)),
        Value::Array(items) => items.iter().for_each(|item| count_uses(item, uses)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Replaces the references to `schemas` by the schemas.
fn inline(value: &mut Value, schemas: &mut BTreeMap<String, Map<String, Value>>) {
    if let Some(mut schema) = reference_name(value).and_then(|name| schemas.remove(name))
        && let Value::Object(reference) = value
    {
        reference.remove("$ref");
        merge_descriptions(reference, &mut schema);
        reference.append(&mut schema);
    }
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|value| inline(value, schemas)),
        Value::Array(items) => items.iter_mut().for_each(|item| inline(item, schemas)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Merges the descriptions of a field and of the schema that is written into it. Both begin with the same
/// sentence, so of the schema's only the values, or the rule of its format, are added.
fn merge_descriptions(field: &mut Map<String, Value>, schema: &mut Map<String, Value>) {
    let Some(description) = field.get("description").and_then(Value::as_str) else { return };
    let merged = match schema.remove("description").as_ref().and_then(Value::as_str) {
        Some(text) if schema.contains_key("enum") => match text.split_once("\n`") {
            Some((_, values)) => format!("{description}\n`{values}"),
            None => description.to_owned(),
        },
        Some(text) if schema.contains_key("pattern") => format!("{description} {text}"),
        _ => description.to_owned(),
    };
    field.insert("description".to_owned(), json!(merged));
}

/// Rewrites what client generators reject or handle badly: boolean schemas, number formats that JSON
/// schema does not define, defaults (a generator takes a field with a default for required), and
/// enumerations that are a choice between constants. That unknown fields are rejected is said once.
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
            fields.retain(|name, value| !(name == "additionalProperties" && *value == false));
            let format = fields.get("format").and_then(Value::as_str).unwrap_or_default();
            if format.contains("int") || format == "double" {
                fields.remove("format");
                fields.retain(|name, value| {
                    !(name == "minimum" && value == 0 || name == "maximum" && value == u16::MAX)
                });
            }
            describe_default(fields);
            merge_constants(fields);
            merge_variants(fields);
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

/// Turns `oneOf` of objects with one field each into an object of which one field is set: generators
/// have no name for the choices. A choice that is not an object is kept beside it.
fn merge_variants(schema: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = schema.get_mut("oneOf") else { return };
    let mut properties = Map::new();
    choices.retain_mut(|choice| {
        let Some(Value::Object(fields)) = choice.get_mut("properties").map(Value::take) else {
            return true;
        };
        for (name, mut field) in fields {
            if let description @ Value::String(_) = choice["description"].take() {
                field["description"] = description;
            }
            properties.insert(name, field);
        }
        false
    });
    let mut merged = json!({
        "type": "object",
        "properties": properties,
        "minProperties": 1,
        "maxProperties": 1,
    });
    if choices.is_empty() {
        schema.remove("oneOf");
        schema.extend(merged.as_object_mut().map(std::mem::take).unwrap_or_default());
    } else {
        choices.push(merged);
    }
}

/// Moves the default of a field into its description. Values such as `false` go without saying.
fn describe_default(schema: &mut Map<String, Value>) {
    let text = match schema.get("default") {
        None => return,
        // The default response of an operation.
        Some(Value::Object(fields)) if !fields.is_empty() => return,
        Some(Value::Object(_) | Value::Null | Value::Bool(false) | Value::Array(_)) => {
            String::new()
        }
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
            rendered["requestBody"] = json!({ "content": content });
            if *required {
                rendered["requestBody"]["required"] = json!(true);
            }
        }
        RequestBody::Bytes => {
            let content = json!({ "application/octet-stream": { "schema": {} } });
            rendered["requestBody"] = json!({ "content": content });
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
            if let Some(Value::Array(values)) = fields.get_mut("enum") {
                values.retain(|value| !value.is_null());
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
    // One text for all that have content, so that 200 and 201 can share a response.
    let description = match success.status {
        204 => "No content",
        304 => "Not modified",
        _ => "Result",
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
                types.iter().map(|kind| ((*kind).to_owned(), json!({}))).collect();
            response["content"] = Value::Object(any);
        }
    }
    if operation.has_etag && success.status != 204 {
        response["headers"] = json!({ "ETag": { "$ref": "#/components/headers/ETag" } });
    }
    response
}
