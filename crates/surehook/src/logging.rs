//! Logging: one JSON object per line, or text on a terminal.
//!
//! Logs contain no bodies, secrets or phone numbers: no field is ever data of a sender. Libraries do not
//! follow that rule, so below the level `warn` only our own crates log.

use std::io::IsTerminal as _;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{filter::Targets, fmt, layer::SubscriberExt as _};

/// Starts logging to standard error. `level` and `format` were validated with the settings.
pub(crate) fn start(level: &str, format: &str) {
    let level: LevelFilter = level.parse().unwrap_or(LevelFilter::INFO);
    let json = match format {
        "json" => true,
        "text" => false,
        _ => !std::io::stderr().is_terminal(),
    };
    let filter = Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target(env!("CARGO_CRATE_NAME"), level);
    let builder = fmt().with_max_level(level).with_writer(std::io::stderr);
    // Only tests can have set another logger; it stays.
    let _started = if json {
        tracing::subscriber::set_global_default(
            builder.json().flatten_event(true).finish().with(filter),
        )
    } else {
        let color = std::io::stderr().is_terminal();
        tracing::subscriber::set_global_default(builder.with_ansi(color).finish().with(filter))
    };
}
