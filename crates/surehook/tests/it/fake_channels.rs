//! The fake channels accept the requests that the real channel code composes, and that code classifies
//! their error responses: every code and every text, over a socket.

use http::Method;
use serde_json::{Value, json};
use surehook_messaging::{
    self, Channel, ChannelAccount, ChannelResponse, ComposedRequest, Message,
};
use surehook_types::secret::Secret;

use crate::support::{
    WAIT_LIMIT,
    client::Client,
    eventually,
    fake_channels::{
        ChannelBehavior, CloudApi, CloudApiStatus, EvolutionApi, EvolutionGo, FakeChannel,
        evolution_errors, fake_channel::is_chosen_recipient, meta_errors,
    },
    gateway::Gateway,
};

const PHONE: &str = "5511987654321";
const GROUP: &str = "120363404694233820@g.us";
const FILE: &str = "https://files.test/a";

/// The channel code of a service with an account at its fake.
struct ChannelClient {
    channel: &'static dyn Channel,
    account: ChannelAccount,
    client: Client,
}

impl ChannelClient {
    fn new(name: &str, url: &str, sender: &str, token: &str) -> Self {
        let channel = surehook_messaging::find_channel(name).unwrap();
        let account = channel.build_account(Some(url), Some(sender), Secret::new(token)).unwrap();
        Self { channel, account, client: Client::new() }
    }

    fn cloud(to: &CloudApi) -> Self {
        Self::new("whatsapp-cloud", &to.url(), CloudApi::SENDER, CloudApi::TOKEN)
    }

    fn go(to: &EvolutionGo) -> Self {
        Self::new("evolution-go", &to.url(), "", EvolutionGo::TOKEN)
    }

    fn api(to: &EvolutionApi) -> Self {
        Self::new("evolution-api", &to.url(), EvolutionApi::INSTANCE, EvolutionApi::TOKEN)
    }

    fn compose(&self, message: &Value, send_id: &str) -> ComposedRequest {
        let message = Message::parse(message.to_string().as_bytes()).unwrap();
        self.channel.compose(&self.account, &message, send_id).unwrap()
    }

    /// Sends a composed message; a missing response is an error.
    async fn attempt(&self, message: &Value, send_id: &str) -> Result<ChannelResponse, String> {
        let composed = self.compose(message, send_id);
        let headers: Vec<(&str, &[u8])> = composed
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        let body = composed.body.to_string();
        let url = composed.url.as_str();
        let response = self.client.send(composed.method, url, &headers, body).await?;
        Ok(self.channel.parse_response(response.status.as_u16(), &response.body))
    }

    async fn send(&self, message: &Value, send_id: &str) -> ChannelResponse {
        self.attempt(message, send_id).await.unwrap()
    }

    async fn text(&self, to: &str) -> ChannelResponse {
        self.send(&text(to), "evt_1.dst_1").await
    }
}

fn text(to: &str) -> Value {
    json!({ "to": to, "text": "Olá" })
}

/// A separate phone number for each case.
fn phone(number: usize) -> String {
    format!("55119{number:08}")
}

#[tokio::test]
async fn every_cloud_api_error_code_is_classified() {
    let meta = CloudApi::start().await;
    let client = ChannelClient::cloud(&meta);
    let cases = meta_errors::META_ERROR_CODES
        .iter()
        .flat_map(|code| code.statuses.iter().map(move |status| (code, *status)));
    for (number, (code, status)) in cases.enumerate() {
        let to = phone(number);
        meta.set_for_recipient(
            &to,
            ChannelBehavior::Respond(status, meta_errors::error(code.code, "")),
        );
        let response = client.text(&to).await;
        assert_eq!(response.class, Some(code.class), "{code:?}");
        assert_eq!(response.dead_reason, code.dead, "{code:?}");
        assert_eq!(response.backoff, code.wait, "{code:?}");
        assert_eq!(response.attempts_max, code.tries, "{code:?}");
        assert_eq!(response.scope, code.scope, "{code:?}");
        assert_eq!(response.code, Some(code.code.to_string()));
    }
    assert!(meta.sent().is_empty(), "rejected messages are not sent");
}

