//! Secrets in bodies: masked in every output, stored exactly, and delivered exactly unless the source sets
//! `strip_secrets`.

use std::{collections::BTreeMap, io::Write as _};

use flate2::{Compression, write::GzEncoder};
use http::Method;
use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::Gateway,
    sink::{Reply, Sink},
};

/// Every secret contains this text, and nothing else does.
const CANARY: &str = "CANARY";

/// Bodies as providers send them: Evolution API, Evolution Go, a card payment, a Slack form.
const EVOLUTION: &str = r#"{"event":"messages.upsert","instance":"vendas-sp","data":{"key":{"remoteJid":"5511987654321@s.whatsapp.net","fromMe":false,"id":"3A5B1E0C9D8F7A6B5C4D"},"pushName":"João","message":{"conversation":"Olá, tem entrega hoje?"},"messageTimestamp":1779023995},"destination":"https://gw.example.com/in/evo","server_url":"https://evo.example.com","apikey":"CANARY-B6D711FCDE4D4FD5936544120E713976"}"#;
const EVOLUTION_GO: &str = r#"{"data":{"jid":"551140028922:12@s.whatsapp.net","pushName":"Loja SP","status":"open"},"event":"Connected","instanceId":"5b0f2c7e","instanceName":"vendas","instanceToken":"CANARY-tok_live_2f9c1e"}"#;
const CARD: &str = r#"{ "card" : {"number":"4242424242424242", "cvv":"CANARY-1", "exp":"12/30"}, "inner":"{\"access_token\":\"CANARY-2\"}", "pin":"CANARY-3" }"#;
const FORM: &str =
    "payload=%7B%22token%22%3A%22CANARY-4%22%2C%22user%22%3A%22U1%22%7D&client_secret=CANARY-5";

/// Two sources and four destinations: one that quotes the body in its error response, the inbox, one that
/// gets a transformed body, and one whose transform fails on a secret.
async fn gateway(sink: &Sink, source_settings: &str) -> Gateway {
    let url = sink.url();
    Gateway::builder()
        .settings(&format!(
            r#"
            log = "trace"
            [[sources]]
            name = "evo"
            verify = "none"
            redact = ["PIN"]
            {source_settings}
            [[sources]]
            name = "closed"
            verify = {{ token = {{ header = "x-gate" }} }}
            secrets = ["CANARY-gate-of-source"]
            keep_refused_bodies = true
            [[destinations]]
            name = "quotes"
            url = "{url}/quotes"
            retry = {{ max_attempts = 1 }}
            [[destinations]]
            name = "inbox"
            url = "builtin:inbox"
            [[destinations]]
            name = "made"
            url = "{url}/made"
            retry = {{ max_attempts = 1 }}
            [[destinations]]
            name = "fails"
            url = "{url}/fails"
            retry = {{ max_attempts = 1 }}
            [[routes]]
            from = "evo"
            to = "quotes"
            [[routes]]
            from = "evo"
            to = "inbox"
            [[routes]]
            from = "evo"
            to = "made"
            filter = ".apikey"
            transform = "{{apikey, deep: [{{token: .apikey}}], event}}"
            [[routes]]
            from = "evo"
            to = "fails"
            filter = ".apikey"
            transform = ".apikey - 1"
            [[routes]]
            from = "closed"
            to = "inbox"
            "#
        ))
        .start()
        .await
}

/// A destination that fails and quotes the body in its response.
async fn quoting_sink() -> Sink {
    Sink::with_script(|_, arrival| {
        let quoted = [b"you sent: ", &arrival.body[..]].concat();
        Reply::status(422).body(quoted)
    })
    .await
}

