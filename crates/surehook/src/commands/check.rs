//! Whether what is configured can be used, each part for itself, and which variables it wants.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use surehook_core::{
    address::AddressPolicy,
    destination::{
        DestinationSpecError,
        proxy::ProxySpecError,
        stream::StreamSpecError,
        tls::{PemRef, TlsSpec},
    },
    source::SourceSpecError,
    store::{ConfigChange, Configuration},
    verify::VerifySpecError,
};
use surehook_engine::{
    programs::AllowedPrograms,
    registry::{self, ConfigError, DestinationPolicy},
    tls::TrustStore,
};

use crate::settings::environment;

/// Stands in for a secret whose variable is not set here: good enough wherever one is wanted. It has
/// only letters and `_`, because not every provider takes other signs.
const PLACEHOLDER: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// What cannot be used, and why.
    pub(super) problems: Vec<String>,
    /// Variables that are asked for and not set here.
    pub(super) unset: BTreeSet<String>,
}

/// Checks every part of a configuration. A variable that is not set is no problem of the
/// configuration: the gateway may well have it.
pub(super) fn check(
    configuration: &Configuration,
    addresses: &AddressPolicy,
    programs: &AllowedPrograms,
) -> Checked {
    let unset = Arc::new(Mutex::new(BTreeSet::new()));
    // Whether the part that is checked got a secret that is none.
    let stood_in = Arc::new(AtomicBool::new(false));
    let env = {
        let (unset, stood_in) = (Arc::clone(&unset), Arc::clone(&stood_in));
        move |name: &str| {
            let found = environment(name);
            if found.is_none() {
                stood_in.store(true, Ordering::Relaxed);
                unset.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
            }
            found.or_else(|| Some(PLACEHOLDER.to_owned()))
        }
    };
    let trust = TrustStore::from_system();
    let ground = DestinationPolicy { addresses, trust: &trust, programs };
    let mut problems = Vec::new();
    for mut change in as_changes(configuration) {
        if let ConfigChange::PutDestination(_, spec) = &mut change {
            leave_out_unset(spec.tls.as_deref_mut(), &env);
        }
        stood_in.store(false, Ordering::Relaxed);
        let checked = registry::check_configuration(
            configuration,
            std::slice::from_ref(&change),
            &ground,
            &env,
        );
        let Err(problem) = checked else { continue };
        let is_stand_in = stood_in.load(Ordering::Relaxed);
        if !(is_stand_in && is_about_the_form_of_a_secret(&problem)) {
            problems.push(problem.to_string());
        }
    }
    problems.dedup();
    let unset = unset.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Checked { problems, unset }
}

/// Leaves out what is not set here of the certificates: nothing could stand in for them.
fn leave_out_unset(tls: Option<&mut TlsSpec>, env: &dyn Fn(&str) -> Option<String>) {
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
    // One without the other is a problem whatever is set.
    if (certificate || key) && tls.client_certificate.is_some() && tls.client_key.is_some() {
        (tls.client_certificate, tls.client_key) = (None, None);
    }
}

/// No secret stands in for all others: some are hexadecimal, some are ids, some are whole URLs.
fn is_about_the_form_of_a_secret(problem: &ConfigError) -> bool {
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

/// The changes that would lead to what is there.
fn as_changes(configuration: &Configuration) -> Vec<ConfigChange> {
    let Configuration { sources, destinations, routes, .. } = configuration;
    let sources = sources.iter().map(|s| ConfigChange::PutSource(s.id, s.spec.clone()));
    let destinations =
        destinations.iter().map(|d| ConfigChange::PutDestination(d.id, d.spec.clone()));
    let routes = routes.iter().map(|r| ConfigChange::PutRoute(r.id, r.spec.clone()));
    sources.chain(destinations).chain(routes).collect()
}