#[tokio::test]
async fn cloud_api_errors_in_a_201_of_evolution_api_are_classified() {
    let evolution = EvolutionApi::start().await;
    let client = ChannelClient::api(&evolution);
    for (number, code) in meta_errors::META_ERROR_CODES.iter().enumerate() {
        let to = phone(number);
        evolution.set_for_recipient(&to, ChannelBehavior::code_in_201(code.code));
        let response = client.text(&to).await;
        let outcome = (response.class, response.dead_reason, response.backoff, response.scope);
        assert_eq!(outcome, (Some(code.class), code.dead, code.wait, code.scope), "{code:?}");
        assert_eq!(response.sent_id, None);
    }
}

#[tokio::test]
async fn every_evolution_error_text_is_classified() {
    let (go, api) = (EvolutionGo::start().await, EvolutionApi::start().await);
    let (by_go, by_api) = (ChannelClient::go(&go), ChannelClient::api(&api));
    let cases: [(&FakeChannel, &ChannelClient, _); 2] = [
        (&go, &by_go, evolution_errors::go_errors()),
        (&api, &by_api, evolution_errors::api_errors()),
    ];
    for (fake_channel, client, errors) in cases {
        for error in errors {
            fake_channel.queue_next([ChannelBehavior::Respond(error.status, error.body.clone())]);
            let response = client.text(PHONE).await;
            assert_eq!(response.class, Some(error.class), "{error:?}");
            assert_eq!(response.dead_reason, error.dead, "{error:?}");
            assert!(!response.text.contains(PHONE), "{}", response.text);
        }
        assert!(fake_channel.sent().is_empty());
        assert!(client.text(PHONE).await.sent_id.is_some());
    }
}

#[tokio::test]
async fn rejections_by_the_fake_channels_are_classified() {
    let (meta, go, api) =
        (CloudApi::start().await, EvolutionGo::start().await, EvolutionApi::start().await);
    let (cloud, shop) = (CloudApi::SENDER, EvolutionApi::INSTANCE);
    let long = "x".repeat(512);
    let cases = [
        (
            ChannelClient::new("whatsapp-cloud", &meta.url(), cloud, "wrong"),
            text(PHONE),
            Some("190"),
        ),
        (
            ChannelClient::new("whatsapp-cloud", &meta.url(), "1", CloudApi::TOKEN),
            text(PHONE),
            Some("100"),
        ),
        (
            ChannelClient::cloud(&meta),
            json!({ "to": PHONE, "image": { "media_id": "7" } }),
            Some("100"),
        ),
        // The admin key cannot send.
        (
            ChannelClient::new("evolution-go", &go.url(), "", EvolutionGo::ADMIN_KEY),
            text(PHONE),
            None,
        ),
        (ChannelClient::new("evolution-api", &api.url(), shop, "wrong"), text(PHONE), None),
        (
            ChannelClient::new("evolution-api", &api.url(), "other", EvolutionApi::TOKEN),
            text(PHONE),
            None,
        ),
    ];
    for (client, message, code) in cases {
        let response = client.send(&message, &long).await;
        assert!(response.class.is_some() && response.sent_id.is_none(), "{response:?}");
        assert_eq!(response.code.as_deref(), code, "{response:?}");
    }
    go.instance().connected = false;
    api.instance().state = "close";
    for client in [ChannelClient::go(&go), ChannelClient::api(&api)] {
        assert_eq!(client.text(PHONE).await.class.map(|class| class.as_str()), Some("transient"));
    }
    assert_eq!(meta.count() + go.count() + api.count(), 0, "no message was recorded");
}

