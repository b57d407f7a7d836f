//! `/api/v1/sources`, `/destinations` and `/routes`: one set of handlers for all three.

use std::{borrow::Cow, marker::PhantomData, sync::Arc};

use axum::{Json, extract::State};
use http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};
use surehook_api::{
    Cursor, ListResponse,
    resources::{DestinationStatus, NoRuntimeState, SourceStatus, StoredSpecResponse},
};
use surehook_core::{
    destination::DestinationSpec,
    route::RouteSpec,
    source::SourceSpec,
    store::{ConfigChange, Configuration, StoredObject},
};
use surehook_engine::LaneStates;
use surehook_types::{
    ids::{DestinationIdKind, Id, IdKind, RouteIdKind, SourceIdKind},
    name::Name,
};

use super::{
    LIMIT_MAX, check_limit,
    etag::{ETag, IfMatch, VersionedJson},
    extract::{JsonBody, PathParam, QueryParams},
    idempotency::IdempotencyContext,
    lanes, masked_spec, parse_cursor,
};
use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

/// A kind of configured resource.
pub(crate) trait Resource:
    masked_spec::MaskSecrets + JsonSchema + DeserializeOwned + Clone + Send + Sync + 'static
{
    type IdKind: IdKind + Send + Sync;
    /// Name of the resource in paths, operation ids and texts.
    const WORD: &'static str;
    /// Whether resources of this kind have a unique name.
    const HAS_NAME: bool;
    /// Runtime state shown beside the settings.
    type State: Serialize + JsonSchema;
    /// Whether that state changes without a change of the settings.
    const HAS_STATE: bool;

    /// Example of a request body.
    fn example() -> Value;
    fn all(configuration: &Configuration) -> &[StoredObject<Id<Self::IdKind>, Self>]
    where
        Self: Sized;
    fn name(&self) -> Option<&str>;
    fn put(id: Id<Self::IdKind>, spec: Self) -> ConfigChange;
    fn delete(id: Id<Self::IdKind>) -> ConfigChange;
    /// `lanes` is given for kinds that have a [state](Self::HAS_STATE).
    fn state(
        &self,
        server: &ServerState,
        lanes: Option<&LaneStates>,
        id: Id<Self::IdKind>,
    ) -> Self::State;
}

impl Resource for SourceSpec {
    type IdKind = SourceIdKind;
    const WORD: &'static str = "source";
    const HAS_NAME: bool = true;
    type State = SourceStatus;
    // Derived from the settings only.
    const HAS_STATE: bool = false;

    fn example() -> Value {
        json!({
            "name": "shop",
            "verify": { "hmac": { "header": "x-signature" } },
            "secrets": ["a secret of at least 16 bytes"],
        })
    }

    fn all(configuration: &Configuration) -> &[StoredObject<Id<SourceIdKind>, Self>] {
        &configuration.sources
    }
    fn name(&self) -> Option<&str> {
        Some(self.name.as_str())
    }
    fn put(id: Id<SourceIdKind>, spec: Self) -> ConfigChange {
        ConfigChange::PutSource(id, spec)
    }
    fn delete(id: Id<SourceIdKind>) -> ConfigChange {
        ConfigChange::DeleteSource(id)
    }
    fn state(&self, _: &ServerState, _: Option<&LaneStates>, _: Id<SourceIdKind>) -> SourceStatus {
        SourceStatus { verified: self.is_verified() }
    }
}

impl Resource for DestinationSpec {
    type IdKind = DestinationIdKind;
    const WORD: &'static str = "destination";
    const HAS_NAME: bool = true;
    type State = DestinationStatus;
    const HAS_STATE: bool = true;

    fn example() -> Value {
        json!({ "name": "crm", "url": "https://crm.example.com/hook", "retry": "standard" })
    }

    fn all(configuration: &Configuration) -> &[StoredObject<Id<DestinationIdKind>, Self>] {
        &configuration.destinations
    }
    fn name(&self) -> Option<&str> {
        Some(self.name.as_str())
    }
    fn put(id: Id<DestinationIdKind>, spec: Self) -> ConfigChange {
        ConfigChange::PutDestination(id, spec)
    }
    fn delete(id: Id<DestinationIdKind>) -> ConfigChange {
        ConfigChange::DeleteDestination(id)
    }
    fn state(
        &self,
        server: &ServerState,
        lanes: Option<&LaneStates>,
        id: Id<DestinationIdKind>,
    ) -> DestinationStatus {
        DestinationStatus {
            state: lanes.and_then(|lanes| lanes::destination_state(lanes, id)),
            health: lanes::destination_health(server, id),
        }
    }
}

impl Resource for RouteSpec {
    type IdKind = RouteIdKind;
    const WORD: &'static str = "route";
    const HAS_NAME: bool = false;
    type State = NoRuntimeState;
    const HAS_STATE: bool = false;

