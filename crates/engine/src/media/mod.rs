//! Media files of messages: uploaded to the bucket once, and linked at every attempt.
//!
//! A file is streamed: only its beginning is buffered, to detect its type. It is recorded ([`StoredMedia`]) only
//! after the bucket has it, so every id that was returned is the id of a file. An interruption in between
//! leaves an unrecorded object, which a lifecycle rule of the bucket removes.

mod file;

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderValue, Method, Request, Uri, header};
use surehook_core::destination::Transport;
use surehook_messaging::{
    ChannelAccount, Message, cloud_upload,
    media::{Bucket, DetectedMediaType, MediaLimitError, StoredMedia, check_media_limits},
    message::{MediaLocation, MessageContent},
    store::MessageStore,
};
use surehook_retry::{AttemptFailure, AttemptOutcome, FailureClass, FailureScope, SendOutcome};
use surehook_types::{
    ids::{DestinationId, MediaId},
    store_error::StoreError,
    time::Timestamp,
};
use tokio::{sync::Semaphore, time::timeout};
use url::Url;

pub(crate) use self::file::MediaFileBody;
pub use self::file::NewMediaFile;
use self::file::{FileLengthError, TransferStatus};
use crate::{
    Engine,
    destination_client::DestinationClient,
    sender::{HttpSender, HttpSenderConfig, SendReport},
};

/// Concurrent uploads.
pub const UPLOADS_MAX: usize = 16;
/// The largest file that the Cloud API accepts.
const CLOUD_API_BYTES_MAX: u64 = 100 * 1024 * 1024;
/// The timeout of the beginning of a file.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of a whole file.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// The least time that a message waits for the settings to be fixed.
const CONFIG_WAIT: Duration = Duration::from_secs(600);

/// Uploads media files of messages, and links to them.
pub struct MediaFiles {
    store: Arc<dyn MessageStore>,
    bucket: Option<Bucket>,
    http: HttpSender<MediaFileBody>,
    uploads: Semaphore,
}

impl fmt::Debug for MediaFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MediaFiles").field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

/// Why a file was not uploaded.
#[derive(Debug, thiserror::Error)]
pub enum MediaUploadError {
    #[error("{NOT_CONFIGURED}")]
    NotConfigured,
    #[error("the file is larger than {0} bytes; make it smaller, or raise `media.max_bytes`")]
    TooLarge(u64),
    /// The channel does not accept such a file.
    #[error("{0}")]
    Limit(#[from] MediaLimitError),
    #[error(
        "only whatsapp-cloud destinations accept files themselves; omit `destination`, and use the id of the file"
    )]
    UnsupportedDestination,
    #[error("{FileLengthError}")]
    WrongLength,
    #[error("the file was not received in time")]
    TimedOut,
    #[error("{UPLOADS_MAX} uploads are already running; try again in a moment")]
    Busy,
    /// The bucket or the Cloud API refused it.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

const NOT_CONFIGURED: &str = "no storage for files is configured; add [media] with endpoint, bucket, \
     access_key and secret_key to the settings, or use a whatsapp-cloud destination";

