//! Moving everything between SQLite and PostgreSQL.
//!
//! Cases of the conformance suite run on a store that is moved to the other database with each restart,
//! with stops in between.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use surehook_core::{
    event::{NewDelivery, NewEvent, Payload},
    store::{
        ConfigChange, DeliveryFilter, DeliveryStore, EventFilter, NextStep, PageRequest, Store,
    },
};
use surehook_retry::DeadReason;
use surehook_store::{
    OpenError, PostgresOpenError, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore,
    conformance::{StoreFixture, StoreHarness},
    migrate::{
        self, MigrateError, MigrateProgress, MigrateReport, Migration, MigrationEndpoint, RowSum,
        known_tables,
    },
};
use surehook_types::time::Timestamp;
use surehook_webhooks::{attribute::EventKind, key::fingerprint};
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::{
    child_process,
    harness::{NOW, assert_consistent, fixture_in, open, open_file},
    postgres::harness::PostgresHarness,
};

fn folder(data: &Path) -> MigrationEndpoint {
    MigrationEndpoint::Folder { data: data.to_owned(), secret_key: None }
}

fn database(options: &PostgresOptions) -> MigrationEndpoint {
    MigrationEndpoint::Database(options.clone())
}

/// Continues as often as `reports`.
fn stop_after(reports: usize) -> impl FnMut(MigrateProgress) -> ControlFlow<()> + Send {
    let mut left = reports;
    move |_| {
        left = match left.checked_sub(1) {
            Some(left) => left,
            None => return ControlFlow::Break(()),
        };
        ControlFlow::Continue(())
    }
}

/// Moves a store that no process uses, up to a stop.
fn try_move(
    from: &MigrationEndpoint,
    to: &MigrationEndpoint,
    now: Timestamp,
    reports: usize,
    handle: &Handle,
) -> Result<MigrateReport, MigrateError> {
    let mut report = stop_after(reports);
    let mut migration = Migration::open(from, to, now, handle)?;
    migration.limit_pages(3);
    migration.copy(&mut report)?;
    assert!(migration.take_over(now)?, "no process uses the source");
    migration.finish(&mut report)
}

