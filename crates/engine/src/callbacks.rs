//! Posts callbacks: reports the end of a delivery to the URL or destination that its message named.
//!
//! The store makes a callback due in the transaction that ends the delivery. Here it becomes a message
//! of its own, with ids that derive from the delivery: if the process dies between the two steps, it is
//! posted again and is a duplicate of itself.

use std::{sync::Arc, time::Duration};

use surehook_core::{
    callback::{CallbackResult, DueCallback},
    idempotency::IdempotentRequest,
    store::Duty,
};
use surehook_types::store_error::StoreError;

use crate::{
    Engine,
    ingest::{SendMessageError, SendTarget},
};

/// How often due callbacks are looked for. Those of deliveries that end with an attempt are posted at once;
/// the others end, for instance, by a cancellation.
const POST_EVERY: Duration = Duration::from_secs(5);
const BATCH_MAX: usize = 100;

/// Posts due callbacks until the engine stops, while this process leads the duty.
pub(crate) async fn run(engine: Arc<Engine>) {
    loop {
        if engine.shared.node.leads(Duty::Callbacks)
            && let Err(error) = post_due(&engine).await
        {
            tracing::warn!(%error, "could not post callbacks; they are retried");
        }
        tokio::select! {
            () = engine.shared.stop.cancelled() => return,
            () = engine.shared.callbacks_due.notified() => {}
            () = tokio::time::sleep(POST_EVERY) => {}
        }
    }
}

async fn post_due(engine: &Arc<Engine>) -> Result<(), StoreError> {
    // A callback that cannot be posted now must not keep the others waiting.
    let mut after = None;
    loop {
        let due = engine.store.list_due_callbacks(after, BATCH_MAX).await?;
        let is_last = due.len() < BATCH_MAX;
        after = due.last().map(|callback| callback.delivery);
        for callback in due {
            match post(engine, &callback).await {
                Ok(result) => {
                    let at = engine.shared.clock.now();
                    engine.store.end_callback(callback.delivery, result, at).await?;
                }
                Err(error) => {
                    tracing::warn!(delivery = %callback.delivery, %error, "could not post a callback; it is retried");
                }
            }
        }
        if is_last {
            return Ok(());
        }
    }
}

async fn post(engine: &Arc<Engine>, due: &DueCallback) -> Result<CallbackResult, SendMessageError> {
    if !due.callback.on.contains(&due.end) {
        return Ok(CallbackResult::NotRequested);
    }
    let to = engine.find_send_target(&due.callback.destination.to_string()).await;
    let to: SendTarget = match to {
        Err(SendMessageError::UnknownDestination(_)) => return Ok(CallbackResult::NoDestination),
        to => to?,
    };
    let request = IdempotentRequest { at: due.ended_at, seed: due.delivery.uuid().into_bytes() };
    // A kind and headers of our own are always valid.
    let Ok(post) = due.build_post() else { return Ok(CallbackResult::NotRequested) };
    let accepted = engine.send_message(to, post, request, Duration::ZERO, None).await?;
    Ok(CallbackResult::Posted(accepted.event))
}