/// Why there is no link to a file of a message.
#[derive(Debug, thiserror::Error)]
pub enum MediaLinkError {
    #[error("there is no file {0}; upload it first with POST /api/v1/media")]
    Unknown(MediaId),
    /// The channel does not accept such a file.
    #[error("{0}")]
    Limit(#[from] MediaLimitError),
    #[error("{NOT_CONFIGURED}")]
    NotConfigured,
    #[error("the file is in the bucket `{0}`, but [media] in the settings names another one")]
    OtherBucket(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl MediaLinkError {
    /// The outcome of the attempt: permanent if the message is wrong; if the settings are wrong, the message
    /// waits until they are fixed, while messages without files are sent; otherwise transient.
    pub fn outcome(&self) -> AttemptOutcome {
        let outcome = |class, failure| SendOutcome {
            failure: Some(failure),
            scope: FailureScope::ThisDelivery,
            ..SendOutcome::of(Some(class))
        };
        match self {
            Self::Unknown(_) | Self::Limit(_) => AttemptOutcome::Failed(AttemptFailure::Unsendable),
            Self::NotConfigured | Self::OtherBucket(_) => {
                AttemptOutcome::Interpreted(SendOutcome {
                    wait: Some(CONFIG_WAIT),
                    ..outcome(FailureClass::Config, AttemptFailure::Unsendable)
                })
            }
            Self::Store(_) => AttemptOutcome::Interpreted(outcome(
                FailureClass::Transient,
                AttemptFailure::Interrupted,
            )),
        }
    }
}

impl MediaFiles {
    pub(crate) fn new(
        store: Arc<dyn MessageStore>,
        bucket: Option<Bucket>,
        config: &HttpSenderConfig,
    ) -> Self {
        let config = HttpSenderConfig { pool_idle_max: UPLOADS_MAX, ..config.clone() };
        let uploads = Semaphore::new(UPLOADS_MAX);
        Self { store, bucket, http: HttpSender::new(config), uploads }
    }

    /// The record of an uploaded file.
    pub async fn find(&self, id: MediaId) -> Result<Option<StoredMedia>, StoreError> {
        self.store.find_media(id).await
    }

    /// Uploads a file to the bucket under this id. After `Ok` it is there and recorded.
    pub async fn upload(
        &self,
        id: MediaId,
        mut file: NewMediaFile,
        now: Timestamp,
    ) -> Result<StoredMedia, MediaUploadError> {
        let bucket = self.bucket.as_ref().ok_or(MediaUploadError::NotConfigured)?;
        check_size(file.size, bucket.max_bytes())?;
        let _permit = self.uploads.try_acquire().map_err(|_| MediaUploadError::Busy)?;
        let (media_type, beginning) = inspect(&mut file).await?;
        let DetectedMediaType { mime_type, kind, extension } = media_type;
        let key = bucket.object_key(id, &extension);
        let (filename, size) = (file.filename.take(), file.size);
        let status = TransferStatus::default();
        let mut request = Request::new(MediaFileBody::new(file, beginning, &status));
        *request.method_mut() = Method::PUT;
        *request.uri_mut() = parse_uri(&bucket.presign_put(&key, &mime_type, now))?;
        // Cannot fail: a detected type consists of tokens.
        if let Ok(content_type) = HeaderValue::from_str(&mime_type) {
            request.headers_mut().insert(header::CONTENT_TYPE, content_type);
        }
        let report = self.http.call(request, UPLOAD_TIMEOUT).await;
        if status.has_wrong_length() {
            return Err(MediaUploadError::WrongLength);
        }
        check_stored(&report)?;
        let bucket = bucket.name().to_owned();
        let upload =
            StoredMedia { id, bucket, key, kind, mime_type, size, filename, created_at: now };
        self.store.store_media(upload.clone()).await?;
        Ok(upload)
    }

    /// Uploads a file to the Cloud API, which assigns an id of its own.
    async fn upload_to_cloud_api(
        &self,
        account: &ChannelAccount,
        http: &HttpSender<MediaFileBody>,
        mut file: NewMediaFile,
        boundary: u128,
    ) -> Result<(DetectedMediaType, String), MediaUploadError> {
        let _permit = self.uploads.try_acquire().map_err(|_| MediaUploadError::Busy)?;
        let (media_type, beginning) = inspect(&mut file).await?;
        let DetectedMediaType { mime_type, kind, extension } = &media_type;
        check_media_limits(cloud_upload::CHANNEL_NAME, *kind, mime_type, file.size)?;
        let filename = file.filename.take();
        let filename = filename.unwrap_or_else(|| format!("file.{extension}"));
        let form = cloud_upload::compose_upload(account, mime_type, &filename, boundary);
        let status = TransferStatus::default();
        let body = MediaFileBody::between(file, beginning, form.before, form.after, &status);
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = parse_uri(&form.url)?;
        *request.headers_mut() = form.headers;
        let report = http.call(request, UPLOAD_TIMEOUT).await;
        if status.has_wrong_length() {
            return Err(MediaUploadError::WrongLength);
        }
        let refused = |reason: String| {
            MediaUploadError::Refused(format!("the Cloud API did not accept the file: {reason}"))
        };
        match response_status(&report) {
            Ok(status) => {
                let id = cloud_upload::parse_upload_response(status, &report.response_body)
                    .map_err(refused)?;
                Ok((media_type, id))
            }
            Err(reason) => Err(refused(reason)),
        }
    }

    /// A link to a file, valid from now for the configured time.
    pub async fn link(&self, id: MediaId, now: Timestamp) -> Result<Url, MediaLinkError> {
        let upload = self.store.find_media(id).await?.ok_or(MediaLinkError::Unknown(id))?;
        self.link_to(&upload, now)
    }

    fn link_to(&self, upload: &StoredMedia, now: Timestamp) -> Result<Url, MediaLinkError> {
        let bucket = self.bucket.as_ref().ok_or(MediaLinkError::NotConfigured)?;
        if bucket.name() != upload.bucket {
            return Err(MediaLinkError::OtherBucket(upload.bucket.clone()));
        }
        Ok(bucket.presign_get(&upload.key, now))
    }

    /// Replaces the id of an uploaded file in a message by a fresh link to it, if the channel accepts such
    /// a file. Must be called at every attempt, and before a message is stored: it records the use of the
    /// file, which protects it from retention.
    pub async fn resolve_files(
        &self,
        message: &mut Message,
        channel: &str,
        now: Timestamp,
    ) -> Result<(), MediaLinkError> {
        let MessageContent::Media(media) = &mut message.content else { return Ok(()) };
        let MediaLocation::File(id) = media.location else { return Ok(()) };
        let upload = self.store.use_media(id, now).await?.ok_or(MediaLinkError::Unknown(id))?;
        check_media_limits(channel, media.kind, &upload.mime_type, upload.size)?;
        media.location = MediaLocation::Url(self.link_to(&upload, now)?.into());
        media.filename = media.filename.take().or(upload.filename);
        // Detected from the bytes, which is more reliable than the message.
        media.mime_type = Some(upload.mime_type);
        Ok(())
    }
}

impl Engine {
    /// Uploads a file to the Cloud API with a destination's account. Returns its type and its id there.
    pub async fn upload_to(
        &self,
        destination: DestinationId,
        file: NewMediaFile,
    ) -> Result<(DetectedMediaType, String), MediaUploadError> {
        check_size(file.size, CLOUD_API_BYTES_MAX)?;
        let client = self.client_of(destination);
        let client = client.ok_or(MediaUploadError::UnsupportedDestination)?;
        let Transport::Channel(sender) = &client.destination.transport else {
            return Err(MediaUploadError::UnsupportedDestination);
        };
        if sender.channel.name() != cloud_upload::CHANNEL_NAME {
            return Err(MediaUploadError::UnsupportedDestination);
        }
        let (http, boundary) = (client.file_sender(), self.shared.rng.next_u128());
        self.shared.media.upload_to_cloud_api(&sender.account, &http, file, boundary).await
    }

    /// The client of a destination's lane, or a new one if another node owns the lane.
    fn client_of(&self, destination: DestinationId) -> Option<Arc<DestinationClient>> {
        let registry = self.registry.load();
        if let Some(lane) = registry.lanes_of(destination).first() {
            return Some(lane.client());
        }
        let prepared = registry.destinations.get(&destination)?.prepared.clone();
        Some(Arc::new(DestinationClient::new(prepared, &self.shared.http, None)))
    }
}

fn check_size(size: u64, max: u64) -> Result<(), MediaUploadError> {
    match size {
        0 => Err(MediaLimitError::Empty.into()),
        _ if size > max => Err(MediaUploadError::TooLarge(max)),
        _ => Ok(()),
    }
}

async fn inspect(
    file: &mut NewMediaFile,
) -> Result<(DetectedMediaType, std::collections::VecDeque<bytes::Bytes>), MediaUploadError> {
    let inspected = timeout(HEAD_TIMEOUT, file.inspect()).await;
    inspected
        .map_err(|_| MediaUploadError::TimedOut)?
        .map_err(|FileLengthError| MediaUploadError::WrongLength)
}

fn parse_uri(url: &Url) -> Result<Uri, MediaUploadError> {
    let unusable =
        |_| MediaUploadError::Refused("its URL is invalid; check the settings".to_owned());
    url.as_str().parse().map_err(unusable)
}

/// The status of the response, or why there is none.
fn response_status(report: &SendReport) -> Result<u16, String> {
    match report.outcome {
        AttemptOutcome::Answered { status, .. } => Ok(status),
        AttemptOutcome::Failed(_) | AttemptOutcome::Interpreted(_) => {
            Err(report.detail.clone().unwrap_or_default())
        }
    }
}

/// Checks the answer of the storage. The error names the settings that are probably wrong.
fn check_stored(report: &SendReport) -> Result<(), MediaUploadError> {
    let refused = |reason: String| {
        Err(MediaUploadError::Refused(format!("the storage did not accept the file: {reason}")))
    };
    let status = match response_status(report) {
        Ok(200..300) => return Ok(()),
        Ok(status) => status,
        Err(reason) => return refused(reason),
    };
    let code = s3_error_code(&report.response_body).unwrap_or_else(|| "no reason given".to_owned());
    let hint = match (status, code.as_str()) {
        (_, "NoSuchBucket") => "; check media.bucket",
        (_, "RequestTimeTooSkewed") => "; check the clock of this machine",
        (401 | 403, _) => "; check media.access_key, media.secret_key and media.region",
        (300..=399, _) => "; check media.endpoint and media.region",
        (_, _) => "",
    };
    refused(format!("it answered {status} ({code}){hint}"))
}

/// The code in an S3 error response: `<Error><Code>…</Code>`.
fn s3_error_code(body: &[u8]) -> Option<String> {
    let body = std::str::from_utf8(body).ok()?;
    let (_, rest) = body.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_word = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_word && !code.is_empty()).then(|| code.to_owned())
}
