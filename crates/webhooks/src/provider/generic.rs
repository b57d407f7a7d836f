//! `generic`: for senders without a preset. The source must set `verify`.

use surehook_types::secret::Secret;

use super::{EventPart, ParsedRequest, Provider, SampleEvent};
use crate::{
    request::IncomingRequest,
    verify::{Verifier, VerifySpecError},
};

#[derive(Debug)]
pub(super) struct Generic;

impl Provider for Generic {
    fn name(&self) -> &'static str {
        "generic"
    }

    fn verifier(&self, _: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        Err(VerifySpecError::NoDefaultScheme)
    }

    fn parse_request(&self, _: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        ParsedRequest::single(EventPart::default())
    }

    fn samples(&self) -> &'static [SampleEvent] {
        &[SampleEvent {
            kind: "surehook.test",
            headers: &[("content-type", "application/json")],
            target: "",
            body: r#"{"id":"test_{{id}}","type":"surehook.test","created_at":"{{now_iso}}","data":{"text":"A test event of surehook send-test","amount":4200,"currency":"BRL"}}"#,
        }]
    }
}
