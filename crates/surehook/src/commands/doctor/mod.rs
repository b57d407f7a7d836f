//! `surehook doctor`: looks for what is wrong or soon will be, and says what to do about it.
//!
//! Changes nothing and takes no lock, so it may run beside a gateway; the only thing written is a
//! file of its own in the data folder, to see how long a sync takes.

mod configured;
mod disk;
mod server;
mod store;

use serde_json::json;
use surehook_core::time::Clock as _;
use surehook_engine::system::SystemClock;

use crate::{
    cli::DoctorArgs,
    failure::Failure,
    output::{self, Tone, paint},
    settings::{self, Settings},
};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Good,
    /// It works, and still wants attention.
    Warn,
    /// It does not work.
    Bad,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Warn => "warn",
            Self::Bad => "fail",
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Good => Tone::Good,
            Self::Warn => Tone::Warn,
            Self::Bad => Tone::Bad,
        }
    }
}

/// What one look has shown.
#[derive(Debug)]
struct Finding {
    check: &'static str,
    level: Level,
    said: String,
    /// What to do; always there unless all is well.
    advice: Option<String>,
}

/// All that was found, in the order in which it was looked at.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn good(&mut self, check: &'static str, said: impl Into<String>) {
        self.0.push(Finding { check, level: Level::Good, said: said.into(), advice: None });
    }

    fn warn(&mut self, check: &'static str, said: impl Into<String>, advice: impl Into<String>) {
        let (said, advice) = (said.into(), Some(advice.into()));
        self.0.push(Finding { check, level: Level::Warn, said, advice });
    }

    fn bad(&mut self, check: &'static str, said: impl Into<String>, advice: impl Into<String>) {
        let (said, advice) = (said.into(), Some(advice.into()));
        self.0.push(Finding { check, level: Level::Bad, said, advice });
    }
}

pub(super) async fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let mut findings = Findings::default();
    let settings = read_settings(args, &mut findings);
    let now = SystemClock.now();
    if disk::look(&settings.data, &mut findings) {
        store::look(&settings.data, now, &mut findings);
    }
    configured::look(&settings, args.probe, &mut findings).await;
    if let Some(server) = &args.server {
        server::look(server, args.token.as_deref(), &mut findings).await;
    }
    print(&findings, args.json)?;
    let is_well = findings.0.iter().all(|finding| finding.level == Level::Good);
    if is_well { Ok(()) } else { Err(Failure::findings()) }
}

/// The settings, or those that there would be without any: the rest is looked at all the same.
fn read_settings(args: &DoctorArgs, findings: &mut Findings) -> Settings {
    let serve = args.place.serve_args();
    let file = settings::file(&serve);
    let from = file.map_or_else(|| "no file".to_owned(), |file| file.display().to_string());
    match Settings::load(&serve) {
        Ok(settings) => {
            findings.good("settings", format!("can be used ({from})"));
            settings
        }
        Err(error) => {
            findings.bad("settings", format!("{error:#}"), "mend it; see docs/settings.md");
            let mut settings = Settings::default();
            settings.data = serve.data.unwrap_or(settings.data);
            settings
        }
    }
}

fn print(findings: &Findings, as_json: bool) -> Result<(), Failure> {
    for Finding { check, level, said, advice } in &findings.0 {
        if as_json {
            let line = json!({
                "check": check, "level": level.word(), "finding": said, "advice": advice,
            });
            output::line(&line.to_string())?;
            continue;
        }
        let word = paint(level.tone(), &format!("{:4}", level.word()));
        output::line(&format!("{word}  {check:12}  {}", output::plain(said)))?;
        if let Some(advice) = advice {
            output::line(&paint(
                Tone::Dim,
                &format!("                    {}", output::plain(advice)),
            ))?;
        }
    }
    let count = |level| findings.0.iter().filter(|finding| finding.level == level).count();
    let (bad, warn) = (count(Level::Bad), count(Level::Warn));
    output::note(&format!("{bad} failed, {warn} to look at, {} fine", count(Level::Good)));
    Ok(())
}
