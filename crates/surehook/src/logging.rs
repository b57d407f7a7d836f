//! Logs: one JSON object a line, or text on a terminal. No bodies, no secrets, no phone numbers:
//! nothing that came from a sender is ever a field. Libraries do not keep to that, so below a
//! warning only our own crates have a say.

use std::io::IsTerminal as _;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{filter::Targets, fmt, layer::SubscriberExt as _};

/// Starts logging to standard error. `level` and `format` were checked with the settings.
pub(crate) fn start(level: &str, format: &str) {
    let level: LevelFilter = level.parse().unwrap_or(LevelFilter::INFO);
    let json = match format {
        "json" => true,
        "text" => false,
        _ => !std::io::stderr().is_terminal(),
    };
    let ours = Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target(env!("CARGO_CRATE_NAME"), level);
    let builder = fmt().with_max_level(level).with_writer(std::io::stderr);
    // Another logger can only be there in tests, and then it is the one that is wanted.
    let _started = if json {
        tracing::subscriber::set_global_default(
            builder.json().flatten_event(true).finish().with(ours),
        )
    } else {
        let colour = std::io::stderr().is_terminal();
        tracing::subscriber::set_global_default(builder.with_ansi(colour).finish().with(ours))
    };
}
