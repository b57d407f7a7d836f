//! `surehook send-test`: realistic events for a source, signed as the source wants them.

mod sample;
mod sign;

use std::time::{Duration, Instant};

use anyhow::anyhow;
use bytes::Bytes;
use http::StatusCode;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use surehook_core::{
    provider::{self, Provider, SampleEvent},
    time::Clock as _,
};
use surehook_engine::system::SystemClock;

use self::sign::Signer;
use super::files;
use crate::{cli::SendTestArgs, client::Client, failure::Failure, output};

/// So many requests are worth a bar.
const LONG: u64 = 50;

pub(super) async fn run(args: &SendTestArgs) -> Result<(), Failure> {
    if args.list
        && let Some(preset) = provider::find(&args.what)
    {
        return list(args, preset);
    }
    let client = Client::new(&args.remote)?;
    let source = target(&client, args).await?;
    let name = source["provider"].as_str().unwrap_or("generic");
    let preset = provider::find(name).ok_or_else(|| {
        Failure::refused(anyhow!("the provider `{name}` is not known to this version"))
    })?;
    if args.list {
        return list(args, preset);
    }
    let samples = chosen(args, preset)?;
    let signer = Signer::new(&client, &source, preset, args)?;
    let body = args.body.as_deref().map(files::read).transpose()?.map(Bytes::from);
    let sending = Sending { args, preset, signer, body };
    sending.send_all(&client, &samples).await
}

fn list(args: &SendTestArgs, preset: &dyn Provider) -> Result<(), Failure> {
    for sample in preset.samples() {
        let line = match args.remote.json {
            true => json!({ "preset": preset.name(), "kind": sample.kind }).to_string(),
            false => sample.kind.to_owned(),
        };
        output::line(&line)?;
    }
    Ok(())
}

/// The source that is meant: the one of that name, or the only one of that provider.
async fn target(client: &Client, args: &SendTestArgs) -> Result<Value, Failure> {
    if let Some(to) = &args.to {
        let source = client.get(&format!("/sources/{to}")).await?;
        let provider = source["provider"].as_str().unwrap_or_default();
        if provider == args.what || args.what == *to {
            return Ok(source);
        }
        let error = anyhow!("`{to}` is a source of {provider}, not of {}", args.what);
        return Err(Failure::refused(error));
    }
    let answer = client.get("/sources").await?;
    let all = answer["data"].as_array().cloned().unwrap_or_default();
    if let Some(named) = all.iter().find(|source| source["name"] == args.what.as_str()) {
        return Ok(named.clone());
    }
    let is_preset = provider::find(&args.what).is_some();
    let of_preset: Vec<&Value> =
        all.iter().filter(|source| source["provider"] == args.what.as_str()).collect();
    match of_preset[..] {
        [only] => Ok(only.clone()),
        [] if is_preset => Err(Failure::not_found(anyhow!("there is no source of {}", args.what))
            .hint("create one, or name another source")),
        [] => {
            Err(Failure::not_found(anyhow!("there is no such source or provider: {}", args.what)))
        }
        _ => {
            let names: Vec<String> =
                of_preset.iter().map(|one| output::cell(&one["name"])).collect();
            let error = anyhow!("several sources are of {}: {}", args.what, names.join(", "));
            Err(Failure::refused(error).hint("name one with --to"))
        }
    }
}

fn chosen(
    args: &SendTestArgs,
    preset: &'static dyn Provider,
) -> Result<Vec<&'static SampleEvent>, Failure> {
    let samples: Vec<_> = preset
        .samples()
        .iter()
        .filter(|sample| args.kind.as_ref().is_none_or(|kind| kind == sample.kind))
        .collect();
    if samples.is_empty() {
        let kind = args.kind.as_deref().unwrap_or("any");
        let error = anyhow!("{} has no sample of the kind `{kind}`", preset.name());
        return Err(Failure::refused(error).hint("--list names the kinds"));
    }
    // A body of one's own is sent once, whatever the kinds are.
    let many = if args.body.is_some() { 1 } else { samples.len() };
    Ok(samples.into_iter().take(many).collect())
}

