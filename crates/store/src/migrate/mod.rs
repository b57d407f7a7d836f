//! Moves everything from one store to another: from SQLite to PostgreSQL, or back.
//!
//! ```text
//!  copy       the source is in use: page by page in the order of keys, again and again
//!  take over  no process uses the source any more, and none can begin to
//!  finish     what has changed since, small tables, comparison; the source is marked as moved
//! ```
//!
//! The unit is a *range*: the rows of a table behind one key, up to another. The target stores in the
//! transaction that writes a range where it ends, how many rows it has and their checksum. So a migration
//! that was killed continues where it was, and a later pass reads the source and writes only the ranges
//! whose checksum is another one: no record of changes is needed. A range is read back from the target
//! before it counts as verified.
//!
//! Nothing here knows the databases; each is a [`MigrationSide`].

mod rows;
mod tables;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::ControlFlow,
    path::PathBuf,
};

use serde::Serialize;
use surehook_types::time::Timestamp;
use surehook_webhooks::attribute::{Attributes, EventKind, SearchTerm};
use tokio::runtime::Handle;

pub use self::rows::RowSum;
pub(crate) use self::{
    rows::{KeyValue, MovedRow, Page, PageLimit, RowChanges, RowKey, Span},
    tables::{MovedWhen, SealedColumn, TABLES, Table, TableStorage},
};
use crate::{
    OpenError, PostgresOpenError, PostgresOptions,
    postgres::PostgresSide,
    sealing::{DataKeys, SealedPlace},
    sql::{SqlError, SqlParameter, SqlValue},
    sqlite::{SecretKey, SqliteSide},
    steps::{event_terms::event_search_terms, row::corrupt_value},
};

/// A store that is moved, or that everything is moved to.
#[derive(Clone, Debug)]
pub enum MigrationEndpoint {
    /// A data folder. Without a key, its secret key is in the folder.
    Folder {
        data: PathBuf,
        secret_key: Option<SecretKey>,
    },
    Database(PostgresOptions),
}

/// Why nothing was moved, or not everything.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error(transparent)]
    Folder(#[from] OpenError),
    #[error(transparent)]
    Database(#[from] PostgresOpenError),
    /// Two folders, or two databases.
    #[error(
        "a migration goes from a data folder to PostgreSQL, or from PostgreSQL to a data folder"
    )]
    SameKind,
    #[error("{target} has data of its own: there are rows in {table}")]
    TargetNotEmpty { target: String, table: &'static str },
    #[error("{from} was already moved to {to}")]
    AlreadyMoved { from: String, to: String },
    #[error("{target} has an unfinished migration from another source")]
    OtherSource { target: String },
    #[error("the rows of {table} in the target are not those of the source{}", at_hour(*.hour))]
    RowsDiffer { table: &'static str, hour: Option<Timestamp> },
    /// The caller stopped it.
    #[error("stopped; run the same command again to continue")]
    Stopped,
    /// A statement failed.
    #[error("{0}")]
    Statement(String),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
}

fn at_hour(hour: Option<Timestamp>) -> String {
    hour.map(|hour| format!(" in the hour from {hour}")).unwrap_or_default()
}

impl From<SqlError> for MigrateError {
    fn from(error: SqlError) -> Self {
        Self::Statement(error.to_string())
    }
}

impl From<rusqlite::Error> for MigrateError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Statement(error.to_string())
    }
}

pub(crate) type MigrateResult<T> = Result<T, MigrateError>;

/// A range of a table, as the target has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopiedRange {
    /// The range ends with this key and begins behind the one before it.
    pub(crate) last: RowKey,
    pub(crate) hour: Option<i64>,
    pub(crate) sum: RowSum,
    /// Whether the target was read back since it was written.
    pub(crate) is_verified: bool,
}

