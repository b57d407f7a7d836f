//! A fake Evolution Go with one instance. The token of the instance sends and connects; only the
//! global key reads instances and sets their proxy.

use std::{
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard},
};

use serde_json::{Value, json};

use super::{
    super::sink::{Reply, Sink, SinkRequest},
    FakeChannel, RecordedMessage,
    evolution_errors::go_error,
    fake_channel::json_reply,
};

#[derive(Clone, Debug)]
pub(crate) struct GoInstance {
    pub(crate) webhook: String,
    /// Separated by commas.
    pub(crate) events: String,
    pub(crate) rabbitmq: String,
    pub(crate) connected: bool,
    pub(crate) logged_in: bool,
    pub(crate) proxy: Option<Value>,
}

#[derive(Debug)]
pub(crate) struct EvolutionGo {
    sink: Sink,
    fake_channel: Arc<FakeChannel>,
    instance: Arc<Mutex<GoInstance>>,
}

impl Deref for EvolutionGo {
    type Target = FakeChannel;

    fn deref(&self) -> &FakeChannel {
        &self.fake_channel
    }
}

impl EvolutionGo {
    /// The id and the name of the instance.
    pub(crate) const ID: &str = "2f7c1c1e-5d0c-4f0e-9a51-3f1e6b0a7d11";
    pub(crate) const NAME: &str = "shop";
    /// The key of the instance.
    pub(crate) const TOKEN: &str = "instance-token";
    /// `GLOBAL_API_KEY`.
    pub(crate) const ADMIN_KEY: &str = "global-api-key";
    pub(crate) const WEBHOOK: &str = "https://hooks.test/in/evolution";
    pub(crate) const PAIRING_CODE: &str = "ABCD-1234";

    /// Starts with a connected instance that has a webhook.
    pub(crate) async fn start() -> Self {
        let fake_channel = Arc::new(FakeChannel::default());
        let instance = Arc::new(Mutex::new(GoInstance {
            webhook: Self::WEBHOOK.to_owned(),
            events: "MESSAGE,READ_RECEIPT".to_owned(),
            rabbitmq: "enabled".to_owned(),
            connected: true,
            logged_in: true,
            proxy: None,
        }));
        let (messages, shared) = (Arc::clone(&fake_channel), Arc::clone(&instance));
        let sink = Sink::with_script(move |_, request| {
            handle_request(&messages, &mut shared.lock().unwrap(), request)
                .unwrap_or_else(|(status, text)| json_reply(status, &go_error(text)))
        });
        Self { sink: sink.await, fake_channel, instance }
    }

    /// The base URL to configure.
    pub(crate) fn url(&self) -> String {
        self.sink.origin()
    }

    pub(crate) fn instance(&self) -> MutexGuard<'_, GoInstance> {
        self.instance.lock().unwrap()
    }
}

