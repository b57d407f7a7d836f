//! Rows on their way from one store to the other, in one form for both databases.

use std::ops::ControlFlow;

use ring::digest::{SHA256, digest};
use surehook_types::time::Timestamp;
use uuid::Uuid;

use crate::sql::{Result, SqlError, SqlParameter, SqlRow, SqlValue};

/// Rows are read and written in parts of up to this size; only a single row may be larger.
const PAGE_BYTES_MAX: usize = 8 << 20;

const MILLIS_PER_HOUR: i64 = 3_600_000;

/// A value of a key. Both databases sort integers, texts and blobs as this type does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KeyValue {
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

impl SqlParameter for KeyValue {
    fn to_value(&self) -> Result<SqlValue<'_>> {
        Ok(match self {
            Self::Integer(integer) => SqlValue::Integer(*integer),
            Self::Text(text) => SqlValue::Text(text),
            Self::Blob(bytes) => SqlValue::Blob(bytes),
        })
    }
}

/// The values of a row's key columns.
pub(crate) type RowKey = Vec<KeyValue>;

const NULL: u8 = 0;
const INTEGER: u8 = 1;
const TEXT: u8 = 2;
const BLOB: u8 = 3;

fn push_value(bytes: &mut Vec<u8>, value: SqlValue<'_>) {
    let mut push = |tag, content: &[u8]| {
        bytes.push(tag);
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(content);
    };
    match value {
        SqlValue::Null => bytes.push(NULL),
        SqlValue::Integer(integer) => {
            bytes.push(INTEGER);
            bytes.extend_from_slice(&integer.to_be_bytes());
        }
        SqlValue::Text(text) => push(TEXT, text.as_bytes()),
        SqlValue::Blob(blob) => push(BLOB, blob),
    }
}

fn split_value(bytes: &[u8]) -> Option<(SqlValue<'_>, &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let content = || {
        let (length, rest) = rest.split_first_chunk::<4>()?;
        rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
    };
    Some(match *tag {
        NULL => (SqlValue::Null, rest),
        INTEGER => {
            let (integer, rest) = rest.split_first_chunk::<8>()?;
            (SqlValue::Integer(i64::from_be_bytes(*integer)), rest)
        }
        TEXT => {
            let (text, rest) = content()?;
            (SqlValue::Text(std::str::from_utf8(text).ok()?), rest)
        }
        BLOB => {
            let (blob, rest) = content()?;
            (SqlValue::Blob(blob), rest)
        }
        _ => return None,
    })
}

/// A row with the columns of its [`Table`](super::tables::Table), in their order.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct MovedRow {
    bytes: Vec<u8>,
    /// Length of the part that the checksum covers.
    checked: usize,
}

/// Without the values: some are secret.
impl std::fmt::Debug for MovedRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MovedRow").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl MovedRow {
    /// A row of these values, of which the checksum covers the first `checked`.
    pub(crate) fn new<'v>(
        values: impl IntoIterator<Item = Result<SqlValue<'v>>>,
        checked: usize,
    ) -> Result<Self> {
        let mut row = Self { bytes: Vec::with_capacity(256), checked: 0 };
        for (index, value) in values.into_iter().enumerate() {
            push_value(&mut row.bytes, value?);
            if index < checked {
                row.checked = row.bytes.len();
            }
        }
        Ok(row)
    }

    /// The columns of a result.
    pub(crate) fn read(row: &dyn SqlRow, checked: usize) -> Result<Self> {
        Self::new((0..row.column_count()).map(|column| row.value(column)), checked)
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes, checked: 0 }
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = SqlValue<'_>> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (value, behind) = split_value(rest)?;
            rest = behind;
            Some(value)
        })
    }

    pub(crate) fn value(&self, column: usize) -> SqlValue<'_> {
        self.values().nth(column).unwrap_or(SqlValue::Null)
    }

    /// The row with another value in one of its columns.
    pub(crate) fn with_value(&self, column: usize, value: SqlValue<'_>) -> Self {
        let mut changed = Self { bytes: Vec::with_capacity(self.bytes.len()), checked: 0 };
        let mut read = 0;
        for (index, old) in self.values().enumerate() {
            read += 1;
            push_value(&mut changed.bytes, if index == column { value } else { old });
            if self.checked_columns() == read {
                changed.checked = changed.bytes.len();
            }
        }
        changed
    }

    fn checked_columns(&self) -> usize {
        let (mut rest, mut count) = (&self.bytes[..self.checked], 0);
        while let Some((_, behind)) = split_value(rest) {
            rest = behind;
            count += 1;
        }
        count
    }

    /// The first columns as a key.
    pub(crate) fn key(&self, columns: usize) -> Result<RowKey> {
        let to_key = |value: SqlValue<'_>| match value {
            SqlValue::Integer(integer) => Ok(KeyValue::Integer(integer)),
            SqlValue::Text(text) => Ok(KeyValue::Text(text.to_owned())),
            SqlValue::Blob(blob) => Ok(KeyValue::Blob(blob.to_vec())),
            SqlValue::Null => {
                Err(SqlError::InvalidValue { column: 0, what: "a key is missing".to_owned() })
            }
        };
        self.values().take(columns).map(to_key).collect()
    }

    /// The hour that the id in the first column begins with.
    pub(crate) fn hour(&self) -> Option<i64> {
        let SqlValue::Blob(id) = self.value(0) else { return None };
        let id = Uuid::from_bytes(id.try_into().ok()?);
        let (seconds, _) = id.get_timestamp()?.to_unix();
        Some(i64::try_from(seconds).ok()? * 1000 / MILLIS_PER_HOUR)
    }
}

