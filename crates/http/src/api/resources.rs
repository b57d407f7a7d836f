//! `/api/v1/sources`, `/destinations` and `/routes`: what people configure, one set of handlers.

use std::{borrow::Cow, marker::PhantomData, sync::Arc};

use axum::{Json, extract::State};
use http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};
use surehook_core::{
    destination::DestinationSpec,
    ids::{DestinationIdKind, Id, IdKind, RouteIdKind, SourceIdKind},
    name::Name,
    route::RouteSpec,
    source::SourceSpec,
    store::{ConfigChange, Configuration, StoredObject},
};

use super::{
    LIMIT_MAX, List, cursor,
    idempotent::Wished,
    input::{Asked, Input, Segment},
    kept,
    lanes::{self, LaneShown},
    limit,
    masked::{self, NoState},
    tagged::{Expected, Tag, TaggedAs},
};
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
};

/// One kind of thing that can be configured.
pub(crate) trait Resource:
    masked::Masked + JsonSchema + DeserializeOwned + Send + Sync + 'static
{
    /// What its ids are like.
    type IdKind: IdKind + Send + Sync;
    /// The word for it.
    const WORD: &'static str;
    /// Whether it has a name, which belongs to one only.
    const HAS_NAME: bool;
    /// How it does, beside what was written.
    type State: Serialize + JsonSchema;
    /// Whether there is anything to say of that.
    const HAS_STATE: bool;

    /// One, as it is sent.
    fn example() -> Value;
    /// All of them.
    fn all(configuration: &Configuration) -> &[StoredObject<Id<Self::IdKind>, Self>]
    where
        Self: Sized;
    /// Its name, if it has one.
    fn name(&self) -> Option<&str>;
    /// Creates or replaces it.
    fn put(id: Id<Self::IdKind>, spec: Self) -> ConfigChange;
    /// Removes it.
    fn delete(id: Id<Self::IdKind>) -> ConfigChange;
    /// How it does, beside what was written.
    fn state(&self, app: &App, id: Id<Self::IdKind>) -> Self::State;
}

/// What is said of a source beside its settings.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SourceShown {
    /// Whether a request has to prove where it comes from.
    verified: bool,
}

impl Resource for SourceSpec {
    type IdKind = SourceIdKind;
    const WORD: &'static str = "source";
    const HAS_NAME: bool = true;
    type State = SourceShown;
    // It follows from what was written.
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
    fn state(&self, _: &App, _: Id<SourceIdKind>) -> SourceShown {
        SourceShown { verified: self.is_verified() }
    }
}

impl Resource for DestinationSpec {
    type IdKind = DestinationIdKind;
    const WORD: &'static str = "destination";
    const HAS_NAME: bool = true;
    type State = LaneShown;
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
    fn state(&self, app: &App, id: Id<DestinationIdKind>) -> LaneShown {
        LaneShown { state: lanes::state(app, id) }
    }
}

impl Resource for RouteSpec {
    type IdKind = RouteIdKind;
    const WORD: &'static str = "route";
    const HAS_NAME: bool = false;
    type State = NoState;
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
    fn state(&self, _: &App, _: Id<RouteIdKind>) -> NoState {
        NoState {}
    }
}

/// Which of them are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResourceQuery {
    /// At most this many; 1000 when left out.
    #[schemars(with = "Option<u16>", range(min = 1, max = LIMIT_MAX))]
    limit: Option<String>,
    /// Goes on after the page that gave this.
    #[schemars(regex(pattern = "^(src|dst|rte)_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    cursor: Option<String>,
}

/// The calls of one kind.
pub(crate) fn routes<R: Resource>(api: Api) -> Api {
    let word = R::WORD;
    let all = format!("/api/v1/{word}s");
    let one = format!("{all}/{{wanted}}");
    let refuses_name = |op: Op| match R::HAS_NAME {
        true => op.refuses(409, &["name_taken"]),
        false => op,
    };
    let list_op = Op::new(format!("list_{word}s"), format!("All {word}s, newest first."))
        .query::<ResourceQuery>()
        .answers::<List<Shown<R>>>(200);
    let create_op = refuses_name(Op::new(format!("create_{word}"), format!("Creates a {word}.")))
        .body::<R>(R::example())
        .answers::<Shown<R>>(201)
        .tagged();
    let find_op = Op::new(format!("find_{word}"), format!("One {word}, secrets masked."))
        .path::<Wanted<R>>("wanted")
        .answers::<Shown<R>>(200);
    let find_op = if R::HAS_STATE { find_op.tagged() } else { find_op.cached() };
    let replace_op =
        refuses_name(Op::new(format!("replace_{word}"), format!("Replaces a {word}.")))
            .text("A secret that is sent as its mask, `•••`, stays what it is.")
            .path::<Wanted<R>>("wanted")
            .body::<R>(R::example())
            .answers::<Shown<R>>(200)
            .tagged()
            .guarded_by_tag();
    let delete_op = Op::new(format!("delete_{word}"), format!("Deletes a {word}."))
        .path::<Wanted<R>>("wanted")
        .answers_nothing(204)
        .refuses(422, &["invalid"])
        .guarded_by_tag();
    api.get(&all, list::<R>, list_op)
        .post(&all, create::<R>, create_op)
        .get(&one, find::<R>, find_op)
        .put(&one, replace::<R>, replace_op)
        .delete(&one, delete::<R>, delete_op)
}

