//! A mail server from `PyPI`, with STARTTLS and a login.

use std::{path::PathBuf, process::Command};

use serde_json::Value;
use tempfile::TempDir;

use super::{
    WAIT_LIMIT, eventually, free_port,
    process::Process,
    tls::CertificateAuthority,
    tools::{Tool, smtp_python},
};

pub(crate) const USER: &str = "surehook";
pub(crate) const PASSWORD: &str = "mail-canary-7";

/// A running mail server. Stops when dropped.
#[derive(Debug)]
pub(crate) struct MailServer {
    folder: TempDir,
    process: Process,
    port: u16,
}

impl MailServer {
    /// Starts a server with a certificate of this authority for `localhost`; `None` if the test is to be
    /// skipped.
    pub(crate) async fn start(authority: &CertificateAuthority) -> Option<Self> {
        if !Tool::Smtp.is_available() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = authority.issue_server_certificate(&["localhost"]);
        for (name, text) in
            [("cert.pem", certificate), ("key.pem", key), ("ca.pem", authority.pem())]
        {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let port = free_port();
        let mut command = Command::new(smtp_python());
        command.args(["-c", include_str!("../../smtp/server.py")]);
        command.args([&port.to_string(), "cert.pem", "key.pem", USER, PASSWORD]);
        command.current_dir(folder.path());
        let server = Self { folder, process: Process::start(command), port };
        let is_ready = || server.process.stdout.text().starts_with("ready");
        eventually(WAIT_LIMIT, || async { is_ready().then_some(()) }).await;
        Some(server)
    }

    /// The settings of a mail destination with this server; `more` is added to it.
    pub(crate) fn destination(&self, name: &str, more: &str) -> String {
        let Self { port, folder, .. } = self;
        let ca = folder.path().join("ca.pem");
        format!(
            r#"
            [[destinations]]
            name = "{name}"
            kind = "email"
            url = "smtp://localhost:{port}"
            email = {{ from = "Surehook <alerts@example.com>", to = ["ops@example.com", "boss@example.com"] }}
            auth = {{ basic = {{ user = "{USER}", password = "{PASSWORD}" }} }}
            tls = {{ ca = "file:{}" }}
            {more}
            "#,
            ca.display()
        )
    }

    /// Refuses mails for now, or accepts them again.
    pub(crate) fn refuse(&self, refuses: bool) {
        let file: PathBuf = self.folder.path().join("refuse");
        match refuses {
            true => std::fs::write(file, "").unwrap(),
            false => std::fs::remove_file(file).unwrap(),
        }
    }

    /// The mails so far.
    pub(crate) fn mails(&self) -> Vec<Value> {
        let text = self.process.stdout.text();
        let complete = text.lines().filter(|line| line.starts_with('{') && line.ends_with('}'));
        complete.map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
