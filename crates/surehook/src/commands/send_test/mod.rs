//! `surehook send-test`: sends signed, realistic events to a source.

mod sample;
mod sign;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use bytes::Bytes;
use clap::Args;
use http::{Request, StatusCode};
use http_body_util::Full;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use surehook_api::calls;
use surehook_engine::system::{SystemClock, SystemRng};
use surehook_retry::rate::Rate;
use surehook_types::{rng::Rng as _, secret::Secret, time::Clock as _};
use surehook_webhooks::provider::{self, Provider, SampleEvent};

use self::sign::Signer;
use super::files;
use crate::{cli::GatewayArgs, client::ApiClient, error::CliError, output};

#[derive(Debug, Args)]
#[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
pub(crate) struct SendTestArgs {
    /// Source name, or a provider with exactly one source
    #[arg(value_name = "SOURCE|PRESET")]
    source_or_preset: String,
    /// Source, if the provider has several
    #[arg(long, value_name = "SOURCE")]
    to: Option<String>,
    /// Event kind [default: one of each]
    #[arg(long)]
    kind: Option<String>,
    /// List the available kinds and exit
    #[arg(long)]
    list: bool,
    /// Send this file as the body; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// Number of events per kind
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// Rate limit, such as 50/s
    #[arg(long)]
    rate: Option<Rate>,
    /// Seed for reproducible ids and bodies
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Send each event twice, to test deduplication
    #[arg(long)]
    dup: bool,
    /// Send invalid signatures, to test that they are refused
    #[arg(long)]
    bad_sig: bool,
    /// Secret of the source, for signing; not needed if the source uses `env:NAME` and NAME is set
    /// here
    #[arg(long, env = "SUREHOOK_SECRET", hide_env_values = true)]
    secret: Option<String>,
    #[command(flatten)]
    remote: GatewayArgs,
}

/// From this many requests on, a progress bar is shown.
const PROGRESS_BAR_MIN: u64 = 50;

pub(super) async fn run(args: &SendTestArgs) -> Result<(), CliError> {
    if args.list
        && let Some(preset) = provider::find(&args.source_or_preset)
    {
        return list_kinds(args, preset);
    }
    let client = ApiClient::new(&args.remote)?;
    let source = find_source(&client, args).await?;
    let name = source["provider"].as_str().unwrap_or("generic");
    let preset = provider::find(name).ok_or_else(|| {
        CliError::refused(anyhow!("this version does not support the provider `{name}`"))
    })?;
    if args.list {
        return list_kinds(args, preset);
    }
    let samples = choose_samples(args, preset)?;
    let origin = find_origin(&client, &source).await?;
    let signer = Signer::new(&client, &source, preset, origin, args)?;
    let body = args.body.as_deref().map(files::read).transpose()?.map(Bytes::from);
    let sender = TestSender { args, preset, signer, body };
    sender.send_all(&client, &samples).await
}

fn list_kinds(args: &SendTestArgs, preset: &Provider) -> Result<(), CliError> {
    for sample in preset.samples {
        let value = json!({ "preset": preset.name, "kind": sample.kind });
        output::print_result(args.remote.json, &value, sample.kind)?;
    }
    Ok(())
}

/// The source with that name, or the only source of that provider. Returns its JSON, because a source
/// with masked secrets is not a valid spec.
async fn find_source(client: &ApiClient, args: &SendTestArgs) -> Result<Value, CliError> {
    let name_or_provider = args.source_or_preset.as_str();
    if let Some(to) = &args.to {
        let source = client.call_json(calls::get_source(to)).await?;
        let provider = source["provider"].as_str().unwrap_or_default();
        if provider == name_or_provider || name_or_provider == to {
            return Ok(source);
        }
        let error = anyhow!("source `{to}` has the provider {provider}, not {name_or_provider}");
        return Err(CliError::refused(error));
    }
    let mut list = client.call_json(calls::list_sources()).await?;
    let sources = list["data"].as_array_mut().map(std::mem::take).unwrap_or_default();
    if let Some(named) = sources.iter().find(|source| source["name"] == name_or_provider) {
        return Ok(named.clone());
    }
    let matching: Vec<Value> =
        sources.into_iter().filter(|source| source["provider"] == name_or_provider).collect();
    match &matching[..] {
        [only] => Ok(only.clone()),
        [] if provider::find(name_or_provider).is_some() => {
            Err(CliError::not_found(anyhow!("no source has the provider {name_or_provider}"))
                .hint("Create one, or use another source."))
        }
        [] => Err(CliError::not_found(anyhow!("No such source or provider: {name_or_provider}"))),
        several => {
            let names: Vec<String> =
                several.iter().map(|source| output::format_value(&source["name"])).collect();
            let names = names.join(", ");
            let error = anyhow!("several sources have the provider {name_or_provider}: {names}");
            Err(CliError::refused(error).hint("Choose one with --to."))
        }
    }
}

/// The URL that some providers sign: of the source, of the gateway, or the one we call.
async fn find_origin(client: &ApiClient, source: &Value) -> Result<String, CliError> {
    if let Some(origin) = source["public_url"].as_str() {
        return Ok(origin.to_owned());
    }
    let about = client.call_json(calls::get_about()).await?;
    Ok(about["public_url"].as_str().unwrap_or(client.base_url()).to_owned())
}