/// The start of an hour as counted by [`MovedRow::hour`].
pub(super) fn hour_start(hour: i64) -> Timestamp {
    Timestamp::from_millis(hour * MILLIS_PER_HOUR)
}

/// The number of some rows and the sum of their SHA-256, cut to 128 bits. A sum does not depend on the
/// order of the rows, and sums of parts add up to that of the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowSum {
    pub rows: u64,
    pub checksum: u128,
}

impl RowSum {
    pub(super) fn add_row(&mut self, row: &MovedRow) {
        let hash = digest(&SHA256, &row.bytes[..row.checked]);
        let part = hash.as_ref().first_chunk().map_or(0, |part| u128::from_be_bytes(*part));
        self.rows += 1;
        self.checksum = self.checksum.wrapping_add(part);
    }

    pub(super) fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.checksum = self.checksum.wrapping_add(other.checksum);
    }

    pub(super) fn of(rows: &[MovedRow]) -> Self {
        let mut sum = Self::default();
        rows.iter().for_each(|row| sum.add_row(row));
        sum
    }
}

/// Rows behind a key, up to another one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span<'a> {
    pub(crate) after: Option<&'a RowKey>,
    pub(crate) through: Option<&'a RowKey>,
}

/// How many rows a page may have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PageLimit {
    /// As many of one hour, if the table is ordered by time, as fit into memory.
    Part { rows: usize, by_hour: bool },
    /// All: the span was a page when it was written.
    Whole,
}

impl PageLimit {
    /// The limit in the query: one more shows whether there are more.
    pub(crate) fn rows_read(self) -> Option<usize> {
        match self {
            Self::Part { rows, .. } => Some(rows + 1),
            Self::Whole => None,
        }
    }
}

/// Rows of a table in the order of their keys.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) rows: Vec<MovedRow>,
    /// Whether these are all rows of the span.
    pub(crate) is_complete: bool,
    limit: PageLimit,
    bytes: usize,
    hour: Option<i64>,
}

impl Page {
    pub(crate) fn new(limit: PageLimit) -> Self {
        Self { rows: Vec::new(), is_complete: true, limit, bytes: 0, hour: None }
    }

    /// Adds a row, or breaks if it belongs to the next page.
    pub(crate) fn push(&mut self, row: MovedRow) -> ControlFlow<()> {
        if let PageLimit::Part { rows, by_hour } = self.limit {
            let hour = if by_hour { row.hour() } else { None };
            let is_first = self.rows.is_empty();
            let fits = self.rows.len() < rows
                && self.bytes + row.bytes.len() <= PAGE_BYTES_MAX
                && self.hour == hour;
            if !is_first && !fits {
                self.is_complete = false;
                return ControlFlow::Break(());
            }
            self.hour = hour;
        }
        self.bytes += row.bytes.len();
        self.rows.push(row);
        ControlFlow::Continue(())
    }

    pub(super) fn hour(&self) -> Option<i64> {
        self.hour
    }
}

/// The rows of a span that differ between source and target.
#[derive(Debug, Default)]
pub(crate) struct RowChanges {
    /// Rows of the target that the source does not have.
    pub(crate) removed: Vec<MovedRow>,
    /// Rows of the source that the target lacks or has with other values, the latter with the old row.
    pub(crate) written: Vec<(MovedRow, Option<MovedRow>)>,
}

