//! Flags that say which events are wanted, and how a route is tried.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Remote;

/// What an event owes, and what is in its body.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FoundArgs {
    /// Only with a delivery that has this status, such as dead
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// Only with a delivery to this destination
    #[arg(long)]
    pub(crate) destination: Option<String>,
    /// Only with a delivery that is dead for this reason
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Only with a delivery whose last attempt failed like this, such as transient
    #[arg(long)]
    pub(crate) class: Option<String>,
    /// Only with a delivery whose last attempt was answered like this: 503, or 5xx
    #[arg(long)]
    pub(crate) code: Option<String>,
    /// Only with this value in the body, such as `data.object.id=42`; may be given for several
    #[arg(long, value_name = "PATH=VALUE", value_parser = place)]
    pub(crate) body: Vec<(String, String)>,
}

impl FoundArgs {
    /// As the API takes it.
    pub(crate) fn pairs(&self) -> Vec<(&str, Option<&str>)> {
        let named = [
            ("status", self.status.as_deref()),
            ("destination", self.destination.as_deref()),
            ("reason", self.reason.as_deref()),
            ("class", self.class.as_deref()),
            ("code", self.code.as_deref()),
        ];
        let body = self.body.iter().map(|(name, value)| (name.as_str(), Some(value.as_str())));
        named.into_iter().chain(body).collect()
    }
}

/// A place in a body, as the API calls it, and what must stand there.
fn place(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=');
    let (path, value) = pair.ok_or("expected a path, = and a value, such as data.object.id=42")?;
    Ok((format!("body.{path}"), value.to_owned()))
}

#[derive(Debug, Subcommand)]
pub(crate) enum RoutesCommand {
    /// Say what a filter and a transform would do with an event; nothing is changed or sent
    #[command(mut_arg("data", |data| data.hide(true)))]
    Try {
        /// A filter in jq
        #[arg(long, required_unless_present = "transform")]
        filter: Option<String>,
        /// A transform in jq
        #[arg(long)]
        transform: Option<String>,
        /// The event whose body it is tried on
        #[arg(long, value_name = "ID", conflicts_with = "body")]
        event: Option<String>,
        /// A file to try it on instead; `-` reads standard input
        #[arg(long, value_name = "FILE", required_unless_present = "event")]
        body: Option<PathBuf>,
        /// Use the event's body with its secrets (role operator)
        #[arg(long, requires = "event")]
        exact: bool,
        #[command(flatten)]
        remote: Remote,
    },
}