struct Sending<'a> {
    args: &'a SendTestArgs,
    preset: &'static dyn Provider,
    signer: Signer,
    body: Option<Bytes>,
}

/// What came of all.
#[derive(Default)]
struct Tally {
    refused: Option<String>,
    taken: u64,
}

impl Sending<'_> {
    async fn send_all(&self, client: &Client, samples: &[&SampleEvent]) -> Result<(), Failure> {
        let copies = if self.args.dup { 2 } else { 1 };
        let total = u64::from(self.args.count) * samples.len() as u64 * copies;
        let bar = match total > LONG && output::shows_progress() {
            true => ProgressBar::new(total),
            false => ProgressBar::hidden(),
        };
        let mut blanks = sample::Source::new(self.args.seed);
        let mut tally = Tally::default();
        let mut pace = Pace::new(self.args.rate.map(|rate| rate.interval()));
        for _ in 0..self.args.count {
            for sample in samples {
                let blanks = blanks.next(SystemClock.now());
                for _ in 0..copies {
                    pace.wait().await;
                    let sent = self.signer.request(&blanks, sample, self.body.as_ref())?;
                    let (status, answer) = client.exchange(sent).await?;
                    let answer = serde_json::from_slice(&answer).unwrap_or(Value::Null);
                    bar.suspend(|| self.print(sample, status, &answer))?;
                    bar.inc(1);
                    if status.is_success() {
                        tally.taken += 1;
                    } else {
                        let why = answer["detail"].as_str().unwrap_or("no reason");
                        tally.refused = Some(why.to_owned());
                    }
                }
            }
        }
        bar.finish_and_clear();
        self.judge(tally)
    }

    fn judge(&self, tally: Tally) -> Result<(), Failure> {
        match tally.refused {
            _ if self.args.bad_sig && tally.taken > 0 => Err(Failure::refused(anyhow!(
                "{} requests with a wrong signature were taken in",
                tally.taken
            ))),
            Some(_) if self.args.bad_sig => {
                output::note("every wrong signature was refused, as it should be");
                Ok(())
            }
            Some(detail) => Err(Failure::refused(anyhow!("the gateway refused: {detail}"))
                .hint("is this the source's secret? give it with --secret")),
            None => {
                output::note("where it went: surehook events show ID");
                Ok(())
            }
        }
    }

    fn print(
        &self,
        sample: &SampleEvent,
        status: StatusCode,
        answer: &Value,
    ) -> Result<(), Failure> {
        let code = status.as_u16();
        if self.args.remote.json {
            let line = json!({ "http_status": code, "kind": sample.kind, "answer": answer });
            return Ok(output::line(&line.to_string())?);
        }
        // Whoever sends one of one kind knows what it is.
        let kind = match self.preset.samples().len() {
            0 | 1 => String::new(),
            _ => format!("  {}", sample.kind),
        };
        let events = answer["events"].as_array().cloned().unwrap_or_default();
        if events.is_empty() {
            let said = if status.is_success() { &answer["status"] } else { &answer["code"] };
            return Ok(output::line(&format!("{code}  {}{kind}", output::cell(said)))?);
        }
        for event in events {
            let [word, id] = ["status", "id"].map(|name| output::cell(&event[name]));
            output::line(&format!("{code}  {word}  {id}{kind}"))?;
        }
        Ok(())
    }
}

/// Keeps requests apart. What comes late is not made up for by a burst.
struct Pace {
    interval: Option<Duration>,
    next: Option<Instant>,
}

impl Pace {
    fn new(interval: Option<Duration>) -> Self {
        Self { interval, next: None }
    }

    async fn wait(&mut self) {
        let Some(interval) = self.interval else { return };
        let now = Instant::now();
        let due = self.next.unwrap_or(now).max(now);
        tokio::time::sleep(due - now).await;
        self.next = Some(due + interval);
    }
}
