//! Lists of the API, one page as a table.

use serde_json::Value;
use surehook_api::ApiCall;

use crate::{
    cli::{GatewayArgs, PageArgs},
    client::ApiClient,
    error::CliError,
    output,
};

/// Titles and fields of a table.
pub(super) type Columns = [(&'static str, &'static str)];

/// Gets a page of a list and prints it.
pub(super) async fn print_page<T>(
    args: &PageArgs,
    call: ApiCall<T>,
    columns: &Columns,
    empty: &str,
) -> Result<(), CliError> {
    let call = call.query("limit", &args.limit.to_string());
    let call = call.query_some("cursor", args.cursor.as_deref());
    let list = ApiClient::new(&args.remote)?.call_json(call).await?;
    print_list(&args.remote, &list, columns, empty)
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
