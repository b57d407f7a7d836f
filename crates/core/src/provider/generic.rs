//! `generic`: whoever has no preset. How requests are verified must be written out.

use super::{Part, Provider, Reading, Sample};
use crate::{
    request::Incoming,
    secret::Secret,
    verify::{Verifier, VerifySpecError},
};

#[derive(Debug)]
pub(super) struct Generic;

impl Provider for Generic {
    fn name(&self) -> &'static str {
        "generic"
    }

    fn verifier(&self, _: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        Err(VerifySpecError::NoUsualWay)
    }

    fn read(&self, _: &Incoming<'_>, _: Option<&Secret>) -> Reading {
        Reading::one(Part::default())
    }

    fn samples(&self) -> &'static [Sample] {
        &[Sample {
            kind: "surehook.test",
            headers: &[("content-type", "application/json")],
            target: "",
            body: r#"{"id":"test_{{id}}","type":"surehook.test","created_at":"{{now_iso}}","data":{"text":"A test event of surehook send-test","amount":4200,"currency":"BRL"}}"#,
        }]
    }
}
