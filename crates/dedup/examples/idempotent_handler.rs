//! A handler that receives every message twice, from two workers at once, and creates one order per
//! message.
//!
//!     cargo run -p surehook-dedup --example idempotent_handler

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::{collections::BTreeMap, error::Error, sync::Mutex, time::Duration};

use surehook_dedup::{
    Claim, ClaimKey, ClaimRequest, CompletionRequest, DedupLock, Fingerprint, MemoryDedupLock,
};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The orders, by an id that is the same for every attempt at one message.
#[derive(Default)]
struct OrderTable(Mutex<BTreeMap<[u8; 16], String>>);

async fn handle(
    lock: &dyn DedupLock,
    orders: &OrderTable,
    message_id: &str,
    body: &str,
) -> Result<String, Box<dyn Error>> {
    let key = ClaimKey::new("shop", message_id)?;
    let request = ClaimRequest {
        key: key.clone(),
        fingerprint: Some(Fingerprint::of(&[body.as_bytes()])),
        lease: Duration::from_secs(30),
        ttl: DAY,
    };
    let grant = loop {
        match lock.claim(request.clone()).await? {
            Claim::Claimed(grant) => break grant,
            Claim::Completed(completed) => {
                return Ok(String::from_utf8(completed.result.to_vec())?);
            }
            // The other worker holds the claim. A web server answers 409 or 503 with Retry-After instead.
            Claim::InProgress { retry_after } => {
                tokio::time::sleep(retry_after.min(Duration::from_millis(10))).await;
            }
            Claim::OtherFingerprint => return Err("the id was used for another message".into()),
        }
    };
    // Long work calls `lock.extend` now and then. If this process dies here, the retry gets the same
    // operation, and so the same id: it finds the order instead of creating a second one.
    let order_id = grant.operation.derive_id("order");
    tokio::task::yield_now().await;
    orders.0.lock().map_err(|_| "poisoned")?.insert(order_id, body.to_owned());
    let result = format!("order for {body}");
    let completion =
        CompletionRequest { key, token: grant.token, result: result.clone().into(), ttl: DAY };
    if lock.complete(completion).await?.is_applied() {
        Ok(result)
    } else {
        Err("the lease ran out and another worker took over".into())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (lock, orders) = (MemoryDedupLock::default(), OrderTable::default());
    for message in ["tea", "coffee", "cocoa"] {
        let id = format!("message-{message}");
        let (first, second) = tokio::join!(
            handle(&lock, &orders, &id, message),
            handle(&lock, &orders, &id, message)
        );
        println!("{id}: {:?} and {:?}", first?, second?);
    }
    let refused = handle(&lock, &orders, "message-tea", "something else").await;
    println!("message-tea with another body: {:?}", refused.map_err(|error| error.to_string()));
    let count = orders.0.lock().map_err(|_| "poisoned")?.len();
    println!("{count} orders for 6 deliveries");
    if count == 3 { Ok(()) } else { Err("every message should have one order".into()) }
}
