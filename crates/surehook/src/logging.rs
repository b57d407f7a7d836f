//! Logging: one JSON object per line, or text on a terminal.
//!
//! Logs contain no bodies, secrets or phone numbers: no field is ever data of a sender. Libraries do not
//! follow that rule, so below the level `warn` only our own crates log.

use std::io::IsTerminal as _;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{filter::Targets, fmt, layer::SubscriberExt as _, reload};

/// Changes the level of the running log.
pub(crate) struct LogLevel(Box<dyn Fn(&str) + Send + Sync>);

impl std::fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogLevel")
    }
}

impl LogLevel {
    /// `level` was validated with the settings.
    pub(crate) fn set(&self, level: &str) {
        (self.0)(level);
    }

    fn new<S>(handle: reload::Handle<Targets, S>) -> Self
    where
        reload::Handle<Targets, S>: Send + Sync + 'static,
    {
        Self(Box::new(move |level| {
            // Fails only if the log has ended.
            let _set = handle.reload(filter(level));
        }))
    }
}

fn filter(level: &str) -> Targets {
    let level: LevelFilter = level.parse().unwrap_or(LevelFilter::INFO);
    Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target(env!("CARGO_CRATE_NAME"), level)
}

/// Starts logging to standard error. `level` and `format` were validated with the settings.
pub(crate) fn start(level: &str, format: &str) -> LogLevel {
    let json = match format {
        "json" => true,
        "text" => false,
        _ => !std::io::stderr().is_terminal(),
    };
    let builder = fmt().with_max_level(LevelFilter::TRACE).with_writer(std::io::stderr);
    // Only tests can have set another logger; it stays.
    if json {
        let (filter, handle) = reload::Layer::new(filter(level));
        let log = builder.json().flatten_event(true).finish().with(filter);
        let _started = tracing::subscriber::set_global_default(log);
        LogLevel::new(handle)
    } else {
        let color = std::io::stderr().is_terminal();
        let (filter, handle) = reload::Layer::new(filter(level));
        let log = builder.with_ansi(color).finish().with(filter);
        let _started = tracing::subscriber::set_global_default(log);
        LogLevel::new(handle)
    }
}
