//! `surehook send`: a message or a webhook, and what becomes of it.

use std::{path::Path, time::Duration};

use anyhow::anyhow;
use data_encoding::HEXLOWER;
use indicatif::ProgressBar;
use serde_json::{Map, Value, json, value::RawValue};
use surehook_core::{destination::kind::DestinationKind, rng::Rng as _};
use surehook_engine::system::SystemRng;

use super::files;
use crate::{
    cli::{ContentArgs, Remote, SendArgs},
    client::{Client, query},
    failure::Failure,
    output,
};

/// How often a message is looked at while it is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) async fn run(args: &SendArgs) -> Result<(), Failure> {
    let client = Client::new(&args.remote)?;
    let new_key = || HEXLOWER.encode(&SystemRng.next_u128().to_be_bytes());
    let key = args.idempotency_key.clone().unwrap_or_else(new_key);
    let wish = wish(&client, args, &key).await?;
    let sent = client.post_once("/messages", wish, &key).await;
    let mut answer = sent.map_err(|failure| match failure.is_unreachable() {
        // Nobody knows whether it was taken.
        true => failure.hint(&format!("ask again with --idempotency-key {key}; it is sent once")),
        false => failure,
    })?;
    let id = answer["id"].as_str().unwrap_or_default().to_owned();
    answer["idempotency_key"] = json!(key);
    if args.remote.json {
        output::line(&answer.to_string())?;
    } else {
        let destination = output::cell(&answer["destination"]);
        output::line(&format!("{id} is accepted for {destination}"))?;
        output::note(&format!("idempotency key: {key}"));
    }
    if args.wait { follow(&client, &args.remote, &id).await } else { Ok(()) }
}

/// What is asked for, as JSON.
async fn wish(client: &Client, args: &SendArgs, key: &str) -> Result<String, Failure> {
    let mut wish = Map::new();
    wish.insert("destination".to_owned(), json!(args.destination));
    if let Some(delay) = args.delay {
        wish.insert("delay".to_owned(), json!(delay));
    }
    if let Some(body) = &args.content.body {
        return webhook(wish, args.content.kind.as_deref(), body);
    }
    wish.insert("to".to_owned(), json!(args.to));
    if let Some(message) = &args.reply_to {
        wish.insert("reply_to".to_owned(), json!(message));
    }
    let (name, value) = match media(&args.content) {
        Some((name, given)) => (name, file(client, args, given, key).await?),
        None => content(&args.content),
    };
    wish.insert(name.to_owned(), value);
    Ok(Value::Object(wish).to_string())
}

/// A webhook keeps its body as it is written.
fn webhook(wish: Map<String, Value>, kind: Option<&str>, body: &str) -> Result<String, Failure> {
    let text = match body.strip_prefix('@') {
        Some(file) => files::read_text(Path::new(file))?,
        None => body.to_owned(),
    };
    let body: Box<RawValue> = serde_json::from_str(&text)
        .map_err(|error| Failure::refused(anyhow!("the body is not JSON: {error}")))?;
    let mut all = serde_json::to_string(&wish)?;
    // An object with one field at least: the next ones are put before its end.
    all.pop();
    if let Some(kind) = kind {
        all.push_str(&format!(",\"type\":{}", json!(kind)));
    }
    Ok(format!("{all},\"body\":{}}}", body.get()))
}

/// The field of a message that is a file, and where the file is.
fn media(args: &ContentArgs) -> Option<(&'static str, &str)> {
    let media = [
        ("image", &args.image),
        ("video", &args.video),
        ("audio", &args.audio),
        ("document", &args.document),
        ("sticker", &args.sticker),
    ];
    media.into_iter().find_map(|(name, given)| Some((name, given.as_deref()?)))
}

/// The field of any other message, and what it holds.
fn content(args: &ContentArgs) -> (&'static str, Value) {
    if let Some(text) = &args.text {
        return ("text", json!(text));
    }
    if let Some((latitude, longitude)) = args.location {
        let place = json!({ "latitude": latitude, "longitude": longitude, "name": args.name, "address": args.address });
        return ("location", place);
    }
    if let Some(emoji) = &args.react {
        return ("reaction", json!({ "message_id": args.message_id, "emoji": emoji }));
    }
    if let Some(name) = &args.template {
        return ("template", template(name, args));
    }
    let person = |(name, phone): &(String, String)| json!({ "name": name, "phone": phone });
    ("contact", args.contact.iter().map(person).collect())
}

/// A file as a message names it: by its URL, or by what it is called once it was handed over.
async fn file(client: &Client, args: &SendArgs, given: &str, key: &str) -> Result<Value, Failure> {
    let is_url = given.starts_with("http://") || given.starts_with("https://");
    let mut file = match is_url {
        true => json!({ "url": given }),
        false => upload(client, &args.destination, Path::new(given), key).await?,
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

/// Hands a file over: to the Cloud API itself where that sends, otherwise into the bucket. The same key
/// again gets the same file, so that the message stays the same too.
async fn upload(
    client: &Client,
    destination: &str,
    path: &Path,
    key: &str,
) -> Result<Value, Failure> {
    let bytes = files::read(path)?;
    let name = path.file_name().map(|name| name.to_string_lossy());
    let kind = client.get(&format!("/destinations/{destination}")).await?;
    let is_cloud = kind["kind"] == DestinationKind::WhatsappCloud.as_str();
    let to = is_cloud.then_some(destination);
    let asked = query(&[("filename", name.as_deref()), ("destination", to)]);
    let bar = ProgressBar::new_spinner().with_message(format!("handing {} over", path.display()));
    bar.enable_steady_tick(LOOK_EVERY);
    let taken = client.upload(&format!("/media{asked}"), bytes, &format!("{key}-file")).await?;
    bar.finish_and_clear();
    let (field, id) = if is_cloud { ("media_id", "media_id") } else { ("file", "id") };
    Ok(json!({ field: taken[id] }))
}

fn template(name: &str, args: &ContentArgs) -> Value {
    let blank = |text: &String| json!({ "type": "text", "text": text });
    let blanks: Vec<Value> = args.param.iter().map(blank).collect();
    let components = match blanks.is_empty() {
        true => json!([]),
        false => json!([{ "type": "body", "parameters": blanks }]),
    };
    json!({ "name": name, "language": args.language, "components": components })
}

/// Follows a message until it is sent, or will not be.
async fn follow(client: &Client, remote: &Remote, id: &str) -> Result<(), Failure> {
    // Draws on a terminal only.
    let bar = if remote.json { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    let mut last = Value::Null;
    let message = loop {
        let message = client.get(&format!("/messages/{id}")).await?;
        if message["status"] != last {
            last = message["status"].clone();
            bar.set_message(output::cell(&last));
            if remote.json {
                output::line(&message.to_string())?;
            }
        }
        bar.tick();
        match message["status"].as_str() {
            Some("accepted" | "sending") => {}
            Some(_) | None => break message,
        }
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {
                let said = anyhow!("it is sent all the same; `surehook events show {id}` tells what became of it");
                return Err(Failure::interrupted(said));
            }
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    };
    bar.finish_and_clear();
    if !remote.json {
        output::fields(&message, &["id", "status", "reason", "attempts", "sent_id"])?;
    }
    match message["status"].as_str() {
        Some("failed" | "cancelled") => {
            let error = anyhow!("the message was not sent: {}", output::cell(&message["status"]));
            Err(Failure::from(error).hint(&format!("`surehook events show {id}` tells why")))
        }
        Some(_) | None => Ok(()),
    }
}