impl CopiedRange {
    /// A key as one value, to be stored.
    pub(crate) fn encode_key(key: &RowKey) -> Result<Vec<u8>, SqlError> {
        Ok(MovedRow::new(key.iter().map(SqlParameter::to_value), 0)?.into_bytes())
    }

    pub(crate) fn decode_key(bytes: Vec<u8>, columns: usize) -> Result<RowKey, SqlError> {
        MovedRow::from_bytes(bytes).key(columns)
    }
}

/// What is written together with a range.
#[derive(Debug)]
pub(crate) struct RangeWrite<'a> {
    pub(crate) changes: &'a RowChanges,
    /// Whether the target has no rows with these keys.
    pub(crate) is_new: bool,
    /// Search terms of the events that are written, and of those that they replace.
    pub(crate) terms: EventTermChanges,
    pub(crate) range: &'a CopiedRange,
}

/// Search terms that follow from changes of events.
#[derive(Debug, Default)]
pub(crate) struct EventTermChanges {
    pub(crate) added: Vec<(SearchTerm, [u8; 16])>,
    pub(crate) removed: Vec<(SearchTerm, [u8; 16])>,
}

/// A store, as the source or the target of a migration.
pub(crate) trait MigrationSide: Send {
    /// What it is called in messages, without a password.
    fn name(&self) -> String;

    /// The id of its data key, which tells sources apart.
    fn id(&self) -> MigrateResult<String>;

