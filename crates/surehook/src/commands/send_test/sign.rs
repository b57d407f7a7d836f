//! Signs test events with the secret of their source.

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use http_body_util::Full;
use serde_json::Value;
use surehook_engine::system::SystemClock;
use surehook_types::{
    secret::{Secret, SecretRef},
    time::{Clock as _, Timestamp},
};
use surehook_webhooks::{
    provider::{Provider, SampleEvent},
    request::{IncomingRequest, OutgoingRequest},
    verify::{RequestSignature, Verifier, VerifyError, VerifySpec},
};

use super::{
    SendTestArgs,
    sample::{SampleValues, TestEvent},
};
use crate::{client::ApiClient, error::CliError, settings::environment};

/// Signs and addresses requests for one source.
pub(super) struct Signer {
    verifier: Verifier,
    source: String,
    base_url: String,
    /// The public URL of the gateway, which some providers sign.
    origin: String,
    has_invalid_signature: bool,
}

impl Signer {
    pub(super) fn new(
        client: &ApiClient,
        source: &Value,
        preset: &Provider,
        origin: String,
        args: &SendTestArgs,
    ) -> Result<Self, CliError> {
        let name = source["name"].as_str().unwrap_or_default().to_owned();
        let verifier = build_verifier(source, preset, args.secret.as_deref())?;
        if args.bad_sig && source["verified"] == false {
            let error = anyhow!(
                "source `{name}` does not verify signatures, so there is none to invalidate"
            );
            return Err(CliError::refused(error));
        }
        let base_url = client.base_url().to_owned();
        Ok(Self { verifier, source: name, base_url, origin, has_invalid_signature: args.bad_sig })
    }

    /// A signer for a source that uses the verification of its provider.
    pub(super) fn of(
        verifier: Verifier,
        source: &str,
        base_url: &str,
        has_invalid_signature: bool,
    ) -> Self {
        let base_url = base_url.to_owned();
        let origin = base_url.clone();
        Self { verifier, source: source.to_owned(), base_url, origin, has_invalid_signature }
    }

    /// Builds a request and signs it now.
    pub(super) fn request(
        &self,
        values: &SampleValues,
        sample: &SampleEvent,
        body: Option<&Bytes>,
    ) -> Result<Request<Full<Bytes>>, CliError> {
        let now = SystemClock.now();
        let fill = |values: &SampleValues| {
            let event = values.fill_sample(sample);
            TestEvent { body: body.cloned().unwrap_or(event.body), ..event }
        };
        let mut event = fill(values);
        let mut signed = self.sign(&event, now)?;
        // Some providers sign a time in the body, which must be current despite a seed.
        if self.verify(&event, &signed, now) == Err(VerifyError::Stale) {
            event = fill(&values.with_time(now));
            signed = self.sign(&event, now)?;
        }
        if self.has_invalid_signature {
            invalidate(&mut signed);
        }
        let url = format!("{}/in/{}{}", self.base_url, self.source, event.target);
        let url = signed.signed_url(&url);
        let mut request = Request::post(url)
            .header(header::USER_AGENT, concat!("surehook-send-test/", env!("CARGO_PKG_VERSION")));
        if let Some(headers) = request.headers_mut() {
            headers.extend(event.headers);
            for (name, value) in signed.headers {
                let value = HeaderValue::try_from(value);
                headers.insert(name, value.context("the secret is not valid in a header")?);
            }
        }
        Ok(request.body(Full::new(event.body)).context("invalid URL")?)
    }

    fn sign(&self, event: &TestEvent, now: Timestamp) -> Result<RequestSignature, CliError> {
        let url = format!("{}/in/{}{}", self.origin, self.source, event.target);
        let TestEvent { id, headers, body, .. } = event;
        self.verifier
            .sign(&OutgoingRequest { id, url: &url, headers, body }, now)
            .map_err(CliError::refused)
    }

