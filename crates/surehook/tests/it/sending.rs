//! Messages through each service, sent by the real gateway to servers that speak as the services do:
//! what every code and every text leads to.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use surehook_core::delivery::{DeadReason, FailureClass};

use crate::support::{
    WAIT_LIMIT, eventually,
    fake_channels::{
        ChannelBehavior, CloudApi, CloudApiStatus, EvolutionApi, EvolutionGo, FakeChannel,
        evolution_errors, meta_errors,
    },
    gateway::Gateway,
    millis,
};

/// A retry policy without jitter, so that a wait of the service can be told from one of the policy.
const RETRY: &str =
    r#"retry = { max_attempts = 9, initial_delay = "100ms", max_delay = "100ms", jitter = 0 }"#;

/// A destination that sends by the Cloud API.
pub(crate) fn cloud(name: &str, url: &str, sending: &str) -> String {
    let account = format!(r#"sender = "{}", token = "{}""#, CloudApi::SENDER, CloudApi::TOKEN);
    destination((name, "whatsapp-cloud"), url, &account, sending)
}

/// One that sends by Evolution Go.
pub(crate) fn go(name: &str, url: &str, sending: &str) -> String {
    let account = format!(r#"token = "{}""#, EvolutionGo::TOKEN);
    destination((name, "evolution-go"), url, &account, sending)
}

/// One that sends by Evolution API.
fn api(name: &str, url: &str, sending: &str) -> String {
    let (sender, token) = (EvolutionApi::INSTANCE, EvolutionApi::TOKEN);
    let account = format!(r#"sender = "{sender}", token = "{token}""#);
    destination((name, "evolution-api"), url, &account, sending)
}

fn destination((name, kind): (&str, &str), url: &str, account: &str, more: &str) -> String {
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

/// Sends a text; says which delivery it is.
async fn text(gateway: &Gateway, destination: &str, to: &str) -> String {
    let message = json!({ "destination": destination, "to": to, "text": "Olá" });
    let answer = gateway.post("/messages", &message).await.expect(202).json();
    answer["delivery_id"].as_str().unwrap().to_owned()
}

/// A phone number of its own for each case.
fn phone(number: usize) -> String {
    format!("55119{number:08}")
}

/// What an answer should lead to.
#[derive(Debug)]
struct Expected {
    class: FailureClass,
    dead: Option<DeadReason>,
    /// At least so long until the next attempt.
    wait: Duration,
    /// The whole destination is held, until somebody has mended something or for a while.
    holds: bool,
}

/// Waits for what the first attempt led to, and checks it.
async fn leads_to(gateway: &Gateway, name: &str, delivery: &str, expected: &Expected) {
    let path = format!("/deliveries/{delivery}");
    let found = eventually(WAIT_LIMIT, || async {
        let found = gateway.get(&path).await.expect(200).json();
        (found["attempts"].as_u64() > Some(0) && found["status"] != "in_flight").then_some(found)
    })
    .await;
    let context = format!("{name} {expected:?} {found}");
    let attempt = &found["attempt_list"][0];
    assert_eq!(attempt["class"], expected.class.as_str(), "{context}");
    let state = &gateway.get(&format!("/destinations/{name}")).await.expect(200).json()["state"];
    let is_config = expected.class == FailureClass::Config;
    match expected.dead {
        Some(reason) => {
            assert_eq!(found["status"], "dead", "{context}");
            assert_eq!(found["reason"], reason.as_str(), "{context}");
        }
        // What somebody must mend stays owed: held with its destination, once that is written down.
        None if is_config && expected.holds => {
            gateway.wait_for_delivery_status(delivery, "held").await;
        }
        None => {
            let ended = millis(&attempt["started_at"]) + attempt["took_ms"].as_i64().unwrap();
            let wait = i64::try_from(expected.wait.as_millis()).unwrap();
            let attempts = found["attempts"].as_u64().unwrap();
            let is_later = attempts > 1 || millis(&found["due_at"]) - ended >= wait;
            assert!(is_later, "{context}");
            assert!(wait < 1000 || attempts == 1, "{context}");
        }
    }
    assert_eq!(state["paused"], json!(is_config && expected.holds), "{context} {state}");
    if expected.class == FailureClass::Throttled {
        let is_cooling = !state["cooling_until"].is_null();
        assert_eq!(is_cooling, expected.holds, "{context} {state}");
    }
}

#[tokio::test]
async fn every_code_of_the_cloud_api_leads_to_what_it_means() {
    let meta = CloudApi::start().await;
    let name = |code: u32| format!("code-{code}");
    let all = meta_errors::META_ERROR_CODES.iter();
    let settings: String = all.map(|code| cloud(&name(code.code), &meta.url(), RETRY)).collect();
    let gateway = Gateway::start_with(&settings).await;
    for (number, code) in meta_errors::META_ERROR_CODES.iter().enumerate() {
        meta.set_for_recipient(&phone(number), ChannelBehavior::code(code.code));
    }
    for (number, code) in meta_errors::META_ERROR_CODES.iter().enumerate() {
        let destination = name(code.code);
        let delivery = text(&gateway, &destination, &phone(number)).await;
        let expected = Expected {
            class: code.class,
            dead: code.dead,
            wait: code.wait.map_or(Duration::ZERO, |wait| wait.after(1)),
            holds: code.scope.is_whole_sender(),
        };
        leads_to(&gateway, &destination, &delivery, &expected).await;
    }
    assert!(meta.sent().is_empty(), "what is refused is not sent");
}

#[tokio::test]
async fn every_text_of_evolution_leads_to_what_it_means() {
    let (evolution_go, evolution_api) = (EvolutionGo::start().await, EvolutionApi::start().await);
    let (gos, apis) = (evolution_errors::go_errors(), evolution_errors::api_errors());
    let mut settings = String::new();
    for number in 0..gos.len() {
        settings += &go(&format!("go-{number}"), &evolution_go.url(), RETRY);
    }
    for number in 0..apis.len() {
        settings += &api(&format!("api-{number}"), &evolution_api.url(), RETRY);
    }
    let gateway = Gateway::start_with(&settings).await;
    let both: [(&str, &FakeChannel, _); 2] =
        [("go", &evolution_go, gos), ("api", &evolution_api, apis)];
    for (service, fake_channel, troubles) in both {
        for (number, trouble) in troubles.into_iter().enumerate() {
            let (to, name) = (phone(number), format!("{service}-{number}"));
            fake_channel.set_for_recipient(
                &to,
                ChannelBehavior::Respond(trouble.status, trouble.body.clone()),
            );
            let delivery = text(&gateway, &name, &to).await;
            // Sending again is safe at Evolution Go, and only there.
            let is_safe = trouble.class == FailureClass::Ambiguous && service == "go";
            let expected = Expected {
                class: trouble.class,
                dead: trouble.dead.filter(|_| !is_safe),
                wait: Duration::ZERO,
                holds: matches!(trouble.class, FailureClass::Config | FailureClass::Throttled),
            };
            leads_to(&gateway, &name, &delivery, &expected).await;
        }
    }
}

#[tokio::test]
async fn codes_in_a_201_of_evolution_api_are_failures() {
    let evolution = EvolutionApi::start().await;
    let codes = [131_026, 131_056, 190];
    let name = |code: u32| format!("code-{code}");
    let settings: String =
        codes.iter().map(|code| api(&name(*code), &evolution.url(), RETRY)).collect();
    let gateway = Gateway::start_with(&settings).await;
    for (number, code) in codes.into_iter().enumerate() {
        let (to, known) = (phone(number), meta_errors::find(code));
        evolution.set_for_recipient(&to, ChannelBehavior::code_in_201(code));
        let delivery = text(&gateway, &name(code), &to).await;
        let expected = Expected {
            class: known.class,
            dead: known.dead,
            wait: Duration::ZERO,
            holds: known.scope.is_whole_sender(),
        };
        leads_to(&gateway, &name(code), &delivery, &expected).await;
    }
}

#[tokio::test]
async fn a_token_that_expired_holds_everything_until_it_is_mended() {
    let meta = CloudApi::start().await;
    let gateway = Gateway::start_with(&cloud("wa", &meta.url(), RETRY)).await;
    meta.queue_next([ChannelBehavior::code(190)]);
    let first = text(&gateway, "wa", &phone(1)).await;
    gateway.wait_for_delivery_status(&first, "held").await;
    let state = &gateway.get("/destinations/wa").await.expect(200).json()["state"];
    let reason = state["pause"]["reason"].as_str().unwrap();
    assert!(reason.contains("190") && reason.contains("resumes it"), "{reason}");
    let second = text(&gateway, "wa", &phone(2)).await;
    gateway.wait_for_delivery_status(&second, "held").await;

    gateway.post("/destinations/wa/resume", &json!({})).await.expect(200);

    for delivery in [first, second] {
        let sent = gateway.wait_for_delivery_status(&delivery, "succeeded").await;
        assert!(sent["sent_id"].as_str().unwrap().starts_with("wamid."), "{sent}");
    }
    assert_eq!(meta.sent().len(), 2);
}

// A route's transform makes a message of any event.
#[tokio::test]
async fn a_paid_invoice_becomes_a_text() {
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
        cloud("wa", &meta.url(), RETRY)
    );
    let gateway = Gateway::start_with(&settings).await;
    let paid = r#"{"id":"in_1","total":42,"customer":{"phone":"+55 11 98765-4321"}}"#;
    let event = gateway.post_accepted("shop", paid).await;
    gateway.wait_for_delivery(&event, "succeeded").await;
    let message = &meta.messages()[0];
    assert_eq!(message.body["text"]["body"], "Paid: 42");
    assert_eq!(message.to, "5511987654321");

    // What is no message is not sent, and the reason quotes nobody.
    let event = gateway.post_accepted("shop", r#"{"id":"in_2","total":42,"customer":{}}"#).await;
    let dead = gateway.wait_for_delivery(&event, "dead").await;
    assert_eq!(dead["reason"], "payload_error");
    let delivery = dead["id"].as_str().unwrap();
    let attempt = &gateway.get(&format!("/deliveries/{delivery}")).await.json()["attempt_list"][0];
    assert_eq!(attempt["failure"], "unsendable", "{attempt}");
    assert_eq!(meta.count(), 1);
}

/// Settings with a source for statuses and a Cloud API that is waited for so long.
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
        cloud("wa", url, &format!("{RETRY}\n{more}"))
    )
}

#[tokio::test]
async fn a_status_ends_what_nobody_knows() {
    let meta = CloudApi::start().await;
    let gateway = Gateway::start_with(&with_statuses(&meta.url(), "")).await;
    let door = gateway.url("/in/statuses");
    let cases = [
        (CloudApiStatus::Sent, "succeeded", Value::Null),
        (CloudApiStatus::Delivered, "succeeded", Value::Null),
        (CloudApiStatus::Failed(131_026), "dead", json!("unrecoverable")),
    ];
    for (number, (status, expected, reason)) in cases.into_iter().enumerate() {
        meta.queue_next([ChannelBehavior::CloseAfterBody]);
        let delivery = text(&gateway, "wa", &phone(number)).await;
        let waits = gateway.wait_for_delivery_status(&delivery, "scheduled").await;
        assert_eq!(waits["attempt_list"][0]["class"], "ambiguous");
        let message = meta.messages().pop().unwrap();
        meta.send_statuses(&door, &[(&message, status)]).await.expect(200);
        let ended = gateway.wait_for_delivery_status(&delivery, expected).await;
        assert_eq!(ended["reason"], reason, "{ended}");
        assert_eq!(ended["attempts"], 1);
    }
    assert_eq!(meta.count(), 3, "nothing was sent again");
}

#[tokio::test]
async fn without_a_status_it_is_sent_again_only_after_the_deadline() {
    let meta = CloudApi::start().await;
    let sending = r#"sending = { status_within = "2s" }"#;
    let gateway = Gateway::start_with(&with_statuses(&meta.url(), sending)).await;
    meta.queue_next([ChannelBehavior::CloseAfterBody]);
    let delivery = text(&gateway, "wa", &phone(1)).await;
    gateway.wait_for_delivery_status(&delivery, "succeeded").await;
    let messages = meta.messages();
    assert_eq!(messages.len(), 2);
    assert!(messages[1].at - messages[0].at >= Duration::from_secs(2));
    assert_eq!(messages[0].our_id, messages[1].our_id);
}

#[tokio::test]
async fn what_nobody_knows_of_evolution_api_waits_for_a_person() {
    let evolution = EvolutionApi::start().await;
    let gateway = Gateway::start_with(&api("wa", &evolution.url(), RETRY)).await;
    evolution.queue_next([ChannelBehavior::CloseAfterBody]);
    let delivery = text(&gateway, "wa", &phone(1)).await;
    let dead = gateway.wait_for_delivery_status(&delivery, "dead").await;
    assert_eq!(dead["reason"], "ambiguous");

    let path = format!("/deliveries/{delivery}/replay");
    let again = gateway.request_as_admin(Method::POST, &path, &[], "").await.expect(202).json();
    gateway.wait_for_delivery_status(again["delivery_id"].as_str().unwrap(), "succeeded").await;
    assert_eq!(evolution.count(), 2);
}

#[tokio::test]
async fn evolution_go_gets_the_same_id_again() {
    let evolution = EvolutionGo::start().await;
    let gateway = Gateway::start_with(&go("wa", &evolution.url(), RETRY)).await;
    let unknown = ChannelBehavior::text("timed out waiting for message send response");
    evolution.queue_next([ChannelBehavior::CloseAfterBody, unknown]);
    let delivery = text(&gateway, "wa", &phone(1)).await;
    let sent = gateway.wait_for_delivery_status(&delivery, "succeeded").await;
    let messages = evolution.messages();
    assert_eq!(messages.len(), 3);
    let id = messages[0].our_id.as_deref().unwrap();
    assert!(messages.iter().all(|message| message.our_id.as_deref() == Some(id)));
    assert_eq!(sent["sent_id"], id);
}
