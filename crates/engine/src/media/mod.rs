//! Files that are sent with messages: into the bucket once, out of it by a link for every attempt.
//!
//! A file passes through us: only its beginning is held, to see what it is. It is known ([`StoredMedia`])
//! only after the bucket has it, so an id that was answered is the id of a file. What is interrupted
//! in between leaves an object that nobody knows, and a rule of the bucket removes it some day.

mod file;

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderValue, Method, Request, Uri, header};
use surehook_core::{
    channel::{
        ChannelAccount, Message, cloud_upload,
        message::{MediaLocation, MessageContent},
    },
    delivery::{
        AttemptFailure, AttemptOutcome, FailureClass,
        retry::{FailureScope, SendOutcome},
    },
    destination::Transport,
    ids::{DestinationId, MediaId},
    media::{
        Bucket, DetectedMediaType, MediaLimitError, MediaStore, StoredMedia, check_media_limits,
    },
    store::StoreError,
    time::Timestamp,
};
use tokio::{sync::Semaphore, time::timeout};
use url::Url;

pub(crate) use self::file::MediaFileBody;
pub use self::file::NewMediaFile;
use self::file::{TransferStatus, TruncatedFileError};
use crate::{
    Engine,
    sender::{HttpSender, HttpSenderConfig, SendReport},
};

/// How many files may be on their way at the same time.
pub const UPLOADS_MAX: usize = 16;
/// The largest file that the Cloud API takes.
const HANDED_BYTES_MAX: u64 = 100 * 1024 * 1024;
/// How long the beginning of a file may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a whole file may take.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// How long a message waits at least for settings to be mended.
const UNTIL_MENDED: Duration = Duration::from_secs(600);

/// The files of messages.
pub struct MediaFiles {
    store: Arc<dyn MediaStore>,
    bucket: Option<Bucket>,
    http: HttpSender<MediaFileBody>,
    places: Semaphore,
}

impl fmt::Debug for MediaFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Media").field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

/// Why a file was not taken.
#[derive(Debug, thiserror::Error)]
pub enum MediaUploadError {
    /// There is no bucket.
    #[error("{NOT_CONFIGURED}")]
    NotConfigured,
    /// It is larger than it may be.
    #[error("the file is larger than {0} bytes; make it smaller, or raise media.max_bytes")]
    TooLarge(u64),
    /// The service would not take it.
    #[error("{0}")]
    Limit(#[from] MediaLimitError),
    /// It was for somebody who takes no files.
    #[error(
        "only whatsapp-cloud destinations take files themselves; leave `destination` out, and name the file by its id"
    )]
    UnsupportedDestination,
    /// Its bytes did not come.
    #[error("{TruncatedFileError}")]
    Truncated,
    /// Its beginning did not come in time.
    #[error("the file did not come within the time for it")]
    TimedOut,
    /// Too many others are on their way.
    #[error("{UPLOADS_MAX} files are on their way already; try again in a moment")]
    Busy,
    /// Whoever was to have it did not take it.
    #[error("{0}")]
    Refused(String),
    /// The store did not do its part.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What to do where there is no bucket.
const NOT_CONFIGURED: &str = "there is no storage for files; write [media] with endpoint, bucket, \
     access_key and secret_key into the settings, or name a whatsapp-cloud destination";

/// Why a file of a message cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum MediaLinkError {
    /// Nobody uploaded it.
    #[error("there is no file {0}; upload it first, with POST /api/v1/media")]
    Unknown(MediaId),
    /// The service would not take it.
    #[error("{0}")]
    Limit(#[from] MediaLimitError),
    /// There is no bucket.
    #[error("{NOT_CONFIGURED}")]
    NotConfigured,
    /// It lies elsewhere.
    #[error("the file lies in the bucket `{0}`, and the settings name another one in [media]")]
    OtherBucket(String),
    /// The store did not do its part.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl MediaLinkError {
    /// What it means for the attempt. The message is wrong for good; or the settings are, and it waits
    /// until somebody has mended them, while messages without files pass; or it goes by itself.
    pub fn outcome(&self) -> AttemptOutcome {
        let meant = |class, failure| SendOutcome {
            failure: Some(failure),
            affects: FailureScope::ThisOnly,
            ..SendOutcome::of(Some(class))
        };
        match self {
            Self::Unknown(_) | Self::Limit(_) => AttemptOutcome::Failed(AttemptFailure::Unsendable),
            Self::NotConfigured | Self::OtherBucket(_) => {
                AttemptOutcome::Interpreted(SendOutcome {
                    wait: Some(UNTIL_MENDED),
                    ..meant(FailureClass::Config, AttemptFailure::Unsendable)
                })
            }
            Self::Store(_) => AttemptOutcome::Interpreted(meant(
                FailureClass::Transient,
                AttemptFailure::Interrupted,
            )),
        }
    }
}

