//! `surehook migrate`: moves everything from a data folder to PostgreSQL, or back.
//!
//! Most of it is copied while the gateway runs. For the rest no process may use the source: gateways named with
//! `--freeze` are frozen over the API, others must be stopped; the command waits for it.

use std::{
    convert::Infallible,
    ops::ControlFlow,
    path::PathBuf,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::anyhow;
use clap::Args;
use indicatif::{HumanBytes, HumanDuration as HumanTime, ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use surehook_api::{ApiTransport as _, calls};
use surehook_engine::system::SystemClock;
use surehook_store::{
    OpenError, SqliteStore,
    migrate::{
        self, MigrateError, MigratePhase, MigrateProgress, MigrateReport, Migration,
        MigrationEndpoint,
    },
};
use surehook_types::time::{Clock as _, HumanDuration};
use tokio::runtime::Handle;

use crate::{
    backend::{database_error, postgres_options},
    client::ApiClient,
    commands::{list::Columns, serve::ServeArgs},
    data_folder,
    database::DatabaseUrl,
    error::CliError,
    output,
    settings::Settings,
};

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Store to move: a data folder, or a PostgreSQL database
    #[arg(long, value_name = "DIR|URL")]
    from: StoreArgument,
    /// Store to fill, which must be empty; `env:NAME` takes the URL of a database from a variable
    #[arg(long, value_name = "DIR|URL")]
    to: StoreArgument,
    /// Say what would be moved, and whether it would be refused; change nothing
    #[arg(long)]
    dry_run: bool,
    /// URL of a running gateway to freeze for the last changes; may be repeated, once for each node
    #[arg(long, value_name = "URL")]
    freeze: Vec<String>,
    /// API token of an admin, for --freeze
    #[arg(long, env = "SUREHOOK_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// How long to wait until no process uses the source
    #[arg(long, value_name = "TIME", default_value = "10m")]
    wait: HumanDuration,
    /// Settings file with the secret key and the options of the database [default: surehook.toml, if it
    /// exists]
    #[arg(long, value_name = "FILE", env = "SUREHOOK_CONFIG")]
    config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const TABLES: &Columns = &[
    ("table", "table"),
    ("rows", "rows"),
    ("hours", "hours"),
    ("checksum of the source", "source_checksum"),
    ("checksum of the target", "target_checksum"),
];
const PLAN: &Columns = &[("table", "table"), ("rows", "rows")];

/// Between two lines about the progress where no bar is shown.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// Between two attempts to take over the source.
const TAKE_OVER_INTERVAL: Duration = Duration::from_millis(100);

pub(super) async fn run(args: &MigrateArgs) -> Result<(), CliError> {
    let serve = ServeArgs { config: args.config.clone(), ..ServeArgs::default() };
    let settings = Settings::load(&serve).map_err(CliError::settings)?;
    let from = location(&settings, &args.from)?;
    let to = location(&settings, &args.to)?;
    if args.dry_run {
        return print_plan(args, from, to).await;
    }
    let stopped = Arc::new(AtomicBool::new(false));
    let watch = tokio::spawn({
        let stopped = Arc::clone(&stopped);
        async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                stopped.store(true, Ordering::Relaxed);
            }
        }
    });
    let moved = migrate(args, from, to, &stopped).await;
    watch.abort();
    moved
}

/// The store of an argument. A folder that exists is opened with the key that it needs, in the folder or
/// from the settings.
fn location(settings: &Settings, argument: &StoreArgument) -> Result<MigrationEndpoint, CliError> {
    let data = match argument {
        StoreArgument::Folder(data) => data,
        StoreArgument::Database(database) => {
            return Ok(MigrationEndpoint::Database(postgres_options(settings, database)?));
        }
    };
    let configured = settings.secret_key().map_err(CliError::settings)?;
    // Any other error is reported when the folder is opened.
    let needs_configured = matches!(
        SqliteStore::open_read_only(data, None),
        Err(OpenError::SecretKeyMissing { .. }
            | OpenError::SecretKeyWrong { .. }
            | OpenError::Missing(_))
    );
    let secret_key = configured.filter(|_| needs_configured);
    Ok(MigrationEndpoint::Folder { data: data.to_owned(), secret_key })
}

async fn print_plan(
    args: &MigrateArgs,
    from: MigrationEndpoint,
    to: MigrationEndpoint,
) -> Result<(), CliError> {
    let (handle, now) = (Handle::current(), SystemClock.now());
    let work = move || migrate::plan(&from, &to, now, &handle);
    let plan = tokio::task::spawn_blocking(work).await?.map_err(migrate_error)?;
    if args.json {
        return output::print_line(json!({
            "from": plan.from,
            "to": plan.to,
            "bytes": plan.size_bytes,
            "is_continued": plan.is_continued,
            "tables": plan.tables.iter().map(|(table, rows)| json!({"table": table, "rows": rows}))
                .collect::<Vec<_>>(),
        }));
    }
    let with_rows = plan.tables.iter().filter(|(_, rows)| *rows > 0);
    let rows: Vec<Value> =
        with_rows.map(|(table, rows)| json!({"table": table, "rows": rows})).collect();
    output::print_table(PLAN, &rows)?;
    let what =
        if plan.is_continued { "An unfinished migration would be continued" } else { "Possible" };
    output::print_line(format!(
        "\n{what}: {}, {} on disk, to {}. Nothing was changed.",
        plan.from,
        HumanBytes(plan.size_bytes),
        plan.to
    ))
}