    /// Reads rows of a span in the order of their keys. Sealed columns are opened.
    fn read_page(&mut self, table: &Table, span: Span<'_>, limit: PageLimit)
    -> MigrateResult<Page>;

    /// Counts the rows of a table, roughly if an exact number would read bodies.
    fn count_rows(&mut self, table: &Table) -> MigrateResult<u64>;

    /// Bytes on disk.
    fn size_bytes(&mut self) -> MigrateResult<u64>;

    // As the source.

    /// Excludes everyone else, and makes due again what was in flight. Returns `false` while a process uses
    /// the store.
    fn take_over(&mut self, to: &str, now: Timestamp) -> MigrateResult<bool>;

    /// Where the store was moved.
    fn moved_to(&self) -> MigrateResult<Option<String>>;

    /// Records that the store was moved. It is not opened any more unless its owner insists.
    fn mark_moved(&mut self, to: &str) -> MigrateResult<()>;

    // As the target.

    /// The source of an unfinished migration to this store.
    fn unfinished_source(&mut self) -> MigrateResult<Option<String>>;

    /// Records that a migration from `source` has begun. The store is not opened until it is complete.
    fn begin(&mut self, source: &str) -> MigrateResult<()>;

    /// The ranges of a table, in no order.
    fn copied_ranges(&mut self, table: &Table) -> MigrateResult<Vec<CopiedRange>>;

    /// Writes a range in one transaction.
    fn write_range(&mut self, table: &Table, write: &RangeWrite<'_>) -> MigrateResult<()>;

    /// Replaces all rows of tables in one transaction. `read` returns the pages of the source.
    fn replace_tables(
        &mut self,
        tables: &[&Table],
        read: &mut dyn FnMut(&Table, Option<&RowKey>) -> MigrateResult<Page>,
    ) -> MigrateResult<()>;

    /// Prepares the copied rows for being used, while the source still is.
    fn optimize(&mut self) -> MigrateResult<()>;

    /// Makes everything durable and ends the migration.
    fn complete(&mut self) -> MigrateResult<()>;
}

/// Opens the sealed column of a stored row.
pub(crate) fn unseal_row(
    keys: &DataKeys,
    table: &Table,
    row: MovedRow,
) -> Result<MovedRow, SqlError> {
    let Some(sealed) = table.sealed else { return Ok(row) };
    let column = table.columns.len() - 1;
    Ok(match (place_of(sealed, &row)?, row.value(column)) {
        (place, SqlValue::Text(spec)) => {
            let spec = keys.unseal_spec(place, spec)?;
            row.with_value(column, SqlValue::Text(&spec))
        }
        (place, SqlValue::Blob(head)) => {
            let head = keys.unseal(place, head)?;
            row.with_value(column, SqlValue::Blob(&head))
        }
        (_, SqlValue::Null | SqlValue::Integer(_)) => {
            return Err(corrupt_value(column, "a sealed value is missing"));
        }
    })
}

/// Seals the last column of a row with the keys of the database that stores it.
pub(crate) fn seal_row(
    keys: &DataKeys,
    table: &Table,
    row: &MovedRow,
) -> Result<MovedRow, SqlError> {
    let Some(sealed) = table.sealed else { return Ok(row.clone()) };
    let column = table.columns.len() - 1;
    Ok(match (place_of(sealed, row)?, row.value(column)) {
        (place, SqlValue::Text(spec)) => {
            let spec = keys.seal_spec(place, spec)?;
            row.with_value(column, SqlValue::Text(&spec))
        }
        (place, SqlValue::Blob(head)) => {
            let head = keys.seal(place, head)?;
            row.with_value(column, SqlValue::Blob(&head))
        }
        (_, SqlValue::Null | SqlValue::Integer(_)) => {
            return Err(corrupt_value(column, "a value to be sealed is missing"));
        }
    })
}

fn place_of(sealed: SealedColumn, row: &MovedRow) -> Result<SealedPlace, SqlError> {
    let (place, column): (fn([u8; 16]) -> SealedPlace, usize) = match sealed {
        SealedColumn::SourceSpec => (SealedPlace::source, 1),
        SealedColumn::DestinationSpec => (SealedPlace::destination, 1),
        SealedColumn::QuarantinedHead => (SealedPlace::quarantined, 0),
    };
    let id = match row.value(column) {
        SqlValue::Blob(id) => id.try_into().ok(),
        SqlValue::Null | SqlValue::Integer(_) | SqlValue::Text(_) => None,
    };
    id.map(place).ok_or_else(|| corrupt_value(column, "an id is invalid"))
}

/// The search terms of a row of [`tables::EVENTS`].
fn terms_of(row: &MovedRow) -> Result<Vec<(SearchTerm, [u8; 16])>, SqlError> {
    let text = |column| match row.value(column) {
        SqlValue::Text(text) => Some(text.to_owned()),
        SqlValue::Null | SqlValue::Integer(_) | SqlValue::Blob(_) => None,
    };
    let id = match row.value(0) {
        SqlValue::Blob(id) => id.try_into().ok(),
        SqlValue::Null | SqlValue::Integer(_) | SqlValue::Text(_) => None,
    };
    let id: [u8; 16] = id.ok_or_else(|| corrupt_value(0, "an id is invalid"))?;
    let kind = text(tables::EVENT_KIND).as_deref().and_then(EventKind::new);
    // Unreadable attributes are moved as they are; nothing was found by them before either.
    let attributes = text(tables::EVENT_ATTRIBUTES)
        .and_then(|attributes| Attributes::from_json(&attributes).ok())
        .unwrap_or_default();
    Ok(event_search_terms(kind.as_ref(), &attributes).map(|term| (term, id)).collect())
}

fn term_changes(table: &Table, changes: &RowChanges) -> Result<EventTermChanges, SqlError> {
    let mut terms = EventTermChanges::default();
    if table.name != tables::EVENTS {
        return Ok(terms);
    }
    for removed in &changes.removed {
        terms.removed.extend(terms_of(removed)?);
    }
    for (new, old) in &changes.written {
        let (new, old) = (terms_of(new)?, old.as_ref().map(terms_of).transpose()?);
        match old {
            Some(old) if old == new => {}
            old => {
                terms.removed.extend(old.unwrap_or_default());
                terms.added.extend(new);
            }
        }
    }
    // An event may have a term twice.
    terms.added.sort_unstable();
    terms.added.dedup();
    Ok(terms)
}

/// What a migration does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigratePhase {
    /// Copies while the source is in use; the number of the pass, from 1.
    Copying(u32),
    /// Copies what has changed since; no process uses the source.
    Finishing,
}

/// How far a migration is.
#[derive(Clone, Copy, Debug)]
pub struct MigrateProgress {
    pub phase: MigratePhase,
    pub table: &'static str,
    /// Rows of the source that this phase has read, of about `total`.
    pub rows: u64,
    pub total: u64,
    /// Rows that this phase has written.
    pub written: u64,
}

/// Receives how far a migration is, and can stop it.
pub type ProgressReport<'a> = dyn FnMut(MigrateProgress) -> ControlFlow<()> + Send + 'a;

/// The rows of an hour, or of a whole table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComparedSums {
    pub source: RowSum,
    pub target: RowSum,
}

