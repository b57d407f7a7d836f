//! Signs test events as the source wants them.

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use http_body_util::Full;
use serde_json::Value;
use surehook_core::{
    provider::{Provider, SampleEvent},
    request::{IncomingRequest, OutgoingRequest},
    secret::{Secret, SecretRef},
    time::{Clock as _, Timestamp},
    verify::{RequestSignature, Verifier, VerifyError, VerifySpec},
};
use surehook_engine::system::SystemClock;

use super::sample::{Blanks, Made};
use crate::{cli::SendTestArgs, client::Client, failure::Failure, settings::environment};

/// Knows the source's secret, and where its requests go.
pub(super) struct Signer {
    verifier: Verifier,
    name: String,
    /// Where requests are sent, and the address that the source believes to have.
    base: String,
    origin: String,
    is_bad: bool,
}

impl Signer {
    pub(super) fn new(
        client: &Client,
        source: &Value,
        preset: &dyn Provider,
        args: &SendTestArgs,
    ) -> Result<Self, Failure> {
        let name = source["name"].as_str().unwrap_or_default().to_owned();
        let verifier = verifier(source, preset, args.secret.as_deref())?;
        if args.bad_sig && source["verified"] == false {
            let error = anyhow!("`{name}` is unverified: there is no signature to spoil");
            return Err(Failure::refused(error));
        }
        let base = client.base().to_owned();
        let origin = source["public_url"].as_str().unwrap_or(&base).to_owned();
        Ok(Self { verifier, name, base, origin, is_bad: args.bad_sig })
    }

    /// One request, signed now.
    pub(super) fn request(
        &self,
        blanks: &Blanks,
        sample: &SampleEvent,
        body: Option<&Bytes>,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let now = SystemClock.now();
        let make = |blanks: &Blanks| {
            let made = blanks.made(sample);
            Made { body: body.cloned().unwrap_or(made.body), ..made }
        };
        let mut made = make(blanks);
        let mut signed = self.sign(&made, now)?;
        // Some providers put the time into the body: there a seed cannot give it.
        if self.verdict(&made, &signed, now) == Err(VerifyError::Stale) {
            made = make(&blanks.at(now));
            signed = self.sign(&made, now)?;
        }
        if self.is_bad {
            spoil(&mut signed);
        }
        let url = format!("{}/in/{}{}{}", self.base, self.name, signed.path, made.target);
        let mut request = Request::post(url)
            .header(header::USER_AGENT, concat!("surehook-send-test/", env!("CARGO_PKG_VERSION")));
        if let Some(headers) = request.headers_mut() {
            headers.extend(made.headers);
            for (name, value) in signed.headers {
                let value = HeaderValue::try_from(value);
                headers.insert(name, value.context("the secret cannot stand in a header")?);
            }
        }
        Ok(request.body(Full::new(made.body)).context("the address cannot be called")?)
    }

    fn sign(&self, made: &Made, now: Timestamp) -> Result<RequestSignature, Failure> {
        let url = format!("{}/in/{}{}", self.origin, self.name, made.target);
        let Made { id, headers, body, .. } = made;
        self.verifier
            .sign(&OutgoingRequest { id, url: &url, headers, body }, now)
            .map_err(Failure::refused)
    }

    /// What the gateway will say, as far as it can be known here.
    fn verdict(
        &self,
        made: &Made,
        signed: &RequestSignature,
        now: Timestamp,
    ) -> Result<(), VerifyError> {
        let mut headers: HeaderMap = made.headers.clone();
        for (name, value) in &signed.headers {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        }
        let (path, query) = match made.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (made.target.as_str(), None),
        };
        let path = format!("{}{path}", signed.path);
        let incoming = IncomingRequest {
            source: &self.name,
            path: &path,
            query,
            headers: &headers,
            body: &made.body,
            origin: Some(&self.origin),
        };
        self.verifier.verify(&incoming, now).map(drop)
    }
}

