//! `surehook routes try`: what a filter and a transform would do.

use anyhow::anyhow;
use serde_json::{Value, json};

use super::files;
use crate::{
    cli::{Remote, RoutesCommand},
    client::Client,
    failure::Failure,
    output,
};

pub(super) async fn run(command: RoutesCommand) -> Result<(), Failure> {
    let RoutesCommand::Try { filter, transform, event, body, exact, remote } = command;
    let body = body.as_deref().map(files::read_text).transpose()?;
    let wish = json!({
        "filter": filter,
        "transform": transform,
        "event": event,
        "body": body,
        "exact": exact,
    });
    let tried = Client::new(&remote)?.post_json("/routes/try", &wish).await?;
    tell(&remote, &tried)
}

fn tell(remote: &Remote, tried: &Value) -> Result<(), Failure> {
    if remote.json {
        output::line(&tried.to_string())?;
    } else {
        match tried["matches"].as_bool() {
            Some(true) => output::note("the filter takes it"),
            Some(false) => output::note("the filter does not take it"),
            None => {}
        }
        if tried["dropped"] == true {
            output::note("the transform drops it: nothing would be sent");
        }
        if let Some(sent) = tried["output"].as_str() {
            output::line(sent)?;
        }
        if tried["masked"].as_u64().is_some_and(|masked| masked > 0) {
            output::note("note: secrets were masked as ••• before; --exact shows them");
        }
    }
    let errors: Vec<&str> = ["filter_error", "transform_error"]
        .iter()
        .filter_map(|name| tried[name].as_str())
        .collect();
    if errors.is_empty() {
        return Ok(());
    }
    Err(Failure::refused(anyhow!("{}", errors.join("; "))))
}
