//! Instances of Evolution Go.
//!
//! - The token of an instance reads its status and connects it. Listing instances and setting a proxy
//!   need the server's own key (`GLOBAL_API_KEY`). Neither key works for the other requests.
//! - `connect` overwrites webhook, events and queues: values that are left out are removed. They must be
//!   read first, and only the server's key can read them.

use http::Method;
use serde_json::{Value, json};
use surehook_types::secret::Secret;

use super::{
    InstanceError, InstanceProxy, InstanceRequest, InstanceState, PhoneLinkCodes, non_empty_text,
};
use crate::{ChannelAccount, response};

/// Event kinds an instance can report. The server silently ignores others.
pub const EVENTS: [&str; 14] = [
    "ALL",
    "MESSAGE",
    "SEND_MESSAGE",
    "READ_RECEIPT",
    "PRESENCE",
    "HISTORY_SYNC",
    "CHAT_PRESENCE",
    "CALL",
    "CONNECTION",
    "LABEL",
    "CONTACT",
    "GROUP",
    "NEWSLETTER",
    "QRCODE",
];

/// An instance, as listed with the server's key.
#[derive(Clone, Debug)]
pub struct InstanceInfo {
    /// Id, used to set the proxy.
    pub id: String,
    pub name: String,
    /// The instance's own key.
    pub token: Secret,
    pub subscription: InstanceSubscription,
}

/// The receivers of an instance's events, and the event kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceSubscription {
    /// URL of the webhook; empty for none.
    pub webhook: String,
    pub events: Vec<String>,
    rabbitmq: String,
    websocket: String,
    nats: String,
}

impl InstanceSubscription {
    /// Replaces the given values and keeps the others.
    #[must_use]
    pub fn with_changes(mut self, webhook: Option<&str>, events: &[String]) -> Self {
        if let Some(webhook) = webhook {
            webhook.clone_into(&mut self.webhook);
        }
        if !events.is_empty() {
            self.events = events.to_vec();
        }
        self
    }
}

pub fn status_request(instance: &ChannelAccount) -> InstanceRequest {
    InstanceRequest::new(instance, Method::GET, ["instance", "status"], None)
}

/// The state. The server reports a disconnected client as an error; here it is a state.
pub fn parse_status(status: u16, body: &[u8]) -> Result<InstanceState, InstanceError> {
    let data = match parse_data(status, body) {
        Err(InstanceError::Rejected(text)) if is_disconnected(&text) => {
            return Ok(InstanceState::Disconnected);
        }
        other => other?,
    };
    Ok(match (data["Connected"].as_bool(), data["LoggedIn"].as_bool()) {
        (Some(true), Some(true)) => InstanceState::Connected(non_empty_text(&data["Name"])),
        (Some(true), _) => InstanceState::NotLinked,
        (Some(false), _) => InstanceState::Disconnected,
        (None, _) => return Err(InstanceError::UnexpectedResponse(status)),
    })
}

fn is_disconnected(text: &str) -> bool {
    text.contains("client disconnected") || text.contains("no active session found")
}

/// Lists all instances. Needs the server's key.
pub fn list_request(server: &ChannelAccount) -> InstanceRequest {
    InstanceRequest::new(server, Method::GET, ["instance", "all"], None)
}

pub fn parse_list(status: u16, body: &[u8]) -> Result<Vec<InstanceInfo>, InstanceError> {
    match parse_data(status, body)? {
        Value::Array(list) => Ok(list.iter().filter_map(parse_instance).collect()),
        // No instances.
        Value::Null => Ok(Vec::new()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Err(InstanceError::UnexpectedResponse(status))
        }
    }
}

fn parse_instance(value: &Value) -> Option<InstanceInfo> {
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let events = text("events");
    let events = events.split(',').map(str::trim).filter(|event| !event.is_empty());
    Some(InstanceInfo {
        id: non_empty_text(&value["id"])?,
        name: text("name"),
        token: Secret::new(text("token")),
        subscription: InstanceSubscription {
            webhook: text("webhook"),
            events: events.map(str::to_owned).collect(),
            rabbitmq: text("rabbitmqEnable"),
            websocket: text("websocketEnable"),
            nats: text("natsEnable"),
        },
    })
}

