//! `surehook evolution`: looking after the instances that messages are sent through.

mod api;
mod go;
mod target;
mod wire;

use std::{borrow::Cow, path::Path};

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};
use surehook_core::channel::{
    Recipient,
    instance::{InstanceLink, InstanceProxy, InstanceState},
};

use self::{api::Api, go::Go, target::Target};
use super::files;
use crate::{
    cli::{ConnectArgs, EvolutionCommand, InstanceArgs, Product, ProxyArgs, ProxyCommand},
    failure::Failure,
    output,
};

/// An instance of one of the two.
enum Instance {
    Go(Go),
    Api(Api),
}

/// What is wanted of `connect`.
struct Wish<'a> {
    webhook: Option<&'a str>,
    events: Vec<String>,
    phone: Option<String>,
    wants_qr: bool,
}

/// What came of it.
struct Connected {
    webhook: Option<String>,
    events: Vec<String>,
    state: InstanceState,
    link: Option<InstanceLink>,
}

pub(super) async fn run(command: EvolutionCommand) -> Result<(), Failure> {
    match command {
        EvolutionCommand::Status { at } => status(&at).await,
        EvolutionCommand::Connect(args) => connect(&args).await,
        EvolutionCommand::Proxy(ProxyCommand::Show { at }) => show_proxy(&at).await,
        EvolutionCommand::Proxy(ProxyCommand::Set(args)) => set_proxy(&args).await,
        EvolutionCommand::Proxy(ProxyCommand::Clear { at }) => clear_proxy(&at).await,
    }
}

fn instance(at: &InstanceArgs) -> Result<Instance, Failure> {
    let target = Target::new(at)?;
    Ok(match target.product {
        Product::Go => Instance::Go(Go::new(target)?),
        Product::Api => Instance::Api(Api::new(&target)?),
    })
}

/// Prints an object: on a line for programs, its fields under each other for people.
fn print(at: &InstanceArgs, object: &Value, names: &[&str]) -> Result<(), Failure> {
    if at.json {
        return Ok(output::line(&object.to_string())?);
    }
    Ok(output::fields(object, names)?)
}

async fn status(at: &InstanceArgs) -> Result<(), Failure> {
    let state = match instance(at)? {
        Instance::Go(go) => go.status().await?,
        Instance::Api(api) => api.status().await?,
    };
    let name = if let InstanceState::Connected(name) = &state { name.clone() } else { None };
    let told = json!({ "state": state.as_str(), "connected": state.is_connected(), "name": name });
    print(at, &told, &["state", "name"])?;
    if state.is_connected() {
        return Ok(());
    }
    output::note(match state {
        InstanceState::NotLinked => "no phone is linked: surehook evolution connect --phone NUMBER",
        InstanceState::Connecting => {
            "it waits for a phone: surehook evolution connect --phone NUMBER"
        }
        InstanceState::Connected(_) | InstanceState::Disconnected | InstanceState::Unknown => {
            "to connect it: surehook evolution connect"
        }
    });
    Err(Failure::findings())
}

async fn connect(args: &ConnectArgs) -> Result<(), Failure> {
    let phone = args.phone.as_deref().map(digits).transpose()?;
    if let Some(url) = &args.webhook
        && !url::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
    {
        return Err(Failure::refused(anyhow!(
            "--webhook is no address: write http://… or https://…"
        )));
    }
    let events = args.subscribe.iter().map(|event| event.trim().to_uppercase());
    let wish = Wish {
        webhook: args.webhook.as_deref(),
        events: events.filter(|event| !event.is_empty()).collect(),
        phone,
        wants_qr: args.qr.is_some(),
    };
    let done = match instance(&args.at)? {
        Instance::Go(go) => go.connect(&wish).await?,
        Instance::Api(api) => api.connect(&wish).await?,
    };
    let link = done.link.unwrap_or_default();
    let told = json!({
        "state": done.state.as_str(),
        "connected": done.state.is_connected(),
        "webhook": done.webhook,
        "events": done.events,
        "pairing_code": link.pairing_code,
        "code": link.code,
    });
    let names: &[&str] = match link.pairing_code {
        Some(_) => &["state", "webhook", "events", "pairing_code"],
        None => &["state", "webhook", "events"],
    };
    print(&args.at, &told, names)?;
    if let Some(file) = &args.qr {
        match &link.picture {
            Some(picture) => write_picture(file, picture)?,
            None if done.state.is_connected() => output::note("a phone is linked already"),
            None => {
                let error = anyhow!("the server has no QR code yet");
                return Err(Failure::refused(error).hint("try again in a few seconds"));
            }
        }
    }
    if link.pairing_code.is_some() {
        output::note(
            "type the code into the phone: WhatsApp, Linked devices, Link with phone number",
        );
    } else if !done.state.is_connected() && args.qr.is_none() {
        output::note(
            "if no phone is linked yet: --phone NUMBER asks for a code to be typed in, --qr FILE \
             writes a picture to be scanned",
        );
    }
    Ok(())
}

