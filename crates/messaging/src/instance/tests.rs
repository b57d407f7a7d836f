//! Requests to Evolution servers and the parsing of their responses.

use serde_json::{Value, json};
use surehook_types::secret::Secret;

use super::{
    InstanceError, InstanceProxy, InstanceProxyError, InstanceRequest, InstanceState, api, go,
};
use crate::{ChannelAccount, find_channel};

fn account(name: &str) -> ChannelAccount {
    let channel = find_channel(name).unwrap();
    channel
        .build_account(Some("http://evo.test/base"), Some("my shop"), Secret::new("k3y"))
        .unwrap()
}

fn describe(call: &InstanceRequest) -> (String, Value) {
    assert_eq!(call.headers["apikey"], "k3y");
    let printed = format!("{call:?} {:?}", call.headers);
    assert!(!printed.contains("k3y") && !printed.contains("pa55"), "{printed}");
    let query = call.url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let line = format!("{} {}{query}", call.method, call.url.path());
    (line, call.body.clone().unwrap_or_default())
}

fn proxy() -> InstanceProxy {
    let password = Some(Secret::new("pa55"));
    InstanceProxy::new("p.webshare.io", 80, None, Some("maria"), password).unwrap()
}

#[test]
fn every_request_has_the_format_of_its_server() {
    let (go_account, api_account) = (account("evolution-go"), account("evolution-api"));
    let subscription = go::InstanceSubscription::default()
        .with_changes(Some("https://a.test"), &["MESSAGE".to_owned()]);
    let connect = json!({
        "webhookUrl": "https://a.test", "subscribe": ["MESSAGE"], "rabbitmqEnable": "",
        "websocketEnable": "", "natsEnable": "", "immediate": true,
    });
    let login =
        json!({ "host": "p.webshare.io", "port": "80", "username": "maria", "password": "pa55" });
    let mut enabled = login.clone();
    enabled["enabled"] = json!(true);
    enabled["protocol"] = json!("http");
    let removed = json!({ "enabled": false, "host": "none", "port": "1", "protocol": "http" });
    let before = json!({
        "id": "x", "enabled": false, "url": "https://old.test", "headers": { "a": "b" },
        "events": ["MESSAGES_UPSERT"], "webhookByEvents": true, "webhookBase64": false,
    });
    let hook = json!({ "webhook": {
        "enabled": true, "url": "https://new.test", "headers": { "a": "b" },
        "events": ["MESSAGES_UPSERT"], "byEvents": true, "base64": false,
    } });
    let none = Value::Null;
    let cases = [
        (go::status_request(&go_account), "GET /base/instance/status", none.clone()),
        (go::list_request(&go_account), "GET /base/instance/all", none.clone()),
        (go::connect_request(&go_account, &subscription), "POST /base/instance/connect", connect),
        (go::qr_request(&go_account), "GET /base/instance/qr", none.clone()),
        (
            go::pairing_request(&go_account, "5511987654321"),
            "POST /base/instance/pair",
            json!({ "phone": "5511987654321", "subscribe": [] }),
        ),
        (
            go::set_proxy_request(&go_account, "a/b", &proxy()),
            "POST /base/instance/proxy/a%2Fb",
            login,
        ),
        (go::clear_proxy_request(&go_account, "1"), "DELETE /base/instance/proxy/1", none.clone()),
        (
            api::status_request(&api_account),
            "GET /base/instance/connectionState/my%20shop",
            none.clone(),
        ),
        (
            api::connect_request(&api_account, None),
            "GET /base/instance/connect/my%20shop",
            none.clone(),
        ),
        (
            api::connect_request(&api_account, Some("55")),
            "GET /base/instance/connect/my%20shop?number=55",
            none.clone(),
        ),
        (api::webhook_request(&api_account), "GET /base/webhook/find/my%20shop", none.clone()),
        (
            api::set_webhook_request(&api_account, &before, Some("https://new.test"), &[]),
            "POST /base/webhook/set/my%20shop",
            hook,
        ),
        (api::proxy_request(&api_account), "GET /base/proxy/find/my%20shop", none),
        (api::set_proxy_request(&api_account, &proxy()), "POST /base/proxy/set/my%20shop", enabled),
        (api::clear_proxy_request(&api_account), "POST /base/proxy/set/my%20shop", removed),
    ];
    for (call, line, body) in cases {
        assert_eq!(describe(&call), (line.to_owned(), body));
    }
}