/// A table after the comparison.
#[derive(Clone, Debug)]
pub struct TableReport {
    pub table: &'static str,
    pub sums: ComparedSums,
    /// By hour, for tables in the order of time.
    pub hours: BTreeMap<Timestamp, ComparedSums>,
    /// Ranges that were compared.
    pub ranges: u64,
}

/// What a migration has done.
#[derive(Clone, Debug)]
pub struct MigrateReport {
    pub tables: Vec<TableReport>,
    /// Rows that were written by this run.
    pub written: u64,
}

/// What a migration would do.
#[derive(Clone, Debug, Serialize)]
pub struct MigratePlan {
    pub from: String,
    pub to: String,
    /// Bytes of the source on disk.
    pub size_bytes: u64,
    /// Rows of each table.
    pub tables: Vec<(&'static str, u64)>,
    /// Whether an earlier run would be continued.
    pub is_continued: bool,
}

/// A pass over all tables.
#[derive(Clone, Copy, Debug, Default)]
struct PassResult {
    read: u64,
    written: u64,
}

/// Passes over the source while it is in use: the last ones are short.
const PASSES_MAX: u32 = 5;
/// A pass that has written less than this is the last one.
const FEW_ROWS: u64 = 5000;
/// A migration that was checked and may begin.
pub struct Migration {
    source: Box<dyn MigrationSide>,
    target: Box<dyn MigrationSide>,
    is_continued: bool,
    total: u64,
    written: u64,
    /// More rows are not read at once.
    page_rows_max: usize,
}

impl std::fmt::Debug for Migration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Migration").field("written", &self.written).finish_non_exhaustive()
    }
}

type Sides = (Box<dyn MigrationSide>, Box<dyn MigrationSide>);

/// Opens both stores. A dry run changes nothing: its target may not exist.
fn open_sides(
    from: &MigrationEndpoint,
    to: &MigrationEndpoint,
    now: Timestamp,
    is_dry_run: bool,
    handle: &Handle,
) -> MigrateResult<(Sides, bool)> {
    let (source, mut target): Sides = match (from, to) {
        (MigrationEndpoint::Folder { data, secret_key }, MigrationEndpoint::Database(options)) => (
            Box::new(SqliteSide::open_source(data, secret_key.as_ref())?),
            Box::new(PostgresSide::open_target(options, now, is_dry_run, handle)?),
        ),
        (MigrationEndpoint::Database(options), MigrationEndpoint::Folder { data, secret_key }) => (
            Box::new(PostgresSide::open_source(options, handle)?),
            Box::new(SqliteSide::open_target(data, secret_key.as_ref(), now, is_dry_run)?),
        ),
        (MigrationEndpoint::Folder { .. }, MigrationEndpoint::Folder { .. })
        | (MigrationEndpoint::Database(_), MigrationEndpoint::Database(_)) => {
            return Err(MigrateError::SameKind);
        }
    };
    let id = source.id()?;
    match target.unfinished_source()? {
        Some(found) if found == id => return Ok(((source, target), true)),
        Some(_) => return Err(MigrateError::OtherSource { target: target.name() }),
        None => {}
    }
    if let Some(to) = source.moved_to()? {
        return Err(MigrateError::AlreadyMoved { from: source.name(), to });
    }
    // Each database fills the others itself.
    let filled = ["meta", "numbers", "claim_counts"];
    for table in TABLES.iter().filter(|table| !filled.contains(&table.name)) {
        let one = PageLimit::Part { rows: 1, by_hour: false };
        if !target.read_page(table, Span::default(), one)?.rows.is_empty() {
            let target = target.name();
            return Err(MigrateError::TargetNotEmpty { target, table: table.name });
        }
    }
    Ok(((source, target), false))
}

