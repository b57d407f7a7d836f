//! Checks each part of a configuration on its own, and collects unset environment variables.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use surehook_core::{
    destination::{
        DestinationSpecError,
        stream::StreamSpecError,
        tls::{PemRef, TlsSpec},
    },
    source::SourceSpecError,
    store::{ConfigChange, Configuration, Store},
};
use surehook_engine::{
    programs::AllowedPrograms,
    registry::{self, ConfigError, DestinationPolicy},
    tls::TrustStore,
    trial::try_filter_on_recent_events,
};
use surehook_guard::{address::AddressPolicy, proxy::ProxySpecError};
use surehook_webhooks::{jq::JqFilter, verify::VerifySpecError};

use crate::settings::environment;

/// Replaces a secret whose variable is not set here. Only letters and `_`, because some providers accept
/// nothing else.
const PLACEHOLDER: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[derive(Debug, Default)]
pub(super) struct ConfigCheckReport {
    /// Unusable parts, with the reason.
    pub(super) problems: Vec<String>,
    /// Risky settings, which work.
    pub(super) warnings: Vec<String>,
    /// Referenced variables that are not set here.
    pub(super) unset: BTreeSet<String>,
}

/// Checks every part of a configuration that replaces `before`. An unset variable is not a problem: the
/// gateway may have it.
pub(super) fn check(
    before: &Configuration,
    configuration: &Configuration,
    addresses: &AddressPolicy,
    programs: &AllowedPrograms,
    has_public_url: bool,
) -> ConfigCheckReport {
    let unset = Arc::new(Mutex::new(BTreeSet::new()));
    // Whether the current part was checked with a placeholder.
    let used_placeholder = Arc::new(AtomicBool::new(false));
    let env = {
        let (unset, used_placeholder) = (Arc::clone(&unset), Arc::clone(&used_placeholder));
        move |name: &str| {
            let value = environment(name);
            if value.is_none() {
                used_placeholder.store(true, Ordering::Relaxed);
                unset.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
            }
            value.or_else(|| Some(PLACEHOLDER.to_owned()))
        }
    };
    let trust = TrustStore::from_system();
    let policy = DestinationPolicy { addresses, trust: &trust, programs };
    let mut problems = Vec::new();
    for mut change in to_changes(configuration) {
        if let ConfigChange::PutDestination(_, spec) = &mut change {
            remove_unset(spec.tls.as_deref_mut(), &env);
        }
        used_placeholder.store(false, Ordering::Relaxed);
        let checked = registry::check_configuration(
            before,
            configuration,
            std::slice::from_ref(&change),
            &policy,
            has_public_url,
            &env,
        );
        let Err(problem) = checked else { continue };
        let has_placeholder = used_placeholder.load(Ordering::Relaxed);
        if !(has_placeholder && is_secret_format_error(&problem)) {
            problems.push(problem.to_string());
        }
    }
    problems.dedup();
    let warnings = configuration.sources.iter().flat_map(|stored| {
        let source = stored.spec.build(stored.id, &env).ok();
        let warnings = source.map(|source| source.key_warnings()).unwrap_or_default();
        let name = &stored.spec.name;
        warnings.into_iter().map(move |warning| format!("source {name}: {warning}"))
    });
    let warnings = warnings.collect();
    let unset = unset.lock().unwrap_or_else(PoisonError::into_inner).clone();
    ConfigCheckReport { problems, warnings, unset }
}

/// Warns of each filter that matches none of the recent events of its source. For a source without events
/// there is nothing to say.
pub(super) async fn check_filters(configuration: &Configuration, store: &dyn Store) -> Vec<String> {
    let Ok(stored) = store.load_configuration().await else { return Vec::new() };
    let mut warnings = Vec::new();
    for spec in configuration.routes.iter().map(|route| &route.spec) {
        let source = stored.sources.iter().find(|source| source.spec.name == spec.from);
        let (Some(source), Some(filter)) = (source, &spec.filter) else { continue };
        if JqFilter::for_route(filter).check().is_err() {
            continue;
        }
        let result = try_filter_on_recent_events(store, &stored, source, filter, true).await;
        if let Some(warning) = result.unwrap_or_default().warning(spec.from.as_str()) {
            warnings.push(format!("route from `{}` to `{}`: {warning}", spec.from, spec.to));
        }
    }
    warnings
}

/// Removes certificates whose variable is not set here: there is no placeholder for them.
fn remove_unset(tls: Option<&mut TlsSpec>, env: &dyn Fn(&str) -> Option<String>) {
    let Some(tls) = tls else { return };
    let is_unset = |pem: &Option<PemRef>| match pem {
        Some(PemRef::Text(text)) => {
            text.resolve(&environment).is_err() && text.resolve(env).is_ok()
        }
        Some(PemRef::File(_)) | None => false,
    };
    if is_unset(&tls.ca) {
        (tls.ca, tls.ca_only) = (None, false);
    }
    let (certificate, key) = (is_unset(&tls.client_certificate), is_unset(&tls.client_key));
    // A certificate without a key, or a key without one, stays a problem.
    if (certificate || key) && tls.client_certificate.is_some() && tls.client_key.is_some() {
        (tls.client_certificate, tls.client_key) = (None, None);
    }
}

/// Errors that only the placeholder may have caused: some secrets must be hexadecimal, ids or URLs.
fn is_secret_format_error(problem: &ConfigError) -> bool {
    let form = |error: &SourceSpecError| {
        matches!(error, SourceSpecError::Verify(VerifySpecError::Secret { .. }))
    };
    let url = |error: &DestinationSpecError| {
        matches!(
            error,
            DestinationSpecError::Proxy(ProxySpecError::Syntax)
                | DestinationSpecError::Stream(StreamSpecError::Syntax)
        )
    };
    matches!(problem, ConfigError::Source(_, error) if form(error))
        || matches!(problem, ConfigError::Destination(_, error) if url(error))
}

/// The changes that would create the configuration.
fn to_changes(configuration: &Configuration) -> Vec<ConfigChange> {
    let Configuration { sources, destinations, routes, .. } = configuration;
    let sources = sources.iter().map(|s| ConfigChange::PutSource(s.id, s.spec.clone()));
    let destinations =
        destinations.iter().map(|d| ConfigChange::PutDestination(d.id, d.spec.clone()));
    let routes = routes.iter().map(|r| ConfigChange::PutRoute(r.id, r.spec.clone()));
    sources.chain(destinations).chain(routes).collect()
}
