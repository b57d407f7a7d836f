//! The ways out of a lane: what one attempt sends, and what comes back.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, Uri};
use surehook_core::{
    delivery::{Failure, Outcome},
    destination::{Destination, Reach, exec::Exec, stream::RedisStream},
    store::Claimed,
    time::Timestamp,
};

use tokio::time::Instant;

use super::{Shared, message::Letter};
use crate::{
    exec,
    inbox::{Inbox, InboxDelivery},
    media::MediaFiles,
    outbound,
    outlet::{Outlet, Prepared},
    programs::AllowedPrograms,
    sender::SendReport,
};

/// The ways out of a lane.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) outlet: ArcSwap<Outlet>,
    inbox: Arc<Inbox>,
    programs: Arc<AllowedPrograms>,
}

/// What one attempt sends, ready to go.
pub(super) enum Parcel<'o> {
    /// A webhook.
    Request { url: &'o Uri, headers: HeaderMap, body: Bytes },
    /// Something for the inbox.
    Inbox(InboxDelivery),
    /// A message.
    Letter(Box<Letter<'o>>),
    /// Something for a program.
    Input(&'o Exec, Box<Claimed>),
    /// Something for a stream.
    Entry(&'o RedisStream, Box<Claimed>),
}

impl Carrier {
    pub(super) fn new(prepared: Prepared, shared: &Shared) -> Self {
        let outlet = Outlet::new(prepared, &shared.http, None);
        let (inbox, programs) = (Arc::clone(&shared.inbox), Arc::clone(&shared.programs));
        Self { outlet: ArcSwap::from_pointee(outlet), inbox, programs }
    }

    /// The next attempt goes out the new way.
    pub(super) fn update(&self, prepared: Prepared, shared: &Shared) {
        let next = Outlet::new(prepared, &shared.http, Some(&*self.outlet.load()));
        self.outlet.store(Arc::new(next));
    }

    /// Sends it.
    pub(super) async fn carry(&self, outlet: &Outlet, parcel: Parcel<'_>) -> SendReport {
        let started = Instant::now();
        match parcel {
            Parcel::Request { url, headers, body } => outlet.send(url, headers, body).await,
            Parcel::Letter(letter) => letter.send(outlet).await,
            Parcel::Input(exec, claimed) => {
                let Destination { name, timeout, .. } = &*outlet.destination;
                let event = (name.as_str(), &*claimed);
                let ended = exec::run(exec, &self.programs, event, *timeout).await;
                ended.report(started.elapsed())
            }
            Parcel::Entry(stream, claimed) => {
                outlet.add(stream, &claimed).await.report(started.elapsed())
            }
            Parcel::Inbox(arrival) => {
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
    (outlet, media): (&'o Outlet, &MediaFiles),
    claimed: &Claimed,
    secret_headers: &[String],
    now: Timestamp,
) -> Result<Parcel<'o>, SendReport> {
    let destination = &*outlet.destination;
    let headers = || {
        outbound::headers(destination, claimed, secret_headers, now)
            .map_err(|error| Unsent(Failure::Unsignable, error.to_string()))
    };
    let body = claimed.payload.body.clone();
    Ok(match &destination.reach {
        Reach::Http(url) => Parcel::Request { url, headers: headers()?, body },
        Reach::Inbox => {
            let (event, headers) = (claimed.event, headers()?);
            Parcel::Inbox(InboxDelivery { at: now, event, headers, body })
        }
        Reach::Service(sender) => {
            let letter = Letter::write((sender, media), destination, claimed, now).await?;
            Parcel::Letter(Box::new(letter))
        }
        Reach::Exec(exec) => Parcel::Input(exec, Box::new(claimed.clone())),
        Reach::RedisStream(stream) => Parcel::Entry(stream, Box::new(claimed.clone())),
    })
}

pub(super) fn interrupted(elapsed: Duration) -> SendReport {
    SendReport {
        elapsed,
        detail: Some("the gateway was shut down before an answer came".to_owned()),
        ..SendReport::of(Outcome::Failed(Failure::Interrupted))
    }
}