#[test]
fn instance_states_are_parsed() {
    let status = |connected: bool, logged_in: bool| json!({ "message": "success", "data": { "Connected": connected, "LoggedIn": logged_in, "Name": "Loja" } });
    let rejected = |text: &str| Err(InstanceError::Rejected(text.to_owned()));
    let cases = [
        (200, status(true, true), Ok(InstanceState::Connected(Some("Loja".to_owned())))),
        (200, status(true, false), Ok(InstanceState::NotLinked)),
        (200, status(false, false), Ok(InstanceState::Disconnected)),
        (400, json!({ "error": "client disconnected" }), Ok(InstanceState::Disconnected)),
        (400, json!({ "error": "something else" }), rejected("something else")),
        (401, json!({ "error": "not authorized" }), Err(InstanceError::Unauthorized)),
        (503, json!({ "error": "service not activated" }), rejected("service not activated")),
        (500, json!({ "error": "instance not found" }), Err(InstanceError::NotFound)),
        (
            404,
            json!({ "error": "Not Found", "status": 404 }),
            Err(InstanceError::UnexpectedResponse(404)),
        ),
        (200, json!({ "hello": "world" }), Err(InstanceError::UnexpectedResponse(200))),
        (
            200,
            json!({ "message": "success", "data": {} }),
            Err(InstanceError::UnexpectedResponse(200)),
        ),
    ];
    for (status, body, expected) in cases {
        let found = go::parse_status(status, body.to_string().as_bytes());
        assert_eq!(found, expected, "case: {body}");
    }
    let state = |state: Value| json!({ "instance": { "instanceName": "shop", "state": state } });
    let missing = json!({ "status": 404, "error": "Not Found", "response": { "message": ["The \"x\" instance does not exist"] } });
    let wrong = json!({ "status": 401, "error": "Unauthorized", "response": { "message": "Unauthorized" } });
    let cases = [
        (200, state(json!("open")), Ok(InstanceState::Connected(None))),
        (200, state(json!("connecting")), Ok(InstanceState::Connecting)),
        (200, state(json!("close")), Ok(InstanceState::Disconnected)),
        (200, state(json!("refused")), Ok(InstanceState::Disconnected)),
        (200, json!({ "instance": { "instanceName": "shop" } }), Ok(InstanceState::Unknown)),
        (404, missing, Err(InstanceError::NotFound)),
        (404, json!({ "message": "Cannot GET /" }), Err(InstanceError::UnexpectedResponse(404))),
        (401, wrong, Err(InstanceError::Unauthorized)),
        (
            200,
            json!({ "error": true, "message": "BadRequestException: The \"x\" instance does not exist" }),
            Err(InstanceError::NotFound),
        ),
        (
            200,
            json!({ "error": true, "message": "Error: Timed Out" }),
            rejected("Error: Timed Out"),
        ),
        (200, json!("hello"), Err(InstanceError::UnexpectedResponse(200))),
    ];
    for (status, body, expected) in cases {
        let found = api::parse_status(status, body.to_string().as_bytes());
        assert_eq!(found, expected, "case: {body}");
    }
    assert_eq!(go::parse_status(502, b"<html>"), Err(InstanceError::UnexpectedResponse(502)));
    assert_eq!(api::parse_status(502, b"<html>"), Err(InstanceError::UnexpectedResponse(502)));
}

#[test]
fn connecting_keeps_current_subscription() {
    let list = json!({ "message": "success", "data": [
        { "id": "1", "name": "other", "token": "t1", "webhook": "https://other.test" },
        { "id": "2", "name": "shop", "token": "t2", "webhook": "https://old.test",
          "events": "MESSAGE,READ_RECEIPT", "rabbitmqEnable": "enabled", "natsEnable": "" },
    ] });
    let all = go::parse_list(200, list.to_string().as_bytes()).unwrap();
    let find_instance = |named: Option<&str>, token: Option<&str>| {
        let token = token.map(Secret::new);
        go::find_instance(all.clone(), named, token.as_ref()).map(|instance| instance.id)
    };
    assert_eq!(find_instance(None, Some("t2")).as_deref(), Ok("2"));
    assert_eq!(find_instance(Some("shop"), None).as_deref(), Ok("2"));
    assert_eq!(find_instance(Some("1"), Some("t2")).as_deref(), Ok("1"));
    assert_eq!(find_instance(None, Some("t3")), Err(InstanceError::NotFound));
    assert_eq!(find_instance(None, None), Err(InstanceError::NotFound));

    let shop = go::find_instance(all.clone(), Some("shop"), None).unwrap().subscription;
    let connect = |subscription: &go::InstanceSubscription| {
        describe(&go::connect_request(&account("evolution-go"), subscription)).1
    };
    let body = connect(&shop.clone().with_changes(None, &[]));
    assert_eq!(body["webhookUrl"], "https://old.test");
    assert_eq!(body["subscribe"], json!(["MESSAGE", "READ_RECEIPT"]));
    assert_eq!(body["rabbitmqEnable"], "enabled");
    let body = connect(&shop.with_changes(Some("https://new.test"), &["ALL".to_owned()]));
    assert_eq!(body["webhookUrl"], "https://new.test");
    assert_eq!(body["subscribe"], json!(["ALL"]));
    assert_eq!(body["rabbitmqEnable"], "enabled");
}

