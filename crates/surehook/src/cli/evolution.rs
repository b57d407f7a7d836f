//! `surehook evolution`: instances of Evolution Go and Evolution API.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use surehook_messaging::instance::PROTOCOLS;

#[derive(Debug, Subcommand)]
pub(crate) enum EvolutionCommand {
    /// Check whether an instance is connected; exit code 8 if not
    Status {
        #[command(flatten)]
        at: InstanceArgs,
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
    pub(crate) destination: Option<String>,
    /// Settings file with the destination [default: surehook.toml]
    #[arg(long, value_name = "FILE", env = "SUREHOOK_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Evolution Go or Evolution API
    #[arg(long, default_value = "go")]
    pub(crate) service: EvolutionProduct,
    /// URL of the server, such as <https://evolution.example.com>
    #[arg(long, env = "EVOLUTION_URL")]
    pub(crate) url: Option<String>,
    /// Instance name (Evolution Go: name or id; optional, the token identifies it)
    #[arg(long, value_name = "NAME", env = "EVOLUTION_INSTANCE")]
    pub(crate) instance: Option<String>,
    /// Instance token, or env:NAME
    #[arg(long, env = "EVOLUTION_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Server API key, or env:NAME (Evolution Go: `GLOBAL_API_KEY`, required for proxies)
    #[arg(long, value_name = "KEY", env = "EVOLUTION_ADMIN_KEY", hide_env_values = true)]
    pub(crate) admin_key: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// New webhook URL of the instance [default: unchanged]
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Option<String>,
    /// Subscribed events, such as MESSAGE; repeatable [default: unchanged]
    #[arg(long, value_name = "EVENT", value_delimiter = ',')]
    pub(crate) subscribe: Vec<String>,
    /// Request a pairing code for this phone number
    #[arg(long, value_name = "NUMBER")]
    pub(crate) phone: Option<String>,
    /// Write the QR code to this file, as an image
    #[arg(long, value_name = "FILE", conflicts_with = "phone")]
    pub(crate) qr: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) at: InstanceArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProxyCommand {
    /// Show the proxy without its password; not supported by Evolution Go
    Show {
        #[command(flatten)]
        at: InstanceArgs,
    },
    /// Set the proxy; the instance reconnects
    Set(ProxyArgs),
    /// Remove the proxy
    Clear {
        #[command(flatten)]
        at: InstanceArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ProxyArgs {
    /// Host name or IP address of the proxy
    #[arg(long, env = "EVOLUTION_PROXY_HOST")]
    pub(crate) host: String,
    /// Port of the proxy
    #[arg(long, env = "EVOLUTION_PROXY_PORT")]
    pub(crate) port: u16,
    /// Protocol of the proxy [default: the server's default]
    #[arg(long, value_name = "NAME", value_parser = PROTOCOLS)]
    pub(crate) protocol: Option<String>,
    /// User name
    #[arg(long, env = "EVOLUTION_PROXY_USER")]
    pub(crate) user: Option<String>,
    /// Password, or env:NAME
    #[arg(long, env = "EVOLUTION_PROXY_PASSWORD", hide_env_values = true)]
    pub(crate) password: Option<String>,
    /// Read the password from standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,
    #[command(flatten)]
    pub(crate) at: InstanceArgs,
}
