//! `surehook sign`: prints signature headers for a body.

use anyhow::anyhow;
use serde_json::{Map, json};
use surehook_webhooks::{request::OutgoingRequest, verify::RequestSignature};

use super::{OfflineSource, SignArgs, now, request::OfflineRequest};
use crate::{commands::files, error::CliError, output};

pub(in crate::commands) fn run(args: &SignArgs) -> Result<(), CliError> {
    let source = OfflineSource::new(&args.preset, &args.request_args)?;
    let mut request = OfflineRequest::new(files::read(&args.file)?);
    for line in &args.request_args.headers {
        request.add_header(line)?;
    }
    let now = now(&args.request_args)?;
    let default_url = format!("http://127.0.0.1:8080/in/{}", args.preset);
    let url = args.request_args.url.as_deref().unwrap_or(&default_url);
    let id = args.id.clone().unwrap_or_else(|| format!("msg_{}", now.as_millis()));
    let outgoing = OutgoingRequest { id: &id, url, headers: &request.headers, body: &request.body };
    let signed = source.config.verifier.sign(&outgoing, now).map_err(CliError::refused)?;
    if args.request_args.json {
        let headers: Map<_, _> =
            signed.headers.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
        let RequestSignature { path, query, .. } = signed;
        return output::print_line(json!({ "headers": headers, "path": path, "query": query }));
    }
    if args.curl {
        let mut line = format!("curl -X POST {}", shell_quote(&signed.signed_url(url)));
        let json_type = ("content-type".to_owned(), "application/json".to_owned());
        let has_content_type = request.headers.contains_key(http::header::CONTENT_TYPE);
        let request_headers = request.headers.iter().map(|(name, value)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        });
        let signature =
            signed.headers.iter().map(|(name, value)| (name.to_string(), value.clone()));
        for (name, value) in (!has_content_type)
            .then_some(json_type)
            .into_iter()
            .chain(request_headers)
            .chain(signature)
        {
            line.push_str(&format!(" -H {}", shell_quote(&format!("{name}: {value}"))));
        }
        let file = shell_quote(&format!("@{}", args.file.display()));
        return output::print_line(format!("{line} --data-binary {file}"));
    }
    if signed.headers.is_empty() && !signed.changes_url() {
        return Err(CliError::refused(anyhow!(
            "nothing to sign: this source does not verify signatures"
        )));
    }
    for (name, value) in &signed.headers {
        output::print_line(format!("{name}: {value}"))?;
    }
    if signed.changes_url() {
        output::print_line(format!("url: {}", signed.signed_url(url)))?;
    }
    Ok(())
}

fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