/// Checks whether a migration is possible, and how much it would move. Changes nothing.
pub fn plan(
    from: &MigrationEndpoint,
    to: &MigrationEndpoint,
    now: Timestamp,
    handle: &Handle,
) -> MigrateResult<MigratePlan> {
    let ((mut source, target), is_continued) = open_sides(from, to, now, true, handle)?;
    let mut tables = Vec::new();
    for table in TABLES {
        tables.push((table.name, source.count_rows(table)?));
    }
    let size_bytes = source.size_bytes()?;
    Ok(MigratePlan { from: source.name(), to: target.name(), size_bytes, tables, is_continued })
}

impl Migration {
    /// Opens both stores, and refuses a target that has other data. Blocks, as all methods do.
    pub fn open(
        from: &MigrationEndpoint,
        to: &MigrationEndpoint,
        now: Timestamp,
        handle: &Handle,
    ) -> MigrateResult<Self> {
        // A target that is refused is not touched.
        drop(open_sides(from, to, now, true, handle)?);
        let ((source, mut target), is_continued) = open_sides(from, to, now, false, handle)?;
        if !is_continued {
            target.begin(&source.id()?)?;
        }
        let (total, written, page_rows_max) = (0, 0, usize::MAX);
        Ok(Self { source, target, is_continued, total, written, page_rows_max })
    }

    /// Makes pages smaller, so that few rows are many ranges.
    #[cfg(feature = "conformance")]
    pub fn limit_pages(&mut self, rows_max: usize) {
        self.page_rows_max = rows_max;
    }

    fn page_limit(&self, table: &Table) -> PageLimit {
        match table.page_limit() {
            PageLimit::Part { rows, by_hour } => {
                PageLimit::Part { rows: rows.min(self.page_rows_max), by_hour }
            }
            PageLimit::Whole => PageLimit::Whole,
        }
    }

    /// Whether an earlier run is continued.
    pub fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// The names of source and target, without passwords.
    pub fn names(&self) -> (String, String) {
        (self.source.name(), self.target.name())
    }

    /// Copies while the source is in use, until little changes any more.
    pub fn copy(&mut self, report: &mut ProgressReport<'_>) -> MigrateResult<()> {
        self.total = 0;
        for table in ahead() {
            self.total += self.source.count_rows(table)?;
        }
        for pass in 1..=PASSES_MAX {
            let phase = MigratePhase::Copying(pass);
            let mut result = PassResult::default();
            for table in ahead() {
                // The first pass writes; what it has written is read back by the second one.
                self.sync_table(table, phase, pass > 1 || self.is_continued, &mut result, report)?;
            }
            if pass > 1 && result.written < FEW_ROWS {
                break;
            }
        }
        self.target.optimize()
    }

    /// Excludes everyone else from the source. Returns `false` while a process uses it.
    pub fn take_over(&mut self, now: Timestamp) -> MigrateResult<bool> {
        self.source.take_over(&self.target.name(), now)
    }

