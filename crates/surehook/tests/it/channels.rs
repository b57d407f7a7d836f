//! Messages sent through each channel to fake servers: the outcome of every error code and error text.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use surehook_retry::{DeadReason, FailureClass};

use crate::support::{
    WAIT_LIMIT, eventually,
    fake_channels::{
        ChannelBehavior, CloudApi, CloudApiStatus, EvolutionApi, EvolutionGo, FakeChannel,
        evolution_errors, meta_errors,
    },
    gateway::Gateway,
    millis,
};

/// A retry policy without jitter, so that a backoff of the channel can be distinguished from the policy's.
const RETRY: &str =
    r#"retry = { max_attempts = 9, initial_delay = "100ms", max_delay = "100ms", jitter = 0 }"#;

/// Settings of a destination that sends through the Cloud API.
pub(crate) fn cloud_api_settings(name: &str, url: &str, sending: &str) -> String {
    let account = format!(r#"sender = "{}", token = "{}""#, CloudApi::SENDER, CloudApi::TOKEN);
    destination(name, "whatsapp-cloud", url, &account, sending)
}

/// Settings of a destination that sends through Evolution Go.
pub(crate) fn evolution_go_settings(name: &str, url: &str, sending: &str) -> String {
    let account = format!(r#"token = "{}""#, EvolutionGo::TOKEN);
    destination(name, "evolution-go", url, &account, sending)
}

/// Settings of a destination that sends through Evolution API.
fn evolution_api_settings(name: &str, url: &str, sending: &str) -> String {
    let (sender, token) = (EvolutionApi::INSTANCE, EvolutionApi::TOKEN);
    let account = format!(r#"sender = "{sender}", token = "{token}""#);
    destination(name, "evolution-api", url, &account, sending)
}

fn destination(name: &str, kind: &str, url: &str, account: &str, more: &str) -> String {
    format!(
        r#"
        [[destinations]]
        name = "{name}"
        kind = "{kind}"
        url = "{url}"
        account = {{ {account} }}
        {more}
        "#
    )
}

/// Sends a text message; returns the delivery id.
async fn send_text(gateway: &Gateway, destination: &str, to: &str) -> String {
    let message = json!({ "destination": destination, "to": to, "text": "Olá" });
    let response = gateway.post("/messages", &message).await.expect(202).json();
    response["delivery_id"].as_str().unwrap().to_owned()
}

/// A different phone number for each case.
fn phone(number: usize) -> String {
    format!("55119{number:08}")
}

/// The expected result of the first attempt.
#[derive(Debug)]
struct ExpectedOutcome {
    class: FailureClass,
    dead: Option<DeadReason>,
    /// Minimum time until the next attempt.
    wait: Duration,
    /// Whether the whole destination is paused or cools down.
    stops_destination: bool,
}

/// Waits for the first attempt and checks its result.
async fn assert_outcome(gateway: &Gateway, name: &str, delivery: &str, expected: &ExpectedOutcome) {
    let path = format!("/deliveries/{delivery}");
    let attempted = eventually(WAIT_LIMIT, || async {
        let attempted = gateway.get(&path).await.expect(200).json();
        (attempted["attempts"].as_u64() > Some(0) && attempted["status"] != "in_flight")
            .then_some(attempted)
    })
    .await;
    let context = format!("{name} {expected:?} {attempted}");
    let attempt = &attempted["attempt_list"][0];
    assert_eq!(attempt["class"], expected.class.as_str(), "{context}");
    let state = &gateway.get(&format!("/destinations/{name}")).await.expect(200).json()["state"];
    let is_config = expected.class == FailureClass::Config;
    match expected.dead {
        Some(reason) => {
            assert_eq!(attempted["status"], "dead", "{context}");
            assert_eq!(attempted["reason"], reason.as_str(), "{context}");
        }
        // A config failure keeps the delivery: it is held once the pause of the destination is saved.
        None if is_config && expected.stops_destination => {
            gateway.wait_for_delivery_status(delivery, "held").await;
        }
        None => {
            let ended = millis(&attempt["started_at"]) + attempt["duration_ms"].as_i64().unwrap();
            let wait = i64::try_from(expected.wait.as_millis()).unwrap();
            // On a busy machine the second attempt may have been made meanwhile.
            let next = match attempted["attempt_list"].get(1) {
                Some(second) => &second["started_at"],
                None => &attempted["due_at"],
            };
            assert!(millis(next) - ended >= wait, "{context}");
        }
    }
    assert_eq!(
        state["paused"],
        json!(is_config && expected.stops_destination),
        "{context} {state}"
    );
    if expected.class == FailureClass::Throttled {
        let is_cooling = !state["cooling_until"].is_null();
        assert_eq!(is_cooling, expected.stops_destination, "{context} {state}");
    }
}

#[tokio::test]
async fn every_cloud_api_error_code_has_expected_outcome() {
    let meta = CloudApi::start().await;
    let name = |code: u32| format!("code-{code}");
    let all = meta_errors::META_ERROR_CODES.iter();
    let settings: String =
        all.map(|code| cloud_api_settings(&name(code.code), &meta.url(), RETRY)).collect();
    let gateway = Gateway::start_with(&settings).await;
    for (number, code) in meta_errors::META_ERROR_CODES.iter().enumerate() {
        meta.set_for_recipient(&phone(number), ChannelBehavior::code(code.code));
    }
    for (number, code) in meta_errors::META_ERROR_CODES.iter().enumerate() {
        let destination = name(code.code);
        let delivery = send_text(&gateway, &destination, &phone(number)).await;
        let expected = ExpectedOutcome {
            class: code.class,
            dead: code.dead,
            wait: code.wait.map_or(Duration::ZERO, |wait| wait.after(1)),
            stops_destination: code.scope.is_whole_sender(),
        };
        assert_outcome(&gateway, &destination, &delivery, &expected).await;
    }
    assert!(meta.sent().is_empty(), "rejected messages are not counted as sent");
}

#[tokio::test]
async fn every_evolution_error_text_has_expected_outcome() {
    let (evolution_go, evolution_api) = (EvolutionGo::start().await, EvolutionApi::start().await);
    let (gos, apis) = (evolution_errors::go_errors(), evolution_errors::api_errors());
    let mut settings = String::new();
    for number in 0..gos.len() {
        settings += &evolution_go_settings(&format!("go-{number}"), &evolution_go.url(), RETRY);
    }
    for number in 0..apis.len() {
        settings += &evolution_api_settings(&format!("api-{number}"), &evolution_api.url(), RETRY);
    }
    let gateway = Gateway::start_with(&settings).await;
    let both: [(&str, &FakeChannel, _); 2] =
        [("go", &evolution_go, gos), ("api", &evolution_api, apis)];
    for (service, fake_channel, errors) in both {
        for (number, error) in errors.into_iter().enumerate() {
            let (to, name) = (phone(number), format!("{service}-{number}"));
            fake_channel
                .set_for_recipient(&to, ChannelBehavior::Respond(error.status, error.body.clone()));
            let delivery = send_text(&gateway, &name, &to).await;
            // Resending is safe only with Evolution Go, which recognizes the message id.
            let is_safe = error.class == FailureClass::Ambiguous && service == "go";
            let expected = ExpectedOutcome {
                class: error.class,
                dead: error.dead.filter(|_| !is_safe),
                wait: Duration::ZERO,
                stops_destination: matches!(
                    error.class,
                    FailureClass::Config | FailureClass::Throttled
                ),
            };
            assert_outcome(&gateway, &name, &delivery, &expected).await;
        }
    }
}

#[tokio::test]
async fn error_codes_in_201_response_of_evolution_api_are_failures() {
    let evolution = EvolutionApi::start().await;
    let codes = [131_026, 131_056, 190];
    let name = |code: u32| format!("code-{code}");
    let settings: String = codes
        .iter()
        .map(|code| evolution_api_settings(&name(*code), &evolution.url(), RETRY))
        .collect();
    let gateway = Gateway::start_with(&settings).await;
    for (number, code) in codes.into_iter().enumerate() {
        let (to, known) = (phone(number), meta_errors::find(code));
        evolution.set_for_recipient(&to, ChannelBehavior::code_in_201(code));
        let delivery = send_text(&gateway, &name(code), &to).await;
        let expected = ExpectedOutcome {
            class: known.class,
            dead: known.dead,
            wait: Duration::ZERO,
            stops_destination: known.scope.is_whole_sender(),
        };
        assert_outcome(&gateway, &name(code), &delivery, &expected).await;
    }
}

#[tokio::test]
async fn expired_token_pauses_destination_until_resumed() {
    let meta = CloudApi::start().await;
    let gateway = Gateway::start_with(&cloud_api_settings("wa", &meta.url(), RETRY)).await;
    meta.queue_next([ChannelBehavior::code(190)]);
    let first = send_text(&gateway, "wa", &phone(1)).await;
    gateway.wait_for_delivery_status(&first, "held").await;
    let state = &gateway.get("/destinations/wa").await.expect(200).json()["state"];
    let reason = state["pause"]["reason"].as_str().unwrap();
    assert!(reason.contains("190") && reason.contains("then resume"), "{reason}");
    let second = send_text(&gateway, "wa", &phone(2)).await;
    gateway.wait_for_delivery_status(&second, "held").await;

    gateway.post("/destinations/wa/resume", &json!({})).await.expect(200);

    for delivery in [first, second] {
        let sent = gateway.wait_for_delivery_status(&delivery, "succeeded").await;
        assert!(sent["message_id"].as_str().unwrap().starts_with("wamid."), "{sent}");
    }
    assert_eq!(meta.sent().len(), 2);
}

#[tokio::test]
async fn route_transform_turns_event_into_text_message() {
    let meta = CloudApi::start().await;
    let settings = format!(
        r#"
        [[sources]]
        name = "shop"
        verify = "none"
        [[routes]]
        from = "shop"
        to = "wa"
        transform = '{{to: .customer.phone, text: "Paid: \(.total)"}}'
        {}
        "#,
        cloud_api_settings("wa", &meta.url(), RETRY)
    );
    let gateway = Gateway::start_with(&settings).await;
    let paid = r#"{"id":"in_1","total":42,"customer":{"phone":"+55 11 98765-4321"}}"#;
    let event = gateway.post_accepted("shop", paid).await;
    gateway.wait_for_delivery(&event, "succeeded").await;
    let message = &meta.messages()[0];
    assert_eq!(message.body["text"]["body"], "Paid: 42");
    assert_eq!(message.to, "5511987654321");

    // A transform result that is not a valid message is not sent, and the error quotes no personal data.
    let event = gateway.post_accepted("shop", r#"{"id":"in_2","total":42,"customer":{}}"#).await;
    let dead = gateway.wait_for_delivery(&event, "dead").await;
    assert_eq!(dead["reason"], "payload_error");
    let delivery = dead["id"].as_str().unwrap();
    let attempt = &gateway.get(&format!("/deliveries/{delivery}")).await.json()["attempt_list"][0];
    assert_eq!(attempt["failure"], "unsendable", "{attempt}");
    assert_eq!(meta.count(), 1);
}

/// Settings with a source for status updates and a Cloud API destination.
fn with_statuses(url: &str, more: &str) -> String {
    let secret = CloudApi::APP_SECRET;
    format!(
        r#"
        [[sources]]
        name = "statuses"
        provider = "whatsapp-cloud"
        secrets = ["{secret}"]
        verify_token = "t"
        {}
        "#,
        cloud_api_settings("wa", url, &format!("{RETRY}\n{more}"))
    )
}

#[tokio::test]
async fn status_update_settles_ambiguous_delivery() {
    let meta = CloudApi::start().await;
    let gateway = Gateway::start_with(&with_statuses(&meta.url(), "")).await;
    let status_url = gateway.url("/in/statuses");
    let cases = [
        (CloudApiStatus::Sent, "succeeded", Value::Null),
        (CloudApiStatus::Delivered, "succeeded", Value::Null),
        (CloudApiStatus::Failed(131_026), "dead", json!("unrecoverable")),
    ];
    for (number, (status, expected, reason)) in cases.into_iter().enumerate() {
        meta.queue_next([ChannelBehavior::CloseAfterBody]);
        let delivery = send_text(&gateway, "wa", &phone(number)).await;
        let scheduled = gateway.wait_for_delivery_status(&delivery, "scheduled").await;
        assert_eq!(scheduled["attempt_list"][0]["class"], "ambiguous");
        let message = meta.messages().pop().unwrap();
        meta.send_statuses(&status_url, &[(&message, status)]).await.expect(200);
        let ended = gateway.wait_for_delivery_status(&delivery, expected).await;
        assert_eq!(ended["reason"], reason, "{ended}");
        assert_eq!(ended["attempts"], 1);
    }
    assert_eq!(meta.count(), 3, "nothing is resent");
}

#[tokio::test]
async fn ambiguous_message_without_status_is_resent_after_deadline() {
    let meta = CloudApi::start().await;
    let sending = r#"sending = { status_within = "2s" }"#;
    let gateway = Gateway::start_with(&with_statuses(&meta.url(), sending)).await;
    meta.queue_next([ChannelBehavior::CloseAfterBody]);
    let delivery = send_text(&gateway, "wa", &phone(1)).await;
    gateway.wait_for_delivery_status(&delivery, "succeeded").await;
    let messages = meta.messages();
    assert_eq!(messages.len(), 2);
    assert!(messages[1].at - messages[0].at >= Duration::from_secs(2));
    assert_eq!(messages[0].our_id, messages[1].our_id);
}

#[tokio::test]
async fn ambiguous_evolution_api_delivery_is_dead_until_replayed() {
    let evolution = EvolutionApi::start().await;
    let gateway = Gateway::start_with(&evolution_api_settings("wa", &evolution.url(), RETRY)).await;
    evolution.queue_next([ChannelBehavior::CloseAfterBody]);
    let delivery = send_text(&gateway, "wa", &phone(1)).await;
    let dead = gateway.wait_for_delivery_status(&delivery, "dead").await;
    assert_eq!(dead["reason"], "ambiguous");

    let path = format!("/deliveries/{delivery}/replay");
    let again = gateway.request_as_admin(Method::POST, &path, &[], "").await.expect(202).json();
    gateway.wait_for_delivery_status(again["delivery_id"].as_str().unwrap(), "succeeded").await;
    assert_eq!(evolution.count(), 2);
}

#[tokio::test]
async fn evolution_go_retry_reuses_message_id() {
    let evolution = EvolutionGo::start().await;
    let gateway = Gateway::start_with(&evolution_go_settings("wa", &evolution.url(), RETRY)).await;
    let unknown = ChannelBehavior::text("timed out waiting for message send response");
    evolution.queue_next([ChannelBehavior::CloseAfterBody, unknown]);
    let delivery = send_text(&gateway, "wa", &phone(1)).await;
    let sent = gateway.wait_for_delivery_status(&delivery, "succeeded").await;
    let messages = evolution.messages();
    assert_eq!(messages.len(), 3);
    let id = messages[0].our_id.as_deref().unwrap();
    assert!(messages.iter().all(|message| message.our_id.as_deref() == Some(id)));
    assert_eq!(sent["message_id"], id);
}
