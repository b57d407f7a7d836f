//! Exports a whole list as NDJSON or CSV. Only one page is in memory at a time.

use std::{borrow::Cow, io, sync::Arc};

use axum::{
    Json,
    body::Body,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use surehook_core::store::{ListPage, PageRequest};

use super::{LIMIT_DEFAULT, check_limit, list_response, response_stream::ResponseSender};
use crate::{ServerState, problem::Problem};

/// Exports running at the same time.
pub(crate) const EXPORTS_MAX: usize = 8;
/// Rows read from the store at a time.
const PAGE_ROWS: usize = 500;

/// Format of a list response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum ListFormat {
    Json,
    Ndjson,
    Csv,
}

/// Media types of exports.
pub(super) const MEDIA_TYPES: &[&str] = &["application/x-ndjson", "text/csv"];

impl ListFormat {
    /// The first supported format in `Accept`.
    fn from_accept(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(header::ACCEPT).iter().filter_map(|line| line.to_str().ok());
        let kinds = lines
            .flat_map(|line| line.split(','))
            .map(|kind| kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
        for kind in kinds {
            match kind.as_str() {
                "application/x-ndjson" => return Self::Ndjson,
                "text/csv" => return Self::Csv,
                "application/json" | "application/*" | "*/*" => return Self::Json,
                _ => {}
            }
        }
        Self::Json
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8; header=present",
        }
    }

    fn file_extension(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Ndjson => "ndjson",
            Self::Csv => "csv",
        }
    }
}

/// A list that can be read page by page.
pub(super) trait ExportableList: Send + Sync + 'static {
    type Row: Serialize + Send;
    type Cursor: Copy + Send;
    /// Part of the file name.
    const NAME: &'static str;
    /// Fields of a row, in the order of the CSV columns.
    const COLUMNS: &'static str;

    fn read(
        &self,
        page: PageRequest<Self::Cursor>,
    ) -> impl Future<Output = Result<ListPage<Self::Row, Self::Cursor>, Problem>> + Send;
}

/// Turns the rows of a page into the rows of a response.
pub(super) fn map_rows<A, B, C>(page: ListPage<A, C>, map: impl FnMut(A) -> B) -> ListPage<B, C> {
    let ListPage { rows, next, rows_scanned, last } = page;
    ListPage { rows: rows.into_iter().map(map).collect(), next, rows_scanned, last }
}

/// The format and page of a list that a request selects.
#[derive(Debug)]
pub(super) struct ListSelection<C> {
    pub(super) format: ListFormat,
    limit: Option<usize>,
    after: Option<C>,
}

impl<C> ListSelection<C> {
    /// `format` takes precedence over `Accept`.
    pub(super) fn new(
        format: Option<ListFormat>,
        headers: &HeaderMap,
        limit: Option<u16>,
        after: Option<C>,
    ) -> Result<Self, Problem> {
        let format = format.unwrap_or_else(|| ListFormat::from_accept(headers));
        Ok(Self { format, limit: check_limit(limit)?, after })
    }

    pub(super) fn page(self) -> PageRequest<C> {
        PageRequest { after: self.after, limit: self.limit.unwrap_or(LIMIT_DEFAULT) }
    }
}

/// Answers with one page as JSON, or exports the whole list.
pub(super) async fn page_or_export<L: ExportableList<Cursor: ToString>>(
    server: &Arc<ServerState>,
    list: L,
    selection: ListSelection<L::Cursor>,
) -> Result<Response, Problem> {
    match selection.format {
        ListFormat::Json => {
            Ok(Json(list_response(list.read(selection.page()).await?)).into_response())
        }
        ListFormat::Ndjson | ListFormat::Csv => export(server, list, selection).await,
    }
}

