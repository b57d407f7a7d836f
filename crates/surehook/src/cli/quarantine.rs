//! `surehook quarantine`.

use clap::Subcommand;

use super::{Paging, Remote};

#[derive(Debug, Subcommand)]
pub(crate) enum QuarantineCommand {
    /// The newest requests that are kept aside
    List {
        /// Only for this source
        #[arg(long)]
        source: Option<String>,
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        remote: Remote,
    },
    /// One request with its headers and body, secrets hidden
    Show {
        /// The request's id
        id: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// Take requests in that verify by now: these, or all of a source
    #[command(mut_arg("data", |data| data.hide(true)))]
    Release {
        /// The requests' ids
        #[arg(required_unless_present = "source")]
        ids: Vec<String>,
        /// All of this source, the oldest first
        #[arg(long, conflicts_with = "ids")]
        source: Option<String>,
        /// Also if they still do not verify; their events say so
        #[arg(long, conflicts_with = "source")]
        force: bool,
        #[command(flatten)]
        remote: Remote,
    },
    /// Throw requests away
    #[command(mut_arg("data", |data| data.hide(true)))]
    Discard {
        /// The requests' ids
        #[arg(required = true)]
        ids: Vec<String>,
        #[command(flatten)]
        remote: Remote,
    },
}
