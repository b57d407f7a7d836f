//! Lists of the API, one page as a table.

use serde_json::Value;

use crate::{
    cli::{GatewayArgs, PageArgs},
    client::{ApiClient, query_string},
    error::CliError,
    output,
};

/// Titles and fields of a table.
pub(super) type Columns = [(&'static str, &'static str)];

/// Gets a page of the list at `path` and prints it.
pub(super) async fn print_page(
    remote: &GatewayArgs,
    path: &str,
    filter: &[(&str, Option<&str>)],
    paging: &PageArgs,
    columns: &Columns,
    empty: &str,
) -> Result<(), CliError> {
    let limit = paging.limit.to_string();
    let page = [("limit", Some(limit.as_str())), ("cursor", paging.cursor.as_deref())];
    let query = query_string(&[filter, &page].concat());
    let list = ApiClient::new(remote)?.get(&format!("{path}{query}")).await?;
    print_list(remote, &list, columns, empty)
}

/// Prints a list, and the cursor of its next page.
pub(super) fn print_list(
    remote: &GatewayArgs,
    list: &Value,
    columns: &Columns,
    empty: &str,
) -> Result<(), CliError> {
    let rows = list["data"].as_array().cloned().unwrap_or_default();
    if remote.json {
        return output::print_json_lines(&rows);
    }
    let cursor = list["next_cursor"].as_str();
    match (rows.is_empty(), cursor) {
        (true, None) => output::note(empty),
        // A page examines a limited number of rows.
        (true, Some(cursor)) => {
            output::note(&format!("No match so far. Continue with --cursor {cursor}"));
        }
        (false, _) => output::print_table(columns, &rows)?,
    }
    if let Some(cursor) = cursor.filter(|_| !rows.is_empty()) {
        output::note(&format!("\nNext page: --cursor {cursor}"));
    }
    Ok(())
}
