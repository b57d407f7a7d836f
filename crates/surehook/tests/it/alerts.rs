//! Alerts: each channel gets one message about an outage and one about its end, also when the gateway is
//! killed in between.

use std::{collections::BTreeSet, time::Duration};

use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::{
    WAIT_LIMIT,
    dashboard::DashboardClient,
    eventually,
    gateway::{Gateway, TOKEN},
    sink::{Reply, Sink, SinkRequest},
    smtp::{MailServer, PASSWORD, USER},
    tls::CertificateAuthority,
};

/// A message about an alert arrives within this time.
const NOTIFIED_WITHIN: Duration = Duration::from_secs(60);
const QUICK_RETRY: &str = r#"circuit = "off"
    retry = { max_attempts = 1000, initial_delay = "200ms", max_delay = "500ms" }"#;
const SIGNING_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A message about alerts as a channel got it.
#[derive(Clone, Debug)]
struct AlertMessage {
    id: String,
    text: String,
}

impl AlertMessage {
    fn of_request(request: &SinkRequest) -> Self {
        let text = String::from_utf8_lossy(&request.body).into_owned();
        Self { id: request.id().to_owned(), text }
    }

    fn of_mail(mail: &Value) -> Self {
        let text = format!("{} {}", mail["subject"], mail["text"]);
        Self { id: mail["message_id"].to_string(), text }
    }

    fn is_resolved(&self) -> bool {
        self.text.contains("Surehook resolved")
    }
}

/// Ids of the messages about an alert, or of those about its end.
fn ids(messages: &[AlertMessage], resolved: bool) -> BTreeSet<String> {
    let messages = messages.iter().filter(|message| message.is_resolved() == resolved);
    messages.map(|message| message.id.clone()).collect()
}

