//! What a file is, by its first bytes.
//!
//! The bytes are believed before whoever sent them: a service looks at them too, and refuses a PDF
//! that calls itself a picture only after it was sent. Where the bytes say nothing, a type that needs
//! no certain bytes is believed (a text, a table), and one that does is not (a picture without the
//! bytes of one).

use crate::channel::message::MediaKind;

/// How many of the first bytes are looked at.
pub const HEAD_BYTES: usize = 8192;

/// What is said of bytes that say nothing.
const UNKNOWN: &str = "application/octet-stream";
/// The longest type that is believed.
const TYPE_BYTES_MAX: usize = 127;
/// The longest end of a name.
const EXTENSION_BYTES_MAX: usize = 8;

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectedMediaType {
    /// Its type.
    pub mime_type: String,
    /// How it is shown unless somebody says otherwise.
    pub kind: MediaKind,
    /// The end of its name, without a dot.
    pub extension: String,
}

/// Says what a file is that begins with `head`, was said to be `claimed` and is called `filename`.
pub fn detect_media_type(
    head: &[u8],
    claimed: Option<&str>,
    filename: Option<&str>,
) -> DetectedMediaType {
    let claimed = claimed.and_then(essence);
    let (mime_type, extension) = match by_bytes(head) {
        Some((mime_type, extension)) => match claimed {
            // Half of all office formats are archives inside.
            Some(claimed) if mime_type == "application/zip" && is_packed(&claimed) => {
                (claimed, None)
            }
            Some(_) | None => (mime_type.to_owned(), Some(extension)),
        },
        None => (by_claim(head, claimed), None),
    };
    let extension = match extension {
        Some(extension) => extension.to_owned(),
        None => extension_of(filename).unwrap_or_else(|| "bin".to_owned()),
    };
    DetectedMediaType { kind: media_kind_of(&mime_type), mime_type, extension }
}

/// How a file of that type is shown.
pub fn media_kind_of(mime_type: &str) -> MediaKind {
    match mime_type.split_once('/') {
        // The Cloud API takes it as nothing else.
        Some(("image", "webp")) => MediaKind::Sticker,
        Some(("image", _)) => MediaKind::Image,
        Some(("audio", _)) => MediaKind::Audio,
        Some(("video", _)) => MediaKind::Video,
        Some(_) | None => MediaKind::Document,
    }
}

/// The type and the end of the name, where the bytes say it.
fn by_bytes(head: &[u8]) -> Option<(&'static str, &'static str)> {
    if head.get(4..10) == Some(b"ftyp3g") {
        return Some(("video/3gpp", "3gp"));
    }
    let found = infer::get(head)?;
    Some(match found.mime_type() {
        // The names that the services have for them.
        "audio/m4a" => ("audio/mp4", "m4a"),
        "audio/opus" => ("audio/ogg; codecs=opus", "ogg"),
        "video/x-m4v" => ("video/mp4", "mp4"),
        mime_type => (mime_type, found.extension()),
    })
}

/// What is believed where the bytes say nothing.
fn by_claim(head: &[u8], claimed: Option<String>) -> String {
    match claimed {
        // What is shown or played has certain bytes, and these are not here.
        Some(claimed) if media_kind_of(&claimed) != MediaKind::Document => UNKNOWN.to_owned(),
        Some(claimed) if claimed != UNKNOWN => claimed,
        Some(_) | None if is_text(head) => "text/plain".to_owned(),
        Some(_) | None => UNKNOWN.to_owned(),
    }
}

/// A type without its parameters, if it is written like one.
fn essence(claimed: &str) -> Option<String> {
    let essence = claimed.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let (whole, part) = essence.split_once('/')?;
    let is_token = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !text.is_empty() && text.bytes().all(plain)
    };
    let is_type = is_token(whole) && is_token(part) && essence.len() <= TYPE_BYTES_MAX;
    is_type.then_some(essence)
}

/// Whether files of that type are archives inside.
fn is_packed(mime_type: &str) -> bool {
    let is_document = media_kind_of(mime_type) == MediaKind::Document;
    let parts = ["openxmlformats", "opendocument", "+zip", "java-archive", "android.package"];
    is_document && parts.iter().any(|part| mime_type.contains(part))
}

fn is_text(head: &[u8]) -> bool {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        // The end may be in the middle of a sign.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    let is_plain = |sign: char| !sign.is_control() || matches!(sign, '\n' | '\r' | '\t');
    !text.is_empty() && text.chars().all(is_plain)
}

