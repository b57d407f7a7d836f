//! Commands that look at signatures, without a gateway.

use std::path::PathBuf;

use clap::Args;

/// What stands in a request beside its body.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// A secret of the source, or env:NAME; several while one is rotated, the current one first
    #[arg(long = "secret", value_name = "SECRET", env = "SUREHOOK_SECRET", hide_env_values = true)]
    pub(crate) secrets: Vec<String>,
    /// How `generic` requests are verified, as in the settings: '{ hmac = { header = "x-sig" } }'
    #[arg(long, value_name = "TOML")]
    pub(crate) verify: Option<String>,
    /// A header of the request; may be given more than once
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,
    /// The address that the provider calls, such as <https://hooks.example.com/in/shop>
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// The time to take for now: 2026-11-15T08:00:00Z, or seconds since 1970
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The provider, as in `provider = "…"`
    pub(crate) preset: String,
    /// The file with the body, exactly; `-` reads standard input
    #[arg(required_unless_present = "request")]
    pub(crate) file: Option<PathBuf>,
    /// A file with the whole request instead: request line, headers, an empty line, body
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) request: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) with: RequestArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    /// The provider, as in `provider = "…"`
    pub(crate) preset: String,
    /// The file with the body, exactly; `-` reads standard input
    pub(crate) file: PathBuf,
    /// The id that is signed with it, where the provider has one
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Print a curl command that sends it
    #[arg(long, conflicts_with = "json")]
    pub(crate) curl: bool,
    #[command(flatten)]
    pub(crate) with: RequestArgs,
}
