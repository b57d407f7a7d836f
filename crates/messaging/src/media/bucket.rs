//! The bucket that stores media files: S3, R2, `MinIO` or another S3-compatible storage.
//!
//! Uploads and downloads use presigned URLs (AWS Signature Version 4 in the query), computed by
//! [`rusty_s3`]. The current time is a parameter.

use std::time::Duration;

use rusty_s3::{Credentials, S3Action, UrlStyle};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::{
    ids::MediaId,
    secret::{Env, Secret, SecretError, SecretRef},
    time::{HumanDuration, Timestamp},
};
use url::Url;

use crate::account::is_plain_http;

/// Default lifetime of a link.
const LINK_LIFETIME: Duration = Duration::from_secs(15 * 60);
/// Longest lifetime that S3 allows.
const LINK_LIFETIME_MAX: Duration = Duration::from_secs(7 * 86_400);
/// How long after presigning an upload may start.
const PUT_LIFETIME: Duration = Duration::from_secs(15 * 60);
/// Default largest file: the most that any channel accepts.
const DEFAULT_BYTES_MAX: u64 = 100 * 1024 * 1024;
/// Largest single upload in S3.
const BYTES_CEILING: u64 = 5 * 1024 * 1024 * 1024;
const REGION: &str = "us-east-1";

/// Bucket settings. All defaults mean that there is no bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BucketSpec {
    /// URL of the storage, such as `https://<account>.r2.cloudflarestorage.com`.
    pub endpoint: Option<String>,
    /// URL for downloads by messaging services, if different from `endpoint`.
    pub public_endpoint: Option<String>,
    /// Region for signatures. R2 accepts the default.
    pub region: String,
    /// Bucket name.
    pub bucket: Option<String>,
    /// Access key id.
    pub access_key: Option<SecretRef>,
    /// Secret access key.
    pub secret_key: Option<SecretRef>,
    /// Prefix of all object keys, such as `surehook/`.
    pub prefix: String,
    /// Puts the bucket name in the path instead of the host name.
    pub path_style: bool,
    /// Lifetime of a link to a file.
    pub link_lifetime: HumanDuration,
    /// Largest file in bytes.
    pub max_bytes: u64,
}

impl Default for BucketSpec {
    fn default() -> Self {
        Self {
            endpoint: None,
            public_endpoint: None,
            region: REGION.to_owned(),
            bucket: None,
            access_key: None,
            secret_key: None,
            prefix: String::new(),
            path_style: true,
            link_lifetime: HumanDuration(LINK_LIFETIME),
            max_bytes: DEFAULT_BYTES_MAX,
        }
    }
}

/// Why bucket settings are invalid. No text contains any part of a key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketSpecError {
    #[error(
        "media.{0} is missing; set endpoint, bucket, access_key and secret_key, or remove [media]"
    )]
    Missing(&'static str),
    #[error("media.{0} is not a valid URL; use http://… or https://… without user, `?` or `#`")]
    Address(&'static str),
    #[error(
        "media.bucket is not a valid bucket name; use 3 to 63 letters, digits, dots and hyphens"
    )]
    Bucket,
    #[error(
        "media.path_style = false needs an endpoint with a host name, not an IP address; remove it"
    )]
    Host,
    #[error("media.region may contain only letters, digits and hyphens, such as eu-west-1")]
    Region,
    #[error(
        "media.prefix may contain only letters, digits, `-`, `_`, `.` and `/`, must not start with `/` and must not contain `..`"
    )]
    Prefix,
    #[error("media.link_lifetime must be between 1s and 7d")]
    Lifetime,
    #[error("media.max_bytes must be between 1 and {BYTES_CEILING}")]
    Bytes,
    #[error("media.{0}: {1}")]
    Secret(&'static str, SecretError),
    #[error("media.{0} contains invalid characters; copy the key from the storage provider")]
    Key(&'static str),
}

/// A checked bucket.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// For our uploads.
    upload: rusty_s3::Bucket,
    /// For downloads by messaging services.
    download: rusty_s3::Bucket,
    access_key: Secret,
    secret_key: Secret,
    prefix: String,
    link_lifetime: Duration,
    max_bytes: u64,
}

