//! Outbound messages, and files for them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_core::message_status::MessageStatus;
use surehook_messaging::message::MediaKind;
use surehook_retry::DeadReason;
use surehook_types::{
    ids::{DeliveryId, EventId, MediaId},
    time::Timestamp,
};
use surehook_webhooks::provider::MessageStatusUpdate;

use crate::deliveries::DeliveryResponse;

/// A message that was stored for sending.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AcceptedMessage")]
pub struct AcceptedMessageResponse {
    pub id: EventId,
    pub delivery_id: DeliveryId,
    pub destination: String,
    pub status: MessageStatus,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Message")]
pub struct MessageResponse {
    pub id: EventId,
    /// Absent if it was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// `text`, `image`, `template` and so on; for a webhook, its event type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Recipient; absent for a webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// When it was requested; for a repeated `Idempotency-Key`, the first time.
    pub created_at: Timestamp,
    pub status: MessageStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<DeadReason>,
    pub attempts: u32,
    /// Newest delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<DeliveryId>,
    /// Id of the message at the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
}

/// A message with its delivery and status updates.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MessageDetail {
    #[serde(flatten)]
    pub message: MessageResponse,
    /// Newest delivery; absent if the destination was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryResponse>,
    /// Status updates of the provider, oldest first. They may be out of order or repeated.
    pub statuses: Vec<MessageStatusEntry>,
}

/// One status update of the provider.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MessageStatusEntry {
    pub at: Timestamp,
    pub state: MessageStatusUpdate,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_title: Option<String>,
    /// Event that carried the update.
    pub event_id: EventId,
}

/// An uploaded file, in the bucket or at the Cloud API.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "MediaFile")]
pub struct MediaFileResponse {
    /// Id of a file in the bucket: `"image": { "file": "med_…" }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<MediaId>,
    /// Id of a file at the Cloud API, valid for 30 days: `"image": { "media_id": "…" }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_id: Option<String>,
    /// Default message type of the file.
    pub kind: MediaKind,
    /// Media type detected from the bytes.
    pub mime_type: String,
    /// In bytes.
    pub size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// Only of a file in the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
}
