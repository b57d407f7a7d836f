//! A fake Evolution API with one instance.

use std::{
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard},
};

use serde_json::{Value, json};

use super::{
    super::sink::{Reply, Sink, SinkRequest},
    FakeChannel, RecordedMessage,
    evolution_errors::api_error,
    fake_channel::json_reply,
};

#[derive(Clone, Debug)]
pub(crate) struct ApiInstance {
    /// `open`, `connecting`, `close` or `refused`.
    pub(crate) state: &'static str,
    pub(crate) webhook: Value,
    pub(crate) proxy: Value,
}

#[derive(Debug)]
pub(crate) struct EvolutionApi {
    sink: Sink,
    fake_channel: Arc<FakeChannel>,
    instance: Arc<Mutex<ApiInstance>>,
}

impl Deref for EvolutionApi {
    type Target = FakeChannel;

    fn deref(&self) -> &FakeChannel {
        &self.fake_channel
    }
}

impl EvolutionApi {
    pub(crate) const INSTANCE: &str = "shop";
    /// The key of the instance.
    pub(crate) const TOKEN: &str = "instance-apikey";
    /// The global key.
    pub(crate) const ADMIN_KEY: &str = "global-apikey";
    /// A proxy that fails Evolution's own check.
    pub(crate) const BAD_PROXY: &str = "down.proxy.test";

    /// Starts with a connected instance that has a webhook.
    pub(crate) async fn start() -> Self {
        let fake_channel = Arc::new(FakeChannel::default());
        let webhook = json!({ "enabled": true, "url": "https://hooks.test/in/evolution" });
        let instance = ApiInstance { state: "open", webhook, proxy: Value::Null };
        let instance = Arc::new(Mutex::new(instance));
        let (messages, shared) = (Arc::clone(&fake_channel), Arc::clone(&instance));
        let sink = Sink::with_script(move |_, request| {
            handle_request(&messages, &mut shared.lock().unwrap(), request).unwrap_or_else(
                |(status, message)| json_reply(status, &api_error(status, &message)),
            )
        });
        Self { sink: sink.await, fake_channel, instance }
    }

    /// The base URL to configure.
    pub(crate) fn url(&self) -> String {
        self.sink.origin()
    }

    pub(crate) fn instance(&self) -> MutexGuard<'_, ApiInstance> {
        self.instance.lock().unwrap()
    }
}

/// Status and message.
type ErrorResponse = (u16, Value);

fn handle_request(
    fake_channel: &FakeChannel,
    instance: &mut ApiInstance,
    request: &SinkRequest,
) -> Result<Reply, ErrorResponse> {
    let path: Vec<&str> = request.path.split('/').skip(1).collect();
    let [area, call, name] = path[..] else {
        let text = format!("Cannot {} {}", request.method, request.path);
        return Err((404, json!([text])));
    };
    let key = request.header("apikey");
    if key != EvolutionApi::TOKEN && key != EvolutionApi::ADMIN_KEY {
        return Err((401, json!("Unauthorized")));
    }
    if name != EvolutionApi::INSTANCE {
        return Err((404, json!([format!("The \"{name}\" instance does not exist")])));
    }
    let body = || {
        serde_json::from_slice::<Value>(&request.body)
            .map_err(|_| (400, json!(["Unexpected end of JSON input"])))
    };
    match (request.method.as_str(), area) {
        ("POST", "message") => send_message(fake_channel, instance, call, request, body()?),
        _ => manage(instance, request, body),
    }
}

fn require_fields(body: &Value, fields: &[&str]) -> Result<(), ErrorResponse> {
    for field in fields {
        if body[*field].is_null() {
            return Err((400, json!([[format!("instance requires property \"{field}\"")]])));
        }
    }
    Ok(())
}