impl BucketSpec {
    /// Checks the settings; `env` looks up an environment variable. `None` if there is no bucket.
    pub fn build(&self, env: Env<'_>) -> Result<Option<Bucket>, BucketSpecError> {
        if *self == Self::default() {
            return Ok(None);
        }
        let endpoint = self.endpoint.as_deref().ok_or(BucketSpecError::Missing("endpoint"))?;
        let name = self.bucket.as_deref().ok_or(BucketSpecError::Missing("bucket"))?;
        let upload = self.bucket_at("endpoint", endpoint, name)?;
        let download = match self.public_endpoint.as_deref() {
            Some(public) => self.bucket_at("public_endpoint", public, name)?,
            None => upload.clone(),
        };
        let prefix = check_prefix(&self.prefix)?;
        if !(Duration::from_secs(1)..=LINK_LIFETIME_MAX).contains(&self.link_lifetime.0) {
            return Err(BucketSpecError::Lifetime);
        }
        if !(1..=BYTES_CEILING).contains(&self.max_bytes) {
            return Err(BucketSpecError::Bytes);
        }
        Ok(Some(Bucket {
            upload,
            download,
            access_key: resolve_key("access_key", self.access_key.as_ref(), env)?,
            secret_key: resolve_key("secret_key", self.secret_key.as_ref(), env)?,
            prefix,
            link_lifetime: self.link_lifetime.0,
            max_bytes: self.max_bytes,
        }))
    }

    fn bucket_at(
        &self,
        field: &'static str,
        endpoint: &str,
        name: &str,
    ) -> Result<rusty_s3::Bucket, BucketSpecError> {
        let url = Url::parse(endpoint.trim()).map_err(|_| BucketSpecError::Address(field))?;
        if !is_plain_http(&url) {
            return Err(BucketSpecError::Address(field));
        }
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let is_name = (3..=63).contains(&name.len()) && name.bytes().all(is_allowed);
        if !is_name || name.starts_with('.') || name.contains("..") {
            return Err(BucketSpecError::Bucket);
        }
        let is_region = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if self.region.is_empty() || !self.region.bytes().all(is_region) {
            return Err(BucketSpecError::Region);
        }
        let style = if self.path_style { UrlStyle::Path } else { UrlStyle::VirtualHost };
        rusty_s3::Bucket::new(url, style, name.to_owned(), self.region.clone())
            .map_err(|_| BucketSpecError::Host)
    }
}

fn check_prefix(text: &str) -> Result<String, BucketSpecError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let is_dot_segment = |part: &str| matches!(part, "" | "." | "..");
    let folders = text.strip_suffix('/').unwrap_or(text);
    match text {
        "" => Ok(String::new()),
        _ if !text.bytes().all(is_allowed) || folders.split('/').any(is_dot_segment) => {
            Err(BucketSpecError::Prefix)
        }
        _ => Ok(text.to_owned()),
    }
}

fn resolve_key(
    field: &'static str,
    key_ref: Option<&SecretRef>,
    env: Env<'_>,
) -> Result<Secret, BucketSpecError> {
    let key_ref = key_ref.ok_or(BucketSpecError::Missing(field))?;
    let key = key_ref.resolve(env).map_err(|error| BucketSpecError::Secret(field, error))?;
    if !key.expose().iter().all(u8::is_ascii_graphic) {
        return Err(BucketSpecError::Key(field));
    }
    Ok(key)
}

impl Bucket {
    pub fn name(&self) -> &str {
        self.upload.name()
    }

    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    pub fn link_lifetime(&self) -> Duration {
        self.link_lifetime
    }

    /// The object key of a file.
    pub fn object_key(&self, id: MediaId, extension: &str) -> String {
        format!("{}{id}.{extension}", self.prefix)
    }

    /// URL for a PUT of a file. The request must have exactly this `Content-Type`.
    pub fn presign_put(&self, key: &str, mime_type: &str, now: Timestamp) -> Url {
        let credentials = self.credentials();
        let mut action = self.upload.put_object(Some(&credentials), key);
        action.headers_mut().insert("content-type", mime_type);
        action.sign_with_time(PUT_LIFETIME, &to_jiff(now))
    }

    /// URL for a download by anyone until the link expires.
    pub fn presign_get(&self, key: &str, now: Timestamp) -> Url {
        let credentials = self.credentials();
        let action = self.download.get_object(Some(&credentials), key);
        action.sign_with_time(self.link_lifetime, &to_jiff(now))
    }

    fn credentials(&self) -> Credentials {
        let text = |key: &Secret| String::from_utf8_lossy(key.expose()).into_owned();
        Credentials::new(text(&self.access_key), text(&self.secret_key))
    }
}

