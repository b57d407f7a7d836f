//! `/api/v1/media`: files for messages. Files are streamed through and never held in memory.

use std::sync::Arc;

use axum::{
    Json,
    body::HttpBody as _,
    extract::{Request, State},
};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use schemars::JsonSchema;
use serde::Deserialize;
use surehook_api::messages::MediaFileResponse;
use surehook_engine::media::{MediaLinkError, MediaUploadError, NewMediaFile};
use surehook_messaging::media::{self, DetectedMediaType, StoredMedia};
use surehook_types::ids::MediaId;

use super::{
    extract::{PathParam, QueryParams},
    idempotency::IdempotencyContext,
    lanes,
};
use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

/// Options of an upload.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UploadQuery {
    #[serde(default)]
    filename: Option<String>,
    /// Name or id of a `whatsapp-cloud` destination.
    #[serde(default)]
    destination: Option<String>,
}

fn media_file(stored: StoredMedia) -> MediaFileResponse {
    let StoredMedia { id, kind, mime_type, size, filename, created_at, .. } = stored;
    MediaFileResponse {
        id: Some(id),
        media_id: None,
        kind,
        mime_type,
        size,
        filename,
        created_at: Some(created_at),
    }
}

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let upload = Operation::new("upload_media", "Upload a file for messages.")
        .description(
            "The body is the file, with its `Content-Type` and `Content-Length`; the media type is \
             detected from the bytes. The file is stored in the bucket of `[media]`, and messages refer \
             to it by id; each attempt creates a new link to it. With `destination` it is uploaded to the \
             Cloud API instead. An `Idempotency-Key` covers URL, type and length here; the bytes are \
             not compared.",
        )
        .query::<UploadQuery>()
        .accepts_bytes()
        .returns::<MediaFileResponse>(201)
        .problem(409, &["media_not_configured"])
        .problem(411, &["length_required"])
        .problem(422, &["unfit_media"])
        .problem(502, &["media_refused"]);
    let get = Operation::new("get_media", "Get an uploaded file's metadata.")
        .path::<MediaId>("id")
        .returns::<MediaFileResponse>(200);
    api.post("/api/v1/media", upload_media, upload).get("/api/v1/media/{id}", get_media, get)
}

pub(crate) async fn upload_media(
    State(server): State<Arc<ServerState>>,
    IdempotencyContext(identity): IdempotencyContext,
    QueryParams(query): QueryParams<UploadQuery>,
    request: Request,
) -> Result<(StatusCode, Json<MediaFileResponse>), Problem> {
    let file = new_file(request, query.filename.as_deref())?;
    if let Some(name) = &query.destination {
        let destination = lanes::find_destination(&server, name).await?;
        let (size, filename) = (file.size, file.filename.clone());
        let (detected, media_id) = server.engine.upload_to(destination, file).await?;
        let DetectedMediaType { kind, mime_type, .. } = detected;
        let media_id = Some(media_id);
        let uploaded = MediaFileResponse {
            id: None,
            media_id,
            kind,
            mime_type,
            size,
            filename,
            created_at: None,
        };
        return Ok((StatusCode::CREATED, Json(uploaded)));
    }
    let now = server.engine.clock().now();
    let media = Arc::clone(server.engine.media());
    let stored = media.upload(identity.id(""), file, now).await?;
    Ok((StatusCode::CREATED, Json(media_file(stored))))
}

pub(crate) async fn get_media(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
) -> Result<Json<MediaFileResponse>, Problem> {
    let not_found = || Problem::not_found("file");
    let id = id.parse().map_err(|_| not_found())?;
    let stored = server.engine.media().find(id).await?.ok_or_else(not_found)?;
    Ok(Json(media_file(stored)))
}

fn new_file(request: Request, filename: Option<&str>) -> Result<NewMediaFile, Problem> {
    let declared_type = content_type(request.headers());
    let body = request.into_body();
    let Some(size) = body.size_hint().exact() else {
        let detail = "Send the size of the file in Content-Length.";
        let status = StatusCode::LENGTH_REQUIRED;
        return Err(Problem::new(status, "length_required", detail).close());
    };
    let body = body.map_err(Into::into).boxed_unsync();
    let filename = filename.and_then(media::sanitize_filename);
    Ok(NewMediaFile { body, size, declared_type, filename })
}

fn content_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    // The default of `curl --data-binary` says nothing about the file.
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
            MediaUploadError::WrongLength => (StatusCode::BAD_REQUEST, "bad_body"),
            MediaUploadError::TimedOut => (StatusCode::REQUEST_TIMEOUT, "body_timeout"),
            MediaUploadError::Busy => (StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
            MediaUploadError::Refused(_) => (StatusCode::BAD_GATEWAY, "media_refused"),
            MediaUploadError::Store(cause) => return Self::from(cause.clone()),
        };
        let problem = Self::new(status, code, error.to_string()).close();
        if status == StatusCode::SERVICE_UNAVAILABLE { problem.retry_after(1) } else { problem }
    }
}
