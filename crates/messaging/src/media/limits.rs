//! The media types and sizes that each channel accepts.
//!
//! The limits of the Cloud API are Meta's. For the Evolution servers only the types are documented; their
//! sizes are those of WhatsApp, and generous where uncertain, because a rejected file is never tried.
//! Audio and video codecs are not checked.

use crate::message::MediaKind;

const KB: u64 = 1024;
const MB: u64 = 1024 * KB;

/// The files that a channel accepts as one kind.
#[derive(Clone, Copy, Debug)]
struct Limit {
    kind: MediaKind,
    /// Accepted types; empty accepts all.
    types: &'static [&'static str],
    bytes_max: u64,
}

const fn limit(kind: MediaKind, types: &'static [&'static str], bytes_max: u64) -> Limit {
    Limit { kind, types, bytes_max }
}

const OPUS: &str = "audio/ogg; codecs=opus";
const ANY: &[&str] = &[];
const IMAGES: &[&str] = &["image/jpeg", "image/png"];
const IMAGES_AND_WEBP: &[&str] = &["image/jpeg", "image/png", "image/webp"];

static LIMITS: &[(&str, &[Limit])] = &[
    (
        "whatsapp-cloud",
        &[
            limit(MediaKind::Image, IMAGES, 5 * MB),
            limit(
                MediaKind::Audio,
                &["audio/aac", "audio/amr", "audio/mpeg", "audio/mp4", OPUS],
                16 * MB,
            ),
            limit(MediaKind::Video, &["video/mp4", "video/3gpp"], 16 * MB),
            limit(MediaKind::Document, ANY, 100 * MB),
            // 100 kB for static stickers, which Meta checks itself.
            limit(MediaKind::Sticker, &["image/webp"], 500 * KB),
        ],
    ),
    (
        "evolution-go",
        &[
            limit(MediaKind::Image, IMAGES_AND_WEBP, 16 * MB),
            limit(MediaKind::Video, &["video/mp4"], 100 * MB),
            // The server converts everything to a voice message.
            limit(MediaKind::Audio, ANY, 16 * MB),
            limit(MediaKind::Document, ANY, 100 * MB),
            limit(MediaKind::Sticker, ANY, 16 * MB),
        ],
    ),
    (
        "evolution-api",
        &[
            limit(MediaKind::Image, ANY, 16 * MB),
            limit(MediaKind::Video, ANY, 100 * MB),
            limit(MediaKind::Audio, ANY, 16 * MB),
            limit(MediaKind::Document, ANY, 100 * MB),
            limit(MediaKind::Sticker, ANY, 16 * MB),
        ],
    ),
];

/// Why a channel does not accept a file, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediaLimitError {
    #[error("the file is empty; upload it again")]
    Empty,
    #[error(
        "{channel} accepts {accepted} as `{kind}`, and the content of this file is {mime_type}; send it as `{other_kind}`, or convert it"
    )]
    Type {
        channel: &'static str,
        kind: &'static str,
        accepted: String,
        mime_type: String,
        /// A kind as which it can be sent.
        other_kind: &'static str,
    },
    #[error(
        "{channel} accepts at most {bytes_max} bytes as `{kind}`, and this file has {size}; make it smaller{alternative}"
    )]
    Size {
        channel: &'static str,
        kind: &'static str,
        size: u64,
        bytes_max: u64,
        /// Another way to send it, as the end of the sentence.
        alternative: &'static str,
    },
}

/// Checks a file against the limits of a channel. A channel without limits accepts everything.
pub fn check_media_limits(
    channel: &str,
    kind: MediaKind,
    mime_type: &str,
    size: u64,
) -> Result<(), MediaLimitError> {
    if size == 0 {
        return Err(MediaLimitError::Empty);
    }
    let Some((channel, limits)) = LIMITS.iter().copied().find(|(name, _)| *name == channel) else {
        return Ok(());
    };
    let limit_of = |kind: MediaKind| limits.iter().find(|limit| limit.kind == kind);
    let Some(limit) = limit_of(kind) else { return Ok(()) };
    let is_accepted = |limit: &Limit| limit.types.is_empty() || limit.types.contains(&mime_type);
    let kind_name = kind.as_str();
    // A rejected file may be accepted as another kind, mostly as a document.
    let is_alternative =
        |limit: &&Limit| limit.kind != kind && is_accepted(limit) && size <= limit.bytes_max;
    if !is_accepted(limit) || !can_show_as(kind, mime_type) {
        let own_kind = limit_of(super::detect::media_kind_of(mime_type)).filter(is_alternative);
        let other_kind = own_kind.map_or(MediaKind::Document, |limit| limit.kind).as_str();
        let accepted = match limit.types {
            [] => "only files that can be shown this way".to_owned(),
            types => types.join(", "),
        };
        let mime_type = mime_type.to_owned();
        return Err(MediaLimitError::Type {
            channel,
            kind: kind_name,
            accepted,
            mime_type,
            other_kind,
        });
    }
    if size > limit.bytes_max {
        let document = limit_of(MediaKind::Document).filter(is_alternative);
        let alternative = document.map_or("", |_| ", or send it as `document`");
        let bytes_max = limit.bytes_max;
        return Err(MediaLimitError::Size {
            channel,
            kind: kind_name,
            size,
            bytes_max,
            alternative,
        });
    }
    Ok(())
}

