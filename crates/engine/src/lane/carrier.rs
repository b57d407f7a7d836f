//! The ways out of a lane: what one attempt sends, and what comes back.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, Uri};
use surehook_core::{
    delivery::{Failure, Outcome},
    destination::Reach,
    store::Claimed,
    time::Timestamp,
};

use super::{Shared, message::Letter};
use crate::{
    inbox::{Arrival, Inbox},
    media::Media,
    outbound,
    outlet::{Outlet, Prepared},
    sender::SendReport,
};

/// The ways out of a lane.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) outlet: ArcSwap<Outlet>,
    inbox: Arc<Inbox>,
}

/// What one attempt sends, ready to go.
pub(super) enum Parcel<'o> {
    /// A webhook.
    Request { url: &'o Uri, headers: HeaderMap, body: Bytes },
    /// Something for the inbox.
    Arrival(Arrival),
    /// A message.
    Letter(Box<Letter<'o>>),
}

impl Carrier {
    pub(super) fn new(prepared: Prepared, shared: &Shared) -> Self {
        let outlet = Outlet::new(prepared, &shared.http, None);
        Self { outlet: ArcSwap::from_pointee(outlet), inbox: Arc::clone(&shared.inbox) }
    }

    /// The next attempt goes out the new way.
    pub(super) fn update(&self, prepared: Prepared, shared: &Shared) {
        let next = Outlet::new(prepared, &shared.http, Some(&*self.outlet.load()));
        self.outlet.store(Arc::new(next));
    }

    /// Sends it.
    pub(super) async fn carry(&self, outlet: &Outlet, parcel: Parcel<'_>) -> SendReport {
        match parcel {
            Parcel::Request { url, headers, body } => outlet.send(url, headers, body).await,
            Parcel::Letter(letter) => letter.send(outlet).await,
            Parcel::Arrival(arrival) => {
                self.inbox.take(arrival);
                SendReport::of(Outcome::Answered { status: 200, retry_after: None })
            }
        }
    }
}

/// Why nothing was sent.
pub(super) struct Unsent(pub(super) Failure, pub(super) String);

impl From<Unsent> for SendReport {
    fn from(Unsent(failure, why): Unsent) -> Self {
        Self { detail: Some(why), ..Self::of(Outcome::Failed(failure)) }
    }
}

/// Makes what is sent ready. Nothing is sent if that fails.
pub(super) async fn pack<'o>(
    (outlet, media): (&'o Outlet, &Media),
    claimed: &Claimed,
    secret_headers: &[String],
    now: Timestamp,
) -> Result<Parcel<'o>, SendReport> {
    let destination = &*outlet.destination;
    if let Reach::Service(sender) = &destination.reach {
        let letter = Letter::write((sender, media), destination, claimed, now).await?;
        return Ok(Parcel::Letter(Box::new(letter)));
    }
    let headers = outbound::headers(destination, claimed, secret_headers, now)
        .map_err(|error| Unsent(Failure::Unsignable, error.to_string()))?;
    let body = claimed.payload.body.clone();
    Ok(match &destination.reach {
        Reach::Http(url) => Parcel::Request { url, headers, body },
        Reach::Inbox | Reach::Service(_) => {
            Parcel::Arrival(Arrival { at: now, event: claimed.event, headers, body })
        }
    })
}

pub(super) fn interrupted(elapsed: Duration) -> SendReport {
    SendReport {
        elapsed,
        detail: Some("the gateway was shut down before an answer came".to_owned()),
        ..SendReport::of(Outcome::Failed(Failure::Interrupted))
    }
}
