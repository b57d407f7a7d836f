//! Instances of Evolution Go.
//!
//! - The token of an instance asks for its status and connects it. Everything about all instances, and
//!   the proxy of one, wants the server's own key (`GLOBAL_API_KEY`). Neither does the other's work.
//! - `connect` writes webhook, events and queues anew: what a caller leaves out is gone. So whoever
//!   connects must know them first, and only the server's key shows them.

use http::Method;
use serde_json::{Value, json};

use super::{InstanceError, InstanceLink, InstanceProxy, InstanceRequest, InstanceState, text};
use crate::{
    channel::{ChannelAccount, answer},
    secret::Secret,
};

/// What an instance can be told to report. The server drops other words without saying so.
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

/// An instance, as the server's key sees it.
#[derive(Clone, Debug)]
pub struct InstanceInfo {
    /// The id, by which its proxy is set.
    pub id: String,
    /// The name that people gave it.
    pub name: String,
    /// Its own key.
    pub token: Secret,
    /// Where it reports to, and what.
    pub subscription: InstanceSubscription,
}

/// Where an instance reports to, and what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceSubscription {
    /// The address of the webhook; empty for none.
    pub webhook: String,
    /// The kinds of events.
    pub events: Vec<String>,
    rabbitmq: String,
    websocket: String,
    nats: String,
}

