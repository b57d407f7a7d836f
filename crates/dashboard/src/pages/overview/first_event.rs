//! Guide for a new installation: a source, a command that sends to it, and the first event.

use http::HeaderMap;
use surehook_api::{
    ApiTransport as _, calls, events::EventResponse, resources::SourceSummary, stats::Stats,
};

use crate::{client::ApiError, current_user::CurrentUser, lang::fill, translations::OverviewTexts};

/// The guide is shown up to this number of events.
const NEW_EVENTS_MAX: u64 = 3;

/// Whether an unsigned curl request is accepted.
fn accepts_unsigned(source: &SourceSummary) -> bool {
    let is_open = source.verify.as_ref().is_some_and(|verify| verify == "none");
    source.enabled && source.provider == "generic" && is_open
}

pub(super) fn arrived_text(event: &EventResponse, t: &OverviewTexts) -> String {
    fill(t.arrived_lead, &[&event.source.as_deref().unwrap_or_default()])
}

pub(super) fn source_ready_text(source: &str, t: &OverviewTexts) -> String {
    fill(t.step_source_ready, &[&source])
}

pub(super) enum FirstEventGuide {
    /// Enough events were received.
    Finished,
    NoSource,
    Waiting {
        source: String,
        command: String,
    },
    Arrived(Box<EventResponse>),
}

impl FirstEventGuide {
    pub(super) async fn load(
        user: &CurrentUser,
        stats: &Stats,
        headers: &HeaderMap,
    ) -> Result<Self, ApiError> {
        if stats.total > NEW_EVENTS_MAX {
            return Ok(Self::Finished);
        }
        if stats.total > 0 {
            let newest = user.call(calls::list_events().query("limit", "1")).await?.page.data.pop();
            return Ok(
                newest.map_or(Self::Finished, |listed| Self::Arrived(Box::new(listed.event)))
            );
        }
        let sources = user.call(calls::list_sources()).await?.data;
        let mut sources: Vec<_> = sources.into_iter().map(|source| source.spec).collect();
        // A source that accepts unsigned requests is preferred, the demo among them.
        sources.sort_by_key(|source| (!accepts_unsigned(source), source.name.as_str() != "demo"));
        let Some(source) = sources.first() else { return Ok(Self::NoSource) };
        let name = source.name.to_string();
        let command = match accepts_unsigned(source) {
            true => curl_command(&user.ingest_base(headers), &name),
            // The source requires signed requests; this command signs like the provider.
            false => format!("surehook send-test {name}"),
        };
        Ok(Self::Waiting { source: name, command })
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::NoSource | Self::Waiting { .. })
    }
}

fn curl_command(base: &str, source: &str) -> String {
    format!(
        "curl -X POST {base}/in/{source} -H 'content-type: application/json' -d '{{\"id\":\"hello-1\",\"text\":\"hello\"}}'"
    )
}
