//! The ways out of a lane: what one attempt sends, and what comes back.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, Uri};
use surehook_core::{
    delivery::{AttemptFailure, AttemptOutcome},
    destination::{Destination, Transport, exec::ExecConfig, stream::RedisStream},
    store::ClaimedDelivery,
    time::Timestamp,
};

use tokio::time::Instant;

use super::{LaneContext, message::OutboundMessage};
use crate::{
    destination_client::{DestinationClient, PreparedDestination},
    exec,
    inbox::{Inbox, InboxDelivery},
    media::MediaFiles,
    outbound_headers,
    programs::AllowedPrograms,
    sender::SendReport,
};

/// The ways out of a lane.
#[derive(Debug)]
pub(super) struct LaneTransport {
    pub(super) outlet: ArcSwap<DestinationClient>,
    inbox: Arc<Inbox>,
    programs: Arc<AllowedPrograms>,
}

/// What one attempt sends, ready to go.
pub(super) enum OutboundRequest<'o> {
    /// A webhook.
    Request { url: &'o Uri, headers: HeaderMap, body: Bytes },
    /// Something for the inbox.
    Inbox(InboxDelivery),
    /// A message.
    OutboundMessage(Box<OutboundMessage<'o>>),
    /// Something for a program.
    Input(&'o ExecConfig, Box<ClaimedDelivery>),
    /// Something for a stream.
    Entry(&'o RedisStream, Box<ClaimedDelivery>),
}

impl LaneTransport {
    pub(super) fn new(prepared: PreparedDestination, shared: &LaneContext) -> Self {
        let outlet = DestinationClient::new(prepared, &shared.http, None);
        let (inbox, programs) = (Arc::clone(&shared.inbox), Arc::clone(&shared.programs));
        Self { outlet: ArcSwap::from_pointee(outlet), inbox, programs }
    }

    /// The next attempt goes out the new way.
    pub(super) fn update(&self, prepared: PreparedDestination, shared: &LaneContext) {
        let next = DestinationClient::new(prepared, &shared.http, Some(&*self.outlet.load()));
        self.outlet.store(Arc::new(next));
    }

    /// Sends it.
    pub(super) async fn carry(
        &self,
        outlet: &DestinationClient,
        parcel: OutboundRequest<'_>,
    ) -> SendReport {
        let started = Instant::now();
        match parcel {
            OutboundRequest::Request { url, headers, body } => {
                outlet.send(url, headers, body).await
            }
            OutboundRequest::OutboundMessage(letter) => letter.send(outlet).await,
            OutboundRequest::Input(exec, claimed) => {
                let Destination { name, timeout, .. } = &*outlet.destination;
                let event = (name.as_str(), &*claimed);
                let ended = exec::run(exec, &self.programs, event, *timeout).await;
                ended.report(started.elapsed())
            }
            OutboundRequest::Entry(stream, claimed) => {
                outlet.add(stream, &claimed).await.report(started.elapsed())
            }
            OutboundRequest::Inbox(arrival) => {
                self.inbox.take(arrival);
                SendReport::of(AttemptOutcome::Answered { status: 200, retry_after: None })
            }
        }
    }
}

/// Why nothing was sent.
pub(super) struct NotSentReason(pub(super) AttemptFailure, pub(super) String);

impl From<NotSentReason> for SendReport {
    fn from(NotSentReason(failure, why): NotSentReason) -> Self {
        Self { detail: Some(why), ..Self::of(AttemptOutcome::Failed(failure)) }
    }
}

/// Makes what is sent ready. Nothing is sent if that fails.
pub(super) async fn pack<'o>(
    (outlet, media): (&'o DestinationClient, &MediaFiles),
    claimed: &ClaimedDelivery,
    secret_headers: &[String],
    now: Timestamp,
) -> Result<OutboundRequest<'o>, SendReport> {
    let destination = &*outlet.destination;
    let headers = || {
        outbound_headers::headers(destination, claimed, secret_headers, now)
            .map_err(|error| NotSentReason(AttemptFailure::Unsignable, error.to_string()))
    };
    let body = claimed.payload.body.clone();
    Ok(match &destination.transport {
        Transport::Http(url) => OutboundRequest::Request { url, headers: headers()?, body },
        Transport::Inbox => {
            let (event, headers) = (claimed.event, headers()?);
            OutboundRequest::Inbox(InboxDelivery { at: now, event, headers, body })
        }
        Transport::Channel(sender) => {
            let letter = OutboundMessage::write((sender, media), destination, claimed, now).await?;
            OutboundRequest::OutboundMessage(Box::new(letter))
        }
        Transport::Exec(exec) => OutboundRequest::Input(exec, Box::new(claimed.clone())),
        Transport::RedisStream(stream) => OutboundRequest::Entry(stream, Box::new(claimed.clone())),
    })
}

pub(super) fn interrupted(elapsed: Duration) -> SendReport {
    SendReport {
        elapsed,
        detail: Some("the gateway was shut down before an answer came".to_owned()),
        ..SendReport::of(AttemptOutcome::Failed(AttemptFailure::Interrupted))
    }
}