#[test]
fn phone_links_are_parsed_in_all_formats() {
    let go_link = |status, body: Value| go::parse_link_codes(status, body.to_string().as_bytes());
    let old = json!({ "message": "success", "data": { "Qrcode": "data:x", "Code": "2@a" } });
    let new = json!({ "message": "success", "data": { "qrcode": "data:x", "code": "2@a" } });
    for body in [old, new] {
        let link = go_link(200, body).unwrap().unwrap();
        assert_eq!((link.code.as_deref(), link.picture.as_deref()), (Some("2@a"), Some("data:x")));
    }
    assert_eq!(go_link(400, json!({ "error": "session already logged in" })), Ok(None));
    assert_eq!(go_link(500, json!({ "error": "instance is already authenticated" })), Ok(None));

    let api_link = |body: Value| api::parse_connect(200, body.to_string().as_bytes());
    let open = json!({ "instance": { "instanceName": "shop", "state": "open" } });
    assert_eq!(api_link(open), Ok(None));
    let link = json!({ "pairingCode": "WXYZ9876", "code": "2@a", "base64": "data:x", "count": 1 });
    let inside = json!({ "instance": { "status": "connecting" }, "qrcode": link });
    for body in [link, inside] {
        let link = api_link(body).unwrap().unwrap();
        assert_eq!(link.pairing_code.as_deref(), Some("WXYZ9876"));
        assert_eq!(format!("{link:?}"), "PhoneLinkCodes(…)");
    }
}

#[test]
fn proxy_is_checked_and_shown_without_password() {
    let new =
        |host: &str, port, protocol: Option<&str>, user: Option<&str>, password: Option<&str>| {
            InstanceProxy::new(host, port, protocol, user, password.map(Secret::new)).map(drop)
        };
    let cases = [
        (new("p.webshare.io", 80, Some("socks5"), Some("a"), Some("b")), Ok(())),
        (new("10.0.0.1", 1080, None, None, None), Ok(())),
        (new("2001:db8::1", 1080, None, None, None), Ok(())),
        (new("http://p.test", 80, None, None, None), Err(InstanceProxyError::Host)),
        (new("p.test:80", 80, None, None, None), Err(InstanceProxyError::Host)),
        (new("", 80, None, None, None), Err(InstanceProxyError::Host)),
        (new("p.test", 0, None, None, None), Err(InstanceProxyError::Port)),
        (new("p.test", 80, Some("ftp"), None, None), Err(InstanceProxyError::Protocol)),
        (new("p.test", 80, None, Some("a"), None), Err(InstanceProxyError::Login)),
        (new("p.test", 80, None, None, Some("b")), Err(InstanceProxyError::Login)),
        (new("p.test", 80, None, Some("a"), Some("b\n")), Err(InstanceProxyError::Text)),
    ];
    for (index, (found, expected)) in cases.into_iter().enumerate() {
        assert_eq!(found, expected, "case {index}");
    }
    let set = json!({ "enabled": true, "host": "p", "port": "80", "protocol": "http", "username": "a", "password": "pa55" });
    let found = api::parse_proxy(200, set.to_string().as_bytes()).unwrap().unwrap();
    assert!(!found.to_string().contains("pa55") && found["password_set"] == true, "{found}");
    assert_eq!(api::parse_proxy(200, b"null"), Ok(None));
    assert_eq!(api::parse_proxy(200, br#"{"enabled":false,"host":""}"#), Ok(None));
}
