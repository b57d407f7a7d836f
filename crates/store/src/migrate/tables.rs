//! All tables that a migration moves, in the order in which they are written: rows that others refer to
//! come first. A test compares this list with the schemas of both databases.

use super::rows::{PageLimit, Span};
use crate::sql::SqlParameter;

/// When and how a table is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MovedWhen {
    /// Page by page while the source is in use, and what has changed since at the end.
    Ahead { page_rows: usize },
    /// All at once at the end.
    AtTheEnd,
}

/// What holds the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableStorage {
    /// A table of this name with these columns, in both databases.
    Table,
    /// The index of dedup keys: sorted blocks in SQLite.
    Keys,
    /// Exact totals and growing numbers, by name; each database stores them in its own way.
    Numbers,
}

/// A column that each database encrypts with its own data key. It is the last one, and not part of the
/// checksum, which is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealedColumn {
    SourceSpec,
    DestinationSpec,
    QuarantinedHead,
}

/// A table, as a migration sees it.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// First those of the key. Columns that a database fills itself are left out.
    pub(crate) columns: &'static [&'static str],
    pub(crate) key_columns: usize,
    pub(crate) when: MovedWhen,
    /// The key begins with an id that begins with a time.
    pub(crate) is_by_hour: bool,
    pub(crate) storage: TableStorage,
    pub(crate) sealed: Option<SealedColumn>,
    /// Only rows with this condition are moved; the others belong to the database.
    pub(crate) condition: Option<&'static str>,
    /// Its key is a number that the database gives, which must continue behind the rows moved.
    pub(crate) is_numbered: bool,
    /// Triggers count its rows, by what they have when they are inserted and deleted: a changed row is
    /// deleted and inserted again.
    pub(crate) is_counted: bool,
}

const AHEAD: MovedWhen = MovedWhen::Ahead { page_rows: 5000 };
/// Rows with bodies.
const AHEAD_WITH_BODIES: MovedWhen = MovedWhen::Ahead { page_rows: 1000 };

impl Table {
    const fn new(
        name: &'static str,
        key_columns: usize,
        columns: &'static [&'static str],
        when: MovedWhen,
    ) -> Self {
        Self {
            name,
            columns,
            key_columns,
            when,
            is_by_hour: false,
            storage: TableStorage::Table,
            sealed: None,
            condition: None,
            is_numbered: false,
            is_counted: false,
        }
    }

    const fn by_hour(self) -> Self {
        Self { is_by_hour: true, ..self }
    }

    const fn numbered(self) -> Self {
        Self { is_numbered: true, ..self }
    }

    const fn counted(self) -> Self {
        Self { is_counted: true, ..self }
    }

    const fn stored_in(self, storage: TableStorage) -> Self {
        Self { storage, ..self }
    }

    const fn sealed(self, column: SealedColumn) -> Self {
        Self { sealed: Some(column), ..self }
    }

    const fn only_where(self, condition: &'static str) -> Self {
        Self { condition: Some(condition), ..self }
    }

    /// How many columns the checksum covers.
    pub(crate) fn checked_columns(&self) -> usize {
        self.columns.len() - usize::from(self.sealed.is_some())
    }

    /// How much is read at once.
    pub(crate) fn page_limit(&self) -> PageLimit {
        match self.when {
            MovedWhen::Ahead { page_rows } => {
                PageLimit::Part { rows: page_rows, by_hour: self.is_by_hour }
            }
            MovedWhen::AtTheEnd => PageLimit::Part { rows: 5000, by_hour: false },
        }
    }

    pub(crate) fn column_list(&self) -> String {
        self.columns.join(", ")
    }

    /// The columns of the key, as a list.
    pub(crate) fn key_list(&self) -> String {
        self.columns[..self.key_columns].join(", ")
    }

    /// The statement that reads rows in the order of their keys, with the key after which it begins and
    /// the last one as parameters, in this order, if they are there.
    pub(crate) fn select(&self, has_after: bool, has_through: bool, rows: Option<usize>) -> String {
        let mut next = 1;
        let mut place = || {
            let places = (next..next + self.key_columns).map(|place| format!("?{place}"));
            next += self.key_columns;
            places.collect::<Vec<_>>().join(", ")
        };
        let key = self.key_list();
        let mut conditions = Vec::new();
        if has_after {
            conditions.push(format!("({key}) > ({})", place()));
        }
        if has_through {
            conditions.push(format!("({key}) <= ({})", place()));
        }
        conditions.extend(self.condition.map(str::to_owned));
        let condition = match conditions.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", conditions.join(" AND ")),
        };
        let limit = rows.map(|rows| format!(" LIMIT {rows}")).unwrap_or_default();
        format!("SELECT {} FROM {}{condition} ORDER BY {key}{limit}", self.column_list(), self.name)
    }

    /// The query of a page, and its values. `numbers` is the query that stands for the table of numbers.
    pub(crate) fn page_query<'s>(
        &self,
        span: Span<'s>,
        limit: PageLimit,
        numbers: &str,
    ) -> (String, Vec<&'s dyn SqlParameter>) {
        let mut sql = self.select(span.after.is_some(), span.through.is_some(), limit.rows_read());
        if self.storage == TableStorage::Numbers {
            sql = sql.replacen("numbers", &format!("({numbers}) AS numbers"), 1);
        }
        let values = [span.after, span.through].into_iter().flatten().flatten();
        (sql, values.map(|value| value as &dyn SqlParameter).collect())
    }

    /// The end of an `INSERT` that replaces rows with the same key.
    pub(crate) fn on_conflict(&self) -> String {
        let others = &self.columns[self.key_columns..];
        let set: Vec<String> =
            others.iter().map(|column| format!("{column} = excluded.{column}")).collect();
        match set.is_empty() {
            true => format!("ON CONFLICT ({}) DO NOTHING", self.key_list()),
            false => format!("ON CONFLICT ({}) DO UPDATE SET {}", self.key_list(), set.join(", ")),
        }
    }

    /// The statement that deletes the row with a key.
    pub(crate) fn delete(&self) -> String {
        let places: Vec<String> = (1..=self.key_columns).map(|place| format!("?{place}")).collect();
        let (key, places) = (self.key_list(), places.join(", "));
        format!("DELETE FROM {} WHERE ({key}) = ({places})", self.name)
    }

    /// The statement that deletes all rows that are moved.
    pub(crate) fn delete_all(&self) -> String {
        let condition = self.condition.map(|condition| format!(" WHERE {condition}"));
        format!("DELETE FROM {}{}", self.name, condition.unwrap_or_default())
    }
}