/// One of them with its id and times.
pub(super) type Shown<R> =
    masked::Shown<'static, Id<<R as Resource>::IdKind>, R, <R as Resource>::State>;

/// What names one of them: its id, or its name where it has one.
pub(super) struct Wanted<R>(PhantomData<R>);

impl<R: Resource> JsonSchema for Wanted<R> {
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

/// By id, or by name where there is one.
pub(super) fn find_in<'a, R: Resource>(
    configuration: &'a Configuration,
    wanted: &str,
) -> Result<&'a StoredObject<Id<R::IdKind>, R>, Problem> {
    let by_id: Option<Id<R::IdKind>> = wanted.parse().ok();
    R::all(configuration)
        .iter()
        .find(|stored| {
            by_id.is_some_and(|id| id.uuid() == stored.id.uuid())
                || stored.spec.name() == Some(wanted)
        })
        .ok_or_else(|| Problem::not_found(R::WORD))
}

/// What was written, masked, and how it does. Its version is that of what was written: how it does
/// changes by itself, and a change of the settings must not fail for that.
fn shown<R: Resource>(app: &App, stored: &StoredObject<Id<R::IdKind>, R>) -> Value {
    masked::stored_with(stored, stored.spec.state(app, stored.id))
}

pub(super) async fn show<R: Resource>(
    app: &App,
    wanted: &str,
    status: StatusCode,
) -> Result<TaggedAs<Value>, Problem> {
    let configuration = app.engine.store().configuration().await?;
    let found = find_in::<R>(&configuration, wanted)?;
    let tag = Tag::of(&masked::stored(found));
    Ok(TaggedAs { status, tag, moves: R::HAS_STATE, value: shown(app, found) })
}

async fn list<R: Resource>(
    State(app): State<Arc<App>>,
    Asked(query): Asked<ResourceQuery>,
) -> Result<Json<List<Value>>, Problem> {
    let limit = limit(query.limit.as_deref())?.unwrap_or(LIMIT_MAX);
    let after = cursor::<R::IdKind>(query.cursor.as_deref())?.map(|id| id.uuid());
    let configuration = app.engine.store().configuration().await?;
    let mut all: Vec<_> = R::all(&configuration).iter().collect();
    all.sort_by_key(|stored| std::cmp::Reverse(stored.id.uuid()));
    let rest = all.into_iter().filter(|stored| after.is_none_or(|after| stored.id.uuid() < after));
    let page: Vec<_> = rest.take(limit).collect();
    let next = page.last().filter(|_| page.len() == limit).map(|stored| stored.id.to_string());
    let data = page.into_iter().map(|stored| shown(&app, stored)).collect();
    Ok(Json(List { data, next_cursor: next }))
}

async fn find<R: Resource>(
    State(app): State<Arc<App>>,
    Segment(wanted): Segment,
) -> Result<TaggedAs<Value>, Problem> {
    show::<R>(&app, &wanted, StatusCode::OK).await
}

async fn create<R: Resource>(
    State(app): State<Arc<App>>,
    Wished(wish): Wished,
    Input(spec): Input<R>,
) -> Result<TaggedAs<Value>, Problem> {
    let id: Id<R::IdKind> = wish.id("");
    app.engine
        .change::<_, Problem>(|configuration| match spec.name() {
            // This very wish was granted before, and only its answer was lost.
            _ if find_in::<R>(configuration, &id.to_string()).is_ok() => Ok((Vec::new(), ())),
            Some(name) if is_taken::<R>(configuration, name, id) => Err(name_taken::<R>(name)),
            Some(_) | None => Ok((vec![R::put(id, spec)], ())),
        })
        .await?;
    show::<R>(&app, &id.to_string(), StatusCode::CREATED).await
}

fn is_taken<R: Resource>(configuration: &Configuration, name: &str, by: Id<R::IdKind>) -> bool {
    find_in::<R>(configuration, name).is_ok_and(|other| other.id.uuid() != by.uuid())
}

fn name_taken<R: Resource>(name: &str) -> Problem {
    let detail = format!("there is a {} named `{name}` already", R::WORD);
    Problem::new(StatusCode::CONFLICT, "name_taken", detail)
}

async fn replace<R: Resource>(
    State(app): State<Arc<App>>,
    Segment(wanted): Segment,
    expected: Expected,
    Input(wish): Input<Box<RawValue>>,
) -> Result<TaggedAs<Value>, Problem> {
    let id = app
        .engine
        .change::<_, Problem>(|configuration| {
            let found = find_in::<R>(configuration, &wanted)?;
            expected.check(&masked::stored(found))?;
            let spec = kept::read(&wish, &found.spec)?;
            match spec.name() {
                Some(name) if is_taken::<R>(configuration, name, found.id) => {
                    Err(name_taken::<R>(name))
                }
                Some(_) | None => Ok((vec![R::put(found.id, spec)], found.id)),
            }
        })
        .await?;
    show::<R>(&app, &id.to_string(), StatusCode::OK).await
}

async fn delete<R: Resource>(
    State(app): State<Arc<App>>,
    Segment(wanted): Segment,
    expected: Expected,
) -> Result<StatusCode, Problem> {
    app.engine
        .change::<_, Problem>(|configuration| {
            let found = find_in::<R>(configuration, &wanted)?;
            expected.check(&masked::stored(found))?;
            Ok((vec![R::delete(found.id)], ()))
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