/// Changes a letter in the middle of everything that proves something.
fn spoil(signed: &mut RequestSignature) {
    let other = |text: &str| {
        let places: Vec<usize> = text
            .char_indices()
            .filter(|(_, letter)| letter.is_ascii_alphanumeric())
            .map(|(at, _)| at)
            .collect();
        let Some(at) = places.get(places.len() / 2).copied() else { return text.to_owned() };
        let letter = if text[at..].starts_with('0') { "1" } else { "0" };
        format!("{}{letter}{}", &text[..at], &text[at + 1..])
    };
    for (_, value) in &mut signed.headers {
        *value = other(value);
    }
    signed.path = other(&signed.path);
}

/// What checks the source's requests can also make them, given the secret. The API does not
/// tell secrets, so it must be known here.
fn verifier(
    source: &Value,
    preset: &dyn Provider,
    secret: Option<&str>,
) -> Result<Verifier, Failure> {
    let verify = &source["verify"];
    if verify.is_null() {
        let verifier = preset.verifier(vec![find(source, secret)?])?;
        // Some send the secret itself: the gateway must not choose which variable that is.
        if secret.is_none() && shows_its_secret(&verifier) {
            given(None)?;
        }
        return Ok(verifier);
    }
    let spec: VerifySpec = serde_json::from_value(verify.clone())
        .context("the gateway verifies in a way that this version does not know")?;
    let secrets = match spec {
        VerifySpec::None => Vec::new(),
        VerifySpec::Hmac(_) => vec![find(source, secret)?],
        VerifySpec::Token { .. } | VerifySpec::Basic { .. } => vec![given(secret)?],
    };
    Ok(Verifier::new(&spec, secrets)?)
}

fn shows_its_secret(verifier: &Verifier) -> bool {
    let headers = HeaderMap::new();
    let outgoing =
        OutgoingRequest { id: "id", url: "http://localhost/", headers: &headers, body: b"{}" };
    let signed = verifier.sign(&outgoing, Timestamp::default());
    let is_plain =
        |name: &HeaderName| Some(name) == verifier.secret_header() || name == header::AUTHORIZATION;
    signed.is_ok_and(|signed| {
        !signed.path.is_empty() || signed.headers.iter().any(|(name, _)| is_plain(name))
    })
}

fn given(secret: Option<&str>) -> Result<Secret, Failure> {
    secret.map(Secret::new).ok_or_else(|| {
        Failure::refused(anyhow!("the source's secret is not known here"))
            .hint("give it with --secret or SUREHOOK_SECRET")
    })
}

fn find(source: &Value, secret: Option<&str>) -> Result<Secret, Failure> {
    if secret.is_some() {
        return given(secret);
    }
    let written = source["secrets"].as_array().into_iter().flatten().filter_map(Value::as_str);
    // A secret that was written out is masked, which is no reference.
    let references = written.filter_map(|text| text.parse::<SecretRef>().ok());
    match references.filter_map(|reference| reference.resolve(&environment).ok()).next() {
        Some(found) => Ok(found),
        None => given(None),
    }
}

#[cfg(test)]
mod tests {
    use surehook_core::provider;

    use super::*;

    #[test]
    fn a_spoiled_signature_does_not_fit() {
        let stripe = provider::find("stripe").unwrap();
        let signer = Signer {
            verifier: stripe.verifier(vec![Secret::new("a secret")]).unwrap(),
            name: "in".to_owned(),
            base: "http://localhost".to_owned(),
            origin: "http://localhost".to_owned(),
            is_bad: false,
        };
        let now = Timestamp::from_millis(1_700_000_000_000);
        let blanks = super::super::sample::Source::new(Some(1)).next(now);
        let made = blanks.made(&stripe.samples()[0]);
        let mut signed = signer.sign(&made, now).unwrap();
        assert_eq!(signer.verdict(&made, &signed, now), Ok(()));
        spoil(&mut signed);
        assert!(signer.verdict(&made, &signed, now).is_err());
    }
}