/// Status and error text.
type ErrorResponse = (u16, &'static str);

fn handle_request(
    fake_channel: &FakeChannel,
    instance: &mut GoInstance,
    request: &SinkRequest,
) -> Result<Reply, ErrorResponse> {
    let path: Vec<&str> = request.path.split('/').skip(1).collect();
    let call = (request.method.as_str(), &path[..]);
    if call == ("GET", &["server", "ok"]) {
        return Ok(json_reply(200, &json!({ "status": "ok" })));
    }
    let needs_admin_key = matches!(
        call.1,
        ["instance", "all" | "create"] | ["instance", "info" | "proxy" | "delete", _]
    );
    let key = if needs_admin_key { EvolutionGo::ADMIN_KEY } else { EvolutionGo::TOKEN };
    if request.header("apikey") != key {
        return Err((401, "not authorized"));
    }
    let body = || serde_json::from_slice::<Value>(&request.body).map_err(|_| (400, "EOF"));
    match call {
        ("POST", ["send", kind]) => {
            let body = body()?;
            check_message(kind, &body)?;
            send_message(fake_channel, instance, request, body)
        }
        ("POST", ["message", "react"]) => {
            let body = body()?;
            require_fields(
                &body,
                &[("reaction", "reaction is required"), ("id", "message id is required")],
            )?;
            send_message(fake_channel, instance, request, body)
        }
        (method, ["instance", path @ ..]) => manage(instance, method, path, body),
        _ => Ok(Reply::status(404).body("404 page not found")),
    }
}

/// Rejects missing fields; empty text and 0 count as missing.
fn require_fields(body: &Value, fields: &[(&str, &'static str)]) -> Result<(), ErrorResponse> {
    for (field, text) in fields {
        let value = &body[*field];
        if value.is_null() || value == "" || value.as_f64() == Some(0.0) {
            return Err((400, text));
        }
    }
    Ok(())
}

fn check_message(kind: &str, body: &Value) -> Result<(), ErrorResponse> {
    require_fields(body, &[("number", "phone number is required")])?;
    match kind {
        "text" => require_fields(body, &[("text", "message body is required")]),
        "media" => {
            require_fields(
                body,
                &[("url", "media url is required"), ("type", "media type is required")],
            )?;
            let known = ["image", "video", "audio", "document", "ptv"];
            let is_known = body["type"].as_str().is_some_and(|kind| known.contains(&kind));
            if is_known { Ok(()) } else { Err((500, "invalid media type")) }
        }
        "location" => require_fields(
            body,
            &[
                ("latitude", "latitude is required"),
                ("longitude", "longitude is required"),
                ("name", "name is required"),
                ("address", "address is required"),
            ],
        ),
        "contact" => require_fields(
            &body["vcard"],
            &[("fullName", "contact name is required"), ("phone", "contact phone is required")],
        ),
        "sticker" => require_fields(body, &[("sticker", "sticker is required")]),
        _ => Err((404, "404 page not found")),
    }
}

fn send_message(
    fake_channel: &FakeChannel,
    instance: &GoInstance,
    request: &SinkRequest,
    body: Value,
) -> Result<Reply, ErrorResponse> {
    if !instance.connected {
        return Err((500, "client disconnected"));
    }
    let to = body["number"].as_str().unwrap_or_default().to_owned();
    // In a reaction, `id` is that of the other message.
    let is_reaction = request.path == "/message/react";
    let our_id = body["id"].as_str().filter(|_| !is_reaction).map(str::to_owned);
    let id = our_id.clone().unwrap_or_else(|| format!("3EB0{:018X}", fake_channel.count()));
    let chat = if to.contains('@') { to.clone() } else { format!("{to}@s.whatsapp.net") };
    let success = json!({
        "message": "success",
        "data": {
            "Info": {
                "ID": id, "Chat": chat, "Sender": "551140028922@s.whatsapp.net", "IsFromMe": true,
                "IsGroup": chat.ends_with("@g.us"), "Type": "text", "ServerID": 0,
                "Timestamp": "2026-06-01T12:00:00Z",
            },
            "Message": { "extendedTextMessage": { "text": body["text"] } },
            "MessageContextInfo": {},
        },
    });
    let message = RecordedMessage {
        at: request.at,
        path: request.path.clone(),
        to,
        body,
        our_id,
        sent_id: None,
    };
    Ok(fake_channel.handle(message, id, json_reply(200, &success)))
}

fn manage(
    instance: &mut GoInstance,
    method: &str,
    path: &[&str],
    body: impl FnOnce() -> Result<Value, ErrorResponse>,
) -> Result<Reply, ErrorResponse> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let data = match (method, path) {
        ("GET", ["status"]) if !instance.connected => return Err((400, "client disconnected")),
        ("GET", ["status"]) => json!({
            "Connected": instance.connected, "LoggedIn": instance.logged_in,
            "Name": if instance.logged_in { "Loja" } else { "" },
        }),
        // Every call overwrites all of these settings, also those that the caller left out.
        ("POST", ["connect"]) => {
            let body = body()?;
            let list = body["subscribe"].as_array().cloned().unwrap_or_default();
            let events: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            instance.webhook = text(&body["webhookUrl"]);
            instance.events =
                if events.is_empty() { "MESSAGE".to_owned() } else { events.join(",") };
            instance.rabbitmq = text(&body["rabbitmqEnable"]);
            instance.connected = true;
            json!({ "jid": "", "webhookUrl": instance.webhook, "eventString": instance.events })
        }
        ("GET", ["qr"]) if instance.logged_in => return Err((400, "session already logged in")),
        ("GET", ["qr"]) => json!({ "Qrcode": "data:image/png;base64,AAAA", "Code": "2@qr" }),
        ("POST", ["pair"]) if instance.logged_in => {
            return Err((500, "instance is already authenticated"));
        }
        ("POST", ["pair"]) => {
            require_fields(&body()?, &[("phone", "phone is required")])?;
            json!({ "PairingCode": EvolutionGo::PAIRING_CODE })
        }
        ("GET", ["all"]) => json!([instance_details(instance)]),
        ("GET", ["info", EvolutionGo::ID]) => instance_details(instance),
        ("POST", ["proxy", EvolutionGo::ID]) => {
            let body = body()?;
            if !["host", "port"].iter().all(|field| body[*field].is_string()) {
                return Err((400, "json: cannot unmarshal into a field of type string"));
            }
            require_fields(&body, &[("host", "host is required"), ("port", "port is required")])?;
            let has_auth = body["username"] != "" && body["password"] != "";
            let data = json!({ "host": body["host"], "port": body["port"], "hasAuth": has_auth });
            instance.proxy = Some(body);
            data
        }
        ("DELETE", ["proxy", EvolutionGo::ID]) => {
            instance.proxy = None;
            Value::Null
        }
        (_, ["info" | "proxy", _]) => return Err((500, "record not found")),
        _ => return Err((404, "404 page not found")),
    };
    Ok(json_reply(200, &json!({ "message": "success", "data": data })))
}

/// The instance as the admin API returns it, always without the proxy.
fn instance_details(instance: &GoInstance) -> Value {
    json!({
        "id": EvolutionGo::ID, "name": EvolutionGo::NAME, "token": EvolutionGo::TOKEN,
        "webhook": instance.webhook, "events": instance.events,
        "rabbitmqEnable": instance.rabbitmq, "websocketEnable": "", "natsEnable": "",
        "jid": "", "qrcode": "", "connected": instance.logged_in, "proxy": "",
    })
}