/// Streams the whole list, at most `limit` rows.
pub(super) async fn export<L: ExportableList>(
    server: &Arc<ServerState>,
    list: L,
    selection: ListSelection<L::Cursor>,
) -> Result<Response, Problem> {
    let permit = Arc::clone(&server.export_permits).try_acquire_owned().map_err(|_| {
        let detail = format!("{EXPORTS_MAX} exports are already running. Wait for one to finish.");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_exports", detail).retry_after(5)
    })?;
    let ListSelection { format, limit, after } = selection;
    let mut left = limit.unwrap_or(usize::MAX);
    // The first page is read before the response starts, so that an error can still be reported.
    let mut page = list.read(PageRequest { after, limit: left.min(PAGE_ROWS) }).await?;
    let (sender, chunks) = ResponseSender::<io::Result<Bytes>>::new();
    tokio::spawn(async move {
        let _permit = permit;
        let mut chunk = Vec::new();
        if format == ListFormat::Csv {
            chunk.extend_from_slice(L::COLUMNS.as_bytes());
            chunk.extend_from_slice(b"\r\n");
        }
        loop {
            left = left.saturating_sub(page.rows.len());
            for row in &page.rows {
                write_row(&mut chunk, format, L::COLUMNS, row);
            }
            if !chunk.is_empty()
                && sender.send(Ok(Bytes::from(std::mem::take(&mut chunk)))).await.is_err()
            {
                return;
            }
            // A filter that matches nothing sends nothing, so it must check for a closed connection.
            if page.next.is_none() || left == 0 || sender.is_closed() {
                return;
            }
            let request = PageRequest { after: page.next, limit: left.min(PAGE_ROWS) };
            page = match list.read(request).await {
                Ok(page) => page,
                Err(problem) => {
                    // The response has started: it can only be cut off.
                    tracing::warn!(code = problem.code(), "export failed");
                    let _gone = sender.send(Err(io::Error::other("export failed"))).await;
                    return;
                }
            };
        }
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    let file = format!("attachment; filename=\"surehook-{}.{}\"", L::NAME, format.file_extension());
    if let Ok(file) = HeaderValue::from_str(&file) {
        headers.insert(header::CONTENT_DISPOSITION, file);
    }
    Ok(response)
}

fn write_row(chunk: &mut Vec<u8>, format: ListFormat, columns: &str, row: &impl Serialize) {
    match format {
        ListFormat::Csv => {
            // Rows always serialize.
            let row = serde_json::to_value(row).unwrap_or_default();
            let cells: Vec<String> =
                columns.split(',').map(|column| csv_cell(&row[column])).collect();
            chunk.extend_from_slice(cells.join(",").as_bytes());
            chunk.extend_from_slice(b"\r\n");
        }
        ListFormat::Json | ListFormat::Ndjson => {
            let _always = serde_json::to_writer(&mut *chunk, row);
            chunk.push(b'\n');
        }
    }
}

/// A value as a CSV cell (RFC 4180).
fn csv_cell(value: &Value) -> String {
    let text: Cow<'_, str> = match value {
        Value::Null => "".into(),
        Value::String(text) => escape_formula(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string().into()
        }
    };
    match text.contains(['"', ',', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into_owned(),
    }
}

/// Keys are chosen by senders, and a spreadsheet would run a cell that starts like a formula.
fn escape_formula(text: &str) -> Cow<'_, str> {
    match text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => format!("'{text}").into(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::{deliveries::DeliveryLister, events::EventLister, requests::RequestLister},
        *,
    };

    #[test]
    fn csv_cell_is_never_a_formula() {
        let cases = [
            (json!("plain"), "plain"),
            (json!("=cmd()"), "'=cmd()"),
            (json!("+1"), "'+1"),
            (json!("-1"), "'-1"),
            (json!("@x"), "'@x"),
            (json!("\tx"), "'\tx"),
            (json!("\rx"), "\"'\rx\""),
            (json!("=a,\"b\""), "\"'=a,\"\"b\"\"\""),
            (json!("a=b"), "a=b"),
            (json!("a\nb"), "\"a\nb\""),
            (json!(-1), "-1"),
            (json!(true), "true"),
            (Value::Null, ""),
        ];
        for (value, expected) in cases {
            assert_eq!(csv_cell(&value), expected, "case: {value}");
        }
    }

    #[test]
    fn format_parameter_wins_over_accept_header() {
        let accept = |text: &str| HeaderMap::from_iter([(header::ACCEPT, text.parse().unwrap())]);
        for (parameter, accepted, format) in [
            (None, "*/*", ListFormat::Json),
            (None, "text/csv", ListFormat::Csv),
            (None, "text/html, Text/CSV;q=0.5", ListFormat::Csv),
            (None, "application/x-ndjson", ListFormat::Ndjson),
            (None, "application/json, text/csv", ListFormat::Json),
            (None, "image/png", ListFormat::Json),
            (Some("csv"), "application/json", ListFormat::Csv),
            (Some("json"), "text/csv", ListFormat::Json),
        ] {
            let parameter = parameter.map(|word| serde_json::from_value(json!(word)).unwrap());
            let chosen =
                ListSelection::<()>::new(parameter, &accept(accepted), None, None).unwrap();
            assert_eq!(chosen.format, format, "case: {parameter:?} {accepted}");
        }
        assert!(serde_json::from_value::<ListFormat>(json!("xml")).is_err());
    }

    #[track_caller]
    fn assert_columns<L: ExportableList<Row: JsonSchema>>() {
        let schema = schemars::schema_for!(L::Row).to_value();
        let mut fields: Vec<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut columns: Vec<&str> = L::COLUMNS.split(',').collect();
        fields.sort_unstable();
        columns.sort_unstable();
        assert_eq!(columns, fields);
    }

    #[test]
    fn every_field_has_an_export_column() {
        assert_columns::<EventLister>();
        assert_columns::<DeliveryLister>();
        assert_columns::<RequestLister>();
    }
}
