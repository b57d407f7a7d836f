//! The source that messages come from: made when it is needed, and nobody's to take away.

use std::sync::Arc;

use surehook_core::{
    outbox::{OUTBOX, is_reserved_name},
    rng::new_id,
    source::SourceSpec,
    store::{ConfigChange, Configuration},
};

use crate::{
    ConfigChangeError, Engine,
    ingest::SendMessageError,
    registry::{ConfigError, SourceRuntime},
};

impl Engine {
    /// The same changes, with the outbox if a route leads from it that is not there yet. Refuses to
    /// change it into something else.
    pub(crate) fn with_outbox(
        &self,
        configuration: &Configuration,
        mut changes: Vec<ConfigChange>,
    ) -> Result<Vec<ConfigChange>, ConfigError> {
        changes.iter().try_for_each(|change| check(configuration, change))?;
        let wants = |change: &ConfigChange| matches!(change, ConfigChange::PutRoute(_, route) if is_reserved_name(&route.from));
        let makes = |change: &ConfigChange| matches!(change, ConfigChange::PutSource(_, source) if is_reserved_name(&source.name));
        let is_there =
            configuration.sources.iter().any(|source| is_reserved_name(&source.spec.name));
        if changes.iter().any(wants) && !is_there && !changes.iter().any(makes) {
            changes.insert(0, self.new_outbox());
        }
        Ok(changes)
    }

    fn new_outbox(&self) -> ConfigChange {
        let id = new_id(&*self.shared.chance, self.shared.clock.now());
        ConfigChange::PutSource(id, SourceSpec::outbox())
    }

    /// The outbox with its routes; made if it is not there.
    pub(crate) async fn outbox(self: &Arc<Self>) -> Result<Arc<SourceRuntime>, SendMessageError> {
        let known = |engine: &Self| engine.registry.load().sources.get(OUTBOX).cloned();
        if known(self).is_none() {
            self.change::<_, ConfigChangeError>(|configuration| {
                let is_there =
                    configuration.sources.iter().any(|source| is_reserved_name(&source.spec.name));
                Ok((if is_there { Vec::new() } else { vec![self.new_outbox()] }, ()))
            })
            .await?;
        }
        let entry = known(self).ok_or(SendMessageError::OutboxUnusable)?;
        match &entry.source {
            Ok(source) if source.is_outbox() && source.enabled => Ok(entry),
            Ok(source) if source.is_outbox() => Err(SendMessageError::OutboxDisabled),
            Ok(_) => Err(SendMessageError::OutboxTaken),
            Err(_) => Err(SendMessageError::OutboxUnusable),
        }
    }
}

/// Whether a change leaves the outbox what it is, and its name alone. Who has a source of that name
/// from before may keep it.
fn check(configuration: &Configuration, change: &ConfigChange) -> Result<(), ConfigError> {
    let stored = |id| configuration.sources.iter().find(|source| source.id == id);
    match change {
        ConfigChange::PutSource(id, spec) => match stored(*id) {
            Some(before) if before.spec.is_outbox() && !spec.is_outbox() => {
                Err(ConfigError::BuiltIn(before.spec.name.to_string()))
            }
            before => {
                let had_it = before.is_some_and(|before| is_reserved_name(&before.spec.name));
                let takes_it = is_reserved_name(&spec.name) && !spec.is_outbox() && !had_it;
                let problem = || ConfigError::Reserved(spec.name.to_string());
                if takes_it { Err(problem()) } else { Ok(()) }
            }
        },
        ConfigChange::DeleteSource(id) => match stored(*id) {
            Some(before) if before.spec.is_outbox() => {
                Err(ConfigError::BuiltIn(before.spec.name.to_string()))
            }
            Some(_) | None => Ok(()),
        },
        ConfigChange::PutDestination(..)
        | ConfigChange::PutRoute(..)
        | ConfigChange::DeleteDestination(_)
        | ConfigChange::DeleteRoute(_) => Ok(()),
    }
}
