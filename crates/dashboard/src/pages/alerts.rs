//! `/alerts`: what fires, what has fired, and the channels.

use std::{sync::Arc, time::Duration};

use askama::Template;
use axum::{
    Router,
    extract::Path,
    routing::{get, post},
};
use surehook_api::{
    ApiTransport as _,
    alerts::{AlertResponse, AlertsResponse},
    calls,
};
use surehook_core::alert::{AlertRule, AlertSubjectKind, message::AlertFormat};

use crate::{
    Dashboard,
    current_user::CurrentUser,
    format::{Badge, format_duration, format_size},
    lang::{Lang, fill},
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::AlertTexts,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/alerts", get(show_alerts))
        .route("/alerts/{channel}/test", post(test_channel))
}

#[derive(Template)]
#[template(path = "alerts.html")]
struct AlertsPage {
    frame: PageFrame,
    t: &'static AlertTexts,
    report: AlertsResponse,
}

async fn show_alerts(user: CurrentUser) -> PageResult {
    let t = AlertTexts::of(user.lang());
    let report = user.call(calls::list_alerts()).await?;
    let frame = PageFrame::of_menu(&user, NavItem::Alerts);
    render_page(&AlertsPage { frame, t, report })
}

async fn test_channel(user: CurrentUser, Path(channel): Path<String>) -> PageResult {
    let t = AlertTexts::of(user.lang());
    match user.call(calls::test_alert_channel(&channel)).await {
        Ok(sent) => {
            let notice = fill(t.test_sent, &[&sent.channel]);
            // With one recipient, the page of the event shows whether it arrived.
            let path = match &sent.events[..] {
                [event] => format!("/events/{event}"),
                [..] => "/alerts".to_owned(),
            };
            Ok(user.redirect_with_notice(&path, notice))
        }
        Err(error) => Ok(user.redirect_with_error("/alerts", &error)),
    }
}

fn rule_badge(alert: &AlertResponse, t: &AlertTexts) -> Badge {
    let name = rule_name(alert.rule, t);
    match (alert.resolved_at, alert.rule) {
        (Some(_), _) => Badge::new("ok", "check", name),
        (
            None,
            AlertRule::FailureRatio
            | AlertRule::OldestPending
            | AlertRule::SilentSource
            | AlertRule::SendQuota
            | AlertRule::DeadLetterCount,
        ) => Badge::new("warn", "warn", name),
        (
            None,
            AlertRule::DestinationUnusable
            | AlertRule::CircuitOpen
            | AlertRule::DestinationFailing
            | AlertRule::DeadLetters
            | AlertRule::SignatureFailures
            | AlertRule::DiskSpace
            | AlertRule::NodeLost,
        ) => Badge::new("bad", "cross", name),
    }
}

fn rule_name(rule: AlertRule, t: &AlertTexts) -> &'static str {
    match rule {
        AlertRule::DestinationUnusable => t.rule_unusable,
        AlertRule::CircuitOpen => t.rule_circuit,
        AlertRule::DestinationFailing => t.rule_failing,
        AlertRule::FailureRatio => t.rule_ratio,
        AlertRule::OldestPending => t.rule_pending,
        AlertRule::DeadLetters => t.rule_dead,
        AlertRule::DeadLetterCount => t.rule_dead_count,
        AlertRule::SilentSource => t.rule_silent,
        AlertRule::SignatureFailures => t.rule_signatures,
        AlertRule::DiskSpace => t.rule_disk,
        AlertRule::SendQuota => t.rule_quota,
        AlertRule::NodeLost => t.rule_node,
    }
}

fn subject_kind(alert: &AlertResponse, t: &AlertTexts) -> &'static str {
    match alert.subject.kind {
        AlertSubjectKind::Destination => t.destination,
        AlertSubjectKind::Source => t.source,
        AlertSubjectKind::Node => t.node,
        AlertSubjectKind::Gateway => t.gateway,
    }
}

fn format_name(format: AlertFormat, t: &AlertTexts) -> &'static str {
    match format {
        AlertFormat::Auto => "",
        AlertFormat::Webhook => "Webhook",
        AlertFormat::Slack => "Slack",
        AlertFormat::Discord => "Discord",
        AlertFormat::Email => t.email,
        AlertFormat::Whatsapp => "WhatsApp",
    }
}

/// The figures of an alert in words.
fn describe(alert: &AlertResponse, lang: Lang) -> String {
    let t = AlertTexts::of(lang);
    let figures = &alert.figures;
    let (count, of) = (lang.number(figures.count), lang.number(figures.of));
    let seconds = |seconds| format_duration(lang, Duration::from_secs(seconds));
    let span = seconds(figures.seconds);
    match alert.rule {
        AlertRule::DestinationUnusable | AlertRule::CircuitOpen => fill(t.waiting, &[&count]),
        AlertRule::DestinationFailing | AlertRule::FailureRatio => {
            fill(t.attempts_failed, &[&count, &of, &span])
        }
        AlertRule::OldestPending => fill(t.overdue, &[&span, &count]),
        AlertRule::DeadLetters => fill(t.became_dead, &[&count, &span]),
        AlertRule::DeadLetterCount | AlertRule::SendQuota => fill(t.of_limit, &[&count, &of]),
        AlertRule::SilentSource => fill(t.no_event, &[&span, &seconds(figures.of)]),
        AlertRule::SignatureFailures => fill(t.unsigned, &[&count, &span]),
        AlertRule::DiskSpace => {
            let size = |bytes| format_size(lang, bytes);
            fill(t.disk_free, &[&size(figures.count), &size(figures.of)])
        }
        AlertRule::NodeLost => fill(t.no_sign, &[&span]),
    }
}