    fn example() -> Value {
        json!({ "from": "shop", "to": "crm", "filter": ".type == \"order\"" })
    }

    fn all(configuration: &Configuration) -> &[StoredObject<Id<RouteIdKind>, Self>] {
        &configuration.routes
    }
    fn name(&self) -> Option<&str> {
        None
    }
    fn put(id: Id<RouteIdKind>, spec: Self) -> ConfigChange {
        ConfigChange::PutRoute(id, spec)
    }
    fn delete(id: Id<RouteIdKind>) -> ConfigChange {
        ConfigChange::DeleteRoute(id)
    }
    fn state(&self, _: &ServerState, _: Option<&LaneStates>, _: Id<RouteIdKind>) -> NoRuntimeState {
        NoRuntimeState {}
    }
}

/// Page of a list of resources.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResourceQuery {
    /// Maximum number of rows per page; by default 50, of sources, destinations and routes 1000, of an
    /// export all.
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    limit: Option<u16>,
    /// `next_cursor` of the previous page.
    #[schemars(with = "Option<Cursor>")]
    cursor: Option<String>,
}

pub(crate) fn add_routes<R: Resource>(api: ApiTable) -> ApiTable {
    let noun = R::WORD;
    let collection = format!("/api/v1/{noun}s");
    let member = format!("{collection}/{{id}}");
    let with_name_conflict = |operation: Operation| match R::HAS_NAME {
        true => operation.problem(409, &["name_taken"]),
        false => operation,
    };
    let list_operation =
        Operation::new(format!("list_{noun}s"), format!("List {noun}s, newest first."))
            .query::<ResourceQuery>()
            .returns::<ListResponse<ResourceResponse<R>>>(200);
    let create_operation =
        with_name_conflict(Operation::new(format!("create_{noun}"), format!("Create a {noun}.")))
            .body::<R>(R::example())
            .returns::<ResourceResponse<R>>(201)
            .with_etag();
    let get_operation =
        Operation::new(format!("get_{noun}"), format!("Get a {noun}, secrets masked."))
            .path::<ResourceRef<R>>("id")
            .returns::<ResourceResponse<R>>(200);
    let get_operation =
        if R::HAS_STATE { get_operation.with_etag() } else { get_operation.with_conditional_get() };
    let replace_operation =
        with_name_conflict(Operation::new(format!("replace_{noun}"), format!("Replace a {noun}.")))
            .description("To keep a secret, send its mask `•••`.")
            .path::<ResourceRef<R>>("id")
            .body::<R>(R::example())
            .returns::<ResourceResponse<R>>(200)
            .with_etag()
            .with_conditional_write();
    let delete_operation = Operation::new(format!("delete_{noun}"), format!("Delete a {noun}."))
        .path::<ResourceRef<R>>("id")
        .returns_nothing(204)
        .with_conditional_write();
    api.get(&collection, list::<R>, list_operation)
        .post(&collection, create::<R>, create_operation)
        .get(&member, get::<R>, get_operation)
        .put(&member, replace::<R>, replace_operation)
        .delete(&member, delete::<R>, delete_operation)
}

/// A resource with its id, times and state.
pub(super) type ResourceResponse<R> =
    StoredSpecResponse<Id<<R as Resource>::IdKind>, R, <R as Resource>::State>;

/// Identifies a resource in a path: by id, or by name if it has one.
pub(super) struct ResourceRef<R>(PhantomData<R>);

impl<R: Resource> JsonSchema for ResourceRef<R> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}_or_name", R::WORD).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let id = generator.subschema_for::<Id<R::IdKind>>();
        match R::HAS_NAME {
            true => json_schema!({
                "anyOf": [generator.subschema_for::<Name>(), id],
                "examples": [R::example()["name"]],
            }),
            false => id,
        }
    }
}

/// Finds a resource by id, or by name if it has one.
pub(super) fn find_resource<'a, R: Resource>(
    configuration: &'a Configuration,
    id_or_name: &str,
) -> Result<&'a StoredObject<Id<R::IdKind>, R>, Problem> {
    let by_id: Option<Id<R::IdKind>> = id_or_name.parse().ok();
    R::all(configuration)
        .iter()
        .find(|stored| {
            by_id.is_some_and(|id| id.uuid() == stored.id.uuid())
                || stored.spec.name() == Some(id_or_name)
        })
        .ok_or_else(|| Problem::not_found(R::WORD))
}

/// The masked settings and the runtime state.
fn resource_json<R: Resource>(
    server: &ServerState,
    lanes: Option<&LaneStates>,
    stored: &StoredObject<Id<R::IdKind>, R>,
) -> Value {
    masked_spec::mask_stored_with_state(stored, stored.spec.state(server, lanes, stored.id))
}

