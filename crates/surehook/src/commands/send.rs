//! `surehook send`: sends a message or a webhook, and follows its status.

use std::{path::Path, time::Duration};

use anyhow::anyhow;
use clap::{ArgGroup, Args};
use data_encoding::HEXLOWER;
use indicatif::ProgressBar;
use serde_json::{
    Map, Value, json,
    value::{RawValue, to_raw_value},
};
use surehook_api::{ApiTransport as _, calls};
use surehook_core::{destination::kind::DestinationKind, message_status::MessageStatus};
use surehook_engine::system::SystemRng;
use surehook_types::{rng::Rng as _, time::HumanDuration};

use super::files;
use crate::{cli::GatewayArgs, client::ApiClient, error::CliError, output};

#[derive(Debug, Args)]
#[command(
    mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)),
    group(ArgGroup::new("what").required(true)),
)]
pub(crate) struct SendArgs {
    /// Destination name or id; or a URL for a webhook, if the token allows it
    destination: String,
    /// Recipient: a phone number with country code, a group (…@g.us) or a BSUID
    #[arg(long, value_name = "RECIPIENT", required_unless_present = "body")]
    to: Option<String>,
    #[command(flatten)]
    content: MessageContentArgs,
    /// Id of the message to reply to
    #[arg(long, value_name = "ID", conflicts_with_all = ["react", "body"])]
    reply_to: Option<String>,
    /// Delay before sending, such as 10m
    #[arg(long, value_name = "SPAN")]
    delay: Option<HumanDuration>,
    /// Idempotency key: repeated commands with the same key send once [default: a new key]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Wait until the message is sent or has failed
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    remote: GatewayArgs,
}

/// Content of the message.
#[derive(Debug, Default, Args)]
struct MessageContentArgs {
    /// Text message
    #[arg(long, group = "what")]
    text: Option<String>,
    /// Image: URL or file
    #[arg(long, group = "what", value_name = "URL|FILE")]
    image: Option<String>,
    /// Video: URL or file
    #[arg(long, group = "what", value_name = "URL|FILE")]
    video: Option<String>,
    /// Audio: URL or file
    #[arg(long, group = "what", value_name = "URL|FILE")]
    audio: Option<String>,
    /// Document: URL or file
    #[arg(long, group = "what", value_name = "URL|FILE")]
    document: Option<String>,
    /// Sticker: URL or file
    #[arg(long, group = "what", value_name = "URL|FILE")]
    sticker: Option<String>,
    /// Caption of an image, video or document
    #[arg(long, requires = "what", conflicts_with_all = ["text", "audio", "sticker", "location", "contact", "react", "template", "body"])]
    caption: Option<String>,
    /// File name of the document
    #[arg(long, requires = "document")]
    filename: Option<String>,
    /// Send the audio as a voice message
    #[arg(long, requires = "audio")]
    voice: bool,
    /// Location, as latitude and longitude in degrees
    #[arg(long, group = "what", value_name = "LAT,LON", value_parser = parse_location, allow_hyphen_values = true)]
    location: Option<(f64, f64)>,
    /// Name of the location
    #[arg(long, requires = "location")]
    name: Option<String>,
    /// Address of the location
    #[arg(long, requires = "location")]
    address: Option<String>,
    /// Contact; repeatable
    #[arg(long, group = "what", value_name = "NAME:PHONE", value_parser = parse_contact)]
    contact: Vec<(String, String)>,
    /// Reaction to a message; an empty emoji removes it
    #[arg(long, group = "what", value_name = "EMOJI", requires = "message_id")]
    react: Option<String>,
    /// Id of the message to react to
    #[arg(long, value_name = "ID", requires = "react")]
    message_id: Option<String>,
    /// Name of an approved template
    #[arg(long, group = "what", value_name = "NAME", requires = "language")]
    template: Option<String>,
    /// Language of the template, such as `pt_BR`
    #[arg(long, requires = "template")]
    language: Option<String>,
    /// Parameter of the template; repeatable, in order
    #[arg(long, value_name = "TEXT", requires = "template")]
    param: Vec<String>,
    /// Body of a webhook: JSON, `@FILE`, or `@-` for standard input
    #[arg(long, group = "what", value_name = "JSON|@FILE", conflicts_with = "to")]
    body: Option<String>,
    /// Event type of the webhook, such as order.paid
    #[arg(long = "type", value_name = "TYPE", requires = "body")]
    kind: Option<String>,
    /// Report the end of the webhook's delivery to this URL or destination
    #[arg(long, value_name = "URL|DESTINATION", requires = "body")]
    callback: Option<String>,
}