/// Whether a file of this type can be shown as this kind at all.
fn can_show_as(kind: MediaKind, mime_type: &str) -> bool {
    let family = mime_type.split('/').next().unwrap_or_default();
    match kind {
        MediaKind::Document => true,
        MediaKind::Audio => matches!(family, "audio" | "video"),
        MediaKind::Image => family == "image",
        MediaKind::Sticker => matches!(family, "image" | "video"),
        MediaKind::Video => family == "video",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CHANNELS;

    const CLOUD: &str = "whatsapp-cloud";
    const GO: &str = "evolution-go";
    const API: &str = "evolution-api";

    #[test]
    fn every_channel_has_limits_for_every_kind() {
        use MediaKind::{Audio, Document, Image, Sticker, Video};
        for channel in CHANNELS {
            let found = LIMITS.iter().find(|(name, _)| *name == channel.name());
            let (_, limits) = found.unwrap_or_else(|| panic!("{} has no limits", channel.name()));
            for kind in [Audio, Document, Image, Sticker, Video] {
                let count = limits.iter().filter(|limit| limit.kind == kind).count();
                assert_eq!(count, 1, "{} {kind:?}", channel.name());
            }
        }
    }

    #[test]
    fn accepted_files_pass_the_limits() {
        use MediaKind::{Audio, Document, Image, Sticker, Video};
        let cases = [
            (CLOUD, Image, "image/jpeg", 5 * MB),
            (CLOUD, Image, "image/png", 1),
            (CLOUD, Audio, OPUS, 16 * MB),
            (CLOUD, Audio, "audio/mpeg", 16 * MB),
            (CLOUD, Video, "video/3gpp", 16 * MB),
            (CLOUD, Document, "application/pdf", 100 * MB),
            (CLOUD, Document, "image/jpeg", 20 * MB),
            (CLOUD, Document, "application/octet-stream", 1),
            (CLOUD, Sticker, "image/webp", 500 * KB),
            (GO, Image, "image/webp", 6 * MB),
            (GO, Audio, "audio/x-wav", 1),
            (API, Video, "video/quicktime", 20 * MB),
            ("another", Image, "application/pdf", u64::MAX),
        ];
        for (channel, kind, mime_type, size) in cases {
            let result = check_media_limits(channel, kind, mime_type, size);
            assert_eq!(result, Ok(()), "case: {channel} {kind:?} {mime_type} {size}");
        }
    }

    #[test]
    fn rejected_file_error_says_what_to_do() {
        use MediaKind::{Audio, Document, Image, Sticker, Video};
        let cases = [
            (CLOUD, Image, "application/pdf", 1, "send it as `document`"),
            (
                CLOUD,
                Image,
                "application/pdf",
                1,
                "whatsapp-cloud accepts image/jpeg, image/png as `image`",
            ),
            (CLOUD, Image, "image/webp", 1, "send it as `sticker`"),
            (CLOUD, Image, "image/gif", 1, "send it as `document`"),
            (CLOUD, Audio, "audio/ogg", 1, "the content of this file is audio/ogg"),
            (CLOUD, Sticker, "image/png", 1, "send it as `image`"),
            (CLOUD, Video, "video/quicktime", 1, "send it as `document`"),
            (CLOUD, Image, "image/jpeg", 5 * MB + 1, "or send it as `document`"),
            (CLOUD, Document, "application/pdf", 100 * MB + 1, "make it smaller"),
            (CLOUD, Sticker, "image/webp", 500 * KB + 1, "at most 512000 bytes"),
            (GO, Video, "application/pdf", 1, "evolution-go accepts video/mp4"),
            (
                API,
                Image,
                "application/pdf",
                1,
                "evolution-api accepts only files that can be shown this way as `image`",
            ),
            (API, Audio, "image/jpeg", 1, "send it as `image`"),
            (API, Document, "text/plain", 0, "the file is empty"),
        ];
        for (channel, kind, mime_type, size, part) in cases {
            let error = check_media_limits(channel, kind, mime_type, size).unwrap_err().to_string();
            assert!(error.contains(part), "case: {channel} {kind:?} {mime_type} {size}: {error}");
        }
    }
}
