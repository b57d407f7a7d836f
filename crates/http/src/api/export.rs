//! A whole list as NDJSON or CSV, page by page: however long it is, a page of it is in memory.

use std::{borrow::Cow, io, sync::Arc};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::Value;

use super::outflow::Outflow;
use crate::{App, problem::Problem};

/// Exports at the same time.
pub(crate) const EXPORTS_MAX: usize = 8;
/// Rows that are read at a time.
pub(super) const ROWS_AT_ONCE: usize = 500;

/// How a list is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Page,
    Ndjson,
    Csv,
}

/// What an answer may be, as the document says it.
pub(super) const KINDS: &[&str] = &["application/x-ndjson", "text/csv"];

impl Format {
    /// What `format` says, or else what `Accept` names first of what we have.
    pub(super) fn wanted(format: Option<&str>, headers: &HeaderMap) -> Result<Self, Problem> {
        match format {
            Some("json") => Ok(Self::Page),
            Some("ndjson") => Ok(Self::Ndjson),
            Some("csv") => Ok(Self::Csv),
            Some(_) => Err(Problem::invalid("format is one of json, ndjson, csv")),
            None => Ok(Self::accepted(headers)),
        }
    }

    fn accepted(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(header::ACCEPT).iter().filter_map(|line| line.to_str().ok());
        let kinds = lines
            .flat_map(|line| line.split(','))
            .map(|kind| kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
        for kind in kinds {
            match kind.as_str() {
                "application/x-ndjson" => return Self::Ndjson,
                "text/csv" => return Self::Csv,
                "application/json" | "application/*" | "*/*" => return Self::Page,
                _ => {}
            }
        }
        Self::Page
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Page => "application/json",
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8; header=present",
        }
    }

    fn ending(self) -> &'static str {
        match self {
            Self::Page => "json",
            Self::Ndjson => "ndjson",
            Self::Csv => "csv",
        }
    }
}

/// A list that can be read to its end.
pub(super) trait Pages: Send + 'static {
    /// One row.
    type Row: Serialize + Send;
    /// What the file is called.
    const NAME: &'static str;
    /// The fields of a row, in the order of the columns.
    const COLUMNS: &'static [&'static str];

    /// The next rows, perhaps none; `None` at the end.
    fn next(
        &mut self,
        limit: usize,
    ) -> impl Future<Output = Result<Option<Vec<Self::Row>>, Problem>> + Send;
}

/// Answers with all of it, at most `limit` rows.
pub(super) async fn export<P: Pages>(
    app: &Arc<App>,
    format: Format,
    mut pages: P,
    limit: Option<usize>,
) -> Result<Response, Problem> {
    let place = Arc::clone(&app.exports).try_acquire_owned().map_err(|_| {
        let detail = format!("{EXPORTS_MAX} exports are running; wait for one of them to end");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_exports", detail).retry_after(5)
    })?;
    let mut left = limit.unwrap_or(usize::MAX);
    // The first page is read before the answer begins, so that what is wrong can still be said.
    let mut page = pages.next(left.min(ROWS_AT_ONCE)).await?;
    let (outflow, chunks) = Outflow::<io::Result<Bytes>>::new();
    let head = (format == Format::Csv).then(|| heading(P::COLUMNS));
    tokio::spawn(async move {
        let _place = place;
        let mut chunk = head.unwrap_or_default();
        while let Some(rows) = page {
            left = left.saturating_sub(rows.len());
            for row in &rows {
                write_row(&mut chunk, format, P::COLUMNS, row);
            }
            if !chunk.is_empty()
                && outflow.send(Ok(Bytes::from(std::mem::take(&mut chunk)))).await.is_err()
            {
                return;
            }
            // A filter that finds nothing has nothing to send, and would not notice.
            if left == 0 || outflow.is_gone() {
                break;
            }
            page = match pages.next(left.min(ROWS_AT_ONCE)).await {
                Ok(page) => page,
                Err(problem) => {
                    // The answer has begun: all that can be said is that it is not whole.
                    tracing::warn!(code = problem.code(), "an export broke off");
                    let _gone = outflow.send(Err(io::Error::other("broken off"))).await;
                    return;
                }
            };
        }
        if !chunk.is_empty() {
            let _gone = outflow.send(Ok(Bytes::from(chunk))).await;
        }
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.kind()));
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    let file = format!("attachment; filename=\"surehook-{}.{}\"", P::NAME, format.ending());
    if let Ok(file) = HeaderValue::from_str(&file) {
        headers.insert(header::CONTENT_DISPOSITION, file);
    }
    Ok(response)
}

fn heading(columns: &[&str]) -> Vec<u8> {
    let mut line = columns.join(",").into_bytes();
    line.extend_from_slice(b"\r\n");
    line
}

fn write_row(chunk: &mut Vec<u8>, format: Format, columns: &[&str], row: &impl Serialize) {
    match format {
        Format::Csv => {
            // A row is plain data and always becomes JSON.
            let row = serde_json::to_value(row).unwrap_or_default();
            let cells: Vec<String> = columns.iter().map(|column| cell(&row[*column])).collect();
            chunk.extend_from_slice(cells.join(",").as_bytes());
            chunk.extend_from_slice(b"\r\n");
        }
        Format::Page | Format::Ndjson => {
            let _always = serde_json::to_writer(&mut *chunk, row);
            chunk.push(b'\n');
        }
    }
}

/// A value as a cell of RFC 4180.
fn cell(value: &Value) -> String {
    let text: Cow<'_, str> = match value {
        Value::Null => "".into(),
        Value::String(text) => harmless(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string().into()
        }
    };
    match text.contains(['"', ',', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into_owned(),
    }
}

/// Keys come from strangers, and a spreadsheet runs what begins like a formula.
fn harmless(text: &str) -> Cow<'_, str> {
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
    fn a_cell_is_never_a_formula() {
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
            assert_eq!(cell(&value), expected, "case: {value}");
        }
    }

    #[test]
    fn the_format_is_what_is_asked_for_first() {
        let accept = |text: &str| HeaderMap::from_iter([(header::ACCEPT, text.parse().unwrap())]);
        for (asked, accepted, format) in [
            (None, "*/*", Format::Page),
            (None, "text/csv", Format::Csv),
            (None, "text/html, Text/CSV;q=0.5", Format::Csv),
            (None, "application/x-ndjson", Format::Ndjson),
            (None, "application/json, text/csv", Format::Page),
            (None, "image/png", Format::Page),
            (Some("csv"), "application/json", Format::Csv),
            (Some("json"), "text/csv", Format::Page),
        ] {
            let wanted = Format::wanted(asked, &accept(accepted)).unwrap();
            assert_eq!(wanted, format, "case: {asked:?} {accepted}");
        }
        assert!(Format::wanted(Some("xml"), &HeaderMap::new()).is_err());
    }
}
