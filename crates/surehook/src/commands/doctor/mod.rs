//! `surehook doctor`: diagnoses problems and says what to do about them.
//!
//! Changes nothing and takes no lock, so it may run beside a gateway. The only file it writes is a
//! temporary one in the data folder, to measure fsync. With `--repair` it repairs a damaged folder
//! instead.

mod configuration;
mod database;
mod disk;
mod repair;
mod server;
mod store;

use clap::Args;
use serde_json::json;
use surehook_engine::system::SystemClock;
use surehook_types::time::Clock as _;

use crate::{
    backend::StoreLocation,
    cli::LocalArgs,
    error::CliError,
    output::{self, OutputStyle, style},
    settings::{self, Settings},
};

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    local: LocalArgs,
    /// Also check whether this gateway is ready
    #[arg(long, env = "SUREHOOK_SERVER")]
    server: Option<String>,
    /// API token
    #[arg(long, env = "SUREHOOK_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Connect to each destination, without sending a request
    #[arg(long)]
    probe: bool,
    /// Accept the loss of commits in a damaged data folder, so that the gateway starts again; the
    /// damaged files are kept
    #[arg(long)]
    repair: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FindingLevel {
    Ok,
    /// Works, but needs attention.
    Warning,
    /// Does not work.
    Failed,
}

impl FindingLevel {
    fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warn",
            Self::Failed => "fail",
        }
    }

    fn style(self) -> OutputStyle {
        match self {
            Self::Ok => OutputStyle::Success,
            Self::Warning => OutputStyle::Warning,
            Self::Failed => OutputStyle::Error,
        }
    }
}

/// Result of one check.
#[derive(Debug)]
struct Finding {
    check: &'static str,
    level: FindingLevel,
    message: String,
    /// What to do; set unless the check passed, and for a recommendation.
    advice: Option<String>,
}

/// The results of all checks, in order.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn ok(&mut self, check: &'static str, message: impl Into<String>) {
        let (level, message) = (FindingLevel::Ok, message.into());
        self.0.push(Finding { check, level, message, advice: None });
    }

    /// A passed check with something that would be better.
    fn recommend(
        &mut self,
        check: &'static str,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) {
        let (message, advice) = (message.into(), Some(advice.into()));
        self.0.push(Finding { check, level: FindingLevel::Ok, message, advice });
    }

    fn warn(&mut self, check: &'static str, message: impl Into<String>, advice: impl Into<String>) {
        let (message, advice) = (message.into(), Some(advice.into()));
        self.0.push(Finding { check, level: FindingLevel::Warning, message, advice });
    }

    fn fail(&mut self, check: &'static str, message: impl Into<String>, advice: impl Into<String>) {
        let (message, advice) = (message.into(), Some(advice.into()));
        self.0.push(Finding { check, level: FindingLevel::Failed, message, advice });
    }
}

pub(super) async fn run(args: &DoctorArgs) -> Result<(), CliError> {
    if args.repair {
        return repair::run(&args.local);
    }
    let mut findings = Findings::default();
    let settings = check_settings(args, &mut findings);
    let now = SystemClock.now();
    match &settings.database {
        Some(database) => database::check(&settings, database, &mut findings).await,
        None if disk::check(&settings.data, &mut findings) => {
            store::check(&settings, now, &mut findings);
        }
        None => {}
    }
    let store = StoreLocation::of_settings(&settings).open_read_only().await.ok();
    configuration::check(&settings, store.as_deref(), args.probe, &mut findings).await;
    if let Some(server) = &args.server {
        server::check(server, args.token.as_deref(), &mut findings).await;
    }
    print_findings(&findings, args.local.json)?;
    let all_ok = findings.0.iter().all(|finding| finding.level == FindingLevel::Ok);
    if all_ok { Ok(()) } else { Err(CliError::findings()) }
}

/// The settings, or the defaults if they are invalid, so that the other checks still run.
fn check_settings(args: &DoctorArgs, findings: &mut Findings) -> Settings {
    let serve = args.local.serve_args();
    let file = settings::settings_file(&serve);
    let from =
        file.map_or_else(|| "no settings file".to_owned(), |file| file.display().to_string());
    match Settings::load(&serve) {
        Ok(settings) => {
            findings.ok("settings", format!("valid ({from})"));
            for warning in &settings.warnings {
                let advice = "Rename the variable, or unset it.";
                findings.warn("settings", warning.as_str(), advice);
            }
            settings
        }
        Err(error) => {
            findings.fail(
                "settings",
                format!("{error:#}"),
                "Fix the settings; see docs/reference/settings.md.",
            );
            let mut settings = Settings::default();
            settings.data = serve.data.unwrap_or(settings.data);
            settings.database = serve.database;
            settings
        }
    }
}

fn print_findings(findings: &Findings, as_json: bool) -> Result<(), CliError> {
    for Finding { check, level, message, advice } in &findings.0 {
        if as_json {
            output::print_line(json!({
                "check": check, "level": level.label(), "finding": message, "advice": advice,
            }))?;
            continue;
        }
        let label = style(level.style(), &format!("{:4}", level.label()));
        output::print_line(format!("{label}  {check:12}  {}", output::escape_control(message)))?;
        if let Some(advice) = advice {
            let advice = format!("{:20}{}", "", output::escape_control(advice));
            output::print_line(style(OutputStyle::Dim, &advice))?;
        }
    }
    let count = |level| findings.0.iter().filter(|finding| finding.level == level).count();
    let (failed, warnings) = (count(FindingLevel::Failed), count(FindingLevel::Warning));
    output::note(&format!("{failed} failed, {warnings} warnings, {} ok", count(FindingLevel::Ok)));
    Ok(())
}