fn choose_samples(
    args: &SendTestArgs,
    preset: &'static Provider,
) -> Result<Vec<&'static SampleEvent>, CliError> {
    let samples: Vec<_> = preset
        .samples
        .iter()
        .filter(|sample| args.kind.as_ref().is_none_or(|kind| kind == sample.kind))
        .collect();
    if samples.is_empty() {
        let kind = args.kind.as_deref().unwrap_or("any");
        let error = anyhow!("{} has no sample event of the kind `{kind}`", preset.name);
        return Err(CliError::refused(error).hint("Use --list to see the available kinds."));
    }
    // A custom body is sent once, not per kind.
    let count = if args.body.is_some() { 1 } else { samples.len() };
    Ok(samples.into_iter().take(count).collect())
}

/// Signed sample events for one source, for `surehook demo`.
pub(super) struct SampleSender {
    signer: Signer,
    forging_signer: Signer,
    preset: &'static Provider,
}

impl SampleSender {
    pub(super) fn new(
        base_url: &str,
        source: &str,
        provider: &str,
        secret: &str,
    ) -> Result<Self, CliError> {
        let preset = provider::find(provider)
            .ok_or_else(|| CliError::refused(anyhow!("unknown provider `{provider}`")))?;
        let signer = |has_invalid_signature| {
            let verifier = preset.verifier(vec![Secret::new(secret)])?;
            Ok::<_, CliError>(Signer::of(verifier, source, base_url, has_invalid_signature))
        };
        Ok(Self { signer: signer(false)?, forging_signer: signer(true)?, preset })
    }

    /// A request with a random sample, signed now.
    pub(super) fn next_request(&self, is_forged: bool) -> Result<Request<Full<Bytes>>, CliError> {
        let samples = self.preset.samples;
        let position = SystemRng.next_u128() % samples.len().max(1) as u128;
        let sample = usize::try_from(position).ok().and_then(|position| samples.get(position));
        let sample = sample.ok_or_else(|| CliError::refused(anyhow!("no sample events")))?;
        let values = sample::SampleGenerator::new(None).next(SystemClock.now());
        let signer = if is_forged { &self.forging_signer } else { &self.signer };
        signer.request(&values, sample, None)
    }
}

struct TestSender<'a> {
    args: &'a SendTestArgs,
    preset: &'static Provider,
    signer: Signer,
    body: Option<Bytes>,
}

/// Results of all requests.
#[derive(Default)]
struct SendCounts {
    accepted: u64,
    /// The reason for the last refusal.
    last_refusal: Option<String>,
}

impl TestSender<'_> {
    async fn send_all(&self, client: &ApiClient, samples: &[&SampleEvent]) -> Result<(), CliError> {
        let times = if self.args.dup { 2 } else { 1 };
        let total = u64::from(self.args.count) * samples.len() as u64 * times;
        let bar = match total > PROGRESS_BAR_MIN && output::shows_progress() {
            true => ProgressBar::new(total),
            false => ProgressBar::hidden(),
        };
        let mut generator = sample::SampleGenerator::new(self.args.seed);
        let mut counts = SendCounts::default();
        let mut limiter = RateLimiter::new(self.args.rate.map(|rate| rate.interval()));
        for _ in 0..self.args.count {
            for sample in samples {
                let values = generator.next(SystemClock.now());
                for _ in 0..times {
                    limiter.wait().await;
                    let request = self.signer.request(&values, sample, self.body.as_ref())?;
                    let (head, body) = client.exchange(request).await?.into_parts();
                    let status = head.status;
                    let response = serde_json::from_slice(&body).unwrap_or(Value::Null);
                    bar.suspend(|| self.print_response(sample, status, &response))?;
                    bar.inc(1);
                    if status.is_success() {
                        counts.accepted += 1;
                    } else {
                        let reason = response["detail"].as_str().unwrap_or("no details");
                        counts.last_refusal = Some(reason.to_owned());
                    }
                }
            }
        }
        bar.finish_and_clear();
        self.check_result(counts)
    }

    fn check_result(&self, counts: SendCounts) -> Result<(), CliError> {
        match counts.last_refusal {
            _ if self.args.bad_sig && counts.accepted > 0 => Err(CliError::refused(anyhow!(
                "{} requests with an invalid signature were accepted",
                counts.accepted
            ))),
            Some(_) if self.args.bad_sig => {
                output::note("All invalid signatures were refused, as expected.");
                Ok(())
            }
            Some(detail) => Err(CliError::refused(anyhow!("refused by the gateway: {detail}"))
                .hint("Check the secret of the source; pass it with --secret.")),
            None => {
                output::note("See the deliveries with: surehook events show ID");
                Ok(())
            }
        }
    }

    fn print_response(
        &self,
        sample: &SampleEvent,
        status: StatusCode,
        response: &Value,
    ) -> Result<(), CliError> {
        let code = status.as_u16();
        if self.args.remote.json {
            let line = json!({ "http_status": code, "kind": sample.kind, "answer": response });
            return output::print_line(line);
        }
        // The kind is omitted if the preset has only one.
        let kind = match self.preset.samples.len() {
            0 | 1 => String::new(),
            _ => format!("  {}", sample.kind),
        };
        let events = response["events"].as_array().map(Vec::as_slice).unwrap_or_default();
        if events.is_empty() {
            let text = if status.is_success() { &response["status"] } else { &response["code"] };
            return output::print_line(format!("{code}  {}{kind}", output::format_value(text)));
        }
        events.iter().try_for_each(|event| {
            let [status, id] = ["status", "id"].map(|name| output::format_value(&event[name]));
            output::print_line(format!("{code}  {status}  {id}{kind}"))
        })
    }
}

/// Limits the request rate, without bursts after a delay.
struct RateLimiter {
    interval: Option<Duration>,
    next: Option<Instant>,
}

impl RateLimiter {
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
