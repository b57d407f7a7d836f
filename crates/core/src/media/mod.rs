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

use async_trait::async_trait;

pub use self::{
    bucket::{Bucket, BucketSpec, InvalidBucket},
    detect::{Detected, HEAD_BYTES, detect},
    limits::{Unfit, fits},
};
use crate::{ids::MediaId, service::message::MediaKind, store::StoreError, time::Timestamp};

/// The longest name of a file, in bytes.
pub const FILENAME_BYTES_MAX: usize = 255;

/// A file that lies in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
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
    async fn keep_upload(&self, upload: Upload) -> Result<(), StoreError>;

    /// What is known of a file.
    async fn upload(&self, id: MediaId) -> Result<Option<Upload>, StoreError>;
}

/// The name of a file without what could not stand in a header or would be taken for a folder;
/// `None` if nothing is left of it.
pub fn filename(text: &str) -> Option<String> {
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
            assert_eq!(filename(text).as_deref(), expected, "case: {text:?}");
        }
    }
}
