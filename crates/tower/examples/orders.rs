//! A service that creates each order once, whatever clients retry and whenever the process dies.
//!
//!     cargo run --example orders -- /tmp/orders
//!     curl -d '{"item":"book"}' -H 'Idempotency-Key: 4f1c' http://127.0.0.1:8080/orders
//!
//! Send the second line again: it gets the same answer, with the header `Idempotency-Replayed: true`.

use std::{
    env,
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::{Extension, Router, extract::State, http::StatusCode, routing::post};
use surehook_dedup::{SqliteDedupConfig, SqliteDedupLock};
use surehook_tower::{IdempotencyLayer, RequestClaim};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args().nth(1).ok_or("usage: orders FOLDER")?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    axum::serve(listener, app(Path::new(&folder))?).await?;
    Ok(())
}

/// The web application, with everything that it stores in one folder.
pub(crate) fn app(folder: &Path) -> Result<Router, Box<dyn Error>> {
    let orders = folder.join("orders");
    fs::create_dir_all(&orders)?;
    let lock = SqliteDedupLock::open(SqliteDedupConfig::new(folder.join("idempotency.db")))?;
    let idempotency = IdempotencyLayer::new(lock)
        .require_key()
        .ttl(Duration::from_secs(7 * 24 * 3600))
        .lease(Duration::from_secs(10));
    Ok(Router::new().route("/orders", post(create_order)).with_state(orders).layer(idempotency))
}

/// Runs once per key, unless the process dies before the response is stored. Then the next try gets the same
/// id from its claim and finds the order that exists.
async fn create_order(
    State(orders): State<PathBuf>,
    Extension(claim): Extension<RequestClaim>,
    order: String,
) -> Result<(StatusCode, String), StatusCode> {
    let id = format!("{:032x}", u128::from_be_bytes(claim.operation.derive_id("order")));
    match fs::File::create_new(orders.join(&id)) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        // 5xx: the client tries again, and the handler runs again.
        Err(_) => return Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
    fs::write(orders.join(&id), order).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok((StatusCode::CREATED, format!("order {id}\n")))
}