/// Rows of `meta` about the database itself.
const META_CONDITION: &str = "name NOT IN ('plain_text_remains', 'migration_target', 'moved_to')";

/// The table of events. Their search terms are built again from their kinds and attributes.
pub(crate) const EVENTS: &str = "events";
/// Columns of [`EVENTS`] that search terms are made of.
pub(crate) const EVENT_KIND: usize = 13;
pub(crate) const EVENT_ATTRIBUTES: usize = 14;

pub(crate) static TABLES: &[Table] = &[
    // Configuration and access.
    Table::new(
        "sources",
        1,
        &["seq", "id", "name", "created_at", "updated_at", "deleted_at", "spec"],
        MovedWhen::AtTheEnd,
    )
    .sealed(SealedColumn::SourceSpec)
    .numbered(),
    Table::new(
        "destinations",
        1,
        &["seq", "id", "name", "created_at", "updated_at", "deleted_at", "spec"],
        MovedWhen::AtTheEnd,
    )
    .sealed(SealedColumn::DestinationSpec)
    .numbered(),
    Table::new(
        "routes",
        1,
        &["seq", "id", "source", "destination", "filter", "transform", "created_at", "updated_at"],
        MovedWhen::AtTheEnd,
    )
    .numbered(),
    Table::new(
        "tokens",
        1,
        &[
            "hash",
            "created_at",
            "id",
            "name",
            "role",
            "expires_at",
            "is_session",
            "begun_with",
            "namespaces",
            "urls",
        ],
        MovedWhen::AtTheEnd,
    ),
    Table::new(
        "login_links",
        1,
        &["hash", "expires_at", "token", "token_expires_at"],
        MovedWhen::AtTheEnd,
    ),
    Table::new("token_headers", 1, &["name"], MovedWhen::AtTheEnd),
    Table::new("lenient_sources", 1, &["id"], MovedWhen::AtTheEnd),
    Table::new("key_namespaces", 1, &["since"], MovedWhen::AtTheEnd),
    Table::new("meta", 1, &["name", "value"], MovedWhen::AtTheEnd).only_where(META_CONDITION),
    // Events and what became of them.
    Table::new(
        "payloads",
        1,
        &["seq", "path", "query", "remote", "headers", "body"],
        AHEAD_WITH_BODIES,
    )
    .numbered(),
    Table::new(
        EVENTS,
        1,
        &[
            "id",
            "request_id",
            "source",
            "key",
            "received_at",
            "body_bytes",
            "fingerprint",
            "payload",
            "duplicates",
            "last_duplicate_at",
            "verified_by",
            "key_from",
            "unrouted",
            "kind",
            "attributes",
            "key_guessed",
        ],
        AHEAD,
    )
    .by_hour(),
    Table::new("keys", 1, &["digest", "event_id", "body", "expires_at"], AHEAD)
        .stored_in(TableStorage::Keys),
    Table::new("key_conflicts", 1, &["event_id", "holder"], AHEAD),
    Table::new(
        "duplicates",
        1,
        &[
            "seq",
            "event_id",
            "seen_at",
            "body",
            "body_removed",
            "delivered_as",
            "reason",
            "fingerprint",
        ],
        AHEAD_WITH_BODIES,
    )
    .numbered(),
    Table::new(
        "deliveries",
        1,
        &[
            "id",
            "event_id",
            "destination",
            "state",
            "cause",
            "created_at",
            "due_at",
            "claim_number",
            "lane_epoch",
            "attempts",
            "throttled",
            "ended_at",
            "reason",
            "replay_of",
            "replayed_by",
            "replayed_at",
            "order_key",
            "order_seq",
            "not_before",
            "dead_group",
        ],
        AHEAD,
    )
    .by_hour(),
    Table::new(
        "attempts",
        2,
        &[
            "delivery_id",
            "number",
            "id",
            "started_at",
            "took_ms",
            "status",
            "failure",
            "class",
            "detail",
            "response",
            "next",
            "next_due_at",
            "timing",
        ],
        AHEAD,
    )
    .by_hour(),
    Table::new(
        "delivery_bodies",
        1,
        &["delivery_id", "route_id", "body", "fingerprint", "filter_failed"],
        AHEAD_WITH_BODIES,
    )
    .by_hour(),
    Table::new("decisions", 1, &["seq", "event_id", "delivery_id", "at", "kind", "detail"], AHEAD)
        .numbered(),
    Table::new(
        "dead_groups",
        1,
        &[
            "seq",
            "id",
            "destination",
            "class",
            "code",
            "failure",
            "reason",
            "shape",
            "count",
            "first_seen",
            "last_seen",
        ],
        AHEAD,
    )
    .numbered(),
    // Messages.
    Table::new("sends", 1, &["delivery_id", "sent_id", "sent_at"], AHEAD),
    Table::new("callbacks", 1, &["delivery_id", "spec", "state"], AHEAD),
    Table::new(
        "wills",
        1,
        &[
            "delivery_id",
            "claim_number",
            "attempt_id",
            "number",
            "started_at",
            "took_ms",
            "failure",
            "class",
            "detail",
            "next",
            "due_at",
            "reason",
            "sent_id",
            "sent_day",
            "why_then",
        ],
        MovedWhen::AtTheEnd,
    ),
    Table::new(
        "said",
        1,
        &["delivery_id", "by_event", "at", "sent_id", "next", "due_at", "reason"],
        MovedWhen::AtTheEnd,
    ),
    Table::new("awaited", 1, &["delivery_id", "wait_ms"], MovedWhen::AtTheEnd),
    Table::new("sends_by_day", 2, &["destination", "day", "sent"], MovedWhen::AtTheEnd),
    Table::new(
        "media",
        1,
        &["id", "bucket", "key", "kind", "mime_type", "size", "filename", "created_at", "used_at"],
        AHEAD,
    ),
    // Requests that were not accepted.
    Table::new(
        "refused_requests",
        1,
        &[
            "id",
            "source",
            "at",
            "code",
            "status",
            "method",
            "path",
            "query",
            "remote",
            "headers",
            "body_bytes",
            "body",
        ],
        AHEAD_WITH_BODIES,
    ),
    Table::new(
        "quarantine",
        1,
        &[
            "id",
            "source_id",
            "fingerprint",
            "received_at",
            "seen_at",
            "times",
            "code",
            "method",
            "path",
            "query",
            "remote",
            "body_bytes",
            "body",
            "sender",
            "headers",
        ],
        AHEAD_WITH_BODIES,
    )
    .sealed(SealedColumn::QuarantinedHead)
    .counted(),
    // Counted by triggers as well; written last, they are exactly those of the source.
    Table::new("quarantine_totals", 1, &["source_id", "many", "bytes"], MovedWhen::AtTheEnd),
    Table::new(
        "quarantine_senders",
        2,
        &["source_id", "sender", "many", "bytes"],
        MovedWhen::AtTheEnd,
    ),
    // Keys of the idempotency service.
    Table::new(
        "surehook_dedup_claims",
        2,
        &[
            "namespace",
            "name",
            "state",
            "token",
            "fence",
            "fingerprint",
            "operation",
            "started_at",
            "lease_until",
            "completed_at",
            "expires_at",
            "result",
        ],
        AHEAD_WITH_BODIES,
    )
    .counted(),
    Table::new(
        "claim_counts",
        1,
        &["namespace", "keys", "completed", "released", "result_bytes"],
        MovedWhen::AtTheEnd,
    ),
    // Work in progress.
    Table::new(
        "replays",
        1,
        &["seq", "id", "spec", "state", "created_at", "ended_at", "cursor"],
        MovedWhen::AtTheEnd,
    )
    .numbered(),
    Table::new(
        "replay_lanes",
        2,
        &["replay", "destination", "selected", "taken", "open"],
        MovedWhen::AtTheEnd,
    ),
    Table::new(
        "replay_counts",
        3,
        &["replay", "destination", "outcome", "many"],
        MovedWhen::AtTheEnd,
    ),
    Table::new(
        "replay_items",
        3,
        &["replay", "destination", "number", "event_id", "delivery_id", "new_delivery", "outcome"],
        AHEAD,
    ),
    Table::new(
        "lane_states",
        1,
        &[
            "destination",
            "paused_at",
            "pause_reason",
            "pause_automatic",
            "circuit",
            "circuit_times",
            "open_until",
            "cool_until",
            "drain_rate",
            "drain_until",
        ],
        MovedWhen::AtTheEnd,
    ),
    Table::new("prune_cursors", 2, &["source", "what", "event_id"], MovedWhen::AtTheEnd),
    Table::new("prune_later", 1, &["event_id", "look_at"], AHEAD),
    // Statistics.
    Table::new("rollups", 4, &["width", "kind", "subject", "start", "tally"], AHEAD),
    Table::new("rollup_facts", 1, &["seq", "facts"], MovedWhen::AtTheEnd).numbered(),
    Table::new("numbers", 1, &["name", "value"], MovedWhen::AtTheEnd)
        .stored_in(TableStorage::Numbers),
];