/// The states of lanes, for kinds of resources that show them.
async fn load_lane_states<R: Resource>(
    server: &ServerState,
    configuration: &Configuration,
) -> Result<Option<LaneStates>, Problem> {
    Ok(match R::HAS_STATE {
        true => Some(server.engine.load_lane_states(configuration).await?),
        false => None,
    })
}

/// The `ETag` covers the settings only: the state changes by itself, and a conditional change of the
/// settings must not fail because of it.
pub(super) async fn resource_response<R: Resource>(
    server: &ServerState,
    id_or_name: &str,
    status: StatusCode,
) -> Result<VersionedJson<Value>, Problem> {
    let configuration = server.engine.store().load_configuration().await?;
    let found = find_resource::<R>(&configuration, id_or_name)?;
    let tag = ETag::from_value(&masked_spec::mask_stored(found));
    let lanes = load_lane_states::<R>(server, &configuration).await?;
    let value = resource_json(server, lanes.as_ref(), found);
    Ok(VersionedJson { status, tag, has_state: R::HAS_STATE, value })
}

async fn list<R: Resource>(
    State(server): State<Arc<ServerState>>,
    QueryParams(query): QueryParams<ResourceQuery>,
) -> Result<Json<ListResponse<Value>>, Problem> {
    let limit = check_limit(query.limit)?.unwrap_or(LIMIT_MAX);
    let after: Option<Id<R::IdKind>> = parse_cursor(query.cursor.as_deref())?;
    let after = after.map(|id| id.uuid());
    let configuration = server.engine.store().load_configuration().await?;
    let mut all: Vec<_> = R::all(&configuration).iter().collect();
    all.sort_by_key(|stored| std::cmp::Reverse(stored.id.uuid()));
    let rest = all.into_iter().filter(|stored| after.is_none_or(|after| stored.id.uuid() < after));
    let page: Vec<_> = rest.take(limit).collect();
    let next = page.last().filter(|_| page.len() == limit).map(|stored| stored.id.to_string());
    let lanes = load_lane_states::<R>(&server, &configuration).await?;
    let json = |stored| resource_json(&server, lanes.as_ref(), stored);
    let data = page.into_iter().map(json).collect();
    Ok(Json(ListResponse { data, next_cursor: next }))
}

async fn get<R: Resource>(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
) -> Result<VersionedJson<Value>, Problem> {
    resource_response::<R>(&server, &id, StatusCode::OK).await
}

async fn create<R: Resource>(
    State(server): State<Arc<ServerState>>,
    IdempotencyContext(identity): IdempotencyContext,
    JsonBody(spec): JsonBody<R>,
) -> Result<VersionedJson<Value>, Problem> {
    let id: Id<R::IdKind> = identity.id("");
    server
        .engine
        .change::<_, Problem>(|configuration| match spec.name() {
            // This request was executed before, and only its response was lost.
            _ if find_resource::<R>(configuration, &id.to_string()).is_ok() => Ok((Vec::new(), ())),
            Some(name) if is_taken::<R>(configuration, name, id) => Err(name_taken::<R>(name)),
            Some(_) | None => Ok((vec![R::put(id, spec.clone())], ())),
        })
        .await?;
    resource_response::<R>(&server, &id.to_string(), StatusCode::CREATED).await
}

fn is_taken<R: Resource>(configuration: &Configuration, name: &str, id: Id<R::IdKind>) -> bool {
    find_resource::<R>(configuration, name).is_ok_and(|other| other.id.uuid() != id.uuid())
}

fn name_taken<R: Resource>(name: &str) -> Problem {
    let detail = format!("A {} named `{name}` already exists.", R::WORD);
    Problem::new(StatusCode::CONFLICT, "name_taken", detail)
}

async fn replace<R: Resource>(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
    if_match: IfMatch,
    JsonBody(body): JsonBody<Box<RawValue>>,
) -> Result<VersionedJson<Value>, Problem> {
    let id = server
        .engine
        .change::<_, Problem>(|configuration| {
            let found = find_resource::<R>(configuration, &id)?;
            if_match.check(&masked_spec::mask_stored(found))?;
            let spec = masked_spec::parse_replacement(&body, &found.spec)?;
            match spec.name() {
                Some(name) if is_taken::<R>(configuration, name, found.id) => {
                    Err(name_taken::<R>(name))
                }
                Some(_) | None => Ok((vec![R::put(found.id, spec)], found.id)),
            }
        })
        .await?;
    resource_response::<R>(&server, &id.to_string(), StatusCode::OK).await
}

async fn delete<R: Resource>(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    server
        .engine
        .change::<_, Problem>(|configuration| {
            let found = find_resource::<R>(configuration, &id)?;
            if_match.check(&masked_spec::mask_stored(found))?;
            Ok((vec![R::delete(found.id)], ()))
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
