//! The outbox: the source that messages come from, which are asked for over the API.
//!
//! It is built in. It is made when the first message is sent, or when a route from it is written, and
//! nobody can send webhooks to it. What people may set about it is how long it keeps what, and what is
//! secret in it.

mod post;

pub use self::post::{MESSAGE_KIND_PREFIX, OutboxPost, OutboxPostError};
use crate::{
    name::Name,
    provider::{ParsedRequest, Provider},
    request::IncomingRequest,
    secret::Secret,
    source::{SourceSpec, SourceSpecError},
    verify::{Verifier, VerifySpec, VerifySpecError},
};

/// What it is called, and what its provider is called.
pub const OUTBOX: &str = "outbox";

/// The provider of the outbox: ourselves.
#[derive(Debug)]
pub struct Outbox;

impl Provider for Outbox {
    fn name(&self) -> &'static str {
        OUTBOX
    }

    /// The door lets nobody in, so that nobody asks.
    fn verifier(&self, _: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        Verifier::new(&VerifySpec::None, Vec::new())
    }

    fn parse_request(&self, _: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        ParsedRequest::Events(Vec::new())
    }
}

/// Whether somebody may call a source of his own like this.
pub fn is_reserved_name(name: &Name) -> bool {
    name.as_str() == OUTBOX
}

impl SourceSpec {
    /// The outbox as it is made.
    pub fn outbox() -> Self {
        Self { provider: OUTBOX.to_owned(), ..Self::named(Name::from_static(OUTBOX)) }
    }

    /// Whether it is the outbox.
    pub fn is_outbox(&self) -> bool {
        self.provider == OUTBOX
    }

    /// Whether all that is set about the outbox can mean something.
    pub(crate) fn check_outbox(&self) -> Result<(), SourceSpecError> {
        let settable = Self {
            redact: self.redact.clone(),
            strip_secrets: self.strip_secrets,
            retention: self.retention,
            enabled: self.enabled,
            ..Self::outbox()
        };
        if *self == settable { Ok(()) } else { Err(SourceSpecError::Outbox) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ids::SourceId, time::Timestamp};

    #[test]
    fn of_the_outbox_only_what_means_something_can_be_set() {
        let cases = [
            (r#"{"name":"outbox","provider":"outbox"}"#, true),
            (r#"{"name":"outbox","provider":"outbox","retention":{"bodies":"1d"}}"#, true),
            (r#"{"name":"outbox","provider":"outbox","redact":["pin"],"enabled":false}"#, true),
            (r#"{"name":"other","provider":"outbox"}"#, false),
            (r#"{"name":"outbox","provider":"outbox","verify":"none"}"#, false),
            (r#"{"name":"outbox","provider":"outbox","keys":["pointer:/id"]}"#, false),
            (r#"{"name":"outbox","provider":"outbox","sync":{"destination":"a"}}"#, false),
        ];
        for (written, is_good) in cases {
            let spec: SourceSpec = serde_json::from_str(written).unwrap();
            let built = spec.build(SourceId::new(Timestamp::default(), 1), &|_| None);
            assert_eq!(built.is_ok(), is_good, "case: {written}");
        }
        let spec: SourceSpec = serde_json::from_str(cases[0].0).unwrap();
        assert_eq!(spec, SourceSpec::outbox());
    }
}
