//! Signed status webhooks of the fake Cloud API.

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Method;
use serde_json::{Value, json};
use sha2::Sha256;

use super::{
    super::{
        client::{Client, HttpResponse},
        unix_now,
    },
    CloudApi, RecordedMessage, meta_errors,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloudApiStatus {
    Sent,
    Delivered,
    Read,
    /// With this error code.
    Failed(u32),
}

impl CloudApi {
    /// Sends statuses of sent messages to a source URL (`…/in/{source}`) in one request.
    pub(crate) async fn send_statuses(
        &self,
        source_url: &str,
        updates: &[(&RecordedMessage, CloudApiStatus)],
    ) -> HttpResponse {
        let statuses: Vec<Value> =
            updates.iter().map(|(message, status)| status_value(message, *status)).collect();
        let body = json!({
            "object": "whatsapp_business_account",
            "entry": [{ "id": "102290129340398", "changes": [{
                "field": "messages",
                "value": {
                    "messaging_product": "whatsapp",
                    "metadata": {
                        "display_phone_number": "551140028922",
                        "phone_number_id": Self::SENDER,
                    },
                    "statuses": statuses,
                },
            }] }],
        });
        let body = body.to_string();
        let mut mac = Hmac::<Sha256>::new_from_slice(Self::APP_SECRET.as_bytes()).unwrap();
        mac.update(body.as_bytes());
        let signature = format!("sha256={}", HEXLOWER.encode(&mac.finalize().into_bytes()));
        let headers: [(&str, &[u8]); 2] =
            [("content-type", b"application/json"), ("x-hub-signature-256", signature.as_bytes())];
        Client::new().send(Method::POST, source_url, &headers, body).await.unwrap()
    }
}

/// An element of `statuses`.
fn status_value(message: &RecordedMessage, status: CloudApiStatus) -> Value {
    let name = match status {
        CloudApiStatus::Sent => "sent",
        CloudApiStatus::Delivered => "delivered",
        CloudApiStatus::Read => "read",
        CloudApiStatus::Failed(_) => "failed",
    };
    let mut value = json!({
        "id": message.sent_id.as_ref().expect("only sent messages have a status"),
        "status": name,
        "timestamp": unix_now().to_string(),
        "recipient_id": message.to,
    });
    if let Some(our_id) = &message.our_id {
        value["biz_opaque_callback_data"] = json!(our_id);
    }
    match status {
        CloudApiStatus::Sent | CloudApiStatus::Delivered => {
            value["pricing"] =
                json!({ "billable": true, "pricing_model": "PMP", "category": "utility" });
        }
        CloudApiStatus::Read => {}
        CloudApiStatus::Failed(code) => {
            let title = meta_errors::find(code).title;
            value["errors"] = json!([{
                "code": code, "title": title, "message": title,
                "error_data": { "details": title },
            }]);
        }
    }
    value
}
