//! `/api/v1/tokens`: who may use the API. A token itself is in one answer only, the one that made it.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use surehook_core::{
    access::{ApiToken, Role, TOKEN_NAME_BYTES_MAX, TokenHash},
    ids::TokenId,
    rng::new_id,
    store::{RemoveTokenResult, StoreError},
    time::{HumanDuration, Timestamp},
};

use super::{
    List,
    input::{Input, Segment},
};
use crate::{
    App,
    auth::{hash_token, new_token},
    openapi::{Api, Op},
    problem::Problem,
};

/// A token that is wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WantedToken {
    role: Role,
    /// Whose it is, for people.
    #[serde(default)]
    #[schemars(length(max = TOKEN_NAME_BYTES_MAX))]
    name: Option<String>,
    /// After which time it opens nothing.
    #[serde(default)]
    expires_in: Option<HumanDuration>,
}

/// A token, without what is sent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ShownToken {
    id: TokenId,
    name: Option<String>,
    role: Role,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    expired: bool,
    /// It is a browser that has signed in to the dashboard.
    session: bool,
    /// The token that the session was begun with, or that made the link; null if there was none.
    begun_with: Option<TokenId>,
}

/// A token that was just made.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NewToken {
    #[serde(flatten)]
    shown: ShownToken,
    /// What is sent. It is shown this once.
    token: String,
}

/// A link that opens once.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LoginLink {
    /// What follows the gateway's address.
    path: String,
    /// Until when it opens.
    expires_at: Timestamp,
}

pub(crate) fn routes(api: Api) -> Api {
    let list = Op::new("list_tokens", "All tokens, without what is sent.")
        .answers::<List<ShownToken>>(200);
    let create = Op::new("create_token", "Makes a token and shows it, once.")
        .text("Takes no `Idempotency-Key`: the answer holds a secret and is not kept.")
        .body::<WantedToken>(json!({ "role": "viewer", "name": "dashboard", "expires_in": "30d" }))
        .answers::<NewToken>(201);
    let revoke = Op::new("revoke_token", "Takes a token away, at once.")
        .path::<TokenId>("id")
        .answers_nothing(204)
        .refuses(409, &["last_admin"]);
    let link = Op::new("create_login_link", "Makes a link that signs in to the dashboard, once.")
        .text(
            "Whoever opens it within a day is an admin there, until the token is taken away that \
             made it. Takes no `Idempotency-Key`: the answer holds \
             a secret and is not kept.",
        )
        .answers::<LoginLink>(201);
    api.get("/api/v1/tokens", list_tokens, list)
        .post("/api/v1/tokens/link", create_link, link)
        .post("/api/v1/tokens", create_token, create)
        .delete("/api/v1/tokens/{id}", revoke_token, revoke)
}

fn shown(token: &ApiToken, now: Timestamp) -> ShownToken {
    ShownToken {
        id: token.id,
        name: token.name.clone(),
        role: token.role,
        created_at: token.created_at,
        expires_at: token.expires_at,
        expired: token.has_expired(now),
        session: token.session.is_some(),
        begun_with: token.session.and_then(|session| session.begun_with),
    }
}

/// All tokens, without what is sent.
pub(crate) async fn list_tokens(
    State(app): State<Arc<App>>,
) -> Result<Json<List<ShownToken>>, Problem> {
    let tokens = app.engine.store().tokens().await?;
    let now = app.engine.clock().now();
    let data = tokens.iter().map(|token| shown(token, now)).collect();
    Ok(Json(List { data, next_cursor: None }))
}

/// Makes a token and shows it, once.
pub(crate) async fn create_token(
    State(app): State<Arc<App>>,
    Input(wanted): Input<WantedToken>,
) -> Result<(StatusCode, Json<NewToken>), Problem> {
    let now = app.engine.clock().now();
    let name = wanted.name.filter(|name| !name.is_empty());
    if name.as_ref().is_some_and(|name| name.len() > TOKEN_NAME_BYTES_MAX) {
        let detail = format!("name has more than {TOKEN_NAME_BYTES_MAX} bytes");
        return Err(Problem::invalid(detail));
    }
    if wanted.expires_in.is_some_and(|span| span.0.is_zero()) {
        return Err(Problem::invalid(
            "expires_in is nothing; leave it out for a token without end",
        ));
    }
    let secret = new_token(app.engine.chance());
    let token = ApiToken {
        id: new_id(app.engine.chance(), now),
        hash: hash_token(&secret),
        name,
        role: wanted.role,
        created_at: now,
        expires_at: wanted.expires_in.map(|span| now + span.0),
        session: None,
    };
    let answer = NewToken { shown: shown(&token, now), token: secret };
    carry_out(async move {
        app.engine.store().add_token(token.clone()).await?;
        app.tokens.add(token);
        Ok(())
    })
    .await?;
    Ok((StatusCode::CREATED, Json(answer)))
}

/// Makes a link that signs in to the dashboard, once.
pub(crate) async fn create_link(
    State(app): State<Arc<App>>,
    hash: Option<Extension<TokenHash>>,
) -> (StatusCode, Json<LoginLink>) {
    let maker = hash.and_then(|Extension(hash)| app.tokens.holder(&hash));
    let (path, expires_at) = app.login_link_of(maker.as_ref());
    (StatusCode::CREATED, Json(LoginLink { path, expires_at }))
}

/// Takes a token away, at once.
pub(crate) async fn revoke_token(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<StatusCode, Problem> {
    let id = id.parse().map_err(|_| Problem::not_found("token"))?;
    let now = app.engine.clock().now();
    let removed = carry_out(async move {
        let removed = app.engine.store().remove_token(id, now).await?;
        if removed == RemoveTokenResult::Removed {
            app.tokens.forget(id);
            app.links.forget(id);
        }
        Ok(removed)
    });
    match removed.await? {
        RemoveTokenResult::Removed => Ok(StatusCode::NO_CONTENT),
        RemoveTokenResult::NotFound => Err(Problem::not_found("token")),
        RemoveTokenResult::LastAdmin => {
            let detail = "this is the last admin token; make another one first";
            Err(Problem::new(StatusCode::CONFLICT, "last_admin", detail))
        }
    }
}

/// What is stored must also come into force, even if whoever asked for it hangs up in between.
pub(crate) async fn carry_out<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::spawn(work).await {
        Ok(done) => Ok(done?),
        Err(panicked) => Err(StoreError::Refused(panicked.to_string()).into()),
    }
}
