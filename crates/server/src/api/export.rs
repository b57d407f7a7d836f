//! Exports a whole list as NDJSON or CSV. Only one page is in memory at a time.

use std::{borrow::Cow, io, sync::Arc};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::Value;

use super::response_stream::ResponseSender;
use crate::{ServerState, problem::Problem};

/// Exports running at the same time.
pub(crate) const EXPORTS_MAX: usize = 8;
/// Rows read from the store at a time.
const PAGE_ROWS: usize = 500;

/// Format of a list response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListFormat {
    Json,
    Ndjson,
    Csv,
}

/// Media types of exports.
pub(super) const MEDIA_TYPES: &[&str] = &["application/x-ndjson", "text/csv"];

impl ListFormat {
    /// The format named by `format`, or the first supported one in `Accept`.
    pub(super) fn from_request(format: Option<&str>, headers: &HeaderMap) -> Result<Self, Problem> {
        match format {
            Some("json") => Ok(Self::Json),
            Some("ndjson") => Ok(Self::Ndjson),
            Some("csv") => Ok(Self::Csv),
            Some(_) => Err(Problem::invalid("`format` must be one of: json, ndjson, csv")),
            None => Ok(Self::from_accept(headers)),
        }
    }

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

/// A list that can be read page by page to its end.
pub(super) trait ExportPages: Send + 'static {
    type Row: Serialize + Send;
    /// Part of the file name.
    const NAME: &'static str;
    /// Fields of a row, in the order of the CSV columns.
    const COLUMNS: &'static [&'static str];

    /// The next rows, possibly none; `None` at the end.
    fn next(
        &mut self,
        limit: usize,
    ) -> impl Future<Output = Result<Option<Vec<Self::Row>>, Problem>> + Send;
}

/// Streams the whole list, at most `limit` rows.
pub(super) async fn export<P: ExportPages>(
    server: &Arc<ServerState>,
    format: ListFormat,
    mut pages: P,
    limit: Option<usize>,
) -> Result<Response, Problem> {
    let permit = Arc::clone(&server.export_permits).try_acquire_owned().map_err(|_| {
        let detail = format!("{EXPORTS_MAX} exports are already running. Wait for one to finish.");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_exports", detail).retry_after(5)
    })?;
    let mut left = limit.unwrap_or(usize::MAX);
    // The first page is read before the response starts, so that an error can still be reported.
    let mut page = pages.next(left.min(PAGE_ROWS)).await?;
    let (sender, chunks) = ResponseSender::<io::Result<Bytes>>::new();
    let head = (format == ListFormat::Csv).then(|| csv_header(P::COLUMNS));
    tokio::spawn(async move {
        let _permit = permit;
        let mut chunk = head.unwrap_or_default();
        while let Some(rows) = page {
            left = left.saturating_sub(rows.len());
            for row in &rows {
                write_row(&mut chunk, format, P::COLUMNS, row);
            }
            if !chunk.is_empty()
                && sender.send(Ok(Bytes::from(std::mem::take(&mut chunk)))).await.is_err()
            {
                return;
            }
            // A filter that matches nothing sends nothing, so it must check for a closed connection.
            if left == 0 || sender.is_closed() {
                break;
            }
            page = match pages.next(left.min(PAGE_ROWS)).await {
                Ok(page) => page,
                Err(problem) => {
                    // The response has started: it can only be cut off.
                    tracing::warn!(code = problem.code(), "export failed");
                    let _gone = sender.send(Err(io::Error::other("export failed"))).await;
                    return;
                }
            };
        }
        if !chunk.is_empty() {
            let _gone = sender.send(Ok(Bytes::from(chunk))).await;
        }
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    let file = format!("attachment; filename=\"surehook-{}.{}\"", P::NAME, format.file_extension());
    if let Ok(file) = HeaderValue::from_str(&file) {
        headers.insert(header::CONTENT_DISPOSITION, file);
    }
    Ok(response)
}

fn csv_header(columns: &[&str]) -> Vec<u8> {
    let mut line = columns.join(",").into_bytes();
    line.extend_from_slice(b"\r\n");
    line
}

fn write_row(chunk: &mut Vec<u8>, format: ListFormat, columns: &[&str], row: &impl Serialize) {
    match format {
        ListFormat::Csv => {
            // Rows always serialize.
            let row = serde_json::to_value(row).unwrap_or_default();
            let cells: Vec<String> = columns.iter().map(|column| csv_cell(&row[*column])).collect();
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

    use super::*;

    // B79.
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
        for (asked, accepted, format) in [
            (None, "*/*", ListFormat::Json),
            (None, "text/csv", ListFormat::Csv),
            (None, "text/html, Text/CSV;q=0.5", ListFormat::Csv),
            (None, "application/x-ndjson", ListFormat::Ndjson),
            (None, "application/json, text/csv", ListFormat::Json),
            (None, "image/png", ListFormat::Json),
            (Some("csv"), "application/json", ListFormat::Csv),
            (Some("json"), "text/csv", ListFormat::Json),
        ] {
            let chosen = ListFormat::from_request(asked, &accept(accepted)).unwrap();
            assert_eq!(chosen, format, "case: {asked:?} {accepted}");
        }
        assert!(ListFormat::from_request(Some("xml"), &HeaderMap::new()).is_err());
    }
}
