//! Masks secrets in request paths.

use super::MASK;

/// Path suffixes that Evolution API appends when it calls one URL per event.
const EVENT_NAMES: [&str; 33] = [
    "application-startup",
    "call",
    "chats-delete",
    "chats-set",
    "chats-update",
    "chats-upsert",
    "connection-update",
    "contacts-set",
    "contacts-update",
    "contacts-upsert",
    "creds-update",
    "group-participants-update",
    "groups-update",
    "groups-upsert",
    "instance-create",
    "instance-delete",
    "labels-association",
    "labels-edit",
    "logout-instance",
    "messages-delete",
    "messages-edited",
    "messages-set",
    "messages-update",
    "messages-upsert",
    "messaging-history-set",
    "presence-update",
    "qrcode-updated",
    "remove-instance",
    "send-message",
    "send-message-update",
    "status-instance",
    "typebot-change-status",
    "typebot-start",
];

/// Whether a path segment is an event name, which is never a secret.
pub fn is_event_name(segment: &str) -> bool {
    EVENT_NAMES.contains(&segment)
}

/// Masks every segment after the source's name that may be a secret: a current one, an old one, or
/// one in the wrong position.
pub fn mask_path(path: &str) -> String {
    let mask_segment = |segment| match segment {
        "" => segment,
        name if is_event_name(name) => name,
        _ => MASK,
    };
    path.split('/').map(mask_segment).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_possible_secret_in_a_path_is_masked() {
        let cases = [
            ("", ""),
            ("/", "/"),
            ("/messages-upsert", "/messages-upsert"),
            ("/group-participants-update", "/group-participants-update"),
            ("/v1/x", "/•••/•••"),
            ("/9f3c1a7e5b2d4f60", "/•••"),
            ("/only-letters/messages-upsert", "/•••/messages-upsert"),
            ("/messages-upsert/secret", "/messages-upsert/•••"),
            ("//secret/", "//•••/"),
            ("/•••/call", "/•••/call"),
        ];
        for (written, expected) in cases {
            assert_eq!(mask_path(written), expected, "case: {written}");
        }
        assert!(EVENT_NAMES.is_sorted());
    }
}
