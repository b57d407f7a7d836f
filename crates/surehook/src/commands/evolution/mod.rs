//! `surehook evolution`: status, connection and proxy of Evolution instances.

mod api;
mod evolution_client;
mod go;
mod target;

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use surehook_messaging::{
    Recipient,
    instance::{InstanceProxy, InstanceState, PROTOCOLS, PhoneLinkCodes},
};

use self::{api::ApiInstance, go::GoInstance, target::InstanceTarget};
use super::files;
use crate::{error::CliError, output};

#[derive(Debug, Subcommand)]
pub(crate) enum EvolutionCommand {
    /// Check whether an instance is connected; exit code 8 if not
    Status {
        #[command(flatten)]
        instance_args: InstanceArgs,
    },
    /// Connect an instance; its webhook is kept unless you set another
    Connect(ConnectArgs),
    /// Show, set or clear the proxy of an instance
    #[command(subcommand)]
    Proxy(ProxyCommand),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EvolutionProduct {
    /// Evolution Go
    Go,
    /// Evolution API
    Api,
}

/// Identifies an instance.
#[derive(Clone, Debug, Args)]
pub(crate) struct InstanceArgs {
    /// Use the instance, URL and token of this destination in the settings file
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
    /// Settings file with the destination [default: surehook.toml]
    #[arg(long, value_name = "FILE", env = "SUREHOOK_CONFIG")]
    config: Option<PathBuf>,
    /// Evolution Go or Evolution API
    #[arg(long, default_value = "go")]
    service: EvolutionProduct,
    /// URL of the server, such as <https://evolution.example.com>
    #[arg(long, env = "EVOLUTION_URL")]
    url: Option<String>,
    /// Instance name (Evolution Go: name or id; optional, the token identifies it)
    #[arg(long, value_name = "NAME", env = "EVOLUTION_INSTANCE")]
    instance: Option<String>,
    /// Instance token, or env:NAME
    #[arg(long, env = "EVOLUTION_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Server API key, or env:NAME (Evolution Go: `GLOBAL_API_KEY`, required for proxies)
    #[arg(long, value_name = "KEY", env = "EVOLUTION_ADMIN_KEY", hide_env_values = true)]
    admin_key: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// New webhook URL of the instance [default: unchanged]
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,
    /// Subscribed events, such as MESSAGE; repeatable [default: unchanged]
    #[arg(long, value_name = "EVENT", value_delimiter = ',')]
    subscribe: Vec<String>,
    /// Request a pairing code for this phone number
    #[arg(long, value_name = "NUMBER")]
    phone: Option<String>,
    /// Write the QR code to this file, as an image
    #[arg(long, value_name = "FILE", conflicts_with = "phone")]
    qr: Option<PathBuf>,
    #[command(flatten)]
    instance_args: InstanceArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProxyCommand {
    /// Show the proxy without its password; not supported by Evolution Go
    Show {
        #[command(flatten)]
        instance_args: InstanceArgs,
    },
    /// Set the proxy; the instance reconnects
    Set(ProxyArgs),
    /// Remove the proxy
    Clear {
        #[command(flatten)]
        instance_args: InstanceArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ProxyArgs {
    /// Host name or IP address of the proxy
    #[arg(long, env = "EVOLUTION_PROXY_HOST")]
    host: String,
    /// Port of the proxy
    #[arg(long, env = "EVOLUTION_PROXY_PORT")]
    port: u16,
    /// Protocol of the proxy [default: the server's default]
    #[arg(long, value_name = "NAME", value_parser = PROTOCOLS)]
    protocol: Option<String>,
    /// User name
    #[arg(long, env = "EVOLUTION_PROXY_USER")]
    user: Option<String>,
    /// Password, or env:NAME
    #[arg(long, env = "EVOLUTION_PROXY_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Read the password from standard input
    #[arg(long)]
    password_stdin: bool,
    #[command(flatten)]
    instance_args: InstanceArgs,
}

enum Instance {
    Go(GoInstance),
    Api(ApiInstance),
}

struct ConnectRequest<'a> {
    webhook: Option<&'a str>,
    events: Vec<String>,
    phone: Option<String>,
    wants_qr: bool,
}

struct ConnectResult {
    webhook: Option<String>,
    events: Vec<String>,
    state: InstanceState,
    link_codes: Option<PhoneLinkCodes>,
}

pub(super) async fn run(command: EvolutionCommand) -> Result<(), CliError> {
    match command {
        EvolutionCommand::Status { instance_args } => status(&instance_args).await,
        EvolutionCommand::Connect(args) => connect(&args).await,
        EvolutionCommand::Proxy(ProxyCommand::Show { instance_args }) => {
            show_proxy(&instance_args).await
        }
        EvolutionCommand::Proxy(ProxyCommand::Set(args)) => set_proxy(&args).await,
        EvolutionCommand::Proxy(ProxyCommand::Clear { instance_args }) => {
            clear_proxy(&instance_args).await
        }
    }
}

fn open_instance(instance_args: &InstanceArgs) -> Result<Instance, CliError> {
    let target = InstanceTarget::new(instance_args)?;
    Ok(match target.product {
        EvolutionProduct::Go => Instance::Go(GoInstance::new(target)?),
        EvolutionProduct::Api => Instance::Api(ApiInstance::new(&target)?),
    })
}

async fn status(instance_args: &InstanceArgs) -> Result<(), CliError> {
    let state = match open_instance(instance_args)? {
        Instance::Go(go) => go.status().await?,
        Instance::Api(api) => api.status().await?,
    };
    let name = if let InstanceState::Connected(name) = &state { name.clone() } else { None };
    let result =
        json!({ "state": state.as_str(), "connected": state.is_connected(), "name": name });
    output::print_object(instance_args.json, &result, &["state", "name"])?;
    if state.is_connected() {
        return Ok(());
    }
    output::note(match state {
        InstanceState::NotLinked => {
            "No phone is linked. Run: surehook evolution connect --phone NUMBER"
        }
        InstanceState::Connecting => {
            "Waiting for a phone. Run: surehook evolution connect --phone NUMBER"
        }
        InstanceState::Connected(_) | InstanceState::Disconnected | InstanceState::Unknown => {
            "To connect it, run: surehook evolution connect"
        }
    });
    Err(CliError::findings())
}

async fn connect(args: &ConnectArgs) -> Result<(), CliError> {
    let phone = args.phone.as_deref().map(parse_phone).transpose()?;
    if let Some(url) = &args.webhook
        && !url::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
    {
        return Err(CliError::refused(anyhow!("--webhook must be a URL: http://… or https://…")));
    }
    let events = args.subscribe.iter().map(|event| event.trim().to_uppercase());
    let request = ConnectRequest {
        webhook: args.webhook.as_deref(),
        events: events.filter(|event| !event.is_empty()).collect(),
        phone,
        wants_qr: args.qr.is_some(),
    };
    let outcome = match open_instance(&args.instance_args)? {
        Instance::Go(go) => go.connect(&request).await?,
        Instance::Api(api) => api.connect(&request).await?,
    };
    let link_codes = outcome.link_codes.unwrap_or_default();
    let result = json!({
        "state": outcome.state.as_str(),
        "connected": outcome.state.is_connected(),
        "webhook": outcome.webhook,
        "events": outcome.events,
        "pairing_code": link_codes.pairing_code,
        "code": link_codes.code,
    });
    let names: &[&str] = match link_codes.pairing_code {
        Some(_) => &["state", "webhook", "events", "pairing_code"],
        None => &["state", "webhook", "events"],
    };
    output::print_object(args.instance_args.json, &result, names)?;
    if let Some(file) = &args.qr {
        match &link_codes.picture {
            Some(picture) => write_qr_code(file, picture)?,
            None if outcome.state.is_connected() => output::note("A phone is already linked."),
            None => {
                let error = anyhow!("the server has no QR code yet");
                return Err(CliError::refused(error).hint("Try again in a few seconds."));
            }
        }
    }
    if link_codes.pairing_code.is_some() {
        output::note(
            "Enter the code on the phone: WhatsApp, Linked devices, Link with phone number",
        );
    } else if !outcome.state.is_connected() && args.qr.is_none() {
        output::note(
            "If no phone is linked yet: --phone NUMBER requests a pairing code, --qr FILE writes a QR \
             code to scan.",
        );
    }
    Ok(())
}

/// The digits of a phone number in any form.
fn parse_phone(phone: &str) -> Result<String, CliError> {
    match Recipient::parse(phone) {
        Some(Recipient::Phone(digits)) => Ok(digits),
        _ => Err(CliError::refused(anyhow!(
            "--phone must be a phone number with country code, such as +55 11 98765-4321"
        ))),
    }
}

/// Writes the image of a `data:` URL.
fn write_qr_code(file: &Path, picture: &str) -> Result<(), CliError> {
    let encoded = picture.split_once(";base64,").map_or(picture, |(_, encoded)| encoded);
    let bytes = data_encoding::BASE64
        .decode(encoded.trim().as_bytes())
        .map_err(|_| anyhow!("the QR code of the server is not a valid image"))?;
    std::fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))?;
    output::note(&format!(
        "Scan {} with the phone: WhatsApp, Linked devices, Link a device",
        file.display()
    ));
    Ok(())
}

async fn show_proxy(instance_args: &InstanceArgs) -> Result<(), CliError> {
    let proxy = match open_instance(instance_args)? {
        Instance::Go(_) => {
            let error = anyhow!("Evolution Go does not show the proxy of an instance");
            return Err(CliError::refused(error).hint("Set it again, or remove it with `clear`."));
        }
        Instance::Api(api) => api.proxy().await?,
    };
    match proxy {
        Some(proxy) => output::print_object(
            instance_args.json,
            &proxy,
            &["host", "port", "protocol", "user", "password_set"],
        ),
        None => output::print_result(instance_args.json, &Value::Null, "No proxy."),
    }
}

async fn set_proxy(args: &ProxyArgs) -> Result<(), CliError> {
    let password = match (args.password_stdin, &args.password) {
        (true, _) => {
            let text = files::read_text(Path::new("-"))?;
            Some(Cow::Owned(text.trim_end_matches(['\r', '\n']).to_owned()))
        }
        (false, password) => password.as_deref().map(Cow::Borrowed),
    };
    // A password from standard input is never a reference such as env:NAME.
    let password = match (args.password_stdin, password.filter(|text| !text.is_empty())) {
        (true, Some(text)) => Some(surehook_types::secret::Secret::new(text.into_owned())),
        (false, Some(text)) => Some(target::parse_secret(&text, "--password")?),
        (_, None) => None,
    };
    let (protocol, user) = (args.protocol.as_deref(), args.user.as_deref());
    let proxy = InstanceProxy::new(&args.host, args.port, protocol, user, password);
    let proxy = proxy.map_err(|error| {
        CliError::refused(error)
            .hint("Check --host, --port, --user, and --password or --password-stdin.")
    })?;
    match open_instance(&args.instance_args)? {
        Instance::Go(go) => go.set_proxy(&proxy).await?,
        Instance::Api(api) => api.set_proxy(&proxy).await?,
    }
    let result = json!({ "host": args.host, "port": args.port, "user": user });
    output::print_object(args.instance_args.json, &result, &["host", "port", "user"])
}

async fn clear_proxy(instance_args: &InstanceArgs) -> Result<(), CliError> {
    match open_instance(instance_args)? {
        Instance::Go(go) => go.clear_proxy().await?,
        Instance::Api(api) => api.clear_proxy().await?,
    }
    output::print_result(instance_args.json, &Value::Null, "No proxy.")
}