/// Tables of SQLite that are not moved as they are.
#[cfg(feature = "conformance")]
pub(crate) const SQLITE_ONLY: &[(&str, &str)] = &[
    ("counters", "moved as `numbers`, without those of the commit mark"),
    ("data_keys", "each database has a data key of its own"),
    ("key_packs", "moved as `keys`"),
    ("key_blocks", "moved as `keys`"),
    ("key_blocks_young", "moved as `keys`"),
    ("key_ranges", "about the merging of keys"),
    ("terms_fresh", "built again from events"),
    ("term_segments", "built again from events"),
    ("term_blocks", "built again from events"),
];

/// Tables of PostgreSQL that are not moved as they are.
#[cfg(feature = "conformance")]
pub(crate) const POSTGRES_ONLY: &[(&str, &str)] = &[
    ("schema_version", "about the database itself"),
    ("counters", "moved as `numbers`, without those of nodes and signals"),
    ("totals", "moved as `numbers`"),
    ("count_facts", "moved as `numbers`"),
    ("due", "lists rows of `deliveries`; kept by triggers"),
    ("in_flight", "lists rows of `deliveries`; kept by triggers"),
    ("ordering_queue", "lists rows of `deliveries`; kept by triggers"),
    ("data_keys", "each database has a data key of its own"),
    ("terms", "built again from events"),
    ("nodes", "about running processes"),
    ("lanes", "about running processes"),
    ("lane_owners", "about running processes"),
    ("lane_handovers", "about running processes"),
    ("lane_requests", "about running processes"),
    ("duties", "about running processes"),
    ("signals", "about running processes"),
];

/// Columns that a database fills itself.
#[cfg(feature = "conformance")]
pub(crate) const FILLED_COLUMNS: &[(&str, &str)] =
    &[("quarantine", "is_stranger"), ("surehook_dedup_claims", "id"), ("deliveries", "shard")];