/// The digits of a phone number in any form.
fn digits(phone: &str) -> Result<String, Failure> {
    match Recipient::parse(phone) {
        Some(Recipient::Phone(digits)) => Ok(digits),
        _ => Err(Failure::refused(anyhow!(
            "--phone is no phone number: write it with its country, such as +55 11 98765-4321"
        ))),
    }
}

/// Writes what a `data:` address holds.
fn write_picture(file: &Path, picture: &str) -> Result<(), Failure> {
    let encoded = picture.split_once(";base64,").map_or(picture, |(_, encoded)| encoded);
    let bytes = data_encoding::BASE64
        .decode(encoded.trim().as_bytes())
        .map_err(|_| anyhow!("the QR code of the server is no picture"))?;
    std::fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))?;
    output::note(&format!(
        "scan {} with the phone: WhatsApp, Linked devices, Link a device",
        file.display()
    ));
    Ok(())
}

async fn show_proxy(at: &InstanceArgs) -> Result<(), Failure> {
    let proxy = match instance(at)? {
        Instance::Go(_) => {
            let error = anyhow!("Evolution Go does not show the proxy of an instance");
            return Err(Failure::refused(error).hint("set it again, or take it away with `clear`"));
        }
        Instance::Api(api) => api.proxy().await?,
    };
    match proxy {
        Some(proxy) => print(at, &proxy, &["host", "port", "protocol", "user", "password_set"]),
        None if at.json => Ok(output::line("null")?),
        None => Ok(output::line("No proxy.")?),
    }
}

async fn set_proxy(args: &ProxyArgs) -> Result<(), Failure> {
    let password = match (args.password_stdin, &args.password) {
        (true, _) => {
            let text = files::read_text(Path::new("-"))?;
            Some(Cow::Owned(text.trim_end_matches(['\r', '\n']).to_owned()))
        }
        (false, password) => password.as_deref().map(Cow::Borrowed),
    };
    // What was read is the password itself, whatever it looks like.
    let password = match (args.password_stdin, password.filter(|text| !text.is_empty())) {
        (true, Some(text)) => Some(surehook_core::secret::Secret::new(text.into_owned())),
        (false, Some(text)) => Some(target::secret(&text, "--password")?),
        (_, None) => None,
    };
    let (protocol, user) = (args.protocol.as_deref(), args.user.as_deref());
    let proxy = InstanceProxy::new(&args.host, args.port, protocol, user, password);
    let proxy = proxy.map_err(|error| {
        Failure::refused(error).hint("--host, --port, --user, and --password or --password-stdin")
    })?;
    match instance(&args.at)? {
        Instance::Go(go) => go.set_proxy(&proxy).await?,
        Instance::Api(api) => api.set_proxy(&proxy).await?,
    }
    let told = json!({ "host": args.host, "port": args.port, "user": user });
    print(&args.at, &told, &["host", "port", "user"])
}

async fn clear_proxy(at: &InstanceArgs) -> Result<(), Failure> {
    match instance(at)? {
        Instance::Go(go) => go.clear_proxy().await?,
        Instance::Api(api) => api.clear_proxy().await?,
    }
    if at.json { Ok(output::line("null")?) } else { Ok(output::line("No proxy.")?) }
}
