//! The key of a request: its header within its scope.

use data_encoding::HEXLOWER;
use http::{HeaderName, request::Parts};
use surehook_dedup::{ClaimKey, Fingerprint};
use surehook_types::idempotency_key::parse_key;

use crate::{layer::IdempotencyConfig, problem::ProblemKind};

/// The request header.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Marks a response that was given before.
pub(crate) const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The key of a request; `None` if the layer does not apply to it.
pub(crate) fn request_key(
    config: &IdempotencyConfig,
    request: &Parts,
) -> Result<Option<ClaimKey>, ProblemKind> {
    if !config.methods.contains(&request.method) {
        return Ok(None);
    }
    let Some(scope) = (config.scope)(request) else { return Ok(None) };
    let mut values = request.headers.get_all(&IDEMPOTENCY_KEY).iter();
    let value = match (values.next(), values.next()) {
        (None, _) if config.is_key_required => return Err(ProblemKind::KeyMissing),
        (None, _) => return Ok(None),
        (Some(only), None) => only,
        (Some(_), Some(_)) => return Err(ProblemKind::KeyRepeated),
    };
    let key = parse_key(value.as_bytes()).map_err(ProblemKind::KeyMalformed)?;
    // A scope may be a secret, and may be long.
    let scope = Fingerprint::of(&[scope.as_bytes()]);
    let name = format!("{}:{key}", HEXLOWER.encode(&scope.as_bytes()[..16]));
    ClaimKey::new(&config.namespace, &name).map(Some).map_err(|_| ProblemKind::KeyUnusable)
}

/// The fingerprint of the method, the target and the body of a request.
pub(crate) fn request_fingerprint(request: &Parts, body: &[u8]) -> Fingerprint {
    let target = request.uri.path_and_query().map_or("", |target| target.as_str());
    Fingerprint::of(&[request.method.as_str().as_bytes(), target.as_bytes(), body])
}
