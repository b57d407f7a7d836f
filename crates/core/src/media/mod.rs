//! Files that are sent with messages: what they are, where they lie, and who takes them.
//!
//! - [`mod@detect`]: what a file is, by its first bytes. They are believed before whoever sent it.
//! - [`limits`]: which files each service takes as what, and how large.
//! - [`bucket`]: where files lie (S3, R2, `MinIO`), and links to them that hold for a while.
//!
//! A file is put into the bucket once, and a message names it by its id. The link to it is made anew
//! for every attempt: one that was made with the message would have run out before a late retry.

pub mod bucket;
pub mod detect;
pub mod limits;

use std::time::Duration;

use async_trait::async_trait;

pub use self::{
    bucket::{Bucket, BucketSpec, BucketSpecError},
    detect::{DetectedMediaType, HEAD_BYTES, detect_media_type},
    limits::{MediaLimitError, check_media_limits},
};
use crate::{channel::message::MediaKind, ids::MediaId, store::StoreError, time::Timestamp};

/// The longest name of a file, in bytes.
pub const FILENAME_BYTES_MAX: usize = 255;

/// What nobody used for so long is forgotten. Long enough for what is sent once in a quarter.
pub const UNUSED_RETENTION: Duration = Duration::from_secs(180 * 86_400);
/// A use is written down if the last one that was is older than this, so that a file that goes to
/// thousands costs a row a day and not thousands.
pub const USE_RECORD_INTERVAL: Duration = Duration::from_secs(86_400);

/// What nobody used since then may be forgotten at `now`.
///
/// `oldest_event` is the time of the oldest event that is kept. One that used a file came at most
/// [`USE_RECORD_INTERVAL`] after the last use that was written down, and may be sent again as long as
/// it is there.
pub fn unused_cutoff(now: Timestamp, oldest_event: Option<Timestamp>) -> Timestamp {
    let long_ago = now - UNUSED_RETENTION;
    oldest_event.map_or(long_ago, |oldest| long_ago.min(oldest - USE_RECORD_INTERVAL))
}

/// A file that lies in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMedia {
    /// What messages call it.
    pub id: MediaId,
    /// The bucket in which it lies.
    pub bucket: String,
    /// What it is called there.
    pub key: String,
    /// How it is shown unless a message says otherwise.
    pub kind: MediaKind,
    /// What it is, by its bytes.
    pub mime_type: String,
    /// How many bytes it has.
    pub size: u64,
    /// What whoever sent it calls it.
    pub filename: Option<String>,
    /// When it came.
    pub created_at: Timestamp,
}

/// What is known of files that lie in the bucket.
#[async_trait]
pub trait MediaStore: Send + Sync {
    /// Keeps what is known of a file. Durable after `Ok`. The same id again changes nothing.
    async fn store_media(&self, upload: StoredMedia) -> Result<(), StoreError>;

    /// What is known of a file.
    async fn find_media(&self, id: MediaId) -> Result<Option<StoredMedia>, StoreError>;

    /// The same for whoever is about to send it: it counts as used at `now`. `AdminStore::prune`
    /// forgets what is [`unused_cutoff`], and nothing that was used later. Durable after `Ok`.
    async fn use_media(
        &self,
        id: MediaId,
        now: Timestamp,
    ) -> Result<Option<StoredMedia>, StoreError>;
}

/// The name of a file without what could not stand in a header or would be taken for a folder;
/// `None` if nothing is left of it.
pub fn sanitize_filename(text: &str) -> Option<String> {
    let last = text.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain: String = last.chars().filter(|sign| !sign.is_control()).collect();
    let mut plain = plain.trim().to_owned();
    while plain.len() > FILENAME_BYTES_MAX {
        plain.pop();
    }
    let is_name = !plain.is_empty() && plain != "." && plain != "..";
    is_name.then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_unused_when_its_time_is_over_and_no_event_can_name_it() {
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
    fn a_filename_is_one_plain_name() {
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
