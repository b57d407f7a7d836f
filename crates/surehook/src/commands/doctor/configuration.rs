//! Checks the configuration: is it usable, do host names resolve, are addresses allowed?

use std::{net::IpAddr, sync::Arc};

use http::Uri;
use surehook_core::{
    destination::{
        BUILTIN_INBOX,
        status_source::{
            MISSING_STATUS_SOURCE, MISSING_STATUS_SOURCE_ADVICE, destinations_without_status_source,
        },
    },
    store::{Configuration, PageRequest, Store, StoredObject},
};
use surehook_engine::{
    apply::plan_changes,
    programs::AllowedPrograms,
    system::{SystemClock, SystemRng},
    variables::unlisted_references,
};
use surehook_guard::{
    address::AddressPolicy,
    connect::{ConnectError, GuardedConnector, SystemResolver},
};
use surehook_types::{secret::SecretError, time::Clock as _};

use super::Findings;
use crate::{
    commands::check::{self, ConfigCheckReport},
    settings::{Settings, environment},
};

/// Quarantined requests that are counted.
const QUARANTINED_MAX: usize = 1000;

/// `store` is that of the settings, if it can be opened.
pub(super) async fn check(
    settings: &Settings,
    store: Option<&dyn Store>,
    probe: bool,
    findings: &mut Findings,
) {
    let stored = match store {
        Some(store) => store.load_configuration().await.unwrap_or_default(),
        None => Configuration::default(),
    };
    let configuration = next_configuration(settings, stored.clone());
    let policy = AddressPolicy::new(settings.allow_networks.clone());
    let has_public_url = settings.public_url.is_some();
    let programs = &settings.allow_exec;
    check_usable(&stored, &configuration, &policy, programs, has_public_url, findings);
    check_routes(&configuration, findings);
    check_verification(&configuration, has_public_url, findings);
    check_signers(&configuration, findings);
    check_status_sources(&configuration, findings);
    check_variables(settings, &stored, findings);

    if let Some(store) = store {
        for warning in check::check_filters(&configuration, store).await {
            let advice = "Test the filter: surehook routes try.";
            findings.warn("filters", warning, advice);
        }
        check_quarantine(store, findings).await;
    }
    let connector = GuardedConnector::new(Arc::new(policy), Arc::new(SystemResolver));
    for destination in &configuration.destinations {
        let spec = &destination.spec;
        if spec.url != BUILTIN_INBOX
            && !spec.url.is_empty()
            && let Ok(uri) = spec.url.parse()
        {
            check_reachable(spec.name.as_str(), &uri, &connector, probe, findings).await;
        }
    }
}

/// The configuration that the next start would have: the data folder's with the settings applied.
fn next_configuration(settings: &Settings, mut configuration: Configuration) -> Configuration {
    let now = SystemClock.now();
    let (changes, _) =
        plan_changes(&configuration, settings.desired_configuration(), &SystemRng, now);
    configuration.apply(&changes, now);
    configuration
}

fn check_usable(
    stored: &Configuration,
    configuration: &Configuration,
    policy: &AddressPolicy,
    programs: &AllowedPrograms,
    has_public_url: bool,
    findings: &mut Findings,
) {
    let ConfigCheckReport { problems, unset, .. } =
        check::check(stored, configuration, policy, programs, has_public_url);
    if problems.is_empty() && unset.is_empty() {
        let Configuration { sources, destinations, routes, .. } = configuration;
        let (sources, destinations, routes) = (sources.len(), destinations.len(), routes.len());
        let message = format!("{sources} sources, {destinations} destinations, {routes} routes");
        findings.ok("configuration", message);
    }
    for problem in problems {
        findings.fail("configuration", problem, "Fix it with `surehook apply` or the API.");
    }
    for name in unset {
        let advice = format!("Set {name} for the gateway, or run doctor in its environment.");
        findings.warn("secrets", format!("{name} is not set here"), advice);
    }
}

fn check_routes(configuration: &Configuration, findings: &mut Findings) {
    for source in &configuration.sources {
        let name = &source.spec.name;
        // Messages name their destination.
        let needs_route = !source.spec.is_outbox();
        if needs_route && !configuration.routes.iter().any(|route| route.spec.from == *name) {
            let advice = "Add a route, or delete the source.";
            findings.warn("routes", format!("source `{name}` has no route"), advice);
        }
    }
}

