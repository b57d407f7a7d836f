//! `/api/v1/tokens`: who may use the API. A token itself is in one answer only, the one that made it.

use std::sync::Arc;

use axum::{Json, extract::State};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use surehook_core::{
    access::{Role, TOKEN_NAME_BYTES_MAX, Token},
    chance::new_id,
    store::{StoreError, TokenRemoved},
    time::Span,
};

use super::input::{Input, Segment};
use crate::{
    App,
    auth::{hash_token, new_token},
    problem::Problem,
};

/// A token that is wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WantedToken {
    role: Role,
    #[serde(default)]
    name: Option<String>,
    /// After which time it opens nothing.
    #[serde(default)]
    expires_in: Option<Span>,
}

fn shown(token: &Token, app: &App) -> Value {
    json!({
        "id": token.id,
        "name": token.name,
        "role": token.role,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "expired": token.has_expired(app.engine.clock().now()),
    })
}

/// All tokens, without what is sent.
pub(crate) async fn list_tokens(State(app): State<Arc<App>>) -> Result<Json<Value>, Problem> {
    let tokens = app.engine.store().tokens().await?;
    let data: Vec<Value> = tokens.iter().map(|token| shown(token, &app)).collect();
    Ok(Json(json!({ "data": data, "next_cursor": null })))
}

/// Makes a token and shows it, once.
pub(crate) async fn create_token(
    State(app): State<Arc<App>>,
    Input(wanted): Input<WantedToken>,
) -> Result<(StatusCode, Json<Value>), Problem> {
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
    let token = Token {
        id: new_id(app.engine.chance(), now),
        hash: hash_token(&secret),
        name,
        role: wanted.role,
        created_at: now,
        expires_at: wanted.expires_in.map(|span| now + span.0),
    };
    let mut answer = shown(&token, &app);
    carry_out(async move {
        app.engine.store().add_token(token.clone()).await?;
        app.tokens.add(token);
        Ok(())
    })
    .await?;
    answer["token"] = json!(secret);
    Ok((StatusCode::CREATED, Json(answer)))
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
        if removed == TokenRemoved::Removed {
            app.tokens.forget(id);
        }
        Ok(removed)
    });
    match removed.await? {
        TokenRemoved::Removed => Ok(StatusCode::NO_CONTENT),
        TokenRemoved::NotFound => Err(Problem::not_found("token")),
        TokenRemoved::LastAdmin => {
            let detail = "this is the last admin token; make another one first";
            Err(Problem::new(StatusCode::CONFLICT, "last_admin", detail))
        }
    }
}

/// What is stored must also come into force, even if whoever asked for it hangs up in between.
async fn carry_out<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::spawn(work).await {
        Ok(done) => Ok(done?),
        Err(panicked) => Err(StoreError::Refused(panicked.to_string()).into()),
    }
}