/// Runs a blocking part of the migration.
async fn run_part<T: Send + 'static>(
    mut migration: Migration,
    part: impl FnOnce(&mut Migration) -> Result<T, MigrateError> + Send + 'static,
) -> Result<(Migration, T), CliError> {
    let work = move || {
        let value = part(&mut migration)?;
        Ok((migration, value))
    };
    tokio::task::spawn_blocking(work).await?.map_err(migrate_error)
}

async fn migrate(
    args: &MigrateArgs,
    from: MigrationEndpoint,
    to: MigrationEndpoint,
    stopped: &Arc<AtomicBool>,
) -> Result<(), CliError> {
    let (handle, now, started) = (Handle::current(), SystemClock.now(), Instant::now());
    let open = move || Migration::open(&from, &to, now, &handle);
    let migration = tokio::task::spawn_blocking(open).await?.map_err(migrate_error)?;
    let (source, target) = migration.names();
    if migration.is_continued() {
        output::note("Continuing an unfinished migration.");
    }
    output::note(&format!("Moving {source} to {target}."));

    let mut progress = ProgressLines::new(stopped);
    let (migration, ()) =
        run_part(migration, move |migration| migration.copy(&mut |at| progress.report(at))).await?;

    let frozen_at = Instant::now();
    for url in &args.freeze {
        let token = args.token.as_deref().unwrap_or_default();
        ApiClient::with_token(url, token).call(calls::freeze()).await?;
        output::note(&format!("Froze {url}: it answers 503 from now on."));
    }
    let migration = take_over(args, migration, stopped).await?;
    let owned_at = Instant::now();

    let mut progress = ProgressLines::new(stopped);
    let (_, report) =
        run_part(migration, move |migration| migration.finish(&mut |at| progress.report(at)))
            .await?;
    let times = MoveTimes {
        total: started.elapsed(),
        down: if args.freeze.is_empty() { owned_at } else { frozen_at }.elapsed(),
    };
    print_report(args, &report, &times)
}

/// How long a migration took.
struct MoveTimes {
    total: Duration,
    /// Since the gateways were frozen; without that, since they were stopped.
    down: Duration,
}

/// Waits until no process uses the source.
async fn take_over(
    args: &MigrateArgs,
    mut migration: Migration,
    stopped: &AtomicBool,
) -> Result<Migration, CliError> {
    let started = Instant::now();
    let mut is_told = false;
    loop {
        let now = SystemClock.now();
        let taken;
        (migration, taken) = run_part(migration, move |migration| migration.take_over(now)).await?;
        if taken {
            return Ok(migration);
        }
        if stopped.load(Ordering::Relaxed) {
            return Err(migrate_error(MigrateError::Stopped));
        }
        if started.elapsed() > args.wait.0 {
            let (source, _) = migration.names();
            let error = anyhow!("{source} is still in use after {}", args.wait);
            return Err(CliError::refused(error).hint(
                "Stop the gateway, or all nodes, and run the same command again: it continues where it was.",
            ));
        }
        if !is_told && args.freeze.is_empty() {
            is_told = true;
            output::note(&format!(
                "Almost everything is copied. Stop the gateway, or all nodes, now; waiting up to {}.",
                args.wait
            ));
        }
        tokio::time::sleep(TAKE_OVER_INTERVAL).await;
    }
}

fn print_report(
    args: &MigrateArgs,
    report: &MigrateReport,
    times: &MoveTimes,
) -> Result<(), CliError> {
    let row = |table: &migrate::TableReport| {
        let hour = |(start, sums): (&_, &migrate::ComparedSums)| {
            json!({
                "start": start,
                "rows": sums.source.rows,
                "source_checksum": checksum(sums.source.checksum),
                "target_checksum": checksum(sums.target.checksum),
            })
        };
        json!({
            "table": table.table,
            "rows": table.sums.source.rows,
            "target_rows": table.sums.target.rows,
            "source_checksum": checksum(table.sums.source.checksum),
            "target_checksum": checksum(table.sums.target.checksum),
            "ranges": table.ranges,
            "by_hour": table.hours.iter().map(hour).collect::<Vec<_>>(),
        })
    };
    let rows: Vec<Value> = report.tables.iter().map(row).collect();
    let target = target_of(args);
    if args.json {
        return output::print_line(json!({
            "tables": rows,
            "rows": report.tables.iter().map(|table| table.sums.source.rows).sum::<u64>(),
            "rows_written": report.written,
            "seconds": times.total.as_secs_f64(),
            "seconds_down": times.down.as_secs_f64(),
        }));
    }
    let shown: Vec<Value> = rows
        .into_iter()
        .filter(|row| row["rows"] != json!(0))
        .map(|mut row| {
            let hours = row["by_hour"].as_array().map_or(0, Vec::len);
            row["hours"] = if hours == 0 { json!("-") } else { json!(hours) };
            row
        })
        .collect();
    output::print_table(TABLES, &shown)?;
    output::print_line(format!(
        "\nMoved and verified: {} rows written in {}; nothing was accepted for {:.1} s.",
        report.written,
        HumanTime(times.total),
        times.down.as_secs_f64()
    ))?;
    output::note(&format!(
        "Start the gateway on the new store now: {target}. The old one is kept, marked as moved: \
         `surehook serve` refuses it."
    ));
    Ok(())
}

