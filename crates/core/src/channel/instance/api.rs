//! Instances of Evolution API. One key does everything: the server's, or the instance's own.

use http::Method;
use serde_json::{Map, Value, json};

use super::{InstanceError, InstanceLink, InstanceProxy, InstanceRequest, InstanceState, text};
use crate::channel::{ChannelAccount, evolution_api::collect};

/// How a proxy is talked to if nobody says otherwise; the server wants to be told.
const PROTOCOL: &str = "http";

fn call(
    account: &ChannelAccount,
    method: Method,
    area: &str,
    what: &str,
    body: Option<Value>,
) -> InstanceRequest {
    InstanceRequest::new(account, method, [area, what, account.sender()], body)
}

/// Asks how the instance stands.
pub fn status_request(account: &ChannelAccount) -> InstanceRequest {
    call(account, Method::GET, "instance", "connectionState", None)
}

/// How it stands.
pub fn parse_status(status: u16, body: &[u8]) -> Result<InstanceState, InstanceError> {
    state(&read(status, body)?).ok_or(InstanceError::UnexpectedResponse(status))
}

fn state(body: &Value) -> Option<InstanceState> {
    let instance = body.get("instance")?;
    let word = instance.get("state").or_else(|| instance.get("status")).and_then(Value::as_str);
    Some(match word {
        Some("open") => InstanceState::Connected(None),
        Some("connecting") => InstanceState::Connecting,
        // It has a name, and is not loaded.
        None => InstanceState::Unknown,
        Some(_) => InstanceState::Disconnected,
    })
}

/// Connects the instance. Its webhook stays as it is. With a phone number it also asks for a code to be
/// typed into that phone.
pub fn connect_request(account: &ChannelAccount, phone: Option<&str>) -> InstanceRequest {
    let mut call = call(account, Method::GET, "instance", "connect", None);
    if let Some(phone) = phone {
        call.url.query_pairs_mut().append_pair("number", phone);
    }
    call
}

/// How a phone is linked; `None` if one is linked already.
pub fn parse_connect(status: u16, body: &[u8]) -> Result<Option<InstanceLink>, InstanceError> {
    let body = read(status, body)?;
    if state(&body).is_some_and(|state| state.is_connected()) {
        return Ok(None);
    }
    let link = body.get("qrcode").filter(|link| link.is_object()).unwrap_or(&body);
    Ok(Some(InstanceLink {
        pairing_code: text(&link["pairingCode"]),
        code: text(&link["code"]),
        picture: text(&link["base64"]),
    }))
}

/// Asks for the webhook.
pub fn webhook_request(account: &ChannelAccount) -> InstanceRequest {
    call(account, Method::GET, "webhook", "find", None)
}

/// The webhook as it is set; null for none.
pub fn parse_webhook(status: u16, body: &[u8]) -> Result<Value, InstanceError> {
    read(status, body)
}

/// Sets the webhook. What is not given stays as it was `before`.
pub fn set_webhook_request(
    account: &ChannelAccount,
    before: &Value,
    url: Option<&str>,
    events: &[String],
) -> InstanceRequest {
    let mut hook = Map::new();
    hook.insert("enabled".to_owned(), json!(true));
    // Two fields have another name when they are read.
    let kept = [
        ("url", "url"),
        ("headers", "headers"),
        ("events", "events"),
        ("webhookByEvents", "byEvents"),
        ("webhookBase64", "base64"),
    ];
    for (read, written) in kept {
        let value = before.get(read).or_else(|| before.get(written));
        if let Some(value) = value.filter(|value| !value.is_null()) {
            hook.insert(written.to_owned(), value.clone());
        }
    }
    if let Some(url) = url {
        hook.insert("url".to_owned(), json!(url));
    }
    if !events.is_empty() {
        hook.insert("events".to_owned(), json!(events));
    }
    call(account, Method::POST, "webhook", "set", Some(json!({ "webhook": hook })))
}

/// Asks for the proxy.
pub fn proxy_request(account: &ChannelAccount) -> InstanceRequest {
    call(account, Method::GET, "proxy", "find", None)
}

/// The proxy that is used, without its password; `None` if there is none.
pub fn parse_proxy(status: u16, body: &[u8]) -> Result<Option<Value>, InstanceError> {
    let body = read(status, body)?;
    if body["enabled"] != true {
        return Ok(None);
    }
    let has_password = text(&body["password"]).is_some();
    Ok(Some(json!({
        "host": body["host"],
        "port": body["port"],
        "protocol": body["protocol"],
        "user": text(&body["username"]),
        "password_set": has_password,
    })))
}

/// Sets the proxy. The server tries it first.
pub fn set_proxy_request(account: &ChannelAccount, proxy: &InstanceProxy) -> InstanceRequest {
    let mut body = json!({
        "enabled": true,
        "host": proxy.host,
        "port": proxy.port.to_string(),
        "protocol": proxy.protocol.unwrap_or(PROTOCOL),
    });
    if proxy.login.is_some() {
        let (user, password) = proxy.login();
        body["username"] = json!(user);
        body["password"] = json!(password);
    }
    call(account, Method::POST, "proxy", "set", Some(body))
}

/// Takes the proxy away. The server wants all fields, none of them empty, and forgets what they say.
pub fn clear_proxy_request(account: &ChannelAccount) -> InstanceRequest {
    let body = json!({ "enabled": false, "host": "none", "port": "1", "protocol": PROTOCOL });
    call(account, Method::POST, "proxy", "set", Some(body))
}

/// Whether a call worked.
pub fn parse_done(status: u16, body: &[u8]) -> Result<(), InstanceError> {
    read(status, body).map(drop)
}

fn read(status: u16, body: &[u8]) -> Result<Value, InstanceError> {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let Some(body) = parsed else {
        return Err(if status == 401 {
            InstanceError::Unauthorized
        } else {
            InstanceError::UnexpectedResponse(status)
        });
    };
    let is_success = (200..300).contains(&status);
    // A call that failed may also be 200 with this.
    if is_success && body["error"] != true {
        return Ok(body);
    }
    let mut texts = Vec::new();
    let messages = body.pointer("/response/message").or_else(|| body.get("message"));
    collect(messages.unwrap_or(&Value::Null), &mut texts);
    match status {
        401 | 403 => Err(InstanceError::Unauthorized),
        _ if texts.iter().any(|text| text.contains("instance does not exist")) => {
            Err(InstanceError::NotFound)
        }
        // A path that it does not know: another server.
        404 => Err(InstanceError::UnexpectedResponse(status)),
        _ if texts.is_empty() => Err(InstanceError::UnexpectedResponse(status)),
        _ => Err(InstanceError::said(&texts.join("; "))),
    }
}