impl InstanceSubscription {
    /// The same, with what was given in place of what was there.
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

/// Asks how an instance stands.
pub fn status_request(instance: &ChannelAccount) -> InstanceRequest {
    InstanceRequest::new(instance, Method::GET, ["instance", "status"], None)
}

/// How it stands. That the client is disconnected is an answer, although the server calls it an error.
pub fn parse_status(status: u16, body: &[u8]) -> Result<InstanceState, InstanceError> {
    let data = match data(status, body) {
        Err(InstanceError::Rejected(text)) if is_down(&text) => {
            return Ok(InstanceState::Disconnected);
        }
        other => other?,
    };
    Ok(match (data["Connected"].as_bool(), data["LoggedIn"].as_bool()) {
        (Some(true), Some(true)) => InstanceState::Connected(text(&data["Name"])),
        (Some(true), _) => InstanceState::NotLinked,
        (Some(false), _) => InstanceState::Disconnected,
        (None, _) => return Err(InstanceError::UnexpectedResponse(status)),
    })
}

fn is_down(text: &str) -> bool {
    text.contains("client disconnected") || text.contains("no active session found")
}

/// Asks for all instances, with the server's key.
pub fn list_request(server: &ChannelAccount) -> InstanceRequest {
    InstanceRequest::new(server, Method::GET, ["instance", "all"], None)
}

/// All instances.
pub fn parse_list(status: u16, body: &[u8]) -> Result<Vec<InstanceInfo>, InstanceError> {
    match data(status, body)? {
        Value::Array(list) => Ok(list.iter().filter_map(about).collect()),
        // No instance at all.
        Value::Null => Ok(Vec::new()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Err(InstanceError::UnexpectedResponse(status))
        }
    }
}

fn about(value: &Value) -> Option<InstanceInfo> {
    let said = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let events = said("events");
    let events = events.split(',').map(str::trim).filter(|event| !event.is_empty());
    Some(InstanceInfo {
        id: text(&value["id"])?,
        name: said("name"),
        token: Secret::new(said("token")),
        subscription: InstanceSubscription {
            webhook: said("webhook"),
            events: events.map(str::to_owned).collect(),
            rabbitmq: said("rabbitmqEnable"),
            websocket: said("websocketEnable"),
            nats: said("natsEnable"),
        },
    })
}

/// The instance that is meant: that of a name or an id, or the one whose token it is.
pub fn find_instance(
    all: Vec<InstanceInfo>,
    named: Option<&str>,
    token: Option<&Secret>,
) -> Result<InstanceInfo, InstanceError> {
    let is_meant = |about: &InstanceInfo| match (named, token) {
        (Some(name), _) => about.id == name || about.name == name,
        (None, Some(token)) => token.matches(about.token.expose()),
        (None, None) => false,
    };
    all.into_iter().find(is_meant).ok_or(InstanceError::NotFound)
}

/// Connects an instance, which reports like this from then on.
pub fn connect_request(
    instance: &ChannelAccount,
    reports: &InstanceSubscription,
) -> InstanceRequest {
    let body = json!({
        "webhookUrl": reports.webhook,
        "subscribe": reports.events,
        "rabbitmqEnable": reports.rabbitmq,
        "websocketEnable": reports.websocket,
        "natsEnable": reports.nats,
        "immediate": true,
    });
    InstanceRequest::new(instance, Method::POST, ["instance", "connect"], Some(body))
}

/// Where the instance reports to now, and what.
pub fn parse_connect(status: u16, body: &[u8]) -> Result<InstanceSubscription, InstanceError> {
    let data = data(status, body)?;
    let events = data["eventString"].as_str().unwrap_or_default().split(',');
    Ok(InstanceSubscription {
        webhook: data["webhookUrl"].as_str().unwrap_or_default().to_owned(),
        events: events.filter(|event| !event.is_empty()).map(str::to_owned).collect(),
        ..InstanceSubscription::default()
    })
}

/// Asks for a QR code.
pub fn qr_request(instance: &ChannelAccount) -> InstanceRequest {
    InstanceRequest::new(instance, Method::GET, ["instance", "qr"], None)
}

/// Asks for a code to be typed into the phone with this number.
pub fn pairing_request(instance: &ChannelAccount, phone: &str) -> InstanceRequest {
    let body = json!({ "phone": phone, "subscribe": [] });
    InstanceRequest::new(instance, Method::POST, ["instance", "pair"], Some(body))
}

/// How a phone is linked; `None` if one is linked already.
pub fn parse_link(status: u16, body: &[u8]) -> Result<Option<InstanceLink>, InstanceError> {
    let data = match data(status, body) {
        Err(InstanceError::Rejected(text)) if text.contains("already") => return Ok(None),
        other => other?,
    };
    // The names began with capitals in earlier versions.
    let either = |old: &str, new: &str| text(&data[old]).or_else(|| text(&data[new]));
    Ok(Some(InstanceLink {
        pairing_code: either("PairingCode", "pairingCode"),
        code: either("Code", "code"),
        picture: either("Qrcode", "qrcode"),
    }))
}

/// Sets the proxy of an instance, with the server's key. The instance connects anew by itself.
pub fn set_proxy_request(
    server: &ChannelAccount,
    id: &str,
    proxy: &InstanceProxy,
) -> InstanceRequest {
    let (user, password) = proxy.login();
    let mut body = json!({
        "host": proxy.host, "port": proxy.port.to_string(), "username": user, "password": password,
    });
    // Not known to earlier versions.
    if let Some(protocol) = proxy.protocol {
        body["protocol"] = json!(protocol);
    }
    InstanceRequest::new(server, Method::POST, ["instance", "proxy", id], Some(body))
}

/// Takes the proxy of an instance away.
pub fn clear_proxy_request(server: &ChannelAccount, id: &str) -> InstanceRequest {
    InstanceRequest::new(server, Method::DELETE, ["instance", "proxy", id], None)
}

/// Whether a call worked.
pub fn parse_done(status: u16, body: &[u8]) -> Result<(), InstanceError> {
    data(status, body).map(drop)
}

fn data(status: u16, body: &[u8]) -> Result<Value, InstanceError> {
    let mut body = answer::json(body);
    let is_known = body.get("message").is_some() || body.get("data").is_some();
    if (200..300).contains(&status) && is_known {
        return Ok(body["data"].take());
    }
    match (status, body["error"].as_str()) {
        (401, _) => Err(InstanceError::Unauthorized),
        (_, Some("record not found" | "instance not found")) => Err(InstanceError::NotFound),
        // A path that it does not know, or no words of its own: another server.
        (404, _) | (_, None) => Err(InstanceError::UnexpectedResponse(status)),
        (_, Some(text)) => Err(InstanceError::said(text)),
    }
}
