//! Arguments of `surehook send`.

use clap::{ArgGroup, Args};
use surehook_types::time::HumanDuration;

use super::GatewayArgs;

#[derive(Debug, Args)]
#[command(
    mut_arg("data", |data| data.hide(true)),
    group(ArgGroup::new("what").required(true)),
)]
pub(crate) struct SendArgs {
    /// Destination name or id
    pub(crate) destination: String,
    /// Recipient: a phone number with country code, a group (…@g.us) or a BSUID
    #[arg(long, value_name = "RECIPIENT", required_unless_present = "body")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) content: MessageContentArgs,
    /// Id of the message to reply to
    #[arg(long, value_name = "ID", conflicts_with_all = ["react", "body"])]
    pub(crate) reply_to: Option<String>,
    /// Delay before sending, such as 10m
    #[arg(long, value_name = "SPAN")]
    pub(crate) delay: Option<HumanDuration>,
    /// Idempotency key: repeated commands with the same key send once [default: a new key]
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Wait until the message is sent or has failed
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) remote: GatewayArgs,
}

/// Content of the message.
#[derive(Debug, Default, Args)]
pub(crate) struct MessageContentArgs {
    /// Text message
    #[arg(long, group = "what")]
    pub(crate) text: Option<String>,
    /// Image: URL or file
    #[arg(long, group = "what", value_name = "URL|FILE")]
    pub(crate) image: Option<String>,
    /// Video: URL or file
    #[arg(long, group = "what", value_name = "URL|FILE")]
    pub(crate) video: Option<String>,
    /// Audio: URL or file
    #[arg(long, group = "what", value_name = "URL|FILE")]
    pub(crate) audio: Option<String>,
    /// Document: URL or file
    #[arg(long, group = "what", value_name = "URL|FILE")]
    pub(crate) document: Option<String>,
    /// Sticker: URL or file
    #[arg(long, group = "what", value_name = "URL|FILE")]
    pub(crate) sticker: Option<String>,
    /// Caption of an image, video or document
    #[arg(long, requires = "what", conflicts_with_all = ["text", "audio", "sticker", "location", "contact", "react", "template", "body"])]
    pub(crate) caption: Option<String>,
    /// File name of the document
    #[arg(long, requires = "document")]
    pub(crate) filename: Option<String>,
    /// Send the audio as a voice message
    #[arg(long, requires = "audio")]
    pub(crate) voice: bool,
    /// Location, as latitude and longitude in degrees
    #[arg(long, group = "what", value_name = "LAT,LON", value_parser = parse_location, allow_hyphen_values = true)]
    pub(crate) location: Option<(f64, f64)>,
    /// Name of the location
    #[arg(long, requires = "location")]
    pub(crate) name: Option<String>,
    /// Address of the location
    #[arg(long, requires = "location")]
    pub(crate) address: Option<String>,
    /// Contact; repeatable
    #[arg(long, group = "what", value_name = "NAME:PHONE", value_parser = parse_contact)]
    pub(crate) contact: Vec<(String, String)>,
    /// Reaction to a message; an empty emoji removes it
    #[arg(long, group = "what", value_name = "EMOJI", requires = "message_id")]
    pub(crate) react: Option<String>,
    /// Id of the message to react to
    #[arg(long, value_name = "ID", requires = "react")]
    pub(crate) message_id: Option<String>,
    /// Name of an approved template
    #[arg(long, group = "what", value_name = "NAME", requires = "language")]
    pub(crate) template: Option<String>,
    /// Language of the template, such as `pt_BR`
    #[arg(long, requires = "template")]
    pub(crate) language: Option<String>,
    /// Parameter of the template; repeatable, in order
    #[arg(long, value_name = "TEXT", requires = "template")]
    pub(crate) param: Vec<String>,
    /// Body of a webhook: JSON, `@FILE`, or `@-` for standard input
    #[arg(long, group = "what", value_name = "JSON|@FILE", conflicts_with = "to")]
    pub(crate) body: Option<String>,
    /// Event type of the webhook, such as order.paid
    #[arg(long = "type", value_name = "TYPE", requires = "body")]
    pub(crate) kind: Option<String>,
}

fn parse_location(text: &str) -> Result<(f64, f64), String> {
    let parse = |part: &str| part.trim().parse::<f64>().ok().filter(|degrees| degrees.is_finite());
    let both = text.split_once(',').and_then(|(lat, lon)| Some((parse(lat)?, parse(lon)?)));
    both.ok_or_else(|| "expected LATITUDE,LONGITUDE in degrees".to_owned())
}

fn parse_contact(text: &str) -> Result<(String, String), String> {
    let pair = text.rsplit_once(':').filter(|(name, phone)| !name.is_empty() && !phone.is_empty());
    let (name, phone) = pair.ok_or("expected NAME:PHONE")?;
    Ok((name.to_owned(), phone.to_owned()))
}
