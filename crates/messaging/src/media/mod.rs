//! Media files of messages.
//!
//! - [`mod@detect`]: the type of a file, from its first bytes, which take precedence over the declared type.
//! - [`limits`]: the types and sizes that each channel accepts.
//! - [`bucket`]: storage (S3, R2, `MinIO`) and temporary links.
//!
//! A file is uploaded to the bucket once, and messages refer to it by id. Every attempt gets a new link,
//! because a link created with the message would have expired before a late retry.

pub mod bucket;
pub mod detect;
pub mod limits;

use std::time::Duration;

use surehook_types::{ids::MediaId, time::Timestamp};

pub use self::{
    bucket::{Bucket, BucketSpec, BucketSpecError},
    detect::{DetectedMediaType, HEAD_BYTES, detect_media_type},
    limits::{MediaLimitError, check_media_limits},
};
use crate::message::MediaKind;

/// Longest file name, in bytes.
pub const FILENAME_BYTES_MAX: usize = 255;

/// Unused files are deleted after this time. Long enough for files that are sent once a quarter.
pub const UNUSED_RETENTION: Duration = Duration::from_secs(180 * 86_400);
/// A use is recorded at most this often, so that a file sent to thousands costs one write per day.
pub const USE_RECORD_INTERVAL: Duration = Duration::from_secs(86_400);

/// Files whose last recorded use is before this time may be deleted at `now`.
///
/// `oldest_event` is the time of the oldest stored event. An event that uses a file may have arrived up to
/// [`USE_RECORD_INTERVAL`] after the last recorded use, and can be replayed as long as it is stored.
pub fn unused_cutoff(now: Timestamp, oldest_event: Option<Timestamp>) -> Timestamp {
    let expired = now - UNUSED_RETENTION;
    oldest_event.map_or(expired, |oldest| expired.min(oldest - USE_RECORD_INTERVAL))
}

/// A media file in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMedia {
    /// Id that messages refer to.
    pub id: MediaId,
    pub bucket: String,
    /// Object key in the bucket.
    pub key: String,
    /// How it is shown by default.
    pub kind: MediaKind,
    /// Detected from the content.
    pub mime_type: String,
    /// Size in bytes.
    pub size: u64,
    /// Name given by the uploader.
    pub filename: Option<String>,
    pub created_at: Timestamp,
}

/// Removes folders and control characters from a file name; `None` if nothing is left.
pub fn sanitize_filename(text: &str) -> Option<String> {
    let last = text.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = last.chars().filter(|c| !c.is_control()).collect();
    let mut name = name.trim().to_owned();
    while name.len() > FILENAME_BYTES_MAX {
        name.pop();
    }
    let is_name = !name.is_empty() && name != "." && name != "..";
    is_name.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_cutoff_is_before_every_event_that_may_use_the_file() {
        const DAY: u64 = 86_400;
        let now = Timestamp::from_millis(1_800_000_000_000);
        let ago = |days: u64| now - Duration::from_secs(days * DAY);
        for (oldest_event, expected) in [
            (None, ago(180)),
            (Some(ago(30)), ago(180)),
            (Some(ago(179)), ago(180)),
            (Some(ago(180)), ago(181)),
            (Some(ago(400)), ago(401)),
        ] {
            assert_eq!(unused_cutoff(now, oldest_event), expected, "case: {oldest_event:?}");
        }
    }

    #[test]
    fn filename_is_sanitized_to_one_plain_name() {
        let long = "é".repeat(200);
        let cases = [
            ("a.pdf", Some("a.pdf")),
            (" Conta de maio.pdf ", Some("Conta de maio.pdf")),
            ("/etc/passwd", Some("passwd")),
            ("C:\\files\\a.pdf", Some("a.pdf")),
            ("a\r\nb\"c.pdf", Some("ab\"c.pdf")),
            ("", None),
            ("a/", None),
            ("..", None),
            (&long, Some(&long[..254])),
        ];
        for (text, expected) in cases {
            assert_eq!(sanitize_filename(text).as_deref(), expected, "case: {text:?}");
        }
    }
}
