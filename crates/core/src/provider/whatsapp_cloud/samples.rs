//! What Meta sends, for tests of a source.

use super::super::SampleEvent;

macro_rules! sample {
    ($kind:literal, $file:literal) => {
        SampleEvent {
            kind: $kind,
            headers: &[("content-type", "application/json"), ("user-agent", "facebookexternalua")],
            target: "",
            body: include_str!(concat!("../samples/whatsapp_cloud/", $file, ".json")),
        }
    };
}

pub(super) static SAMPLES: &[SampleEvent] = &[
    sample!("message", "text"),
    sample!("message", "image"),
    sample!("message", "audio"),
    sample!("message", "button_reply"),
    sample!("message.reaction", "reaction"),
    sample!("message.system", "system"),
    sample!("message.unsupported", "unsupported"),
    sample!("status.sent", "sent"),
    sample!("status.delivered", "delivered"),
    sample!("status.read", "read"),
    sample!("status.failed", "failed"),
    sample!("message_template_status_update", "template"),
    // Six events: two messages, three statuses, and a message of another account.
    sample!("batch", "batch"),
];