    /// Copies what has changed since, compares everything, and hands over: the source is marked as moved,
    /// and the target can be opened.
    pub fn finish(&mut self, report: &mut ProgressReport<'_>) -> MigrateResult<MigrateReport> {
        let phase = MigratePhase::Finishing;
        let mut result = PassResult::default();
        let mut tables = Vec::new();
        for table in ahead() {
            tables.push(self.sync_table(table, phase, true, &mut result, report)?);
        }
        let at_the_end: Vec<&Table> =
            TABLES.iter().filter(|table| table.when == MovedWhen::AtTheEnd).collect();
        let (source, target) = (&mut self.source, &mut self.target);
        target.replace_tables(&at_the_end, &mut |table, after| {
            source.read_page(table, Span { after, through: None }, table.page_limit())
        })?;
        for table in at_the_end {
            self.report_progress(phase, table, result, report)?;
            tables.push(self.compare_table(table)?);
        }
        // Everything is in the target, which no process can open yet. From here on no process opens the source.
        self.source.mark_moved(&self.target.name())?;
        self.target.complete()?;
        Ok(MigrateReport { tables, written: self.written })
    }

    /// Makes the target have the rows of the source.
    fn sync_table(
        &mut self,
        table: &'static Table,
        phase: MigratePhase,
        verifies: bool,
        result: &mut PassResult,
        report: &mut ProgressReport<'_>,
    ) -> MigrateResult<TableReport> {
        let mut copied = self.target.copied_ranges(table)?;
        copied.sort_by(|a, b| a.last.cmp(&b.last));
        let mut copied = VecDeque::from(copied);
        let mut done = TableReport {
            table: table.name,
            sums: ComparedSums::default(),
            hours: BTreeMap::new(),
            ranges: 0,
        };
        let mut after: Option<RowKey> = None;
        loop {
            let through = copied.front().map(|range| range.last.clone());
            let span = Span { after: after.as_ref(), through: through.as_ref() };
            let limit = self.page_limit(table);
            let page = self.source.read_page(table, span, limit)?;
            result.read += page.rows.len() as u64;
            let last = match (&through, page.rows.last()) {
                (Some(through), _) if page.is_complete => through.clone(),
                (_, Some(row)) => row.key(table.key_columns)?,
                (_, None) => break,
            };
            // Behind the last range the target has no rows.
            let is_new = through.is_none();
            let earlier = match through.as_ref() == Some(&last) {
                true => copied.pop_front(),
                false => None,
            };
            let sum = RowSum::of(&page.rows);
            let mut range = CopiedRange { last, hour: page.hour(), sum, is_verified: false };
            if earlier.as_ref().is_some_and(|earlier| earlier.sum == sum) {
                range.is_verified = earlier.is_some_and(|earlier| earlier.is_verified);
            } else {
                let written = self.write_page(table, page, after.as_ref(), is_new, &range)?;
                result.written += written;
                self.written += written;
            }
            if verifies && !range.is_verified {
                self.verify_range(table, after.as_ref(), &mut range)?;
            }
            done.ranges += 1;
            let of_range = ComparedSums { source: sum, target: range.sum };
            for sums in [
                Some(&mut done.sums),
                range.hour.map(|hour| done.hours.entry(rows::hour_start(hour)).or_default()),
            ]
            .into_iter()
            .flatten()
            {
                sums.source.add(of_range.source);
                sums.target.add(of_range.target);
            }
            after = Some(range.last);
            self.report_progress(phase, table, *result, report)?;
        }
        Ok(done)
    }

    fn report_progress(
        &self,
        phase: MigratePhase,
        table: &'static Table,
        result: PassResult,
        report: &mut ProgressReport<'_>,
    ) -> MigrateResult<()> {
        let PassResult { read: rows, written } = result;
        let total = self.total.max(rows);
        match report(MigrateProgress { phase, table: table.name, rows, total, written }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(MigrateError::Stopped),
        }
    }