fn compress(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Posts every body; returns the event ids with the posted bytes.
async fn post_all_payloads(gateway: &Gateway) -> Vec<(String, Vec<u8>)> {
    let json = ("content-type", "application/json");
    let apikey = ("apikey", "CANARY-header");
    let form = ("content-type", "application/x-www-form-urlencoded");
    let gzip = ("content-encoding", "gzip");
    let mut posted = Vec::new();
    for (headers, body) in [
        (vec![json, apikey, ("idempotency-key", "k1")], EVOLUTION.as_bytes().to_vec()),
        (vec![json], EVOLUTION_GO.as_bytes().to_vec()),
        (vec![json], CARD.as_bytes().to_vec()),
        (vec![form], FORM.as_bytes().to_vec()),
        (vec![json, gzip], compress(EVOLUTION)),
    ] {
        let response = gateway.send_webhook("evo?token=CANARY-query", &headers, body.clone()).await;
        let id = response.expect(200).event_id();
        posted.push((id, body));
    }
    posted
}

#[track_caller]
fn assert_no_secret(text: &str, case: &str) {
    for secret in [CANARY, "4242424242424242"] {
        assert!(!text.contains(secret), "{case}: {text}");
    }
}

fn ids(list: &Value) -> Vec<String> {
    let rows = list["data"].as_array().into_iter().flatten();
    rows.filter_map(|row| row["id"].as_str()).map(str::to_owned).collect()
}

/// Every GET path of the API, with each existing id.
pub(crate) async fn readable_paths(gateway: &Gateway) -> Vec<String> {
    let document = gateway.request(Method::GET, "/api/openapi.json", &[], "").await.json();
    let mut lists: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut paths = Vec::new();
    for (path, calls) in document["paths"].as_object().unwrap() {
        let Some(path) = path.strip_prefix("/api/v1") else { continue };
        if calls["get"].is_null() || path == "/stream" {
            continue;
        }
        let Some((list, rest)) = path.split_once("/{") else {
            paths.push(path.to_owned());
            let formats = ["ndjson", "csv"].map(|format| format!("{path}?format={format}"));
            paths.extend(formats);
            continue;
        };
        if !lists.contains_key(list) {
            let known_ids = ids(&gateway.get(list).await.json());
            lists.insert(list.to_owned(), known_ids);
        }
        let (_, rest) = rest.split_once('}').unwrap();
        paths.extend(lists[list].iter().map(|id| format!("{list}/{id}{rest}")));
    }
    paths
}

#[tokio::test]
async fn responses_cli_output_and_log_contain_no_secret() {
    let sink = quoting_sink().await;
    let gateway = gateway(&sink, "").await;
    let posted = post_all_payloads(&gateway).await;
    let other = EVOLUTION.replace("entrega", "retirada");
    let again = gateway.send_webhook("evo", &[("idempotency-key", "k1")], other).await.expect(200);
    assert_eq!(again.json()["status"], "duplicate");
    let guess = ("x-gate", "CANARY-guess");
    gateway.send_webhook("closed?key=CANARY", &[guess], EVOLUTION).await.expect(401);
    gateway.wait_until_idle().await;
    eventually(WAIT_LIMIT, || async {
        (!ids(&gateway.get("/requests").await.json()).is_empty()).then_some(())
    })
    .await;

    let paths = readable_paths(&gateway).await;
    let reached =
        |part: &str| paths.iter().any(|path| path.contains(part) && path.ends_with("/body"));
    assert!(reached("/events/evt_") && reached("/deliveries/dlv_"), "{paths:?}");
    let mut masked = 0;
    for path in &paths {
        let response = gateway.get(path).await;
        assert_no_secret(&response.text(), path);
        assert_no_secret(&format!("{:?}", response.headers), path);
        if response.headers.contains_key("surehook-masked") {
            masked += 1;
        }
    }
    assert!(masked >= posted.len() * 2, "{masked}");
    let first = gateway.event(&posted[0].0).await;
    assert_eq!(first["duplicates"][0]["masked"], 1);
    let failed = gateway.find_delivery_to(&posted[0].0, "fails").await.unwrap();
    let failed = gateway.get(&format!("/deliveries/{failed}")).await.json();
    assert!(failed["attempt_list"][0]["detail"].as_str().unwrap().contains("•••"), "{failed}");

    let data = gateway.folder().join("data");
    let data = data.to_str().unwrap();
    let delivery = gateway.find_delivery_to(&posted[0].0, "quotes").await.unwrap();
    for args in [
        vec!["events", "list"],
        vec!["events", "show", &posted[0].0],
        vec!["events", "body", &posted[0].0],
        vec!["events", "body", &delivery],
        vec!["dlq", "list"],
        vec!["dlq", "show", &delivery],
        vec!["requests", "list"],
    ] {
        for more in [vec![], vec!["--json"], vec!["--data", data]] {
            let args = [args.clone(), more].concat();
            let output = gateway.cli(&args).await;
            assert_eq!(output.code, Some(0), "{args:?}: {}", output.stderr);
            assert_no_secret(&(output.stdout + &output.stderr), &format!("{args:?}"));
        }
    }
    for args in [vec!["export"], vec!["doctor"], vec!["send-test", "evo"]] {
        let output = gateway.cli(&args).await;
        assert_no_secret(&(output.stdout + &output.stderr), &format!("{args:?}"));
    }
    assert_no_secret(&gateway.log(), "log");
}

// A search that matched masked values would allow guessing them letter by letter.
#[tokio::test]
async fn search_finds_masked_values_for_operators_only() {
    let sink = quoting_sink().await;
    let gateway = gateway(&sink, "").await;
    post_all_payloads(&gateway).await;
    gateway.wait_until_idle().await;
    let get = async |role: &str, query: &str| {
        let token = gateway.create_token(role).await;
        let path = format!("/events?source=evo&{query}");
        gateway.api_as(&token, Method::GET, &path, None).await.expect(200).json()
    };
    for (query, is_secret) in [
        ("search=CANARY-B6&limit=1", true),
        ("search=CANARY&limit=1", true),
        ("body.apikey=CANARY-B6D711FCDE4D4FD5936544120E713976&limit=1", true),
        ("search=vendas-sp&limit=1", false),
        ("body.instance=vendas-sp&limit=1", false),
    ] {
        let exact = get("operator", query).await;
        let masked = get("viewer", query).await;
        let count = |list: &Value| list["data"].as_array().unwrap().len();
        assert_eq!((count(&exact), count(&masked)), (1, usize::from(!is_secret)), "case: {query}");
        if is_secret {
            let nothing = get("viewer", "search=certainly-not-there&limit=1").await;
            assert_eq!(masked, nothing, "the response must not reveal a match: {query}");
        }
    }
}

#[tokio::test]
async fn exact_body_requires_operator_and_default_body_is_masked() {
    let sink = quoting_sink().await;
    let gateway = gateway(&sink, "").await;
    let posted = post_all_payloads(&gateway).await;
    let without_secret = gateway.post_accepted("evo", "{ \"a\" :1}").await;
    gateway.wait_until_idle().await;
    let viewer = gateway.create_token("viewer").await;
    let operator = gateway.create_token("operator").await;
    let get = async |token: &str, path: &str| gateway.api_as(token, Method::GET, path, None).await;
    for (id, body) in &posted {
        let path = format!("/events/{id}/body");
        assert_eq!(get(&operator, &format!("{path}?exact=true")).await.expect(200).body, body);
        let refused = get(&viewer, &format!("{path}?exact=true")).await.expect(403);
        assert_eq!(refused.code(), "forbidden");
        assert!(refused.detail().contains("operator"), "{}", refused.detail());
        let shown = get(&viewer, &path).await.expect(200);
        assert_no_secret(&shown.text(), id);
        assert_ne!(shown.header("surehook-masked"), "0");
    }
    let shown = async |at: usize| get(&viewer, &format!("/events/{}/body", posted[at].0)).await;
    let first = shown(0).await;
    let hidden = EVOLUTION.replace("CANARY-B6D711FCDE4D4FD5936544120E713976", "•••");
    assert_eq!((first.text(), first.header("surehook-masked")), (hidden.clone(), "1"));
    assert_eq!(shown(2).await.header("surehook-masked"), "4");
    let unpacked = shown(4).await;
    assert_eq!((unpacked.text(), unpacked.header("surehook-unpacked")), (hidden, "true"));

    let plain = get(&viewer, &format!("/events/{without_secret}/body")).await.expect(200);
    assert_eq!(plain.text(), "{ \"a\" :1}");
    assert!(!plain.headers.contains_key("surehook-masked"));
    get(&viewer, &format!("/events/{without_secret}/body?exact=yes")).await.expect(422);

    // A body with an unsupported encoding may contain secrets, so it is not shown.
    let brotli = [("content-encoding", "br")];
    let id = gateway.send_webhook("evo", &brotli, "\u{1}CANARY").await.expect(200).event_id();
    let opaque = get(&viewer, &format!("/events/{id}/body")).await.expect(409);
    assert_eq!(opaque.code(), "body_opaque");
    get(&operator, &format!("/events/{id}/body?exact=true")).await.expect(200);

    // The CLI needs the same role; with access to the data folder it reads the exact bytes.
    let exact = ["events", "body", &posted[0].0, "--exact"];
    assert_eq!(gateway.cli_as(&operator, &exact).await.stdout, EVOLUTION);
    let refused = gateway.cli_as(&viewer, &exact).await;
    assert_ne!(refused.code, Some(0));
    assert_no_secret(&(refused.stdout + &refused.stderr), "as a viewer");
    let data = gateway.folder().join("data");
    let inside = [&exact[..], &["--data", data.to_str().unwrap()]].concat();
    assert_eq!(gateway.cli(&inside).await.stdout, EVOLUTION);
}

#[tokio::test]
async fn bodies_are_delivered_exactly_unless_strip_secrets_is_set() {
    let sink = quoting_sink().await;
    let exact = gateway(&sink, "").await;
    let posted = post_all_payloads(&exact).await;
    exact.wait_until_idle().await;
    let arrivals = sink.requests();
    for (id, body) in &posted {
        let arrival = arrivals
            .iter()
            .find(|arrival| arrival.id() == id && arrival.path.ends_with("/quotes"))
            .unwrap();
        assert_eq!(arrival.body, body);
    }
    assert!(arrivals.iter().any(|arrival| arrival.headers.contains_key("apikey")));

    let sink = quoting_sink().await;
    let mut gateway = gateway(&sink, "strip_secrets = true").await;
    let posted = post_all_payloads(&gateway).await;
    gateway.wait_until_idle().await;
    let quotes = gateway.find_delivery_to(&posted[0].0, "quotes").await.unwrap();
    gateway.post(&format!("/deliveries/{quotes}/replay"), &json!({})).await.expect(202);
    gateway.wait_until_idle().await;
    let arrivals = sink.requests();
    let of = |path: &str| {
        arrivals.iter().filter(|arrival| arrival.path.ends_with(path)).collect::<Vec<_>>()
    };
    assert_eq!((of("/quotes").len(), of("/made").len(), of("/fails").len()), (6, 2, 0));
    for arrival in &arrivals {
        assert_no_secret(&String::from_utf8_lossy(&arrival.body), &arrival.path);
        assert_no_secret(&format!("{:?}", arrival.headers), &arrival.path);
        assert!(!arrival.headers.contains_key("content-encoding"));
    }
    let hidden = EVOLUTION.replace("CANARY-B6D711FCDE4D4FD5936544120E713976", "•••");
    let same = of("/quotes").into_iter().filter(|arrival| arrival.body == hidden.as_bytes());
    assert_eq!(same.count(), 3, "the first, its replay, and the compressed one");
    let made = r#"{"apikey":"•••","deep":[{"token":"•••"}],"event":"messages.upsert"}"#;
    assert!(of("/made").iter().all(|arrival| arrival.body == made));
    for (id, body) in &posted {
        let stored = gateway.get(&format!("/events/{id}/body?exact=true")).await.expect(200);
        assert_eq!(stored.body, body, "the stored body is unchanged");
    }

    // A body that cannot be parsed cannot be stripped, so it is not sent.
    let xml = gateway.post_accepted("evo", "<token>CANARY</token>").await;
    gateway.wait_until_idle().await;
    let dead = gateway.find_delivery_to(&xml, "quotes").await.unwrap();
    let dead = gateway.wait_for_delivery_status(&dead, "dead").await;
    assert_eq!(dead["reason"], "payload_error");
    let why = dead["attempt_list"][0]["detail"].as_str().unwrap().to_owned();
    assert!(why.contains("strip_secrets"), "{why}");

    // Deliveries outlive their source, and so does its `strip_secrets` setting.
    gateway.post("/destinations/quotes/pause", &json!({})).await.expect(200);
    let last = gateway.post_accepted("evo", CARD).await;
    let waiting = gateway.find_delivery_to(&last, "quotes").await.unwrap();
    gateway.delete("/sources/evo").await.expect(204);
    let before = sink.count();
    gateway.restart().await;
    gateway.post("/destinations/quotes/resume", &json!({})).await.expect(200);
    gateway.wait_for_delivery_status(&waiting, "dead").await;
    let arrivals = sink.requests();
    assert_eq!(arrivals.len(), before + 1);
    assert_no_secret(
        &String::from_utf8_lossy(&arrivals[before].body),
        "after the source was deleted",
    );
}

#[tokio::test]
async fn former_secret_header_stays_masked() {
    let sink = Sink::ok().await;
    let gateway = gateway(&sink, "").await;
    let gate = [("x-gate", "CANARY-gate-of-source")];
    let id = gateway.send_webhook("closed", &gate, "{}").await.expect(200).event_id();
    let spec = json!({
        "name": "closed",
        "verify": { "token": { "header": "x-door" } },
        "secrets": ["CANARY-door-of-source"],
    });
    gateway.put("/sources/closed", &spec).await.expect(200);
    assert_no_secret(&gateway.event(&id).await.to_string(), "another header");
    assert_no_secret(&gateway.get("/inbox").await.text(), "the inbox");
    gateway.delete("/sources/closed").await.expect(204);
    let shown = gateway.event(&id).await;
    assert_no_secret(&shown.to_string(), "no source");
    assert!(shown["request"].to_string().contains("•••"), "{shown}");
}

#[tokio::test]
async fn invalid_redact_names_are_rejected() {
    let gateway = Gateway::start().await;
    for (redact, code) in
        [(json!(["cpf", "Data-Nasc"]), 201), (json!([""]), 422), (json!(["/a"]), 422)]
    {
        let name = format!("s{code}");
        let spec = json!({ "name": name, "verify": "none", "redact": redact });
        let response = gateway.post("/sources", &spec).await.expect(code);
        if code == 422 {
            assert!(response.detail().contains("redact"), "{}", response.detail());
        }
    }
}
