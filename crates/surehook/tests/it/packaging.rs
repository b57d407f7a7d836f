//! What is in `packaging/`: the root of the image, the systemd unit, the chart, the Compose file, and the
//! schema of the settings.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value, json};

use crate::support::{
    process::run_surehook,
    tools::{Tool, can_unshare, packaging_tool},
};

fn source() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

fn packaging(file: &str) -> PathBuf {
    source().join("packaging").join(file)
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn text(output: &Output) -> String {
    let (stdout, stderr) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(&[&stdout[..], stderr].concat()).into_owned()
}

#[test]
fn root_of_the_image_delivers_a_first_event_without_privileges() {
    if !can_unshare() {
        return;
    }
    let binary = env!("CARGO_BIN_EXE_surehook");

    let tried = run(Command::new(packaging("try-image")).arg(binary));

    assert!(tried.status.success(), "{}", text(&tried));
    assert!(text(&tried).contains("first event delivered"), "{}", text(&tried));
}

/// The unit with the binary under test, which systemd looks for.
fn unit(folder: &Path) -> PathBuf {
    let unit = std::fs::read_to_string(packaging("surehook.service")).unwrap();
    let unit = unit.replace("/usr/bin/surehook", env!("CARGO_BIN_EXE_surehook"));
    std::fs::write(folder.join("surehook.service"), unit).unwrap();
    folder.join("surehook.service")
}

#[test]
fn unit_is_valid_and_hardened() {
    if !Tool::Packaging.is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let unit = unit(folder.path());
    let analyze = |arguments: &[&str]| {
        run(Command::new("systemd-analyze").args(arguments).arg(&unit).current_dir(folder.path()))
    };

    let verified = analyze(&["verify", "--man=no"]);
    // In tenths: the documentation says 1.2.
    let rated = analyze(&["security", "--offline=true", "--no-pager", "--threshold=12"]);

    assert!(verified.status.success() && text(&verified).is_empty(), "{}", text(&verified));
    assert!(rated.status.success(), "{}", text(&rated));
}

/// Renders the chart with these values; returns its manifests by kind, or what was refused.
fn render_chart(values: &Value) -> Result<Value, String> {
    let script = source().join("crates/surehook/tests/packaging/render_chart.py");
    let mut command = Command::new(packaging_tool("python"));
    let rendered = run(command.arg(script).arg(packaging("helm/surehook")).arg(values.to_string()));
    if !rendered.status.success() {
        return Err(text(&rendered));
    }
    let manifests = String::from_utf8(rendered.stdout).unwrap();
    let manifests = manifests.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    Ok(manifests
        .map(|manifest| (manifest["kind"].as_str().unwrap().to_owned(), manifest))
        .collect())
}

#[test]
fn chart_renders_valid_manifests_for_both_stores() {
    if !Tool::Packaging.is_available() {
        return;
    }

    let sqlite = render_chart(&json!({ "settings": "log = \"warn\"\n" })).unwrap();
    let nodes = render_chart(&json!({
        "store": "postgresql", "replicas": 3, "existingSecret": "keys",
        "ingress": { "enabled": true, "tlsSecret": "tls", "className": "nginx" },
    }))
    .unwrap();

    assert_eq!(sqlite["ConfigMap"]["data"]["surehook.toml"], "log = \"warn\"\n");
    let pod = &sqlite["StatefulSet"]["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(pod["securityContext"]["runAsUser"], 65532);
    assert_eq!(
        sqlite["StatefulSet"]["spec"]["volumeClaimTemplates"][0]["metadata"]["name"],
        "data"
    );
    assert_eq!(sqlite.get("Ingress"), None);
    assert_eq!(nodes["Deployment"]["spec"]["replicas"], 3);
    let container = &nodes["Deployment"]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["envFrom"][0]["secretRef"]["name"], "keys");
    assert_eq!(nodes["Ingress"]["spec"]["rules"][0]["http"]["paths"][0]["path"], "/in/");
    assert_eq!(nodes.get("StatefulSet"), None);
}

#[test]
fn chart_refuses_values_that_cannot_work() {
    if !Tool::Packaging.is_available() {
        return;
    }
    for (values, place) in [
        (json!({ "replicas": 2 }), "$.replicas"),
        (json!({ "store": "postgresql" }), "$.existingSecret"),
        (json!({ "store": "mysql", "existingSecret": "x" }), "$.store"),
        (json!({ "persistance": {} }), "$"),
    ] {
        let refused = render_chart(&values).unwrap_err();
        assert!(refused.contains(&format!("values: {place}")), "{values}: {refused}");
    }
}

#[test]
fn compose_file_and_workflows_match_their_schemas() {
    if !Tool::Packaging.is_available() {
        return;
    }
    let check = |schema: &str, files: &[PathBuf]| {
        let mut command = Command::new(packaging_tool("check-jsonschema"));
        let checked = run(command.args(["--builtin-schema", schema]).args(files));
        assert!(checked.status.success(), "{schema}: {}", text(&checked));
    };
    check("vendor.compose-spec", &[packaging("compose.yaml")]);
    let workflows = source().join(".github/workflows");
    check("vendor.github-workflows", &[workflows.join("ci.yml"), workflows.join("release.yml")]);
}

#[tokio::test]
async fn schema_of_the_settings_is_current_and_checks_files() {
    let folder = tempfile::tempdir().unwrap();
    let printed = run_surehook(folder.path(), &["config", "schema"], &[]).await;
    let committed = std::fs::read_to_string(source().join("docs/reference/settings.schema.json"));
    assert_eq!(
        printed.stdout,
        committed.unwrap(),
        "regenerate it: cargo run -- config schema > docs/reference/settings.schema.json"
    );
    let schema: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    for (key, property) in schema["properties"].as_object().unwrap() {
        let has_text = property.get("description").is_some() || property.get("$ref").is_some();
        assert!(has_text, "{key} has no description");
    }
    if !Tool::Packaging.is_available() {
        return;
    }
    // Taplo is what editors use.
    let schema = folder.path().join("settings.schema.json");
    std::fs::write(&schema, &printed.stdout).unwrap();
    let lint = |file: &Path| {
        let url = format!("file://{}", schema.display());
        let mut command = Command::new(packaging_tool("taplo"));
        run(command.args(["lint", "--schema", &url]).arg(file).current_dir(folder.path()))
    };
    for file in ["surehook.example.toml", "packaging/deb/surehook.toml"] {
        let checked = lint(&source().join(file));
        assert!(checked.status.success(), "{file}: {}", text(&checked));
    }
    for wrong in ["listem = \"127.0.0.1:1\"", "log = \"loud\"", "[limits]\nbody_bytes_max = \"x\""]
    {
        let file = folder.path().join("wrong.toml");
        std::fs::write(&file, wrong).unwrap();
        let checked = lint(&file);
        assert!(!checked.status.success(), "{wrong}: {}", text(&checked));
    }
}
