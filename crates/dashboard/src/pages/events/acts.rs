//! What can be done with an event: reveal it, deliver it again, stop a delivery.

use axum::{Form, extract::Path};
use serde::Deserialize;
use serde_json::Value;

use super::{api::Revealed, detail, path_of};
use crate::{client::Address, page::Shown, visitor::Visitor, words::EventWords};

/// A form that is carried out once.
#[derive(Deserialize)]
pub(super) struct Once {
    #[serde(default)]
    pub(super) once: String,
}

/// Shows what is masked: the answer itself is the page, so that nothing of it is kept anywhere.
pub(super) async fn reveal(visitor: Visitor, Path(id): Path<String>) -> Shown {
    match visitor.post::<Revealed>(Address::new(&["events", &id, "reveal"]), None).await {
        Ok(revealed) => detail::page(&visitor, &id, Some(revealed)).await,
        Err(trouble) if trouble.is_not_found() => Err(visitor.failed(trouble)),
        Err(trouble) => Ok(visitor.refused(&path_of(&id), &trouble)),
    }
}

pub(super) async fn replay(
    visitor: Visitor,
    Path((id, delivery)): Path<(String, String)>,
    Form(form): Form<Once>,
) -> Shown {
    let address = Address::new(&["deliveries", &delivery, "replay"]);
    let done = visitor.post_once::<Value>(address, None, &form.once).await;
    let t = EventWords::of(visitor.lang());
    Ok(match done {
        Ok(_) => visitor.done(&path_of(&id), t.replay_done),
        Err(trouble) => visitor.refused(&path_of(&id), &trouble),
    })
}

pub(super) async fn cancel(
    visitor: Visitor,
    Path((id, delivery)): Path<(String, String)>,
) -> Shown {
    let address = Address::new(&["deliveries", &delivery, "cancel"]);
    let done = visitor.post::<Value>(address, None).await;
    let t = EventWords::of(visitor.lang());
    Ok(match done {
        Ok(_) => visitor.done(&path_of(&id), t.cancel_done),
        Err(trouble) => visitor.refused(&path_of(&id), &trouble),
    })
}