fn target_of(args: &MigrateArgs) -> String {
    match &args.to {
        StoreArgument::Folder(data) => format!("surehook serve --data {}", data.display()),
        StoreArgument::Database(database) => format!("surehook serve --database {database}"),
    }
}

fn checksum(sum: u128) -> String {
    format!("{sum:032x}")
}

/// Shows how far a migration is: a bar on a terminal, otherwise a line now and then.
struct ProgressLines {
    stopped: Arc<AtomicBool>,
    bar: Option<ProgressBar>,
    phase: Option<MigratePhase>,
    shown_at: Instant,
}

impl ProgressLines {
    fn new(stopped: &Arc<AtomicBool>) -> Self {
        let (stopped, shown_at) = (Arc::clone(stopped), Instant::now());
        Self { stopped, bar: None, phase: None, shown_at }
    }

    fn report(&mut self, at: MigrateProgress) -> ControlFlow<()> {
        if self.stopped.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        let what = match at.phase {
            MigratePhase::Copying(1) => "copying".to_owned(),
            MigratePhase::Copying(pass) => format!("checking, pass {pass}"),
            MigratePhase::Finishing => "last changes".to_owned(),
        };
        if output::shows_progress() {
            if self.phase != Some(at.phase) {
                self.phase = Some(at.phase);
                self.bar = Some(progress_bar());
            }
            if let Some(bar) = &self.bar {
                bar.set_length(at.total);
                bar.set_position(at.rows);
                bar.set_message(format!("{what}: {}", at.table));
            }
        } else if self.shown_at.elapsed() >= LINE_INTERVAL {
            self.shown_at = Instant::now();
            let MigrateProgress { table, rows, total, written, .. } = at;
            output::note(&format!(
                "{what}: {table}, {rows} of about {total} rows, {written} written"
            ));
        }
        ControlFlow::Continue(())
    }
}

fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent}% {msg} {per_sec}, {eta} left");
    // The template is a constant and always valid.
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn migrate_error(error: MigrateError) -> CliError {
    match error {
        MigrateError::Folder(error @ OpenError::Locked(_)) => {
            CliError::refused(error).hint("Stop the gateway that uses the target.")
        }
        MigrateError::Folder(error) => data_folder::open_error(error),
        MigrateError::Database(error) => database_error(error),
        error @ MigrateError::TargetNotEmpty { .. } => CliError::refused(error).hint(
            "Use an empty folder, an empty database, or another project: postgres.project in the settings.",
        ),
        error @ MigrateError::OtherSource { .. } => CliError::refused(error).hint(
            "Finish that migration, or remove the target: the folder, or the schema surehook_<project>.",
        ),
        error @ MigrateError::AlreadyMoved { .. } => CliError::refused(error).hint(
            "To move it again, use it once with `surehook serve --use-moved-data`.",
        ),
        error @ MigrateError::SameKind => CliError::refused(error)
            .hint("A folder is moved by copying it, a database with pg_dump."),
        error @ MigrateError::Stopped => CliError::interrupted(error),
        error @ MigrateError::RowsDiffer { .. } => CliError::from(error)
            .hint("Nothing was handed over; the source is unchanged. Remove the target and move again."),
        error @ (MigrateError::Statement(_) | MigrateError::File { .. }) => CliError::from(error),
    }
}

/// A folder, or the URL of a database.
#[derive(Clone, Debug)]
enum StoreArgument {
    Folder(PathBuf),
    Database(DatabaseUrl),
}

impl FromStr for StoreArgument {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        match text.contains("://") || text.starts_with("env:") {
            true => text.parse().map(Self::Database),
            false => Ok(Self::Folder(text.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_and_variable_are_databases_and_all_else_is_a_folder() {
        for text in ["postgres://u:secret@h/db", "env:DATABASE_URL", "mysql://h"] {
            let argument: StoreArgument = text.parse().unwrap();
            assert!(matches!(argument, StoreArgument::Database(_)), "{text}");
            assert!(!format!("{argument:?}").contains("secret"), "{text}");
        }
        for text in ["data", "/var/lib/surehook", "./env"] {
            let argument: StoreArgument = text.parse().unwrap();
            assert!(matches!(argument, StoreArgument::Folder(_)), "{text}");
        }
    }
}
