//! Detects the type of a file from its first bytes.
//!
//! The bytes take precedence over the declared type: a service checks them too, and rejects a PDF declared
//! as an image only after it was sent. Where the bytes match no signature, a declared type without a
//! signature (text, CSV) is accepted, and one with a signature (an image) is not.

use crate::message::MediaKind;

/// How many of the first bytes are examined.
pub const HEAD_BYTES: usize = 8192;

/// Type of unrecognized bytes.
const UNKNOWN: &str = "application/octet-stream";
/// Longest declared type that is accepted.
const TYPE_BYTES_MAX: usize = 127;
/// Longest file extension.
const EXTENSION_BYTES_MAX: usize = 8;

/// The detected type of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectedMediaType {
    pub mime_type: String,
    /// How it is shown by default.
    pub kind: MediaKind,
    /// File extension without the dot.
    pub extension: String,
}

/// Detects the type of a file from its first bytes, its declared type and its name.
pub fn detect_media_type(
    head: &[u8],
    declared: Option<&str>,
    filename: Option<&str>,
) -> DetectedMediaType {
    let declared = declared.and_then(parse_essence);
    let (mime_type, extension) = match type_from_bytes(head) {
        Some((mime_type, extension)) => match declared {
            // Many office formats are ZIP archives.
            Some(declared) if mime_type == "application/zip" && is_zip_based(&declared) => {
                (declared, None)
            }
            Some(_) | None => (mime_type.to_owned(), Some(extension)),
        },
        None => (type_from_declaration(head, declared), None),
    };
    let extension = match extension {
        Some(extension) => extension.to_owned(),
        None => extension_of(filename).unwrap_or_else(|| "bin".to_owned()),
    };
    DetectedMediaType { kind: media_kind_of(&mime_type), mime_type, extension }
}

/// How a file of this type is shown.
pub fn media_kind_of(mime_type: &str) -> MediaKind {
    match mime_type.split_once('/') {
        // The Cloud API accepts WebP only as a sticker.
        Some(("image", "webp")) => MediaKind::Sticker,
        Some(("image", _)) => MediaKind::Image,
        Some(("audio", _)) => MediaKind::Audio,
        Some(("video", _)) => MediaKind::Video,
        Some(_) | None => MediaKind::Document,
    }
}

/// The type and extension for a known signature.
fn type_from_bytes(head: &[u8]) -> Option<(&'static str, &'static str)> {
    if head.get(4..10) == Some(b"ftyp3g") {
        return Some(("video/3gpp", "3gp"));
    }
    let signature = infer::get(head)?;
    Some(match signature.mime_type() {
        // The names that messaging services use.
        "audio/m4a" => ("audio/mp4", "m4a"),
        "audio/opus" => ("audio/ogg; codecs=opus", "ogg"),
        "video/x-m4v" => ("video/mp4", "mp4"),
        mime_type => (mime_type, signature.extension()),
    })
}

/// The type of bytes without a known signature.
fn type_from_declaration(head: &[u8], declared: Option<String>) -> String {
    match declared {
        // Images, audio and video have signatures, and this one is missing.
        Some(declared) if media_kind_of(&declared) != MediaKind::Document => UNKNOWN.to_owned(),
        Some(declared) if declared != UNKNOWN => declared,
        Some(_) | None if is_text(head) => "text/plain".to_owned(),
        Some(_) | None => UNKNOWN.to_owned(),
    }
}

/// A MIME type without its parameters, if it is valid.
fn parse_essence(declared: &str) -> Option<String> {
    let essence = declared.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let (main, sub) = essence.split_once('/')?;
    let is_token = |text: &str| {
        let is_token_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !text.is_empty() && text.bytes().all(is_token_byte)
    };
    let is_type = is_token(main) && is_token(sub) && essence.len() <= TYPE_BYTES_MAX;
    is_type.then_some(essence)
}

/// Whether files of this type are ZIP archives.
fn is_zip_based(mime_type: &str) -> bool {
    let is_document = media_kind_of(mime_type) == MediaKind::Document;
    let parts = ["openxmlformats", "opendocument", "+zip", "java-archive", "android.package"];
    is_document && parts.iter().any(|part| mime_type.contains(part))
}

fn is_text(head: &[u8]) -> bool {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        // The head may end inside a character.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    let is_printable = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    !text.is_empty() && text.chars().all(is_printable)
}

fn extension_of(filename: Option<&str>) -> Option<String> {
    let (_, extension) = filename?.rsplit_once('.')?;
    let is_alphanumeric = extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let fits = (1..=EXTENSION_BYTES_MAX).contains(&extension.len());
    (is_alphanumeric && fits).then(|| extension.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const JPEG: &[u8] = b"\xff\xd8\xff\xe0\0\x10JFIF\0";
    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    const PDF: &[u8] = b"%PDF-1.7\n";
    const ZIP: &[u8] = b"PK\x03\x04\x14\0\0\0\0\0";

    #[test]
    fn known_signature_determines_type() {
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
    fn declared_type_counts_only_without_known_signature() {
        let docx = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
        type Declared = (Option<&'static str>, Option<&'static str>);
        let cases: [(&[u8], Declared, (&str, &str)); 14] = [
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
        for (head, (declared, filename), expected) in cases {
            let found = detect_media_type(head, declared, filename);
            let found = (found.mime_type.as_str(), found.extension.as_str());
            assert_eq!(found, expected, "case: {head:?} {declared:?}");
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic() {
        for length in 0..64 {
            for byte in [0, b'P', b'f', 0xff, b'R', b'O'] {
                let _any = detect_media_type(&vec![byte; length], None, None);
            }
        }
        for file in [JPEG, PNG, PDF, ZIP, b"\0\0\0\x18ftypmp42", b"RIFF\x24\0\0\0WEBP"] {
            for end in 0..file.len() {
                let _any = detect_media_type(&file[..end], None, None);
            }
        }
    }
}
