//! Styles and scripts, embedded in the binary. Browsers revalidate each by its `ETag`, so that files of
//! two versions are never mixed.

use std::{io::Write as _, sync::OnceLock};

use axum::{
    extract::Path,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sha2::{Digest as _, Sha256};

struct Asset {
    name: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
    /// `ETag` and compressed content, computed on first use.
    encoded: OnceLock<(HeaderValue, Bytes)>,
}

impl Asset {
    const fn new(name: &'static str, content_type: &'static str, bytes: &'static [u8]) -> Self {
        Self { name, content_type, bytes, encoded: OnceLock::new() }
    }

    fn encoded(&self) -> &(HeaderValue, Bytes) {
        self.encoded.get_or_init(|| {
            let digest = HEXLOWER.encode(&Sha256::digest(self.bytes)[..12]);
            let tag = HeaderValue::from_str(&format!("\"{digest}\""));
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            let compressed = encoder.write_all(self.bytes).and_then(|()| encoder.finish());
            // Neither can fail: hex digits are a valid header value, and writing to memory succeeds.
            (
                tag.unwrap_or(HeaderValue::from_static("\"0\"")),
                compressed.unwrap_or_default().into(),
            )
        })
    }
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! assets {
    ($($name:literal: $content_type:expr;)*) => {
        static ASSETS: [Asset; [$($name),*].len()] =
            [$(Asset::new($name, $content_type, include_bytes!(concat!("../ui/", $name))),)*];
    };
}

assets! {
    "app.css": STYLE;
    "app.mjs": SCRIPT;
    "keys.mjs": SCRIPT;
    "live-tail.mjs": SCRIPT;
    "stream.mjs": SCRIPT;
    "time-series.mjs": SCRIPT;
    "events.mjs": SCRIPT;
    "favicon.svg": "image/svg+xml";
    "json-text.mjs": SCRIPT;
    "json-tree.mjs": SCRIPT;
    "vendor/htmx.min.js": SCRIPT;
    "vendor/uplot.min.js": SCRIPT;
    "vendor/uplot.min.css": STYLE;
}

/// `GET /assets/{name}`.
pub(crate) async fn serve(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let (tag, compressed) = asset.encoded();
    let request_header =
        |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let common = [
        (header::ETAG, tag.clone()),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::VARY, HeaderValue::from_static("accept-encoding")),
    ];
    if request_header(header::IF_NONE_MATCH)
        .is_some_and(|known| tag.to_str().is_ok_and(|tag| known.contains(tag)))
    {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    let content_type = [(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type))];
    if request_header(header::ACCEPT_ENCODING).is_some_and(|accepted| accepted.contains("gzip")) {
        let encoding = [(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))];
        return (common, content_type, encoding, compressed.clone()).into_response();
    }
    (common, content_type, asset.bytes).into_response()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::Path};

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct VendorManifest {
        file: Vec<VendoredFile>,
    }

    #[derive(Deserialize)]
    struct VendoredFile {
        name: String,
        sha256: String,
    }

    #[test]
    fn vendored_files_match_their_published_hashes() {
        let listed: VendorManifest =
            toml::from_str(include_str!("../ui/vendor/VENDOR.toml")).unwrap();
        let listed: BTreeMap<_, _> = listed
            .file
            .into_iter()
            .map(|file| (format!("vendor/{}", file.name), file.sha256))
            .collect();
        let served = ASSETS.iter().filter(|asset| asset.name.starts_with("vendor/"));
        let served: BTreeMap<_, _> = served
            .map(|asset| (asset.name.to_owned(), HEXLOWER.encode(&Sha256::digest(asset.bytes))))
            .collect();
        assert_eq!(served, listed);
    }

    #[test]
    fn every_ui_file_is_served() {
        let ui = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
        let entries = std::fs::read_dir(&ui).unwrap().map(|entry| entry.unwrap());
        for entry in entries.filter(|entry| entry.file_type().unwrap().is_file()) {
            let name = entry.file_name().into_string().unwrap();
            assert!(
                ASSETS.iter().any(|asset| asset.name == name),
                "{name} is missing from the assets table"
            );
        }
    }
}
