//! A fake of WhatsApp's Cloud API.

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use super::{
    super::sink::{Reply, Sink, SinkRequest},
    FakeChannel, RecordedMessage,
    fake_channel::json_reply,
    form::{self, FormPart},
    meta_errors::error,
};

const TYPES: [&str; 10] = [
    "text", "image", "video", "audio", "document", "sticker", "location", "contacts", "reaction",
    "template",
];
const MEDIA: [&str; 5] = ["image", "video", "audio", "document", "sticker"];
/// Maximum length of `biz_opaque_callback_data`.
const CALLBACK_CHARS_MAX: usize = 512;

/// The Cloud API with one phone number. [`Self::send_statuses`] sends status webhooks.
#[derive(Debug)]
pub(crate) struct CloudApi {
    sink: Sink,
    fake_channel: Arc<FakeChannel>,
    uploads: Arc<Mutex<HashMap<String, FormPart>>>,
}

impl Deref for CloudApi {
    type Target = FakeChannel;

    fn deref(&self) -> &FakeChannel {
        &self.fake_channel
    }
}

impl CloudApi {
    /// The id of the sending phone number.
    pub(crate) const SENDER: &str = "106540352242922";
    pub(crate) const TOKEN: &str = "EAAG-test-token";
    /// Signs status webhooks.
    pub(crate) const APP_SECRET: &str = "test-app-secret-of-meta";

    pub(crate) async fn start() -> Self {
        let fake_channel = Arc::new(FakeChannel::default());
        let uploads = Arc::new(Mutex::new(HashMap::new()));
        let (messages, files) = (Arc::clone(&fake_channel), Arc::clone(&uploads));
        let sink = Sink::with_script(move |number, request| {
            let files = &mut *files.lock().unwrap();
            handle_request(&messages, files, number, request)
                .unwrap_or_else(|(status, body)| json_reply(status, &body))
        });
        Self { sink: sink.await, fake_channel, uploads }
    }

    /// The base URL to configure, with a version.
    pub(crate) fn url(&self) -> String {
        format!("{}/v23.0", self.sink.origin())
    }

    /// An uploaded file by its id.
    pub(crate) fn upload(&self, id: &str) -> Option<FormPart> {
        self.uploads.lock().unwrap().get(id).cloned()
    }
}

/// Status and body.
type ErrorResponse = (u16, Value);

fn invalid_parameter(details: &str) -> ErrorResponse {
    (400, error(100, details))
}

fn handle_request(
    fake_channel: &FakeChannel,
    files: &mut HashMap<String, FormPart>,
    number: usize,
    request: &SinkRequest,
) -> Result<Reply, ErrorResponse> {
    let path: Vec<&str> = request.path.split('/').skip(1).collect();
    let [version, sender, call] = path[..] else {
        return Err(invalid_parameter("Unknown path components"));
    };
    if !is_version(version) || request.method != "POST" {
        return Err(invalid_parameter("Unsupported request"));
    }
    if request.header("authorization") != format!("Bearer {}", CloudApi::TOKEN) {
        return Err((401, error(190, "Invalid OAuth access token - Cannot parse access token")));
    }
    if sender != CloudApi::SENDER {
        let mut body = error(100, "Object with this ID does not exist");
        body["error"]["error_subcode"] = json!(33);
        return Err((400, body));
    }
    match call {
        "messages" => send_message(fake_channel, files, number, request),
        "media" => upload_media(files, number, request),
        _ => Err(invalid_parameter("Unknown path components")),
    }
}

fn is_version(text: &str) -> bool {
    let number = text.strip_prefix('v').and_then(|text| text.strip_suffix(".0"));
    number.is_some_and(|number| number.parse::<u8>().is_ok())
}

fn send_message(
    fake_channel: &FakeChannel,
    files: &HashMap<String, FormPart>,
    number: usize,
    request: &SinkRequest,
) -> Result<Reply, ErrorResponse> {
    if !request.header("content-type").starts_with("application/json") {
        return Err(invalid_parameter("The parameter messaging_product is required."));
    }
    let body: Value =
        serde_json::from_slice(&request.body).map_err(|_| invalid_parameter("not JSON"))?;
    if body["messaging_product"] != "whatsapp" {
        return Err(invalid_parameter("The parameter messaging_product is required."));
    }
    let to = body["to"].as_str().or_else(|| body["recipient"].as_str()).unwrap_or_default();
    if to.is_empty() {
        return Err(invalid_parameter("The parameter to is required."));
    }
    let kind = body["type"].as_str().unwrap_or("text");
    if !TYPES.contains(&kind) {
        return Err(invalid_parameter("Param type must be one of the types of messages"));
    }
    if body[kind].is_null() {
        return Err((400, error(131_008, &format!("Parameter '{kind}' is mandatory"))));
    }
    if MEDIA.contains(&kind) {
        match (body[kind]["id"].as_str(), body[kind]["link"].as_str()) {
            (None, Some(_)) => {}
            (Some(id), None) if files.contains_key(id) => {}
            _ => {
                return Err(invalid_parameter(
                    "not a valid media attachment: one `id` of it, or `link`",
                ));
            }
        }
    }
    let our_id = body["biz_opaque_callback_data"].as_str().map(str::to_owned);
    if our_id.as_ref().is_some_and(|id| id.chars().count() > CALLBACK_CHARS_MAX) {
        return Err((400, error(131_009, "biz_opaque_callback_data is too long")));
    }
    let wamid = format!("wamid.HBgN{to}FQIAERgS{number:018}AA==");
    let mut sent = json!({ "id": wamid });
    if kind == "template" {
        sent["message_status"] = json!("accepted");
    }
    let success = json!({
        "messaging_product": "whatsapp",
        "contacts": [{ "input": to, "wa_id": to }],
        "messages": [sent],
    });
    let message = RecordedMessage {
        at: request.at,
        path: request.path.clone(),
        to: to.to_owned(),
        body,
        our_id,
        sent_id: None,
    };
    Ok(fake_channel.handle(message, wamid, json_reply(200, &success)))
}

fn upload_media(
    files: &mut HashMap<String, FormPart>,
    number: usize,
    request: &SinkRequest,
) -> Result<Reply, ErrorResponse> {
    let parts = form::parse(request.header("content-type"), &request.body)
        .ok_or_else(|| invalid_parameter("The parameter file is required."))?;
    let part = |name: &str| parts.iter().find(|part| part.name == name);
    if part("messaging_product").is_none_or(|part| part.bytes != b"whatsapp") {
        return Err(invalid_parameter("The parameter messaging_product is required."));
    }
    let Some(file) = part("file").filter(|file| file.filename.is_some()) else {
        return Err(invalid_parameter("The parameter file is required."));
    };
    let kind = part("type").map(|part| String::from_utf8_lossy(&part.bytes).into_owned());
    if kind.as_ref().or(file.content_type.as_ref()).is_none_or(String::is_empty) {
        return Err(invalid_parameter("Param file must be a file with one of the known types"));
    }
    let id = format!("{}", 1_000_000_000_000_000 + number);
    files.insert(id.clone(), file.clone());
    Ok(json_reply(200, &json!({ "id": id })))
}