#[tokio::test]
async fn every_composed_message_kind_is_accepted() {
    let (meta, go, api) =
        (CloudApi::start().await, EvolutionGo::start().await, EvolutionApi::start().await);
    let media = upload(&meta).await;
    let at = |url: &str| json!({ "url": url, "caption": "c" });
    let location =
        json!({ "latitude": -23.5, "longitude": -46.6, "name": "Loja", "address": "Rua 1" });
    let person = json!({ "name": "Ana", "phone": "+55 11 91234-5678" });
    let template = json!({ "name": "order_sent", "language": "pt_BR", "components": [] });
    let common = [
        json!({ "to": PHONE, "text": "Olá", "reply_to": "wamid.A" }),
        json!({ "to": PHONE, "image": at(FILE) }),
        json!({ "to": PHONE, "video": at(FILE) }),
        json!({ "to": PHONE, "audio": { "url": FILE } }),
        json!({ "to": PHONE, "audio": { "url": FILE, "voice": true } }),
        json!({ "to": PHONE, "document": { "url": FILE, "filename": "a.pdf" } }),
        json!({ "to": PHONE, "sticker": { "url": FILE } }),
        json!({ "to": PHONE, "location": location }),
        json!({ "to": PHONE, "contact": person }),
        json!({ "to": PHONE, "reaction": { "message_id": "A", "emoji": "👍" } }),
    ];
    let only_meta = [
        json!({ "to": PHONE, "template": template }),
        json!({ "to": PHONE, "image": { "media_id": media } }),
        json!({ "to": "BR.1502576394655843", "text": "Olá" }),
    ];
    let only_go = [json!({ "to": GROUP, "text": "Olá" })];
    let only_api = [json!({ "to": PHONE, "template": template })];
    let cases: [(&FakeChannel, ChannelClient, &[Value]); 3] = [
        (&meta, ChannelClient::cloud(&meta), &only_meta),
        (&go, ChannelClient::go(&go), &only_go),
        (&api, ChannelClient::api(&api), &only_api),
    ];
    for (fake_channel, client, extra) in cases {
        for (number, message) in common.iter().chain(extra).enumerate() {
            let response = client.send(message, &format!("evt_{number}.dst_1")).await;
            assert_eq!(response.class, None, "{message}: {response:?}");
            let recorded = fake_channel.messages().pop().unwrap();
            assert_eq!(response.sent_id, recorded.sent_id, "{message}");
            assert_eq!(recorded.body, client.compose(message, &format!("evt_{number}.dst_1")).body);
        }
        assert_eq!(fake_channel.count(), common.len() + extra.len());
    }
    assert_eq!(meta.messages()[0].our_id.as_deref(), Some("evt_0.dst_1"));
    assert!(meta.messages()[0].path.ends_with("/messages"));
}

/// Uploads a file as a form and returns its id.
async fn upload(meta: &CloudApi) -> String {
    let part =
        |head: &str, body: &str| format!("--b0\r\ncontent-disposition: {head}\r\n\r\n{body}\r\n");
    let product = part("form-data; name=\"messaging_product\"", "whatsapp");
    let kind = part("form-data; name=\"type\"", "text/plain");
    let head = "form-data; name=\"file\"; filename=\"a.txt\"\r\ncontent-type: text/plain";
    let send = async |form: String| {
        let bearer = format!("Bearer {}", CloudApi::TOKEN);
        let headers: [(&str, &[u8]); 2] = [
            ("authorization", bearer.as_bytes()),
            ("content-type", b"multipart/form-data; boundary=b0"),
        ];
        let url = format!("{}/{}/media", meta.url(), CloudApi::SENDER);
        Client::new().send(Method::POST, &url, &headers, form).await.unwrap()
    };
    send(format!("{kind}{}--b0--\r\n", part(head, "hi"))).await.expect(400);
    let form = format!("{product}{kind}{}--b0--\r\n", part(head, "hi\r\nthere"));
    let id = send(form).await.expect(200).json()["id"].as_str().unwrap().to_owned();
    let file = meta.upload(&id).unwrap();
    assert_eq!(file.bytes, b"hi\r\nthere");
    assert_eq!(file.filename.as_deref(), Some("a.txt"));
    assert_eq!(file.content_type.as_deref(), Some("text/plain"));
    id
}