/// Moves a store that no process uses, with stops in all phases.
async fn move_with_stops(
    from: MigrationEndpoint,
    to: MigrationEndpoint,
    now: Timestamp,
) -> MigrateReport {
    let handle = Handle::current();
    let work = move || {
        for reports in [0, 9, 70] {
            match try_move(&from, &to, now, reports, &handle) {
                Err(MigrateError::Stopped) => {}
                Ok(report) => return report,
                Err(error) => panic!("{error}"),
            }
        }
        try_move(&from, &to, now, usize::MAX, &handle).unwrap()
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

fn sums(report: &MigrateReport) -> BTreeMap<&'static str, RowSum> {
    for table in &report.tables {
        assert_eq!(table.sums.source, table.sums.target, "{}", table.table);
        let mut hours = RowSum::default();
        for hour in table.hours.values() {
            assert_eq!(hour.source, hour.target, "{}", table.table);
            hours.rows += hour.source.rows;
            hours.checksum = hours.checksum.wrapping_add(hour.source.checksum);
        }
        assert!(table.hours.is_empty() || hours == table.sums.source, "{}", table.table);
    }
    report.tables.iter().map(|table| (table.table, table.sums.source)).collect()
}

enum CurrentStore {
    Nowhere,
    Folder(TempDir),
    Database(PostgresHarness),
}

/// A store that is in the other database after each restart.
struct MovingHarness(Mutex<CurrentStore>);

impl MovingHarness {
    fn new() -> Self {
        Self(Mutex::new(CurrentStore::Nowhere))
    }
}

/// The leases of nodes that were not stopped end at once.
async fn end_leases(database: &PostgresHarness) {
    database.client().await.batch_execute("UPDATE nodes SET lease_until = 0").await.unwrap();
}

#[async_trait]
impl StoreHarness for MovingHarness {
    async fn open(&self, now: Timestamp) -> Arc<dyn Store> {
        let place = std::mem::replace(&mut *self.0.lock().unwrap(), CurrentStore::Nowhere);
        let (store, place): (Arc<dyn Store>, CurrentStore) = match place {
            CurrentStore::Nowhere => {
                let target = tempfile::tempdir().unwrap();
                let store = SqliteStore::open(&SqliteOptions::new(target.path()), now).unwrap();
                (Arc::new(store), CurrentStore::Folder(target))
            }
            CurrentStore::Folder(source) => {
                let target = PostgresHarness::new();
                let (from, to) = (folder(source.path()), database(&target.options));
                sums(&move_with_stops(from, to, now).await);
                let old = SqliteStore::open(&SqliteOptions::new(source.path()), now);
                assert!(matches!(old, Err(OpenError::Moved { .. })), "{old:?}");
                (target.open(now).await, CurrentStore::Database(target))
            }
            CurrentStore::Database(source) => {
                end_leases(&source).await;
                let target = tempfile::tempdir().unwrap();
                let (from, to) = (database(&source.options), folder(target.path()));
                sums(&move_with_stops(from, to, now).await);
                let old = PostgresStore::open(&source.options, now).await;
                assert!(matches!(old, Err(PostgresOpenError::Moved(_))), "{old:?}");
                let store = SqliteStore::open(&SqliteOptions::new(target.path()), now).unwrap();
                (Arc::new(store), CurrentStore::Folder(target))
            }
        };
        *self.0.lock().unwrap() = place;
        store
    }

    /// Each restart of a history is a migration.
    fn random_cases(&self) -> u32 {
        4
    }
}

mod moving {
    use super::*;

    surehook_store::conformance_cases! { MovingHarness::new;
        admit: accepted_event_is_stored_with_all_fields, keys_survive_restart;
        callbacks: due_callback_survives_a_restart_and_is_ended_once;
        claims: deliveries_in_flight_at_a_crash_are_due_after_restart;
        clock: saved_clock_is_read_back_after_restart;
        counts: counts_survive_restart;
        crash_outcomes: crash_outcome_restarts_the_wait_for_a_status_after_downtime,
            ambiguous_delivery_waits_again_for_a_status_after_restart;
        idempotency: completed_key_returns_its_result_across_a_restart,
            lease_of_the_service_outlives_a_restart;
        lanes: saved_lane_state_is_read_back_after_restart;
        media: media_metadata_survives_restart;
        ordering: ordering_queue_survives_restart;
        replay_jobs: job_selection_continues_after_restart, job_continues_after_restart;
    }
    surehook_store::conformance_properties! { MovingHarness::new;
        history: random_history_agrees_with_the_model;
    }
}

fn columns(
    rows: impl IntoIterator<Item = (String, String)>,
    known: &[(&'static str, &'static str)],
) -> BTreeMap<String, Vec<String>> {
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (table, column) in rows {
        let is_filled = known.iter().any(|filled| *filled == (&*table, &*column));
        let columns = tables.entry(table).or_default();
        if !is_filled {
            columns.push(column);
        }
    }
    tables.values_mut().for_each(|columns| columns.sort());
    tables
}

/// Compares the tables of a database with those that are moved.
fn assert_all_known(mut found: BTreeMap<String, Vec<String>>, left_out: &[(&str, &str)]) {
    for (name, reason) in left_out {
        assert!(found.remove(*name).is_some(), "{name} does not exist: {reason}");
    }
    for (name, columns) in known_tables().moved {
        let mut columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
        columns.sort();
        assert_eq!(found.remove(name), Some(columns), "{name}");
    }
    assert_eq!(found, BTreeMap::new(), "tables that a migration would leave behind");
}

#[test]
fn every_table_and_column_of_sqlite_is_moved_or_left_out_with_a_reason() {
    let data = tempfile::tempdir().unwrap();
    drop(open(data.path()));
    let file = open_file(data.path());
    let mut query = file
        .prepare(
            "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_xinfo(t.name) c
              WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'",
        )
        .unwrap();
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let known = known_tables();
    let mut found = columns(rows.map(Result::unwrap), known.filled);
    // The blocks of this table are known by other names.
    let keys = known.moved.iter().find(|(name, _)| *name == "keys").unwrap();
    found.insert("keys".to_owned(), {
        let mut columns: Vec<String> = keys.1.iter().map(|column| (*column).to_owned()).collect();
        columns.sort();
        columns
    });
    assert_all_known(found, known.sqlite_only);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_table_and_column_of_postgres_is_moved_or_left_out_with_a_reason() {
    let target = PostgresHarness::new();
    target.open(NOW).await;
    let rows = target
        .client()
        .await
        .query(
            "SELECT table_name::text, column_name::text FROM information_schema.columns
              WHERE table_schema = current_schema()
                AND table_name IN (SELECT table_name FROM information_schema.tables
                                    WHERE table_schema = current_schema() AND table_type = 'BASE TABLE')",
            &[],
        )
        .await
        .unwrap();
    let known = known_tables();
    let rows = rows.iter().map(|row| (row.get(0), row.get(1)));
    assert_all_known(columns(rows, known.filled), known.postgres_only);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_made_during_the_copy_are_moved() {
    let data = tempfile::tempdir().unwrap();
    let target = PostgresHarness::new();
    let mut fixture = fixture_in(data.path()).await;
    let mut ids = Vec::new();
    for number in 0..40 {
        ids.push(fixture.accept(fixture.event_with_key(&format!("before-{number}"))).await);
    }
    fixture.wait(Duration::from_secs(1));
    let fixture = Arc::new(fixture);
    let (from, to) = (folder(data.path()), database(&target.options));
    let handle = Handle::current();
    let (work, ids) = (Arc::clone(&fixture), Arc::new(ids));
    let mut migration = tokio::task::spawn_blocking({
        let ids = Arc::clone(&ids);
        move || {
            let mut migration = Migration::open(&from, &to, NOW, &handle).unwrap();
            migration.limit_pages(5);
            let mut number = 0;
            migration
                .copy(&mut |_| {
                    number += 1;
                    handle.block_on(change_something(&work, &ids, number));
                    ControlFlow::Continue(())
                })
                .unwrap();
            assert!(!migration.take_over(NOW).unwrap(), "the source is in use");
            migration
        }
    })
    .await
    .unwrap();
    drop(Arc::into_inner(fixture).unwrap());

    let report = tokio::task::spawn_blocking(move || {
        assert!(migration.take_over(NOW).unwrap());
        migration.finish(&mut |_| ControlFlow::Continue(())).unwrap()
    })
    .await
    .unwrap();

    assert!(sums(&report)["events"].rows > 40);
    let (old, new) = (
        SqliteStore::open_read_only(data.path(), None).unwrap(),
        PostgresStore::open(&target.options, NOW).await.unwrap(),
    );
    assert_same_reads(&old, &new).await;
}

/// A new event, a duplicate, an attempt, a replay or a removed body.
async fn change_something(
    fixture: &StoreFixture,
    ids: &[surehook_types::ids::EventId],
    number: usize,
) {
    match number % 5 {
        0 => drop(fixture.accept(fixture.event_with_key(&format!("during-{number}"))).await),
        1 => {
            let known = fixture.event_with_key(&format!("before-{}", number % 40));
            fixture.admit(vec![known]).await.unwrap();
        }
        2 => {
            if let [claimed, ..] = &fixture.claim(fixture.crm, 1).await[..] {
                fixture.finish(claimed, NextStep::Dead(DeadReason::MaxRetries)).await;
            }
        }
        3 => {
            let event = fixture.event_detail(ids[number % ids.len()]).await;
            let Some(delivery) = event.deliveries.first() else { return };
            let new = fixture.new_id();
            fixture.replay(delivery.id, new, fixture.now).await.unwrap();
        }
        _ => drop(fixture.prune_all(Duration::ZERO).await),
    }
}

async fn old_and_new<T>(
    old: &dyn Store,
    new: &dyn Store,
    read: impl AsyncFn(&dyn Store) -> T,
) -> (T, T) {
    (read(old).await, read(new).await)
}

async fn assert_same_reads(old: &dyn Store, new: &dyn Store) {
    let (old_events, new_events) = old_and_new(old, new, async |store: &dyn Store| {
        let page = PageRequest { after: None, limit: 10_000 };
        store.list_events(EventFilter::default(), page).await.unwrap().rows
    })
    .await;
    assert_eq!(format!("{old_events:?}"), format!("{new_events:?}"));
    let (old_rows, new_rows) = old_and_new(old, new, async |store: &dyn Store| {
        let page = PageRequest { after: None, limit: 10_000 };
        store.list_deliveries(DeliveryFilter::default(), page).await.unwrap().rows
    })
    .await;
    assert_eq!(format!("{old_rows:?}"), format!("{new_rows:?}"));
    for event in old_events {
        assert_eq!(old.find_body(event.id).await.unwrap(), new.find_body(event.id).await.unwrap());
    }
    let (mut old_counts, mut new_counts) =
        (old.counts().await.unwrap(), new.counts().await.unwrap());
    // A status that nothing has may be counted as zero or not at all.
    for counts in [&mut old_counts, &mut new_counts] {
        counts.by_status.retain(|_, count| *count > 0);
    }
    assert_eq!(old_counts, new_counts);
    let (old, new) =
        (old.load_configuration().await.unwrap(), new.load_configuration().await.unwrap());
    assert_eq!(format!("{:?}", old.destinations), format!("{:?}", new.destinations));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn target_with_data_or_of_another_migration_is_refused() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(fixture_in(first.path()).await);
    drop(fixture_in(second.path()).await);
    let (used, free) = (PostgresHarness::new(), PostgresHarness::new());
    let to_used = database(&used.options);
    drop(StoreFixture::new(used).await);
    let handle = Handle::current();
    let (first_from, second_from) = (folder(first.path()), folder(second.path()));
    let to_free = database(&free.options);
    tokio::task::spawn_blocking(move || {
        for is_dry_run in [true, false] {
            let refused = match is_dry_run {
                true => migrate::plan(&first_from, &to_used, NOW, &handle).map(drop),
                false => Migration::open(&first_from, &to_used, NOW, &handle).map(drop),
            };
            assert!(matches!(refused, Err(MigrateError::TargetNotEmpty { .. })), "{refused:?}");
        }
        let planned = migrate::plan(&first_from, &to_free, NOW, &handle).unwrap();
        assert!(!planned.is_continued);
        assert!(planned.tables.contains(&("sources", 2)), "{planned:?}");

        let started = Migration::open(&first_from, &to_free, NOW, &handle).unwrap();
        assert!(!started.is_continued());
        drop(started);
        assert!(migrate::plan(&first_from, &to_free, NOW, &handle).unwrap().is_continued);
        let refused = Migration::open(&second_from, &to_free, NOW, &handle);
        assert!(matches!(refused, Err(MigrateError::OtherSource { .. })), "{refused:?}");
        let refused = Migration::open(&first_from, &second_from, NOW, &handle);
        assert!(matches!(refused, Err(MigrateError::SameKind)), "{refused:?}");
    })
    .await
    .unwrap();
    let opened = PostgresStore::open(&free.options, NOW).await;
    assert!(matches!(opened, Err(PostgresOpenError::MigrationUnfinished)), "{opened:?}");
    // The source is not touched before it is taken over.
    drop(open(first.path()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dry_run_creates_nothing() {
    let data = tempfile::tempdir().unwrap();
    drop(fixture_in(data.path()).await);
    let (target, handle) = (PostgresHarness::new(), Handle::current());
    let (from, to) = (folder(data.path()), database(&target.options));
    tokio::task::spawn_blocking(move || migrate::plan(&from, &to, NOW, &handle).unwrap())
        .await
        .unwrap();
    let schemas = target
        .client()
        .await
        .query(
            "SELECT 1 FROM pg_namespace WHERE nspname = $1",
            &[&format!("surehook_{}", target.options.project)],
        )
        .await
        .unwrap();
    assert!(schemas.is_empty());

    target.open(NOW).await;
    end_leases(&target).await;
    let parent = tempfile::tempdir().unwrap();
    let missing = parent.path().join("data");
    let (from, to) = (database(&target.options), folder(&missing));
    let handle = Handle::current();
    tokio::task::spawn_blocking(move || migrate::plan(&from, &to, NOW, &handle).unwrap())
        .await
        .unwrap();
    assert!(!missing.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_folder_opens_again_when_its_owner_insists() {
    let data = tempfile::tempdir().unwrap();
    drop(fixture_in(data.path()).await);
    let target = PostgresHarness::new();
    move_with_stops(folder(data.path()), database(&target.options), NOW).await;
    let opened = SqliteStore::open(&SqliteOptions::new(data.path()), NOW);
    assert!(matches!(opened, Err(OpenError::Moved { .. })), "{opened:?}");

    let moved_to = surehook_store::sqlite::forget_move(data.path()).unwrap();

    assert!(moved_to.is_some_and(|to| to.contains(&target.options.project)));
    drop(open(data.path()));
    assert_eq!(surehook_store::sqlite::forget_move(data.path()).unwrap(), None);
}

/// What a child process moves.
#[derive(Debug)]
struct MoveJob {
    folder: PathBuf,
    url: String,
    project: String,
    /// Whether the folder is the source.
    is_export: bool,
}

impl MoveJob {
    fn locations(&self) -> (MigrationEndpoint, MigrationEndpoint) {
        let mut options = PostgresHarness::new().options;
        options.project = self.project.clone();
        options.url = self.url.clone();
        match self.is_export {
            true => (folder(&self.folder), database(&options)),
            false => (database(&options), folder(&self.folder)),
        }
    }

    fn write(&self, job: &Path) {
        let folder = self.folder.display();
        let text = format!("{folder}\n{}\n{}\n{}", self.url, self.project, self.is_export);
        std::fs::write(job.join("job"), text).unwrap();
    }

    fn read(job: &Path) -> Self {
        let text = std::fs::read_to_string(job.join("job")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let [folder, url, project, is_export] = lines[..] else { panic!("{text}") };
        Self {
            folder: folder.into(),
            url: url.to_owned(),
            project: project.to_owned(),
            is_export: is_export == "true",
        }
    }
}

/// Events of the move with kills, unless the environment says otherwise.
const EVENTS: usize = 2000;

/// scripts/migrate-drill sets another number.
fn drill_events() -> usize {
    let number = std::env::var_os("SUREHOOK_DRILL_EVENTS");
    number.map_or(EVENTS, |number| number.to_str().unwrap().parse().unwrap())
}

#[expect(clippy::print_stdout, reason = "the drill shows its figures")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_move_there_and_back_with_kills_keeps_every_row() {
    const TEST: &str = "migrate::heavy_move_there_and_back_with_kills_keeps_every_row";
    if let Some(job) = child_process::child_folder() {
        let (from, to) = MoveJob::read(&job).locations();
        let handle = Handle::current();
        let work = move || {
            let mut report = |_| {
                child_process::report("page");
                ControlFlow::Continue(())
            };
            let mut migration = Migration::open(&from, &to, NOW, &handle).unwrap();
            if drill_events() == EVENTS {
                migration.limit_pages(200);
            }
            let started = Instant::now();
            migration.copy(&mut report).unwrap();
            let copied = started.elapsed();
            assert!(migration.take_over(NOW).unwrap());
            let report = migration.finish(&mut report).unwrap();
            child_process::report(&format!(
                "times {} rows in {copied:?}, then {:?}",
                report.tables.iter().map(|table| table.sums.source.rows).sum::<u64>(),
                started.elapsed() - copied
            ));
            for (table, sum) in sums(&report) {
                child_process::report(&format!("sum {table} {} {}", sum.rows, sum.checksum));
            }
        };
        tokio::task::spawn_blocking(work).await.unwrap();
        return;
    }
    let (data, back, job) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let events = drill_events();
    fill(data.path(), events).await;
    let target = PostgresHarness::new();
    let mut moved = Vec::new();
    for (folder, is_export) in [(data.path(), true), (back.path(), false)] {
        MoveJob {
            folder: folder.to_owned(),
            url: target.options.url.clone(),
            project: target.options.project.clone(),
            is_export,
        }
        .write(job.path());
        let mut kills = 0;
        // At pages of all phases; the last run is not killed.
        let scale = 4 * (events / 40_000).max(1);
        let started = Instant::now();
        let sums = (0..).map(|round| 1 + round * round * scale).find_map(|pages| {
            let mut child = child_process::start(TEST, job.path().as_os_str(), &[]);
            let mut lines = child_process::reported_lines(child.stdout.take().unwrap());
            let seen = lines.by_ref().take(pages).filter(|line| line == "page").count();
            let is_killed = seen == pages;
            if is_killed {
                child.kill().unwrap();
                kills += 1;
            }
            let sums: Vec<String> = lines.filter(|line| !line.starts_with("page")).collect();
            let is_done = child.wait().unwrap().success();
            assert!(is_done || is_killed, "the migration failed");
            is_done.then_some(sums)
        });
        assert!(kills >= 4, "{kills} kills");
        println!("export: {is_export}, {kills} kills, {:?} in total", started.elapsed());
        moved.push(sums.unwrap());
    }
    for line in moved.iter().flatten() {
        println!("{line}");
    }
    let rows_of = |sums: &[String]| -> BTreeMap<String, String> {
        sums.iter()
            .filter_map(|line| {
                let (name, sum) = line.strip_prefix("sum ")?.split_once(' ')?;
                Some((name.to_owned(), sum.to_owned()))
            })
            .collect()
    };
    let (there, back_again) = (rows_of(&moved[0]), rows_of(&moved[1]));
    let mut compared = 0;
    // An epoch begins with each take-over.
    for (table, sum) in there.iter().filter(|(table, _)| *table != "numbers") {
        assert_eq!(back_again.get(table), Some(sum), "{table}");
        compared += 1;
    }
    assert!(compared > 30, "{there:?}");
    let (old, new) = (SqliteStore::open_read_only(data.path(), None).unwrap(), open(back.path()));
    assert_same_reads(&old, &new).await;
    drop(new);
    if events == EVENTS {
        assert_consistent(back.path()).await;
    }
}

fn with_body(payload: &Payload, text: &str) -> Payload {
    let body = Bytes::copy_from_slice(text.as_bytes());
    Payload { fingerprint: fingerprint(&body), body, head: Arc::clone(&payload.head) }
}

/// Events with deliveries in every state, over some hours.
async fn fill(data: &Path, events: usize) {
    let mut fixture = fixture_in(data).await;
    for round in 0..events / 100 {
        let event = |number: usize| {
            let claimed = NewDelivery {
                claim: Some(fixture.new_claim()),
                ..fixture.delivery_to(fixture.crm)
            };
            let waiting = number.is_multiple_of(10).then(|| fixture.delivery_to(fixture.mail));
            let event = fixture.event_with_key(&format!("{round}-{number}"));
            NewEvent {
                kind: EventKind::new(["paid", "sent"][number % 2]),
                deliveries: std::iter::once(claimed).chain(waiting).collect(),
                payload: with_body(
                    &event.payload,
                    &format!("{round}-{number} {}", "x".repeat(1000)),
                ),
                ..event
            }
        };
        let accepted: Vec<NewEvent> = (0..100).map(event).collect();
        fixture.admit(accepted.clone()).await.unwrap();
        let settle = |(index, event): (usize, &NewEvent)| {
            let next = match index % 10 {
                8 => NextStep::RetryAt(fixture.now + Duration::from_secs(60)),
                9 => NextStep::Dead(DeadReason::MaxRetries),
                _ => NextStep::Succeeded,
            };
            fixture.settlement(&StoreFixture::claimed_at_creation(event), next)
        };
        let settlements = accepted.iter().enumerate().map(settle).collect();
        DeliveryStore::settle(&*fixture, settlements).await.unwrap();
        fixture.admit((0..3).map(event).collect()).await.unwrap();
        fixture.wait(Duration::from_secs(60));
    }
    let ended = fixture.all_deliveries().await.into_iter().filter(|row| row.ended_at.is_some());
    for delivery in ended.take(50) {
        fixture.replay_now(delivery.id).await;
    }
    let deleted = vec![ConfigChange::DeleteDestination(fixture.mail)];
    fixture.change(deleted, fixture.now).await.unwrap();
    while fixture.roll_up().await.unwrap() {}
}