fn parse_location(text: &str) -> Result<(f64, f64), String> {
    let parse = |part: &str| part.trim().parse::<f64>().ok().filter(|degrees| degrees.is_finite());
    let location = text.split_once(',').and_then(|(lat, lon)| Some((parse(lat)?, parse(lon)?)));
    location.ok_or_else(|| "expected LATITUDE,LONGITUDE in degrees".to_owned())
}

fn parse_contact(text: &str) -> Result<(String, String), String> {
    let pair = text.rsplit_once(':').filter(|(name, phone)| !name.is_empty() && !phone.is_empty());
    let (name, phone) = pair.ok_or("expected NAME:PHONE")?;
    Ok((name.to_owned(), phone.to_owned()))
}

const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub(super) async fn run(args: &SendArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.remote)?;
    let new_key = || HEXLOWER.encode(&SystemRng.next_u128().to_be_bytes());
    let key = args.idempotency_key.clone().unwrap_or_else(new_key);
    let request = build_request(&client, args, &key).await?;
    let sent = client.call(calls::send_message(&request).idempotent(&key)).await;
    let message = sent.map_err(|failure| match failure.is_unreachable() {
        // It is unknown whether the gateway received the request.
        true => failure
            .hint(&format!("Retry with --idempotency-key {key}; the message is sent only once.")),
        false => failure,
    })?;
    let id = message.id.to_string();
    if args.remote.json {
        let mut line = json!(message);
        line["idempotency_key"] = json!(key);
        output::print_line(line)?;
    } else {
        output::print_line(format!("{id} accepted for {}", message.destination))?;
        output::note(&format!("idempotency key: {key}"));
    }
    if args.wait { follow(&client, &args.remote, &id).await } else { Ok(()) }
}

/// The request body as JSON.
async fn build_request(
    client: &ApiClient,
    args: &SendArgs,
    key: &str,
) -> Result<Box<RawValue>, CliError> {
    let mut request = Map::new();
    let field = if is_url(&args.destination) { "url" } else { "destination" };
    request.insert(field.to_owned(), json!(args.destination));
    if let Some(callback) = &args.content.callback {
        let field = if is_url(callback) { "url" } else { "destination" };
        request.insert("callback".to_owned(), json!({ field: callback }));
    }
    if let Some(delay) = args.delay {
        request.insert("delay".to_owned(), json!(delay));
    }
    if let Some(body) = &args.content.body {
        return build_webhook(request, args.content.kind.as_deref(), body);
    }
    request.insert("to".to_owned(), json!(args.to));
    if let Some(message) = &args.reply_to {
        request.insert("reply_to".to_owned(), json!(message));
    }
    let (name, value) = match media_field(&args.content) {
        Some((name, url_or_file)) => (name, build_file(client, args, url_or_file, key).await?),
        None => content_field(&args.content),
    };
    request.insert(name.to_owned(), value);
    Ok(to_raw_value(&request)?)
}

/// Inserts the body of a webhook byte for byte.
fn build_webhook(
    request: Map<String, Value>,
    kind: Option<&str>,
    body: &str,
) -> Result<Box<RawValue>, CliError> {
    let text = match body.strip_prefix('@') {
        Some(file) => files::read_text(Path::new(file))?,
        None => body.to_owned(),
    };
    let body: Box<RawValue> = serde_json::from_str(&text)
        .map_err(|error| CliError::refused(anyhow!("the body is not valid JSON: {error}")))?;
    let mut all = serde_json::to_string(&request)?;
    // A non-empty object: further fields are inserted before its closing brace.
    all.pop();
    if let Some(kind) = kind {
        all.push_str(&format!(",\"type\":{}", json!(kind)));
    }
    Ok(RawValue::from_string(format!("{all},\"body\":{}}}", body.get()))?)
}

/// The media field of a message, with its URL or file.
fn media_field(args: &MessageContentArgs) -> Option<(&'static str, &str)> {
    let media = [
        ("image", &args.image),
        ("video", &args.video),
        ("audio", &args.audio),
        ("document", &args.document),
        ("sticker", &args.sticker),
    ];
    media.into_iter().find_map(|(name, url_or_file)| Some((name, url_or_file.as_deref()?)))
}

