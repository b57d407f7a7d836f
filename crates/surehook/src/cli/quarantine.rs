//! Arguments of `surehook quarantine`.

use clap::Subcommand;

use super::{GatewayArgs, PageArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum QuarantineCommand {
    /// List quarantined requests, newest first
    List {
        /// Filter by source
        #[arg(long)]
        source: Option<String>,
        #[command(flatten)]
        paging: PageArgs,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Show a request with headers and body, secrets masked
    Show {
        /// Request id
        id: String,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Release requests that now pass verification: by id, or all of a source
    #[command(mut_arg("data", |data| data.hide(true)))]
    Release {
        /// Request ids
        #[arg(required_unless_present = "source")]
        ids: Vec<String>,
        /// Release all requests of this source, oldest first
        #[arg(long, conflicts_with = "ids")]
        source: Option<String>,
        /// Release even if verification still fails; the events are marked
        #[arg(long, conflicts_with = "source")]
        force: bool,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Delete requests
    #[command(mut_arg("data", |data| data.hide(true)))]
    Discard {
        /// Request ids
        #[arg(required = true)]
        ids: Vec<String>,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}