impl MediaFiles {
    pub(crate) fn new(
        store: Arc<dyn MediaStore>,
        bucket: Option<Bucket>,
        config: &HttpSenderConfig,
    ) -> Self {
        let config = HttpSenderConfig { pool_idle_max: UPLOADS_MAX, ..config.clone() };
        let places = Semaphore::new(UPLOADS_MAX);
        Self { store, bucket, http: HttpSender::new(config), places }
    }

    /// What is known of a file.
    pub async fn find(&self, id: MediaId) -> Result<Option<StoredMedia>, StoreError> {
        self.store.find_media(id).await
    }

    /// Puts a file into the bucket under that id. After `Ok` it is there, and known.
    pub async fn upload(
        &self,
        id: MediaId,
        mut file: NewMediaFile,
        now: Timestamp,
    ) -> Result<StoredMedia, MediaUploadError> {
        let bucket = self.bucket.as_ref().ok_or(MediaUploadError::NotConfigured)?;
        check_size(file.size, bucket.max_bytes())?;
        let _place = self.places.try_acquire().map_err(|_| MediaUploadError::Busy)?;
        let (found, beginning) = look(&mut file).await?;
        let DetectedMediaType { mime_type, kind, extension } = found;
        let key = bucket.object_key(id, &extension);
        let (filename, size) = (file.filename.take(), file.size);
        let fate = TransferStatus::default();
        let mut request = Request::new(MediaFileBody::new(file, beginning, &fate));
        *request.method_mut() = Method::PUT;
        *request.uri_mut() = address(&bucket.presign_put(&key, &mime_type, now))?;
        let content_type =
            HeaderValue::from_str(&mime_type).map_err(|_| MediaUploadError::Truncated)?;
        request.headers_mut().insert(header::CONTENT_TYPE, content_type);
        let report = self.http.call(request, UPLOAD_TIMEOUT).await;
        if fate.is_cut_off() {
            return Err(MediaUploadError::Truncated);
        }
        stored(&report)?;
        let bucket = bucket.name().to_owned();
        let upload =
            StoredMedia { id, bucket, key, kind, mime_type, size, filename, created_at: now };
        self.store.store_media(upload.clone()).await?;
        Ok(upload)
    }

    /// Hands a file to the Cloud API, which calls it by an id of its own.
    async fn hand_over(
        &self,
        (account, http): (&ChannelAccount, &HttpSender<MediaFileBody>),
        mut file: NewMediaFile,
        dice: u128,
    ) -> Result<(DetectedMediaType, String), MediaUploadError> {
        let _place = self.places.try_acquire().map_err(|_| MediaUploadError::Busy)?;
        let (found, beginning) = look(&mut file).await?;
        check_media_limits(cloud_upload::CHANNEL_NAME, found.kind, &found.mime_type, file.size)?;
        let filename = file.filename.take();
        let filename = filename.unwrap_or_else(|| format!("file.{}", found.extension));
        let form = cloud_upload::compose_upload(account, &found.mime_type, &filename, dice);
        let fate = TransferStatus::default();
        let body = MediaFileBody::within(file, beginning, (form.before, form.after), &fate);
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = address(&form.url)?;
        *request.headers_mut() = form.headers;
        let report = http.call(request, UPLOAD_TIMEOUT).await;
        if fate.is_cut_off() {
            return Err(MediaUploadError::Truncated);
        }
        let refused = |why: String| {
            MediaUploadError::Refused(format!("the Cloud API did not take the file: {why}"))
        };
        match answered(&report) {
            Ok(status) => {
                let id = cloud_upload::parse_upload_response(status, &report.response_body)
                    .map_err(refused)?;
                Ok((found, id))
            }
            Err(why) => Err(refused(why)),
        }
    }

