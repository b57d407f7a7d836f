//! Instances of Evolution API. Both the server's key and the instance's own key work for every request.

use http::Method;
use serde_json::{Map, Value, json};

use super::{
    InstanceError, InstanceProxy, InstanceRequest, InstanceState, PhoneLinkCodes, non_empty_text,
};
use crate::{ChannelAccount, evolution_api::collect_texts};

/// Default proxy protocol; the server requires one.
const DEFAULT_PROTOCOL: &str = "http";

fn build_request(
    account: &ChannelAccount,
    method: Method,
    area: &str,
    action: &str,
    body: Option<Value>,
) -> InstanceRequest {
    InstanceRequest::new(account, method, [area, action, account.sender()], body)
}

pub fn status_request(account: &ChannelAccount) -> InstanceRequest {
    build_request(account, Method::GET, "instance", "connectionState", None)
}

pub fn parse_status(status: u16, body: &[u8]) -> Result<InstanceState, InstanceError> {
    parse_state(&parse_body(status, body)?).ok_or(InstanceError::UnexpectedResponse(status))
}

fn parse_state(body: &Value) -> Option<InstanceState> {
    let instance = body.get("instance")?;
    let state = instance.get("state").or_else(|| instance.get("status")).and_then(Value::as_str);
    Some(match state {
        Some("open") => InstanceState::Connected(None),
        Some("connecting") => InstanceState::Connecting,
        // Known by name, but not loaded.
        None => InstanceState::Unknown,
        Some(_) => InstanceState::Disconnected,
    })
}

/// Connects the instance and leaves its webhook unchanged. With a phone number it also requests a pairing
/// code.
pub fn connect_request(account: &ChannelAccount, phone: Option<&str>) -> InstanceRequest {
    let mut request = build_request(account, Method::GET, "instance", "connect", None);
    if let Some(phone) = phone {
        request.url.query_pairs_mut().append_pair("number", phone);
    }
    request
}

/// The codes for linking a phone; `None` if one is already linked.
pub fn parse_connect(status: u16, body: &[u8]) -> Result<Option<PhoneLinkCodes>, InstanceError> {
    let body = parse_body(status, body)?;
    if parse_state(&body).is_some_and(|state| state.is_connected()) {
        return Ok(None);
    }
    let link = body.get("qrcode").filter(|link| link.is_object()).unwrap_or(&body);
    Ok(Some(PhoneLinkCodes {
        pairing_code: non_empty_text(&link["pairingCode"]),
        code: non_empty_text(&link["code"]),
        picture: non_empty_text(&link["base64"]),
    }))
}

pub fn webhook_request(account: &ChannelAccount) -> InstanceRequest {
    build_request(account, Method::GET, "webhook", "find", None)
}

/// The current webhook settings; null if there is no webhook.
pub fn parse_webhook(status: u16, body: &[u8]) -> Result<Value, InstanceError> {
    parse_body(status, body)
}

/// Sets the webhook. Values that are not given keep their `current` setting.
pub fn set_webhook_request(
    account: &ChannelAccount,
    current: &Value,
    url: Option<&str>,
    events: &[String],
) -> InstanceRequest {
    let mut hook = Map::new();
    hook.insert("enabled".to_owned(), json!(true));
    // Two fields have different names in responses and requests.
    let fields = [
        ("url", "url"),
        ("headers", "headers"),
        ("events", "events"),
        ("webhookByEvents", "byEvents"),
        ("webhookBase64", "base64"),
    ];
    for (response_name, request_name) in fields {
        let value = current.get(response_name).or_else(|| current.get(request_name));
        if let Some(value) = value.filter(|value| !value.is_null()) {
            hook.insert(request_name.to_owned(), value.clone());
        }
    }
    if let Some(url) = url {
        hook.insert("url".to_owned(), json!(url));
    }
    if !events.is_empty() {
        hook.insert("events".to_owned(), json!(events));
    }
    build_request(account, Method::POST, "webhook", "set", Some(json!({ "webhook": hook })))
}

pub fn proxy_request(account: &ChannelAccount) -> InstanceRequest {
    build_request(account, Method::GET, "proxy", "find", None)
}

/// The current proxy without its password; `None` if there is none.
pub fn parse_proxy(status: u16, body: &[u8]) -> Result<Option<Value>, InstanceError> {
    let body = parse_body(status, body)?;
    if body["enabled"] != true {
        return Ok(None);
    }
    let has_password = non_empty_text(&body["password"]).is_some();
    Ok(Some(json!({
        "host": body["host"],
        "port": body["port"],
        "protocol": body["protocol"],
        "user": non_empty_text(&body["username"]),
        "password_set": has_password,
    })))
}

/// Sets the proxy. The server tests it first.
pub fn set_proxy_request(account: &ChannelAccount, proxy: &InstanceProxy) -> InstanceRequest {
    let mut body = json!({
        "enabled": true,
        "host": proxy.host,
        "port": proxy.port.to_string(),
        "protocol": proxy.protocol.unwrap_or(DEFAULT_PROTOCOL),
    });
    if proxy.login.is_some() {
        let (user, password) = proxy.login();
        body["username"] = json!(user);
        body["password"] = json!(password);
    }
    build_request(account, Method::POST, "proxy", "set", Some(body))
}

/// Removes the proxy. The server requires all fields to be filled and ignores their values.
pub fn clear_proxy_request(account: &ChannelAccount) -> InstanceRequest {
    let body =
        json!({ "enabled": false, "host": "none", "port": "1", "protocol": DEFAULT_PROTOCOL });
    build_request(account, Method::POST, "proxy", "set", Some(body))
}

/// Checks that a request succeeded.
pub fn parse_done(status: u16, body: &[u8]) -> Result<(), InstanceError> {
    parse_body(status, body).map(drop)
}

fn parse_body(status: u16, body: &[u8]) -> Result<Value, InstanceError> {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let Some(body) = parsed else {
        return Err(if status == 401 {
            InstanceError::Unauthorized
        } else {
            InstanceError::UnexpectedResponse(status)
        });
    };
    let is_success = (200..300).contains(&status);
    // A failed request may also be a 200 with `error`.
    if is_success && body["error"] != true {
        return Ok(body);
    }
    let mut texts = Vec::new();
    let messages = body.pointer("/response/message").or_else(|| body.get("message"));
    collect_texts(messages.unwrap_or(&Value::Null), &mut texts);
    match status {
        401 | 403 => Err(InstanceError::Unauthorized),
        _ if texts.iter().any(|text| text.contains("instance does not exist")) => {
            Err(InstanceError::NotFound)
        }
        // Unknown path: a different server.
        404 => Err(InstanceError::UnexpectedResponse(status)),
        _ if texts.is_empty() => Err(InstanceError::UnexpectedResponse(status)),
        _ => Err(InstanceError::rejected(&texts.join("; "))),
    }
}
