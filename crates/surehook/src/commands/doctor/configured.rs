//! What is configured: can it be used, do its names resolve, may its addresses be called?

use std::{net::IpAddr, sync::Arc};

use http::Uri;
use surehook_core::{
    address::AddressPolicy,
    destination::{
        BUILTIN_INBOX,
        status_source::{
            MISSING_STATUS_SOURCE, MISSING_STATUS_SOURCE_ADVICE, without_status_source,
        },
    },
    quarantine::QuarantineStore as _,
    store::{AdminStore as _, Configuration, PageRequest, StoredObject},
    time::Clock as _,
};
use surehook_engine::{
    apply::plan_changes,
    connect::{ConnectError, GuardedConnector, SystemResolver},
    programs::AllowedPrograms,
    system::{SystemClock, SystemRng},
};

use super::Findings;
use crate::{
    commands::check::{Checked, check},
    folder,
    settings::{Settings, environment},
};

/// Of more in quarantine it is only said that there are more.
const MANY: usize = 1000;

pub(super) async fn look(settings: &Settings, probe: bool, findings: &mut Findings) {
    let configuration = configuration(settings).await;
    let policy = AddressPolicy::new(settings.allow_networks.clone());
    usable(&configuration, (&policy, &settings.allow_exec), findings);
    routed(&configuration, findings);
    verified(&configuration, settings.public_url.is_some(), findings);
    heard(&configuration, findings);
    quarantine(settings, findings).await;
    let connector = GuardedConnector::new(Arc::new(policy), Arc::new(SystemResolver));
    for destination in &configuration.destinations {
        let spec = &destination.spec;
        if spec.url != BUILTIN_INBOX
            && !spec.url.is_empty()
            && let Ok(uri) = spec.url.parse()
        {
            reach(spec.name.as_str(), &uri, &connector, probe, findings).await;
        }
    }
}

/// What the data folder has, and what the settings would make of it at the next start.
async fn configuration(settings: &Settings) -> Configuration {
    let mut there = match folder::open(&settings.data) {
        Ok(store) => store.configuration().await.unwrap_or_default(),
        Err(_) => Configuration::default(),
    };
    let now = SystemClock.now();
    let (changes, _) = plan_changes(&there, settings.wanted(), &SystemRng, now);
    there.apply(&changes, now);
    there
}

fn usable(
    configuration: &Configuration,
    (policy, programs): (&AddressPolicy, &AllowedPrograms),
    findings: &mut Findings,
) {
    let Checked { problems, unset } = check(configuration, policy, programs);
    if problems.is_empty() && unset.is_empty() {
        let Configuration { sources, destinations, routes, .. } = configuration;
        let (sources, destinations, routes) = (sources.len(), destinations.len(), routes.len());
        let said = format!("{sources} sources, {destinations} destinations, {routes} routes");
        findings.good("configured", said);
    }
    for problem in problems {
        findings.bad("configured", problem, "mend it with `surehook apply` or the API");
    }
    for name in unset {
        let advice = format!("set {name} for the gateway, or run doctor in its environment");
        findings.warn("secrets", format!("{name} is not set here"), advice);
    }
}

fn routed(configuration: &Configuration, findings: &mut Findings) {
    for source in &configuration.sources {
        let name = &source.spec.name;
        // A message says itself where it goes.
        let needs_route = !source.spec.is_outbox();
        if needs_route && !configuration.routes.iter().any(|route| route.spec.from == *name) {
            let advice = "add a route, or delete the source";
            findings.warn("routes", format!("events of `{name}` go nowhere"), advice);
        }
    }
}

/// What a provider signs is better checked.
fn verified(configuration: &Configuration, knows_address: bool, findings: &mut Findings) {
    for StoredObject { id, spec: source, .. } in &configuration.sources {
        // One that cannot be built was told of before.
        for said in
            source.build(*id, &environment).iter().flat_map(|built| built.warnings(knows_address))
        {
            let advice = format!("see docs/providers/{}.md", source.provider);
            findings.warn("verify", format!("`{}`: {said}", source.name), advice);
        }
        if source.provider != "generic" && !source.is_verified() {
            let said = format!("`{}` ({}) is unverified", source.name, source.provider);
            findings.warn("verify", said, "remove `verify = \"none\"` and give `secrets`");
        }
    }
}

/// Whether somebody takes in the statuses that messages wait for.
fn heard(configuration: &Configuration, findings: &mut Findings) {
    for destination in without_status_source(configuration) {
        findings.warn(
            "statuses",
            format!("`{}`: {MISSING_STATUS_SOURCE}", destination.name),
            MISSING_STATUS_SOURCE_ADVICE,
        );
    }
}

/// Whether requests wait for somebody to look at them.
async fn quarantine(settings: &Settings, findings: &mut Findings) {
    let Ok(store) = folder::open(&settings.data) else { return };
    let waiting = store.list_quarantined(None, PageRequest { after: None, limit: MANY }).await;
    let waiting = waiting.map_or(0, |waiting| waiting.len());
    if waiting > 0 {
        let more = if waiting == MANY { " or more" } else { "" };
        let said = format!("{waiting}{more} requests did not verify and wait");
        findings.warn("quarantine", said, "look at them: surehook quarantine list");
    }
}

async fn reach(
    name: &str,
    uri: &Uri,
    connector: &GuardedConnector,
    probe: bool,
    findings: &mut Findings,
) {
    let host = uri.host().unwrap_or_default();
    let found = connector.resolve_allowed(host).await;
    let said = |error: &dyn std::fmt::Display| format!("`{name}` ({host}): {error}");
    let found = match found {
        Ok(found) => found,
        Err(error @ ConnectError::Blocked(_)) => {
            let advice = "list its network in `allow_networks` if this is meant";
            return findings.bad("destination", said(&error), advice);
        }
        Err(error) => {
            let advice = "check the name and this machine's DNS; deliveries to it will wait";
            return findings.bad("destination", said(&error), advice);
        }
    };
    if probe && let Err(error) = connector.try_connect(uri.clone()).await {
        let advice = "is it running, and does a firewall let this machine through?";
        return findings.bad("destination", said(&error), advice);
    }
    let shown: Vec<String> = found.iter().map(IpAddr::to_string).collect();
    let done = if probe { "answers at" } else { "resolves to" };
    findings.good("destination", format!("`{name}` {done} {}", shown.join(", ")));
}
