//! The path of a request as it may be seen.

use super::MASK;

/// What Evolution API adds to an address when it has one for each event.
const BY_EVENT: [&str; 33] = [
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

/// Whether a segment of a path is the name of an event, which is nobody's secret.
pub(crate) fn is_event_name(segment: &str) -> bool {
    BY_EVENT.contains(&segment)
}

/// What follows a source's name in a path, with every segment masked that may be a secret: a right
/// one, one that was right, or one that stands in the wrong place.
pub fn mask_path(path: &str) -> String {
    let shown = |segment| match segment {
        "" => segment,
        name if is_event_name(name) => name,
        _ => MASK,
    };
    path.split('/').map(shown).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_may_be_a_secret_in_a_path_is_not_shown() {
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
        assert!(BY_EVENT.is_sorted());
    }
}
