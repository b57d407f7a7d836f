//! GitLab verification: a secret token in a header, a signing token, or both.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use subtle::ConstantTimeEq;
use surehook_types::{secret::Secret, time::Timestamp};

use crate::{
    request::{IncomingRequest, OutgoingRequest},
    sign::{SECRET_PREFIX, SigningSecret},
    verify::{
        CANDIDATES_MAX, RequestSignature, SignError, VerificationScheme, VerifyError,
        VerifySpecError, single_header, text_header,
    },
};

pub(super) const TOKEN: &str = "x-gitlab-token";
static TOKEN_HEADER: HeaderName = HeaderName::from_static(TOKEN);
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const ID: HeaderName = HeaderName::from_static("webhook-id");
const TOLERANCE_SECS: u64 = 300;

/// A secret, recognized by its prefix.
#[derive(Debug)]
enum GitlabSecret {
    /// Sent in a header; proves nothing about the body.
    Token(Secret),
    /// `whsec_…`: signs the body.
    Signing(SigningSecret),
}

/// Accepts a request with any of the secrets. If the request is signed and there is a signing token, only
/// the signature counts: otherwise a valid token would allow a changed body.
#[derive(Debug)]
pub(super) struct GitlabScheme(Vec<GitlabSecret>);

impl GitlabScheme {
    pub(super) fn new(secrets: Vec<Secret>) -> Result<Self, VerifySpecError> {
        let kinds =
            secrets.into_iter().enumerate().map(|(index, secret)| parse_secret(index + 1, secret));
        Ok(Self(kinds.collect::<Result<_, _>>()?))
    }

    fn has_tokens(&self) -> bool {
        self.0.iter().any(|kind| matches!(kind, GitlabSecret::Token(_)))
    }

    fn has_signing_tokens(&self) -> bool {
        self.0.iter().any(|kind| matches!(kind, GitlabSecret::Signing(_)))
    }

    /// Checks all secrets, to take constant time.
    fn position(&self, is_match: impl Fn(&GitlabSecret) -> bool) -> Result<usize, VerifyError> {
        let mut found = None;
        for (index, kind) in self.0.iter().enumerate() {
            if is_match(kind) {
                found = found.or(Some(index));
            }
        }
        found.ok_or(VerifyError::Mismatch)
    }

    fn verify_token(&self, headers: &HeaderMap) -> Result<usize, VerifyError> {
        let token = single_header(headers, &TOKEN_HEADER, "credentials")?
            .ok_or(VerifyError::MissingCredentials { header: TOKEN_HEADER.clone() })?;
        self.position(
            |kind| matches!(kind, GitlabSecret::Token(secret) if secret.matches(token.as_bytes())),
        )
    }

    fn verify_signature(
        &self,
        request: &IncomingRequest<'_>,
        now: Timestamp,
    ) -> Result<usize, VerifyError> {
        let signatures = text_header(request.headers, &SIGNATURE, "signature")?
            .ok_or(VerifyError::MissingSignature { header: SIGNATURE })?;
        let timestamp = text_header(request.headers, &TIMESTAMP, "timestamp")?
            .ok_or(VerifyError::MissingTimestamp)?;
        let seconds =
            parse_seconds(timestamp).ok_or(VerifyError::Malformed { part: "timestamp" })?;
        if now.as_secs().abs_diff(seconds) > TOLERANCE_SECS {
            return Err(VerifyError::Stale);
        }
        let id = text_header(request.headers, &ID, "id")?.ok_or(VerifyError::MissingId)?;
        // A dot in the id would make one signature valid for two requests.
        if id.contains('.') {
            return Err(VerifyError::Malformed { part: "id" });
        }
        if signatures.split(' ').count() > CANDIDATES_MAX {
            return Err(VerifyError::TooManySignatures);
        }
        self.position(|kind| {
            let GitlabSecret::Signing(secret) = kind else { return false };
            let expected = secret.sign(id, seconds, request.body);
            let is_match =
                |signature: &str| bool::from(signature.as_bytes().ct_eq(expected.as_bytes()));
            signatures.split(' ').any(is_match)
        })
    }
}

fn parse_secret(number: usize, secret: Secret) -> Result<GitlabSecret, VerifySpecError> {
    let text = std::str::from_utf8(secret.expose()).ok();
    let Some(text) = text.filter(|text| text.starts_with(SECRET_PREFIX)) else {
        return Ok(GitlabSecret::Token(secret));
    };
    let reason = "a signing token is `whsec_` and the base64 of 24 to 64 bytes";
    text.parse().map(GitlabSecret::Signing).map_err(|_| VerifySpecError::Secret { number, reason })
}

/// Accepts only the canonical spelling, because the signature covers the spelling.
fn parse_seconds(text: &str) -> Option<i64> {
    text.parse::<i64>().ok().filter(|seconds| *seconds >= 0 && seconds.to_string() == text)
}