#[tokio::test]
async fn scripted_behavior_decides_whether_a_message_is_sent() {
    let go = EvolutionGo::start().await;
    let client = ChannelClient::go(&go);
    let is_success = |response: Result<ChannelResponse, String>| {
        response.ok().map(|response| response.class.is_none())
    };
    let attempt = async |to: &str| is_success(client.attempt(&text(to), to).await);

    go.set_first_for_recipient(
        PHONE,
        [ChannelBehavior::text("client disconnected"), ChannelBehavior::CloseAfterBody],
    );
    assert_eq!(attempt(PHONE).await, Some(false));
    assert_eq!(attempt(PHONE).await, None);
    assert_eq!(attempt(PHONE).await, Some(true));
    let sent = &go.sent()[PHONE];
    assert_eq!(sent.len(), 2, "the connection was closed after the message went out");
    assert_eq!(sent[0], sent[1], "the same send has the same id");

    let wait = std::time::Duration::from_millis(1);
    go.queue_next([
        ChannelBehavior::CloseBefore,
        ChannelBehavior::SendThenRespond(502, Value::Null).after(wait),
        ChannelBehavior::exception("Error: Timed Out"),
        ChannelBehavior::code(131_056),
    ]);
    let others = ["5511900000001", "5511900000002", "5511900000003", "5511900000004"];
    for (to, is_sent, expected) in [
        (others[0], false, None),
        (others[1], true, Some(false)),
        (others[2], false, Some(false)),
        (others[3], false, Some(false)),
    ] {
        assert_eq!(attempt(to).await, expected, "{to}");
        assert_eq!(go.sent().contains_key(to), is_sent, "{to}");
    }
    go.set_default(ChannelBehavior::text("websocket not connected"));
    assert_eq!(attempt("5511900000005").await, Some(false));
}

#[tokio::test]
async fn hanging_share_of_recipients_gets_one_id_per_message() {
    let go = EvolutionGo::start().await;
    let client = std::sync::Arc::new(ChannelClient::go(&go));
    go.set_for_percent_of_recipients(10, ChannelBehavior::HangAfterBody);
    let numbers: Vec<String> = (0..400).map(phone).collect();
    let hanging: Vec<&String> = numbers.iter().filter(|to| is_chosen_recipient(to, 10)).collect();
    assert!((20..60).contains(&hanging.len()), "about a tenth: {}", hanging.len());
    let sends: Vec<_> = numbers
        .iter()
        .cloned()
        .map(|to| {
            let client = std::sync::Arc::clone(&client);
            tokio::spawn(async move { client.send(&text(&to), &to).await })
        })
        .collect();
    go.wait_for_messages(numbers.len()).await;
    eventually(WAIT_LIMIT, || async {
        let done = sends.iter().filter(|send| send.is_finished()).count();
        (done == numbers.len() - hanging.len()).then_some(())
    })
    .await;
    sends.iter().for_each(tokio::task::JoinHandle::abort);
    for to in &hanging {
        assert_eq!(client.send(&text(to), to).await.class, None);
    }
    for ids in go.sent().values() {
        assert!(ids.iter().all(|id| *id == ids[0]), "one message has one id: {ids:?}");
    }
    let order: Vec<_> = go.messages().iter().map(|message| message.at).collect();
    assert!(order.is_sorted(), "recorded in order");
}

#[tokio::test]
async fn cloud_api_status_webhook_is_accepted() {
    let meta = CloudApi::start().await;
    let secret = CloudApi::APP_SECRET;
    let settings = format!(
        "[[sources]]\nname = \"whatsapp\"\nprovider = \"whatsapp-cloud\"\nsecrets = [\"{secret}\"]"
    );
    let gateway = Gateway::start_with(&settings).await;
    ChannelClient::cloud(&meta).text(PHONE).await;
    let message = &meta.messages()[0];
    let all = [
        CloudApiStatus::Sent,
        CloudApiStatus::Delivered,
        CloudApiStatus::Read,
        CloudApiStatus::Failed(131_026),
    ];
    let updates: Vec<_> = all.iter().map(|status| (message, *status)).collect();
    let response =
        meta.send_statuses(&gateway.url("/in/whatsapp"), &updates).await.expect(200).json();
    let events = response["events"].as_array().unwrap();
    assert_eq!(events.len(), all.len(), "{response}");
    let id = events[3]["id"].as_str().unwrap();
    let body = gateway.get(&format!("/events/{id}/body")).await.expect(200).text();
    assert!(body.contains("evt_1.dst_1") && body.contains("131026"), "{body}");
}