fn extension_of(filename: Option<&str>) -> Option<String> {
    let (_, extension) = filename?.rsplit_once('.')?;
    let is_plain = extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let fits = (1..=EXTENSION_BYTES_MAX).contains(&extension.len());
    (is_plain && fits).then(|| extension.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const JPEG: &[u8] = b"\xff\xd8\xff\xe0\0\x10JFIF\0";
    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    const PDF: &[u8] = b"%PDF-1.7\n";
    const ZIP: &[u8] = b"PK\x03\x04\x14\0\0\0\0\0";

    #[test]
    fn the_first_bytes_say_what_a_file_is() {
        use MediaKind::{Audio, Document, Image, Sticker, Video};
        let opus = [&b"OggS"[..], &[0; 24], b"OpusHead"].concat();
        let vorbis = [&b"OggS"[..], &[0; 24], b"\x01vorbis."].concat();
        let cases: [(&[u8], &str, MediaKind, &str); 16] = [
            (JPEG, "image/jpeg", Image, "jpg"),
            (PNG, "image/png", Image, "png"),
            (b"GIF89a......", "image/gif", Image, "gif"),
            (b"RIFF\x24\0\0\0WEBPVP8 ", "image/webp", Sticker, "webp"),
            (b"\0\0\0\x18ftypmp42\0\0\0\0", "video/mp4", Video, "mp4"),
            (b"\0\0\0\x18ftypisom\0\0\0\0", "video/mp4", Video, "mp4"),
            (b"\0\0\0\x18ftyp3gp4\0\0\0\0", "video/3gpp", Video, "3gp"),
            (b"\0\0\0\x18ftypqt  \0\0\0\0", "video/quicktime", Video, "mov"),
            (b"\0\0\0\x18ftypM4A \0\0\0\0", "audio/mp4", Audio, "m4a"),
            (&opus, "audio/ogg; codecs=opus", Audio, "ogg"),
            (&vorbis, "audio/ogg", Audio, "ogg"),
            (b"ID3\x04\0\0\0\0\0\0", "audio/mpeg", Audio, "mp3"),
            (b"#!AMR\n.............", "audio/amr", Audio, "amr"),
            (b"\xff\xf1\x50\x80......", "audio/aac", Audio, "aac"),
            (PDF, "application/pdf", Document, "pdf"),
            (ZIP, "application/zip", Document, "zip"),
        ];
        for (head, mime_type, kind, extension) in cases {
            let expected = DetectedMediaType {
                mime_type: mime_type.to_owned(),
                kind,
                extension: extension.to_owned(),
            };
            let found = detect_media_type(head, Some("image/jpeg"), Some("a.exe"));
            assert_eq!(found, expected, "case: {mime_type}");
        }
    }

    #[test]
    fn a_claim_counts_only_where_the_bytes_say_nothing() {
        let docx = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
        type Claims = (Option<&'static str>, Option<&'static str>);
        let cases: [(&[u8], Claims, (&str, &str)); 14] = [
            (PDF, (Some("image/png"), Some("a.png")), ("application/pdf", "pdf")),
            (ZIP, (Some(docx), Some("a.DOCX")), (docx, "docx")),
            (ZIP, (Some("application/epub+zip"), None), ("application/epub+zip", "bin")),
            (ZIP, (Some("application/pdf"), None), ("application/zip", "zip")),
            (b"a;b\n1;2\n", (Some("Text/CSV; charset=utf-8"), Some("a.csv")), ("text/csv", "csv")),
            (b"hello", (None, Some("a.txt")), ("text/plain", "txt")),
            (b"hello", (Some(UNKNOWN), None), ("text/plain", "bin")),
            (b"ol\xc3", (None, None), ("text/plain", "bin")),
            (b"hello", (Some("image/jpeg"), Some("a.jpg")), (UNKNOWN, "jpg")),
            (b"\x01\x02\x03", (Some("audio/ogg"), None), (UNKNOWN, "bin")),
            (b"\x01\x02\x03", (Some("application/x-thing"), None), ("application/x-thing", "bin")),
            (b"\x01\x02\x03", (Some("no type"), Some("a.too_long_it_is")), (UNKNOWN, "bin")),
            (b"\x01\x02\x03", (Some("a/b\r\nc: d"), Some("a.")), (UNKNOWN, "bin")),
            (b"", (None, None), (UNKNOWN, "bin")),
        ];
        for (head, (claimed, filename), expected) in cases {
            let found = detect_media_type(head, claimed, filename);
            let found = (found.mime_type.as_str(), found.extension.as_str());
            assert_eq!(found, expected, "case: {head:?} {claimed:?}");
        }
    }

    #[test]
    fn nothing_that_comes_breaks_it() {
        for length in 0..64 {
            for byte in [0, b'P', b'f', 0xff, b'R', b'O'] {
                let _any = detect_media_type(&vec![byte; length], None, None);
            }
        }
        for whole in [JPEG, PNG, PDF, ZIP, b"\0\0\0\x18ftypmp42", b"RIFF\x24\0\0\0WEBP"] {
            for end in 0..whole.len() {
                let _any = detect_media_type(&whole[..end], None, None);
            }
        }
    }
}