impl VerificationScheme for GitlabScheme {
    fn name(&self) -> &'static str {
        match (self.has_tokens(), self.has_signing_tokens()) {
            (true, true) => "token or hmac-sha256",
            (false, true) => "hmac-sha256",
            _ => "token",
        }
    }

    fn verify(&self, request: &IncomingRequest<'_>, now: Timestamp) -> Result<usize, VerifyError> {
        let is_signed = request.headers.contains_key(SIGNATURE);
        if self.has_signing_tokens() && (is_signed || !self.has_tokens()) {
            return self.verify_signature(request, now);
        }
        self.verify_token(request.headers)
    }

    fn max_age(&self) -> Option<Duration> {
        self.has_signing_tokens().then_some(Duration::from_secs(TOLERANCE_SECS))
    }

    fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestSignature, SignError> {
        let headers = match self.0.first() {
            None => Vec::new(),
            Some(GitlabSecret::Token(secret)) => {
                vec![(TOKEN_HEADER.clone(), String::from_utf8_lossy(secret.expose()).into_owned())]
            }
            Some(GitlabSecret::Signing(secret)) => vec![
                (ID, request.id.to_owned()),
                (TIMESTAMP, now.as_secs().to_string()),
                (SIGNATURE, secret.sign(request.id, now.as_secs(), request.body)),
            ],
        };
        Ok(RequestSignature::headers(headers))
    }

    fn secret_header(&self) -> Option<&HeaderName> {
        Some(&TOKEN_HEADER)
    }

    fn signs_content(&self) -> bool {
        self.has_signing_tokens()
    }
}

#[cfg(test)]
mod tests {
    use surehook_types::secret::Secret;

    use super::super::super::testing::verify;
    use crate::{provider::find, verify::VerifySpecError};

    // Published example of Standard Webhooks.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const BODY: &str = r#"{"test": 2432232314}"#;
    const NOW: i64 = 1_614_265_330;
    const ID: (&str, &str) = ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek");
    const AT: (&str, &str) = ("webhook-timestamp", "1614265330");
    const SIGNATURE: (&str, &str) =
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    const WRONG: (&str, &str) =
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OA=");
    const TWO: (&str, &str) =
        ("webhook-signature", "v1a,AAAA v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    const ELEVEN: (&str, &str) = (
        "webhook-signature",
        "a a a a a a a a a a v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    );
    const TOKEN: (&str, &str) = ("x-gitlab-token", "plain");
    const OTHER: (&str, &str) = ("x-gitlab-token", "other");

    #[test]
    fn token_or_signature_is_accepted() {
        let both = ["plain", SECRET];
        type Case<'t> =
            (&'t str, &'t [&'t str], &'t [(&'t str, &'t str)], Result<usize, &'static str>);
        let cases: [Case<'_>; 18] = [
            ("token", &["plain"], &[TOKEN], Ok(0)),
            ("the older token", &["new", "plain"], &[TOKEN], Ok(1)),
            ("another token", &["plain"], &[OTHER], Err("mismatch")),
            ("no token", &["plain"], &[], Err("missing_credentials")),
            ("two tokens", &["plain"], &[TOKEN, OTHER], Err("malformed")),
            ("signed, without a signing token", &["plain"], &[TOKEN, ID, AT, SIGNATURE], Ok(0)),
            ("signature", &[SECRET], &[ID, AT, SIGNATURE], Ok(0)),
            ("one of several", &[SECRET], &[ID, AT, TWO], Ok(0)),
            ("too many", &[SECRET], &[ID, AT, ELEVEN], Err("too_many_signatures")),
            ("wrong signature", &[SECRET], &[ID, AT, WRONG], Err("mismatch")),
            ("no id", &[SECRET], &[AT, SIGNATURE], Err("missing_id")),
            ("no time", &[SECRET], &[ID, SIGNATURE], Err("missing_timestamp")),
            (
                "another spelling",
                &[SECRET],
                &[ID, ("webhook-timestamp", "+1614265330"), SIGNATURE],
                Err("malformed"),
            ),
            ("a token is not enough", &[SECRET], &[TOKEN], Err("missing_signature")),
            (
                "the signing token as a token",
                &[SECRET],
                &[("x-gitlab-token", SECRET)],
                Err("missing_signature"),
            ),
            ("both", &both, &[TOKEN, ID, AT, SIGNATURE], Ok(1)),
            ("not signed yet", &both, &[TOKEN], Ok(0)),
            ("a token beside a wrong signature", &both, &[TOKEN, ID, AT, WRONG], Err("mismatch")),
        ];
        for (name, secrets, headers, expected) in cases {
            let result = verify("gitlab", secrets, headers, BODY, NOW);
            let result = result.map(|verified| verified.secret_index);
            assert_eq!(result.map_err(|refused| refused.code()), expected, "case: {name}");
        }
        for (now, expected) in [(NOW + 300, true), (NOW + 301, false), (NOW - 301, false)] {
            let result = verify("gitlab", &[SECRET], &[ID, AT, SIGNATURE], BODY, now);
            assert_eq!(result.is_ok(), expected, "{now}");
        }
    }

    #[test]
    fn malformed_signing_token_is_refused_at_configuration() {
        let secrets = vec![Secret::new("plain"), Secret::new("whsec_short")];
        let error = find("gitlab").unwrap().verifier(secrets).unwrap_err();
        assert!(matches!(error, VerifySpecError::Secret { number: 2, .. }), "{error}");
        assert!(!error.to_string().contains("short"));
    }
}
