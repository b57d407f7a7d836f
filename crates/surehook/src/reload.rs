//! Applies the settings file to the running gateway: on SIGHUP, and for `surehook reload` over the API.
//!
//! The file is applied completely or not at all. What can only be read at start is reported.

use std::sync::Arc;

use serde_json::{Value, json};
use surehook_api::reload::ReloadResponse;
use surehook_engine::{
    ConfigChangeError, Engine, ReloadableSettings,
    apply::{ApplyReport, plan_changes},
};
use surehook_guard::address::AddressPolicy;
use surehook_server::{
    SettingsReloadError, SettingsReloader,
    tls::{ListenerTls, LoadedCertificate},
};
use tokio::sync::Mutex;

use crate::{
    commands::serve::ServeArgs,
    logging::LogLevel,
    settings::{self, Settings, document::SettingsDocument, flatten},
    systemd::ServiceManager,
};

/// The settings of the server that a reload applies. All others are read at start only.
const RELOADABLE: [&str; 8] = [
    "allow_env",
    "allow_exec",
    "allow_networks",
    "log",
    "ready_max_due_age",
    "retention",
    "tls.cert",
    "tls.key",
];

/// Sections that are reported by their objects.
const CONFIGURATION: [&str; 3] = ["sources", "destinations", "routes"];

/// Reads the settings file again and applies it.
#[derive(Debug)]
pub(crate) struct FileReloader {
    pub(crate) args: ServeArgs,
    pub(crate) engine: Arc<Engine>,
    pub(crate) tls: Option<Arc<ListenerTls>>,
    pub(crate) log: LogLevel,
    pub(crate) manager: Arc<ServiceManager>,
    /// Locked during a reload: there is one at a time.
    pub(crate) values: Mutex<SettingValues>,
}

/// The values of the settings of the server.
#[derive(Debug)]
pub(crate) struct SettingValues {
    at_start: Value,
    /// As of the last reload.
    loaded: Value,
}

impl SettingValues {
    pub(crate) fn new(settings: &Settings) -> Self {
        let at_start = json!(settings);
        Self { loaded: at_start.clone(), at_start }
    }

    /// Takes over new values, and sorts the changed ones by whether they need a restart.
    fn replace(&mut self, settings: &Settings) -> (Vec<String>, Vec<String>) {
        let next = json!(settings);
        let is_reloadable = |key: &String| RELOADABLE.contains(&key.as_str());
        let mut applied = changed_keys(&self.loaded, &next);
        applied.retain(is_reloadable);
        let mut needs_restart = changed_keys(&self.at_start, &next);
        needs_restart.retain(|key| !is_reloadable(key));
        self.loaded = next;
        (applied, needs_restart)
    }
}

/// The settings with different values; a section that is there only once counts with each of its keys.
fn changed_keys(before: &Value, after: &Value) -> Vec<String> {
    let (before, after) = (flatten(before), flatten(after));
    let mut changed: Vec<String> = before
        .iter()
        .filter(|setting| !after.contains(setting))
        .chain(after.iter().filter(|setting| !before.contains(setting)))
        .map(|(key, _)| key.clone())
        .filter(|key| !CONFIGURATION.contains(&key.as_str()))
        .collect();
    changed.sort();
    changed.dedup();
    changed
}

impl FileReloader {
    /// Reloads and logs the result, as SIGHUP does.
    pub(crate) async fn reload_and_log(&self) {
        self.manager.announce_reload();
        // Both outcomes are logged.
        let _result = self.reload_settings().await;
        self.manager.announce_ready("Ready");
    }

    async fn reload_settings(&self) -> Result<ReloadResponse, SettingsReloadError> {
        let result = self.apply_file().await;
        match &result {
            Ok(report) => {
                let ReloadResponse { applied, needs_restart, created, updated, .. } = report;
                tracing::info!(?applied, ?created, ?updated, "settings reloaded");
                if !needs_restart.is_empty() {
                    tracing::warn!(?needs_restart, "changed settings need a restart");
                }
            }
            Err(error) => {
                tracing::error!(%error, "settings not reloaded; the old ones stay in use");
            }
        }
        result
    }