/// Finds an instance by name or id, or by its token.
pub fn find_instance(
    instances: Vec<InstanceInfo>,
    name_or_id: Option<&str>,
    token: Option<&Secret>,
) -> Result<InstanceInfo, InstanceError> {
    let is_match = |instance: &InstanceInfo| match (name_or_id, token) {
        (Some(name), _) => instance.id == name || instance.name == name,
        (None, Some(token)) => token.matches(instance.token.expose()),
        (None, None) => false,
    };
    instances.into_iter().find(is_match).ok_or(InstanceError::NotFound)
}

/// Connects an instance and replaces its subscription.
pub fn connect_request(
    instance: &ChannelAccount,
    subscription: &InstanceSubscription,
) -> InstanceRequest {
    let body = json!({
        "webhookUrl": subscription.webhook,
        "subscribe": subscription.events,
        "rabbitmqEnable": subscription.rabbitmq,
        "websocketEnable": subscription.websocket,
        "natsEnable": subscription.nats,
        "immediate": true,
    });
    InstanceRequest::new(instance, Method::POST, ["instance", "connect"], Some(body))
}

/// The subscription after connecting.
pub fn parse_connect(status: u16, body: &[u8]) -> Result<InstanceSubscription, InstanceError> {
    let data = parse_data(status, body)?;
    let events = data["eventString"].as_str().unwrap_or_default().split(',');
    Ok(InstanceSubscription {
        webhook: data["webhookUrl"].as_str().unwrap_or_default().to_owned(),
        events: events.filter(|event| !event.is_empty()).map(str::to_owned).collect(),
        ..InstanceSubscription::default()
    })
}

pub fn qr_request(instance: &ChannelAccount) -> InstanceRequest {
    InstanceRequest::new(instance, Method::GET, ["instance", "qr"], None)
}

/// Requests a pairing code for the phone with this number.
pub fn pairing_request(instance: &ChannelAccount, phone: &str) -> InstanceRequest {
    let body = json!({ "phone": phone, "subscribe": [] });
    InstanceRequest::new(instance, Method::POST, ["instance", "pair"], Some(body))
}

/// The codes for linking a phone; `None` if one is already linked.
pub fn parse_link_codes(status: u16, body: &[u8]) -> Result<Option<PhoneLinkCodes>, InstanceError> {
    let data = match parse_data(status, body) {
        Err(InstanceError::Rejected(text)) if text.contains("already") => return Ok(None),
        other => other?,
    };
    // Earlier versions capitalized the field names.
    let field =
        |old: &str, new: &str| non_empty_text(&data[old]).or_else(|| non_empty_text(&data[new]));
    Ok(Some(PhoneLinkCodes {
        pairing_code: field("PairingCode", "pairingCode"),
        code: field("Code", "code"),
        picture: field("Qrcode", "qrcode"),
    }))
}

/// Sets the proxy of an instance. Needs the server's key. The instance reconnects by itself.
pub fn set_proxy_request(
    server: &ChannelAccount,
    id: &str,
    proxy: &InstanceProxy,
) -> InstanceRequest {
    let (user, password) = proxy.login();
    let mut body = json!({
        "host": proxy.host, "port": proxy.port.to_string(), "username": user, "password": password,
    });
    // Not supported by earlier versions.
    if let Some(protocol) = proxy.protocol {
        body["protocol"] = json!(protocol);
    }
    InstanceRequest::new(server, Method::POST, ["instance", "proxy", id], Some(body))
}

pub fn clear_proxy_request(server: &ChannelAccount, id: &str) -> InstanceRequest {
    InstanceRequest::new(server, Method::DELETE, ["instance", "proxy", id], None)
}

/// Checks that a request succeeded.
pub fn parse_done(status: u16, body: &[u8]) -> Result<(), InstanceError> {
    parse_data(status, body).map(drop)
}

fn parse_data(status: u16, body: &[u8]) -> Result<Value, InstanceError> {
    let mut body = response::parse_json(body);
    let is_known = body.get("message").is_some() || body.get("data").is_some();
    if (200..300).contains(&status) && is_known {
        return Ok(body["data"].take());
    }
    match (status, body["error"].as_str()) {
        (401, _) => Err(InstanceError::Unauthorized),
        (_, Some("record not found" | "instance not found")) => Err(InstanceError::NotFound),
        // Unknown path or no error text: a different server.
        (404, _) | (_, None) => Err(InstanceError::UnexpectedResponse(status)),
        (_, Some(text)) => Err(InstanceError::rejected(text)),
    }
}
