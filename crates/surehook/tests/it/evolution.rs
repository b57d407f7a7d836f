//! `surehook evolution`: managing Evolution instances from the command line.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{
    fake_channels::{EvolutionApi, EvolutionGo},
    process::{CommandOutput, run_surehook},
};

type Env = [(&'static str, &'static str)];

const GO: [(&str, &str); 1] = [("EVOLUTION_TOKEN", EvolutionGo::TOKEN)];
const ADMIN: [(&str, &str); 2] =
    [("EVOLUTION_TOKEN", EvolutionGo::TOKEN), ("EVOLUTION_ADMIN_KEY", EvolutionGo::ADMIN_KEY)];
const API: [(&str, &str); 2] =
    [("EVOLUTION_TOKEN", EvolutionApi::TOKEN), ("EVOLUTION_INSTANCE", EvolutionApi::INSTANCE)];

/// Runs `surehook evolution …` in a temporary folder. Its output must never contain a secret.
async fn run(url: &str, args: &str, env: &[(&str, &str)]) -> CommandOutput {
    let folder = tempfile::tempdir().unwrap();
    run_in(folder.path(), url, args, env).await
}

async fn run_in(folder: &Path, url: &str, args: &str, env: &[(&str, &str)]) -> CommandOutput {
    let args: Vec<&str> = ["evolution"].into_iter().chain(args.split_whitespace()).collect();
    let mut all = vec![("EVOLUTION_URL".to_owned(), url.to_owned())];
    all.extend(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let output = run_surehook(folder, &args, &all).await;
    for secret in [EvolutionGo::TOKEN, EvolutionGo::ADMIN_KEY, EvolutionApi::TOKEN, "pa55word"] {
        assert!(!output.stdout.contains(secret) && !output.stderr.contains(secret), "{output:?}");
    }
    output
}

fn json_of(output: &CommandOutput) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[tokio::test]
async fn instance_status_is_printed_and_sets_exit_code() {
    let (go, api) = (EvolutionGo::start().await, EvolutionApi::start().await);
    let connected = run(&go.url(), "status --json", &GO).await;
    assert_eq!(connected.code, Some(0), "{connected:?}");
    assert_eq!(
        json_of(&connected),
        json!({ "state": "connected", "connected": true, "name": "Loja" })
    );
    let shown = run(&go.url(), "status", &GO).await.stdout;
    assert!(shown.contains("connected") && shown.contains("Loja"), "{shown}");
    let by_name = [("EVOLUTION_ADMIN_KEY", EvolutionGo::ADMIN_KEY)];
    let by_name = run(&go.url(), "status --instance shop", &by_name).await;
    assert_eq!(by_name.code, Some(0), "the admin key finds the instance token: {by_name:?}");

    go.instance().logged_in = false;
    let not_linked = run(&go.url(), "status --json", &GO).await;
    assert_eq!((not_linked.code, &json_of(&not_linked)["state"]), (Some(8), &json!("not_linked")));
    go.instance().connected = false;
    let down = run(&go.url(), "status --json", &GO).await;
    assert_eq!((down.code, &json_of(&down)["state"]), (Some(8), &json!("disconnected")));
    assert!(down.stderr.contains("evolution connect"), "{down:?}");

    for (state, code, expected) in
        [("open", 0, "connected"), ("connecting", 8, "connecting"), ("close", 8, "disconnected")]
    {
        api.instance().state = state;
        let output = run(&api.url(), "status --service api --json", &API).await;
        assert_eq!(
            (output.code, &json_of(&output)["state"]),
            (Some(code), &json!(expected)),
            "{output:?}"
        );
    }
}

#[tokio::test]
async fn evolution_command_errors_say_what_to_do() {
    let (go, api) = (EvolutionGo::start().await, EvolutionApi::start().await);
    let (go_url, api_url) = (go.url(), api.url());
    let swapped = [("EVOLUTION_TOKEN", EvolutionGo::ADMIN_KEY)];
    let wrong = [("EVOLUTION_TOKEN", "wrong"), ("EVOLUTION_INSTANCE", "shop")];
    let elsewhere = [("EVOLUTION_TOKEN", EvolutionApi::TOKEN), ("EVOLUTION_INSTANCE", "elsewhere")];
    let both = [("EVOLUTION_TOKEN", "t"), ("EVOLUTION_ADMIN_KEY", EvolutionGo::ADMIN_KEY)];
    let proxy = "proxy set --host p.webshare.io --port 80";
    let cases: [(&str, &str, &Env, i32, &str); 14] = [
        ("", "status", &GO, 5, "--url"),
        (&go_url, "status", &[], 3, "EVOLUTION_TOKEN"),
        (&go_url, "status", &swapped, 3, "instance token"),
        ("http://127.0.0.1:1", "status", &GO, 6, "Is Evolution running there?"),
        (&api_url, "status", &GO, 6, "--service"),
        (&api_url, "status --service api", &wrong, 3, "--token"),
        (&api_url, "status --service api", &elsewhere, 4, "--instance"),
        (&api_url, "status --service api", &GO, 5, "instance"),
        (&go_url, proxy, &GO, 3, "GLOBAL_API_KEY"),
        (&go_url, proxy, &both, 4, "instance not found"),
        (&go_url, "proxy show", &ADMIN, 5, "does not show"),
        (&go_url, "proxy set --host http://p --port 80", &ADMIN, 5, "://"),
        (&go_url, "connect --webhook nowhere", &ADMIN, 5, "--webhook"),
        (&go_url, "connect --subscribe MESAGE", &ADMIN, 5, "READ_RECEIPT"),
    ];
    for (url, args, env, code, part) in cases {
        let output = run(url, args, env).await;
        assert_eq!(output.code, Some(code), "{args}: {output:?}");
        assert!(output.stderr.contains(part), "{args}: {output:?}");
    }
    assert_eq!(go.instance().webhook, EvolutionGo::WEBHOOK, "nothing was changed");
    assert!(go.instance().proxy.is_none());
}

#[tokio::test]
async fn connect_keeps_existing_webhook_settings() {
    let go = EvolutionGo::start().await;
    go.instance().connected = false;
    let kept = run(&go.url(), "connect --json", &ADMIN).await;
    assert_eq!(kept.code, Some(0), "{kept:?}");
    assert_eq!(json_of(&kept)["webhook"], EvolutionGo::WEBHOOK);
    {
        let instance = go.instance();
        assert_eq!(instance.webhook, EvolutionGo::WEBHOOK);
        assert_eq!(instance.events, "MESSAGE,READ_RECEIPT");
        assert_eq!(instance.rabbitmq, "enabled");
        assert!(instance.connected);
    }
    // Without the admin key the current settings cannot be read, so nothing may be overwritten.
    for args in ["connect", "connect --webhook https://a.test", "connect --subscribe MESSAGE"] {
        let refused = run(&go.url(), args, &GO).await;
        assert_eq!(refused.code, Some(5), "{refused:?}");
        assert!(refused.stderr.contains("--admin-key"), "{refused:?}");
        assert_eq!(go.instance().webhook, EvolutionGo::WEBHOOK);
    }
    let one = run(&go.url(), "connect --webhook https://a.test/in/evo", &ADMIN).await;
    assert_eq!(one.code, Some(0), "{one:?}");
    assert_eq!(go.instance().webhook, "https://a.test/in/evo");
    assert_eq!(go.instance().events, "MESSAGE,READ_RECEIPT");
    let all =
        run(&go.url(), "connect --webhook https://b.test --subscribe message,group", &GO).await;
    assert_eq!(all.code, Some(0), "{all:?}");
    assert_eq!(go.instance().webhook, "https://b.test");
    assert_eq!(go.instance().events, "MESSAGE,GROUP");
}

#[tokio::test]
async fn connect_to_evolution_api_changes_only_given_settings() {
    let api = EvolutionApi::start().await;
    let before = json!({
        "enabled": true, "url": "https://old.test", "headers": { "authorization": "x" },
        "events": ["MESSAGES_UPSERT"], "webhookByEvents": true, "webhookBase64": false,
    });
    api.instance().webhook = before.clone();
    let kept = run(&api.url(), "connect --service api --json", &API).await;
    assert_eq!(kept.code, Some(0), "{kept:?}");
    assert_eq!(json_of(&kept)["webhook"], "https://old.test");
    assert_eq!(api.instance().webhook, before);
    let one = run(&api.url(), "connect --service api --webhook https://new.test", &API).await;
    assert_eq!(one.code, Some(0), "{one:?}");
    let expected = json!({
        "enabled": true, "url": "https://new.test", "headers": { "authorization": "x" },
        "events": ["MESSAGES_UPSERT"], "byEvents": true, "base64": false,
    });
    assert_eq!(api.instance().webhook, expected);
}

#[tokio::test]
async fn connect_links_phone_by_pairing_code_or_qr_image() {
    let (go, api) = (EvolutionGo::start().await, EvolutionApi::start().await);
    let folder = tempfile::tempdir().unwrap();
    go.instance().logged_in = false;
    let pairing = run(&go.url(), "connect --phone +55-11-98765-4321", &ADMIN).await;
    assert!(pairing.stdout.contains(EvolutionGo::PAIRING_CODE), "{pairing:?}");
    let picture = run_in(folder.path(), &go.url(), "connect --qr qr.png", &ADMIN).await;
    assert_eq!(picture.code, Some(0), "{picture:?}");
    assert_eq!(std::fs::read(folder.path().join("qr.png")).unwrap(), [0, 0, 0]);
    let neither = run(&go.url(), "connect", &ADMIN).await;
    assert!(neither.stderr.contains("--phone NUMBER"), "{neither:?}");
    go.instance().logged_in = true;
    let linked = run(&go.url(), "connect --phone +5511987654321 --json", &ADMIN).await;
    assert_eq!((linked.code, &json_of(&linked)["connected"]), (Some(0), &json!(true)));

    api.instance().state = "close";
    let args = "connect --service api --phone +5511987654321 --json";
    let pairing = run(&api.url(), args, &API).await;
    assert_eq!(json_of(&pairing)["pairing_code"], "WXYZ9876", "{pairing:?}");
    assert_eq!(json_of(&pairing)["state"], "connecting");
    let wrong = run(&api.url(), "connect --service api --phone maria", &API).await;
    assert_eq!(wrong.code, Some(5), "{wrong:?}");
}

#[tokio::test]
async fn proxy_is_set_shown_and_cleared() {
    let (go, api) = (EvolutionGo::start().await, EvolutionApi::start().await);
    let secret = [("MY_PASSWORD", "pa55word")];
    let with = |env: &Env| [env, &secret].concat();
    let set = "proxy set --host p.webshare.io --port 80 --user maria --password env:MY_PASSWORD";
    let output = run(&go.url(), set, &with(&ADMIN)).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let expected = json!({ "host": "p.webshare.io", "port": "80", "username": "maria", "password": "pa55word" });
    assert_eq!(go.instance().proxy, Some(expected));
    assert_eq!(run(&go.url(), "proxy clear", &ADMIN).await.code, Some(0));
    assert_eq!(go.instance().proxy, None);

    let set = format!("{set} --service api --protocol socks5");
    let output = run(&api.url(), &set, &with(&API)).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(api.instance().proxy["password"], "pa55word");
    assert_eq!(api.instance().proxy["protocol"], "socks5");
    let shown = run(&api.url(), "proxy show --service api --json", &API).await;
    let expected = json!({
        "host": "p.webshare.io", "port": "80", "protocol": "socks5", "user": "maria",
        "password_set": true,
    });
    assert_eq!(json_of(&shown), expected);
    let host = EvolutionApi::BAD_PROXY;
    let args = format!("proxy set --service api --host {host} --port 80");
    let bad = run(&api.url(), &args, &API).await;
    assert_eq!(bad.code, Some(5), "{bad:?}");
    assert!(bad.stderr.contains("could not connect through"), "{bad:?}");
    assert_eq!(run(&api.url(), "proxy clear --service api", &API).await.code, Some(0));
    assert_eq!(api.instance().proxy["enabled"], false);
    let shown = run(&api.url(), "proxy show --service api", &API).await;
    assert_eq!(shown.stdout, "No proxy.\n", "{shown:?}");
}

#[tokio::test]
async fn proxy_password_is_read_from_standard_input() {
    let go = EvolutionGo::start().await;
    let args = [
        "evolution",
        "proxy",
        "set",
        "--host",
        "10.0.0.1",
        "--port",
        "1080",
        "--user",
        "maria",
        "--password-stdin",
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_surehook"))
        .args(args)
        .env_clear()
        .env("EVOLUTION_URL", go.url())
        .envs(ADMIN)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"env:pa55word\n").unwrap();
    let ended = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert!(ended.success());
    assert_eq!(go.instance().proxy.as_ref().unwrap()["password"], "env:pa55word");
}

#[tokio::test]
async fn destination_in_settings_selects_instance() {
    let (go, api) = (EvolutionGo::start().await, EvolutionApi::start().await);
    let folder = tempfile::tempdir().unwrap();
    let settings = format!(
        r#"
        [[destinations]]
        name = "go"
        kind = "evolution-go"
        url = "{}"
        account = {{ token = "env:GO_TOKEN" }}

        [[destinations]]
        name = "api"
        kind = "evolution-api"
        url = "{}"
        account = {{ sender = "{}", token = "{}" }}

        [[destinations]]
        name = "crm"
        url = "http://127.0.0.1:9/"
        "#,
        go.url(),
        api.url(),
        EvolutionApi::INSTANCE,
        EvolutionApi::TOKEN,
    );
    for file in ["surehook.toml", "other.toml"] {
        std::fs::write(folder.path().join(file), &settings).unwrap();
    }
    let env = [("GO_TOKEN", EvolutionGo::TOKEN)];
    let cases = [
        ("status --destination go", 0, "Loja"),
        ("status --destination api", 0, "connected"),
        ("status --destination api --config other.toml", 0, "connected"),
        ("status --destination crm", 5, "has the kind http"),
        ("status --destination sap", 4, "no destination `sap`"),
        ("status --destination go --config none.toml", 78, "none.toml"),
    ];
    for (args, code, part) in cases {
        let output = run_in(folder.path(), "http://127.0.0.1:1", args, &env).await;
        assert_eq!(output.code, Some(code), "{args}: {output:?}");
        assert!(format!("{}{}", output.stdout, output.stderr).contains(part), "{args}: {output:?}");
    }
    let unset = run_in(folder.path(), "", "status --destination go", &[]).await;
    assert!(unset.stderr.contains("GO_TOKEN"), "{unset:?}");
}