    async fn apply_file(&self) -> Result<ReloadResponse, SettingsReloadError> {
        let mut values = self.values.lock().await;
        let invalid = |error: anyhow::Error| SettingsReloadError::Invalid(format!("{error:#}"));
        let file = settings::settings_file(&self.args);
        let document = file.as_ref().map(|file| SettingsDocument::read(file)).transpose();
        let document = document.map_err(invalid)?;
        let settings = Settings::from_document(&self.args, document.as_ref()).map_err(invalid)?;
        let locate = |message: String| match &document {
            Some(document) => SettingsReloadError::Invalid(document.error(&message).to_string()),
            None => SettingsReloadError::Invalid(message),
        };
        let certificate = self.load_certificate(&settings).map_err(locate)?;
        let desired = settings.desired_configuration();
        let (rng, now) = (self.engine.rng(), self.engine.clock().now());
        let changed = self
            .engine
            .apply_settings::<_, ConfigChangeError>(reloadable(&settings), |configuration| {
                Ok(plan_changes(configuration, desired.clone(), rng, now))
            })
            .await;
        let ApplyReport { created, updated, unchanged, .. } = match changed {
            Ok(report) => report,
            Err(ConfigChangeError::Invalid(error)) => return Err(locate(error.to_string())),
            Err(ConfigChangeError::Store(error)) => return Err(error.into()),
        };
        // From here on nothing can fail.
        if let Some((tls, certificate)) = self.tls.as_ref().zip(certificate) {
            tls.replace(certificate);
        }
        self.log.set(&settings.log);
        for warning in &settings.warnings {
            tracing::warn!("{warning}");
        }
        let (mut applied, mut needs_restart) = values.replace(&settings);
        if settings.certificate_files().is_some() != self.tls.is_some() {
            let (tls, others) = applied.into_iter().partition(|key| key.starts_with("tls."));
            applied = others;
            needs_restart.extend::<Vec<_>>(tls);
        }
        let file = file.map(|file| file.display().to_string());
        Ok(ReloadResponse { file, applied, needs_restart, created, updated, unchanged })
    }

    /// The certificate of the settings, read again; `None` without TLS, now or at start.
    fn load_certificate(&self, settings: &Settings) -> Result<Option<LoadedCertificate>, String> {
        let files = settings.certificate_files().filter(|_| self.tls.is_some());
        files.map(|files| files.load().map_err(|error| error.to_string())).transpose()
    }
}

#[async_trait::async_trait]
impl SettingsReloader for FileReloader {
    async fn reload(&self) -> Result<ReloadResponse, SettingsReloadError> {
        self.reload_settings().await
    }
}

/// The settings of the engine that a reload replaces.
pub(crate) fn reloadable(settings: &Settings) -> ReloadableSettings {
    ReloadableSettings {
        addresses: AddressPolicy::new(settings.allow_networks.clone()),
        programs: Arc::new(settings.allow_exec.clone()),
        allow_env: settings.allow_env.clone(),
        event_retention: settings.retention.0,
        stuck_after: settings.ready_max_due_age.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn changed_settings_are_applied_or_need_a_restart() {
        let mut values = SettingValues::new(&settings("log = \"warn\""));

        let first = values.replace(&settings("retention = \"7d\"\n[limits]\nbody_bytes_max = 5"));
        let second = values.replace(&settings("listen = \"127.0.0.1:9\"\nretention = \"7d\""));
        let third = values.replace(&settings("log = \"warn\"\nretention = \"7d\""));

        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        assert_eq!(first, (keys(&["log", "retention"]), keys(&["limits.body_bytes_max"])));
        assert_eq!(second, (keys(&[]), keys(&["listen"])), "against what is in use");
        assert_eq!(third, (keys(&["log"]), keys(&[])));
    }

    #[test]
    fn reloadable_settings_exist() {
        let all = flatten(&json!(Settings::default()));
        for key in RELOADABLE {
            assert!(all.iter().any(|(known, _)| known == key), "{key}");
        }
    }
}