fn to_jiff(now: Timestamp) -> jiff::Timestamp {
    // Fails only after the year 9999.
    jiff::Timestamp::from_millisecond(now.as_millis()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Amazon's own documentation, "Authenticating Requests: Using Query Parameters".
    const SECRET_KEY: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

    fn spec() -> BucketSpec {
        BucketSpec {
            endpoint: Some("https://s3.amazonaws.com".to_owned()),
            bucket: Some("examplebucket".to_owned()),
            access_key: Some("AKIAIOSFODNN7EXAMPLE".parse().unwrap()),
            secret_key: Some("env:S3_KEY".parse().unwrap()),
            link_lifetime: HumanDuration::from_secs(86_400),
            ..BucketSpec::default()
        }
    }

    fn env(name: &str) -> Option<String> {
        (name == "S3_KEY").then(|| SECRET_KEY.to_owned())
    }

    fn build(spec: &BucketSpec) -> Bucket {
        spec.build(&env).unwrap().unwrap()
    }

    fn signing_time() -> Timestamp {
        "2013-05-24T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn link_matches_published_signature_example() {
        let bucket = build(&BucketSpec { path_style: false, ..spec() });

        let link = bucket.presign_get("test.txt", signing_time());

        assert_eq!(
            link.as_str(),
            "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
             &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
             &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
             &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
        );
    }

    #[test]
    fn signature_covers_time_and_content_type() {
        let bucket = build(&spec());
        let later = signing_time() + Duration::from_secs(1);
        assert_ne!(bucket.presign_get("a", signing_time()), bucket.presign_get("a", later));
        assert_ne!(
            bucket.presign_put("a", "image/png", signing_time()),
            bucket.presign_put("a", "image/gif", signing_time())
        );
        let put = bucket.presign_put("a", "image/png", signing_time());
        assert!(put.as_str().contains("SignedHeaders=content-type%3Bhost"), "{put}");
    }

    #[test]
    fn public_endpoint_is_used_for_downloads_only() {
        let bucket = build(&BucketSpec {
            endpoint: Some("http://minio:9000".to_owned()),
            public_endpoint: Some("https://files.example.com/s3".to_owned()),
            prefix: "media/".to_owned(),
            ..spec()
        });
        let id = "med_01h455vb4pex5vsknk084sn02q";
        let key = bucket.object_key(id.parse().unwrap(), "png");
        assert_eq!(key, format!("media/{id}.png"));
        let put = bucket.presign_put(&key, "image/png", signing_time());
        assert!(put.as_str().starts_with("http://minio:9000/examplebucket/media/med_"), "{put}");
        let link = bucket.presign_get(&key, signing_time());
        let expected = "https://files.example.com/s3/examplebucket/media/med_";
        assert!(link.as_str().starts_with(expected), "{link}");
    }

    #[test]
    fn invalid_bucket_settings_name_the_wrong_field() {
        type Change = fn(&mut BucketSpec);
        let cases: [(&str, Change); 21] = [
            ("media.endpoint is missing", |spec| spec.endpoint = None),
            ("media.bucket is missing", |spec| spec.bucket = None),
            ("media.access_key is missing", |spec| spec.access_key = None),
            ("media.secret_key is missing", |spec| spec.secret_key = None),
            ("media.endpoint is not", |spec| spec.endpoint = Some("s3.test".to_owned())),
            ("media.endpoint is not", |spec| spec.endpoint = Some("ftp://s3.test".to_owned())),
            ("media.endpoint is not", |spec| spec.endpoint = Some("http://a:b@s3.test".to_owned())),
            ("media.endpoint is not", |spec| spec.endpoint = Some("http://s3.test?a".to_owned())),
            ("media.public_endpoint", |spec| spec.public_endpoint = Some("x".to_owned())),
            ("media.bucket is not", |spec| spec.bucket = Some("a/b/c".to_owned())),
            ("media.bucket is not", |spec| spec.bucket = Some("..b".to_owned())),
            ("media.region", |spec| spec.region = "a/b".to_owned()),
            ("media.region", |spec| spec.region = String::new()),
            ("media.prefix", |spec| spec.prefix = "/a".to_owned()),
            ("media.prefix", |spec| spec.prefix = "a/../b".to_owned()),
            ("media.prefix", |spec| spec.prefix = "a b".to_owned()),
            ("media.link_lifetime", |spec| spec.link_lifetime = HumanDuration::from_secs(0)),
            ("media.link_lifetime", |spec| spec.link_lifetime = HumanDuration::from_secs(604_801)),
            ("media.max_bytes", |spec| spec.max_bytes = 0),
            ("media.secret_key: environment variable `OTHER`", |spec| {
                spec.secret_key = Some("env:OTHER".parse().unwrap());
            }),
            ("media.path_style", |spec| {
                spec.path_style = false;
                spec.endpoint = Some("http://127.0.0.1:9000".to_owned());
            }),
        ];
        for (part, change) in cases {
            let mut spec = spec();
            change(&mut spec);
            let error = spec.build(&env).unwrap_err().to_string();
            assert!(error.contains(part), "case: {part}: {error}");
        }
        assert!(BucketSpec::default().build(&env).unwrap().is_none());
    }

    #[test]
    fn no_key_is_printed() {
        let printed = format!("{:?}", build(&spec()));
        assert!(!printed.contains("wJalr") && !printed.contains("AKIA"), "{printed}");
    }
}
