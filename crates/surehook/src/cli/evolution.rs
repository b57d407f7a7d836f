//! Commands about the instances of Evolution Go and Evolution API.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use surehook_core::channel::instance::PROTOCOLS;

#[derive(Debug, Subcommand)]
pub(crate) enum EvolutionCommand {
    /// Whether an instance is connected; exit code 8 if it is not
    Status {
        #[command(flatten)]
        at: InstanceArgs,
    },
    /// Connect an instance; its webhook stays as it is unless another one is given
    Connect(ConnectArgs),
    /// The proxy through which an instance talks to WhatsApp
    #[command(subcommand)]
    Proxy(ProxyCommand),
}

/// Which of the two it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Product {
    /// Evolution Go
    Go,
    /// Evolution API
    Api,
}

/// Which instance.
#[derive(Clone, Debug, Args)]
pub(crate) struct InstanceArgs {
    /// The instance that this destination of the settings file sends through, with its address and
    /// token
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    /// Settings file with that destination [default: surehook.toml]
    #[arg(long, value_name = "FILE", env = "SUREHOOK_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Evolution Go or Evolution API
    #[arg(long, default_value = "go")]
    pub(crate) service: Product,
    /// Where the server is, such as <https://evolution.example.com>
    #[arg(long, env = "EVOLUTION_URL")]
    pub(crate) url: Option<String>,
    /// The instance's name, or at Evolution Go its id; there the token says it too
    #[arg(long, value_name = "NAME", env = "EVOLUTION_INSTANCE")]
    pub(crate) instance: Option<String>,
    /// The instance's own key, or env:NAME
    #[arg(long, env = "EVOLUTION_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// The server's own key, or env:NAME: `GLOBAL_API_KEY` at Evolution Go, which its proxies want
    #[arg(long, value_name = "KEY", env = "EVOLUTION_ADMIN_KEY", hide_env_values = true)]
    pub(crate) admin_key: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// Where the instance reports to from now on [default: as it is]
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Option<String>,
    /// What it reports, such as MESSAGE; may be given for several [default: as it is]
    #[arg(long, value_name = "EVENT", value_delimiter = ',')]
    pub(crate) subscribe: Vec<String>,
    /// Ask for a code to be typed into the phone with this number
    #[arg(long, value_name = "NUMBER")]
    pub(crate) phone: Option<String>,
    /// Write the QR code that the phone must scan into this file, as a picture
    #[arg(long, value_name = "FILE", conflicts_with = "phone")]
    pub(crate) qr: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) at: InstanceArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProxyCommand {
    /// The proxy that is set, without its password; Evolution Go does not tell
    Show {
        #[command(flatten)]
        at: InstanceArgs,
    },
    /// Use this one; the instance connects anew
    Set(ProxyArgs),
    /// Use none
    Clear {
        #[command(flatten)]
        at: InstanceArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ProxyArgs {
    /// The proxy's name or address
    #[arg(long, env = "EVOLUTION_PROXY_HOST")]
    pub(crate) host: String,
    /// Its port
    #[arg(long, env = "EVOLUTION_PROXY_PORT")]
    pub(crate) port: u16,
    /// How it is talked to [default: as the server does]
    #[arg(long, value_name = "NAME", value_parser = PROTOCOLS)]
    pub(crate) protocol: Option<String>,
    /// Who may use it
    #[arg(long, env = "EVOLUTION_PROXY_USER")]
    pub(crate) user: Option<String>,
    /// The user's password, or env:NAME
    #[arg(long, env = "EVOLUTION_PROXY_PASSWORD", hide_env_values = true)]
    pub(crate) password: Option<String>,
    /// Read the password from standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,
    #[command(flatten)]
    pub(crate) at: InstanceArgs,
}