async fn active_rules(gateway: &Gateway) -> BTreeSet<(String, String)> {
    let alerts = gateway.get("/alerts").await.expect(200).json();
    let field = |value: &Value| value.as_str().unwrap().to_owned();
    let active = alerts["active"].as_array().unwrap().iter();
    active.map(|alert| (field(&alert["rule"]), field(&alert["subject"]["name"]))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_outage_is_one_message_per_channel_and_one_when_over_across_kills() {
    let authority = CertificateAuthority::new();
    let Some(mail) = MailServer::start(&authority).await else { return };
    let (is_up, up) = watch::channel(false);
    let status = move || Reply::status(if *up.borrow() { 200 } else { 503 });
    let services = Sink::with_script(move |_, _| status()).await;
    let (webhook, slack, discord) = (Sink::ok().await, Sink::ok().await, Sink::ok().await);
    let mut settings = r#"
        public_url = "https://hooks.example.com"
        [health]
        window = "10s"
        [alerts]
        failed_attempts_min = 3
        resolve_after = "2s"
        group_wait = "4s"
        [[sources]]
        name = "in"
        verify = "none"
    "#
    .to_owned();
    for name in ["crm", "billing"] {
        settings.push_str(&format!(
            "[[destinations]]\nname = \"{name}\"\nurl = \"{}\"\n{QUICK_RETRY}\n\
             [[routes]]\nfrom = \"in\"\nto = \"{name}\"\n",
            services.url()
        ));
    }
    for (name, sink, format) in
        [("pager", &webhook, "auto"), ("slack", &slack, "slack"), ("discord", &discord, "discord")]
    {
        settings.push_str(&format!(
            "[[destinations]]\nname = \"{name}\"\nurl = \"{}\"\nsigning_secrets = [\"{SIGNING_SECRET}\"]\n\
             alerts = {{ format = \"{format}\" }}\n{QUICK_RETRY}\n",
            sink.url()
        ));
    }
    settings.push_str(&mail.destination("mail", &format!("alerts = {{}}\n{QUICK_RETRY}")));
    let mut gateway = Gateway::start_with(&settings).await;
    let of_sink = |sink: &Sink| -> Vec<AlertMessage> {
        sink.requests().iter().map(AlertMessage::of_request).collect()
    };
    let channels = || {
        let mails = mail.mails().iter().map(AlertMessage::of_mail).collect();
        [of_sink(&webhook), of_sink(&slack), of_sink(&discord), mails]
    };
    let have_arrived =
        |resolved| move |messages: &Vec<AlertMessage>| !ids(messages, resolved).is_empty();

    for number in 0..5 {
        gateway.send_webhook("in", &[], json!({ "id": number }).to_string()).await.expect(200);
    }
    // Both fire, and the messages are not sent yet, or just being sent.
    eventually(NOTIFIED_WITHIN, || async {
        (active_rules(&gateway).await.len() >= 2).then_some(())
    })
    .await;
    gateway.restart().await;
    eventually(NOTIFIED_WITHIN, || async {
        channels().iter().any(have_arrived(false)).then_some(())
    })
    .await;
    gateway.restart().await;
    eventually(NOTIFIED_WITHIN, || async {
        channels().iter().all(have_arrived(false)).then_some(())
    })
    .await;

    is_up.send(true).unwrap();
    eventually(NOTIFIED_WITHIN, || async {
        channels().iter().any(have_arrived(true)).then_some(())
    })
    .await;
    gateway.restart().await;
    eventually(NOTIFIED_WITHIN, || async {
        channels().iter().all(have_arrived(true)).then_some(())
    })
    .await;
    gateway.wait_until_idle().await;

    for (name, messages) in ["webhook", "slack", "discord", "mail"].iter().zip(channels()) {
        // A repeat, where a result was not recorded before a kill, has the same id.
        assert_eq!(ids(&messages, false).len(), 1, "{name}: {messages:?}");
        assert_eq!(ids(&messages, true).len(), 1, "{name}: {messages:?}");
        for message in &messages {
            assert!(message.text.contains("crm"), "{name}: {message:?}");
            assert!(message.text.contains("billing"), "{name}: {message:?}");
            assert!(
                message.text.contains("https://hooks.example.com/alerts"),
                "{name}: {messages:?}"
            );
        }
    }
    let first = &webhook.requests()[0];
    assert!(first.header("webhook-signature").starts_with("v1,"), "{first:?}");
    let body: Value = serde_json::from_slice(&first.body).unwrap();
    assert_eq!(body["type"], "alert.firing");
    assert_eq!(body["data"]["alerts"][0]["rule"], "destination_failing");
    let mails = mail.mails();
    assert_eq!(mails[0]["to"], json!(["ops@example.com", "boss@example.com"]));
    assert_eq!((&mails[0]["user"], &mails[0]["tls"]), (&json!(USER), &json!(true)));
    assert!(!gateway.log().contains(PASSWORD));
    let alerts = gateway.get("/alerts").await.expect(200).json();
    assert_eq!(alerts["active"], json!([]));
    let metrics = gateway.metrics().await;
    assert!(metrics.contains("surehook_alerts{rule=\"destination_failing\"} 0"), "{metrics}");
}

#[tokio::test]
async fn test_message_is_sent_once_and_again_while_the_mail_server_refuses() {
    let authority = CertificateAuthority::new();
    let Some(mail) = MailServer::start(&authority).await else { return };
    mail.refuse(true);
    let settings = mail.destination("mail", &format!("alerts = {{}}\n{QUICK_RETRY}"));
    let gateway = Gateway::start_with(&settings).await;
    let token = format!("Bearer {TOKEN}");
    let headers: [(&str, &[u8]); 2] =
        [("authorization", token.as_bytes()), ("idempotency-key", b"test-1")];
    let mut events = BTreeSet::new();
    for _ in 0..2 {
        let sent = gateway.request(Method::POST, "/api/v1/alerts/mail/test", &headers, "").await;
        events.insert(sent.expect(202).json()["events"][0].as_str().unwrap().to_owned());
    }
    assert_eq!(events.len(), 1, "the same request is sent once");
    let event = events.pop_first().unwrap();
    eventually(WAIT_LIMIT, || async {
        let detail = gateway.event(&event).await;
        (detail["deliveries"][0]["attempts"].as_u64()? >= 2).then_some(())
    })
    .await;
    assert_eq!(mail.mails(), Vec::<Value>::new());

    mail.refuse(false);

    gateway.wait_for_delivery(&event, "succeeded").await;
    let mails = mail.mails();
    assert_eq!(mails.len(), 1, "{mails:?}");
    assert_eq!(mails[0]["message_id"], format!("<{event}@example.com>"));
    assert_eq!(mails[0]["subject"], "Surehook test: mail works");
}

#[tokio::test]
async fn wrong_mail_password_pauses_the_destination_and_is_not_shown() {
    let authority = CertificateAuthority::new();
    let Some(mail) = MailServer::start(&authority).await else { return };
    let more = "alerts = {}\npause_after_config_failures = 1";
    let settings = mail.destination("mail", more).replace(PASSWORD, "wrong-canary");
    let gateway = Gateway::start_with(&settings).await;
    let sent = gateway.post("/alerts/mail/test", &Value::Null).await.expect(202).json();
    let event = sent["events"][0].as_str().unwrap().to_owned();

    gateway.wait_for_delivery(&event, "dead").await;

    let detail = gateway.event(&event).await.to_string();
    assert!(detail.contains("the mail server answered 535 to the login"), "{detail}");
    assert!(!detail.contains("canary") && !gateway.log().contains("canary"), "{detail}");
    let (rule, name) = ("destination_unusable".to_owned(), "mail".to_owned());
    eventually(NOTIFIED_WITHIN, || async {
        active_rules(&gateway).await.contains(&(rule.clone(), name.clone())).then_some(())
    })
    .await;
}

#[tokio::test]
async fn alerts_are_listed_by_api_cli_and_page() {
    let sink = Sink::with_replies([Reply::status(400)]).await;
    let settings = format!(
        r#"
        [[sources]]
        name = "in"
        verify = "none"
        [[destinations]]
        name = "out"
        url = "{}"
        [[routes]]
        from = "in"
        to = "out"
        [[destinations]]
        name = "no-channel"
        url = "builtin:inbox"
        "#,
        sink.url()
    );
    let gateway = Gateway::start_with(&settings).await;
    let empty = gateway.cli(&["alerts", "list"]).await;
    assert_eq!(empty.code, Some(0), "{empty:?}");
    assert!(empty.stderr.contains("No alert channels"), "{empty:?}");
    gateway.send_webhook("in", &[], "{}").await.expect(200);

    let (rule, name) = ("dead_letters".to_owned(), "out".to_owned());
    eventually(NOTIFIED_WITHIN, || async {
        active_rules(&gateway).await.contains(&(rule.clone(), name.clone())).then_some(())
    })
    .await;

    let listed = gateway.cli(&["alerts", "list"]).await.stdout;
    assert!(listed.contains("dead_letters") && listed.contains("destination out"), "{listed}");
    let session = DashboardClient::new(&gateway).await;
    for (language, words) in [
        ("en", ["New dead letters", "There is no alert channel yet"]),
        ("pt-BR", ["Novas entregas na fila de falhas", "Ainda não há canal de alerta"]),
        ("es", ["Nuevas entregas fallidas", "Todavía no hay un canal de alerta"]),
    ] {
        let headers: [(&str, &[u8]); 2] =
            [("cookie", session.cookie().as_bytes()), ("accept-language", language.as_bytes())];
        let page = gateway.request(Method::GET, "/alerts", &headers, "").await.expect(200).text();
        assert!(words.iter().all(|word| page.contains(word)), "{language}: {page}");
    }
    let submitted = session.submit_form("/alerts/no-channel/test", "").await;
    assert_eq!(submitted.location.as_deref(), Some("/alerts"));
    let refused = gateway.cli(&["alerts", "test", "no-channel"]).await;
    assert!(refused.stderr.contains("is no alert channel"), "{refused:?}");
    let refused = gateway.post("/alerts/absent/test", &Value::Null).await;
    assert_eq!(refused.code(), "unknown_destination");
    let viewer = gateway.create_token("viewer").await;
    let path = "/alerts/no-channel/test";
    let refused = gateway.api_as(&viewer, Method::POST, path, None).await;
    assert_eq!(refused.status, 403);
}
