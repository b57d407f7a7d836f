//! `surehook replay`: delivering again in bulk, seen before it is done and followed to its end.

use std::{
    io::{BufRead as _, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::events::print_list;
use crate::{
    cli::{CreateArgs, JobArgs, Paging, Remote, ReplayCommand, RunArgs},
    client::{Client, query},
    failure::Failure,
    output,
};

const COLUMNS: [(&str, &str); 9] = [
    ("job", "id"),
    ("verb", "verb"),
    ("state", "state"),
    ("selected", "selected"),
    ("succeeded", "succeeded"),
    ("dead", "dead"),
    ("skipped", "skipped"),
    ("waiting", "waiting"),
    ("created", "created_at"),
];

const NUMBERS: [&str; 8] =
    ["selected", "dispatched", "succeeded", "dead", "cancelled", "skipped", "waiting", "left"];

/// How often a job is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// A gateway that is started again within this time is waited for: its jobs go on.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn run(command: ReplayCommand) -> Result<(), Failure> {
    match command {
        ReplayCommand::Create(args) => create(&args).await,
        ReplayCommand::List { paging, remote } => list(&remote, &paging).await,
        ReplayCommand::Show(JobArgs { id, remote }) => {
            let job = Client::new(&remote)?.get(&format!("/replays/{id}")).await?;
            print(&remote, &job)
        }
        ReplayCommand::Watch(JobArgs { id, remote }) => {
            watch(&Client::new(&remote)?, &remote, &id).await
        }
        ReplayCommand::Pause(args) => change(&args, "pause").await,
        ReplayCommand::Resume(args) => change(&args, "resume").await,
        ReplayCommand::Cancel(args) => change(&args, "cancel").await,
    }
}

async fn list(remote: &Remote, paging: &Paging) -> Result<(), Failure> {
    let limit = paging.limit.to_string();
    let query = query(&[("limit", Some(&limit)), ("cursor", paging.cursor.as_deref())]);
    let answer = Client::new(remote)?.get(&format!("/replays{query}")).await?;
    print_list(remote, &answer, &COLUMNS, "No replay jobs.")
}

async fn change(args: &JobArgs, what: &str) -> Result<(), Failure> {
    let JobArgs { id, remote } = args;
    let job = Client::new(remote)?.post(&format!("/replays/{id}/{what}")).await?;
    print(remote, &job)
}

async fn create(args: &CreateArgs) -> Result<(), Failure> {
    let mut filter = args.filter.json();
    if let Some(status) = &args.status {
        filter.insert("status".to_owned(), json!(status));
    }
    let job = json!({ "verb": args.verb.replace('-', "_"), "filter": filter, "to": args.to });
    start(&args.remote, job, &args.run).await
}

/// Shows what a job would do, asks, makes it, and follows it.
pub(super) async fn start(remote: &Remote, mut job: Value, run: &RunArgs) -> Result<(), Failure> {
    let client = Client::new(remote)?;
    if let Some(rate) = &run.rate {
        job["rate"] = json!(rate);
    }
    job["note"] = json!(run.note);
    job["dry_run"] = json!(true);
    let preview = client.post_json("/replays", &job).await?;
    let nothing = preview["count"] == 0;
    if remote.json && (run.dry_run || nothing) {
        return Ok(output::line(&preview.to_string())?);
    }
    // What a program reads is the job; what a person is asked about goes beside it.
    let said = summary(&preview);
    if run.dry_run || nothing {
        return Ok(output::line(&said)?);
    }
    output::note(&said);
    if !run.yes {
        confirm()?;
    }
    job["dry_run"] = json!(false);
    let made = client.post_json("/replays", &job).await?;
    let id = made["id"].as_str().unwrap_or_default().to_owned();
    if run.detach {
        let said = format!("{id} is on its way; `surehook replay watch {id}` follows it");
        return Ok(output::line(&if remote.json { made.to_string() } else { said })?);
    }
    watch(&client, remote, &id).await
}

/// A preview in one sentence.
fn summary(preview: &Value) -> String {
    let count = &preview["count"];
    if *count == 0 {
        return "Nothing matches; there is nothing to deliver.".to_owned();
    }
    let by: Vec<String> = preview["by_destination"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, many)| format!("{many} to {}", output::cell(&json!(name))))
        .collect();
    let more = if preview["complete"] == true { "" } else { " or more" };
    let seconds = preview["estimate_seconds"].as_f64().unwrap_or(0.0);
    format!(
        "{count}{more} to deliver ({}), received from {} to {}; about {seconds} s at {}.",
        by.join(", "),
        output::cell(&preview["oldest"]),
        output::cell(&preview["newest"]),
        output::cell(&preview["rate"]),
    )
}