fn check_verification(
    configuration: &Configuration,
    has_public_url: bool,
    findings: &mut Findings,
) {
    for StoredObject { id, spec: source, .. } in &configuration.sources {
        // Invalid sources are already reported, and so are rules that only older ones may break.
        if let Ok(built) = source.build(*id, &environment) {
            let is_lenient = configuration.past.lenient_sources.contains(id);
            let reported = built.check_new(has_public_url).err().filter(|_| !is_lenient);
            let reported = reported.map(|error| error.to_string());
            let warnings = built.with_leniency(is_lenient).warnings(has_public_url);
            for message in warnings.into_iter().filter(|warning| Some(warning) != reported.as_ref())
            {
                let advice = format!("See docs/guides/providers/{}.md.", source.provider);
                findings.warn("verify", format!("`{}`: {message}", source.name), advice);
            }
        }
        if source.provider != "generic" && !source.is_verified() {
            let message = format!(
                "source `{}` ({}) does not verify signatures",
                source.name, source.provider
            );
            findings.warn("verify", message, "Remove `verify = \"none\"` and set `secrets`.");
        }
    }
}

/// Warns about shared secrets of destinations that can be guessed. Those of sources are among their
/// other warnings.
fn check_signers(configuration: &Configuration, findings: &mut Findings) {
    for StoredObject { spec: destination, .. } in &configuration.destinations {
        let Some(sign_as) = &destination.sign_as else { continue };
        if let Err(error @ SecretError::Short { .. }) =
            sign_as.secret.check_length(&environment, "allow_short_secret")
        {
            let message = format!("`{}`: sign_as: {error}", destination.name);
            findings.warn("verify", message, "Agree on a longer secret with the receiver.");
        }
    }
}

/// Warns about messaging destinations whose status updates no source receives.
fn check_status_sources(configuration: &Configuration, findings: &mut Findings) {
    for destination in destinations_without_status_source(configuration) {
        findings.warn(
            "statuses",
            format!("`{}`: {MISSING_STATUS_SOURCE}", destination.name),
            MISSING_STATUS_SOURCE_ADVICE,
        );
    }
}

/// Warns about stored references to variables that neither `allow_env` nor the settings file has. They
/// work, but cannot be written again.
fn check_variables(settings: &Settings, stored: &Configuration, findings: &mut Findings) {
    let desired = settings.desired_configuration();
    for (object, name) in unlisted_references(stored, &desired, &settings.allow_env) {
        let advice = match name.starts_with("SUREHOOK_") {
            true => "It belongs to the gateway: use a variable with another name.".to_owned(),
            false => format!("Add {name} to `allow_env`, or remove the reference."),
        };
        let message = format!("{object} references {name}, which `allow_env` does not list");
        findings.warn("variables", message, advice);
    }
}

async fn check_quarantine(store: &dyn Store, findings: &mut Findings) {
    let requests =
        store.list_quarantined(None, PageRequest { after: None, limit: QUARANTINED_MAX }).await;
    let count = requests.map_or(0, |requests| requests.len());
    if count > 0 {
        let more = if count == QUARANTINED_MAX { " or more" } else { "" };
        let message = format!("{count}{more} quarantined requests");
        findings.warn("quarantine", message, "Inspect them: surehook quarantine list");
    }
}

async fn check_reachable(
    name: &str,
    uri: &Uri,
    connector: &GuardedConnector,
    probe: bool,
    findings: &mut Findings,
) {
    let host = uri.host().unwrap_or_default();
    let message = |error: &dyn std::fmt::Display| format!("`{name}` ({host}): {error}");
    let addresses = match connector.resolve_allowed(host).await {
        Ok(addresses) => addresses,
        Err(error @ ConnectError::Blocked(_)) => {
            let advice = "Add its network to `allow_networks` if this is intended.";
            return findings.fail("destination", message(&error), advice);
        }
        Err(error) => {
            let advice = "Check the host name and DNS; deliveries to it will wait.";
            return findings.fail("destination", message(&error), advice);
        }
    };
    if probe && let Err(error) = connector.try_connect(uri.clone()).await {
        let advice = "Check that it is running and not blocked by a firewall.";
        return findings.fail("destination", message(&error), advice);
    }
    let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    let verb = if probe { "accepts connections at" } else { "resolves to" };
    findings.ok("destination", format!("`{name}` {verb} {}", addresses.join(", ")));
}