    /// Writes what differs; returns how many rows.
    fn write_page(
        &mut self,
        table: &Table,
        page: Page,
        after: Option<&RowKey>,
        is_new: bool,
        range: &CopiedRange,
    ) -> MigrateResult<u64> {
        let changes = match is_new {
            true => RowChanges::insert(page.rows),
            false => {
                let span = Span { after, through: Some(&range.last) };
                let target = self.target.read_page(table, span, PageLimit::Whole)?;
                RowChanges::compare(page.rows, target.rows, table.key_columns)?
            }
        };
        let terms = term_changes(table, &changes)?;
        let write = RangeWrite { changes: &changes, is_new, terms, range };
        self.target.write_range(table, &write)?;
        Ok(changes.len() as u64)
    }

    /// Reads a range back from the target, and records that it is as it was written.
    fn verify_range(
        &mut self,
        table: &'static Table,
        after: Option<&RowKey>,
        range: &mut CopiedRange,
    ) -> MigrateResult<()> {
        let span = Span { after, through: Some(&range.last) };
        let target = self.target.read_page(table, span, PageLimit::Whole)?;
        if RowSum::of(&target.rows) != range.sum {
            let hour = range.hour.map(rows::hour_start);
            return Err(MigrateError::RowsDiffer { table: table.name, hour });
        }
        range.is_verified = true;
        let (changes, terms) = (RowChanges::default(), EventTermChanges::default());
        let write = RangeWrite { changes: &changes, is_new: false, terms, range };
        self.target.write_range(table, &write)
    }

    /// Compares a table row by row, sealed columns included.
    fn compare_table(&mut self, table: &'static Table) -> MigrateResult<TableReport> {
        let mut sums = ComparedSums::default();
        let (mut after, mut ranges) = (None::<RowKey>, 0);
        loop {
            let span = Span { after: after.as_ref(), through: None };
            let limit = self.page_limit(table);
            let page = self.source.read_page(table, span, limit)?;
            let last = page.rows.last().map(|row| row.key(table.key_columns)).transpose()?;
            // The last span has no end: the target may have no rows behind it either.
            let through = last.as_ref().filter(|_| !page.is_complete);
            let span = Span { after: after.as_ref(), through };
            let target = self.target.read_page(table, span, PageLimit::Whole)?;
            sums.source.add(RowSum::of(&page.rows));
            sums.target.add(RowSum::of(&target.rows));
            ranges += 1;
            let is_complete = page.is_complete;
            if !RowChanges::compare(page.rows, target.rows, table.key_columns)?.is_empty() {
                return Err(MigrateError::RowsDiffer { table: table.name, hour: None });
            }
            if is_complete {
                let hours = BTreeMap::new();
                return Ok(TableReport { table: table.name, sums, hours, ranges });
            }
            after = last;
        }
    }
}

/// The tables that are copied while the source is in use.
fn ahead() -> impl Iterator<Item = &'static Table> {
    TABLES.iter().filter(|table| matches!(table.when, MovedWhen::Ahead { .. }))
}

/// The tables that a migration knows, with their columns, and those of each database that it leaves out,
/// for a comparison with the schemas.
#[cfg(feature = "conformance")]
#[derive(Debug)]
pub struct KnownTables {
    pub moved: Vec<(&'static str, &'static [&'static str])>,
    /// Each with the reason.
    pub sqlite_only: &'static [(&'static str, &'static str)],
    pub postgres_only: &'static [(&'static str, &'static str)],
    /// Columns that a database fills itself.
    pub filled: &'static [(&'static str, &'static str)],
}

#[cfg(feature = "conformance")]
pub fn known_tables() -> KnownTables {
    let stored = TABLES.iter().filter(|table| table.storage != TableStorage::Numbers);
    KnownTables {
        moved: stored.map(|table| (table.name, table.columns)).collect(),
        sqlite_only: tables::SQLITE_ONLY,
        postgres_only: tables::POSTGRES_ONLY,
        filled: tables::FILLED_COLUMNS,
    }
}
