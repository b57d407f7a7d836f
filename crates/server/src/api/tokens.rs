//! `/api/v1/tokens`: API tokens. A token's secret is shown only in the response that creates it.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use http::StatusCode;
use serde_json::json;
use surehook_api::{
    ListResponse,
    tokens::{CreateTokenRequest, CreatedToken, LoginLink, TokenResponse},
};
use surehook_core::{
    access::{ApiToken, ENVIRONMENT_TOKEN, TOKEN_NAME_BYTES_MAX, TOKEN_NAMESPACES_MAX, TokenHash},
    idempotency::check_namespace,
    one_shot::{TOKEN_URLS_MAX, UrlPattern},
    store::RemoveTokenResult,
};
use surehook_types::{ids::TokenId, rng::new_id, store_error::StoreError, time::Timestamp};

use super::extract::{JsonBody, PathParam};
use crate::{
    ServerState,
    auth::{hash_token, new_token},
    openapi::{ApiTable, Operation},
    problem::Problem,
};

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let list =
        Operation::new("list_tokens", "List tokens.").returns::<ListResponse<TokenResponse>>(200);
    let create = Operation::new("create_token", "Create a token. Its secret is shown only once.")
        .description("Takes no `Idempotency-Key`.")
        .body::<CreateTokenRequest>(
            json!({ "role": "viewer", "name": "dashboard", "expires_in": "30d" }),
        )
        .returns::<CreatedToken>(201)
        .without_idempotency_key();
    let revoke = Operation::new("revoke_token", "Revoke a token immediately.")
        .path::<TokenId>("id")
        .returns_nothing(204)
        .problem(409, &["last_admin"]);
    let link = Operation::new(
        "create_login_link",
        "Create a one-time login link for the dashboard.",
    )
    .description(
        "Opened within 15 minutes, it signs in an admin. The session ends when the token that created the \
             link is revoked. Takes no `Idempotency-Key`.",
    )
    .returns::<LoginLink>(201)
    .without_idempotency_key();
    api.get("/api/v1/tokens", list_tokens, list)
        .post("/api/v1/tokens/link", create_login_link, link)
        .post("/api/v1/tokens", create_token, create)
        .delete("/api/v1/tokens/{id}", revoke_token, revoke)
}

fn token_response(token: &ApiToken, now: Timestamp) -> TokenResponse {
    TokenResponse {
        id: token.id,
        name: token.name.clone(),
        role: token.role,
        created_at: token.created_at,
        expires_at: token.expires_at,
        expired: token.has_expired(now),
        namespaces: token.namespaces.as_ref().map(|namespaces| namespaces.to_vec()),
        urls: token.urls.as_ref().map(|urls| urls.to_vec()),
        session: token.session.is_some(),
        sign_in_token: token.session.and_then(|session| session.sign_in_token),
    }
}

pub(crate) async fn list_tokens(
    State(server): State<Arc<ServerState>>,
) -> Result<Json<ListResponse<TokenResponse>>, Problem> {
    let tokens = server.engine.store().list_tokens().await?;
    let now = server.engine.clock().now();
    let data = tokens.iter().map(|token| token_response(token, now)).collect();
    Ok(Json(ListResponse { data, next_cursor: None }))
}

pub(crate) async fn create_token(
    State(server): State<Arc<ServerState>>,
    JsonBody(request): JsonBody<CreateTokenRequest>,
) -> Result<(StatusCode, Json<CreatedToken>), Problem> {
    let now = server.engine.clock().now();
    let name = request.name.filter(|name| !name.is_empty());
    if name.as_ref().is_some_and(|name| name.len() > TOKEN_NAME_BYTES_MAX) {
        let detail = format!("`name` must have at most {TOKEN_NAME_BYTES_MAX} bytes.");
        return Err(Problem::invalid(detail));
    }
    if name.as_deref() == Some(ENVIRONMENT_TOKEN) {
        let detail = format!(
            "`{ENVIRONMENT_TOKEN}` is the name of the token from the environment. Choose another name."
        );
        return Err(Problem::invalid(detail));
    }
    if request.expires_in.is_some_and(|span| span.0.is_zero()) {
        return Err(Problem::invalid(
            "`expires_in` must not be zero. Omit it for a token that never expires.",
        ));
    }
    let namespaces = request.namespaces.map(check_namespaces).transpose()?;
    let urls = request.urls.map(check_urls).transpose()?;
    let secret = new_token(server.engine.rng());
    let token = ApiToken {
        id: new_id(server.engine.rng(), now),
        hash: hash_token(&secret),
        name,
        role: request.role,
        created_at: now,
        expires_at: request.expires_in.map(|span| now + span.0),
        namespaces,
        urls,
        session: None,
    };
    let created = CreatedToken { details: token_response(&token, now), token: secret };
    run_to_completion(async move {
        server.engine.store().add_token(token.clone()).await?;
        server.tokens.add(token);
        server.engine.announce_token_change();
        Ok(())
    })
    .await?;
    Ok((StatusCode::CREATED, Json(created)))
}

fn check_namespaces(namespaces: Vec<String>) -> Result<Arc<[String]>, Problem> {
    if !(1..=TOKEN_NAMESPACES_MAX).contains(&namespaces.len()) {
        let detail = format!(
            "`namespaces` must have 1 to {TOKEN_NAMESPACES_MAX} entries. Omit it for a token without a limit."
        );
        return Err(Problem::invalid(detail));
    }
    for namespace in &namespaces {
        check_namespace(namespace).map_err(|error| Problem::invalid(error.to_string()))?;
    }
    Ok(namespaces.into())
}

fn check_urls(urls: Vec<UrlPattern>) -> Result<Arc<[UrlPattern]>, Problem> {
    if !(1..=TOKEN_URLS_MAX).contains(&urls.len()) {
        let detail = format!(
            "`urls` must have 1 to {TOKEN_URLS_MAX} entries. Omit it for a token that may name no URLs."
        );
        return Err(Problem::invalid(detail));
    }
    Ok(urls.into())
}

pub(crate) async fn create_login_link(
    State(server): State<Arc<ServerState>>,
    hash: Option<Extension<TokenHash>>,
) -> Result<(StatusCode, Json<LoginLink>), Problem> {
    let creator = hash.and_then(|Extension(hash)| server.tokens.find_by_hash(&hash));
    let (path, expires_at) = server.create_login_link_for(creator.as_ref()).await?;
    Ok((StatusCode::CREATED, Json(LoginLink { path, expires_at })))
}

pub(crate) async fn revoke_token(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
) -> Result<StatusCode, Problem> {
    let id = id.parse().map_err(|_| Problem::not_found("token"))?;
    let now = server.engine.clock().now();
    let removed = run_to_completion(async move {
        let removed = server.engine.store().remove_token(id, now).await?;
        if removed == RemoveTokenResult::Removed {
            server.tokens.remove(id);
            server.engine.announce_token_change();
        }
        Ok(removed)
    });
    match removed.await? {
        RemoveTokenResult::Removed => Ok(StatusCode::NO_CONTENT),
        RemoveTokenResult::NotFound => Err(Problem::not_found("token")),
        RemoveTokenResult::LastAdmin => {
            let detail = "This is the last admin token. Create another one first.";
            Err(Problem::new(StatusCode::CONFLICT, "last_admin", detail))
        }
    }
}

/// Runs `work` to its end even if the client disconnects: a change in the store must also reach the
/// tokens in memory.
pub(crate) async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::spawn(work).await {
        Ok(done) => Ok(done?),
        Err(panicked) => Err(StoreError::Refused(panicked.to_string()).into()),
    }
}