/// The field of a message without a file, and its value.
fn content_field(args: &MessageContentArgs) -> (&'static str, Value) {
    if let Some(text) = &args.text {
        return ("text", json!(text));
    }
    if let Some((latitude, longitude)) = args.location {
        let location = json!({ "latitude": latitude, "longitude": longitude, "name": args.name, "address": args.address });
        return ("location", location);
    }
    if let Some(emoji) = &args.react {
        return ("reaction", json!({ "message_id": args.message_id, "emoji": emoji }));
    }
    if let Some(name) = &args.template {
        return ("template", build_template(name, args));
    }
    let person = |(name, phone): &(String, String)| json!({ "name": name, "phone": phone });
    ("contact", args.contact.iter().map(person).collect())
}

/// A reference to a file: by URL, or by its id after uploading it.
async fn build_file(
    client: &ApiClient,
    args: &SendArgs,
    url_or_file: &str,
    key: &str,
) -> Result<Value, CliError> {
    let mut file = match is_url(url_or_file) {
        true => json!({ "url": url_or_file }),
        false => upload(client, &args.destination, Path::new(url_or_file), key).await?,
    };
    let args = &args.content;
    for (name, value) in [("caption", &args.caption), ("filename", &args.filename)] {
        if let Some(value) = value {
            file[name] = json!(value);
        }
    }
    if args.voice {
        file["voice"] = json!(true);
    }
    Ok(file)
}

fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// Uploads a file: to the Cloud API if the destination uses it, otherwise to the bucket. The same key
/// returns the same file, so that a repeated message is identical.
async fn upload(
    client: &ApiClient,
    destination: &str,
    path: &Path,
    key: &str,
) -> Result<Value, CliError> {
    let bytes = files::read(path)?;
    let name = path.file_name().map(|name| name.to_string_lossy());
    // As JSON, because a destination with a masked token is not a valid spec.
    let kind = client.call_json(calls::get_destination(destination)).await?["kind"].take();
    let to = (kind == DestinationKind::WhatsappCloud.as_str()).then_some(destination);
    let call = calls::upload_media(bytes)
        .query_some("filename", name.as_deref())
        .query_some("destination", to)
        .idempotent(&format!("{key}-file"));
    let bar = ProgressBar::new_spinner().with_message(format!("uploading {}", path.display()));
    bar.enable_steady_tick(POLL_INTERVAL);
    let uploaded = client.call(call).await?;
    bar.finish_and_clear();
    Ok(match uploaded.media_id {
        Some(media_id) => json!({ "media_id": media_id }),
        None => json!({ "file": uploaded.id }),
    })
}

fn build_template(name: &str, args: &MessageContentArgs) -> Value {
    let parameter = |text: &String| json!({ "type": "text", "text": text });
    let parameters: Vec<Value> = args.param.iter().map(parameter).collect();
    let components = match parameters.is_empty() {
        true => json!([]),
        false => json!([{ "type": "body", "parameters": parameters }]),
    };
    json!({ "name": name, "language": args.language, "components": components })
}

/// Follows a message until it is sent or has failed.
async fn follow(client: &ApiClient, remote: &GatewayArgs, id: &str) -> Result<(), CliError> {
    // indicatif draws only on a terminal.
    let bar = if remote.json { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    let mut last = None;
    let message = loop {
        let detail = client.call(calls::get_message(id)).await?;
        let status = detail.message.status;
        if last.replace(status) != Some(status) {
            bar.set_message(status.as_str());
            if remote.json {
                output::print_line(json!(detail))?;
            }
        }
        bar.tick();
        if !matches!(status, MessageStatus::Accepted | MessageStatus::Sending) {
            break detail.message;
        }
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {
                let error = anyhow!("the message is still sent; see `surehook events show {id}`");
                return Err(CliError::interrupted(error));
            }
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    };
    bar.finish_and_clear();
    if !remote.json {
        let names = ["id", "status", "reason", "attempts", "message_id"];
        output::print_fields(&json!(message), &names)?;
    }
    if matches!(message.status, MessageStatus::Failed | MessageStatus::Cancelled) {
        let error = anyhow!("the message was not sent: {}", message.status.as_str());
        return Err(CliError::from(error).hint(&format!("See `surehook events show {id}`")));
    }
    Ok(())
}