    /// Verifies the signed event as the gateway will.
    fn verify(
        &self,
        event: &TestEvent,
        signed: &RequestSignature,
        now: Timestamp,
    ) -> Result<(), VerifyError> {
        let mut headers: HeaderMap = event.headers.clone();
        for (name, value) in &signed.headers {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        }
        let target = signed.signed_url(&event.target);
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target.as_str(), None),
        };
        let incoming = IncomingRequest {
            source: &self.source,
            path,
            query,
            headers: &headers,
            body: &event.body,
            origin: Some(&self.origin),
        };
        self.verifier.verify(&incoming, now).map(drop)
    }
}

/// Changes one character in every signature.
fn invalidate(signed: &mut RequestSignature) {
    let change = |text: &str| {
        let positions: Vec<usize> = text
            .char_indices()
            .filter(|(_, letter)| letter.is_ascii_alphanumeric())
            .map(|(position, _)| position)
            .collect();
        let Some(position) = positions.get(positions.len() / 2).copied() else {
            return text.to_owned();
        };
        let letter = if text[position..].starts_with('0') { "1" } else { "0" };
        format!("{}{letter}{}", &text[..position], &text[position + 1..])
    };
    for (_, value) in &mut signed.headers {
        *value = change(value);
    }
    signed.path = change(&signed.path);
}

/// A verifier can also sign, given the secret. The API masks secrets, so it must be passed here.
fn build_verifier(
    source: &Value,
    preset: &Provider,
    secret: Option<&str>,
) -> Result<Verifier, CliError> {
    let verify = &source["verify"];
    if verify.is_null() {
        let verifier = preset.verifier(vec![find_secret(source, secret)?])?;
        // Some providers send the secret itself: the gateway must not choose which variable is sent.
        if secret.is_none() && sends_plain_secret(&verifier) {
            require_secret(None)?;
        }
        return Ok(verifier);
    }
    let spec: VerifySpec = serde_json::from_value(verify.clone())
        .context("this version does not support the source's verification")?;
    let secrets = match spec {
        VerifySpec::None => Vec::new(),
        VerifySpec::Hmac(_) => vec![find_secret(source, secret)?],
        VerifySpec::Token { .. } | VerifySpec::Basic { .. } => vec![require_secret(secret)?],
    };
    Ok(Verifier::new(&spec, secrets)?)
}

fn sends_plain_secret(verifier: &Verifier) -> bool {
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

fn require_secret(secret: Option<&str>) -> Result<Secret, CliError> {
    secret.map(Secret::new).ok_or_else(|| {
        CliError::refused(anyhow!("the secret of the source is unknown"))
            .hint("Pass it with --secret or SUREHOOK_SECRET.")
    })
}

fn find_secret(source: &Value, secret: Option<&str>) -> Result<Secret, CliError> {
    if secret.is_some() {
        return require_secret(secret);
    }
    let configured = source["secrets"].as_array().into_iter().flatten().filter_map(Value::as_str);
    // Literal secrets are masked and do not resolve.
    let references = configured.filter_map(|text| text.parse::<SecretRef>().ok());
    match references.filter_map(|reference| reference.resolve(&environment).ok()).next() {
        Some(secret) => Ok(secret),
        None => require_secret(None),
    }
}

#[cfg(test)]
mod tests {
    use surehook_webhooks::provider;

    use super::*;

    #[test]
    fn invalidated_signature_is_refused() {
        let stripe = provider::find("stripe").unwrap();
        let signer = Signer {
            verifier: stripe.verifier(vec![Secret::new("a secret")]).unwrap(),
            source: "in".to_owned(),
            base_url: "http://localhost".to_owned(),
            origin: "http://localhost".to_owned(),
            has_invalid_signature: false,
        };
        let now = Timestamp::from_millis(1_700_000_000_000);
        let values = super::super::sample::SampleGenerator::new(Some(1)).next(now);
        let event = values.fill_sample(&stripe.samples[0]);
        let mut signed = signer.sign(&event, now).unwrap();
        assert_eq!(signer.verify(&event, &signed, now), Ok(()));
        invalidate(&mut signed);
        assert!(signer.verify(&event, &signed, now).is_err());
    }
}
