//! The flags of `surehook send`.

use clap::{ArgGroup, Args};
use surehook_core::time::HumanDuration;

use super::Remote;

#[derive(Debug, Args)]
#[command(
    mut_arg("data", |data| data.hide(true)),
    group(ArgGroup::new("what").required(true)),
)]
pub(crate) struct SendArgs {
    /// The destination's name or id
    pub(crate) destination: String,
    /// Who gets it: a phone number with its country, a group (…@g.us) or a BSUID
    #[arg(long, value_name = "RECIPIENT", required_unless_present = "body")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) content: ContentArgs,
    /// The message that this one answers
    #[arg(long, value_name = "ID", conflicts_with_all = ["react", "body"])]
    pub(crate) reply_to: Option<String>,
    /// Send it this long after now, such as 10m
    #[arg(long, value_name = "SPAN")]
    pub(crate) delay: Option<HumanDuration>,
    /// Makes sure that it is sent once, however often it is asked for [default: a new one]
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Follow it until it is sent or has failed
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// What is sent.
#[derive(Debug, Default, Args)]
pub(crate) struct ContentArgs {
    /// A text
    #[arg(long, group = "what")]
    pub(crate) text: Option<String>,
    /// A picture: its URL, or a file
    #[arg(long, group = "what", value_name = "URL|FILE")]
    pub(crate) image: Option<String>,
    /// A film
    #[arg(long, group = "what", value_name = "URL|FILE")]
    pub(crate) video: Option<String>,
    /// Sound
    #[arg(long, group = "what", value_name = "URL|FILE")]
    pub(crate) audio: Option<String>,
    /// Any file
    #[arg(long, group = "what", value_name = "URL|FILE")]
    pub(crate) document: Option<String>,
    /// A sticker
    #[arg(long, group = "what", value_name = "URL|FILE")]
    pub(crate) sticker: Option<String>,
    /// The text below a picture, film or document
    #[arg(long, requires = "what", conflicts_with_all = ["text", "audio", "sticker", "location", "contact", "react", "template", "body"])]
    pub(crate) caption: Option<String>,
    /// What a document is called
    #[arg(long, requires = "document")]
    pub(crate) filename: Option<String>,
    /// The audio is a voice message
    #[arg(long, requires = "audio")]
    pub(crate) voice: bool,
    /// A place, in degrees north and east
    #[arg(long, group = "what", value_name = "LAT,LON", value_parser = place, allow_hyphen_values = true)]
    pub(crate) location: Option<(f64, f64)>,
    /// What the place is called
    #[arg(long, requires = "location")]
    pub(crate) name: Option<String>,
    /// Street and city of the place
    #[arg(long, requires = "location")]
    pub(crate) address: Option<String>,
    /// A person; may be given for several
    #[arg(long, group = "what", value_name = "NAME:PHONE", value_parser = person)]
    pub(crate) contact: Vec<(String, String)>,
    /// An emoji on another message; an empty one takes it back
    #[arg(long, group = "what", value_name = "EMOJI", requires = "message_id")]
    pub(crate) react: Option<String>,
    /// The message that the emoji is put on
    #[arg(long, value_name = "ID", requires = "react")]
    pub(crate) message_id: Option<String>,
    /// An approved template
    #[arg(long, group = "what", value_name = "NAME", requires = "language")]
    pub(crate) template: Option<String>,
    /// The language of the template, such as `pt_BR`
    #[arg(long, requires = "template")]
    pub(crate) language: Option<String>,
    /// A text for the next blank of the template; may be given for several
    #[arg(long, value_name = "TEXT", requires = "template")]
    pub(crate) param: Vec<String>,
    /// The body of a webhook: JSON, `@FILE`, or `@-` for standard input
    #[arg(long, group = "what", value_name = "JSON|@FILE", conflicts_with = "to")]
    pub(crate) body: Option<String>,
    /// What happened, such as order.paid; the kind of the webhook
    #[arg(long = "type", value_name = "TYPE", requires = "body")]
    pub(crate) kind: Option<String>,
}

fn place(text: &str) -> Result<(f64, f64), String> {
    let read = |part: &str| part.trim().parse::<f64>().ok().filter(|degrees| degrees.is_finite());
    let both = text.split_once(',').and_then(|(lat, lon)| Some((read(lat)?, read(lon)?)));
    both.ok_or_else(|| "expected degrees north, a comma and degrees east".to_owned())
}

fn person(text: &str) -> Result<(String, String), String> {
    let pair = text.rsplit_once(':').filter(|(name, phone)| !name.is_empty() && !phone.is_empty());
    let (name, phone) = pair.ok_or("expected a name, : and a phone number")?;
    Ok((name.to_owned(), phone.to_owned()))
}