fn confirm() -> Result<(), Failure> {
    let mut stdin = std::io::stdin().lock();
    if !stdin.is_terminal() {
        let error = anyhow!("nobody is there to be asked; give --yes to go on, or --dry-run");
        return Err(Failure::refused(error));
    }
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "Go on? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure::refused(anyhow!("not confirmed; nothing was done")))
}

/// Follows a job until it and all its deliveries have ended.
async fn watch(client: &Client, remote: &Remote, id: &str) -> Result<(), Failure> {
    // Draws on a terminal only.
    let bar = if remote.json { ProgressBar::hidden() } else { ProgressBar::new(0) };
    bar.set_style(style()?);
    let mut last = Value::Null;
    let mut seen_at = Instant::now();
    let ended = loop {
        match client.get(&format!("/replays/{id}")).await {
            Ok(job) => {
                seen_at = Instant::now();
                show(&bar, &job);
                if remote.json && job != last {
                    output::line(&job.to_string())?;
                }
                if has_ended(&job) {
                    break job;
                }
                last = job;
            }
            // The job outlives the gateway: it goes on when that is started again.
            Err(failure) if failure.is_unreachable() && seen_at.elapsed() < PATIENCE => {
                bar.set_message("the gateway does not answer");
            }
            Err(failure) => return Err(failure),
        }
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {
                bar.finish_and_clear();
                let said = format!("the job goes on; `surehook replay watch {id}` follows it again");
                return Err(Failure::interrupted(anyhow!(said)));
            }
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    };
    bar.finish_and_clear();
    if !remote.json {
        print(remote, &ended)?;
    }
    match ended["dead"].as_u64().unwrap_or(0) {
        0 => Ok(()),
        dead => {
            let error = anyhow!("{dead} of {} died again", ended["dispatched"]);
            Err(Failure::partial(error))
        }
    }
}

fn has_ended(job: &Value) -> bool {
    job["state"] == "done" || (job["state"] == "cancelled" && job["waiting"] == 0)
}

fn style() -> Result<ProgressStyle, Failure> {
    let template = "{msg} [{wide_bar}] {pos}/{len} {percent}% {eta}";
    Ok(ProgressStyle::with_template(template)?.progress_chars("=> "))
}

fn show(bar: &ProgressBar, job: &Value) {
    let number = |name: &str| job[name].as_u64().unwrap_or(0);
    bar.set_length(number("selected"));
    bar.set_position(number("selected").saturating_sub(number("waiting")));
    let state = job["state"].as_str().unwrap_or_default();
    bar.set_message(match number("dead") {
        0 => state.to_owned(),
        dead => format!("{state}, {dead} dead"),
    });
}

fn print(remote: &Remote, job: &Value) -> Result<(), Failure> {
    if remote.json {
        return Ok(output::line(&job.to_string())?);
    }
    let mut shown = job.clone();
    shown["skipped_for"] = job["skipped_by_reason"].clone();
    let about = ["id", "verb", "filter", "to", "rate", "note", "state", "created_at", "ended_at"];
    let mut names = about.to_vec();
    names.extend(NUMBERS);
    if job["skipped"] != 0 {
        names.push("skipped_for");
    }
    Ok(output::fields(&shown, &names)?)
}
