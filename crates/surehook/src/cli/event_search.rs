//! Options that filter events.

use clap::Args;
use surehook_webhooks::attribute::AttributeName;

/// Filters on the deliveries and the body of events.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct EventSearchArgs {
    /// Filter by delivery status, such as dead
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// Filter by destination of a delivery
    #[arg(long)]
    pub(crate) destination: Option<String>,
    /// Filter by reason of a dead delivery
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Filter by failure class of the last attempt, such as transient
    #[arg(long)]
    pub(crate) class: Option<String>,
    /// Filter by HTTP status of the last attempt: 503, or 5xx
    #[arg(long)]
    pub(crate) code: Option<String>,
    /// Filter by a value in the body, such as `data.object.id=42`; repeatable
    #[arg(long, value_name = "PATH=VALUE", value_parser = parse_body_filter)]
    pub(crate) body: Vec<(String, String)>,
}

impl EventSearchArgs {
    /// The query parameters of the API.
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

fn parse_body_filter(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=');
    let (path, value) = pair.ok_or("expected PATH=VALUE, such as data.object.id=42")?;
    Ok((format!("body.{path}"), value.to_owned()))
}

/// Filters on the kind and the attributes of events.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct EventAttributeArgs {
    /// Filter by event kind, such as message
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Filter by phone number of sender or recipient, in any form
    #[arg(long)]
    pub(crate) phone: Option<String>,
    /// Filter by attribute, such as `message_id=wamid.A`; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_attribute)]
    pub(crate) attribute: Vec<(&'static str, String)>,
}

impl EventAttributeArgs {
    /// The query parameters of the API.
    pub(crate) fn pairs(&self) -> Vec<(&'static str, Option<&str>)> {
        let attributes = self.attribute.iter().map(|(name, value)| (*name, Some(value.as_str())));
        let named = [("kind", self.kind.as_deref()), ("phone", self.phone.as_deref())];
        named.into_iter().chain(attributes).collect()
    }
}

fn parse_attribute(text: &str) -> Result<(&'static str, String), String> {
    let known = || AttributeName::ALL.map(AttributeName::as_str).join(", ");
    let pair = text.split_once('=');
    let (word, value) = pair.ok_or("expected NAME=VALUE, such as message_id=wamid.A")?;
    let name = AttributeName::parse(word)
        .ok_or_else(|| format!("unknown attribute; use one of: {}", known()))?;
    Ok((name.as_str(), value.to_owned()))
}
