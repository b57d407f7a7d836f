//! Arguments of `surehook verify` and `surehook sign`.

use std::path::PathBuf;

use clap::Args;

/// The request besides its body.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// Secret of the source, or env:NAME; repeatable during rotation, current secret first
    #[arg(long = "secret", value_name = "SECRET", env = "SUREHOOK_SECRET", hide_env_values = true)]
    pub(crate) secrets: Vec<String>,
    /// Verification of a `generic` source, as in the settings: '{ hmac = { header = "x-sig" } }'
    #[arg(long, value_name = "TOML")]
    pub(crate) verify: Option<String>,
    /// Header of the request; repeatable
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,
    /// URL that the provider calls, such as <https://hooks.example.com/in/shop>
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// Time to use as now: 2026-11-15T08:00:00Z, or Unix seconds
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Provider, as in `provider = "…"`
    pub(crate) preset: String,
    /// File with the exact body; `-` reads standard input
    #[arg(required_unless_present = "request")]
    pub(crate) file: Option<PathBuf>,
    /// File with the whole request instead: request line, headers, empty line, body
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) request: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) request_args: RequestArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    /// Provider, as in `provider = "…"`
    pub(crate) preset: String,
    /// File with the exact body; `-` reads standard input
    pub(crate) file: PathBuf,
    /// Message id to sign, if the provider uses one
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Print a curl command that sends the request
    #[arg(long, conflicts_with = "json")]
    pub(crate) curl: bool,
    #[command(flatten)]
    pub(crate) request_args: RequestArgs,
}
