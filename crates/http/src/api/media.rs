//! `/api/v1/media`: files for messages. A file passes through and is held nowhere.

use std::sync::Arc;

use axum::{
    Json,
    body::HttpBody as _,
    extract::{Request, State},
};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_core::{
    channel::message::MediaKind,
    ids::MediaId,
    media::{self, DetectedMediaType, StoredMedia},
    time::Timestamp,
};
use surehook_engine::media::{MediaLinkError, MediaUploadError, NewMediaFile};

use super::{
    idempotent::Wished,
    input::{Asked, Segment},
    lanes,
};
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
};

/// What is said about a file that is sent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AboutFile {
    /// What it is called.
    #[serde(default)]
    filename: Option<String>,
    /// The name or id of a `whatsapp-cloud` destination, to which the file is handed at once instead of
    /// being put into the bucket.
    #[serde(default)]
    destination: Option<String>,
}

/// A file that the Cloud API has.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "HandedMediaFile")]
pub(crate) struct Handed {
    /// What the Cloud API calls it, for 30 days: `"image": { "media_id": "…" }`.
    media_id: String,
    /// How it is shown unless a message says otherwise.
    kind: MediaKind,
    /// What it is, by its bytes.
    mime_type: String,
    /// How many bytes it has.
    size: u64,
    filename: Option<String>,
}

/// Where a file is now.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum Taken {
    /// In the bucket.
    Here(Shown),
    /// At the Cloud API.
    There(Handed),
}

/// A file that lies in the bucket.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "MediaFile")]
pub(crate) struct Shown {
    /// What messages call it: `"image": { "file": "med_…" }`.
    id: MediaId,
    /// How it is shown unless a message says otherwise.
    kind: MediaKind,
    /// What it is, by its bytes.
    mime_type: String,
    /// How many bytes it has.
    size: u64,
    filename: Option<String>,
    created_at: Timestamp,
}

impl From<StoredMedia> for Shown {
    fn from(upload: StoredMedia) -> Self {
        let StoredMedia { id, kind, mime_type, size, filename, created_at, .. } = upload;
        Self { id, kind, mime_type, size, filename, created_at }
    }
}

pub(crate) fn routes(api: Api) -> Api {
    let create = Op::new("upload_media", "Takes a file for messages.")
        .text(
            "The body is the file, with its `Content-Type` and `Content-Length`. What it is, its bytes \
             say. It is put into the bucket of `[media]`, and messages name it by its id; the link that \
             a service fetches it by is made anew for every attempt. With `destination` it goes to the \
             Cloud API instead. An `Idempotency-Key` stands for \
             address, type and length here: the bytes are not compared.",
        )
        .query::<AboutFile>()
        .takes_bytes()
        .answers::<Taken>(201)
        .refuses(404, &["not_found"])
        .refuses(400, &["bad_body"])
        .refuses(408, &["body_timeout"])
        .refuses(409, &["media_not_configured"])
        .refuses(411, &["length_required"])
        .refuses(413, &["body_too_large"])
        .refuses(422, &["unfit_media"])
        .refuses(502, &["media_refused"]);
    let show =
        Op::new("get_media", "A file for messages.").path::<MediaId>("id").answers::<Shown>(200);
    api.post("/api/v1/media", upload_media, create).get("/api/v1/media/{id}", get_media, show)
}

/// Takes a file for messages.
pub(crate) async fn upload_media(
    State(app): State<Arc<App>>,
    Wished(wish): Wished,
    Asked(about): Asked<AboutFile>,
    request: Request,
) -> Result<(StatusCode, Json<Taken>), Problem> {
    let file = new_file(request, about.filename.as_deref())?;
    if let Some(wanted) = &about.destination {
        let destination = lanes::find(&app, wanted).await?;
        let (size, filename) = (file.size, file.filename.clone());
        let (found, media_id) = app.engine.upload_to(destination, file).await?;
        let DetectedMediaType { kind, mime_type, .. } = found;
        let handed = Handed { media_id, kind, mime_type, size, filename };
        return Ok((StatusCode::CREATED, Json(Taken::There(handed))));
    }
    let now = app.engine.clock().now();
    let media = Arc::clone(app.engine.media());
    let upload = media.upload(wish.id(""), file, now).await?;
    Ok((StatusCode::CREATED, Json(Taken::Here(upload.into()))))
}

/// A file for messages.
pub(crate) async fn get_media(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Json<Shown>, Problem> {
    let unknown = || Problem::not_found("file");
    let id = id.parse().map_err(|_| unknown())?;
    let upload = app.engine.media().find(id).await?.ok_or_else(unknown)?;
    Ok(Json(upload.into()))
}

fn new_file(request: Request, filename: Option<&str>) -> Result<NewMediaFile, Problem> {
    let claimed = content_type(request.headers());
    let body = request.into_body();
    let Some(size) = body.size_hint().exact() else {
        let detail = "say how long the file is, with Content-Length";
        let status = StatusCode::LENGTH_REQUIRED;
        return Err(Problem::new(status, "length_required", detail).close());
    };
    let body = body.map_err(Into::into).boxed_unsync();
    Ok(NewMediaFile { body, size, claimed, filename: filename.and_then(media::sanitize_filename) })
}

fn content_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    // What `curl --data-binary` says when it is told nothing.
    Some(value.to_owned()).filter(|value| value != "application/x-www-form-urlencoded")
}

impl From<MediaLinkError> for Problem {
    fn from(error: MediaLinkError) -> Self {
        let (status, code) = match &error {
            MediaLinkError::Unknown(_) | MediaLinkError::Limit(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "unsendable")
            }
            MediaLinkError::NotConfigured | MediaLinkError::OtherBucket(_) => {
                (StatusCode::CONFLICT, "media_not_configured")
            }
            MediaLinkError::Store(cause) => return Self::from(cause.clone()),
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<MediaUploadError> for Problem {
    fn from(error: MediaUploadError) -> Self {
        let (status, code) = match &error {
            MediaUploadError::NotConfigured => (StatusCode::CONFLICT, "media_not_configured"),
            MediaUploadError::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            MediaUploadError::UnsupportedDestination => {
                (StatusCode::UNPROCESSABLE_ENTITY, "invalid")
            }
            MediaUploadError::Limit(_) => (StatusCode::UNPROCESSABLE_ENTITY, "unfit_media"),
            MediaUploadError::Truncated => (StatusCode::BAD_REQUEST, "bad_body"),
            MediaUploadError::TimedOut => (StatusCode::REQUEST_TIMEOUT, "body_timeout"),
            MediaUploadError::Busy => (StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
            MediaUploadError::Refused(_) => (StatusCode::BAD_GATEWAY, "media_refused"),
            MediaUploadError::Store(cause) => return Self::from(cause.clone()),
        };
        let problem = Self::new(status, code, error.to_string()).close();
        if status == StatusCode::SERVICE_UNAVAILABLE { problem.retry_after(1) } else { problem }
    }
}
