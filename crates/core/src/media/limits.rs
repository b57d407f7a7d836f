//! Which files each service takes as what, and how large.
//!
//! The Cloud API's limits are Meta's. Of the Evolution servers only the types are known; their sizes
//! are WhatsApp's own, and generous where that is not certain: what is refused here is not even tried.
//! How the sound and the pictures of a film are coded is not looked at.

use crate::channel::message::MediaKind;

const KB: u64 = 1024;
const MB: u64 = 1024 * KB;

/// What a service takes as one kind.
#[derive(Clone, Copy, Debug)]
struct Limit {
    kind: MediaKind,
    /// All others are refused; if none is named, none is.
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
            // One that does not move may have 100 kB; Meta looks which it is.
            limit(MediaKind::Sticker, &["image/webp"], 500 * KB),
        ],
    ),
    (
        "evolution-go",
        &[
            limit(MediaKind::Image, IMAGES_AND_WEBP, 16 * MB),
            limit(MediaKind::Video, &["video/mp4"], 100 * MB),
            // Whatever it is, the server makes a voice message of it.
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

/// Why a service would not take a file, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediaLimitError {
    /// There is nothing in it.
    #[error("the file is empty; upload it again")]
    Empty,
    /// It is something else.
    #[error(
        "as `{kind}` {channel} takes {taken}, and this file is {mime_type} by its bytes; send it as `{instead}`, or convert it"
    )]
    Type {
        /// The service.
        channel: &'static str,
        /// As what it was to be sent.
        kind: &'static str,
        /// What is taken as that.
        taken: String,
        /// What it is.
        mime_type: String,
        /// As what it can be sent.
        instead: &'static str,
    },
    /// It is too large.
    #[error(
        "{channel} takes at most {bytes_max} bytes as `{kind}`, and this file has {size}; make it smaller{or}"
    )]
    Size {
        /// The service.
        channel: &'static str,
        /// As what it was to be sent.
        kind: &'static str,
        /// How many it has.
        size: u64,
        /// How many it may have.
        bytes_max: u64,
        /// What else could be done.
        or: &'static str,
    },
}

/// Whether the service of that name takes such a file as such a kind. A service of which nothing is
/// known takes everything.
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
    let of = |kind: MediaKind| limits.iter().find(|limit| limit.kind == kind);
    let Some(limit) = of(kind) else { return Ok(()) };
    let is_taken = |limit: &Limit| limit.types.is_empty() || limit.types.contains(&mime_type);
    let as_what = kind.as_str();
    // What is not shown may still be sent as a file to keep, except for what plays only as itself.
    let is_kept = |limit: &&Limit| limit.kind != kind && is_taken(limit) && size <= limit.bytes_max;
    if !is_taken(limit) || !plays_as(kind, mime_type) {
        let own = of(super::detect::media_kind_of(mime_type)).filter(is_kept);
        let instead = own.map_or(MediaKind::Document, |limit| limit.kind).as_str();
        let taken = match limit.types {
            [] => "only what can be shown as that".to_owned(),
            types => types.join(", "),
        };
        let mime_type = mime_type.to_owned();
        return Err(MediaLimitError::Type { channel, kind: as_what, taken, mime_type, instead });
    }
    if size > limit.bytes_max {
        let document = of(MediaKind::Document).filter(is_kept);
        let or = document.map_or("", |_| ", or send it as `document`");
        let bytes_max = limit.bytes_max;
        return Err(MediaLimitError::Size { channel, kind: as_what, size, bytes_max, or });
    }
    Ok(())
}

/// Whether a file of that type can be shown as that at all, whoever sends it.
fn plays_as(kind: MediaKind, mime_type: &str) -> bool {
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
    use crate::channel::CHANNELS;

    const CLOUD: &str = "whatsapp-cloud";
    const GO: &str = "evolution-go";
    const API: &str = "evolution-api";

    #[test]
    fn every_service_has_limits_for_every_kind() {
        use MediaKind::{Audio, Document, Image, Sticker, Video};
        for channel in CHANNELS {
            let found = LIMITS.iter().find(|(name, _)| *name == channel.name());
            let (_, limits) = found.unwrap_or_else(|| panic!("{} has no limits", channel.name()));
            for kind in [Audio, Document, Image, Sticker, Video] {
                let many = limits.iter().filter(|limit| limit.kind == kind).count();
                assert_eq!(many, 1, "{} {kind:?}", channel.name());
            }
        }
    }

    #[test]
    fn what_a_service_takes_fits() {
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
            let fit = check_media_limits(channel, kind, mime_type, size);
            assert_eq!(fit, Ok(()), "case: {channel} {kind:?} {mime_type} {size}");
        }
    }

    #[test]
    fn what_does_not_fit_says_what_to_do() {
        use MediaKind::{Audio, Document, Image, Sticker, Video};
        let cases = [
            (CLOUD, Image, "application/pdf", 1, "send it as `document`"),
            (
                CLOUD,
                Image,
                "application/pdf",
                1,
                "as `image` whatsapp-cloud takes image/jpeg, image/png",
            ),
            (CLOUD, Image, "image/webp", 1, "send it as `sticker`"),
            (CLOUD, Image, "image/gif", 1, "send it as `document`"),
            (CLOUD, Audio, "audio/ogg", 1, "this file is audio/ogg by its bytes"),
            (CLOUD, Sticker, "image/png", 1, "send it as `image`"),
            (CLOUD, Video, "video/quicktime", 1, "send it as `document`"),
            (CLOUD, Image, "image/jpeg", 5 * MB + 1, "or send it as `document`"),
            (CLOUD, Document, "application/pdf", 100 * MB + 1, "make it smaller"),
            (CLOUD, Sticker, "image/webp", 500 * KB + 1, "at most 512000 bytes"),
            (GO, Video, "application/pdf", 1, "evolution-go takes video/mp4"),
            (
                API,
                Image,
                "application/pdf",
                1,
                "as `image` evolution-api takes only what can be shown as that",
            ),
            (API, Audio, "image/jpeg", 1, "send it as `image`"),
            (API, Document, "text/plain", 0, "the file is empty"),
        ];
        for (channel, kind, mime_type, size, part) in cases {
            let said = check_media_limits(channel, kind, mime_type, size).unwrap_err().to_string();
            assert!(said.contains(part), "case: {channel} {kind:?} {mime_type} {size}: {said}");
        }
    }
}