    /// A link to a file that holds from now on, as long as the settings say.
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

    /// Makes a message ready for the service of that name: a file that was uploaded here becomes a
    /// fresh link to it, if the service takes such a file. To be called at every attempt, and before
    /// a message is stored: it notes that the file is used, and is not to be forgotten.
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
        // The bytes say it better than whoever wrote the message.
        media.mime_type = Some(upload.mime_type);
        Ok(())
    }
}

impl Engine {
    /// Hands a file to the Cloud API as a destination's account. Says what it is, and what it is called
    /// there.
    pub async fn upload_to(
        &self,
        destination: DestinationId,
        file: NewMediaFile,
    ) -> Result<(DetectedMediaType, String), MediaUploadError> {
        check_size(file.size, HANDED_BYTES_MAX)?;
        let lane = self.registry.load().lanes.get(&destination).cloned();
        let outlet = lane.ok_or(MediaUploadError::UnsupportedDestination)?.outlet();
        let Transport::Channel(sender) = &outlet.destination.transport else {
            return Err(MediaUploadError::UnsupportedDestination);
        };
        if sender.channel.name() != cloud_upload::CHANNEL_NAME {
            return Err(MediaUploadError::UnsupportedDestination);
        }
        let way = (&sender.account, &outlet.for_files());
        self.shared.media.hand_over(way, file, self.shared.chance.bits()).await
    }
}

fn check_size(size: u64, max: u64) -> Result<(), MediaUploadError> {
    match size {
        0 => Err(MediaLimitError::Empty.into()),
        _ if size > max => Err(MediaUploadError::TooLarge(max)),
        _ => Ok(()),
    }
}

async fn look(
    file: &mut NewMediaFile,
) -> Result<(DetectedMediaType, std::collections::VecDeque<bytes::Bytes>), MediaUploadError> {
    let looked = timeout(HEAD_TIMEOUT, file.look()).await;
    looked
        .map_err(|_| MediaUploadError::TimedOut)?
        .map_err(|TruncatedFileError| MediaUploadError::Truncated)
}

fn address(url: &Url) -> Result<Uri, MediaUploadError> {
    let unusable =
        |_| MediaUploadError::Refused("its address cannot be called; see the settings".to_owned());
    url.as_str().parse().map_err(unusable)
}

/// The status of the answer, or why there is none.
fn answered(report: &SendReport) -> Result<u16, String> {
    match report.outcome {
        AttemptOutcome::Answered { status, .. } => Ok(status),
        AttemptOutcome::Failed(_) | AttemptOutcome::Interpreted(_) => {
            Err(report.detail.clone().unwrap_or_default())
        }
    }
}

/// Whether the storage has the file, or what is to be looked at.
fn stored(report: &SendReport) -> Result<(), MediaUploadError> {
    let refused = |why: String| {
        Err(MediaUploadError::Refused(format!("the storage did not take the file: {why}")))
    };
    let status = match answered(report) {
        Ok(200..300) => return Ok(()),
        Ok(status) => status,
        Err(why) => return refused(why),
    };
    let code = code(&report.response_body).unwrap_or_else(|| "no reason given".to_owned());
    let look_at = match (status, code.as_str()) {
        (_, "NoSuchBucket") => "; see media.bucket",
        (_, "RequestTimeTooSkewed") => "; see the clock of this machine",
        (401 | 403, _) => "; see media.access_key, media.secret_key and media.region",
        (300..=399, _) => "; see media.endpoint and media.region",
        (_, _) => "",
    };
    refused(format!("it answered {status} ({code}){look_at}"))
}

/// The code in an answer of S3: `<Error><Code>…</Code>`.
fn code(body: &[u8]) -> Option<String> {
    let body = std::str::from_utf8(body).ok()?;
    let (_, rest) = body.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_word = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_word && !code.is_empty()).then(|| code.to_owned())
}