impl RowChanges {
    /// All rows are new.
    pub(super) fn insert(rows: Vec<MovedRow>) -> Self {
        Self { removed: Vec::new(), written: rows.into_iter().map(|row| (row, None)).collect() }
    }

    /// Compares two lists that are sorted by their first `key_columns`.
    pub(super) fn compare(
        source: Vec<MovedRow>,
        target: Vec<MovedRow>,
        key_columns: usize,
    ) -> Result<Self> {
        let mut changes = Self::default();
        let mut target = target.into_iter().peekable();
        for row in source {
            let key = row.key(key_columns)?;
            let mut same = None;
            while let Some(other) = target.peek() {
                let other_key = other.key(key_columns)?;
                if other_key > key {
                    break;
                }
                let other = target.next();
                if other_key == key {
                    same = other;
                    break;
                }
                changes.removed.extend(other);
            }
            if same.as_ref() != Some(&row) {
                changes.written.push((row, same));
            }
        }
        changes.removed.extend(target);
        Ok(changes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.written.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.removed.len() + self.written.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: i64, text: &str) -> MovedRow {
        let values = [SqlValue::Integer(key), SqlValue::Text(text), SqlValue::Null];
        MovedRow::new(values.into_iter().map(Ok), 2).unwrap()
    }

    #[test]
    fn values_are_read_as_they_were_written() {
        let values =
            [SqlValue::Blob(b"\x00a"), SqlValue::Integer(-1), SqlValue::Null, SqlValue::Text("é")];
        let moved = MovedRow::new(values.into_iter().map(Ok), 4).unwrap();
        assert_eq!(moved.values().collect::<Vec<_>>(), values);
        assert_eq!(moved.key(2).unwrap(), [KeyValue::Blob(vec![0, 97]), KeyValue::Integer(-1)]);
        let changed = moved.with_value(3, SqlValue::Integer(7));
        assert_eq!(changed.value(3), SqlValue::Integer(7));
        assert_eq!(changed.value(1), SqlValue::Integer(-1));
    }

    #[test]
    fn sum_depends_on_checked_values_and_not_on_the_order() {
        let rows = [row(1, "a"), row(2, "b")];
        let swapped = [row(2, "b"), row(1, "a")];
        assert_eq!(RowSum::of(&rows), RowSum::of(&swapped));
        assert_ne!(RowSum::of(&rows), RowSum::of(&[row(1, "b"), row(2, "a")]));
        assert_ne!(RowSum::of(&rows), RowSum::of(&rows[..1]));
        let unchecked = row(1, "a").with_value(2, SqlValue::Text("secret"));
        assert_eq!(RowSum::of(&[unchecked]), RowSum::of(&rows[..1]));
        let checked = row(1, "a").with_value(1, SqlValue::Text("c"));
        assert_ne!(RowSum::of(&[checked]), RowSum::of(&rows[..1]));
    }

    #[test]
    fn comparison_finds_removed_new_and_changed_rows() {
        let source = vec![row(1, "a"), row(3, "c"), row(4, "new"), row(6, "f")];
        let target = vec![row(1, "a"), row(2, "gone"), row(3, "old"), row(6, "f"), row(7, "gone")];
        let changes = RowChanges::compare(source, target, 1).unwrap();
        assert_eq!(changes.removed, [row(2, "gone"), row(7, "gone")]);
        assert_eq!(changes.written, [(row(3, "c"), Some(row(3, "old"))), (row(4, "new"), None)]);
    }

    #[test]
    fn page_ends_with_its_rows_or_its_hour() {
        let mut page = Page::new(PageLimit::Part { rows: 2, by_hour: false });
        assert!(page.push(row(1, "a")).is_continue());
        assert!(page.push(row(2, "b")).is_continue());
        assert!(page.push(row(3, "c")).is_break());
        assert_eq!((page.rows.len(), page.is_complete), (2, false));

        let at = |millis: u64| {
            let id = uuid::Builder::from_unix_timestamp_millis(millis, &[7; 10]).into_uuid();
            MovedRow::new([Ok(SqlValue::Blob(id.as_bytes()))], 1).unwrap()
        };
        let mut page = Page::new(PageLimit::Part { rows: 10, by_hour: true });
        assert!(page.push(at(3_600_000)).is_continue());
        assert!(page.push(at(7_199_999)).is_continue());
        assert!(page.push(at(7_200_000)).is_break());
        assert_eq!((page.hour(), page.is_complete), (Some(1), false));
    }
}