fn send_message(
    fake_channel: &FakeChannel,
    instance: &ApiInstance,
    call: &str,
    request: &SinkRequest,
    body: Value,
) -> Result<Reply, ErrorResponse> {
    let fields: &[&str] = match call {
        "sendText" => &["number", "text"],
        "sendMedia" => &["number", "mediatype", "media"],
        "sendWhatsAppAudio" => &["number", "audio"],
        "sendSticker" => &["number", "sticker"],
        "sendLocation" => &["number", "latitude", "longitude", "name", "address"],
        "sendContact" => &["number", "contact"],
        "sendReaction" => &["key", "reaction"],
        "sendTemplate" => &["number", "name", "language", "components"],
        _ => return Err((404, json!([format!("Cannot POST {}", request.path)]))),
    };
    require_fields(&body, fields)?;
    if instance.state != "open" {
        return Err((400, json!(["Error: Connection Closed"])));
    }
    let to = body["number"].as_str().or_else(|| body["key"]["remoteJid"].as_str());
    let to = to.unwrap_or_default().to_owned();
    // The caller cannot choose the id: every call is another message.
    let id = format!("BAE5{:016X}", fake_channel.count());
    let jid = if to.contains('@') { to.clone() } else { format!("{to}@s.whatsapp.net") };
    let success = json!({
        "key": { "remoteJid": jid, "fromMe": true, "id": id },
        "pushName": "", "status": "PENDING", "message": { "conversation": body["text"] },
        "contextInfo": null, "messageType": "conversation", "messageTimestamp": 1_780_000_000,
        "instanceId": "8f9b7c1a-6f0e-4d2e-8a4b-0c6a4a1f2b3c", "source": "unknown",
    });
    let path = request.path.clone();
    let message = RecordedMessage { at: request.at, path, to, body, our_id: None, sent_id: None };
    Ok(fake_channel.handle(message, id, json_reply(201, &success)))
}

fn manage(
    instance: &mut ApiInstance,
    request: &SinkRequest,
    body: impl FnOnce() -> Result<Value, ErrorResponse>,
) -> Result<Reply, ErrorResponse> {
    let state =
        json!({ "instance": { "instanceName": EvolutionApi::INSTANCE, "state": instance.state } });
    let mut path = request.path.split('/').skip(1);
    let (area, call) = (path.next().unwrap_or_default(), path.next().unwrap_or_default());
    let (status, body) = match (request.method.as_str(), area, call) {
        ("GET", "instance", "connectionState") => (200, state),
        // A connected instance returns only its state.
        ("GET", "instance", "connect") if instance.state == "open" => (200, state),
        ("GET", "instance", "connect") => {
            instance.state = "connecting";
            let pairing = request.query.starts_with("number=").then_some("WXYZ9876");
            let code = "2@qr";
            (
                200,
                json!({ "pairingCode": pairing, "code": code, "base64": "data:image/png;base64,AAAA", "count": 1 }),
            )
        }
        ("GET", "webhook", "find") => (200, instance.webhook.clone()),
        ("POST", "webhook", "set") => {
            let body = body()?;
            require_fields(&body, &["webhook"])?;
            require_fields(&body["webhook"], &["enabled", "url"])?;
            instance.webhook = body["webhook"].clone();
            (201, instance.webhook.clone())
        }
        ("GET", "proxy", "find") => (200, instance.proxy.clone()),
        ("POST", "proxy", "set") => {
            let body = body()?;
            require_fields(&body, &["enabled", "host", "port", "protocol"])?;
            for field in ["host", "port", "protocol"] {
                if body[field].as_str().is_none_or(str::is_empty) {
                    let text = format!("The \"{field}\" cannot be empty");
                    return Err((400, json!([[text]])));
                }
            }
            if body["host"] == EvolutionApi::BAD_PROXY {
                return Err((400, json!("Invalid proxy")));
            }
            instance.proxy = body;
            if instance.proxy["enabled"] == false {
                instance.proxy = json!({
                    "enabled": false, "host": "", "port": "", "protocol": "", "username": "",
                    "password": "",
                });
            }
            (
                201,
                json!({ "proxy": { "instanceName": EvolutionApi::INSTANCE, "proxy": instance.proxy } }),
            )
        }
        (method, area, call) => {
            return Err((404, json!([format!("Cannot {method} /{area}/{call}")])));
        }
    };
    Ok(json_reply(status, &body))
}
